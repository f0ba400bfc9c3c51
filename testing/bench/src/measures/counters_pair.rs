//! Two hosts on two threads, joined by links, that count the same flows' packets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use asterism_engine::{Destination, Instance, InstanceParts, StateChannel, host};
use asterism_function::{
    Ask, Builder, Counters, Flow4Key, Late, NetworkFunction, Packet, PortNumber, Reason, Verdict,
    state,
};
use asterism_io::frame::{Burst, FramePool};
use asterism_io::link::{LinkConditions, LinkReceiver, LinkSender, ThreadedLink};
use asterism_io::port::{MemoryPort, Port, PortStatistics};
use asterism_placement::Time;
use asterism_state::ObjectSettings;

use super::replication_hosts::{configuration, refused};
use crate::contract::Failure;
use crate::cores::stay_on_core;
use crate::timing::{GapRecorder, LostTime, thread_cpu_ns, wall_ns};
use crate::traffic::frames::frame_between;
use crate::traffic::{Endpoint, Flows, Protocol, Random, SmallFrame};

/// Counters.
const FLOWS: u32 = 10_000;
/// Frames that go round at each side: every flow is drawn about three times.
const FRAMES: usize = 1 << 15;
/// Wall time of a window.
const WINDOW: Duration = Duration::from_millis(100);
/// Bytes of the ring of a link.
const LINK_BYTES: usize = 8 << 20;
/// Datagrams that the receiving end of a link holds: links have no delay, so none.
const LINK_DATAGRAMS: usize = 64;
/// Wall time between two writes whose way is timed.
const PROBE_US: u64 = 500;
/// A turn that takes longer is looked at: most of it may have passed while the thread was not running.
const TURN_NS: u64 = 100_000;
/// Absences of a thread that are kept.
const ABSENCES: usize = 1 << 16;
/// How long hosts may take to agree once no packets come.
const SETTLE: Duration = Duration::from_secs(10);

/// Counts packets by flow.
struct CountFlows;

#[state]
struct FlowCounts {
    packets: Counters<Flow4Key>,
}

impl NetworkFunction for CountFlows {
    type State = FlowCounts;

    fn state(&self, builder: &Builder) -> FlowCounts {
        // Each of the two members may start half of them.
        FlowCounts {
            packets: builder.counters("packets", 4 * FLOWS),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, FlowCounts>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(count) = ask.packets.find(&flow.into())? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let port = ask.port();
        ask.act()?.packets.add(&count, 1);
        Ok(Verdict::Forward(port))
    }
}

/// What both sides do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    flush_us: u64,
    bursts: u32,
    time: Duration,
    /// Packets a microsecond; none: as many as there is time for.
    pace: Option<f64>,
}

impl Load {
    /// As many packets as there is time for.
    pub(super) fn unpaced(flush_us: u64, bursts: u32, time: Duration) -> Self {
        Self {
            flush_us,
            bursts,
            time,
            pace: None,
        }
    }
    /// So many million packets a second.
    pub(super) fn paced(flush_us: u64, bursts: u32, time: Duration, pace: f64) -> Self {
        Self {
            flush_us,
            bursts,
            time,
            pace: Some(pace),
        }
    }
}

/// A window of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    packets: u64,
    cpu_ns: u64,
}

impl Window {
    /// Packets per on-CPU microsecond.
    pub(super) fn per_microsecond(self) -> f64 {
        self.packets as f64 * 1e3 / self.cpu_ns as f64
    }
}

/// What one side did.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) windows: Vec<Window>,
    packets: u64,
    /// When each timed write was made, ns.
    written_ns: Vec<u64>,
    /// When each timed write of the other side was seen, ns.
    seen_ns: Vec<u64>,
    /// When the thread was not running: from, to.
    absent_ns: Vec<(u64, u64)>,
    sums: BTreeMap<Flow4Key, u64>,
    expected: BTreeMap<Flow4Key, u64>,
    refused: u64,
    lost: LostTime,
}

/// What both sides did; their sums were found exact.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) sides: [Side; 2],
}

impl Ran {
    /// Packets of both.
    pub(super) fn packets(&self) -> u64 {
        self.sides.iter().map(|side| side.packets).sum()
    }
    /// Datagrams that either refused: sealed for an incarnation or an admission that was over.
    pub(super) fn refused(&self) -> u64 {
        self.sides.iter().map(|side| side.refused).sum()
    }
    /// Time that both lost.
    pub(super) fn lost(&self) -> LostTime {
        let [one, two] = &self.sides;
        one.lost.and(two.lost)
    }
    /// How long each timed write took to be seen by the other side.
    pub(super) fn lags_ms(&self) -> Result<Lags, Failure> {
        let [one, two] = &self.sides;
        let mut lags = Lags::default();
        if self
            .sides
            .iter()
            .any(|side| side.absent_ns.len() == ABSENCES)
        {
            return Err(Failure::Unsound(
                "the threads were interrupted all the time".into(),
            ));
        }
        for (writer, reader) in [(one, two), (two, one)] {
            if writer.written_ns.len() != reader.seen_ns.len() {
                return Err(Failure::Unsound(format!(
                    "{} writes were made and {} seen",
                    writer.written_ns.len(),
                    reader.seen_ns.len()
                )));
            }
            for (&written, &seen) in writer.written_ns.iter().zip(&reader.seen_ns) {
                let lag = seen.saturating_sub(written) as f64 / 1e6;
                lags.all.push(lag);
                if !one.was_absent(written, seen) && !two.was_absent(written, seen) {
                    lags.while_running.push(lag);
                }
            }
        }
        if lags.while_running.len() < 100 {
            return Err(Failure::Unsound(format!(
                "of {} writes only {} went their way while both threads were running",
                lags.all.len(),
                lags.while_running.len()
            )));
        }
        Ok(lags)
    }
}

/// Times from a write to its being seen, ms.
#[derive(Debug, Default)]
pub(super) struct Lags {
    /// Of writes on whose way both threads were running.
    pub(super) while_running: Vec<f64>,
    /// Of all.
    pub(super) all: Vec<f64>,
}

impl Side {
    fn was_absent(&self, from_ns: u64, to_ns: u64) -> bool {
        let first = self
            .absent_ns
            .partition_point(|&(_, back_ns)| back_ns < from_ns);
        self.absent_ns
            .get(first)
            .is_some_and(|&(gone_ns, _)| gone_ns <= to_ns)
    }
}

/// A port whose frames go round, at a pace, until it is shut.
struct PacedPort {
    frames: MemoryPort,
    shut: Arc<AtomicBool>,
    pace: Option<f64>,
    begun: Option<Time>,
    now: Time,
    given: u64,
}

impl Port for PacedPort {
    fn name(&self) -> &str {
        "paced"
    }
    fn advance(&mut self, now: Time) {
        self.now = now;
    }
    #[inline]
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        if self.shut.load(Ordering::Relaxed) {
            self.begun = None;
            return 0;
        }
        if let Some(pace) = self.pace {
            let begun = *self.begun.get_or_insert(self.now);
            let due = (self.now.as_micros() - begun.as_micros()) as f64 * pace;
            if due < (self.given + burst.room() as u64) as f64 {
                return 0;
            }
            // What a thread that was not running missed is not made up for: that would be more than half load.
            self.given = self.given.max((due as u64).saturating_sub(4_096));
        }
        let count = self.frames.receive(pool, burst);
        self.given += count as u64;
        count
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        self.frames.send(pool, burst)
    }
    fn statistics(&self) -> PortStatistics {
        self.frames.statistics()
    }
}

/// The frame of the writes of side `side` that are timed.
fn probe(side: usize) -> SmallFrame {
    let from = Endpoint {
        address: 0x0b00_0001 + side as u32,
        port: 7,
    };
    frame_between(
        Protocol::Udp,
        from,
        Endpoint {
            address: 0xc612_0001,
            port: 7,
        },
    )
}

fn key_of(frame: &SmallFrame) -> Flow4Key {
    let mut frame = *frame;
    let packet = Packet::parse(&mut frame).expect("a frame of our own");
    packet.flow4().expect("it is of UDP or TCP").into()
}

/// What a side's thread is given.
struct Given {
    number: usize,
    parts: InstanceParts,
    channel: StateChannel,
    out: LinkSender,
    way_in: LinkReceiver,
    draws: Vec<SmallFrame>,
    load: Load,
    shared: Arc<Shared>,
}

/// What the two threads share besides the links: when to begin and to end.
struct Shared {
    started_ns: u64,
    /// Sides that are ready to begin.
    ready: AtomicU32,
    /// A bit for each side that has nothing left to tell or to hear.
    quiet: AtomicU32,
}

/// A host on its thread.
struct Pair {
    instance: Instance<CountFlows>,
    channel: StateChannel,
    out: LinkSender,
    way_in: LinkReceiver,
    received: Vec<u8>,
    sealed: Vec<u8>,
    bursts: u32,
    other: u64,
}

impl Pair {
    fn pass(&mut self, now: Time) {
        let (channel, received, other) = (&mut self.channel, &mut self.received, self.other);
        self.way_in.deliver(now, |datagram| {
            received.clear();
            received.extend_from_slice(datagram);
            // Refusals are counted, and looked at when all is over.
            let _ = channel.handle(now, other, received);
        });
        for _ in 0..self.bursts {
            self.instance.turn(now);
        }
        self.channel.turn(now);
        while let Some(destination) = self.channel.poll_transmit(now, &mut self.sealed) {
            debug_assert!(
                !matches!(destination, Destination::Source(place) if place != self.other)
            );
            // What finds no room is lost, as on any link, and sent again.
            self.out.send(now, &self.sealed);
        }
        self.out.publish();
    }

    fn is_quiet(&self) -> bool {
        self.channel.is_quiet() && !self.instance.is_behind()
    }
}

/// Runs both sides, and makes sure of the sums.
pub(super) fn run(load: &Load, seed: u64) -> Result<Ran, Failure> {
    let flows = Flows::of_both(FLOWS, seed);
    let templates: Vec<_> = flows
        .sessions()
        .iter()
        .map(|session| frame_between(session.protocol, session.inside, session.remote))
        .collect();
    let link = || ThreadedLink::new(LinkConditions::default(), seed, LINK_BYTES, LINK_DATAGRAMS);
    let memory = |error| Failure::Absent(format!("no memory for a link ({error})"));
    let (out_one, in_two) = link().map_err(memory)?;
    let (out_two, in_one) = link().map_err(memory)?;
    let shared = Arc::new(Shared {
        started_ns: wall_ns(),
        ready: AtomicU32::new(0),
        quiet: AtomicU32::new(0),
    });
    let ends = [(out_one, in_one), (out_two, in_two)];
    let given = ends.into_iter().enumerate().map(|(number, (out, way_in))| {
        let mut config = configuration(number as u16, 2);
        config.flush_us = load.flush_us;
        let (channel, mut parts) = host(config, Time::ZERO).expect("a sound configuration");
        let mut random = Random::new(seed ^ (number as u64 + 1) << 32);
        let draw = |_| templates[random.below(templates.len() as u64) as usize];
        let draws = (0..FRAMES).map(draw).collect();
        let parts = parts.remove(0);
        Given {
            number,
            parts,
            channel,
            out,
            way_in,
            draws,
            load: *load,
            shared: shared.clone(),
        }
    });
    let threads: Vec<_> = given
        .map(|given| std::thread::spawn(|| side(given)))
        .collect();
    let mut sides = Vec::new();
    for thread in threads {
        let ended = thread
            .join()
            .map_err(|_| Failure::Unsound("a side's thread panicked".into()))?;
        sides.push(ended?);
    }
    let sides = <[Side; 2]>::try_from(sides).expect("there are two");
    let mut expected = sides[0].expected.clone();
    for (key, count) in &sides[1].expected {
        *expected.entry(*key).or_default() += count;
    }
    if sides.iter().any(|side| side.sums != expected) {
        return Err(Failure::Unsound(
            "the sums are not what both sides added".into(),
        ));
    }
    Ok(Ran { sides })
}

fn time_since(started_ns: u64) -> (u64, Time) {
    let now_ns = wall_ns();
    (now_ns, Time::from_micros((now_ns - started_ns) / 1_000))
}

fn side(given: Given) -> Result<Side, Failure> {
    let Given {
        number,
        parts,
        channel,
        out,
        way_in,
        draws,
        load,
        shared,
    } = given;
    stay_on_core(number);
    let mut pool = FramePool::new(2 * FRAMES + 256).expect("memory for frames");
    let shut = Arc::new(AtomicBool::new(true));
    let frames = MemoryPort::looping(
        "flows",
        &mut pool,
        draws.iter().map(|frame| frame.as_slice()),
    );
    let port = PacedPort {
        frames,
        shut: shut.clone(),
        pace: load.pace,
        begun: None,
        now: Time::ZERO,
        given: 0,
    };
    let instance = parts.start(
        Arc::new(CountFlows),
        |_| ObjectSettings::REPLICATED,
        pool,
        vec![Box::new(port)],
    );
    let mut pair = Pair {
        instance,
        channel,
        out,
        way_in,
        received: Vec::with_capacity(2_048),
        sealed: Vec::with_capacity(2_048),
        bursts: load.bursts,
        other: 1 - number as u64,
    };
    // Until the two know each other.
    shared.ready.fetch_add(1, Ordering::SeqCst);
    let begun_ns = wall_ns();
    while wall_ns() - begun_ns < 200_000_000 || shared.ready.load(Ordering::SeqCst) < 2 {
        pair.pass(time_since(shared.started_ns).1);
        std::thread::yield_now();
    }
    let mut watch = Watch::new(number, &load, refused(&pair.channel));
    shut.store(false, Ordering::Relaxed);
    let end_ns = wall_ns() + load.time.as_nanos() as u64;
    while watch.turn(&mut pair, shared.started_ns)? < end_ns {}
    shut.store(true, Ordering::Relaxed);
    let packets = pair.instance.tally().received;
    settle(&mut pair, &mut watch, &shared)?;
    watch.end(pair, packets, &draws)
}

/// Turns until both sides have reported and heard everything: a little longer than totals may be held back.
fn settle(pair: &mut Pair, watch: &mut Watch, shared: &Shared) -> Result<(), Failure> {
    let begun_ns = wall_ns();
    let held_ns = 2 * watch.flush_us * 1_000 + 20_000_000;
    loop {
        let now_ns = watch.listen(pair, shared.started_ns);
        if now_ns - begun_ns > held_ns && pair.is_quiet() {
            shared.quiet.fetch_or(1 << watch.number, Ordering::SeqCst);
        }
        if shared.quiet.load(Ordering::SeqCst) == 0b11 {
            return Ok(());
        }
        if now_ns - begun_ns > SETTLE.as_nanos() as u64 {
            return Err(Failure::Unsound(
                "the two did not come to agree in 10 s".into(),
            ));
        }
    }
}

/// What a side's thread notes while it runs.
struct Watch {
    number: usize,
    flush_us: u64,
    windows: Vec<Window>,
    window_ends_ns: u64,
    packets: u64,
    cpu_ns: u64,
    written_ns: Vec<u64>,
    seen_ns: Vec<u64>,
    next_probe_ns: u64,
    own: SmallFrame,
    theirs: Flow4Key,
    random: Random,
    gaps: GapRecorder,
    /// When the last pass began, and the CPU clock when it was last read, with the time of that.
    last_ns: u64,
    clocks_ns: (u64, u64),
    absent_ns: Vec<(u64, u64)>,
    refused_before: u64,
}

impl Watch {
    fn new(number: usize, load: &Load, refused_before: u64) -> Self {
        let now_ns = wall_ns();
        let probes = (load.time.as_micros() as u64 / PROBE_US * 2) as usize + 16;
        Self {
            number,
            flush_us: load.flush_us,
            windows: Vec::with_capacity((load.time.as_millis() / WINDOW.as_millis()) as usize + 1),
            window_ends_ns: now_ns + WINDOW.as_nanos() as u64,
            packets: 0,
            cpu_ns: thread_cpu_ns(),
            written_ns: Vec::with_capacity(probes),
            seen_ns: Vec::with_capacity(probes),
            next_probe_ns: if load.pace.is_some() {
                now_ns
            } else {
                u64::MAX
            },
            own: probe(number),
            theirs: key_of(&probe(1 - number)),
            random: Random::new(number as u64),
            gaps: GapRecorder::new(now_ns, TURN_NS),
            last_ns: now_ns,
            clocks_ns: (now_ns, thread_cpu_ns()),
            absent_ns: Vec::with_capacity(ABSENCES),
            refused_before,
        }
    }

    /// One pass with packets; the time at its end.
    fn turn(&mut self, pair: &mut Pair, started_ns: u64) -> Result<u64, Failure> {
        let (now_ns, now) = time_since(started_ns);
        if now_ns >= self.next_probe_ns {
            // The moment of a write is unrelated to that of a flush.
            self.next_probe_ns = now_ns + (PROBE_US / 2 + self.random.below(PROBE_US)) * 1_000;
            if self.written_ns.len() < self.written_ns.capacity() {
                if !pair.instance.inject(now, PortNumber(0), &self.own) {
                    return Err(Failure::Unsound(
                        "a write that is timed found no room".into(),
                    ));
                }
                self.written_ns.push(now_ns);
            }
        }
        let now_ns = self.listen(pair, started_ns);
        if now_ns >= self.window_ends_ns {
            let (packets, cpu_ns) = (pair.instance.tally().received, thread_cpu_ns());
            let window = Window {
                packets: packets - self.packets,
                cpu_ns: cpu_ns - self.cpu_ns,
            };
            // The first window warms everything up.
            if self.packets > 0 {
                self.windows.push(window);
            }
            (self.packets, self.cpu_ns) = (packets, cpu_ns);
            self.window_ends_ns = now_ns + WINDOW.as_nanos() as u64;
        }
        Ok(now_ns)
    }

    /// One pass, and what came with it.
    fn listen(&mut self, pair: &mut Pair, started_ns: u64) -> u64 {
        let (now_ns, now) = time_since(started_ns);
        self.gaps.turn(now_ns);
        self.note_absence(now_ns);
        pair.pass(now);
        if self.next_probe_ns == u64::MAX {
            return now_ns;
        }
        let seen = pair.instance.state().packets.get(&self.theirs).unwrap_or(0) as usize;
        if seen > self.seen_ns.len() {
            let seen_ns = wall_ns();
            self.seen_ns
                .resize(seen.min(self.seen_ns.capacity()), seen_ns);
        }
        now_ns
    }

    /// Tells a long turn from one during which another thread had the processor.
    fn note_absence(&mut self, now_ns: u64) {
        let turn_ns = now_ns - self.last_ns;
        if turn_ns > TURN_NS {
            let cpu_ns = thread_cpu_ns();
            let lost_ns = (now_ns - self.clocks_ns.0).saturating_sub(cpu_ns - self.clocks_ns.1);
            if lost_ns > turn_ns / 2 && self.absent_ns.len() < ABSENCES {
                self.absent_ns.push((self.last_ns, now_ns));
            }
            self.clocks_ns = (now_ns, cpu_ns);
        }
        self.last_ns = now_ns;
    }

    fn end(self, pair: Pair, packets: u64, draws: &[SmallFrame]) -> Result<Side, Failure> {
        let tally = pair.instance.tally();
        if tally.dropped_total() > 0 || tally.groups_bad > 0 || tally.received != packets {
            let drops: Vec<_> = tally.drops().collect();
            return Err(Failure::Unsound(format!(
                "packets dropped {drops:?}, groups bad {}",
                tally.groups_bad
            )));
        }
        if packets == 0 {
            return Err(Failure::Unsound("no packet came".into()));
        }
        let mut sums = BTreeMap::new();
        pair.instance.state().packets.for_each(|key, sum| {
            sums.insert(*key, sum);
        });
        // Frames go round in order: the first of them were there once more than the others. Probes came beside them.
        let probes = self.written_ns.len() as u64;
        let (rounds, rest) = (
            (packets - probes) / draws.len() as u64,
            (packets - probes) % draws.len() as u64,
        );
        let mut expected = BTreeMap::new();
        for (place, frame) in (0..).zip(draws) {
            let times = rounds + u64::from(place < rest);
            if times > 0 {
                *expected.entry(key_of(frame)).or_default() += times;
            }
        }
        if probes > 0 {
            expected.insert(key_of(&self.own), probes);
        }
        Ok(Side {
            windows: self.windows,
            packets,
            written_ns: self.written_ns,
            seen_ns: self.seen_ns,
            absent_ns: self.absent_ns,
            sums,
            expected,
            // A thread that does not run for a while is greeted again, and what was sealed before is refused: it comes
            // again, so nothing is lost by it.
            refused: refused(&pair.channel) - self.refused_before,
            lost: self.gaps.lost(),
        })
    }
}
