//! `nat.latency-added`: how much later packets leave a NAT that shares its state than one that does not.
//!
//! Packets become due at a steady rate, whatever the loop does: a share of what the NAT with local state takes when packets
//! lie ready. The loop polls; the service time of a burst is that of the turn that takes it, from what the turn first applies of
//! the others to what it tells them in the end. The response time is from the moment when its first packet was due, waiting for
//! the turns before included. The same packets go to a NAT
//! alone, and to one member of a cluster of two and of three, each of which opens flows and applies those of the others
//! (Constellation table 4 and figure 6 have one to three instances under several loads). A member's state channel takes what the
//! others sent between two passes, untimed and on the same core, whose caches it shares then: in a host it has another one, and
//! the first turns of a pass wait for less. Response times show that most: a slow first turn keeps those behind it waiting.
//!
//! Time is wall time, since what waits for a descheduled loop waits. A pass in which the thread was not on its core all the
//! time measures the scheduler, and is counted apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asterism_engine::frame::{Burst, FramePool};
use asterism_engine::port::{Port, PortStatistics};
use asterism_engine::ring::{ByteRing, RingReader, RingWriter};
use asterism_engine::{Instance, InstanceParts};
use asterism_functions::nat::Nat;
use asterism_placement::Time;

use super::nat_bench::{Placed, nat, settings};
use super::nat_churn::Source;
use super::replication_hosts::{FedPort, Host, Hosts, Start, fed_ports, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::timing::{LostTime, Spread, thread_cpu_ns, wall_ns};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "nat.latency-added",
    make: latency_added,
}];

/// Members of the largest cluster.
const MEMBERS_MAX: usize = 3;
/// Flows that each member knows before.
const KNOWN: usize = 10_000;
/// Packets of a pass, one of which opens a flow.
const PASS: usize = 1_000;
/// Passes of a window: together some ten thousand bursts.
const PASSES: u32 = 128;
/// Windows before those that count.
const WARM_WINDOWS: usize = 1;
/// Windows in which all packets lie ready, for the rate of the NAT alone.
const READY_WINDOWS: usize = 5;
/// Shares of that rate.
const LOADS: [f64; 4] = [0.3, 0.5, 0.7, 0.9];
/// The load of the row.
const LOAD_OF_THE_ROW: f64 = 0.7;
/// Bytes of the ring of packets: a pass and to spare.
const RING_BYTES: usize = 1 << 18;
/// More than all tables here come to hold.
const MEMORY_BYTES: usize = 1 << 29;
/// A pass that was off its core for longer is counted apart; reading two clocks twice takes part of it.
const OFF_CORE_MAX_NS: u64 = 2_000;
/// A pass that is not over after this long does not end.
const PASS_MAX_NS: u64 = 5_000_000_000;

/// When the packets of a port become due. Written by who drives the loop, on the loop's own thread.
#[derive(Debug, Default)]
struct Schedule {
    /// The clock, as read before the turn; ns.
    now_ns: AtomicU64,
    /// When the next packet is due; ns times 256.
    due: AtomicU64,
    /// From one packet to the next; ns times 256.
    step: AtomicU64,
    /// When the first packet of the burst was due; ns.
    first_ns: AtomicU64,
}

/// Parts of a nanosecond in which packets are due.
const PARTS_PER_NS: f64 = 256.0;

impl Schedule {
    fn begin(&self, now_ns: u64, ns_per_packet: f64) {
        self.due.store(now_ns << 8, Ordering::Relaxed);
        self.step.store(
            (ns_per_packet * PARTS_PER_NS).round() as u64,
            Ordering::Relaxed,
        );
    }
}

/// A port that gives the frames put into its ring, each once it is due.
#[derive(Debug)]
struct DuePort {
    feed: RingReader,
    schedule: Arc<Schedule>,
    statistics: PortStatistics,
}

impl Port for DuePort {
    fn name(&self) -> &str {
        "due"
    }
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let schedule = &*self.schedule;
        let now = schedule.now_ns.load(Ordering::Relaxed) << 8;
        let step = schedule.step.load(Ordering::Relaxed);
        let first = schedule.due.load(Ordering::Relaxed);
        let (before, mut due) = (burst.len(), first);
        while due <= now && burst.room() > 0 && pool.available() > 0 {
            let Some(frame) = self.feed.next().and_then(|bytes| pool.allocate_copy(bytes)) else {
                break;
            };
            // There is room.
            let _ = burst.push(frame);
            due += step;
        }
        schedule.due.store(due, Ordering::Relaxed);
        schedule.first_ns.store(first >> 8, Ordering::Relaxed);
        burst.len() - before
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        self.statistics.sent_packets += count as u64;
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        self.statistics
    }
}

fn due_ports(schedule: &Arc<Schedule>) -> (Vec<Box<dyn Port>>, RingWriter) {
    let (feed, reader) = ByteRing::new(RING_BYTES).expect("memory for a ring");
    let inside = DuePort {
        feed: reader,
        schedule: schedule.clone(),
        statistics: PortStatistics::default(),
    };
    let (outside, _) = FedPort::new();
    (vec![Box::new(inside), Box::new(outside)], feed)
}

/// What the undisturbed passes of a window gave.
#[derive(Debug, Default)]
struct Window {
    /// Of each burst: from when its first packet was due to the end of its turn; ns.
    response_ns: Vec<f64>,
    /// Of its turn alone.
    service_ns: Vec<f64>,
    /// Passes that were not on their core all the time.
    disturbed: u32,
    /// Packets of the others, and the time that they took.
    packets: u64,
    busy_ns: u64,
    lost: LostTime,
}

impl Window {
    /// One pass: `PASS` packets that lie in the port's ring.
    fn pass(
        &mut self,
        instance: &mut Instance<Nat>,
        schedule: &Schedule,
        ns_per_packet: f64,
        start: Time,
    ) -> Result<(), Failure> {
        let kept = self.response_ns.len();
        let cpu = thread_cpu_ns();
        let begin = wall_ns();
        schedule.begin(begin, ns_per_packet);
        let (mut now, mut read) = (begin, 0);
        while read < PASS {
            schedule.now_ns.store(now, Ordering::Relaxed);
            let taken = instance.turn(start + Duration::from_nanos(now - begin));
            let end = wall_ns();
            if taken > 0 {
                read += taken;
                let first = schedule.first_ns.load(Ordering::Relaxed);
                self.response_ns.push((end - first) as f64);
                self.service_ns.push((end - now) as f64);
            }
            now = end;
            if now - begin > PASS_MAX_NS {
                return Err(Failure::Unsound(format!(
                    "{read} of {PASS} packets of a pass were taken in {} s",
                    PASS_MAX_NS / 1_000_000_000
                )));
            }
        }
        let cpu = thread_cpu_ns() - cpu;
        let off = (now - begin).saturating_sub(cpu);
        self.lost = self.lost.and(LostTime {
            wall_ms: (now - begin) as f64 / 1e6,
            lost_ms: off as f64 / 1e6,
            worst_gap_ms: off as f64 / 1e6,
        });
        if off > OFF_CORE_MAX_NS {
            self.disturbed += 1;
            self.response_ns.truncate(kept);
            self.service_ns.truncate(kept);
        } else {
            self.packets += PASS as u64;
            self.busy_ns += now - begin;
        }
        Ok(())
    }

    fn figures(mut self) -> Result<Figures, Failure> {
        if self.response_ns.len() < 500 {
            return Err(Failure::Unsound(format!(
                "{} of {PASSES} passes of a window were disturbed by other processes",
                self.disturbed
            )));
        }
        Ok(Figures {
            service_average_us: average(&self.service_ns) / 1e3,
            service_high_us: high(&mut self.service_ns) / 1e3,
            response_average_us: average(&self.response_ns) / 1e3,
            response_high_us: high(&mut self.response_ns) / 1e3,
            disturbed: self.disturbed,
            lost: self.lost,
        })
    }
}

/// Of one window.
#[derive(Clone, Copy)]
struct Figures {
    service_average_us: f64,
    /// 99 %.
    service_high_us: f64,
    response_average_us: f64,
    response_high_us: f64,
    disturbed: u32,
    lost: LostTime,
}

fn average(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

/// What 99 in a hundred do not exceed.
fn high(all: &mut [f64]) -> f64 {
    let place = (all.len() * 99).div_ceil(100).saturating_sub(1);
    *all.select_nth_unstable_by(place, f64::total_cmp).1
}

/// A NAT alone that knows the flows of all, or a cluster whose first member is measured.
enum Subject {
    Alone {
        instance: Box<Instance<Nat>>,
        others: Vec<Source>,
        now: Time,
    },
    Cluster {
        hosts: Hosts<Nat>,
        others: Vec<(Source, RingWriter)>,
    },
}

struct Subjected {
    subject: Subject,
    source: Source,
    feed: RingWriter,
    schedule: Arc<Schedule>,
}

impl Subjected {
    fn new(members: usize, flows: usize, seed: u64) -> Result<Self, Failure> {
        let function = || Arc::new(nat((flows * MEMBERS_MAX) as u32, MEMBERS_MAX as u32));
        let source = |member: usize| Source::new(seed + 100 * member as u64, flows);
        let schedule = Arc::new(Schedule::default());
        let (ports, feed) = due_ports(&schedule);
        let subject = if members == 1 {
            let pool = FramePool::new(512).map_err(|error| Failure::Absent(error.to_string()))?;
            Subject::Alone {
                instance: Box::new(InstanceParts::alone(seed).start(
                    function(),
                    settings(Placed::Local),
                    pool,
                    ports,
                )),
                others: (1..MEMBERS_MAX).map(source).collect(),
                now: Time::ZERO,
            }
        } else {
            let mut starts = vec![Start {
                function: function(),
                ports,
            }];
            let mut others = Vec::new();
            for member in 1..members {
                let (ports, feed) = fed_ports();
                others.push((source(member), feed));
                starts.push(Start {
                    function: function(),
                    ports,
                });
            }
            let hosts = Hosts::new(starts, |_| {}, settings(Placed::Replicated(Duration::ZERO)))?;
            Subject::Cluster { hosts, others }
        };
        let mut subjected = Self {
            subject,
            source: source(0),
            feed,
            schedule,
        };
        for _ in 0..KNOWN.div_ceil(PASS) {
            subjected.open(PASS)?;
        }
        if let Subject::Cluster { hosts, .. } = &mut subjected.subject {
            hosts.settle()?;
        }
        Ok(subjected)
    }

    /// Opens as many flows of each member.
    fn open(&mut self, flows: usize) -> Result<(), Failure> {
        self.source.open(flows, &mut self.feed)?;
        let Self {
            subject,
            feed,
            schedule,
            ..
        } = self;
        // All are due.
        schedule.begin(0, 0.0);
        schedule.now_ns.store(1, Ordering::Relaxed);
        match subject {
            Subject::Alone {
                instance,
                others,
                now,
            } => {
                take(instance, *now, flows)?;
                for other in others {
                    other.open(flows, feed)?;
                    take(instance, *now, flows)?;
                }
            }
            Subject::Cluster { hosts, others } => {
                for (source, feed) in others {
                    source.open(flows, feed)?;
                }
                for _ in 0..flows.div_ceil(32) + 1 {
                    hosts.rest(Duration::from_micros(100));
                }
            }
        }
        Ok(())
    }

    /// A window at this rate.
    fn window(&mut self, ns_per_packet: f64) -> Result<Window, Failure> {
        let mut window = Window::default();
        // Nothing is allocated while time is taken.
        window.response_ns.reserve(PASSES as usize * PASS);
        window.service_ns.reserve(PASSES as usize * PASS);
        let pass_time = Duration::from_nanos((PASS as f64 * ns_per_packet.max(20.0)) as u64);
        let Self {
            subject,
            source,
            feed,
            schedule,
        } = self;
        match subject {
            Subject::Alone {
                instance,
                others,
                now,
            } => {
                for _ in 0..PASSES {
                    // As members come to know them; not timed.
                    schedule.begin(0, 0.0);
                    schedule.now_ns.store(1, Ordering::Relaxed);
                    for other in others.iter_mut() {
                        other.open(1, feed)?;
                        take(instance, *now, 1)?;
                    }
                    source.pass(PASS, PASS, feed)?;
                    window.pass(instance, schedule, ns_per_packet, *now)?;
                    *now = *now + pass_time;
                }
            }
            Subject::Cluster { hosts, others } => {
                let start = hosts.now;
                for (host, (source, feed)) in hosts.members[1..].iter_mut().zip(others) {
                    for pass in 0..PASSES {
                        source.pass(PASS, PASS, feed)?;
                        let now = start + pass_time * pass;
                        take(&mut host.instance, now, PASS)?;
                        host.mail.pass(now, usize::MAX);
                    }
                }
                hosts.deliver();
                let Host { instance, mail, .. } = &mut hosts.members[0];
                for pass in 0..PASSES {
                    let now = start + pass_time * pass;
                    source.pass(PASS, PASS, feed)?;
                    // What the others sent comes evenly over the window.
                    let some = mail.waiting().div_ceil((PASSES - pass) as usize);
                    mail.pass(now, some);
                    window.pass(instance, schedule, ns_per_packet, now)?;
                }
                hosts.deliver();
                hosts.now = start + pass_time * PASSES;
            }
        }
        Ok(window)
    }

    /// That no packet was lost, and that all know all flows.
    fn check(&mut self) -> Result<(), Failure> {
        let mut opened = self.source.opened;
        let known = match &mut self.subject {
            Subject::Alone {
                instance, others, ..
            } => {
                let tally = instance.tally();
                if tally.dropped_total() > 0 || tally.received != tally.forwarded {
                    return Err(Failure::Unsound(format!(
                        "packets were dropped: {:?}",
                        tally.drops().collect::<Vec<_>>()
                    )));
                }
                opened += others.iter().map(|other| other.opened).sum::<usize>();
                instance.state().sessions.len()
            }
            Subject::Cluster { hosts, others } => {
                hosts.settle()?;
                hosts.check()?;
                opened += others.iter().map(|(other, _)| other.opened).sum::<usize>();
                hosts.members[0].instance.state().sessions.len()
            }
        };
        if known == opened {
            Ok(())
        } else {
            Err(Failure::Unsound(format!(
                "{opened} flows were opened and {known} are known"
            )))
        }
    }
}

/// Has packets taken that lie ready.
fn take(instance: &mut Instance<Nat>, now: Time, packets: usize) -> Result<(), Failure> {
    let before = instance.tally().received;
    for _ in 0..packets + 1_000 {
        if instance.tally().received == before + packets as u64 {
            return Ok(());
        }
        instance.turn(now);
    }
    Err(Failure::Unsound(
        "packets that lay ready were not taken".into(),
    ))
}

fn latency_added(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 81 } else { 21 };
    stay_on_core(0);
    provide_memory(MEMORY_BYTES);
    let windows = WARM_WINDOWS + READY_WINDOWS + rounds * LOADS.len();
    let flows = KNOWN + PASS + windows * PASSES as usize;
    let mut subjects = Vec::new();
    for members in 1..=MEMBERS_MAX {
        context.say(&format!("opening flows, {members} of {MEMBERS_MAX}"));
        subjects.push(Subjected::new(members, flows, context.seed)?);
    }
    let mut ready = Vec::new();
    for round in 0..WARM_WINDOWS + READY_WINDOWS {
        for (place, subject) in subjects.iter_mut().enumerate() {
            let window = subject.window(0.0)?;
            if place == 0 && round >= WARM_WINDOWS && window.packets > 0 {
                ready.push(window.busy_ns as f64 / window.packets as f64);
            }
        }
    }
    let ready_ns = Spread::of(&ready).median;
    if !ready_ns.is_finite() {
        return Err(Failure::Unsound("every pass was disturbed".into()));
    }
    context.say(&format!("the NAT alone takes {ready_ns:.1} ns per packet"));
    let mut outcome = Outcome::default()
        .variant("ready-ns-per-packet", ready_ns)
        .variant(
            "new-flows-per-second-at-0.7",
            LOAD_OF_THE_ROW / ready_ns * 1e9 / PASS as f64,
        );
    let mut lost = LostTime::default();
    for load in LOADS {
        // By members, by round.
        let mut found: Vec<Vec<Figures>> = vec![Vec::new(); MEMBERS_MAX];
        for round in 0..rounds {
            for turn in 0..MEMBERS_MAX {
                // A B C, C B A, ...
                let place = if round % 2 == 0 {
                    turn
                } else {
                    MEMBERS_MAX - 1 - turn
                };
                let figures = subjects[place].window(ready_ns / load)?.figures()?;
                lost = lost.and(figures.lost);
                found[place].push(figures);
            }
        }
        outcome = report(context, outcome, load, &found);
    }
    for subject in &mut subjects {
        subject.check()?;
    }
    Ok(outcome.lost(lost))
}

/// The figures of a load.
fn report(context: &Context, mut outcome: Outcome, load: f64, found: &[Vec<Figures>]) -> Outcome {
    type Part = (&'static str, fn(&Figures) -> f64);
    let parts: [Part; 4] = [
        ("service-average", |one| one.service_average_us),
        ("service-99", |one| one.service_high_us),
        ("response-average", |one| one.response_average_us),
        ("response-99", |one| one.response_high_us),
    ];
    for (members, rounds) in (1..).zip(found) {
        for (name, part) in parts {
            let of = |rounds: &[Figures]| rounds.iter().map(part).collect::<Vec<f64>>();
            let (own, alone) = (of(rounds), of(&found[0]));
            outcome = outcome.variant(
                format!("load-{load}-members-{members}-{name}-us"),
                Spread::of(&own).median,
            );
            if members == 1 {
                continue;
            }
            let added: Vec<f64> = own
                .iter()
                .zip(&alone)
                .map(|(own, alone)| own - alone)
                .collect();
            let spread = Spread::of(&added);
            outcome = outcome.variant(
                format!("load-{load}-members-{members}-{name}-added-us"),
                spread.median,
            );
            if name == "service-99" {
                context.say(&format!(
                    "load {load}, {members} members: 99 % of the bursts in {:.2} µs, {:.2} more than alone",
                    Spread::of(&own).median,
                    spread.median
                ));
                if load == LOAD_OF_THE_ROW && members == MEMBERS_MAX {
                    outcome = outcome
                        .with_value(spread.median, spread.runs)
                        .quartiles(spread.first_quartile, spread.third_quartile)
                        .samples("added-us", added);
                }
            }
        }
        let disturbed: u32 = rounds.iter().map(|one| one.disturbed).sum();
        outcome = outcome.variant(
            format!("load-{load}-members-{members}-disturbed-passes"),
            f64::from(disturbed),
        );
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_nine_in_a_hundred_do_not_exceed_it() {
        let mut all: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        assert_eq!(high(&mut all), 990.0);
        assert_eq!(high(&mut [3.0]), 3.0);
        assert_eq!(average(&[1.0, 2.0, 6.0]), 3.0);
    }

    #[test]
    fn packets_come_when_they_are_due_and_not_before() {
        let schedule = Arc::new(Schedule::default());
        let (mut ports, mut feed) = due_ports(&schedule);
        let mut pool = FramePool::new(64).expect("memory for frames");
        for _ in 0..10 {
            assert!(feed.try_push(&[0; 64]).is_ok());
        }
        feed.publish();
        schedule.begin(1_000, 12.5);
        let mut receive = |now: u64| {
            let mut burst = Burst::new();
            schedule.now_ns.store(now, Ordering::Relaxed);
            let count = ports[0].receive(&mut pool, &mut burst);
            pool.release_all(&mut burst);
            (count, schedule.first_ns.load(Ordering::Relaxed))
        };
        assert_eq!(receive(999).0, 0);
        assert_eq!(receive(1_000), (1, 1_000));
        assert_eq!(receive(1_012).0, 0);
        // Those due at 1,012.5, 1,025, 1,037.5 and 1,050.
        assert_eq!(receive(1_050), (4, 1_012));
        assert_eq!(receive(9_000), (5, 1_062));
        assert_eq!(receive(9_001).0, 0);
    }
}
