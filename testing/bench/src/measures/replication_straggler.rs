//! `replication.straggler`: what a member that stands still, or whose links are slow, takes from the others.
//!
//! Four whole hosts in virtual time, joined by links of a bounded rate. Three write; the fourth only listens, so that the
//! others' work is the same whatever becomes of it. Throughput is what the three applied of each other's updates, per
//! on-CPU second of theirs and per virtual second: the first falls if serving the straggler costs time, the second if a
//! full log holds packets back.

use std::sync::Arc;
use std::time::Duration;

use asterism_io::link::{LinkConditions, Network};
use asterism_io::ring::RingWriter;
use asterism_placement::MemberId;
use asterism_state::ObjectSettings;

use super::count_packets::CountPackets;
use super::replication_hosts::{Hosts, Start, fed_ports, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{LostTime, Spread, Stopwatch};
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, Random, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "replication.straggler",
    make: straggler,
}];

/// Members that write.
const WRITERS: usize = 3;
/// The place of the one that only listens.
const LISTENER: usize = WRITERS;
/// Keys, written by all three.
const KEYS: u32 = 60_000;
/// Bytes of a table for an entry, with room for three times the capacity.
const TABLE_BYTES_PER_ENTRY: usize = 720;
/// Updates of a pass of a writer's loop: one burst.
const UPDATES_PER_PASS: usize = 32;
/// Passes between two deliveries.
const PASSES: usize = 4;
/// Virtual microseconds of a pass: 250,000 updates a second by each writer.
const PASS_US: u64 = 128;
/// Steps of a round: a virtual second.
const STEPS: usize = 1_953;
/// Rounds before the first that counts: a member that stands still falls off the log in the first.
const ROUNDS_BEFORE: usize = 2;
/// Bits per second of a link between two members, one way: a third more than a writer sends.
const LINK_BITS_PER_SECOND: u64 = 100_000_000;
/// One way.
const LINK_DELAY: Duration = Duration::from_micros(50);
/// How long a group may wait for others to fill its datagram.
const LOOKAHEAD: Duration = Duration::from_micros(200);

/// What the fourth member suffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listener {
    /// Nothing.
    Healthy,
    /// Its process stands still.
    Stalled,
    /// All its links have a tenth of the others' rate.
    Tenth,
}

/// A cluster with its links and its feeds.
struct Bench {
    hosts: Hosts<CountPackets>,
    network: Network,
    listener: Listener,
    feeds: Vec<RingWriter>,
    random: Random,
    /// Packets that found a feed full.
    not_taken: u64,
}

/// A round of one cluster.
#[derive(Clone, Copy)]
struct Round {
    /// Updates of the others applied, over all writers, per virtual second.
    per_second: f64,
    /// The same, per on-CPU second of the writers.
    per_cpu_second: f64,
}

impl Bench {
    fn new(listener: Listener, seed: u64) -> Result<Self, Failure> {
        let function = Arc::new(CountPackets {
            // Any writer may be the first to write any key.
            capacity: KEYS * (WRITERS as u32 + 1),
        });
        let (mut starts, mut feeds) = (Vec::new(), Vec::new());
        for _ in 0..=WRITERS {
            let (ports, feed) = fed_ports();
            feeds.push(feed);
            starts.push(Start {
                function: function.clone(),
                ports,
            });
        }
        let hosts = Hosts::new(
            starts,
            |config| config.replica.lookahead = LOOKAHEAD,
            |_| ObjectSettings::REPLICATED,
        )?;
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions {
            bits_per_second: Some(LINK_BITS_PER_SECOND),
            ..LinkConditions::with_delay(LINK_DELAY)
        });
        for writer in 0..WRITERS as u16 {
            for (from, to) in [(writer, LISTENER as u16), (LISTENER as u16, writer)] {
                let link = network.link_mut(from, to);
                match listener {
                    Listener::Healthy => {}
                    Listener::Stalled => link.partitioned = true,
                    Listener::Tenth => link.bits_per_second = Some(LINK_BITS_PER_SECOND / 10),
                }
            }
        }
        Ok(Self {
            hosts,
            network,
            listener,
            feeds,
            random: Random::new(seed),
            not_taken: 0,
        })
    }

    /// A virtual second.
    fn round(&mut self, frames: &[SmallFrame], watch: &mut Stopwatch) -> Result<Round, Failure> {
        let (before, begin) = (self.applied_by_others(), self.hosts.now);
        for _ in 0..STEPS {
            self.step(frames, watch);
        }
        let applied = (self.applied_by_others() - before) as f64;
        if applied == 0.0 {
            return Err(Failure::Unsound("no update was applied".into()));
        }
        let took = (self.hosts.now - begin).as_secs_f64();
        Ok(Round {
            per_second: applied / took,
            per_cpu_second: applied / watch.take_cpu_ns() as f64 * 1e9,
        })
    }

    fn step(&mut self, frames: &[SmallFrame], watch: &mut Stopwatch) {
        for feed in &mut self.feeds[..WRITERS] {
            for _ in 0..PASSES * UPDATES_PER_PASS {
                let frame = &frames[self.random.below(frames.len() as u64) as usize];
                self.not_taken += u64::from(feed.try_push(frame).is_err());
            }
            feed.publish();
        }
        let begin = self.hosts.now;
        let at = |pass: usize| begin + Duration::from_micros(PASS_US * (pass as u64 + 1));
        for (place, host) in self.hosts.members.iter_mut().enumerate() {
            let mut passes = || (0..PASSES).for_each(|pass| host.pass(at(pass), usize::MAX));
            match place {
                LISTENER if self.listener == Listener::Stalled => {}
                LISTENER => passes(),
                _ => watch.window(passes),
            }
        }
        self.hosts.now = at(PASSES - 1);
        self.hosts.deliver_through(&mut self.network);
    }

    /// Updates that writers applied of each other.
    fn applied_by_others(&self) -> u64 {
        let mut sum = 0;
        for (place, host) in self.hosts.members[..WRITERS].iter().enumerate() {
            let progress = host.mail.channel().progress();
            let others = (0..WRITERS).filter(|other| *other != place);
            sum += others
                .map(|other| progress.applied(MemberId(other as u16 + 1)))
                .sum::<u64>();
        }
        sum
    }

    /// Sums a count of the writers' replicators.
    fn counted(&self, name: &str) -> u64 {
        let mut sum = 0;
        for host in &self.hosts.members[..WRITERS] {
            let counters = host.mail.channel().counters();
            counters.each(|counter, _, count| sum += if counter == name { count } else { 0 });
        }
        sum
    }

    /// That the straggler, once nothing keeps it back, comes to have what all others have.
    fn check(&mut self) -> Result<(), Failure> {
        self.hosts.settle()?;
        self.hosts.check()
    }
}

fn straggler(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 25 } else { 9 };
    provide_memory(3 * (WRITERS + 1) * KEYS as usize * TABLE_BYTES_PER_ENTRY);
    let frames: Vec<SmallFrame> = Flows::of_both(KEYS, context.seed)
        .sessions()
        .iter()
        .map(|session| frame_between(session.protocol, session.inside, session.remote))
        .collect();
    let kinds = [Listener::Healthy, Listener::Stalled, Listener::Tenth];
    let mut benches = Vec::new();
    for kind in kinds {
        benches.push(Bench::new(kind, context.seed)?);
    }
    let mut watch = Stopwatch::default();
    for bench in &mut benches {
        for _ in 0..ROUNDS_BEFORE {
            bench.round(&frames, &mut watch)?;
        }
    }
    let mut found: Vec<Vec<Round>> = vec![Vec::new(); kinds.len()];
    for turn in 0..rounds {
        for index in 0..kinds.len() {
            // A B C, C B A, ...: a drift of the machine weighs on all alike.
            let index = if turn % 2 == 0 {
                index
            } else {
                kinds.len() - 1 - index
            };
            let round = benches[index].round(&frames, &mut watch)?;
            found[index].push(round);
        }
    }
    finish(context, benches, &found, watch.lost())
}

/// Checks that there was a straggler, that it comes to agree with the others, and joins the figures.
fn finish(
    context: &Context,
    benches: Vec<Bench>,
    found: &[Vec<Round>],
    lost: LostTime,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let mut worst: Option<Spread> = None;
    for (mut bench, rounds) in benches.into_iter().zip(found) {
        let name = match bench.listener {
            Listener::Healthy => "healthy",
            Listener::Stalled => "stalled",
            Listener::Tenth => "tenth",
        };
        let lagging_replicas = bench.counted("lagging_replicas");
        if (lagging_replicas > 0) == (bench.listener == Listener::Healthy) {
            return Err(Failure::Unsound(format!(
                "{name}: the fourth member fell off a log {lagging_replicas} times"
            )));
        }
        let of = |what: fn(&Round) -> f64| rounds.iter().map(what).collect::<Vec<f64>>();
        let figures = [
            of(|round| round.per_cpu_second),
            of(|round| round.per_second),
        ];
        let [per_cpu, per_second] = figures.each_ref().map(|figures| Spread::of(figures).median);
        outcome = outcome
            .variant(format!("{name}-updates-per-cpu-second"), per_cpu)
            .variant(format!("{name}-updates-per-virtual-second"), per_second)
            .variant(format!("{name}-not-taken"), bench.not_taken as f64)
            .variant(format!("{name}-fell-off"), lagging_replicas as f64)
            .variant(format!("{name}-walks"), bench.counted("walks_begun") as f64)
            .variant(
                format!("{name}-snapshot-chunks"),
                bench.counted("image_chunks_submitted") as f64,
            );
        context.say(&format!("{name}: {per_cpu:.0} updates per on-CPU second"));
        if bench.listener != Listener::Healthy {
            for (kind, ratios) in [
                (
                    "cpu",
                    ratios(rounds, &found[0], |round| round.per_cpu_second),
                ),
                ("time", ratios(rounds, &found[0], |round| round.per_second)),
            ] {
                let spread = Spread::of(&ratios);
                outcome = outcome
                    .variant(format!("{name}-ratio-{kind}"), spread.median)
                    .samples(format!("{name}-ratio-{kind}"), ratios);
                if worst.is_none_or(|worst| spread.median < worst.median) {
                    worst = Some(spread);
                }
            }
        }
        bench.check()?;
    }
    let worst = worst.ok_or_else(|| Failure::Unsound("nothing was tried".into()))?;
    Ok(outcome
        .with_value(worst.median, worst.runs)
        .quartiles(worst.first_quartile, worst.third_quartile)
        .lost(lost))
}

/// Round by round.
fn ratios(rounds: &[Round], healthy: &[Round], figure: fn(&Round) -> f64) -> Vec<f64> {
    let pairs = rounds.iter().zip(healthy);
    pairs
        .map(|(one, other)| figure(one) / figure(other))
        .collect()
}
