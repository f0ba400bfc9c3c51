//! Several instances use one store over wires that break: each packet takes effect once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asterism_embedded_store::{Keyspace, Session};
use asterism_function::PortNumber;
use asterism_placement::Time;
use asterism_remote_store::{CacheConfig, ClientConfig};
use asterism_resp::{CommandWriter, Value};

use crate::tills::{IN_STORE, Tills, judge, packet, settings};
use crate::wires::Faults;
use crate::world::{SEED, Setup, World};

/// So that packets are often in each other's way.
const TILLS: Tills = Tills(4);
const FLOWS: u32 = 12;

pub(crate) fn config(number: usize, commit_pipes: usize) -> ClientConfig {
    ClientConfig {
        function: "tills".to_owned(),
        client: format!("0.1.{number}"),
        seed: SEED,
        objects: IN_STORE,
        commit_pipes,
        cache: None,
        shard: None,
    }
}

/// The same with a filter of the keys that are not there.
pub(crate) fn filtering(number: usize, commit_pipes: usize) -> ClientConfig {
    let cache = CacheConfig {
        entries: 1_024,
        staleness: Duration::from_secs(1),
        staleness_away: Duration::ZERO,
        has_filter: true,
    };
    ClientConfig {
        cache: Some(cache),
        ..config(number, commit_pipes)
    }
}

fn world(instances: usize, commit_pipes: usize, faults: Faults) -> World<Tills> {
    world_of((TILLS, config), instances, commit_pipes, faults)
}

fn world_of(
    (tills, client): (Tills, fn(usize, usize) -> ClientConfig),
    instances: usize,
    commit_pipes: usize,
    faults: Faults,
) -> World<Tills> {
    let setup = Setup {
        function: Arc::new(tills),
        settings,
        client,
        commit_pipes,
        faults,
        ports: 1,
        shards: 1,
    };
    World::new(setup, instances)
}

impl World<Tills> {
    /// Packets of all flows, each to any instance; what left of them.
    fn run(&mut self, packets: u32, between_us: u64) -> Vec<Vec<u8>> {
        for number in 0..packets {
            while self.now_us < u64::from(number) * between_us {
                self.turn();
            }
            let flow = (number * 7 % FLOWS) as u16;
            let to = (number.wrapping_mul(0x9E37_79B1) >> 16) as usize % self.instances.len();
            let now = Time::from_micros(self.now_us);
            let bytes = packet(flow, number);
            assert!(self.instances[to].inject(now, PortNumber(0), &bytes));
        }
        self.end();
        self.left_by(0)
    }

    /// Pairs under the keys of one side of the tokens, and whether each is shadowed.
    fn pairs(&self, side: u8, keys: u32) -> BTreeMap<[u8; 8], bool> {
        let mut pairs = BTreeMap::new();
        for number in 0..keys {
            let mut key = format!("{{tills}}2:{side}:").into_bytes();
            key.extend(number.to_le_bytes());
            let mut command = Vec::new();
            CommandWriter::new(&mut command).command(&[b"GET", &key]);
            let (sent, _) = Value::read(&command).expect("a command").expect("whole");
            let mut reply = Vec::new();
            let mut store = self.store.keyspace.borrow_mut();
            Session::new().call(&mut store, sent, &mut reply, None);
            let (reply, _) = Value::read(&reply).expect("a reply").expect("whole");
            let answer = reply.bytes().unwrap_or(&[0, 0]);
            let length = usize::from(u16::from_le_bytes([answer[0], answer[1]]));
            for entry in answer[2..2 + length].chunks(9) {
                let row = *entry.first_chunk().expect("a pair and a flag");
                pairs.insert(row, entry[8] != 0);
            }
        }
        pairs
    }
}

#[test]
fn several_instances_share_a_store_and_each_packet_takes_effect_once() {
    for (instances, commit_pipes) in [(1, 1), (2, 1), (3, 2)] {
        let faults = Faults::none(200);
        let mut world = world(instances, commit_pipes, faults);
        let left = world.run(600, 100);
        let dropped = judge(TILLS, &left, 600, 0);
        assert!((50..200).contains(&dropped), "{dropped} without room");
        let pairs = world.pairs(0, 600);
        assert_eq!(pairs, world.pairs(1, TILLS.0 + 1), "both sides");
        assert!(pairs.values().any(|is_shadowed| *is_shadowed));
        let of_store = world.store.keyspace.borrow().len();
        assert!(of_store > 600, "{of_store} keys");
        let crossed: u64 = world.tallies().iter().map(|of| of.crossed).sum();
        assert_eq!(crossed > 0, instances > 1, "{crossed} batches were crossed");
    }
}

#[test]
fn connections_break_and_each_packet_takes_effect_once() {
    let mut broken = 0;
    for delay_us in [60, 200, 800] {
        let faults = Faults::breaking(300, delay_us);
        let mut world = world(3, 2, faults);
        let left = world.run(500, 200);
        let dropped = judge(TILLS, &left, 500, 0);
        assert!((40..200).contains(&dropped), "{dropped} without room");
        broken += world.broken();
    }
    assert!(broken > 500, "{broken} broken connections show little");
}

#[test]
fn the_last_room_is_given_once() {
    for delay_us in (40..400).step_by(40) {
        let faults = Faults::none(delay_us);
        let mut world = world(5, 1, faults);
        // A packet of each account, one more than there is room for, at once.
        for number in 0..5 {
            let bytes = packet(number, number.into());
            let instance = &mut world.instances[usize::from(number)];
            assert!(instance.inject(Time::ZERO, PortNumber(0), &bytes));
        }
        let left = world.run(0, 0);
        assert_eq!(judge(TILLS, &left, 5, 0), 1);
    }
}

#[test]
fn packets_of_a_full_store_are_dropped_and_nothing_of_them_is_kept() {
    let faults = Faults::none(200);
    let mut world = world(1, 1, faults);
    // It takes writes until it holds more than it may.
    let mut full = Keyspace::new(0);
    let mut command = Vec::new();
    CommandWriter::new(&mut command).command(&[b"SET", b"other", b"value"]);
    let (sent, _) = Value::read(&command).expect("a command").expect("whole");
    Session::new().call(&mut full, sent, &mut Vec::new(), None);
    *world.store.keyspace.borrow_mut() = full;
    let left = world.run(50, 100);
    assert!(left.is_empty(), "{} left", left.len());
    assert_eq!(world.store.keyspace.borrow().len(), 1);
    let tally = world.tallies()[0];
    assert!(tally.refused > 32, "{tally:?}");
    assert!(tally.decided >= 50, "{tally:?}");
}

/// A store that is far away: what two connections commit in a round trip bounds the rate, unless there are more.
#[test]
fn connections_follow_the_load() {
    let mut took_us = Vec::new();
    for commit_pipes in [2, 8] {
        let faults = Faults::none(10_000);
        let mut world = world_of((Tills(4_096), filtering), 1, commit_pipes, faults);
        let connections = |world: &World<Tills>| world.tallies()[0].connections as usize;
        assert_eq!(connections(&world), 0, "nothing was done yet");
        // Until the filter knows that nothing is there: only commits take their time then.
        while !world.tallies()[0].filter_is_complete {
            world.turn();
        }
        let begun_us = world.now_us;
        // Each of an account of its own, so that none waits for another one.
        let (mut sent, mut back) = (0u32, 0);
        while back < 2_000 {
            while sent < 2_000 && sent - back < 320 {
                let now = Time::from_micros(world.now_us);
                let bytes = packet(sent as u16, sent);
                assert!(world.instances[0].inject(now, PortNumber(0), &bytes));
                sent += 1;
            }
            world.turn();
            back += world.left_by(0).len() as u32;
            let drops: Vec<_> = world.instances[0].tally().drops().collect();
            assert!(drops.is_empty(), "{back} of {sent}: {drops:?}");
        }
        assert_eq!(connections(&world) > 3, commit_pipes > 2);
        took_us.push(world.now_us - begun_us);
        for _ in 0..61_000 {
            world.now_us += 1_000;
            world.turn();
        }
        assert_eq!(connections(&world), 3, "ten seconds without a batch each");
    }
    println!("2,000 transactions took {took_us:?} µs of virtual time");
    assert!(took_us[1] * 3 / 2 < took_us[0], "{took_us:?}");
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn every_planted_bug_is_found() {
    use asterism_remote_store::mutant::{Mutant, select};

    // Servers of several are not here, nor those that refuse or are refused: see `failover.rs`, `refusing.rs` and `seeds.rs`.
    let of_servers = [
        Mutant::RefusalUnseen,
        Mutant::RefusingStays,
        Mutant::FullIsLeft,
        Mutant::ReplicaTakenForPrimary,
        Mutant::SeedUnmarked,
        Mutant::MovedAlone,
        Mutant::ReplicaNotAwaited,
        Mutant::WaitWithoutWrite,
    ];
    // Seeds of the simulator find those that need shards of which one is away, or hosts that keep entries of several.
    let of_shards = [Mutant::FirstShardDrops, Mutant::ShardHoldsUpAll];
    let planted = Mutant::ALL.into_iter();
    let survived: Vec<Mutant> = planted
        .filter(|planted| !of_servers.contains(planted) && !of_shards.contains(planted))
        .filter(|&planted| {
            select(Some(planted));
            let short: [fn(); 2] = [
                crate::addresses::a_packet_whose_hosts_other_sessions_end_meanwhile_is_called_again,
                the_last_room_is_given_once,
            ];
            // They take seconds, and most bugs are found without them.
            let long: [fn(); 2] = [
                several_instances_share_a_store_and_each_packet_takes_effect_once,
                connections_break_and_each_packet_takes_effect_once,
            ];
            let passes = |test: &fn()| std::panic::catch_unwind(*test).is_ok();
            let kept = crate::kept::TESTS.iter().chain(&crate::filter::TESTS);
            let others = kept.chain(&crate::ends::TESTS).chain(&crate::meters::TESTS);
            let others = others.chain(&crate::sketches::TESTS);
            let others = others.chain(&crate::windows::TESTS);
            let others = others.chain(&crate::shards::TESTS);
            let others = others.chain(&crate::limits::TESTS);
            let survives = short.iter().chain(others).chain(&long).all(passes);
            select(None);
            survives
        })
        .collect();
    assert!(survived.is_empty(), "{survived:?}");
}
