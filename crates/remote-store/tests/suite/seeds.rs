//! Two clusters of one name and of two keys: the second one is refused, and adds to no cell that the first one never reads.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use asterism_function::Reason;
use asterism_remote_store::{
    AwayReason, ClientConfig, Listed, Listing, RemoteConfig, StoreListing, StoreSnapshot,
};
use asterism_resp::{CommandWriter, Value};

use crate::over_wires::config;
use crate::real_stores::TILLS;
use crate::stores::{Embedded, LAYOUT, any_port};
use crate::used::{Used, WITHIN};
use crate::world::SEED;

/// Where it is said what the key has.
const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/src/wire-formats.md"
);

/// A host of a cluster with this hash seed, whose store has this name.
fn remote(address: SocketAddr, seed: u64, name: &str) -> RemoteConfig {
    let client = ClientConfig {
        function: name.to_owned(),
        client: format!("{seed:x}"),
        seed,
        ..config(0, 1)
    };
    RemoteConfig {
        timeout: WITHIN,
        ..RemoteConfig::new(address, client)
    }
}

fn host(address: SocketAddr, seed: u64, name: &str) -> Used {
    Used::with(|own| *own = remote(address, seed, name))
}

/// What the store has under a key.
fn get(address: SocketAddr, key: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let mut command = Vec::new();
    CommandWriter::new(&mut command).command(&[b"GET", key.as_bytes()]);
    stream.write_all(&command).expect("it takes a command");
    let (mut reply, mut room) = (Vec::new(), [0; 512]);
    loop {
        let count = stream.read(&mut room).expect("it replies");
        assert!(count > 0, "it replies");
        reply.extend(&room[..count]);
        if let Some((value, _)) = Value::read(&reply).expect("a reply") {
            let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return value.bytes().map(words);
        }
    }
}

fn listed(address: SocketAddr, seed: u64) -> (Listed, usize) {
    let listing = StoreListing::new(Arc::new(TILLS), vec![remote(address, seed, "tills")]);
    let mut count = 0;
    let listed = listing.list(None, 1_000, &|| false, &mut |_, _| {
        count += 1;
        true
    });
    (listed, count)
}

#[test]
fn a_cluster_of_another_hash_seed_is_refused_under_the_same_name() {
    let store = Embedded::start(any_port());
    let mut first = host(store.address, SEED, "tills");
    first.passes("the first cluster");
    let layout = get(store.address, LAYOUT);
    // Another host of it, and one that started again.
    host(store.address, SEED, "tills").passes("a host with the same key");
    let mut other = host(store.address, SEED + 1, "tills");
    other.inject();
    let decided = |seen: &StoreSnapshot| seen.is_connected || seen.why != AwayReason::NotTried;
    let seen = other.until("refused", decided);
    assert!(!seen.is_connected && seen.connects == 0, "{seen:?}");
    assert_eq!(seen.why, AwayReason::HashSeed);
    for words in ["cluster key", "hash seed", "`name` in [store]", "key file"] {
        let cure = seen.why.cure();
        assert!(cure.contains(words), "{words} is not in: {cure}");
    }
    let until = Instant::now() + WITHIN;
    while other.instance.tally().dropped(Reason::ParkedTooLong) == 0 {
        assert!(Instant::now() < until, "its packet waits for ever");
        other.turn();
    }
    assert_eq!(other.left.try_iter().count(), 0);
    assert_eq!(get(store.address, LAYOUT), layout, "it wrote nothing");
    let (whole, entries) = listed(store.address, SEED);
    assert!(whole.is_whole() && entries > 0, "{whole:?}: {entries}");
    let away = vec![(0, AwayReason::HashSeed)];
    let refused = Listed {
        is_cut: false,
        away,
    };
    assert_eq!(listed(store.address, SEED + 1), (refused, 0));
    // Under a name of its own it has keys of its own.
    host(store.address, SEED + 1, "others").passes("another name");
    first.passes("the first cluster goes on");
}

#[test]
fn a_layout_says_nothing_of_the_seed_but_its_mark() {
    let store = Embedded::start(any_port());
    host(store.address, SEED, "tills").passes("the first host");
    let layout = get(store.address, LAYOUT).expect("it was written");
    assert!(!layout.contains(&format!("{SEED:016x}")), "{layout}");
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    let line = format!("`{layout}`");
    assert!(page.contains(&line), "the page is to show {line}");
    let mut other = Used::with(|own| {
        *own = remote(store.address, SEED, "tills");
        own.layout = 1;
    });
    other.until("another layout", |seen| seen.why == AwayReason::Layout);
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn a_layout_that_leaves_the_seed_out_is_found() {
    use asterism_remote_store::mutant::{Mutant, select};

    select(Some(Mutant::SeedUnmarked));
    let test = a_cluster_of_another_hash_seed_is_refused_under_the_same_name;
    let found = std::panic::catch_unwind(test).is_err();
    select(None);
    assert!(found);
}
