//! Clients and servers with a NAT of a few lines between them, which can lose, change its mind and err.

use std::collections::BTreeMap;

use asterism_function::testkit::allocations;
use asterism_io::frame::{Burst, FramePool};
use asterism_memory::hash;
use asterism_packet::{Endpoint, Packet, Protocol, build};
use asterism_placement::Time;

use super::*;
use crate::addresses::{LinkSide, outside_address};

/// A fault of the NAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Every packet is lost.
    Outage,
    /// Every tenth packet is lost.
    Loss,
    /// One flow in ten gets another endpoint.
    Moves,
    /// All flows get one endpoint.
    Shares,
    /// A byte is changed, and the checksum put right.
    Corrupts,
    /// Every tenth packet comes twice.
    Doubles,
    /// Half of the answers go to another client.
    Misdelivers,
}

struct World {
    ports: [Box<dyn Port>; 2],
    traffic: Traffic,
    pool: FramePool,
    now: Time,
    fault: Fault,
    packets: u64,
    mappings: BTreeMap<(u8, u32, u16), u16>,
    back: BTreeMap<(u8, u16), Endpoint>,
    next_port: u16,
    /// What the stations allocated.
    allocated: u64,
}

fn small() -> TrafficConfig {
    TrafficConfig {
        udp_requests: 10,
        udp_interval: Duration::from_millis(20),
        tcp_down_bytes: 20_000,
        tcp_pace: Duration::from_millis(5),
        ..TrafficConfig::default()
    }
}

impl World {
    fn new(config: &TrafficConfig) -> World {
        let stations = stations(config, 1).unwrap();
        World {
            ports: [stations.client, stations.server],
            traffic: stations.traffic,
            pool: FramePool::new(2_048).unwrap(),
            now: Time::from_micros(1),
            fault: Fault::None,
            packets: 0,
            mappings: BTreeMap::new(),
            back: BTreeMap::new(),
            next_port: 1_024,
            allocated: 0,
        }
    }

    /// Lets milliseconds pass.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now = self.now.saturating_add(Duration::from_millis(1));
            for _ in 0..4 {
                for from in [0, 1] {
                    self.turn(from);
                }
            }
        }
        for port in &mut self.ports {
            port.advance(self.now.saturating_add(PUBLISH_INTERVAL));
            port.advance(self.now);
        }
    }

    fn turn(&mut self, from: usize) {
        let mut burst = Burst::new();
        let before = allocations();
        self.ports[from].advance(self.now);
        self.ports[from].receive(&mut self.pool, &mut burst);
        self.allocated += allocations() - before;
        let frames: Vec<Vec<u8>> = burst
            .iter()
            .map(|one| self.pool.bytes(one).to_vec())
            .collect();
        self.pool.release_all(&mut burst);
        for mut frame in frames {
            let arp = Packet::parse(&mut frame).unwrap().arp();
            let (to, copies) = match arp {
                Some(arp) => {
                    let side = LinkSide::BOTH[from];
                    assert_eq!(arp.target, side.gateway());
                    let length = build::arp_reply(&arp, side.director_mac(0), &mut frame).unwrap();
                    frame.truncate(length);
                    (from, 1)
                }
                None => (1 - from, self.translate(from, &mut frame)),
            };
            for _ in 0..copies {
                burst
                    .push(self.pool.allocate_copy(&frame).unwrap())
                    .unwrap();
                assert_eq!(self.ports[to].send(&mut self.pool, &mut burst), 1);
            }
        }
    }

    /// How many copies of the packet arrive.
    fn translate(&mut self, from: usize, frame: &mut [u8]) -> usize {
        self.packets += 1;
        let is_tenth = self.packets.is_multiple_of(10);
        if self.fault == Fault::Outage || (self.fault == Fault::Loss && is_tenth) {
            return 0;
        }
        let corrupts = self.fault == Fault::Corrupts && is_tenth;
        let mut packet = Packet::parse(frame).unwrap();
        let flow = packet.flow4().unwrap();
        let side = LinkSide::BOTH[1 - from];
        packet.set_ethernet(side.host_mac(0), side.router_mac());
        let protocol = Protocol(flow.protocol);
        if from == 0 {
            let key = (flow.protocol, flow.source.to_bits(), flow.source_port);
            if self.fault == Fault::Moves && is_tenth {
                self.mappings.remove(&key);
            }
            let shares = self.fault == Fault::Shares;
            let next = &mut self.next_port;
            let port = *self.mappings.entry(key).or_insert_with(|| {
                *next = next.wrapping_add(1).max(1_024);
                if shares { 1_000 } else { *next }
            });
            self.back.insert((flow.protocol, port), flow.source());
            packet.set_source(Endpoint::new(outside_address(0), port, protocol));
        } else {
            let mut port = flow.destination_port;
            if self.fault == Fault::Misdelivers && is_tenth {
                port = self
                    .back
                    .keys()
                    .find(|(one, _)| *one == flow.protocol)
                    .unwrap()
                    .1;
            }
            let Some(inside) = self.back.get(&(flow.protocol, port)) else {
                return 0;
            };
            packet.set_destination(*inside);
        }
        if corrupts {
            corrupt(frame);
        }
        1 + usize::from(self.fault == Fault::Doubles && is_tenth)
    }

    fn snapshot(&self) -> TrafficSnapshot {
        self.traffic.snapshot()
    }

    /// Begins no more flows and lets those under way end.
    fn end(&mut self) -> TrafficSnapshot {
        self.traffic.begin_flows(false);
        for _ in 0..200 {
            if self.snapshot().under_way() == 0 {
                break;
            }
            self.pass(1_000);
        }
        self.pass(100);
        let snapshot = self.snapshot();
        assert_eq!(snapshot.under_way(), 0, "{snapshot:?}");
        assert_eq!(snapshot.begun(), snapshot.ended() + snapshot.failed());
        assert_eq!(self.pool.in_use(), 0);
        assert_eq!(self.allocated, 0, "stations allocate nothing");
        snapshot
    }
}

/// Changes the last byte of a payload and adds the difference to the checksum, so that only the bytes are wrong.
fn corrupt(frame: &mut [u8]) {
    let Ok(packet) = Packet::parse(frame) else {
        return;
    };
    let (payload, flow) = (packet.payload_range(), packet.flow4());
    let Some(flow) = flow.filter(|_| payload.len() > 40) else {
        return;
    };
    let field = payload.start
        - if flow.protocol == Protocol::UDP.0 {
            2
        } else {
            4
        };
    // The header of UDP has its checksum last, that of TCP has the urgent pointer after it.
    let place = payload.start + 30;
    let old = [frame[place], frame[place + 1]];
    let new = [old[0] ^ 1, old[1]];
    (frame[place], frame[place + 1]) = (new[0], new[1]);
    let change = asterism_packet::checksum::Change::NONE.and16(old, new);
    let sum = change.apply([frame[field], frame[field + 1]]);
    (frame[field], frame[field + 1]) = (sum[0], sum[1]);
}

#[test]
fn all_flows_end_well_over_a_right_network() {
    let mut world = World::new(&small());
    world.pass(4_000);
    let snapshot = world.end();
    assert!(snapshot.client.udp_begun >= 190, "{snapshot:?}");
    assert!(snapshot.client.tcp_begun >= 38, "{snapshot:?}");
    assert_eq!(
        (snapshot.failed(), snapshot.broken(), snapshot.wrong()),
        (0, 0, 0)
    );
    let client = snapshot.client;
    assert_eq!(
        (client.lost, client.duplicated, client.retransmissions),
        (0, 0, 0)
    );
    assert_eq!(client.requests, 10 * client.udp_begun);
    assert_eq!(
        (client.answers, snapshot.server.requests),
        (client.requests, client.requests)
    );
    assert_eq!(client.downloaded_bytes, 20_000 * client.tcp_begun);
    assert_eq!(snapshot.server.uploaded_bytes, 4_000 * client.tcp_begun);
    assert_eq!(snapshot.server.tcp_complete, client.tcp_begun);
    assert_eq!(snapshot.round_trips.total(), client.answers);
    assert!(snapshot.server.first_translated_us > 0 && client.first_answer_us > 0);
    assert!(
        client.longest_silence_us < 25_000,
        "{}",
        client.longest_silence_us
    );
}

#[test]
fn nothing_begins_before_the_first_answer() {
    let mut world = World::new(&small());
    world.fault = Fault::Outage;
    world.pass(1_000);
    let before = world.snapshot();
    assert_eq!((before.begun(), before.client.lost), (0, 0));
    assert!((90..=101).contains(&before.client.probes), "{before:?}");
    world.fault = Fault::None;
    world.pass(500);
    let after = world.end();
    assert!(after.begun() > 20 && after.client.lost == 0, "{after:?}");
    assert!(after.client.first_answer_us >= 1_000_000);
}

#[test]
fn an_outage_loses_the_packets_of_its_time_and_breaks_no_flow() {
    let mut world = World::new(&small());
    world.pass(2_000);
    let mark = world.traffic.mark();
    world.pass(20);
    assert_eq!(world.snapshot().client.marks, mark);
    let begin = world.now.as_micros();
    world.fault = Fault::Outage;
    world.pass(100);
    world.fault = Fault::None;
    let end = world.now.as_micros();
    world.pass(3_000);
    let snapshot = world.end();
    assert_eq!(
        (snapshot.failed(), snapshot.broken(), snapshot.wrong()),
        (0, 0, 0)
    );
    let client = snapshot.client;
    assert!(client.lost > 20 && client.lost < 200, "{client:?}");
    assert!(
        client.first_lost_us >= begin && client.last_lost_us <= end + 1_000,
        "{client:?}"
    );
    let silence = client.longest_silence_us;
    assert!((100_000..1_500_000).contains(&silence), "{silence}");
    assert!(snapshot.client.retransmissions + snapshot.server.retransmissions > 0);
}

#[test]
fn loss_is_counted_and_repaired() {
    let mut world = World::new(&small());
    world.pass(100);
    world.fault = Fault::Loss;
    world.pass(3_000);
    let snapshot = world.end();
    let client = snapshot.client;
    assert_eq!((snapshot.broken(), snapshot.wrong()), (0, 0));
    assert_eq!(client.lost + client.answers, client.requests);
    let permille = client.lost * 1_000 / client.requests;
    assert!((100..300).contains(&permille), "{permille}");
    assert!(
        client.tcp_complete > 20 && client.tcp_failed == 0,
        "{client:?}"
    );
}

#[test]
fn an_outside_endpoint_that_changes_or_is_shared_breaks_flows() {
    for (fault, at_least) in [(Fault::Moves, 10), (Fault::Shares, 50)] {
        let mut world = World::new(&small());
        world.pass(300);
        world.fault = fault;
        world.mappings.clear();
        world.pass(3_000);
        let snapshot = world.snapshot();
        let found = match fault {
            Fault::Moves => snapshot.server.moved,
            _ => snapshot.server.shared,
        };
        assert!(found >= at_least, "{fault:?}: {snapshot:?}");
    }
}

#[test]
fn wrong_bytes_doubles_and_foreign_answers_are_seen() {
    for fault in [Fault::Corrupts, Fault::Doubles, Fault::Misdelivers] {
        let mut world = World::new(&small());
        world.pass(300);
        world.fault = fault;
        world.pass(2_000);
        let snapshot = world.snapshot();
        let (client, server) = (snapshot.client, snapshot.server);
        let found = match fault {
            Fault::Corrupts => client.wrong_bytes.min(server.wrong_bytes),
            Fault::Doubles => client.duplicated.min(server.duplicated),
            _ => client.wrong_flow,
        };
        assert!(found >= 10, "{fault:?}: {snapshot:?}");
        assert_eq!(client.wrong_checksum + server.wrong_checksum, 0);
    }
}

/// Whatever arrives at a station, it goes on: frames of a right network with bytes changed at random, and random lengths.
#[test]
fn hostile_frames_end_no_station() {
    let mut world = World::new(&small());
    world.pass(500);
    let mut draws = 0;
    let mut draw = |below: u64| {
        draws += 1;
        hash::word(draws, 9) % below
    };
    let mut burst = Burst::new();
    let mut sent = 0;
    while sent < 200_000 {
        for from in [0, 1] {
            world.now = world.now.saturating_add(Duration::from_micros(50));
            world.ports[from].advance(world.now);
            world.ports[from].receive(&mut world.pool, &mut burst);
            for mut frame in core::mem::take(&mut burst).drain() {
                let mut bytes = world.pool.bytes_mut(&mut frame).to_vec();
                world.pool.release(frame);
                world.translate(from, &mut bytes);
                for _ in 0..20 {
                    let mut hostile = bytes.clone();
                    for _ in 0..draw(4) {
                        let place = draw(hostile.len() as u64) as usize;
                        hostile[place] = draw(256) as u8;
                    }
                    if draw(4) == 0 {
                        hostile.truncate(draw(hostile.len() as u64) as usize);
                    }
                    // Half of them with checksums that hold, so that fields further in are reached.
                    if draw(2) == 0 {
                        put_right(&mut hostile);
                    }
                    let frame = world.pool.allocate_copy(&hostile).unwrap();
                    burst.push(frame).unwrap();
                    world.ports[1 - from].send(&mut world.pool, &mut burst);
                    sent += 1;
                }
            }
        }
    }
    world.pass(100);
    let snapshot = world.snapshot();
    assert!(snapshot.wrong() > 10_000, "{snapshot:?}");
    world.pass(1_000);
    let later = world.snapshot();
    assert!(later.client.answers > snapshot.client.answers, "they go on");
}

/// Writes the checksums of a frame again, if it is a packet at all.
fn put_right(frame: &mut [u8]) {
    let Some(header) = frame.get(14..34) else {
        return;
    };
    let [a, b] = {
        let mut header = header.to_vec();
        header[10..12].fill(0);
        asterism_packet::checksum::Sum::ZERO.bytes(&header).finish()
    };
    frame[24..26].copy_from_slice(&[a, b]);
    let Ok(packet) = Packet::parse(frame) else {
        return;
    };
    let (Some(flow), payload) = (packet.flow4(), packet.payload_range()) else {
        return;
    };
    let field = match Protocol(flow.protocol) {
        Protocol::UDP => 40,
        Protocol::TCP => 50,
        _ => return,
    };
    if payload.end > frame.len() || field + 2 > frame.len() {
        return;
    }
    frame[field..field + 2].fill(0);
    let length = (payload.end - 34) as u16;
    let sum = asterism_packet::checksum::Sum::pseudo_header4(
        flow.source,
        flow.destination,
        flow.protocol,
        length,
    );
    let sum = sum.bytes(&frame[34..payload.end]).finish_udp();
    frame[field..field + 2].copy_from_slice(&sum);
}

#[test]
fn the_same_configuration_makes_the_same_traffic() {
    let run = || {
        let mut world = World::new(&small());
        world.fault = Fault::Loss;
        world.pass(1_000);
        world.end()
    };
    assert_eq!(run(), run());
}

#[test]
fn what_cannot_be_configured_is_refused_in_words() {
    let of = |change: fn(&mut TrafficConfig)| {
        let mut config = TrafficConfig::default();
        change(&mut config);
        config.check(1).unwrap_err().to_string()
    };
    for error in [
        of(|config| config.udp_flows_per_second = RATE_MAX + 1),
        of(|config| config.udp_requests = 0),
        of(|config| config.udp_interval = Duration::from_millis(1)),
        of(|config| config.udp_bytes = 10),
        of(|config| config.tcp_up_bytes = 23),
        of(|config| config.tcp_down_bytes = 0),
        of(|config| config.flows_max = FLOWS_MAX + 1),
    ] {
        assert!(
            error.contains("at least") || error.contains("at most") || error.contains("from"),
            "{error}"
        );
    }
    assert!(TrafficConfig::default().check(17).is_err());
}

#[test]
fn flows_that_find_no_place_are_postponed_and_counted() {
    let config = TrafficConfig {
        udp_flows_per_second: 1_000,
        udp_requests: 1_000,
        flows_max: 20,
        tcp_connections_per_second: 0,
        ..small()
    };
    let mut world = World::new(&config);
    world.pass(200);
    let snapshot = world.snapshot();
    assert_eq!(
        (snapshot.client.udp_now, snapshot.client.udp_begun),
        (20, 20)
    );
    assert!(snapshot.client.postponed > 100, "{snapshot:?}");
}
