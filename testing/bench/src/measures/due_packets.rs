//! A NAT whose packets become due at a steady rate, whatever its loop does: how late each burst leaves it, alone and as a member of
//! a cluster. What `nat.latency-added` and the paper's latencies are read from; `nat_latency.rs` says how time is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asterism_engine::{Instance, InstanceParts};
use asterism_functions::nat::Nat;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{Port, PortStatistics};
use asterism_io::ring::{ByteRing, RingReader, RingWriter};
use asterism_placement::Time;

use super::nat_bench::{Placed, nat, settings};
use super::nat_churn::Source;
use super::replication_hosts::{FedPort, Host, Hosts, Start, fed_ports};
use crate::contract::Failure;
use crate::timing::{LostTime, thread_cpu_ns, wall_ns};

/// Members of the largest cluster.
pub(super) const MEMBERS_MAX: usize = 3;
/// Flows that each member knows before.
pub(super) const KNOWN: usize = 10_000;
/// Flows opened at once before.
const OPENED_AT_ONCE: usize = 1_000;
/// Bytes of the ring of packets: the longest pass and to spare.
const RING_BYTES: usize = 1 << 19;
/// A pass that was off its core for longer is counted apart; reading two clocks twice takes part of it.
const OFF_CORE_MAX_NS: u64 = 2_000;
/// A pass that is not over after this long does not end.
const PASS_MAX_NS: u64 = 5_000_000_000;
/// Bursts without which a window has no 99 %.
const BURSTS_MIN: usize = 500;

/// How packets come in a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Packets of a pass, which begins with an empty queue.
    pub(super) pass: usize,
    /// Passes of a window.
    pub(super) passes: u32,
    /// The first of them, which do not count: another subject's window came before, and left the caches cold.
    pub(super) warm: u32,
    /// Flows that each member opens in a pass.
    pub(super) new_flows: f64,
    /// From one packet to the next; ns. Zero: all lie ready.
    pub(super) ns_per_packet: f64,
}

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
pub(super) struct Window {
    /// Of each burst: from when its first packet was due to the end of its turn; ns.
    response_ns: Vec<f64>,
    /// Of its turn alone.
    service_ns: Vec<f64>,
    /// Passes that were not on their core all the time.
    disturbed: u32,
    /// Packets of the others, and the time that they took.
    pub(super) packets: u64,
    pub(super) busy_ns: u64,
    lost: LostTime,
}

impl Window {
    /// Pass number `pass` begins: what came before those that count is forgotten.
    fn begin(&mut self, pass: u32, pace: Pace) {
        if pass == pace.warm {
            self.response_ns.clear();
            self.service_ns.clear();
            (self.disturbed, self.packets, self.busy_ns) = (0, 0, 0);
            self.lost = LostTime::default();
        }
    }

    /// One pass of packets that lie in the port's ring.
    fn pass(
        &mut self,
        instance: &mut Instance<Nat>,
        schedule: &Schedule,
        pace: Pace,
        start: Time,
    ) -> Result<(), Failure> {
        let kept = self.response_ns.len();
        let cpu = thread_cpu_ns();
        let begin = wall_ns();
        schedule.begin(begin, pace.ns_per_packet);
        let (mut now, mut read) = (begin, 0);
        while read < pace.pass {
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
                    "{read} of {} packets of a pass were taken in {} s",
                    pace.pass,
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
            self.packets += pace.pass as u64;
            self.busy_ns += now - begin;
        }
        Ok(())
    }

    /// Fails if too little was undisturbed.
    pub(super) fn figures(mut self) -> Result<Figures, Failure> {
        if self.response_ns.len() < BURSTS_MIN {
            return Err(Failure::Unsound(format!(
                "{} bursts of a window were left: {} of its passes were disturbed by other processes",
                self.response_ns.len(),
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
pub(super) struct Figures {
    pub(super) service_average_us: f64,
    /// 99 %.
    pub(super) service_high_us: f64,
    pub(super) response_average_us: f64,
    pub(super) response_high_us: f64,
    pub(super) disturbed: u32,
    pub(super) lost: LostTime,
}

fn average(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

/// What 99 in a hundred do not exceed.
fn high(all: &mut [f64]) -> f64 {
    let place = (all.len() * 99).div_ceil(100).saturating_sub(1);
    *all.select_nth_unstable_by(place, f64::total_cmp).1
}

/// A NAT alone that knows the flows of others too, or a cluster whose first member is measured.
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

/// The same with the packets of the one that is measured.
pub(super) struct Subjected {
    subject: Subject,
    source: Source,
    feed: RingWriter,
    schedule: Arc<Schedule>,
    /// Of a new flow that is not opened yet.
    due: f64,
}

impl Subjected {
    /// `members` is at most [`MEMBERS_MAX`]; none is a NAT alone. It knows its own flows and those of so many members in
    /// all as `known_of` says. Each member has `flows` to open, [`KNOWN`] of which it knows from the start.
    pub(super) fn new(
        members: usize,
        known_of: usize,
        flows: usize,
        seed: u64,
    ) -> Result<Self, Failure> {
        let function = || Arc::new(nat((flows * MEMBERS_MAX) as u32, MEMBERS_MAX as u32));
        let source = |member: usize| Source::new(seed + 100 * member as u64, flows);
        let schedule = Arc::new(Schedule::default());
        let (ports, feed) = due_ports(&schedule);
        let subject = if members <= 1 {
            let pool = FramePool::new(512).map_err(|error| Failure::Absent(error.to_string()))?;
            Subject::Alone {
                instance: Box::new(InstanceParts::alone(seed).start(
                    function(),
                    settings(Placed::Local),
                    pool,
                    ports,
                )),
                others: (1..known_of).map(source).collect(),
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
            due: 0.0,
        };
        for _ in 0..KNOWN.div_ceil(OPENED_AT_ONCE) {
            subjected.open(OPENED_AT_ONCE)?;
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

    /// A window at this pace.
    pub(super) fn window(&mut self, pace: Pace) -> Result<Window, Failure> {
        let mut window = Window::default();
        // Nothing is allocated while time is taken.
        window.response_ns.reserve(pace.passes as usize * pace.pass);
        window.service_ns.reserve(pace.passes as usize * pace.pass);
        let pass_time =
            Duration::from_nanos((pace.pass as f64 * pace.ns_per_packet.max(20.0)) as u64);
        let mut opens = Vec::with_capacity(pace.passes as usize);
        for _ in 0..pace.passes {
            self.due += pace.new_flows;
            let new = (self.due as usize).min(pace.pass);
            self.due -= new as f64;
            opens.push(new);
        }
        // One packet in so many opens one.
        let every = |new: usize| pace.pass.checked_div(new).unwrap_or(usize::MAX);
        let Self {
            subject,
            source,
            feed,
            schedule,
            ..
        } = self;
        match subject {
            Subject::Alone {
                instance,
                others,
                now,
            } => {
                for (pass, new) in (0..).zip(opens) {
                    window.begin(pass, pace);
                    // As members come to know them; not timed.
                    schedule.begin(0, 0.0);
                    schedule.now_ns.store(1, Ordering::Relaxed);
                    for other in others.iter_mut() {
                        other.open(new, feed)?;
                        take(instance, *now, new)?;
                    }
                    source.pass(pace.pass, every(new), feed)?;
                    window.pass(instance, schedule, pace, *now)?;
                    *now = *now + pass_time;
                }
            }
            Subject::Cluster { hosts, others } => {
                let start = hosts.now;
                for (host, (source, feed)) in hosts.members[1..].iter_mut().zip(others) {
                    for (pass, &new) in (0..).zip(&opens) {
                        source.pass(pace.pass, every(new), feed)?;
                        let now = start + pass_time * pass;
                        take(&mut host.instance, now, pace.pass)?;
                        host.mail.pass(now, usize::MAX);
                    }
                }
                hosts.deliver();
                let Host { instance, mail, .. } = &mut hosts.members[0];
                for (pass, new) in (0..).zip(opens) {
                    window.begin(pass, pace);
                    let now = start + pass_time * pass;
                    source.pass(pace.pass, every(new), feed)?;
                    // What the others sent comes evenly over the window.
                    let some = mail.waiting().div_ceil((pace.passes - pass) as usize);
                    mail.pass(now, some);
                    window.pass(instance, schedule, pace, now)?;
                }
                hosts.deliver();
                hosts.now = start + pass_time * pace.passes;
            }
        }
        Ok(window)
    }

    /// That no packet was lost, and that all know all flows.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
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
                instance.state().sessions.len_now()
            }
            Subject::Cluster { hosts, others } => {
                hosts.settle()?;
                hosts.check()?;
                opened += others.iter().map(|(other, _)| other.opened).sum::<usize>();
                hosts.members[0].instance.state().sessions.len_now()
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
