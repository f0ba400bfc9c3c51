//! The packet loop with late answers: order within flows, bounds, absence, back-pressure, fail-stop.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{
    Cluster, HostConfig, Instance, InstanceParts, PARKED_ABSENT_MAX, PARKED_BEHIND_MAX,
    PARKED_FLOW_MAX, PARKED_MAX, host,
};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Protocol, Reason, Value,
    Verdict, Wire, build, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::{Absence, ObjectSettings};

/// Remembers sources that came in by port 0, and lets through by port 1 only packets to those.
struct Gate;

#[state]
struct GateState {
    seen: Map<Endpoint, ()>,
}

impl NetworkFunction for Gate {
    type State = GateState;
    fn state(&self, builder: &Builder) -> GateState {
        GateState {
            seen: builder.table("seen", 4096, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, GateState>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        if ask.port() == PortNumber(1) {
            let known = ask.seen.contains(&flow.destination())?;
            return Ok(if known {
                Verdict::Forward(PortNumber(0))
            } else {
                Verdict::Drop(Reason::NoBinding)
            });
        }
        let known = ask.seen.get(&flow.source())?;
        let room = if known.is_none() {
            ask.seen.vacancy()?
        } else {
            None
        };
        let mut act = ask.act()?;
        match (known, room) {
            (Some(known), _) => act.seen.touch(&known),
            (None, Some(room)) => act.seen.insert(room, flow.source(), ()),
            (None, None) => return Ok(Verdict::Drop(Reason::TableFull)),
        }
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

/// A packet of flow `flow`, with its number as payload. Those of even flows are long enough for the path of common packets,
/// the others are not.
fn packet(flow: u16, number: u16, back: bool) -> Vec<u8> {
    let inside = Endpoint::new([10, 0, 0, 1].into(), 1_000 + flow, Protocol::UDP);
    let outside = Endpoint::new([192, 0, 2, 1].into(), 53, Protocol::UDP);
    let (from, to) = if back {
        (outside, inside)
    } else {
        (inside, outside)
    };
    let flow = Flow4 {
        source: from.address,
        destination: to.address,
        source_port: from.port,
        destination_port: to.port,
        protocol: 17,
    };
    let mut payload = [0; 24];
    payload[..2].copy_from_slice(&number.to_be_bytes());
    let even = from.port.max(to.port).is_multiple_of(2);
    let payload = &payload[..if even { 24 } else { 2 }];
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, payload, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn numbers(packets: &[Vec<u8>]) -> Vec<(u16, u16)> {
    packets
        .iter()
        .map(|bytes| {
            (
                u16::from_be_bytes([bytes[34], bytes[35]]) - 1_000,
                u16::from_be_bytes([bytes[42], bytes[43]]),
            )
        })
        .collect()
}

/// In the first byte of the sender's address: a capture lost the frame's end.
const CUT: u8 = 0xCC;

/// A port whose packets the test can feed and take through a shared handle.
struct Shared(
    std::sync::mpsc::Sender<Vec<u8>>,
    std::sync::mpsc::Receiver<Vec<u8>>,
);

impl Port for Shared {
    fn name(&self) -> &str {
        "shared"
    }
    fn receive(&mut self, pool: &mut FramePool, burst: &mut asterism_io::frame::Burst) -> usize {
        let before = burst.len();
        while burst.room() > 0 {
            let Ok(bytes) = self.1.try_recv() else { break };
            let mut frame = pool.allocate_copy(&bytes).expect("a free buffer");
            if bytes.get(6) == Some(&CUT) {
                frame.set_truncated();
            }
            burst.push(frame).expect("room in the burst");
        }
        burst.len() - before
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut asterism_io::frame::Burst) -> usize {
        let count = burst.len();
        for frame in burst.iter() {
            self.0
                .send(pool.bytes(frame).to_vec())
                .expect("the test listens");
        }
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> asterism_io::port::PortStatistics {
        asterism_io::port::PortStatistics::default()
    }
}

struct Bench {
    instance: Instance<Gate>,
    feed: std::sync::mpsc::Sender<Vec<u8>>,
    sent: std::sync::mpsc::Receiver<Vec<u8>>,
    now_us: u64,
}

impl Bench {
    fn new(settings: ObjectSettings) -> Self {
        let (feed, fed) = std::sync::mpsc::channel();
        let (sends, sent) = std::sync::mpsc::channel();
        let (unused, _) = std::sync::mpsc::channel();
        let ports: Vec<Box<dyn Port>> = vec![
            Box::new(Shared(unused, fed)),
            Box::new(Shared(sends, std::sync::mpsc::channel().1)),
        ];
        let instance = InstanceParts::alone(7).start(
            Arc::new(Gate),
            move |_| settings,
            FramePool::new(4 * PARKED_MAX).unwrap(),
            ports,
        );
        Self {
            instance,
            feed,
            sent,
            now_us: 0,
        }
    }
    fn turn(&mut self, us: u64) -> usize {
        self.now_us += us;
        self.instance.turn(Time::from_micros(self.now_us))
    }
    fn sent(&self) -> Vec<(u16, u16)> {
        numbers(&self.sent.try_iter().collect::<Vec<_>>())
    }
}

const LATE: ObjectSettings = ObjectSettings {
    late_us: 500,
    ..ObjectSettings::LOCAL
};

#[test]
fn flows_keep_their_order_while_others_overtake() {
    let mut bench = Bench::new(LATE);
    for number in 0..40 {
        bench.feed.send(packet(number % 4, number, false)).unwrap();
    }
    bench.turn(1);
    assert_eq!(bench.sent(), [], "every read is late");
    assert!(bench.instance.tally().parked > 0);
    let mut all = Vec::new();
    for _ in 0..200 {
        bench.turn(100);
        all.extend(bench.sent());
    }
    assert_eq!(all.len(), 40);
    for flow in 0..4 {
        let of_flow: Vec<_> = all
            .iter()
            .filter(|(of, _)| *of == flow)
            .map(|(_, number)| *number)
            .collect();
        assert!(
            of_flow.is_sorted(),
            "flow {flow} was reordered: {of_flow:?}"
        );
    }
    assert_eq!(bench.instance.frames_in_use(), 0);
    assert_eq!(
        bench.instance.state().seen.len_now(),
        4,
        "each source was inserted once"
    );
}

#[test]
fn prefetching_changes_nothing_but_time() {
    let run = |prefetches: bool, settings: ObjectSettings| {
        let mut bench = Bench::new(settings);
        if prefetches {
            bench.instance.prefetch_above(0);
        }
        bench.turn(10_000);
        // New flows and known ones, many to a burst, some of them twice.
        for number in 0..2_000u16 {
            let flow = (number / 2).wrapping_mul(7_919) % 300;
            bench.feed.send(packet(flow, number, false)).unwrap();
        }
        let mut all = Vec::new();
        for _ in 0..1_000 {
            bench.turn(50);
            all.extend(bench.sent());
        }
        let tally = bench.instance.tally();
        let drops: Vec<_> = Reason::ALL
            .iter()
            .map(|&reason| tally.dropped(reason))
            .collect();
        assert_eq!(bench.instance.frames_in_use(), 0);
        (all, drops, bench.instance.state().seen.len_now())
    };
    for settings in [ObjectSettings::LOCAL, LATE] {
        let plain = run(false, settings);
        assert!(plain.0.len() > 1_000 && plain.2 > 200);
        assert_eq!(run(true, settings), plain);
    }
}

#[test]
fn a_full_park_stops_the_reading_and_loses_nothing() {
    let mut bench = Bench::new(LATE);
    let packets = 3 * PARKED_MAX as u16;
    for number in 0..packets {
        bench.feed.send(packet(number, number, false)).unwrap();
    }
    for _ in 0..200 {
        bench.turn(1);
        assert!(bench.instance.tally().parked <= PARKED_MAX);
    }
    assert!(
        bench.instance.tally().held_by_parking > 0,
        "the port was not read while the park was full"
    );
    let mut all = bench.sent();
    for _ in 0..2_000 {
        bench.turn(50);
        all.extend(bench.sent());
    }
    assert_eq!(all.len(), usize::from(packets));
    assert_eq!(bench.instance.tally().dropped_total(), 0);
    assert_eq!(bench.instance.frames_in_use(), 0);
}

#[test]
fn hostile_and_truncated_packets_are_counted_by_reason() {
    let mut bench = Bench::new(ObjectSettings::LOCAL);
    let whole = packet(1, 1, false);
    for length in 0..whole.len() {
        bench.feed.send(whole[..length].to_vec()).unwrap();
    }
    bench.feed.send(whole).unwrap();
    for _ in 0..10 {
        bench.turn(1);
    }
    let tally = bench.instance.tally();
    assert_eq!(tally.received, tally.forwarded + tally.dropped_total());
    assert_eq!(tally.forwarded, 1);
    assert!(tally.dropped(Reason::LinkTooShort) >= 14);
    assert!(tally.dropped(Reason::LengthBeyondFrame) > 0);
    assert_eq!(bench.instance.frames_in_use(), 0);
}

#[test]
fn a_cut_that_took_padding_alone_is_none_also_while_packets_are_parked() {
    let late = ObjectSettings {
        late_us: 500,
        ..ObjectSettings::LOCAL
    };
    for settings in [ObjectSettings::LOCAL, late] {
        let mut bench = Bench::new(settings);
        for (flow, cut) in [(2, false), (4, true), (6, true)] {
            let mut bytes = packet(flow, 0, false);
            if cut {
                bytes[6] = CUT;
            }
            bench.feed.send(bytes).unwrap();
        }
        // Nothing says how much is missing of what is no IP.
        let mut other = vec![0; 60];
        other[6] = CUT;
        other[12] = 0x88;
        bench.feed.send(other).unwrap();
        let mut sent = 0;
        for _ in 0..100 {
            bench.turn(50);
            sent += bench.sent().len();
        }
        assert_eq!(sent, 3);
        assert_eq!(bench.instance.tally().dropped(Reason::TruncatedCapture), 1);
    }
}

fn cluster(absence: Absence, delay: Duration) -> Cluster<Gate> {
    let names = [MemberId(0), MemberId(1)];
    let mut network = Network::new(3);
    network.set_defaults(LinkConditions::with_delay(delay));
    let members = names.map(|name| {
        let key = ClusterKey::from_random(1, [7; 32]);
        let secrets = [name.0 as u8 + 1; 48];
        let config = HostConfig::new(
            ClusterId(9),
            name,
            Incarnation(5),
            names.to_vec(),
            key,
            secrets,
        );
        let (channel, mut parts) = host(config, Time::ZERO).unwrap();
        let ports: Vec<Box<dyn Port>> = vec![
            Box::new(MemoryPort::sink("inside")),
            Box::new(MemoryPort::sink("outside")),
        ];
        // Only where replies come in: elsewhere each new source would wait to be inserted.
        let absence = if name == names[1] {
            absence
        } else {
            Absence::Answer
        };
        let settings = ObjectSettings {
            absence,
            ..ObjectSettings::REPLICATED
        };
        let pool = FramePool::new(2_048).unwrap();
        (
            name,
            channel,
            vec![
                parts
                    .remove(0)
                    .start(Arc::new(Gate), move |_| settings, pool, ports),
            ],
        )
    });
    let mut cluster = Cluster::new(members.into(), network);
    cluster.run_until(Time::from_micros(500_000));
    cluster
}

#[test]
fn a_reply_that_overtakes_its_entry_is_dropped_or_waits_as_configured() {
    for (absence, arrives) in [
        (Absence::Answer, false),
        (Absence::Wait { us: 50_000 }, true),
    ] {
        let mut cluster = cluster(absence, Duration::from_millis(10));
        assert!(cluster.inject(0, 0, PortNumber(0), &packet(1, 1, false)));
        cluster.run_until(cluster.now() + Duration::from_millis(2));
        // The reply comes to the other member eight milliseconds before the entry does.
        assert!(cluster.inject(1, 0, PortNumber(1), &packet(1, 1, true)));
        cluster.run_until(cluster.now() + Duration::from_millis(40));
        let tally = cluster.members()[1].instances[0].tally();
        assert_eq!(tally.dropped(Reason::NoBinding), u64::from(!arrives));
        assert_eq!(tally.forwarded, u64::from(arrives));
        assert_eq!(cluster.members()[1].instances[0].frames_in_use(), 0);
    }
}

#[test]
fn what_nobody_wrote_is_not_waited_for_longer_than_a_round_trip() {
    let mut cluster = cluster(Absence::Wait { us: 1_000_000 }, Duration::from_millis(10));
    cluster.inject(1, 0, PortNumber(1), &packet(9, 1, true));
    let start = cluster.now();
    while cluster.members()[1].instances[0]
        .tally()
        .dropped(Reason::NoBinding)
        == 0
    {
        cluster.run_until(cluster.now() + Duration::from_millis(1));
        assert!(
            cluster.now() < start + Duration::from_millis(100),
            "it waits for the deadline, not for the others"
        );
    }
}

/// Its second member waits for what it does not know; it knows flow 1.
fn cluster_that_knows_flow_1() -> Cluster<Gate> {
    let mut cluster = cluster(Absence::Wait { us: 500_000 }, Duration::from_millis(200));
    assert!(cluster.inject(0, 0, PortNumber(0), &packet(1, 1, false)));
    cluster.run_until(cluster.now() + Duration::from_millis(700));
    cluster
}

#[test]
fn a_flow_that_waits_stops_no_other() {
    let mut cluster = cluster_that_knows_flow_1();
    let packets = 2 * PARKED_MAX as u64;
    for _ in 0..packets {
        assert!(cluster.inject(1, 0, PortNumber(1), &packet(9, 1, true)));
    }
    let tally = cluster.members()[1].instances[0].tally();
    assert_eq!(tally.parked, PARKED_FLOW_MAX);
    assert_eq!(tally.held_by_parking, 0, "the port is read all the same");
    let too_many = packets - PARKED_FLOW_MAX as u64;
    assert_eq!(tally.dropped(Reason::ParkedFlow), too_many);
    // Another flow is handled at once.
    assert!(cluster.inject(1, 0, PortNumber(1), &packet(1, 1, true)));
    assert_eq!(cluster.members()[1].instances[0].tally().forwarded, 1);
    cluster.run_until(cluster.now() + Duration::from_millis(700));
    let instance = &cluster.members()[1].instances[0];
    assert_eq!(instance.frames_in_use(), 0);
    assert_eq!(
        instance.tally().dropped(Reason::NoBinding),
        PARKED_FLOW_MAX as u64
    );
}

#[test]
fn who_is_given_up_takes_nothing_of_the_packets_that_came_with_it() {
    let mut cluster = cluster_that_knows_flow_1();
    for _ in 0..PARKED_FLOW_MAX {
        assert!(cluster.inject(1, 0, PortNumber(1), &packet(9, 1, true)));
    }
    // The first finds no room to wait; the others are the first of their flows, and wait for their own time.
    let burst = [9, 10, 11].map(|flow| packet(flow, 1, true));
    let taken = cluster.inject_burst(1, 0, PortNumber(1), burst.iter().map(Vec::as_slice));
    assert_eq!(taken, burst.len());
    let tally = cluster.members()[1].instances[0].tally();
    assert_eq!(tally.dropped(Reason::ParkedFlow), 1);
    assert_eq!(
        (tally.parked, tally.dropped(Reason::NoBinding)),
        (PARKED_FLOW_MAX + 2, 0)
    );
}

#[test]
fn many_flows_that_wait_stop_no_other() {
    let mut cluster = cluster_that_knows_flow_1();
    let flows = PARKED_ABSENT_MAX as u16;
    for number in 0..8 * flows {
        let flow = 100 + number % flows;
        assert!(cluster.inject(1, 0, PortNumber(1), &packet(flow, 1, true)));
    }
    let tally = cluster.members()[1].instances[0].tally();
    assert_eq!(tally.parked, PARKED_ABSENT_MAX + PARKED_BEHIND_MAX);
    assert_eq!(tally.held_by_parking, 0, "the port is read all the same");
    let parked = tally.parked as u64;
    assert_eq!(
        tally.dropped(Reason::ParkedOverflow),
        8 * u64::from(flows) - parked
    );
    assert!(cluster.inject(1, 0, PortNumber(1), &packet(1, 1, true)));
    assert_eq!(cluster.members()[1].instances[0].tally().forwarded, 1);
    cluster.run_until(cluster.now() + Duration::from_millis(700));
    let instance = &cluster.members()[1].instances[0];
    assert_eq!(instance.frames_in_use(), 0);
    assert_eq!(instance.tally().dropped(Reason::NoBinding), parked);
}

#[test]
fn a_flood_of_unknown_packets_drops_the_oldest_and_is_counted() {
    let mut cluster = cluster(Absence::Wait { us: 500_000 }, Duration::from_millis(200));
    for number in 0..2 * PARKED_ABSENT_MAX as u16 {
        assert!(cluster.inject(1, 0, PortNumber(1), &packet(number, 1, true)));
    }
    let tally = cluster.members()[1].instances[0].tally();
    let overflowed = tally.dropped(Reason::ParkedOverflow);
    assert!(overflowed > 0, "more packets wait than may");
    // Packets that wait for their turn behind another do not count against the smaller bound.
    assert!(tally.parked < 2 * PARKED_ABSENT_MAX);
    cluster.run_until(cluster.now() + Duration::from_millis(700));
    let instance = &cluster.members()[1].instances[0];
    assert_eq!(instance.frames_in_use(), 0);
    let tally = instance.tally();
    assert_eq!(
        tally.dropped(Reason::NoBinding) + tally.dropped(Reason::ParkedOverflow),
        tally.received
    );
}

/// Returns `Err` after it acted, which no function may.
struct Broken;

impl NetworkFunction for Broken {
    type State = GateState;
    fn state(&self, builder: &Builder) -> GateState {
        GateState {
            seen: builder.table("seen", 64, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, GateState>) -> Result<Verdict, Late> {
        let late = ask.seen.get(&Endpoint::from_bits(1));
        let room = ask.seen.vacancy()?;
        let mut act = ask.act()?;
        if let Some(room) = room {
            act.seen.insert(room, Endpoint::from_bits(1), ());
        }
        late.map(|_| Verdict::Consumed)
    }
}

#[test]
#[should_panic(expected = "after `act()`")]
fn half_an_act_stops_the_host() {
    let ports: Vec<Box<dyn Port>> = vec![Box::new(MemoryPort::sink("only"))];
    let pool = FramePool::new(64).unwrap();
    let mut instance = InstanceParts::alone(1).start(Arc::new(Broken), |_| LATE, pool, ports);
    instance.inject(Time::from_micros(1), PortNumber(0), &packet(1, 1, false));
}

/// Emits so many frames for each packet, in place of it.
struct Copier {
    frames: usize,
}

impl NetworkFunction for Copier {
    type State = GateState;
    fn state(&self, builder: &Builder) -> GateState {
        GateState {
            seen: builder.table("seen", 64, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, GateState>) -> Result<Verdict, Late> {
        let mut act = ask.act()?;
        for _ in 0..self.frames {
            act.emit(PortNumber(0), |packet, room| {
                let bytes = packet.bytes();
                room[..bytes.len()].copy_from_slice(bytes);
                Some(bytes.len())
            });
        }
        Ok(Verdict::Consumed)
    }
}

#[test]
fn what_is_emitted_leaves_in_time_or_is_counted() {
    for (frames, packets, lost) in [(45, 32, 0), (130, 3, 6)] {
        let ports: Vec<Box<dyn Port>> = vec![Box::new(MemoryPort::sink("only"))];
        let pool = FramePool::new(512).unwrap();
        let copier = Arc::new(Copier { frames });
        let mut instance =
            InstanceParts::alone(1).start(copier, |_| ObjectSettings::LOCAL, pool, ports);
        let burst = vec![packet(1, 1, false); packets];
        let burst = burst.iter().map(Vec::as_slice);
        assert_eq!(
            instance.inject_burst(Time::from_micros(1), PortNumber(0), burst),
            packets
        );
        let tally = instance.tally();
        assert_eq!(tally.dropped(Reason::EmissionOverflow), lost);
        assert_eq!(tally.emitted + lost, (frames * packets) as u64);
    }
}

/// Keeps much for each source.
struct Hoard;

#[state]
struct HoardState {
    seen: Map<Endpoint, Much>,
}

#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)]
struct Much([u8; 200]);

impl NetworkFunction for Hoard {
    type State = HoardState;
    fn state(&self, builder: &Builder) -> HoardState {
        HoardState {
            seen: builder.table("seen", 4096, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, HoardState>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(room) = ask.seen.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        ask.act()?.seen.insert(room, flow.source(), Much([7; 200]));
        Ok(Verdict::Consumed)
    }
}

#[test]
fn a_table_that_idles_out_at_once_never_overfills_the_log() {
    // One step of the sweep looks at 625 of them: their ends together exceed the ring to the state channel.
    const SOURCES: u32 = 160_000;
    let names = [MemberId(0), MemberId(1)];
    let members = names.map(|name| {
        let key = ClusterKey::from_random(1, [7; 32]);
        let mut config = HostConfig::new(
            ClusterId(9),
            name,
            Incarnation(5),
            names.to_vec(),
            key,
            [name.0 as u8 + 1; 48],
        );
        config.up_ring_bytes = 128 << 10;
        let (channel, mut parts) = host(config, Time::ZERO).unwrap();
        let ports: Vec<Box<dyn Port>> = vec![
            Box::new(MemoryPort::sink("inside")),
            Box::new(MemoryPort::sink("outside")),
        ];
        let pool = FramePool::new(256).unwrap();
        let settings = |_: &str| ObjectSettings {
            capacity: 4 * SOURCES,
            ..ObjectSettings::REPLICATED
        };
        let instance = parts
            .remove(0)
            .start(Arc::new(Hoard), settings, pool, ports);
        (name, channel, vec![instance])
    });
    let mut cluster = Cluster::new(members.into(), Network::new(3));
    cluster.run_until(Time::from_micros(500_000));
    let mut frame = packet(0, 0, false);
    for number in 0..SOURCES {
        // Another source address; the checksums that this breaks are repaired by the edit.
        let source = Endpoint::new((0x0a00_0000 + number).into(), 1_000, Protocol::UDP);
        asterism_function::Packet::parse(&mut frame)
            .unwrap()
            .set_source(source);
        while !cluster.inject(0, 0, PortNumber(0), &frame) {
            cluster.run_until(cluster.now() + Duration::from_millis(1));
        }
    }
    // Past the idle time of 300 s and the quarter by which uses may be announced late: all end in one sweep.
    cluster.run_until(cluster.now() + Duration::from_secs(1));
    assert_eq!(
        cluster.members()[1].instances[0].state().seen.len_now(),
        SOURCES as usize
    );
    cluster
        .members_mut()
        .iter_mut()
        .for_each(|member| member.skew += Duration::from_secs(380));
    cluster.run_until(cluster.now() + Duration::from_secs(4));
    for member in cluster.members() {
        assert_eq!(member.instances[0].state().seen.len_now(), 0);
    }
}
