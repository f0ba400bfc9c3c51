//! Whole hosts that run one network function, what leaves them, and which of them knows what of the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use asterism_engine::{Cluster, HoldSettings, HostConfig, Instance, Overdue, StateChannel, host};
use asterism_function::{NetworkFunction, PortNumber, Reason, objects_of, stage_names};
use asterism_io::frame::{Burst, FramePool};
use asterism_io::link::Network;
use asterism_io::port::{Port, PortStatistics};
use asterism_placement::membership::Roster;
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::{Absence, ObjectSettings, hash};

use super::plan::Plan;
use crate::report::Failure;
use crate::scenario::Draws;

/// The port on the side of those who begin conversations, and the one on the other side.
pub(crate) const PORTS: [PortNumber; 2] = [PortNumber(0), PortNumber(1)];
/// The cluster's seconds at the start: all of a run lies in one interval of the monitor.
pub(crate) const TICK_AT_ZERO: u32 = 1_020;
/// Buffers for frames of an instance, and the bytes of each.
const FRAMES: (usize, usize) = (128, 2_048);
/// A packet is held back for at most so long.
pub(crate) const HELD_WITHIN: Duration = Duration::from_millis(40);
/// Packets that an instance holds back at most.
const HELD_MAX: usize = 64;
/// The next incarnation of a host has a name so much greater.
const INCARNATIONS_APART: u64 = 1_000;
/// Microseconds for which a packet waits for what others may have to say: as `absent` has it in configurations.
const ABSENT_US: u32 = 20_000;
/// Sibling instances know of each other after at most so long.
const SIBLINGS: Duration = Duration::from_millis(5);

/// An instance: its host, its number there, and which of the host's incarnations it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) host: usize,
    pub(crate) lane: usize,
    pub(crate) incarnation: u64,
}

/// A packet that left.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) at: Place,
    pub(crate) port: PortNumber,
    pub(crate) frame: Vec<u8>,
}

/// A packet that comes to the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) port: PortNumber,
    /// What routers deal packets by.
    pub(crate) path: u64,
    /// The host that it comes to whatever routers would do.
    pub(crate) host: Option<usize>,
    pub(crate) frame: Vec<u8>,
}

/// A port that tells what left.
struct Tap {
    at: Place,
    number: PortNumber,
    left: Sender<Left>,
}

impl Port for Tap {
    fn name(&self) -> &str {
        "tap"
    }
    fn receive(&mut self, _: &mut FramePool, _: &mut Burst) -> usize {
        0
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        for frame in burst.iter() {
            // Who listens ends with the run.
            let _ = self.left.send(Left {
                at: self.at,
                port: self.number,
                frame: pool.bytes(frame).to_vec(),
            });
        }
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// Objects as configurations have them when nothing else is said.
fn settings(name: &str) -> ObjectSettings {
    // Those of a chain are called after their stage, too.
    let (_, name) = name.rsplit_once('.').unwrap_or(("", name));
    match name {
        "errors" => ObjectSettings::LOCAL,
        "ports" | "fragments" => ObjectSettings {
            absence: Absence::Wait { us: ABSENT_US },
            ..ObjectSettings::REPLICATED
        },
        _ => ObjectSettings::REPLICATED,
    }
}

/// The hosts, the routers around them, and what left.
pub(crate) struct Hosts<F: NetworkFunction> {
    pub(crate) cluster: Cluster<F>,
    function: Arc<F>,
    plan: Plan,
    sender: Sender<Left>,
    left: Receiver<Left>,
    incarnations: Vec<u64>,
    living: Vec<bool>,
    /// Hosts that routers send packets to.
    routed: Vec<usize>,
    /// How often routers dealt paths.
    dealt: u64,
    draws: Draws,
    /// Whether everybody is known to know everything.
    pub(crate) settled: bool,
    /// Rosters to be handed out: the time and the recipient.
    handings: VecDeque<(Time, usize, Roster)>,
    /// The longest that some host's word took to reach another one.
    pub(crate) lag_most: Duration,
}

impl<F: NetworkFunction> Hosts<F> {
    pub(crate) fn new(function: F, plan: &Plan) -> Self {
        let (sender, left) = channel();
        let mut network = Network::new(plan.seed);
        network.set_defaults(plan.link.clone());
        let function = Arc::new(function);
        let incarnations: Vec<u64> = (0..plan.hosts as u64).map(|place| place + 100).collect();
        let members = (0..plan.hosts)
            .map(|place| build(&function, plan, place, incarnations[place], &sender))
            .collect();
        let mut hosts = Self {
            cluster: Cluster::new(members, network),
            function,
            plan: plan.clone(),
            sender,
            left,
            living: vec![true; plan.hosts],
            incarnations,
            routed: (0..plan.hosts).collect(),
            dealt: 0,
            draws: Draws::new(plan.seed, 41),
            settled: false,
            handings: VecDeque::new(),
            lag_most: Duration::ZERO,
        };
        hosts.cluster.set_turn(Duration::from_micros(20));
        hosts
    }

    pub(crate) fn now(&self) -> Time {
        self.cluster.now()
    }

    /// Hosts that live.
    pub(crate) fn living(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.living.len()).filter(|&place| self.living[place])
    }

    /// Instances of hosts that live.
    pub(crate) fn instances(&self) -> impl Iterator<Item = (Place, &Instance<F>)> {
        self.living().flat_map(move |host| {
            let incarnation = self.incarnations[host];
            let instances = self.cluster.members()[host].instances.iter().enumerate();
            instances.map(move |(lane, instance)| {
                (
                    Place {
                        host,
                        lane,
                        incarnation,
                    },
                    instance,
                )
            })
        })
    }

    /// The function, as all hosts run it.
    pub(crate) fn function(&self) -> &F {
        &self.function
    }

    /// What each instance dropped, and why: for messages of failures.
    pub(crate) fn drops(&self) -> String {
        let dropped = self.instances().map(|(at, instance)| {
            let drops: Vec<_> = instance.tally().drops().collect();
            format!("m{}.{}: {drops:?}", at.host, at.lane)
        });
        dropped.collect::<Vec<_>>().join(", ")
    }

    /// A host goes on with another function, if it lives.
    pub(crate) fn reload(&mut self, host: usize, function: &Arc<F>) {
        if self.living[host] {
            for instance in &mut self.cluster.members_mut()[host].instances {
                instance.replace_function(function.clone());
            }
        }
    }

    /// Lets time pass, handing out rosters that are due.
    pub(crate) fn run(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.now() + time;
        while let Some((at, ..)) = self.handings.front()
            && *at <= until
            && let Some((at, place, roster)) = self.handings.pop_front()
        {
            self.cluster.run_until(at.max(self.cluster.now()));
            self.cluster
                .install(place, &roster)
                .map_err(|why| Failure::new("rosters are installed", format!("m{place}: {why}")))?;
        }
        self.cluster.run_until(until);
        self.measure_lag();
        Ok(())
    }

    /// What left until now.
    pub(crate) fn take_left(&mut self) -> Vec<Left> {
        self.left.try_iter().collect()
    }

    /// Where routers send a packet.
    pub(crate) fn place_of(&mut self, arrival: &Arrival) -> Place {
        let plan = &self.plan;
        let host = match arrival.host {
            Some(host) => host,
            None if plan.sprays => self.draws.one_of(&self.routed),
            None if plan.deals_again => {
                let dealt = hash::words(arrival.path, self.dealt, plan.seed);
                self.routed[(dealt % self.routed.len() as u64) as usize]
            }
            // By the highest hash: only paths of who went move.
            None => {
                let weigh = |&host: &usize| hash::words(arrival.path, host as u64, plan.seed);
                let best = self.routed.iter().copied().max_by_key(weigh);
                best.unwrap_or(0)
            }
        };
        let lane = match plan.sprays {
            true => self.draws.within(0, u64::from(plan.lanes) - 1),
            false => hash::word(arrival.path, plan.seed) % u64::from(plan.lanes),
        };
        Place {
            host,
            lane: lane as usize,
            incarnation: self.incarnations[host],
        }
    }

    /// Hands a packet to an instance; false if nobody took it.
    pub(crate) fn inject(&mut self, at: Place, arrival: &Arrival) -> bool {
        self.living[at.host]
            && self
                .cluster
                .inject(at.host, at.lane, arrival.port, &arrival.frame)
    }

    /// Whether an instance surely knows now what another one wrote by `since`.
    pub(crate) fn knows(&self, at: Place, of: Place, since: Time) -> bool {
        if self.settled || at == of {
            return true;
        }
        if (at.host, at.incarnation) == (of.host, of.incarnation) {
            return self.now() >= since + SIBLINGS;
        }
        // What an incarnation that is over wrote, those who live tell each other.
        if self.incarnations[of.host] != of.incarnation
            || !self.living[of.host]
            || !self.living[at.host]
        {
            return false;
        }
        self.covered(at.host, of.host) > since
    }

    /// How long what accumulators add may wait before it is reported.
    pub(crate) fn reported_within(&self) -> Duration {
        self.plan.flush * 2 + self.plan.coalescing + Duration::from_millis(2)
    }

    fn covered(&self, at: usize, of: usize) -> Time {
        let progress = self.cluster.members()[at].channel.progress();
        progress.covered_until(MemberId(of as u16))
    }

    /// A host dies, now. Up to when all that it wrote is known to somebody who lives.
    pub(crate) fn kill(&mut self, victim: usize) -> Time {
        self.living[victim] = false;
        self.cluster.set_paused(victim, true);
        if self.plan.copies.is_some() {
            // What is held back must not need its last datagrams.
            self.cluster.network_mut().forget_departures(victim as u16);
        }
        let reported = self.living().map(|at| self.covered(at, victim)).max();
        reported.unwrap_or(Time::ZERO)
    }

    /// Routers deal packets to those who live and are ready.
    pub(crate) fn route(&mut self) {
        let members = self.cluster.members();
        let ready = |&place: &usize| members[place].channel.is_ready();
        self.routed = self.living().filter(ready).collect();
        self.dealt += 1;
    }

    /// Held packets that left a host.
    pub(crate) fn released(&self, host: usize) -> u64 {
        let instances = self.cluster.members()[host].instances.iter();
        let released = instances.map(|instance| {
            let tally = instance.tally();
            tally.held - tally.held_now as u64 - tally.dropped(Reason::HeldTooLong)
        });
        released.sum()
    }

    /// Whether all who live are ready for packets.
    pub(crate) fn all_ready(&self) -> bool {
        let members = self.cluster.members();
        self.handings.is_empty() && self.living().all(|place| members[place].channel.is_ready())
    }

    /// An epoch of those who live, which reaches each of them at another moment.
    pub(crate) fn tell_epoch(&mut self, epoch: u32, spread: Duration) {
        let members = self.living().map(|place| {
            let incarnation = Incarnation(self.incarnations[place]);
            (MemberId(place as u16), Some(incarnation))
        });
        let roster = Roster {
            epoch: Epoch(epoch),
            members: members.collect(),
            assignment: Vec::new(),
        };
        let now = self.now();
        let most = spread.as_micros() as u64;
        let living: Vec<_> = self.living().collect();
        for place in living {
            let at = now + self.draws.micros(0, most);
            self.handings.push_back((at, place, roster.clone()));
        }
        let all = self.handings.make_contiguous();
        all.sort_by_key(|(at, place, roster)| (*at, roster.epoch.0, *place));
    }

    /// The next incarnation of a host that died: it joins once it is reported the epoch.
    pub(crate) fn revive(&mut self, place: usize) {
        self.incarnations[place] += INCARNATIONS_APART;
        let host = build(
            &self.function,
            &self.plan,
            place,
            self.incarnations[place],
            &self.sender,
        );
        self.cluster.replace(place, host);
        self.cluster.set_paused(place, false);
        self.living[place] = true;
    }

    /// Links lose, repeat and reorder nothing any more.
    pub(crate) fn calm(&mut self) {
        self.cluster.network_mut().change_all(|link| {
            (link.loss, link.duplication, link.reordering) = (0.0, 0.0, 0.0);
        });
    }

    /// Whether all who live have applied what the others wrote.
    pub(crate) fn is_quiet(&self) -> bool {
        self.handings.is_empty()
            && self.living().all(|place| {
                let member = &self.cluster.members()[place];
                let behind = |instance: &Instance<F>| instance.is_behind() || instance.parked() > 0;
                member.channel.is_quiet() && !member.instances.iter().any(behind)
            })
    }

    /// The first object in which two instances differ, with them.
    pub(crate) fn difference(&self) -> Option<String> {
        let mut first: Option<(Place, Vec<u64>)> = None;
        for (at, instance) in self.instances() {
            let mut digests = instance.digests();
            for (digest, name) in digests.iter_mut().zip(objects_of(&*self.function)) {
                // Nobody else is informed of it.
                if !settings(name).is_replicated() {
                    *digest = 0;
                }
            }
            let Some((other, reference)) = &first else {
                first = Some((at, digests));
                continue;
            };
            let names = objects_of(&*self.function)
                .iter()
                .zip(digests.iter().zip(reference));
            let differing: Vec<_> = names
                .filter(|(_, (left, right))| left != right)
                .map(|(name, _)| *name)
                .collect();
            if !differing.is_empty() {
                return Some(format!("{at:?} and {other:?} differ in {differing:?}"));
            }
        }
        None
    }

    /// No auditor says that replicas differ, or that a stream was not delivered as sent.
    pub(crate) fn no_alarm(&self) -> Result<(), Failure> {
        for place in self.living() {
            let auditor = self.cluster.members()[place].channel.auditor();
            if let Some((at, lane, leaves)) = auditor.differing().next() {
                return Err(Failure::new(
                    "no false alarm",
                    format!(
                        "m{place}.{lane} says that {} differs in {at:?}, leaves {leaves:x}",
                        objects_of(&*self.function)[usize::from(at.object)]
                    ),
                ));
            }
            let mut streams = auditor.streams();
            if let Some(fault) = streams.find_map(|stream| stream.last_fault) {
                return Err(Failure::new(
                    "streams are delivered as sent",
                    format!("m{place}: {fault:?}"),
                ));
            }
        }
        Ok(())
    }

    fn measure_lag(&mut self) {
        let now = self.now();
        let living: Vec<_> = self.living().collect();
        for &at in &living {
            let ready = self.cluster.members()[at].channel.is_ready();
            for &of in living.iter().filter(|&&of| of != at && ready) {
                let covered = self.covered(at, of);
                if covered > Time::ZERO {
                    self.lag_most = self.lag_most.max(now.since(covered));
                }
            }
        }
    }
}

fn build<F: NetworkFunction>(
    function: &Arc<F>,
    plan: &Plan,
    place: usize,
    incarnation: u64,
    left: &Sender<Left>,
) -> (MemberId, StateChannel, Vec<Instance<F>>) {
    let names: Vec<_> = (0..plan.hosts as u16).map(MemberId).collect();
    let mut draws = Draws::new(plan.seed, 1_000 + incarnation);
    let mut secrets = [0; 48];
    for chunk in secrets.chunks_mut(8) {
        chunk.copy_from_slice(&draws.word().to_le_bytes());
    }
    let mut config = HostConfig::new(
        ClusterId(9),
        names[place],
        Incarnation(incarnation),
        names,
        ClusterKey::from_random(1, [7; 32]),
        secrets,
    );
    config.instances = plan.lanes;
    config.joins = incarnation >= INCARNATIONS_APART;
    config.tick_at_zero = TICK_AT_ZERO;
    config.flush_us = plan.flush.as_micros() as u64;
    config.audited_objects = objects_of(&**function).len();
    // A burst is read only where each stage has room for what it writes.
    let stages = stage_names(&**function).len().max(1);
    config.up_ring_bytes = (128 << 10) * stages.next_power_of_two();
    config.down_ring_bytes = 128 << 10;
    let replica = &mut config.replica;
    replica.keep_alive = plan.keep_alive;
    (replica.retransmit_min, replica.retransmit_max) = plan.retransmit;
    replica.coalescing_max = plan.coalescing;
    config.hold = plan.copies.map(|copies| HoldSettings {
        copies,
        packets_max: HELD_MAX,
        bytes_max: HELD_MAX * FRAMES.1,
        age_max: HELD_WITHIN,
        overdue: Overdue::Drop,
        exempt: Vec::new(),
    });
    let name = config.member;
    let (channel, parts) = host(config, Time::ZERO).expect("a plan's configuration is good");
    let instances = parts.into_iter().enumerate().map(|(lane, part)| {
        let at = Place {
            host: place,
            lane,
            incarnation,
        };
        let ports = PORTS.map(|number| {
            let left = left.clone();
            Box::new(Tap { at, number, left }) as Box<dyn Port>
        });
        let pool = FramePool::with_stride(FRAMES.0, FRAMES.1).expect("memory for some frames");
        let holds_output = plan.copies.is_some();
        let settings = move |name: &str| ObjectSettings {
            holds_output,
            ..settings(name)
        };
        part.start(function.clone(), settings, pool, ports.into())
    });
    (name, channel, instances.collect())
}
