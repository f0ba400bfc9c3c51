//! A store that answers, and refuses what is written, or its greeting: full, without replicas, unable to write its file, or as slow as it likes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use asterism_remote_store::AwayReason;

use crate::over_wires::config;
use crate::scripted::{Scripted, keys};
use crate::used::{Used, WITHIN};

const NOREPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";

/// An instance of a store at these addresses, with so much patience for one that refuses.
fn patient(addresses: &[SocketAddr]) -> Used {
    Used::with(|remote| {
        remote.addresses = addresses.to_vec();
        remote.timeout = Duration::from_secs(1);
    })
}

/// From now on a server answers what would write something with this error.
fn refuses(server: &Scripted, error: &str) {
    let error = format!("-{error}\r\n");
    server.says(move |command| {
        let writes = ["SET", "MSET", "DEL", "ZADD", "ZREM", "INCRBY", "HINCRBY"];
        writes.contains(&command).then(|| error.clone())
    });
}

#[test]
fn a_store_that_refuses_what_is_written_counts_as_away_and_keeps_its_connections() {
    let server = Scripted::start(&keys());
    let mut used = patient(&[server.address]);
    used.passes("at first");
    for (error, why) in [
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            AwayReason::Full,
        ),
        (NOREPLICAS, AwayReason::NoReplica),
        (
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist.",
            AwayReason::Refused,
        ),
    ] {
        let connects = used.statistics.snapshot().connects;
        refuses(&server, error);
        used.inject();
        used.until(error, |seen| !seen.is_connected && seen.why == why);
        // It stays so while packets come, with the connections that there were.
        let until = Instant::now() + Duration::from_millis(1_500);
        while Instant::now() < until {
            if used.instance.tally().parked == 0 {
                used.inject();
            }
            used.turn();
            assert!(!used.statistics.snapshot().is_connected, "{error}");
        }
        // A machine that stands still for a second loses some.
        let made = used.statistics.snapshot().connects - connects;
        assert!(made < 5, "{error}: {made} connections");
        server.says(|_| None);
        used.until("it takes them again", |seen| seen.is_connected);
        used.passes(error);
    }
    // Nobody writes anything: who looks for ends finds out.
    refuses(&server, NOREPLICAS);
    used.until("found out", |seen| !seen.is_connected);
    server.says(|_| None);
    used.until("found out again", |seen| seen.is_connected);
}

#[test]
fn a_primary_that_refuses_what_is_written_is_left_for_one_that_was_promoted() {
    let keys = keys();
    let (one, other) = (Scripted::start(&keys), Scripted::start(&keys));
    other.is_replica();
    let mut used = patient(&[one.address, other.address]);
    used.is_at(&one, "at the first");
    used.passes("at the first");
    refuses(&one, NOREPLICAS);
    used.inject();
    used.until("away", |seen| seen.why == AwayReason::NoReplica);
    // One connection looks for another primary each second, and comes back. The others stay.
    let (connects, begun) = (used.statistics.snapshot().connects, Instant::now());
    used.until("looked for", |seen| seen.connects >= connects + 3);
    assert!(begun.elapsed() >= Duration::from_secs(2), "in no time");
    other.says(|_| None);
    used.is_at(&other, "at the promoted one");
    used.passes("at the promoted one");
    used.has_left(&one);
}

#[test]
fn a_primary_that_is_full_is_not_left_for_another_one() {
    let keys = keys();
    let (one, other) = (Scripted::start(&keys), Scripted::start(&keys));
    let mut used = patient(&[one.address, other.address]);
    used.passes("at the first");
    let (full, elsewhere) = match used.statistics.snapshot().address == Some(one.address) {
        true => (&one, &other),
        false => (&other, &one),
    };
    refuses(
        full,
        "OOM command not allowed when used memory > 'maxmemory'.",
    );
    used.inject();
    used.until("away", |seen| seen.why == AwayReason::Full);
    // The other one says that it is a primary too, and may have an older history: the full one was not cut off.
    let until = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < until {
        if used.instance.tally().parked == 0 {
            used.inject();
        }
        used.turn();
        let seen = used.statistics.snapshot();
        assert_eq!(seen.address, Some(full.address), "{seen:?}");
    }
    full.says(|_| None);
    used.passes("there is room again");
    used.has_left(elsewhere);
}

#[test]
fn a_connection_that_the_load_asks_for_and_cannot_have_is_done_without() {
    let server = Scripted::start(&keys());
    server.takes(3);
    let mut used = Used::with(|remote| {
        remote.addresses = vec![server.address];
        remote.client = config(0, 4);
    });
    used.until("connected", |seen| seen.is_connected);
    let mut most = 0;
    let until = Instant::now() + WITHIN;
    while most < 4 || used.statistics.snapshot().tally.connections > 3 {
        assert!(Instant::now() < until, "{most} connections at most");
        if used.instance.tally().parked == 0 {
            (0..200).for_each(|flow| used.inject_of(flow));
        }
        used.turn();
        let seen = used.statistics.snapshot();
        most = most.max(seen.tally.connections);
        assert!(seen.is_connected, "it has all that it needs: {seen:?}");
    }
    assert_eq!(used.statistics.snapshot().connects, 3);
    used.passes("by the others");
}

/// A server that sends a byte each 20 ms and never a whole reply. It ends with the process.
fn trickles() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let address = listener.local_addr().expect("its port");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
                let mut next = b"+".as_slice();
                while stream.write_all(next).is_ok() {
                    // What comes is of no matter, nor that nothing does.
                    let _ = stream.read(&mut [0; 512]);
                    next = b"x";
                }
            });
        }
    });
    address
}

#[test]
fn a_server_that_sends_a_byte_now_and_then_holds_up_no_connection_for_long() {
    let other = Scripted::start(&keys());
    let mut used = patient(&[trickles(), other.address]);
    let begun = Instant::now();
    used.is_at(&other, "at the one that answers");
    used.passes("at the one that answers");
    // A reply has 4,096 bytes at most: each was waited for, for more than a minute.
    assert!(begun.elapsed() < Duration::from_secs(15));
    let mut used = patient(&[trickles()]);
    let seen = used.until("silent", |seen| seen.why == AwayReason::Silent);
    assert!(!seen.is_connected);
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_a_store_that_refuses_are_found() {
    use asterism_remote_store::mutant::{Mutant, select};

    let tests: [(Mutant, fn()); 3] = [
        (
            Mutant::RefusalUnseen,
            a_store_that_refuses_what_is_written_counts_as_away_and_keeps_its_connections,
        ),
        (
            Mutant::RefusingStays,
            a_primary_that_refuses_what_is_written_is_left_for_one_that_was_promoted,
        ),
        (
            Mutant::FullIsLeft,
            a_primary_that_is_full_is_not_left_for_another_one,
        ),
    ];
    for (planted, test) in tests {
        select(Some(planted));
        let found = std::panic::catch_unwind(test).is_err();
        select(None);
        assert!(found, "{planted:?}");
    }
}
