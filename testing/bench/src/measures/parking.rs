//! `parking.cost`, `parking.update`: what a thousand parked packets add to each other packet, and to each group of another member
//! that has nothing to do with them.
//!
//! Three hosts: one holds parked packets, one holds none and handles the same, one writes what they apply. Half of the parked
//! packets waits for entries that nobody has written yet, or behind such packets in their flows, the rest for reads that are on their
//! way. At the end the entries are written and the reads arrive, and all parked packets must leave.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, Instance, host};
use asterism_function::{
    Ask, Builder, Flow4, Late, Map, NetworkFunction, PortNumber, Reason, Verdict, build, state,
};
use asterism_io::frame::{BURST, Burst, Frame, FramePool};
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{Port, PortStatistics};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, Stopwatch};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "parking.cost",
        make: cost,
    },
    Measure {
        name: "parking.update",
        make: update,
    },
];

/// Packets that wait for entries: one fewer than may.
const AWAITED: u32 = 255;
/// Flows whose packets wait for reads under way.
const FETCHED: u32 = 505;
/// Packets that wait behind others, and in how many flows: half a flow's share in each.
const BEHIND: u32 = 232;
const BEHIND_PER_FLOW: u32 = 29;
/// All of them: as many as leave room for a burst, without which no port is read.
const PARKED: usize = (AWAITED + FETCHED + BEHIND) as usize;
/// Microseconds that reads take, and that packets wait for entries: below the two seconds after which they are dropped.
const WAIT_US: u32 = 1_900_000;
/// Frames that go round between the ports.
const FRAMES: u32 = 1_024;
/// Packets of a window.
const WINDOW: usize = 1 << 14;
/// Entries that another host writes for a window, in bursts.
const UPDATES: u32 = 4_096;
const UPDATES_MAX: u32 = 64 * UPDATES;

/// Packets to these ports; all others are of flows that the function knows.
const TO_FETCHED: u16 = 1;
const TO_AWAITED: u16 = 2;
const TO_WRITE: u16 = 3;
const TO_WRITE_AWAITED: u16 = 4;

/// Its packets' sources are its keys.
struct Waits;

#[state]
struct Entries {
    known: Map<u32, ()>,
    fetched: Map<u32, ()>,
    awaited: Map<u32, ()>,
}

impl NetworkFunction for Waits {
    type State = Entries;

    fn state(&self, builder: &Builder) -> Entries {
        Entries {
            known: builder.table("known", 2 * UPDATES_MAX + 2 * FRAMES, &[0]),
            fetched: builder.table("fetched", 64, &[0]),
            awaited: builder.table("awaited", 4 * AWAITED, &[0]),
        }
    }

    fn packet(&self, ask: Ask<'_, Entries>) -> Result<Verdict, Late> {
        let packet = ask.packet();
        let (Some(source), Some((_, to))) = (packet.ipv4_source(), packet.ports()) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let key = source.to_bits();
        let out = Verdict::Forward(PortNumber(ask.port().0 ^ 1));
        match to {
            TO_FETCHED => {
                ask.fetched.contains(&key)?;
            }
            TO_AWAITED => {
                if !ask.awaited.contains(&key)? {
                    ask.expect(WAIT_US.into())?;
                }
            }
            TO_WRITE => {
                let room = ask.known.entry(key)?;
                if room.is_full() {
                    return Ok(Verdict::Drop(Reason::TableFull));
                }
                ask.act()?.known.put(room, ());
                return Ok(Verdict::Consumed);
            }
            TO_WRITE_AWAITED => {
                let room = ask.awaited.entry(key)?;
                if room.is_full() {
                    return Ok(Verdict::Drop(Reason::TableFull));
                }
                ask.act()?.awaited.put(room, ());
                return Ok(Verdict::Consumed);
            }
            _ => {
                let Some(known) = ask.known.get(&key)? else {
                    return Ok(Verdict::Drop(Reason::NoBinding));
                };
                ask.act()?.known.touch(&known);
            }
        }
        Ok(out)
    }
}

fn settings(object: &str) -> ObjectSettings {
    ObjectSettings {
        late_us: if object == "fetched" { WAIT_US } else { 0 },
        audited: false,
        ..ObjectSettings::REPLICATED
    }
}

fn packet(source: u32, from: u16, to: u16) -> Vec<u8> {
    let flow = Flow4 {
        source: source.into(),
        destination: [192, 0, 2, 1].into(),
        source_port: from,
        destination_port: to,
        protocol: 17,
    };
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, &[0; 18], &mut bytes).expect("there is room for a packet");
    bytes.truncate(length);
    bytes
}

/// A port that frames leave by and come back from, some at a time.
struct RoundPort {
    frames: VecDeque<Frame>,
    at_a_time: usize,
    statistics: PortStatistics,
}

impl Port for RoundPort {
    fn name(&self) -> &str {
        "round"
    }
    fn receive(&mut self, _: &mut FramePool, burst: &mut Burst) -> usize {
        let count = self.at_a_time.min(burst.room()).min(self.frames.len());
        for frame in self.frames.drain(..count) {
            // There is room.
            let _ = burst.push(frame);
        }
        count
    }
    fn send(&mut self, _: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        self.statistics.sent_packets += count as u64;
        self.frames.extend(burst.drain());
        count
    }
    fn statistics(&self) -> PortStatistics {
        self.statistics
    }
}

fn ports(frames: Vec<Frame>, at_a_time: usize) -> Vec<Box<dyn Port>> {
    let mut first = VecDeque::with_capacity(4 * FRAMES as usize);
    first.extend(frames);
    let second = VecDeque::with_capacity(4 * FRAMES as usize);
    [first, second]
        .map(|frames| {
            Box::new(RoundPort {
                frames,
                at_a_time,
                statistics: PortStatistics::default(),
            }) as Box<dyn Port>
        })
        .into()
}

/// The host with parked packets, the one without, and the one that writes.
const WITH: usize = 0;
const WITHOUT: usize = 1;
const WRITER: usize = 2;

/// Known flows' sources, those of the entries that are written as updates, and those of parked packets.
const KNOWN: u32 = 0x0a00_0000;
const WRITTEN: u32 = 0x0b00_0000;
const WAITING: u32 = 0x0c00_0000;
const READING: u32 = 0x0d00_0000;

struct Bench {
    cluster: Cluster<Waits>,
    now: Time,
    written: u32,
}

impl Bench {
    fn new(seed: u64, at_a_time: usize) -> Result<Self, Failure> {
        let names = [MemberId(1), MemberId(2), MemberId(3)];
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions::with_delay(Duration::from_micros(50)));
        let function = Arc::new(Waits);
        let started = names.map(|name| {
            let config = HostConfig::new(
                ClusterId(1),
                name,
                Incarnation(u64::from(name.0)),
                names.to_vec(),
                ClusterKey::from_random(1, [1; 32]),
                [name.0 as u8; 48],
            );
            let (channel, mut parts) = host(config, Time::ZERO).expect("a sound configuration");
            let mut pool = FramePool::new(4 * FRAMES as usize).expect("memory for frames");
            let frames = match name == names[WRITER] {
                true => Vec::new(),
                false => (0..FRAMES)
                    .filter_map(|number| pool.allocate_copy(&packet(KNOWN | number, 9, 9)))
                    .collect(),
            };
            let ports = ports(frames, 0);
            let instance = parts
                .remove(0)
                .start(function.clone(), settings, pool, ports);
            (name, channel, vec![instance])
        });
        let mut bench = Self {
            cluster: Cluster::new(started.into(), network),
            now: Time::ZERO,
            written: 0,
        };
        bench.run(Duration::from_millis(300));
        for number in 0..FRAMES {
            bench.inject(WRITER, &packet(KNOWN | number, 9, TO_WRITE))?;
            if number % 256 == 255 {
                bench.run(Duration::from_millis(2));
            }
        }
        bench.run(Duration::from_millis(100));
        bench.park()?;
        for place in [WITH, WITHOUT] {
            bench.read_at_a_time(place, at_a_time)?;
        }
        Ok(bench)
    }

    fn run(&mut self, time: Duration) {
        self.now = self.now + time;
        self.cluster.run_until(self.now);
    }

    fn inject(&mut self, place: usize, bytes: &[u8]) -> Result<(), Failure> {
        match self.cluster.inject(place, 0, PortNumber(0), bytes) {
            true => Ok(()),
            false => Err(Failure::Unsound("a packet found no room".into())),
        }
    }

    fn instance(&mut self, place: usize) -> &mut Instance<Waits> {
        &mut self.cluster.members_mut()[place].instances[0]
    }

    /// From here on the ports give so many packets a turn.
    fn read_at_a_time(&mut self, place: usize, at_a_time: usize) -> Result<(), Failure> {
        let instance = self.instance(place);
        for number in [0, 1] {
            let (_, pool) = instance
                .port_and_pool(PortNumber(number))
                .ok_or_else(|| Failure::Unsound("there is no port".into()))?;
            let frames = match number {
                0 => (0..FRAMES)
                    .filter_map(|number| pool.allocate_copy(&packet(KNOWN | number, 9, 9)))
                    .collect(),
                _ => Vec::new(),
            };
            let port = ports(frames, at_a_time).swap_remove(0);
            instance.replace_port(PortNumber(number), port);
        }
        Ok(())
    }

    fn park(&mut self) -> Result<(), Failure> {
        for number in 0..AWAITED {
            self.inject(WITH, &packet(WAITING | number, 9, TO_AWAITED))?;
        }
        for number in 0..FETCHED {
            self.inject(WITH, &packet(READING | number, 9, TO_FETCHED))?;
        }
        for number in 0..BEHIND {
            let source = WAITING | (number / BEHIND_PER_FLOW);
            self.inject(WITH, &packet(source, 9, TO_AWAITED))?;
        }
        self.are_parked()
    }

    /// That all that were parked are, and nothing was lost.
    fn are_parked(&mut self) -> Result<(), Failure> {
        for (place, expected) in [(WITH, PARKED), (WITHOUT, 0)] {
            let tally = self.instance(place).tally();
            if tally.parked != expected || tally.dropped_total() > 0 {
                let drops: Vec<_> = tally.drops().collect();
                return Err(Failure::Unsound(format!(
                    "{} packets are parked, not {expected}; dropped: {drops:?}",
                    tally.parked
                )));
            }
        }
        Ok(())
    }

    /// On-CPU ns per packet of a window.
    fn window(&mut self, place: usize, watch: &mut Stopwatch) -> Result<f64, Failure> {
        watch.take_cpu_ns();
        let (mut now, mut handled) = (self.now, 0);
        let instance = self.instance(place);
        watch.window(|| {
            while handled < WINDOW {
                now = now + Duration::from_nanos(1_000);
                match instance.turn(now) {
                    0 => break,
                    more => handled += more,
                }
            }
        });
        if handled < WINDOW {
            return Err(Failure::Unsound(format!(
                "{handled} of {WINDOW} packets were read"
            )));
        }
        Ok(watch.take_cpu_ns() as f64 / handled as f64)
    }

    /// Adds what a window takes with parked packets and without, in turns.
    fn pair(
        &mut self,
        with_first: bool,
        mut window: impl FnMut(&mut Self, usize) -> Result<f64, Failure>,
    ) -> Result<f64, Failure> {
        let [with, without] = if with_first {
            let with = window(self, WITH)?;
            [with, window(self, WITHOUT)?]
        } else {
            let without = window(self, WITHOUT)?;
            [window(self, WITH)?, without]
        };
        Ok(with - without)
    }

    /// Has another host write entries that nobody waits for, until they lie before the two instances.
    fn write_updates(&mut self) -> Result<(), Failure> {
        for place in [WITH, WITHOUT] {
            self.cluster.set_stalled(place, 0, true);
        }
        for number in self.written..self.written + UPDATES {
            self.inject(WRITER, &packet(WRITTEN | number, 9, TO_WRITE))?;
            if number % 256 == 255 {
                self.run(Duration::from_micros(250));
            }
        }
        self.written += UPDATES;
        self.run(Duration::from_millis(2));
        for place in [WITH, WITHOUT] {
            self.cluster.set_stalled(place, 0, false);
        }
        Ok(())
    }

    /// On-CPU ns that applying a group takes.
    fn apply_updates(&mut self, place: usize, watch: &mut Stopwatch) -> Result<f64, Failure> {
        watch.take_cpu_ns();
        let now = self.now;
        let instance = self.instance(place);
        let before = instance.tally().groups_applied;
        watch.window(|| {
            while instance.is_behind() {
                instance.turn(now);
            }
        });
        let applied = instance.tally().groups_applied - before;
        if applied < u64::from(UPDATES) {
            return Err(Failure::Unsound(format!(
                "{applied} groups of {UPDATES} were there to be applied"
            )));
        }
        Ok(watch.take_cpu_ns() as f64 / applied as f64)
    }

    /// What they wait for comes: all parked packets leave.
    fn finish(mut self) -> Result<(), Failure> {
        self.are_parked()?;
        let forwarded = self.instance(WITH).tally().forwarded;
        for place in [WITH, WITHOUT] {
            self.read_at_a_time(place, 0)?;
        }
        for number in 0..AWAITED {
            self.inject(WRITER, &packet(WAITING | number, 9, TO_WRITE_AWAITED))?;
        }
        self.run(Duration::from_millis(20));
        let left = self.instance(WITH).tally().parked;
        if left != FETCHED as usize {
            return Err(Failure::Unsound(format!(
                "{left} packets are parked when the entries that all but {FETCHED} waited for are there"
            )));
        }
        self.run(Duration::from_micros(u64::from(WAIT_US)));
        let tally = self.instance(WITH).tally();
        let (parked, left) = (tally.parked, tally.forwarded - forwarded);
        if parked != 0 || left != PARKED as u64 || tally.dropped_total() > 0 {
            let drops: Vec<_> = tally.drops().collect();
            return Err(Failure::Unsound(format!(
                "of {PARKED} packets {left} left when their answers came, {parked} wait; dropped: {drops:?}"
            )));
        }
        Ok(())
    }
}

fn cost(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 41 } else { 15 };
    let mut lost = Stopwatch::default();
    let mut figures = Vec::new();
    for (at_a_time, name) in [(1, "singly"), (BURST, "bursts")] {
        let mut bench = Bench::new(context.seed, at_a_time)?;
        let mut watch = Stopwatch::default();
        for place in [WITH, WITHOUT] {
            bench.window(place, &mut watch)?;
        }
        let mut found = Vec::new();
        for round in 0..rounds {
            found.push(bench.pair(round % 2 == 0, |bench, place| {
                bench.window(place, &mut watch)
            })?);
            // What the windows took of virtual time, so that the clock goes on for all.
            bench.run(Duration::from_micros(WINDOW as u64));
        }
        context.say(name);
        bench.finish()?;
        figures.push((name, found));
        lost = watch;
    }
    let worst = figures
        .iter()
        .map(|(_, found)| Spread::of(found))
        .max_by(|one, other| one.median.total_cmp(&other.median))
        .ok_or_else(|| Failure::Unsound("nothing was tried".into()))?;
    let mut outcome = Outcome::of(&worst)
        .variant("parked", PARKED as f64)
        .lost(lost.lost());
    for (name, found) in figures {
        outcome = outcome
            .variant(name, Spread::of(&found).median)
            .samples(name, found);
    }
    Ok(outcome)
}

fn update(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 41 } else { 15 };
    let mut bench = Bench::new(context.seed, 0)?;
    let mut watch = Stopwatch::default();
    let mut found = Vec::new();
    let mut alone = Vec::new();
    for round in 0..=rounds {
        bench.write_updates()?;
        let added = bench.pair(round % 2 == 0, |bench, place| {
            let took = bench.apply_updates(place, &mut watch)?;
            if place == WITHOUT {
                alone.push(took);
            }
            Ok(took)
        })?;
        if round > 0 {
            found.push(added);
        }
    }
    bench.finish()?;
    Ok(Outcome::of(&Spread::of(&found))
        .variant("parked", PARKED as f64)
        .variant("without", Spread::of(&alone).median)
        .samples("added", found)
        .lost(watch.lost()))
}
