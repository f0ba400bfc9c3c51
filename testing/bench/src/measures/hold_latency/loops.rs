//! Two hosts of a NAT on two threads, what becomes of the packets that open flows, and small datagrams that go there and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use asterism_engine::{HoldSettings, Instance, InstanceParts, Overdue, StateChannel, host};
use asterism_function::PortNumber;
use asterism_functions::nat::Nat;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::link::{LinkConditions, LinkReceiver, LinkSender, ThreadedLink};
use asterism_io::port::{Port, PortStatistics};
use asterism_placement::Time;
use asterism_state::ObjectSettings;

use crate::contract::Failure;
use crate::cores::stay_on_core;
use crate::measures::nat_bench::{Placed, nat, settings};
use crate::measures::replication_hosts::configuration;
use crate::timing::{LostTime, thread_cpu_ns, wall_ns};
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, Protocol, Random, SmallFrame};

/// Flows of each host that are known before, and packets of them that go round.
const KNOWN: usize = 2_000;
const DRAWS: usize = 1 << 14;
/// Flows that a host opens at most, and packets of which one opens one.
const OPENED_MAX: usize = 1 << 15;
const PACKETS_PER_NEW_FLOW: u64 = 1_000;
/// Remote addresses of flows that are timed are in 199.0.0.0/8, with the flow's number behind.
const TIMED: u8 = 199;
/// Where the destination's address is in a frame.
const DESTINATION: usize = 30;
/// Hosts have so long to come to know each other, and packets come for so long before any is timed.
const MEETING_NS: u64 = 200_000_000;
const WARMING_NS: u64 = 100_000_000;
/// In so long the sweep comes to every flow, and marks the changes that are confirmed: packets of others take a longer path.
const SWEPT_NS: u64 = 1_200_000_000;
/// How long hosts may take to agree once no packets come.
const SETTLING_NS: u64 = 10_000_000_000;
/// Totals and acknowledgements of an idle host come within that.
const LAST_WORDS_NS: u64 = 30_000_000;
/// What a thread that was not running for longer missed is not made up for: that would be more than the load.
const BACKLOG_NS: u64 = 50_000;
/// A turn that takes longer is looked at: most of it may have passed while the thread was not running.
const TURN_NS: u64 = 10_000;
/// Between two round trips that are timed, and bytes of such a datagram: no sealed one is as short.
const PING_NS: u64 = 50_000;
const PING_BYTES: usize = 8;
const LINK_BYTES: usize = 4 << 20;
const LINK_DATAGRAMS: usize = 64;
const FRAMES: usize = 8_192;
/// Parts of a nanosecond in which packets are due.
const PARTS_PER_NS: f64 = 256.0;

/// How packets come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    time: Duration,
    /// From one packet to the next; 0: all lie ready.
    ns_per_packet: f64,
    holds: bool,
}

impl Load {
    pub(super) fn ready(time: Duration) -> Self {
        Self {
            time,
            ns_per_packet: 0.0,
            holds: false,
        }
    }
    pub(super) fn paced(time: Duration, ns_per_packet: f64, holds: bool) -> Self {
        Self {
            time,
            ns_per_packet,
            holds,
        }
    }
}

/// What the ports and the loop of a host share.
struct Shared {
    /// When the turn began; 0: no packets come.
    now_ns: AtomicU64,
    /// When each timed packet was due, and when its port was given it.
    due_ns: Vec<AtomicU64>,
    left_ns: Vec<AtomicU64>,
}

/// The port that packets come by, each once it is due.
struct Arriving {
    shared: Arc<Shared>,
    draws: Vec<SmallFrame>,
    opening: Vec<SmallFrame>,
    /// Packets given, and how many of them opened a timed flow.
    given: u64,
    opened: usize,
    /// When the next packet is due, and from one to the next; ns times 256.
    due: u64,
    step: u64,
}

impl Port for Arriving {
    fn name(&self) -> &str {
        "arriving"
    }
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let now_ns = self.shared.now_ns.load(Ordering::Relaxed);
        let before = burst.len();
        if now_ns == 0 {
            return 0;
        }
        if self.due >> 8 < now_ns.saturating_sub(BACKLOG_NS) {
            self.due = now_ns << 8;
        }
        while self.due <= now_ns << 8 && burst.room() > 0 && pool.available() > 0 {
            let opens = self.given % PACKETS_PER_NEW_FLOW == PACKETS_PER_NEW_FLOW - 1;
            let frame = match self.opening.get(self.opened) {
                Some(frame) if opens => {
                    self.shared.due_ns[self.opened].store(self.due >> 8, Ordering::Relaxed);
                    self.opened += 1;
                    frame
                }
                _ => &self.draws[self.given as usize % self.draws.len()],
            };
            let Some(frame) = pool.allocate_copy(frame) else {
                break;
            };
            // There is room.
            let _ = burst.push(frame);
            self.given += 1;
            self.due += self.step;
        }
        burst.len() - before
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// The port that packets leave by.
struct Leaving {
    shared: Arc<Shared>,
}

impl Port for Leaving {
    fn name(&self) -> &str {
        "leaving"
    }
    fn receive(&mut self, _: &mut FramePool, _: &mut Burst) -> usize {
        0
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        for frame in burst.iter() {
            let bytes = pool.bytes(frame);
            if let Some(&[TIMED, high, middle, low]) = bytes.get(DESTINATION..DESTINATION + 4)
                && let Some(left) = self
                    .shared
                    .left_ns
                    .get(u32::from_be_bytes([0, high, middle, low]) as usize)
            {
                left.store(wall_ns(), Ordering::Relaxed);
            }
        }
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// What one host did.
struct Side {
    shared: Arc<Shared>,
    /// When what is timed began and ended.
    timed_ns: (u64, u64),
    /// Packets and on-CPU time between the two.
    packets: u64,
    cpu_ns: u64,
    /// Datagrams that went there and back: when they were sent, and when they were back.
    pings: Vec<(u64, u64)>,
    /// When the thread was not running: from, to.
    absent_ns: Vec<(u64, u64)>,
    known: usize,
    opened: usize,
    held: u64,
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

/// What both did.
pub(super) struct Ran {
    sides: [Side; 2],
}

impl Ran {
    pub(super) fn cpu_ns_per_packet(&self) -> f64 {
        let sum = |part: fn(&Side) -> u64| self.sides.iter().map(part).sum::<u64>() as f64;
        sum(|side| side.cpu_ns) / sum(|side| side.packets)
    }

    fn were_running(&self, from_ns: u64, to_ns: u64) -> bool {
        !self
            .sides
            .iter()
            .any(|side| side.was_absent(from_ns, to_ns))
    }

    /// From when a packet that opened a flow was due until it left, while both threads were running; and how many were timed besides.
    pub(super) fn times_us(&self) -> (Vec<f64>, usize) {
        let (mut times, mut disturbed) = (Vec::new(), 0);
        for side in &self.sides {
            let (begun, ended) = side.timed_ns;
            for (due, left) in side.shared.due_ns.iter().zip(&side.shared.left_ns) {
                let (due, left) = (due.load(Ordering::Relaxed), left.load(Ordering::Relaxed));
                if due < begun || due > ended {
                    continue;
                }
                match self.were_running(due, left) {
                    true => times.push(left.saturating_sub(due) as f64 / 1e3),
                    false => disturbed += 1,
                }
            }
        }
        (times, disturbed)
    }

    /// Round trips while both threads were running.
    pub(super) fn round_trips_us(&self) -> Vec<f64> {
        let pings = self.sides.iter().flat_map(|side| &side.pings);
        let running = pings.filter(|&&(sent, back)| self.were_running(sent, back));
        running
            .map(|&(sent, back)| (back - sent) as f64 / 1e3)
            .collect()
    }

    pub(super) fn lost(&self) -> LostTime {
        let of = |side: &Side| {
            let wall_ns = side.timed_ns.1 - side.timed_ns.0;
            let gaps = side.absent_ns.iter().map(|(gone, back)| back - gone);
            LostTime {
                wall_ms: wall_ns as f64 / 1e6,
                lost_ms: wall_ns.saturating_sub(side.cpu_ns) as f64 / 1e6,
                worst_gap_ms: gaps.max().unwrap_or(0) as f64 / 1e6,
            }
        };
        of(&self.sides[0]).and(of(&self.sides[1]))
    }
}

/// What a host's thread is given.
struct Given {
    number: usize,
    parts: InstanceParts,
    channel: StateChannel,
    out: LinkSender,
    way_in: LinkReceiver,
    load: Load,
    started_ns: u64,
    seed: u64,
    /// A bit for each host that has nothing left to report or to receive.
    quiet: Arc<AtomicU32>,
}

/// Runs both hosts.
pub(super) fn run(load: &Load, seed: u64) -> Result<Ran, Failure> {
    let link = || ThreadedLink::new(LinkConditions::default(), seed, LINK_BYTES, LINK_DATAGRAMS);
    let memory = |error| Failure::Absent(format!("no memory for a link ({error})"));
    let (out_one, in_two) = link().map_err(memory)?;
    let (out_two, in_one) = link().map_err(memory)?;
    let quiet = Arc::new(AtomicU32::new(0));
    let started_ns = wall_ns();
    let ends = [(out_one, in_one), (out_two, in_two)];
    let given = ends.into_iter().enumerate().map(|(number, (out, way_in))| {
        let mut config = configuration(number as u16, 2);
        config.hold = load.holds.then(|| HoldSettings {
            copies: 1,
            packets_max: FRAMES / 2,
            bytes_max: FRAMES * 1_024,
            // While a thread is not running.
            age_max: Duration::from_secs(2),
            overdue: Overdue::Drop,
            exempt: Vec::new(),
        });
        let (channel, mut parts) = host(config, Time::ZERO).expect("a sound configuration");
        Given {
            number,
            parts: parts.remove(0),
            channel,
            out,
            way_in,
            load: *load,
            started_ns,
            seed: seed + 10_000 * number as u64,
            quiet: quiet.clone(),
        }
    });
    let threads: Vec<_> = given
        .map(|given| std::thread::spawn(|| side(given)))
        .collect();
    let mut sides = Vec::new();
    for thread in threads {
        let ended = thread
            .join()
            .map_err(|_| Failure::Unsound("a host's thread panicked".into()))?;
        sides.push(ended?);
    }
    let sides = <[Side; 2]>::try_from(sides)
        .map_err(|_| Failure::Unsound("there are not two hosts".into()))?;
    let opened = 2 * KNOWN + sides[0].opened + sides[1].opened;
    if sides.iter().any(|side| side.known != opened) {
        return Err(Failure::Unsound(format!(
            "{opened} flows were opened, the hosts know {} and {}",
            sides[0].known, sides[1].known
        )));
    }
    if load.holds && sides.iter().any(|side| side.held < side.opened as u64) {
        return Err(Failure::Unsound("packets were not held".into()));
    }
    Ok(Ran { sides })
}

/// A host on its thread.
struct Loop {
    instance: Instance<Nat>,
    channel: StateChannel,
    out: LinkSender,
    way_in: LinkReceiver,
    shared: Arc<Shared>,
    started_ns: u64,
    other: u64,
    received: Vec<u8>,
    sealed: Vec<u8>,
    pings: Vec<(u64, u64)>,
    next_ping_ns: u64,
    has_packets: bool,
    /// When the last pass began, and the CPU clock when it was last read, with the time of that.
    last_ns: u64,
    clocks_ns: (u64, u64),
    absent_ns: Vec<(u64, u64)>,
}

/// The first byte of a datagram that is to come back, and of one that did.
const THERE: u8 = 1;
const BACK: u8 = 2;

impl Loop {
    /// One pass of packet loop and state channel; when it began.
    fn pass(&mut self) -> u64 {
        let now_ns = wall_ns();
        self.note_absence(now_ns);
        let now = Time::from_micros((now_ns - self.started_ns) / 1_000);
        let begins = if self.has_packets { now_ns } else { 0 };
        self.shared.now_ns.store(begins, Ordering::Relaxed);
        let Self {
            channel,
            out,
            received,
            other,
            pings,
            ..
        } = self;
        self.way_in.deliver(now, |datagram| {
            if let Ok([kind, rest @ ..]) = <[u8; PING_BYTES]>::try_from(datagram) {
                match (kind, pings.last_mut()) {
                    (BACK, Some((_, back))) => *back = wall_ns(),
                    (THERE, _) => {
                        let mut echo = [BACK; PING_BYTES];
                        echo[1..].copy_from_slice(&rest);
                        out.send(now, &echo);
                        out.publish();
                    }
                    _ => {}
                }
                return;
            }
            received.clear();
            received.extend_from_slice(datagram);
            // Refusals are counted, and what is refused comes again.
            let _ = channel.handle(now, *other, received);
        });
        self.instance.turn(now);
        self.channel.turn(now);
        while let Some(_destination) = self.channel.poll_transmit(now, &mut self.sealed) {
            // What finds no room is lost, as on any link, and sent again.
            self.out.send(now, &self.sealed);
        }
        if now_ns >= self.next_ping_ns && self.pings.last().is_none_or(|ping| ping.1 > 0) {
            self.next_ping_ns = now_ns + PING_NS;
            self.out.send(now, &[THERE; PING_BYTES]);
            self.pings.push((wall_ns(), 0));
        }
        self.out.publish();
        now_ns
    }

    /// Tells a long turn from one during which another thread had the processor.
    fn note_absence(&mut self, now_ns: u64) {
        let turn_ns = now_ns - self.last_ns;
        if turn_ns > TURN_NS {
            let cpu_ns = thread_cpu_ns();
            let lost_ns = (now_ns - self.clocks_ns.0).saturating_sub(cpu_ns - self.clocks_ns.1);
            if lost_ns > turn_ns / 2 {
                self.absent_ns.push((self.last_ns, now_ns));
            }
            self.clocks_ns = (now_ns, cpu_ns);
        }
        self.last_ns = now_ns;
    }

    fn pass_until(&mut self, until_ns: u64) {
        while self.pass() < until_ns {}
    }

    /// Opens flows, and goes on until the other host has them: a packet of one that it has not would have to wait.
    fn open(&mut self, frames: &[SmallFrame]) -> Result<(), Failure> {
        for frame in frames {
            let now_ns = self.pass();
            let now = Time::from_micros((now_ns - self.started_ns) / 1_000);
            if !self.instance.inject(now, PortNumber(0), frame) {
                return Err(Failure::Unsound("a first packet found no room".into()));
            }
        }
        let begun_ns = wall_ns();
        while !self.is_quiet() {
            if self.pass() - begun_ns > SETTLING_NS {
                return Err(Failure::Unsound("a flow was not acknowledged".into()));
            }
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.channel.is_quiet() && !self.instance.is_behind() && self.instance.held() == 0
    }

    /// Goes on until both hosts have reported and received everything.
    fn settle(&mut self, number: usize, quiet: &AtomicU32) -> Result<(), Failure> {
        let begun_ns = wall_ns();
        while quiet.load(Ordering::SeqCst) != 0b11 {
            let now_ns = self.pass();
            if now_ns - begun_ns > LAST_WORDS_NS && self.is_quiet() {
                quiet.fetch_or(1 << number, Ordering::SeqCst);
            }
            if now_ns - begun_ns > SETTLING_NS {
                return Err(Failure::Unsound(
                    "two hosts did not come to agree in 10 s".into(),
                ));
            }
        }
        Ok(())
    }
}

/// The first packets of known flows, packets of these that come at random, and the first packets of timed flows.
fn frames(seed: u64) -> [Vec<SmallFrame>; 3] {
    let flows = Flows::of(Protocol::Udp, (KNOWN + OPENED_MAX) as u32, seed);
    let (known, timed) = flows.sessions().split_at(KNOWN);
    let frames: Vec<_> = known
        .iter()
        .map(|session| frame_between(session.protocol, session.inside, session.remote))
        .collect();
    let mut random = Random::new(seed);
    let draw = |_| frames[random.below(KNOWN as u64) as usize];
    let draws = (0..DRAWS).map(draw).collect();
    let opening = (0..).zip(timed).map(|(number, session)| {
        let mut remote = session.remote;
        remote.address = u32::from(TIMED) << 24 | number;
        frame_between(session.protocol, session.inside, remote)
    });
    [frames, draws, opening.collect()]
}

fn side(given: Given) -> Result<Side, Failure> {
    let Given {
        number,
        parts,
        channel,
        out,
        way_in,
        load,
        started_ns,
        seed,
        quiet,
    } = given;
    stay_on_core(number);
    let [known, draws, opening] = frames(seed);
    let zeros = || (0..OPENED_MAX).map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared {
        now_ns: AtomicU64::new(0),
        due_ns: zeros(),
        left_ns: zeros(),
    });
    let arriving = Arriving {
        shared: shared.clone(),
        draws,
        opening,
        given: 0,
        opened: 0,
        due: 0,
        step: (load.ns_per_packet * PARTS_PER_NS).round() as u64,
    };
    let leaving = Leaving {
        shared: shared.clone(),
    };
    let placed = settings(Placed::Replicated(Duration::ZERO));
    let object = move |name: &str| ObjectSettings {
        holds_output: load.holds,
        ..placed(name)
    };
    let pool = FramePool::new(FRAMES).map_err(|error| Failure::Absent(error.to_string()))?;
    let function = Arc::new(nat((KNOWN + OPENED_MAX) as u32, 2));
    let instance = parts.start(
        function,
        object,
        pool,
        vec![Box::new(arriving), Box::new(leaving)],
    );
    let now_ns = wall_ns();
    let mut host = Loop {
        instance,
        channel,
        out,
        way_in,
        shared: shared.clone(),
        started_ns,
        other: 1 - number as u64,
        received: Vec::with_capacity(2_048),
        sealed: Vec::with_capacity(2_048),
        pings: Vec::with_capacity(1 << 16),
        next_ping_ns: u64::MAX,
        has_packets: false,
        last_ns: now_ns,
        clocks_ns: (now_ns, thread_cpu_ns()),
        absent_ns: Vec::with_capacity(1 << 16),
    };
    host.pass_until(started_ns + MEETING_NS);
    host.open(&known)?;
    host.pass_until(wall_ns() + SWEPT_NS);
    host.has_packets = true;
    host.pass_until(wall_ns() + WARMING_NS);
    // One of the two asks for round trips.
    host.next_ping_ns = if number == 0 { 0 } else { u64::MAX };
    let begun_ns = wall_ns();
    let (before, cpu_ns) = (host.instance.tally().received, thread_cpu_ns());
    host.pass_until(begun_ns + load.time.as_nanos() as u64);
    let cpu_ns = thread_cpu_ns() - cpu_ns;
    let packets = host.instance.tally().received - before;
    let timed_ns = (begun_ns, wall_ns());
    (host.has_packets, host.next_ping_ns) = (false, u64::MAX);
    host.settle(number, &quiet)?;
    let tally = host.instance.tally();
    if tally.dropped_total() > 0 || tally.groups_bad > 0 || tally.received != tally.forwarded {
        let drops: Vec<_> = tally.drops().collect();
        return Err(Failure::Unsound(format!(
            "{} packets came and {} left: {drops:?}",
            tally.received, tally.forwarded
        )));
    }
    host.pings.retain(|ping| ping.1 > 0);
    let is_timed = |due: &&AtomicU64| due.load(Ordering::Relaxed) > 0;
    Ok(Side {
        opened: shared.due_ns.iter().filter(is_timed).count(),
        known: host.instance.state().sessions.len_now(),
        held: tally.held,
        shared,
        timed_ns,
        packets,
        cpu_ns,
        pings: host.pings,
        absent_ns: host.absent_ns,
    })
}
