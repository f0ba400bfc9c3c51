//! Any bytes give a forwarded packet or a counted drop: the corpus, damaged, cut and mixed, and bytes at random.

use std::time::Duration;

use asterism_director::{Command, Fragments, Suspend};
use asterism_packet::{Packet, Protocol};
use proptest::prelude::*;

use crate::harness::*;

pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../packet/tests/corpus");
    let files = std::fs::read_dir(folder).unwrap();
    let mut frames: Vec<_> = files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(frames.len() > 20);
    frames.sort();
    frames
}

/// A director in which everything is at work: exceptions, a drain, suspensions, fragments that follow.
fn busy(fragments: Fragments) -> World {
    let mut config = config();
    config.fragments = fragments;
    let mut world = World::new(config);
    world.set_up();
    let drains = Box::new(table(&[0, 1], &[2]));
    world.command(Command::Table(drains)).unwrap();
    for number in 0..20 {
        let flow = key(&flow(number, Protocol::UDP));
        let idle = Duration::from_secs(1);
        let to = slot(1);
        world.command(Command::Pin { flow, to, idle }).unwrap();
    }
    for bucket in 0..200 {
        let what = Suspend::Bucket(bucket);
        world.command(Command::Suspend(what)).unwrap();
    }
    world
}

pub(crate) fn to_director(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame.len() >= 6 {
        frame[..6].copy_from_slice(&DIRECTOR.0);
    }
    frame
}

#[test]
fn the_corpus_is_forwarded_or_counted_whatever_is_damaged() {
    for fragments in [Fragments::Together, Fragments::WithFirst] {
        let mut world = busy(fragments);
        for frame in corpus() {
            let directed = to_director(&frame);
            let mut copy = directed.clone();
            let is_ip = Packet::parse(&mut copy).is_ok_and(|packet| {
                packet.ipv4_source().is_some() || packet.ipv6_source().is_some()
            });
            let before = world.statistics();
            world.through(&[frame.clone(), directed.clone()]);
            let after = world.statistics();
            let taken = after.forwarded + after.waiting_packets_now;
            let had = before.forwarded + before.waiting_packets_now;
            if !is_ip {
                assert_eq!(taken, had);
            }
            for cut in 0..directed.len() {
                world.feed(&directed[..cut]);
            }
            for place in 0..directed.len() {
                for bit in [0x01, 0x10, 0x80] {
                    let mut damaged = directed.clone();
                    damaged[place] ^= bit;
                    world.feed(&damaged);
                }
            }
            world.turn();
            world.statistics();
            world.sent();
        }
        world.pass(Duration::from_secs(10));
        let end = world.statistics();
        assert_eq!((end.waiting_packets_now, end.suspensions_now), (0, 0));
        assert!(end.forwarded > 1_000 && end.dropped_total() > 1_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_have_one_end(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..80), is_directed: bool) {
        let mut world = busy(Fragments::WithFirst);
        for frame in &frames {
            let frame = if is_directed { to_director(frame) } else { frame.clone() };
            world.feed(&frame);
        }
        world.turn();
        world.statistics();
    }
}
