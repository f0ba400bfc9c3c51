//! The soak: whole hosts with the shipped codec and seals write as fast as they can over links that lose, repeat and reorder,
//! and every operation is looked for at everybody.
//!
//! A *portion* is a cluster, drawn from the portion's number, and [`ROUNDS`] rounds. In a round every member writes each of its
//! [`KEYS`] entries once, with a value that no other round writes, and adds to counters beside it; then the cluster comes to rest,
//! and at every instance each entry of every member has the value of this round, each counter its exact sum, and each other
//! instance's groups were applied as often as they were written. So an operation that is lost, applied twice or changed on its way
//! fails the portion, and nothing is sampled. StateSnapshot transfers would bring what the log lost: there must be none.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, Instance, StateChannel, host};
use asterism_function::{
    Ask, Builder, Counters, Flow4, Late, Map, NetworkFunction, PortNumber, Reason, Value, Verdict,
    Wire, build, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::{ObjectSettings, hash};

use crate::report::Failure;
use crate::scenario::Draws;
use crate::trace::Trace;

/// Entries that each member writes in a round.
pub const KEYS: u32 = 4_096;
/// Rounds of a portion.
pub const ROUNDS: u32 = 200;
/// Entries that a packet writes: one group.
const WRITES: u32 = 32;
/// Counters that all members add to.
const SUMS: u32 = 256;
/// Packets handed to a member at one moment.
const BURST: u32 = 32;
/// Time between two such moments.
const SPACING: Duration = Duration::from_micros(200);
/// A round must be at rest so soon after its last packet.
const REST_WITHIN: Duration = Duration::from_secs(20);
/// Rounds after which all digests are compared too; they are after the last one.
const DIGESTS_EVERY: u32 = 16;

/// What an entry holds: the round, and a check of it and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Wire, Value)]
#[value(order)]
struct Mark(u64);

impl Mark {
    fn of(round: u32, key: u32) -> Self {
        let check = hash::words(round.into(), key.into(), 0x50AC);
        Self(u64::from(round) << 32 | check >> 32)
    }
}

/// The state: entries of which each has one writer, and sums that all add to.
#[state]
struct Soaked {
    marks: Map<u32, Mark>,
    sums: Counters<u32>,
}

/// Writes what packets tell it: a round, and the first of [`WRITES`] keys.
#[derive(Debug)]
struct Soaking {
    entries: u32,
}

fn packet_of(round: u32, first: u32) -> Vec<u8> {
    let flow = Flow4 {
        source: [10, 0, 0, 1].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1_000,
        destination_port: 2_000,
        protocol: 17,
    };
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&round.to_be_bytes());
    payload[4..].copy_from_slice(&first.to_be_bytes());
    let mut out = vec![0; 64];
    let length = build::flow4(&flow, &payload, &mut out).expect("64 bytes hold it");
    out.truncate(length.max(60));
    out
}

fn amount(round: u32, key: u32) -> u64 {
    u64::from((round ^ key) % 7 + 1)
}

impl NetworkFunction for Soaking {
    type State = Soaked;

    fn state(&self, builder: &Builder) -> Soaked {
        builder.writing(WRITES, &[]);
        Soaked {
            marks: builder.table("marks", self.entries, &[]),
            sums: builder.counters("sums", SUMS * 64),
        }
    }

    fn packet(&self, ask: Ask<'_, Soaked>) -> Result<Verdict, Late> {
        let payload = ask.packet().payload().first_chunk::<8>();
        let Some(payload) = payload.map(|payload| u64::from_be_bytes(*payload)) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let (round, first) = ((payload >> 32) as u32, payload as u32);
        let mut found = Vec::with_capacity(WRITES as usize);
        for key in first..first + WRITES {
            let mark = ask.marks.get(&key)?;
            let vacancy = match &mark {
                Some(_) => None,
                None => ask.marks.vacancy()?,
            };
            let sum = ask.sums.find(&(key % SUMS))?;
            found.push((key, mark, vacancy, sum));
        }
        let mut act = ask.act()?;
        for (key, mark, vacancy, sum) in found {
            match (&mark, vacancy) {
                (Some(at), _) => act.marks.update(at, Mark::of(round, key)),
                (None, Some(vacancy)) => act.marks.insert(vacancy, key, Mark::of(round, key)),
                // Missed at the end of the round.
                (None, None) => {}
            }
            if let Some(sum) = &sum {
                act.sums.add(sum, amount(round, key));
            }
        }
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

/// A portion that passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Soak {
    /// Operations, after coalescing, times the instances other than their writer's that applied them.
    pub operations: u64,
    /// Entries written and totals of counters reported.
    pub written: u64,
    /// Additions to counters that those totals reported.
    pub additions: u64,
    /// Datagrams that links were given, and of those lost, repeated and held back while others passed.
    pub datagrams: u64,
    /// Lost.
    pub lost: u64,
    /// Repeated.
    pub duplicated: u64,
    /// Passed by later ones.
    pub reordered: u64,
    /// Hash of what happened: equal for two runs.
    pub digest: u64,
}

impl Soak {
    /// Adds another portion.
    pub fn add(&mut self, portion: u64, other: &Soak) {
        self.operations += other.operations;
        self.written += other.written;
        self.additions += other.additions;
        self.datagrams += other.datagrams;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.digest = self
            .digest
            .wrapping_add(hash::words(portion, other.digest, 2));
    }
}

type Host = (MemberId, StateChannel, Vec<Instance<Soaking>>);

fn build(portion: u64, place: usize, lanes: &[u16]) -> Host {
    let names: Vec<_> = (0..lanes.len() as u16).map(MemberId).collect();
    let mut draws = Draws::new(portion, 100 + place as u64);
    let mut secrets = [0; 48];
    for chunk in secrets.chunks_mut(8) {
        chunk.copy_from_slice(&draws.word().to_le_bytes());
    }
    let mut config = HostConfig::new(
        ClusterId(10),
        names[place],
        Incarnation(place as u64 + 1),
        names,
        ClusterKey::from_random(1, [7; 32]),
        secrets,
    );
    config.instances = lanes[place];
    config.audited_objects = 2;
    // Nobody is ever served by a snapshot: everything comes by the log.
    config.replica.silent_after = Duration::from_secs(600);
    let name = config.member;
    let all: u32 = lanes.iter().map(|&lanes| u32::from(lanes)).sum();
    let entries = KEYS * all * 2;
    let (channel, parts) = host(config, Time::ZERO).expect("the configuration is good");
    let instances = parts.into_iter().map(|parts| {
        let ports: Vec<Box<dyn Port>> = vec![
            Box::new(MemoryPort::new("in")),
            Box::new(MemoryPort::sink("out")),
        ];
        let pool = FramePool::new(4 * BURST as usize).expect("memory for frames");
        #[allow(
            clippy::arc_with_non_send_sync,
            reason = "instances take an `Arc`; a portion stays on one thread"
        )]
        let function = Arc::new(Soaking { entries });
        parts.start(function, |_| ObjectSettings::REPLICATED, pool, ports)
    });
    (name, channel, instances.collect())
}

struct Portion {
    cluster: Cluster<Soaking>,
    /// Instances of all members.
    instances: u64,
    sums: Vec<u64>,
    additions: u64,
}

/// Runs a portion.
///
/// # Errors
/// The first operation that was not applied exactly once, and what was seen instead.
pub fn run_portion(portion: u64) -> Result<Soak, Failure> {
    run(portion, ROUNDS)
}

fn run(number: u64, rounds: u32) -> Result<Soak, Failure> {
    let mut draws = Draws::new(number, 200);
    let members = draws.within(3, 6) as usize;
    let lanes: Vec<u16> = (0..members)
        .map(|_| if draws.percent(20) { 2 } else { 1 })
        .collect();
    let delay_us = draws.one_of(&[50, 300, 1_000]);
    let link = LinkConditions {
        delay: Duration::from_micros(delay_us),
        jitter: draws.micros(0, delay_us),
        loss: draws.one_of(&[0.005, 0.02, 0.05]),
        duplication: draws.one_of(&[0.01, 0.03]),
        reordering: draws.one_of(&[0.02, 0.1]),
        reordering_delay: draws.micros(delay_us, delay_us * 3),
        ..LinkConditions::default()
    };
    let hosts = (0..members).map(|place| build(number, place, &lanes));
    let mut network = Network::new(number);
    network.set_defaults(link);
    let mut cluster = Cluster::new(hosts.collect(), network);
    cluster.set_turn(Duration::from_micros(50));
    let mut portion = Portion {
        cluster,
        instances: lanes.iter().map(|&lanes| u64::from(lanes)).sum(),
        sums: vec![0; SUMS as usize],
        additions: 0,
    };
    portion.admit()?;
    let mut trace = Trace::new();
    for round in 1..=rounds {
        portion.write(round)?;
        portion.rest(round)?;
        if round % DIGESTS_EVERY == 0 || round == rounds {
            let digests = portion.equal()?;
            trace.note(&digests);
        }
        trace.note(&[portion.cluster.now().as_micros()]);
    }
    Ok(portion.report(rounds, &mut trace))
}

impl Portion {
    fn pass(&mut self, time: Duration) {
        self.cluster.run_until(self.cluster.now() + time);
    }

    fn admit(&mut self) -> Result<(), Failure> {
        for _ in 0..1_000 {
            self.pass(Duration::from_millis(10));
            let members = self.cluster.members();
            let welcomed = |member: &asterism_engine::Member<Soaking>| {
                let mut others = members.iter().filter(|other| other.name != member.name);
                others.all(|other| member.channel.secure().welcomed_by(other.name))
            };
            if members.iter().all(welcomed) {
                return Ok(());
            }
        }
        Err(Failure::new(
            "members admit each other",
            "not in ten seconds",
        ))
    }

    /// Each member writes each of its keys.
    fn write(&mut self, round: u32) -> Result<(), Failure> {
        for begin in (0..KEYS).step_by((WRITES * BURST) as usize) {
            for place in 0..self.cluster.members().len() {
                let first = place as u32 * KEYS + begin;
                let firsts = (0..BURST).map(|number| first + number * WRITES);
                let packets: Vec<_> = firsts.map(|first| packet_of(round, first)).collect();
                let burst = packets.iter().map(Vec::as_slice);
                let taken = self.cluster.inject_burst(place, 0, PortNumber(0), burst);
                if taken != packets.len() {
                    return Err(Failure::new(
                        "packets are taken",
                        format!("m{place} took {taken} of {}", packets.len()),
                    ));
                }
                for key in first..first + BURST * WRITES {
                    self.sums[(key % SUMS) as usize] += amount(round, key);
                    self.additions += 1;
                }
            }
            self.pass(SPACING);
        }
        Ok(())
    }

    /// The cluster comes to rest, and every instance has exactly what was written.
    fn rest(&mut self, round: u32) -> Result<(), Failure> {
        let until = self.cluster.now() + REST_WITHIN;
        loop {
            self.pass(Duration::from_millis(1));
            if self.cluster.is_quiet() {
                match self.judge(round) {
                    Ok(()) => return Ok(()),
                    // Totals that counters have not reported yet.
                    Err(failure) if self.cluster.now() > until => return Err(failure),
                    Err(_) => {}
                }
            } else if self.cluster.now() > until {
                return Err(Failure::new(
                    "a round comes to rest",
                    format!("round {round} did not within {REST_WITHIN:?}"),
                ));
            }
        }
    }

    fn judge(&self, round: u32) -> Result<(), Failure> {
        let members = self.cluster.members();
        let instances = || members.iter().flat_map(|member| &member.instances);
        let written: u64 = instances()
            .map(|instance| instance.tally().groups_written)
            .sum();
        let entries = KEYS * members.len() as u32;
        for (place, member) in members.iter().enumerate() {
            let counters = member.channel.counters();
            if counters.snapshot_chunks_delivered > 0 || counters.lagging_replicas > 0 {
                return Err(Failure::new(
                    "everything comes by the log",
                    format!("m{place} was sent a snapshot, or sent one"),
                ));
            }
            for (lane, instance) in member.instances.iter().enumerate() {
                let at = || format!("round {round}, m{place}.{lane}");
                let tally = instance.tally();
                let of_others = written - tally.groups_written;
                if tally.groups_applied != of_others || tally.groups_bad > 0 {
                    return Err(Failure::new(
                        "each group once",
                        format!(
                            "{}: applied {} groups of {of_others}, {} bad",
                            at(),
                            tally.groups_applied,
                            tally.groups_bad
                        ),
                    ));
                }
                let state = instance.state();
                let (mut right, mut wrong) = (0, None);
                state.marks.for_each(|row, mark| {
                    if *mark == Mark::of(round, row.0) {
                        right += 1;
                    } else {
                        wrong = Some((row.0, mark.0));
                    }
                });
                if right != entries || wrong.is_some() {
                    return Err(Failure::new(
                        "each operation is applied",
                        format!(
                            "{}: {right} of {entries} entries are of this round; another is {wrong:x?}",
                            at()
                        ),
                    ));
                }
                let mut known = vec![0; SUMS as usize];
                state
                    .sums
                    .for_each(|&key, total| known[key as usize % SUMS as usize] = total);
                if known != self.sums {
                    let key = (0..SUMS as usize).find(|&key| known[key] != self.sums[key]);
                    let key = key.unwrap_or(0);
                    return Err(Failure::new(
                        "sums are exact",
                        format!(
                            "{}: counter {key} is {}, added {}",
                            at(),
                            known[key],
                            self.sums[key]
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// All digests are equal; tells them.
    fn equal(&self) -> Result<Vec<u64>, Failure> {
        let members = self.cluster.members().iter();
        let mut digests = members
            .flat_map(|member| &member.instances)
            .map(Instance::digests);
        let first = digests.next().unwrap_or_default();
        match digests.all(|other| other == first) {
            true => Ok(first),
            false => Err(Failure::new("digests are equal", "they are not")),
        }
    }

    fn report(&self, rounds: u32, trace: &mut Trace) -> Soak {
        let members = self.cluster.members();
        let instances = members.iter().flat_map(|member| &member.instances);
        let reported: u64 = instances
            .map(|instance| instance.tally().counters_reported)
            .sum();
        let written = u64::from(rounds) * u64::from(KEYS) * members.len() as u64 + reported;
        let links = self.cluster.network().statistics_total();
        let soak = Soak {
            operations: written * (self.instances - 1),
            written,
            additions: self.additions,
            datagrams: links.sent,
            lost: links.lost,
            duplicated: links.duplicated,
            reordered: links.reordered,
            digest: 0,
        };
        trace.note(&[soak.operations, soak.datagrams, soak.lost, soak.duplicated]);
        Soak {
            digest: trace.hash(),
            ..soak
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_of_a_portion_are_one() {
        let first = run(1, 2).unwrap();
        assert_eq!(run(1, 2), Ok(first));
        assert!(first.lost > 0 && first.duplicated > 0 && first.reordered > 0);
        assert!(first.operations > 2 * 2 * 3 * u64::from(KEYS));
        assert!(first.written < first.additions * 2, "totals were coalesced");
    }

    #[test]
    fn what_one_instance_has_and_no_other_is_found() {
        let mut portion = portion();
        portion.write(1).unwrap();
        portion.rest(1).unwrap();
        // As if one addition had not come, and as if one entry had not.
        portion.sums[7] += 1;
        assert_eq!(portion.judge(1).unwrap_err().check, "sums are exact");
        portion.sums[7] -= 1;
        assert_eq!(
            portion.judge(2).unwrap_err().check,
            "each operation is applied"
        );
        portion.judge(1).unwrap();
    }

    fn portion() -> Portion {
        let lanes = [1, 2, 1];
        let hosts = (0..3).map(|place| build(9, place, &lanes));
        let mut portion = Portion {
            cluster: Cluster::new(hosts.collect(), Network::new(9)),
            instances: 4,
            sums: vec![0; SUMS as usize],
            additions: 0,
        };
        portion.admit().unwrap();
        portion
    }
}
