//! `paper.figure-4`: what a packet costs an instance as the cluster grows.
//!
//! Constellation's figure 4 shows the throughput of one to three instances of a NAT and of an IDPS that counts every packet,
//! each with 2,000 new flows a second, beside linear scaling. Here one member is measured in clusters of one (local state), two,
//! three, eight and sixteen, in which all others take as many packets: its packet loop applies what they send, beside its own work.
//! Linear scaling is that a packet costs what it costs the one with local state and the same configuration, which knows *its own
//! flows alone*: that the tables of a cluster hold the flows of all is a part of what sharing costs.
//!
//! Whole hosts. The member's state channel runs before each pass on the same core, whose caches it shares then (in a host it has
//! another one), and its time is distinguished.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Instance, InstanceParts};
use asterism_function::NetworkFunction;
use asterism_functions::nat::Nat;
use asterism_functions::port_scan::{PortScan, PortScanConfig, Response, VolumePolicy};
use asterism_io::frame::FramePool;
use asterism_io::port::Port;
use asterism_io::ring::RingWriter;
use asterism_placement::Time;
use asterism_state::{Absence, ObjectSettings};

use super::nat_bench::nat;
use super::nat_churn::Source;
use super::replication_hosts::{Host, Hosts, Start, fed_ports, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::timing::{LostTime, Spread, Stopwatch, wall_ns};
use crate::traffic::frames::{FRAME_BYTES, frame_between};
use crate::traffic::{Endpoint, Flows, Protocol, Session, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "paper.figure-4",
    make: figure_4,
}];

/// Members of the clusters.
const SIZES: [usize; 5] = [1, 2, 3, 8, SIZE_MAX];
/// The largest.
const SIZE_MAX: usize = 16;
/// The largest of the paper.
const SIZE_OF_THE_PAPER: usize = 3;
/// Flows that each member knows before.
pub(super) const KNOWN: usize = 2_000;
/// New flows a second at each member, as in the paper.
pub(super) const NEW_FLOWS_PER_SECOND: f64 = 2_000.0;
/// Packets of a pass.
pub(super) const PASS: usize = 8_000;
/// Packets of a turn: one burst.
const BURST: usize = 32;
/// Passes of a window, two milliseconds or so, and how many of them are not timed: the clusters share a core, and each finds it
/// with the caches of another one.
const PASSES: u32 = 7;
pub(super) const WARM_PASSES: u32 = 2;
/// Windows before those that count.
const WARM_ROUNDS: usize = 2;
/// Before those that count all members run for so long, with so many packets a pass: ten steps of a sweep, in which an instance
/// learns whether prefetching pays.
pub(super) const WARM_UP: Duration = Duration::from_millis(40);
pub(super) const WARM_UP_PASS: usize = 500;
/// Destination ports whose bits the IDPS counts.
const SERVICES: u16 = 100;
/// The first of them.
const FIRST_SERVICE: u16 = 5_000;
/// More than all tables of a function's clusters come to hold, in one set-up.
pub(super) const MEMORY_BYTES: usize = 1 << 29;
/// Set-ups, each with flows and memory of its own: where tables happen to lie is worth up to a tenth, the same for all windows of
/// one.
const SET_UPS: u64 = 5;
/// A slow machine has fewer of a function in the short form, once they have taken so long: the whole ends within 45 s.
const SET_UPS_MIN: u64 = 3;
const SET_UPS_TIME: Duration = Duration::from_secs(10);
/// Further apart than the seeds of the members of one.
const SEEDS_OF_A_SET_UP: u64 = 10_000;
/// What a pass is taken to take, at least and at most: 12 and 250 ns per packet.
pub(super) const PASS_TIME_MIN: Duration = Duration::from_micros(100);
pub(super) const PASS_TIME_MAX: Duration = Duration::from_micros(2_000);
/// Of the state channel: between two flushes of what was counted, unless configured otherwise; µs.
const FLUSH_US: u64 = 200;
/// A longer one, for a variant; µs.
const FLUSH_SLOW_US: u64 = 3_000;

/// A function and its packets.
struct Kind<F: NetworkFunction> {
    name: &'static str,
    flush_us: u64,
    /// The same for all sizes.
    make: fn(flows: usize) -> F,
    sizes: &'static [usize],
    frames: fn(&Flows) -> Vec<SmallFrame>,
    /// What is wrong in the end, given the packets and the flows of all members.
    fault: fn(&F::State, packets: u64, flows: usize) -> Option<String>,
}

const NAT: Kind<Nat> = Kind {
    name: "nat",
    flush_us: FLUSH_US,
    make: |flows| nat(flows as u32, SIZE_MAX as u32),
    sizes: &SIZES,
    frames: as_drawn,
    fault: |state, _, flows| {
        let known = state.sessions.len_now();
        (known != flows).then(|| format!("{flows} flows were opened and {known} are known"))
    },
};

const IDPS: Kind<PortScan> = Kind {
    name: "idps",
    flush_us: FLUSH_US,
    make: |_| counting_idps(),
    sizes: &SIZES,
    frames: to_services,
    fault: |state, packets, _| {
        let mut bits = 0;
        state.volume.for_each(|_, total| bits += total);
        let counted = bits / (8 * FRAME_BYTES as u64);
        (counted != packets || state.unrecorded.get() != Ok(0)).then(|| {
            let unrecorded = state.unrecorded.get();
            format!("of {packets} packets {counted} were counted; without a record: {unrecorded:?}")
        })
    },
};

/// The same, which tells the others a fifteenth as often.
const IDPS_SLOW: Kind<PortScan> = Kind {
    name: "idps-flush-3ms",
    flush_us: FLUSH_SLOW_US,
    sizes: &[1, SIZE_MAX],
    ..IDPS
};

/// An IDPS that counts every packet and never blocks.
fn counting_idps() -> PortScan {
    PortScan::new(PortScanConfig {
        response: Response::Detect,
        volume: Some(VolumePolicy {
            bits: u64::MAX,
            ..VolumePolicy::default()
        }),
        histories_max: 1 << 17,
        ..PortScanConfig::default()
    })
}

/// Each flow as it is.
pub(super) fn as_drawn(flows: &Flows) -> Vec<SmallFrame> {
    let frame = |session: &Session| frame_between(session.protocol, session.inside, session.remote);
    flows.sessions().iter().map(frame).collect()
}

/// Each flow to one of the services.
fn to_services(flows: &Flows) -> Vec<SmallFrame> {
    let frame = |(number, session): (usize, &Session)| {
        let service = (number % usize::from(SERVICES)) as u16;
        let remote = Endpoint {
            port: FIRST_SERVICE + service,
            ..session.remote
        };
        frame_between(session.protocol, session.inside, remote)
    };
    flows.sessions().iter().enumerate().map(frame).collect()
}

/// What feeds a member.
pub(super) struct Fed {
    pub(super) source: Source,
    pub(super) feed: RingWriter,
    /// Passes' worth of a new flow that is not opened yet.
    due: f64,
}

impl Fed {
    /// Of flows that each of these packets opens, none of them yet.
    pub(super) fn new(frames: Vec<SmallFrame>, seed: u64, feed: RingWriter) -> Self {
        Self {
            source: Source::of(frames, seed),
            feed,
            due: 0.0,
        }
    }

    /// Packets of a pass, of which so many open a flow as are due in its time.
    pub(super) fn pass(&mut self, packets: usize, time: Duration) -> Result<(), Failure> {
        self.due += time.as_secs_f64() * NEW_FLOWS_PER_SECOND;
        let new = (self.due as usize).min(packets);
        self.due -= new as f64;
        self.source.open(new, &mut self.feed)?;
        // None of these opens one.
        self.source.pass(packets - new, usize::MAX, &mut self.feed)
    }
}

/// A cluster whose first member is measured; of one member, a NAT or an IDPS with local state.
enum Members<F: NetworkFunction> {
    Alone(Box<Instance<F>>, Time),
    Cluster(Hosts<F>),
}

struct Subject<F: NetworkFunction> {
    members: Members<F>,
    fed: Vec<Fed>,
    packets: u64,
    /// Of the first member's threads.
    packet_thread: Stopwatch,
    channel_thread: Stopwatch,
}

/// Nanoseconds per packet.
#[derive(Clone, Copy, Default)]
struct Cost {
    packet_thread: f64,
    channel_thread: f64,
}

/// Turns of a pass, each at its own time.
pub(super) fn turns<F: NetworkFunction>(instance: &mut Instance<F>, start: Time, time: Duration) {
    let count = PASS.div_ceil(BURST) as u32 + 1;
    let each = time / count;
    let mut now = start;
    for _ in 0..count {
        instance.turn(now);
        now = now + each;
    }
}

/// An instance with local state.
pub(super) fn local_instance<F: NetworkFunction>(
    function: Arc<F>,
    ports: Vec<Box<dyn Port>>,
    seed: u64,
) -> Result<Instance<F>, Failure> {
    let pool = FramePool::new(512).map_err(|error| Failure::Absent(error.to_string()))?;
    Ok(InstanceParts::alone(seed).start(function, |_| ObjectSettings::LOCAL, pool, ports))
}

impl<F: NetworkFunction> Subject<F> {
    fn new(kind: &Kind<F>, size: usize, flows: usize, seed: u64) -> Result<Self, Failure> {
        let function = Arc::new((kind.make)(flows));
        let (mut fed, mut ports) = (Vec::new(), Vec::new());
        for member in 0..size as u64 {
            let seed = seed + 100 * member;
            let frames = (kind.frames)(&Flows::of(Protocol::Udp, flows as u32, seed));
            let (own, feed) = fed_ports();
            ports.push(own);
            fed.push(Fed::new(frames, seed, feed));
        }
        let members = if size == 1 {
            let instance = local_instance(function, ports.remove(0), seed)?;
            Members::Alone(Box::new(instance), Time::ZERO)
        } else {
            let start = |ports| Start {
                function: function.clone(),
                ports,
            };
            Members::Cluster(Hosts::new(
                ports.into_iter().map(start).collect(),
                |config| config.flush_us = kind.flush_us,
                |_| ObjectSettings {
                    absence: Absence::Answer,
                    ..ObjectSettings::REPLICATED
                },
            )?)
        };
        let mut subject = Self {
            members,
            fed,
            packets: 0,
            packet_thread: Stopwatch::default(),
            channel_thread: Stopwatch::default(),
        };
        subject.open()?;
        Ok(subject)
    }

    /// Opens the flows that members know before.
    fn open(&mut self) -> Result<(), Failure> {
        for fed in &mut self.fed {
            fed.source.open(KNOWN, &mut fed.feed)?;
        }
        self.packets += (KNOWN * self.fed.len()) as u64;
        match &mut self.members {
            Members::Alone(instance, now) => {
                turns(instance, *now, Duration::from_millis(1));
                *now = *now + Duration::from_millis(1);
                Ok(())
            }
            // One burst at each step.
            Members::Cluster(hosts) => {
                hosts.rest(Duration::from_micros(100) * KNOWN.div_ceil(BURST) as u32);
                hosts.settle()
            }
        }
    }

    /// A window of all members, of whose passes each has so many packets and takes `time`.
    fn window(&mut self, packets: usize, time: Duration) -> Result<Cost, Failure> {
        let Self {
            members,
            fed,
            packet_thread,
            channel_thread,
            ..
        } = self;
        let (first, others) = fed
            .split_first_mut()
            .ok_or_else(|| Failure::Unsound("no member".into()))?;
        match members {
            Members::Alone(instance, now) => {
                for pass in 0..PASSES {
                    first.pass(packets, time)?;
                    packet_thread.window(|| turns(instance, *now, time));
                    *now = *now + time;
                    if pass + 1 == WARM_PASSES {
                        packet_thread.take_cpu_ns();
                    }
                }
            }
            Members::Cluster(hosts) => {
                let start = hosts.now;
                // First the others in full.
                for (host, fed) in hosts.members[1..].iter_mut().zip(others) {
                    for pass in 0..PASSES {
                        let now = start + time * pass;
                        fed.pass(packets, time)?;
                        turns(&mut host.instance, now, time);
                        // What came with the last delivery, evenly over the window.
                        let some = host.mail.waiting().div_ceil((PASSES - pass) as usize);
                        host.mail.pass(now, some);
                    }
                }
                hosts.deliver();
                let Host { instance, mail, .. } = &mut hosts.members[0];
                for pass in 0..PASSES {
                    let now = start + time * pass;
                    first.pass(packets, time)?;
                    let some = mail.waiting().div_ceil((PASSES - pass) as usize);
                    channel_thread.window(|| mail.pass(now, some));
                    packet_thread.window(|| turns(instance, now, time));
                    if pass + 1 == WARM_PASSES {
                        channel_thread.take_cpu_ns();
                        packet_thread.take_cpu_ns();
                    }
                }
                hosts.deliver();
                hosts.now = start + time * PASSES;
            }
        }
        self.packets += (PASSES as usize * packets * self.fed.len()) as u64;
        let timed = (PASSES - WARM_PASSES) as usize * packets;
        Ok(Cost {
            packet_thread: self.packet_thread.take_cpu_ns() as f64 / timed as f64,
            channel_thread: self.channel_thread.take_cpu_ns() as f64 / timed as f64,
        })
    }

    /// That nothing was lost and all have the same.
    fn check(&mut self, kind: &Kind<F>) -> Result<(), Failure> {
        let flows = self.fed.iter().map(|fed| fed.source.opened).sum();
        let fault = match &mut self.members {
            Members::Alone(instance, _) => {
                let tally = instance.tally();
                if tally.received != self.packets || tally.forwarded != self.packets {
                    Some(format!(
                        "of {} packets {} were taken and {} forwarded",
                        self.packets, tally.received, tally.forwarded
                    ))
                } else {
                    (kind.fault)(instance.state(), self.packets, flows)
                }
            }
            Members::Cluster(hosts) => {
                // What was counted is reported at the next flush.
                hosts.rest(Duration::from_micros(2 * kind.flush_us));
                hosts.settle()?;
                hosts.check()?;
                let taken: u64 = hosts
                    .members
                    .iter()
                    .map(|host| host.instance.tally().received)
                    .sum();
                if taken == self.packets {
                    let state = hosts.members[0].instance.state();
                    (kind.fault)(state, self.packets, flows)
                } else {
                    Some(format!("of {} packets {taken} were taken", self.packets))
                }
            }
        };
        match fault {
            None => Ok(()),
            Some(fault) => Err(Failure::Unsound(format!(
                "{}, {} members: {fault}",
                kind.name,
                self.fed.len()
            ))),
        }
    }
}

/// The clusters of one set-up.
struct SetUp<F: NetworkFunction> {
    subjects: Vec<Subject<F>>,
}

impl<F: NetworkFunction> SetUp<F> {
    fn new(kind: &Kind<F>, rounds: usize, seed: u64) -> Result<Self, Failure> {
        // No window takes 25 ms: its passes have at most 2 ms each.
        let new_flows = (rounds + WARM_ROUNDS + 1) * NEW_FLOWS_PER_SECOND as usize / 40;
        let warm_flows = (WARM_UP.as_secs_f64() * NEW_FLOWS_PER_SECOND) as usize;
        let flows = KNOWN + new_flows + warm_flows;
        let subject = |&size: &usize| Subject::new(kind, size, flows, seed);
        Ok(Self {
            subjects: kind.sizes.iter().map(subject).collect::<Result<_, _>>()?,
        })
    }

    /// The clusters in turn; `costs` has a list for each.
    fn measure(&mut self, rounds: usize, costs: &mut [Vec<Cost>]) -> Result<(), Failure> {
        let subjects = &mut self.subjects;
        // What a pass takes by itself is what it is taken to take everywhere.
        let mut time = Duration::from_micros(300);
        for round in 0..WARM_ROUNDS + rounds {
            if round == WARM_ROUNDS {
                for subject in subjects.iter_mut() {
                    for _ in 0..WARM_UP.as_nanos().div_ceil((time * PASSES).as_nanos()) {
                        subject.window(WARM_UP_PASS, time)?;
                    }
                }
            }
            for turn in 0..subjects.len() {
                // A B C, C B A, ...
                let place = match round % 2 {
                    0 => turn,
                    _ => subjects.len() - 1 - turn,
                };
                let cost = subjects[place].window(PASS, time)?;
                if round >= WARM_ROUNDS {
                    costs[place].push(cost);
                } else if place == 0 {
                    let ns = (cost.packet_thread * PASS as f64) as u64;
                    time = Duration::from_nanos(ns).clamp(PASS_TIME_MIN, PASS_TIME_MAX);
                }
            }
        }
        Ok(())
    }

    /// What of the time was lost, if nothing else was.
    fn check(&mut self, kind: &Kind<F>) -> Result<LostTime, Failure> {
        let mut lost = LostTime::default();
        for subject in &mut self.subjects {
            subject.check(kind)?;
            lost = lost.and(subject.packet_thread.lost());
        }
        Ok(lost)
    }
}

/// What the windows of a function gave.
struct Found {
    outcome: Outcome,
    /// At the paper's size.
    ratios: Vec<f64>,
    lost: LostTime,
}

/// The clusters of a function, in turn, in several set-ups.
fn measure<F: NetworkFunction>(
    context: &Context,
    kind: &Kind<F>,
    mut outcome: Outcome,
) -> Result<Found, Failure> {
    let rounds = if context.full { 25 } else { 9 };
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); kind.sizes.len()];
    let mut lost = LostTime::default();
    // Kept until the last is measured, so that each has memory of its own.
    let mut set_ups = Vec::new();
    let end_ns = wall_ns() + SET_UPS_TIME.as_nanos() as u64;
    for number in 0..SET_UPS {
        if !context.full && number >= SET_UPS_MIN && wall_ns() >= end_ns {
            break;
        }
        context.say(&format!(
            "{}: opening flows, {} of {SET_UPS}",
            kind.name,
            number + 1
        ));
        let mut set_up = SetUp::new(kind, rounds, context.seed + number * SEEDS_OF_A_SET_UP)?;
        set_up.measure(rounds, &mut costs)?;
        lost = lost.and(set_up.check(kind)?);
        set_ups.push(set_up);
    }
    let mut found = Vec::new();
    for (&size, own) in kind.sizes.iter().zip(&costs) {
        let pairs = || costs[0].iter().zip(own);
        let ratios: Vec<f64> = pairs()
            .map(|(alone, own)| alone.packet_thread / own.packet_thread)
            .collect();
        let with_channel: Vec<f64> = pairs()
            .map(|(alone, own)| alone.packet_thread / (own.packet_thread + own.channel_thread))
            .collect();
        let median =
            |part: fn(&Cost) -> f64| Spread::of(&own.iter().map(part).collect::<Vec<f64>>()).median;
        let name = |what: &str| format!("{}-{size}-{what}", kind.name);
        let (ns, ratio) = (median(|one| one.packet_thread), Spread::of(&ratios).median);
        context.say(&format!(
            "{}: {ns:.1} ns per packet with {size} members, {ratio:.3} of linear",
            kind.name
        ));
        outcome = outcome
            .variant(name("ns"), ns)
            .variant(name("channel-ns"), median(|one| one.channel_thread))
            .variant(name("ratio"), ratio)
            .variant(
                name("ratio-with-state-channel"),
                Spread::of(&with_channel).median,
            );
        if size == SIZE_OF_THE_PAPER {
            for (set_up, ratios) in ratios.chunks(rounds).enumerate() {
                let of_it = format!("ratio-set-up-{}", set_up + 1);
                outcome = outcome.variant(name(&of_it), Spread::of(ratios).median);
            }
            outcome = outcome.samples(name("ratio"), ratios.clone());
            found = ratios;
        }
    }
    Ok(Found {
        outcome,
        ratios: found,
        lost,
    })
}

fn figure_4(context: &Context) -> Result<Outcome, Failure> {
    stay_on_core(0);
    provide_memory(SET_UPS as usize * MEMORY_BYTES);
    let of_nat = measure(context, &NAT, Outcome::default())?;
    let of_idps = measure(context, &IDPS, of_nat.outcome)?;
    let slow = measure(context, &IDPS_SLOW, of_idps.outcome)?;
    let (nat, idps) = (Spread::of(&of_nat.ratios), Spread::of(&of_idps.ratios));
    let worse = if nat.median < idps.median { nat } else { idps };
    Ok(slow
        .outcome
        .with_value(worse.median, worse.runs)
        .quartiles(worse.first_quartile, worse.third_quartile)
        .lost(of_nat.lost.and(of_idps.lost)))
}
