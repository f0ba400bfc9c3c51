//! The network: what is built of segments, directors, stations and links to hosts, and its owner's handle.
//!
//! `turning.rs` has the thread that turns it. The handle opens links and makes directors; the thread takes them in between two
//! rounds. A director joins each segment by a [cable](crate::cable), with a frame pool of its own, so that it can end alone.

mod turning;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_director::pair::PairConfig;
use asterism_director::table::BucketSpace;
use asterism_director::{
    ArmConfig, Control, Director, DirectorConfig, FlowBy, Host, HostLink, Side,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::{
    DelayedPort, Port, SharedMemoryConfig, SharedMemoryPort, SharedMemoryRole,
};
use asterism_io::seqlock::Seqlock;

use crate::addresses::{HOSTS_MAX, LinkSide};
use crate::cable::{CablePort, cable};
use crate::configuration::{check_hosts, link_socket};
use crate::error::LocalNetworkError;
use crate::segment::{Segment, SegmentStatistics};
use crate::traffic::{self, Traffic, TrafficConfig, TrafficSnapshot};

use turning::{HOST_WORDS, Order, Turning};

/// Directors of a network at most.
pub const DIRECTORS_MAX: usize = 2;
/// A sane number of packets that a link to a host holds each way, 2 KiB of memory each.
pub const SLOTS_SANE: u32 = 1_024;
/// Changes that may wait for the network's thread.
const ORDERS_MAX: usize = 16;
/// Packets that wait for a slow link at most.
const SLOW_QUEUE: usize = 256;
/// Frames of a director: twice as many as packets may wait in it.
const DIRECTOR_FRAMES: usize = 4_096;

/// What is built. [`LocalNetworkConfig::new`] has sane values for all but the folder and the hosts.
#[derive(Clone, Debug)]
pub struct LocalNetworkConfig {
    /// The folder of the links' sockets, made if it is not there.
    pub folder: PathBuf,
    /// The hosts, in the order of their addresses. At most [`HOSTS_MAX`]; others may come later.
    pub hosts: Vec<String>,
    /// Packets that a link holds each way. A power of two; see
    /// [`SharedMemoryConfig::slots`].
    pub slots: u32,
    /// Time between two packets to a host on each of its links, as over a slow one: whole microseconds. Zero: none.
    pub link_spacing: Duration,
    /// How directors divide the flow space.
    pub space: BucketSpace,
    /// What of a packet decides its host.
    pub by: FlowBy,
    /// One director, or a pair, with which [`LocalNetworkConfig::pair_key`] is needed.
    pub directors: usize,
    /// The key of the pair's heartbeats.
    pub pair_key: [u8; 32],
    /// A number that no network with this pair key has had: random bits.
    pub incarnation: u64,
    /// Outside addresses of the NAT; as in [`ClusterFile`](crate::ClusterFile).
    pub outside_addresses: u8,
    /// What the clients do.
    pub traffic: TrafficConfig,
}

impl LocalNetworkConfig {
    /// One director that keeps both directions of a translated flow together, 16,384 buckets, four outside addresses.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, hosts: Vec<String>) -> LocalNetworkConfig {
        LocalNetworkConfig {
            folder: folder.into(),
            hosts,
            slots: SLOTS_SANE,
            link_spacing: Duration::ZERO,
            space: SPACE,
            by: FlowBy::OutsideEndpoint,
            directors: 1,
            pair_key: [0; 32],
            incarnation: 1,
            outside_addresses: 4,
            traffic: TrafficConfig::default(),
        }
    }
}

/// The seed of the flow space of [`LocalNetworkConfig::new`].
pub const SPACE_SEED: u64 = 0x6c6f_6361_6c00;
const SPACE: BucketSpace = match BucketSpace::new(16_384, SPACE_SEED) {
    Some(space) => space,
    None => unreachable!(),
};

/// The links of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLinks {
    /// Whether the host's process has opened the link, inside and outside.
    pub up: [bool; 2],
    /// Packets that were sent to the host, inside and outside.
    pub sent: [u64; 2],
    /// Packets that the host sent.
    pub received: [u64; 2],
    /// Packets to the host that its link dropped: it was down, or full.
    pub dropped: [u64; 2],
}

impl HostLinks {
    fn read(words: &[u64; HOST_WORDS]) -> HostLinks {
        let [
            up,
            sent_in,
            sent_out,
            received_in,
            received_out,
            dropped_in,
            dropped_out,
        ] = *words;
        HostLinks {
            up: [up & 1 != 0, up & 2 != 0],
            sent: [sent_in, sent_out],
            received: [received_in, received_out],
            dropped: [dropped_in, dropped_out],
        }
    }
}

/// The network at one moment.
#[derive(Clone, Debug, Default)]
pub struct NetworkSnapshot {
    /// When the network's thread published it, in microseconds of [`LocalNetwork::clock`].
    pub at_us: u64,
    /// Clients and servers.
    pub traffic: TrafficSnapshot,
    /// The inside and the outside segment.
    pub segments: [SegmentStatistics; 2],
    /// Hosts by name.
    pub hosts: Vec<(String, HostLinks)>,
}

/// A network that runs. It ends when this is dropped.
pub struct LocalNetwork {
    config: LocalNetworkConfig,
    clock: MonotonicClock,
    /// By number; `None` where a host was removed.
    names: Vec<Option<String>>,
    traffic: Traffic,
    published: Arc<Seqlock>,
    orders: SyncSender<Order>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Directors that were started, for their incarnations.
    started: u64,
}

impl fmt::Debug for LocalNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalNetwork")
            .field("hosts", &self.names)
            .finish_non_exhaustive()
    }
}

impl LocalNetwork {
    /// Builds the network and starts its thread; also the controls of its directors. Traffic begins once packets are steered to a
    /// host that answers. Times of the network are those of `clock`, also in its traffic's counts.
    ///
    /// # Errors
    /// [`LocalNetworkError`]: nothing is left of it but the folder.
    pub fn start(
        config: LocalNetworkConfig,
        clock: MonotonicClock,
    ) -> Result<(LocalNetwork, Vec<Control>), LocalNetworkError> {
        check_hosts(&config.hosts)?;
        if !(1..=DIRECTORS_MAX).contains(&config.directors) {
            return Err(LocalNetworkError::Directors(config.directors));
        }
        std::fs::create_dir_all(&config.folder).map_err(|error| LocalNetworkError::File {
            path: config.folder.clone(),
            error,
        })?;
        let stations = traffic::stations(&config.traffic, config.outside_addresses)?;
        let seed = config.space.seed();
        let segment = || Segment::new(seed).map_err(LocalNetworkError::Memory);
        let mut segments = [segment()?, segment()?];
        let ends = [stations.client, stations.server];
        for ((segment, end), side) in segments.iter_mut().zip(ends).zip(LinkSide::BOTH) {
            let port = segment.add_port(end)?;
            segment.add_station(side.router_mac(), port)?;
        }
        let (orders, taken) = sync_channel(ORDERS_MAX);
        let published = Arc::new(Seqlock::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut turning = Turning::new(segments, clock, taken, Arc::clone(&published));
        let mut network = LocalNetwork {
            clock,
            names: Vec::with_capacity(HOSTS_MAX),
            traffic: stations.traffic,
            published,
            orders,
            stop: Arc::clone(&stop),
            thread: None,
            started: 0,
            config,
        };
        for host in network.config.hosts.clone() {
            let ports = network.open_links(&host)?;
            turning.add_host(network.names.len() as u8, ports);
            network.names.push(Some(host));
        }
        let mut controls = Vec::new();
        for number in 0..network.config.directors {
            let (director, cables, control) = network.director(number)?;
            turning.add_director(number, director, cables);
            controls.push(control);
        }
        let thread = std::thread::Builder::new().name("local-network".to_owned());
        let thread = thread.spawn(move || turning.run(&stop));
        network.thread = Some(thread.map_err(LocalNetworkError::Thread)?);
        Ok((network, controls))
    }

    /// The clock of all times here.
    #[must_use]
    pub fn clock(&self) -> MonotonicClock {
        self.clock
    }

    /// The flow space of the directors.
    #[must_use]
    pub fn space(&self) -> BucketSpace {
        self.config.space
    }

    /// The traffic, to read and to steer.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// How directors reach a host, for `Command::SetHost`; `None` if there is none of this name.
    #[must_use]
    pub fn target(&self, host: &str) -> Option<Host> {
        let number = self.number(host)?;
        let mut target = Host::default();
        for (link, side) in target.links.iter_mut().zip(LinkSide::BOTH) {
            *link = HostLink {
                mac: Some(side.host_mac(number)),
                address: Some(side.host(number)),
            };
        }
        Some(target)
    }

    /// Opens the links of another host; its process may start before or after. Its addresses are those of `number`, its place in
    /// the [`ClusterFile`](crate::ClusterFile). Waits for nobody.
    ///
    /// # Errors
    /// [`LocalNetworkError`]: the network is unchanged.
    pub fn add_host(&mut self, host: &str, number: u8) -> Result<(), LocalNetworkError> {
        let mut names: Vec<_> = self.hosts().map(str::to_owned).collect();
        names.push(host.to_owned());
        check_hosts(&names)?;
        let place = usize::from(number);
        if place >= HOSTS_MAX || matches!(self.names.get(place), Some(Some(_))) {
            return Err(LocalNetworkError::HostNumber(number));
        }
        let ports = self.open_links(host)?;
        self.order(Order::AddHost(number, ports))?;
        if self.names.len() <= place {
            self.names.resize(place + 1, None);
        }
        self.names[place] = Some(host.to_owned());
        Ok(())
    }

    /// Closes the links of a host. Steer around it first: packets to it are flooded, and dropped by the others.
    ///
    /// # Errors
    /// [`LocalNetworkError`]: the network is unchanged.
    pub fn remove_host(&mut self, host: &str) -> Result<(), LocalNetworkError> {
        let number = self
            .number(host)
            .ok_or_else(|| LocalNetworkError::UnknownHost(host.to_owned()))?;
        self.order(Order::RemoveHost(number))?;
        self.names[usize::from(number)] = None;
        Ok(())
    }

    /// Ends a director as its death would: what it had in force is gone, and its control reports so.
    ///
    /// # Errors
    /// [`LocalNetworkError`]: the network is unchanged.
    pub fn end_director(&mut self, number: usize) -> Result<(), LocalNetworkError> {
        if number >= self.config.directors {
            return Err(LocalNetworkError::Directors(number));
        }
        self.order(Order::EndDirector(number))
    }

    /// Starts a director in the place of one that ended, or of one that runs, which ends.
    ///
    /// # Errors
    /// [`LocalNetworkError`]: the network is unchanged.
    pub fn start_director(&mut self, number: usize) -> Result<Control, LocalNetworkError> {
        if number >= self.config.directors {
            return Err(LocalNetworkError::Directors(number));
        }
        let (director, cables, control) = self.director(number)?;
        self.order(Order::StartDirector(
            number,
            Box::new(director),
            Box::new(cables),
        ))?;
        Ok(control)
    }

    /// The hosts that have links.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.names.iter().flatten().map(String::as_str)
    }

    /// The network now, to 20 ms; all zero before it was published first.
    #[must_use]
    pub fn snapshot(&self) -> NetworkSnapshot {
        let mut snapshot = NetworkSnapshot {
            traffic: self.traffic.snapshot(),
            ..NetworkSnapshot::default()
        };
        let words = self.published.read().unwrap_or_default();
        let (at, mut words) = words.split_first().unwrap_or((&0, &[]));
        snapshot.at_us = *at;
        for segment in &mut snapshot.segments {
            let (own, others) = words
                .split_at_checked(SegmentStatistics::WORDS)
                .unwrap_or_default();
            *segment = SegmentStatistics::read(own).unwrap_or_default();
            words = others;
        }
        let mut all = words.chunks_exact(HOST_WORDS);
        for name in &self.names {
            let words = all.next().and_then(|words| words.first_chunk());
            if let Some(name) = name {
                let links = words.map_or(HostLinks::default(), HostLinks::read);
                snapshot.hosts.push((name.clone(), links));
            }
        }
        snapshot
    }

    /// Whether the network's thread runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    fn number(&self, host: &str) -> Option<u8> {
        let is_it = |name: &Option<String>| name.as_deref() == Some(host);
        self.names.iter().position(is_it).map(|place| place as u8)
    }

    fn order(&self, order: Order) -> Result<(), LocalNetworkError> {
        self.orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => LocalNetworkError::Busy,
        })
    }

    fn open_links(&self, host: &str) -> Result<[Box<dyn Port>; 2], LocalNetworkError> {
        let open = |side: LinkSide| -> Result<Box<dyn Port>, LocalNetworkError> {
            let path = link_socket(&self.config.folder, host, side)?;
            let name = format!("{host}.{}", side.word());
            let mut config = SharedMemoryConfig::new(name, path, SharedMemoryRole::Listen);
            config.slots = self.config.slots;
            let port = SharedMemoryPort::open(&config)?;
            let spacing = self.config.link_spacing;
            if spacing.is_zero() {
                return Ok(Box::new(port));
            }
            let slow = DelayedPort::new(port, Duration::ZERO, Duration::ZERO, SLOW_QUEUE);
            Ok(Box::new(slow.with_send_spacing(spacing)))
        };
        Ok([open(LinkSide::Inside)?, open(LinkSide::Outside)?])
    }

    fn director(
        &mut self,
        number: usize,
    ) -> Result<(Director, [CablePort; 2], Control), LocalNetworkError> {
        let mut arms = Vec::new();
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        let mut others = Vec::new();
        let sides = [Side::Inside, Side::Outside];
        for (arm, (side, of_flow)) in LinkSide::BOTH.into_iter().zip(sides).enumerate() {
            arms.push(ArmConfig {
                mac: side.director_mac(number as u8),
                own_address: Some(side.director(number as u8)),
                shared: vec![side.gateway().into()],
                by: self.config.by,
                side: of_flow,
                // Hosts are on the segment from which the packet came.
                sends_to: Some(arm),
            });
            let name = format!("director-{number}.{}", side.word());
            let (own, other) = cable(name.clone(), name).map_err(LocalNetworkError::Memory)?;
            ports.push(Box::new(own));
            others.push(other);
        }
        let mut config = DirectorConfig::new(arms, self.config.space);
        config.suspended.packets_max = DIRECTOR_FRAMES as u32 / 2;
        if self.config.directors > 1 {
            self.started += 1;
            let incarnation = self.config.incarnation.wrapping_add(self.started).max(1);
            // The first is active if both start together.
            let priority = if number == 0 { 2 } else { 1 };
            let pair = PairConfig::new(1, self.config.pair_key, incarnation, priority);
            config.pair = Some((0, pair));
        }
        let pool = FramePool::new(DIRECTOR_FRAMES).map_err(LocalNetworkError::Memory)?;
        let (director, control) = Director::new(config, ports, pool, self.clock.now())?;
        let cables = others.try_into().map_err(|_| LocalNetworkError::Busy)?;
        Ok((director, cables, control))
    }
}

impl Drop for LocalNetwork {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message is on standard error already.
            let _ = thread.join();
        }
    }
}
