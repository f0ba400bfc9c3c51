//! Hosts of a NAT that die and are replaced, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use asterism_engine::{Cluster, HoldSettings, HostConfig, Instance, Overdue, StateChannel, host};
use asterism_function::{PortNumber, Reason};
use asterism_functions::nat::Nat;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{Port, PortStatistics};
use asterism_placement::membership::Roster;
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::{Absence, ObjectSettings};

use crate::contract::Failure;
use crate::measures::nat_bench::nat;
use crate::traffic::Random;

pub(super) const INSIDE: PortNumber = PortNumber(0);
pub(super) const OUTSIDE: PortNumber = PortNumber(1);
/// A packet that left: by which port.
pub(super) type Left = (PortNumber, Vec<u8>);

/// A turn of a host's loop.
const TURN: Duration = Duration::from_micros(5);
/// An epoch reaches the last host at most so long after the first.
const SPREAD_US: u64 = 10_000;
/// Hosts must agree, and a new one must have joined, within so long.
const WITHIN: Duration = Duration::from_secs(10);
/// Hosts are asked so often whether they agree.
const STEP: Duration = Duration::from_millis(2);
/// The next incarnation of a host has a name so much greater.
const INCARNATIONS_APART: u64 = 1_000;
/// Microseconds for which a packet waits for what others may have to say: as `absent` has it in configurations.
const ABSENT_US: u32 = 20_000;
/// Packets that an instance holds at most.
const HELD_MAX: usize = 1_024;
const FRAMES: usize = 2_048;

/// A port that tells what left.
struct Tap {
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
            // Who listens ends with the measure.
            let _ = self.left.send((self.number, pool.bytes(frame).to_vec()));
        }
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// How hosts are made.
struct Plan {
    count: u16,
    function: Arc<Nat>,
    copies: Option<u32>,
    seed: u64,
    left: Sender<Left>,
}

/// What comes to a host at some time.
enum Event {
    /// An epoch reaches it.
    Epoch(Roster),
    /// Its next incarnation begins.
    Begins,
}

/// The hosts.
pub(super) struct Hosts {
    cluster: Cluster<Nat>,
    plan: Plan,
    left: Receiver<Left>,
    incarnations: Vec<u64>,
    living: Vec<bool>,
    epoch: u32,
    events: VecDeque<(Time, usize, Event)>,
    /// Packets that hosts held which are no more, and what those dropped.
    held_before: u64,
    dropped_before: BTreeMap<Reason, u64>,
}

impl Hosts {
    pub(super) fn new(
        count: u16,
        connections: u32,
        link: LinkConditions,
        copies: Option<u32>,
        seed: u64,
    ) -> Result<Self, Failure> {
        let (sender, left) = channel();
        let mut network = Network::new(seed);
        network.set_defaults(link);
        let plan = Plan {
            count,
            function: Arc::new(nat(connections, count.into())),
            copies,
            seed,
            left: sender,
        };
        let incarnations: Vec<u64> = (0..u64::from(count)).map(|place| place + 1).collect();
        let members = incarnations.iter().enumerate();
        let members = members.map(|(place, &incarnation)| plan.build(place, incarnation));
        let members = members.collect::<Result<_, _>>()?;
        let mut cluster = Cluster::new(members, network);
        cluster.set_turn(TURN);
        let mut hosts = Self {
            cluster,
            plan,
            left,
            living: vec![true; count.into()],
            incarnations,
            epoch: 1,
            events: VecDeque::new(),
            held_before: 0,
            dropped_before: BTreeMap::new(),
        };
        hosts.run(Duration::from_millis(300))?;
        hosts.settle()?;
        Ok(hosts)
    }

    /// Lets time pass; what is due comes to hosts.
    pub(super) fn run(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.cluster.now() + time;
        while let Some((at, place, event)) = self.events.pop_front() {
            if at > until {
                self.events.push_front((at, place, event));
                break;
            }
            self.cluster.run_until(at.max(self.cluster.now()));
            match event {
                Event::Epoch(roster) => self.cluster.install(place, &roster).map_err(|why| {
                    Failure::Unsound(format!("host {place} refused an epoch: {why}"))
                })?,
                Event::Begins => self.begin(place)?,
            }
        }
        self.cluster.run_until(until);
        Ok(())
    }

    pub(super) fn take_left(&mut self) -> Vec<Left> {
        self.left.try_iter().collect()
    }

    /// A host that takes packets.
    pub(super) fn any(&self, random: &mut Random) -> usize {
        let ready = (0..self.living.len()).filter(|&place| self.is_ready(place));
        let ready: Vec<_> = ready.collect();
        let drawn = random.below(ready.len().max(1) as u64) as usize;
        ready.get(drawn).copied().unwrap_or(0)
    }

    fn is_ready(&self, place: usize) -> bool {
        self.living[place] && self.cluster.members()[place].channel.is_ready()
    }

    /// Whether all places have a host that takes packets, and every epoch has reached every host.
    pub(super) fn are_ready(&self) -> bool {
        self.events.is_empty() && (0..self.living.len()).all(|place| self.is_ready(place))
    }

    pub(super) fn inject(
        &mut self,
        host: usize,
        port: PortNumber,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        match self.cluster.inject(host, 0, port, bytes) {
            true => Ok(()),
            false => Err(Failure::Unsound("a packet found no room".into())),
        }
    }

    /// Packets that a host holds.
    pub(super) fn held(&self, host: usize) -> usize {
        let instances = self.cluster.members()[host].instances.iter();
        instances.map(Instance::held).sum()
    }

    /// Packets that were held by any host at any time.
    pub(super) fn held_in_all(&self) -> u64 {
        let places = 0..self.living.len();
        self.held_before + places.map(|place| self.were_held(place)).sum::<u64>()
    }

    /// Packets that any host dropped at any time, by reason.
    pub(super) fn dropped(&self) -> BTreeMap<Reason, u64> {
        let mut dropped = self.dropped_before.clone();
        (0..self.living.len()).for_each(|place| self.add_dropped(place, &mut dropped));
        dropped
    }

    fn add_dropped(&self, host: usize, to: &mut BTreeMap<Reason, u64>) {
        let instances = self.cluster.members()[host].instances.iter();
        for (reason, count) in instances.flat_map(|instance| instance.tally().drops()) {
            *to.entry(reason).or_default() += count;
        }
    }

    fn were_held(&self, host: usize) -> u64 {
        let instances = self.cluster.members()[host].instances.iter();
        instances.map(|instance| instance.tally().held).sum()
    }

    /// A host dies, and with it, perhaps, what is on its way from there.
    pub(super) fn kill(&mut self, victim: usize, is_sent_lost: bool) {
        self.living[victim] = false;
        self.cluster.set_paused(victim, true);
        if is_sent_lost {
            self.cluster.network_mut().forget_departures(victim as u16);
        }
    }

    /// The next epoch is without the dead host and reaches the others after `noticed`; one more, `returns` later, has its next
    /// incarnation. If that is `None` the first one has it.
    pub(super) fn replace(
        &mut self,
        victim: usize,
        noticed: Duration,
        returns: Option<Duration>,
        random: &mut Random,
    ) -> Result<(), Failure> {
        let mut at = self.cluster.now() + noticed;
        if let Some(returns) = returns {
            self.plan_epoch(at, Some(victim), random);
            at = at + Duration::from_micros(SPREAD_US) + returns;
        }
        self.incarnations[victim] += INCARNATIONS_APART;
        self.events.push_back((at, victim, Event::Begins));
        self.plan_epoch(at, None, random);
        // In the order of their times: a host begins before an epoch reaches it.
        self.events.make_contiguous().sort_by_key(|(at, ..)| *at);
        Ok(())
    }

    /// An epoch reaches each of its hosts some time after `from`.
    fn plan_epoch(&mut self, from: Time, without: Option<usize>, random: &mut Random) {
        self.epoch += 1;
        let places: Vec<_> = (0..self.living.len())
            .filter(|place| Some(*place) != without)
            .collect();
        let named = |&place: &usize| {
            let incarnation = Incarnation(self.incarnations[place]);
            (MemberId(place as u16), Some(incarnation))
        };
        let roster = Roster {
            epoch: Epoch(self.epoch),
            members: places.iter().map(named).collect(),
            assignment: Vec::new(),
        };
        for place in places {
            let at = from + Duration::from_micros(1 + random.below(SPREAD_US));
            self.events
                .push_back((at, place, Event::Epoch(roster.clone())));
        }
    }

    /// The next incarnation of a host begins in the place of the dead one.
    fn begin(&mut self, place: usize) -> Result<(), Failure> {
        self.held_before += self.were_held(place);
        let mut dropped = std::mem::take(&mut self.dropped_before);
        self.add_dropped(place, &mut dropped);
        self.dropped_before = dropped;
        let host = self.plan.build(place, self.incarnations[place])?;
        self.cluster.replace(place, host);
        self.cluster.set_paused(place, false);
        self.living[place] = true;
        Ok(())
    }

    /// Lets time pass until all hosts agree and hold no packet.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        let begun = self.cluster.now();
        loop {
            self.run(STEP)?;
            let waits = |place: usize| {
                let mut instances = self.cluster.members()[place].instances.iter();
                instances.any(|instance| instance.parked() > 0) || self.held(place) > 0
            };
            let is_quiet = self.cluster.is_quiet() && !(0..self.living.len()).any(waits);
            if is_quiet && self.are_ready() {
                return Ok(());
            }
            if self.cluster.now().since(begun) > WITHIN {
                return Err(Failure::Unsound(format!(
                    "hosts did not come to agree in {WITHIN:?}"
                )));
            }
        }
    }
}

impl Plan {
    fn build(
        &self,
        place: usize,
        incarnation: u64,
    ) -> Result<(MemberId, StateChannel, Vec<Instance<Nat>>), Failure> {
        let names: Vec<_> = (0..self.count).map(MemberId).collect();
        let name = names[place];
        let mut random = Random::new(self.seed ^ (incarnation << 20));
        let mut secrets = [0; 48];
        for chunk in secrets.chunks_mut(8) {
            chunk.copy_from_slice(&random.bits().to_le_bytes());
        }
        let mut config = HostConfig::new(
            ClusterId(1),
            name,
            Incarnation(incarnation),
            names,
            ClusterKey::from_random(1, [1; 32]),
            secrets,
        );
        config.joins = incarnation > INCARNATIONS_APART;
        config.up_ring_bytes = 128 << 10;
        config.down_ring_bytes = 256 << 10;
        config.hold = self.copies.map(|copies| HoldSettings {
            copies,
            packets_max: HELD_MAX,
            bytes_max: HELD_MAX * 2_048,
            age_max: Duration::from_millis(100),
            overdue: Overdue::Drop,
            exempt: Vec::new(),
        });
        let holds_output = self.copies.is_some();
        let settings = move |object: &str| ObjectSettings {
            holds_output,
            ..settings(object)
        };
        let (channel, parts) = host(config, Time::ZERO)
            .map_err(|error| Failure::Unsound(format!("a host did not start: {error}")))?;
        let start = |part: asterism_engine::InstanceParts| {
            let pool = FramePool::new(FRAMES)
                .map_err(|error| Failure::Absent(format!("no memory for frames: {error}")))?;
            let ports = [INSIDE, OUTSIDE].map(|number| {
                let left = self.left.clone();
                Box::new(Tap { number, left }) as Box<dyn Port>
            });
            Ok(part.start(self.function.clone(), settings, pool, ports.into()))
        };
        let instances = parts
            .into_iter()
            .map(start)
            .collect::<Result<_, Failure>>()?;
        Ok((name, channel, instances))
    }
}

/// Objects as configurations have them when nothing else is said.
fn settings(object: &str) -> ObjectSettings {
    match object {
        "errors" => ObjectSettings::LOCAL,
        "ports" | "fragments" => ObjectSettings {
            absence: Absence::Wait { us: ABSENT_US },
            ..ObjectSettings::REPLICATED
        },
        _ => ObjectSettings::REPLICATED,
    }
}
