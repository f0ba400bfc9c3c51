//! Two directors on one segment: one answers for the shared addresses, both forward alike, either may die.

use std::time::Duration;

use asterism_director::pair::PairConfig;
use asterism_director::{Command, DirectorDrop, MacAddress};
use asterism_packet::{Packet, build};

use crate::harness::*;

const SECOND: Duration = Duration::from_secs(1);

/// Two directors and a switch that hands each the frames of the other.
struct Segment {
    worlds: [Option<World>; 2],
    /// The sender of the last announcement: where the network sends packets to.
    station: Option<MacAddress>,
    is_broken: bool,
}

fn world(number: u8, incarnation: u64) -> World {
    let mut config = config();
    config.arms[0].mac = MacAddress([2, 0xd1, 0, 0, 0, number]);
    config.pair = Some((0, PairConfig::new(5, [9; 32], incarnation, 10 - number)));
    let mut world = World::new(config);
    for number in 0..3 {
        let (slot, host) = (slot(number), host(number));
        world.command(Command::SetHost { slot, host }).unwrap();
    }
    let table = Box::new(table(&[0, 1, 2], &[]));
    world.command(Command::Table(table)).unwrap();
    world
}

impl Segment {
    fn new() -> Segment {
        Segment {
            worlds: [Some(world(0, 1)), Some(world(1, 2))],
            station: None,
            is_broken: false,
        }
    }

    fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            for number in 0..2 {
                let Some(world) = &mut self.worlds[number] else {
                    continue;
                };
                world.now = world.now.saturating_add(Duration::from_millis(1));
                world.director.turn(world.now);
                let sent = world.sent();
                for mut frame in sent {
                    let arp = Packet::parse(&mut frame).unwrap().arp();
                    if let Some(arp) = arp
                        && arp.sender == SHARED
                    {
                        self.station = Some(arp.sender_mac);
                    }
                    if let Some(other) = &self.worlds[1 - number]
                        && !self.is_broken
                    {
                        other.wire.feed.send(frame).unwrap();
                    }
                }
            }
        }
    }

    fn active(&self) -> [bool; 2] {
        [0, 1].map(|number| {
            let world = self.worlds[number].as_ref();
            world.is_some_and(|world| world.director.is_active())
        })
    }
}

/// The target of a frame that is sent to a director.
fn target(world: &mut World, number: u32, mac: MacAddress) -> Option<usize> {
    let mut frame = udp(number);
    frame[..6].copy_from_slice(&mac.0);
    let mut sent = world.through(&[frame]);
    sent.retain(|frame| frame.len() == udp(number).len());
    (0..3).find(|host| {
        sent.first()
            .is_some_and(|sent| sent[..6] == mac_of(*host).0)
    })
}

#[test]
fn either_may_die_and_the_other_takes_the_addresses() {
    for dies in [0, 1] {
        let mut segment = Segment::new();
        segment.pass(SECOND);
        assert_eq!(segment.active(), [true, false]);
        let macs = [0, 1].map(|number| MacAddress([2, 0xd1, 0, 0, 0, number]));
        assert_eq!(segment.station, Some(macs[0]));

        // Only the active one answers; both forward, and alike.
        let asker = std::net::Ipv4Addr::new(192, 0, 2, 77);
        let mut question = [0; 64];
        let length = build::arp_request(CLIENT, asker, SHARED, &mut question).unwrap();
        for number in [0, 1] {
            let world = segment.worlds[number].as_mut().unwrap();
            let answered = world.director.statistics().answered;
            world.through(&[question[..length].to_vec()]);
            let answers = world.director.statistics().answered - answered;
            assert_eq!(answers, u64::from(number == 0));
        }
        for flow in 0..50 {
            let targets = [0, 1].map(|number| {
                let world = segment.worlds[number].as_mut().unwrap();
                target(world, flow, macs[number])
            });
            assert!(targets[0].is_some() && targets[0] == targets[1]);
        }

        segment.worlds[dies] = None;
        segment.pass(SECOND);
        assert!(segment.active()[1 - dies]);
        assert_eq!(segment.station, Some(macs[1 - dies]));
        let mut returned = world(dies as u8, 3);
        returned.now = segment.worlds[1 - dies].as_ref().unwrap().now;
        segment.worlds[dies] = Some(returned);
        segment.pass(2 * SECOND);
        assert!(!segment.active()[dies], "a return moves nothing");
    }
}

#[test]
fn a_broken_segment_that_heals_has_one_active_director() {
    let mut segment = Segment::new();
    segment.pass(SECOND);
    segment.is_broken = true;
    segment.pass(SECOND);
    assert_eq!(segment.active(), [true, true]);
    segment.is_broken = false;
    let bound = PairConfig::new(5, [9; 32], 1, 1).conflict_max(Duration::from_millis(4), 0);
    segment.pass(bound);
    assert_eq!(segment.active(), [true, false]);
    segment.pass(SECOND);
    assert_eq!(segment.station, Some(MacAddress([2, 0xd1, 0, 0, 0, 0])));
}

#[test]
fn heartbeats_without_the_key_are_counted_and_change_nothing() {
    let mut segment = Segment::new();
    segment.pass(SECOND);
    let forged = [vec![2; 12], vec![0x88, 0xb5], vec![7; 80]].concat();
    let world = segment.worlds[1].as_mut().unwrap();
    world.through(&[forged]);
    let refused = world.director.statistics();
    assert_eq!(refused.dropped(DirectorDrop::HeartbeatRefused), 1);
    assert!(refused.heartbeats_received > 5);
    segment.pass(SECOND);
    assert_eq!(segment.active(), [true, false]);
}
