//! A cluster of hosts in this process, on a clock that the caller sets: packets in, packets out, and what was measured on the
//! way. `demo` and `replay` run on it.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use asterism_config as config;
use asterism_engine::{Cluster, HostConfig, HostError, Instance, StateChannel, host};
use asterism_function::{NetworkFunction, PortNumber, objects_of};
use asterism_io::frame::{Burst, FramePool, STRIDE_BYTES, STRIDE_BYTES_JUMBO};
use asterism_io::link::{LinkConditions, Network, SeededRandom};
use asterism_io::port::{Port, PortDrop, PortStatistics};
use asterism_placement::{Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

/// Ports of every instance.
const PORTS: u16 = 2;
/// Hosts greet one another before the first packet: so many round trips, and at least so long.
const WARM_UP_ROUND_TRIPS: u32 = 6;
const WARM_UP_LEAST: Duration = Duration::from_millis(200);
/// Lag samples kept at most; later ones are not recorded.
const LAG_SAMPLES_MAX: usize = 4 << 20;
/// How often lag is looked at.
const LAG_STEP: Duration = Duration::from_micros(250);

/// A packet that left a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The host, by its place.
    pub host: usize,
    /// The port.
    pub port: PortNumber,
    /// When, by the fleet's clock.
    pub time: Time,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// How a fleet is made.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// The cluster's settings; its members are the hosts.
    pub cluster: config::Cluster,
    /// Packet loops of each host.
    pub instances: usize,
    /// The links between hosts.
    pub link: LinkConditions,
    /// Makes the run what it is: keys, incarnations, and what the links do.
    pub seed: u64,
    /// Frames of up to 16 KiB, for captures with segmentation offload, instead of 2 KiB.
    pub jumbo: bool,
    /// Whether incarnations are counted from 1, as files of epochs do; else they are drawn.
    pub counted_incarnations: bool,
}

/// Why a host was not started.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Its state channel or its instances were not made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There is no memory for the packets of an instance.
    #[error("the host was not started: no memory for its packets: {0}")]
    PacketMemory(io::Error),
}

/// A cluster of hosts in this process.
#[derive(Debug)]
pub struct Fleet<F: NetworkFunction> {
    works: Works<F>,
    cluster: Cluster<F>,
    left: Receiver<Left>,
    shared: Vec<bool>,
    lag: LagMeter,
    lag_due: Time,
}

impl<F: NetworkFunction> Fleet<F> {
    /// Starts the hosts and lets them greet one another.
    ///
    /// # Errors
    /// See [`FleetError`]; no host was started.
    pub fn start(
        config: &FleetConfig,
        function: &Arc<F>,
        objects: impl Fn(&str) -> ObjectSettings + Clone + 'static,
    ) -> Result<Fleet<F>, FleetError> {
        let mut random = SeededRandom::new(config.seed);
        // Datagrams never leave this process: the key is drawn for the run, also when the configuration names one.
        let mut secret = [0; 32];
        secret.copy_from_slice(&drawn(&mut random)[..32]);
        let (sender, left) = mpsc::channel();
        let chosen = objects.clone();
        let mut works = Works {
            config: config.clone(),
            function: function.clone(),
            objects: Rc::new(chosen),
            key: ClusterKey::from_random(1, secret),
            random,
            sender,
        };
        let mut members = Vec::new();
        for place in 0..config.cluster.members.len() {
            let incarnation = works.random.next_u64() | 1;
            let incarnation = if config.counted_incarnations {
                1
            } else {
                incarnation
            };
            members.push(works.host(place, Incarnation(incarnation), false, Time::ZERO)?);
        }
        let hosts = members.len();
        let mut network = Network::new(works.random.next_u64());
        network.set_defaults(config.link.clone());
        let mut fleet = Fleet {
            works,
            cluster: Cluster::new(members, network),
            left,
            shared: objects_of(&**function)
                .iter()
                .map(|name| objects(name).is_replicated())
                .collect(),
            lag: LagMeter::new(hosts),
            lag_due: Time::ZERO,
        };
        let warm_up = (config.link.delay * 2 * WARM_UP_ROUND_TRIPS).max(WARM_UP_LEAST);
        fleet.run_until(Time::ZERO + warm_up);
        Ok(fleet)
    }

    /// The fleet's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.cluster.now()
    }

    /// How many hosts there are.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.cluster.members().len()
    }

    /// The cluster, to look at.
    #[must_use]
    pub fn cluster(&self) -> &Cluster<F> {
        &self.cluster
    }

    /// The cluster, to steer.
    pub fn cluster_mut(&mut self) -> &mut Cluster<F> {
        &mut self.cluster
    }

    /// Hands a packet to an instance of a host, now. False if it could not be taken.
    pub fn inject(&mut self, host: usize, instance: usize, port: PortNumber, bytes: &[u8]) -> bool {
        self.cluster.inject(host, instance, port, bytes)
    }

    /// Ends a host at once, and what is on its way to it.
    pub fn kill(&mut self, place: usize) {
        self.cluster.set_paused(place, true);
        self.cluster.network_mut().forget_arrivals(place as u16);
    }

    /// Puts a new incarnation in the place of a host that was killed. It takes packets once an epoch named it and it has what others have.
    ///
    /// # Errors
    /// See [`FleetError`]; the place has its old host.
    pub fn begin_again(
        &mut self,
        place: usize,
        incarnation: Incarnation,
    ) -> Result<(), FleetError> {
        let host = self
            .works
            .host(place, incarnation, true, self.cluster.now())?;
        self.cluster.replace(place, host);
        self.cluster.set_paused(place, false);
        Ok(())
    }

    /// Has the hosts that begin from now on work with another function, whose state must be of the same shape.
    pub fn set_function(&mut self, function: Arc<F>) {
        self.works.function = function;
    }

    /// The packets that left since the last call, in the order in which they left.
    pub fn take_left(&mut self) -> impl Iterator<Item = Left> + '_ {
        self.left.try_iter()
    }

    /// Moves the clock.
    pub fn run_until(&mut self, until: Time) {
        while self.cluster.advance(until) {
            if self.cluster.now() >= self.lag_due {
                self.lag_due = self.cluster.now() + LAG_STEP;
                self.lag.query(&self.cluster);
            }
        }
        self.lag.query(&self.cluster);
    }

    /// Runs until every host has what all others wrote, or `limit` is over. Whether it happened.
    pub fn run_until_quiet(&mut self, limit: Duration) -> bool {
        let end = self.now() + limit;
        // What accumulates is flushed at its next due time: silence before that is not the end.
        self.run_until(self.now() + Duration::from_millis(5));
        while !self.cluster.is_quiet() {
            if self.now() >= end {
                return false;
            }
            self.run_until(self.now() + Duration::from_millis(1));
        }
        true
    }

    /// One digest for each host over what it shares with the others; over everything if it shares nothing.
    ///
    /// A host with several instances has one for all of them if they agree, else one that equals no other host's.
    #[must_use]
    pub fn digests(&self) -> Vec<u64> {
        let members = self.cluster.members().iter().enumerate();
        let host = |(place, member): (usize, &asterism_engine::Member<F>)| {
            let mut each = member.instances.iter().map(|instance| {
                let objects = instance.digests().into_iter().zip(&self.shared);
                let words = objects
                    .filter(|(_, shared)| **shared || !self.shares())
                    .map(|(digest, _)| digest);
                words.fold(0, |sum, digest| asterism_state::hash::word(digest, sum))
            });
            let first = each.next().unwrap_or(0);
            if each.all(|digest| digest == first) {
                first
            } else {
                first ^ (place as u64 + 1)
            }
        };
        members.map(host).collect()
    }

    /// Whether anything is shared at all.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.shared.contains(&true)
    }

    /// How long changes took from one host to another.
    #[must_use]
    pub fn lag(&self) -> Lag {
        self.lag.result()
    }
}

/// What hosts are made of.
struct Works<F: NetworkFunction> {
    config: FleetConfig,
    function: Arc<F>,
    objects: Rc<dyn Fn(&str) -> ObjectSettings>,
    key: ClusterKey,
    random: SeededRandom,
    sender: Sender<Left>,
}

impl<F: NetworkFunction> core::fmt::Debug for Works<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Works").finish_non_exhaustive()
    }
}

impl<F: NetworkFunction> Works<F> {
    fn host(
        &mut self,
        place: usize,
        incarnation: Incarnation,
        joins: bool,
        now: Time,
    ) -> Result<(MemberId, StateChannel, Vec<Instance<F>>), FleetError> {
        let member = self.config.cluster.member_ids()[place];
        let secrets = drawn(&mut self.random);
        let schema = self.function.schema();
        let cluster = &self.config.cluster;
        let host_config = HostConfig {
            instances: self.config.instances as u16,
            joins,
            ..cluster.host(member, incarnation, self.key.clone(), secrets, schema)
        };
        let (channel, parts) = host(host_config, now)?;
        let stride = if self.config.jumbo {
            STRIDE_BYTES_JUMBO
        } else {
            STRIDE_BYTES
        };
        let mut instances = Vec::new();
        for part in parts {
            let pool = FramePool::with_stride(2_048, stride).map_err(FleetError::PacketMemory)?;
            let ports = (0..PORTS).map(|port| {
                let tap = Tap::new(place, PortNumber(port), self.sender.clone());
                Box::new(tap) as Box<dyn Port>
            });
            let objects = self.objects.clone();
            let objects = move |name: &str| objects(name);
            let function = self.function.clone();
            instances.push(part.start(function, objects, pool, ports.collect()));
        }
        Ok((member, channel, instances))
    }
}

/// 48 bytes for a host's secrets.
fn drawn(random: &mut SeededRandom) -> [u8; 48] {
    let words: [u64; 6] = core::array::from_fn(|_| random.next_u64());
    core::array::from_fn(|place| words[place / 8].to_le_bytes()[place % 8])
}

/// How long changes took from the host that made them to another's tables, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Lag {
    /// How many were measured.
    pub samples: u64,
    /// Half took at most so long.
    pub p50_us: u64,
    /// 99 of 100 took at most so long.
    pub p99_us: u64,
    /// The longest.
    pub most_us: u64,
}

/// Follows how far every host's stream is applied at every other.
#[derive(Debug)]
struct LagMeter {
    hosts: usize,
    heads: Vec<u64>,
    /// For each pair (origin, receiver), when the origin's head was where.
    waiting: Vec<VecDeque<(Time, u64)>>,
    samples_us: Vec<u32>,
}

impl LagMeter {
    fn new(hosts: usize) -> LagMeter {
        LagMeter {
            hosts,
            heads: vec![0; hosts],
            waiting: (0..hosts * hosts).map(|_| VecDeque::new()).collect(),
            samples_us: Vec::new(),
        }
    }

    fn query<F: NetworkFunction>(&mut self, cluster: &Cluster<F>) {
        let now = cluster.now();
        for (origin, member) in cluster.members().iter().enumerate() {
            let head = member.channel.head();
            let grew = head > self.heads[origin];
            self.heads[origin] = head;
            for (receiver, other) in cluster.members().iter().enumerate() {
                if receiver == origin {
                    continue;
                }
                let waiting = &mut self.waiting[origin * self.hosts + receiver];
                if grew {
                    waiting.push_back((now, head));
                }
                if waiting.is_empty() {
                    continue;
                }
                let applied = other.channel.progress().applied(member.name);
                while let Some((since, _)) = waiting.pop_front_if(|(_, head)| *head <= applied) {
                    if self.samples_us.len() < LAG_SAMPLES_MAX {
                        let lag = now.as_micros() - since.as_micros();
                        self.samples_us.push(u32::try_from(lag).unwrap_or(u32::MAX));
                    }
                }
            }
        }
    }

    fn result(&self) -> Lag {
        let mut sorted = self.samples_us.clone();
        sorted.sort_unstable();
        let at = |share: f64| {
            let place = (sorted.len() as f64 * share).ceil() as usize;
            sorted.get(place.max(1) - 1).copied().unwrap_or(0).into()
        };
        Lag {
            samples: sorted.len() as u64,
            p50_us: at(0.5),
            p99_us: at(0.99),
            most_us: at(1.0),
        }
    }
}

/// A port that hands what is sent to the fleet's caller.
#[derive(Debug)]
struct Tap {
    host: usize,
    port: PortNumber,
    sender: Sender<Left>,
    now: Time,
    statistics: PortStatistics,
}

impl Tap {
    fn new(host: usize, port: PortNumber, sender: Sender<Left>) -> Tap {
        Tap {
            host,
            port,
            sender,
            now: Time::ZERO,
            statistics: PortStatistics::default(),
        }
    }
}

impl Port for Tap {
    fn name(&self) -> &str {
        "tap"
    }

    fn receive(&mut self, _: &mut FramePool, _: &mut Burst) -> usize {
        0
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let mut sent = 0;
        for frame in burst.iter() {
            let bytes = pool.bytes(frame).to_vec();
            self.statistics.sent_packets += 1;
            self.statistics.sent_bytes += bytes.len() as u64;
            let left = Left {
                host: self.host,
                port: self.port,
                time: self.now,
                bytes,
            };
            if self.sender.send(left).is_err() {
                self.statistics.dropped[PortDrop::WriteFailed as usize] += 1;
            }
            sent += 1;
        }
        pool.release_all(burst);
        sent
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }

    fn advance(&mut self, now: Time) {
        self.now = now;
    }
}
