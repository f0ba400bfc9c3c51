//! A segment over cables, with the tests at their other ends.

use super::*;
use crate::cable::{CablePort, cable};
use asterism_function::testkit::allocations;
use asterism_io::port::{MemoryPort, PortDrop};

const SECOND: u64 = 1_000_000;

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

fn frame(from: u8, to: MacAddress, value: u8) -> Vec<u8> {
    [&to.0[..], &mac(from).0, &[0x88, 0xb5], &[value; 46]].concat()
}

struct World {
    segment: Segment,
    ends: Vec<Option<CablePort>>,
    pool: FramePool,
    now: Time,
}

impl World {
    /// Station `n` is at port `n`.
    fn new(ports: usize) -> World {
        let mut world = World {
            segment: Segment::new(3).unwrap(),
            ends: Vec::new(),
            pool: FramePool::new(256).unwrap(),
            now: Time::from_micros(1),
        };
        for number in 0..ports {
            let (own, other) = cable(format!("own {number}"), format!("other {number}")).unwrap();
            let port = world.segment.add_port(Box::new(own)).unwrap();
            assert_eq!(port.index(), number);
            world.ends.push(Some(other));
        }
        world
    }

    fn send(&mut self, port: usize, bytes: &[u8]) {
        let mut burst = Burst::new();
        burst.push(self.pool.allocate_copy(bytes).unwrap()).unwrap();
        let end = self.ends[port].as_mut().unwrap();
        assert_eq!(end.send(&mut self.pool, &mut burst), 1);
    }

    /// The ports that a frame comes out of.
    fn through(&mut self, port: usize, bytes: &[u8]) -> Vec<usize> {
        self.send(port, bytes);
        assert_eq!(self.segment.turn(self.now), 1);
        let mut burst = Burst::new();
        let mut out = Vec::new();
        for (number, end) in self.ends.iter_mut().enumerate() {
            let Some(end) = end else { continue };
            if end.receive(&mut self.pool, &mut burst) > 0 {
                let received = burst.pop().unwrap();
                assert_eq!(self.pool.bytes(&received), bytes);
                self.pool.release(received);
                out.push(number);
            }
            assert!(burst.is_empty(), "one copy");
        }
        assert_eq!(self.segment.frames_in_use(), 0);
        out
    }

    fn dropped(&self, reason: SegmentDrop) -> u64 {
        self.segment.statistics().dropped(reason)
    }
}

#[test]
fn unknown_stations_are_flooded_to_and_known_ones_are_not() {
    let mut world = World::new(4);
    assert_eq!(world.through(0, &frame(0, mac(2), 1)), [1, 2, 3]);
    assert_eq!(world.through(2, &frame(2, mac(0), 2)), [0]);
    assert_eq!(world.through(0, &frame(0, mac(2), 3)), [2]);
    assert_eq!(
        world.through(1, &frame(1, MacAddress::BROADCAST, 4)),
        [0, 2, 3]
    );
    // A station that moves is found where it is; one that is silent for long is flooded to.
    assert_eq!(world.through(3, &frame(2, mac(0), 5)), [0]);
    assert_eq!(world.through(0, &frame(0, mac(2), 6)), [3]);
    world.now = Time::from_micros(301 * SECOND);
    assert_eq!(world.through(0, &frame(0, mac(2), 7)), [1, 2, 3]);
    let statistics = world.segment.statistics();
    assert_eq!((statistics.received, statistics.flooded), (7, 3));
    assert_eq!(statistics.sent, 13);
    assert_eq!(statistics.links_up_now, 4);
}

#[test]
fn a_configured_station_is_not_captured_by_a_forged_source() {
    let mut world = World::new(3);
    world.segment.add_station(mac(2), PortNumber(2)).unwrap();
    assert_eq!(world.through(1, &frame(2, mac(9), 1)), [0, 2]);
    assert_eq!(world.through(0, &frame(0, mac(2), 2)), [2]);
    assert_eq!(
        world.segment.add_station(mac(5), PortNumber(9)),
        Err(SegmentError::NoPort(9))
    );
}

#[test]
fn what_is_not_delivered_is_counted_by_its_reason() {
    let mut world = World::new(3);
    world.segment.add_station(mac(1), PortNumber(1)).unwrap();
    assert!(world.through(0, &[1; 13]).is_empty());
    assert!(world.through(0, &frame(1, mac(1), 1)[..12]).is_empty());
    let mut group = frame(0, mac(1), 1);
    group[6] |= 1;
    assert!(world.through(0, &group).is_empty());
    assert_eq!(world.dropped(SegmentDrop::Malformed), 3);
    assert!(world.through(1, &frame(5, mac(1), 1)).is_empty());
    assert_eq!(world.dropped(SegmentDrop::SamePort), 1);

    // The queue of a port that nobody reads.
    for _ in 0..40 {
        for _ in 0..BURST {
            let long = [&frame(0, mac(1), 2)[..], &[0; 1_000]].concat();
            world.send(0, &long);
        }
        world.segment.turn(world.now);
    }
    let full = world.dropped(SegmentDrop::BackPressure);
    assert!(full > 900 && full < 1_280, "{full}");
    let (counts, link) = world.segment.port(PortNumber(1)).unwrap();
    assert_eq!(
        (counts.dropped(PortDrop::QueueFull), link),
        (full, LinkState::Up)
    );

    // A station whose port is down, and one whose port is gone.
    world.ends[1] = None;
    assert!(world.through(0, &frame(0, mac(1), 3)).is_empty());
    assert_eq!(world.dropped(SegmentDrop::LinkDown), 1);
    assert_eq!(world.segment.statistics().link_downs, 1);
    world.segment.remove_port(PortNumber(1)).unwrap();
    assert_eq!(
        world.segment.remove_port(PortNumber(1)),
        Err(SegmentError::NoPort(1))
    );
    assert_eq!(world.through(0, &frame(0, mac(1), 4)), [2]);
}

#[test]
fn ports_are_bounded_and_a_free_number_is_used_again() {
    let mut segment = Segment::new(1).unwrap();
    let sink = || Box::new(MemoryPort::sink("sink"));
    for _ in 0..PORTS_MAX {
        segment.add_port(sink()).unwrap();
    }
    assert_eq!(segment.add_port(sink()), Err(SegmentError::Ports));
    segment.remove_port(PortNumber(7)).unwrap();
    assert_eq!(segment.add_port(sink()), Ok(PortNumber(7)));
}

#[test]
fn a_flooded_burst_to_all_ports_has_frames_enough() {
    let mut world = World::new(PORTS_MAX);
    for value in 0..BURST as u8 {
        world.send(0, &frame(0, MacAddress::BROADCAST, value));
    }
    world.segment.turn(world.now);
    assert_eq!(world.segment.statistics().sent, (63 * BURST) as u64);
    assert_eq!(world.dropped(SegmentDrop::NoFrame), 0);
    assert_eq!(world.segment.frames_in_use(), 0);
}

/// Known, unknown and forged destinations, groups, full and short frames, over cables: none allocates.
#[test]
fn no_frame_allocates_whatever_becomes_of_it() {
    let mut frames = vec![frame(1, mac(7), 1), frame(2, MacAddress::BROADCAST, 1)];
    frames.extend((0..200).map(|number| frame(number, mac(number / 2), 1)));
    frames.extend([vec![1; 5], frame(3, mac(3), 1), frame(4, mac(200), 1)]);
    frames.extend((0..20).map(|number| frame(number, mac(210), 2)));
    let mut segment = Segment::new(1).unwrap();
    let packets = frames.iter().map(Vec::as_slice);
    let source = MemoryPort::cycling("source", packets, u64::MAX);
    segment.add_port(Box::new(source)).unwrap();
    let (one, _unread) = cable("one", "unread").unwrap();
    let two = segment.add_port(Box::new(MemoryPort::sink("two"))).unwrap();
    let unread = segment.add_port(Box::new(one)).unwrap();
    segment.add_station(mac(3), two).unwrap();
    segment.add_station(mac(210), unread).unwrap();
    let before = allocations();
    for turn in 0..10_000 {
        segment.turn(Time::from_micros(turn * 100));
    }
    assert_eq!(allocations() - before, 0);
    let statistics = segment.statistics();
    assert!(
        statistics.received > 300_000 && statistics.flooded > 2_000,
        "{statistics:?}"
    );
    for reason in [
        SegmentDrop::Malformed,
        SegmentDrop::SamePort,
        SegmentDrop::BackPressure,
    ] {
        assert!(statistics.dropped(reason) > 0, "{reason:?}");
    }
}

#[test]
fn reasons_are_in_the_order_of_their_numbers() {
    for (number, reason) in SegmentDrop::ALL.iter().enumerate() {
        assert_eq!(*reason as usize, number, "{}", reason.label());
    }
    let statistics = SegmentStatistics {
        received: 1,
        links_up_now: 2,
        dropped: [3, 4, 5, 6, 7],
        ..SegmentStatistics::default()
    };
    let mut words = Vec::new();
    statistics.write(&mut words);
    assert_eq!(words.len(), SegmentStatistics::WORDS);
    assert_eq!(SegmentStatistics::read(&words), Some(statistics));
}
