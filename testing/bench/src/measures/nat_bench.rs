//! The NAT on the packet loop, with recorded bursts: what the `nat.*` measures time and count.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, Instance, InstanceParts, host};
use asterism_function::{Endpoint, Flow4, MacAddress, PortNumber, Protocol, TcpFlags};
use asterism_functions::nat::{BY_INSIDE, Interface, Nat, NatConfig, Prefix, Route, Side};
use asterism_io::frame::{BURST, Burst, FramePool};
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{Port, PortError, PortStatistics};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::{Absence, ObjectSettings};

use crate::contract::Failure;
use crate::floor::{self, OnPorts};
use crate::instructions::Work;
use crate::timing::Stopwatch;
use crate::traffic::frames::frame;
use crate::traffic::frames::{FRAME_BYTES, GATEWAY_MAC};
use crate::traffic::{Direction, Flows, Random, Session, SmallFrame, flows};

/// Frames that lie ready in each port for a window: together more than the second-level cache holds at their stride.
pub(super) const READY: usize = 4_096;
/// Times that the ports are filled for a window.
pub(super) const PASSES: usize = 16;
/// Windows' worth of draws kept: every session is drawn several times before the draws repeat.
const DRAWS_PER_SESSION: usize = 4;
/// The inside port.
const INSIDE: PortNumber = PortNumber(0);
/// The outside port.
const OUTSIDE: PortNumber = PortNumber(1);
/// The NAT's own addresses; the inside one where inside hosts are on the link.
const INSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
const INSIDE_ON_LINK: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 254);
const OUTSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 112, 1);
/// The router behind which the inside hosts are, and the one towards the world.
const INSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);
const OUTSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 112, 2);

/// A port whose packets were recorded beforehand: they lie in buffers, as bursts, before a window begins.
#[derive(Debug)]
pub(super) struct RecordedPort {
    draws: Vec<SmallFrame>,
    next: usize,
    ready: Vec<Burst>,
    statistics: PortStatistics,
}

/// What the bench of a NAT draws its packets from, for another loop to be given the same.
pub(super) struct Drawn {
    /// The outside endpoint of each session.
    pub(super) outside: Vec<flows::Endpoint>,
    /// Of the inside and the outside port.
    pub(super) draws: [Vec<SmallFrame>; 2],
}

impl RecordedPort {
    pub(super) fn new(draws: Vec<SmallFrame>) -> Self {
        Self {
            draws,
            next: 0,
            ready: Vec::with_capacity(READY / BURST),
            statistics: PortStatistics::default(),
        }
    }
}

impl Port for RecordedPort {
    fn name(&self) -> &str {
        "recorded"
    }
    fn receive(&mut self, _: &mut FramePool, burst: &mut Burst) -> usize {
        match self.ready.pop() {
            Some(recorded) if burst.is_empty() => {
                *burst = recorded;
                burst.len()
            }
            _ => 0,
        }
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
    /// Outside the window: puts the next draws into buffers.
    fn flush(&mut self, pool: &mut FramePool) -> Result<(), PortError> {
        while self.ready.len() < READY / BURST {
            let mut burst = Burst::new();
            for _ in 0..BURST {
                let draw = &self.draws[self.next];
                self.next = (self.next + 1) % self.draws.len();
                if let Some(frame) = pool.allocate_copy(draw) {
                    // There is room.
                    let _ = burst.push(frame);
                }
            }
            self.ready.push(burst);
        }
        Ok(())
    }
}

/// How the NAT's state is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// Local.
    Local,
    /// Replicated to one more member over a state channel of this delay.
    Replicated(Duration),
}

/// How the Ethernet addresses of those it hands packets to are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stations {
    /// A router on each side, configured.
    Configured,
    /// A router on each side, learnt by ARP.
    Learnt,
    /// The inside hosts on the link itself, and a router outside: learnt by ARP.
    OnLink,
}

/// A NAT that knows `flows` sessions, and bursts of their packets.
pub(super) struct NatBench {
    cluster: Option<Cluster<Nat>>,
    alone: Option<Instance<Nat>>,
    now: Time,
    drawn: Drawn,
}

/// A NAT between two routers, with as many outside addresses as `sessions` need on `members` members.
pub(super) fn nat(sessions: u32, members: u32) -> Nat {
    nat_among(sessions, members, Stations::Configured)
}

fn nat_among(sessions: u32, members: u32, stations: Stations) -> Nat {
    let mac = MacAddress(GATEWAY_MAC);
    let inside = match stations {
        Stations::OnLink => Interface::new(INSIDE, INSIDE_ON_LINK, 8, mac),
        Stations::Configured | Stations::Learnt => Interface::new(INSIDE, INSIDE_ADDRESS, 24, mac),
    };
    let outside = Interface::new(OUTSIDE, OUTSIDE_ADDRESS, 24, mac);
    // Each member leases an equal part of every address's ports; TCP and UDP have their own.
    let addresses = (sessions.max(1) * members * 10).div_ceil(64_000 * 2 * 8) + 1;
    let first = u32::from(Ipv4Addr::new(203, 0, 113, 1));
    let mut config = NatConfig::new(
        inside,
        outside,
        (0..addresses).map(|n| Ipv4Addr::from(first + n)).collect(),
    );
    config.routes = vec![Route {
        prefix: Prefix::ALL,
        side: Side::Outside,
        next_hop: Some(OUTSIDE_ROUTER),
    }];
    if stations != Stations::OnLink {
        config.routes.push(Route {
            prefix: Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8),
            side: Side::Inside,
            next_hop: Some(INSIDE_ROUTER),
        });
    }
    if stations == Stations::Configured {
        config.neighbours = vec![
            (INSIDE_ROUTER, station(INSIDE_ROUTER)),
            (OUTSIDE_ROUTER, station(OUTSIDE_ROUTER)),
        ];
    }
    config.sessions_max = sessions.max(1) * members * 2 + 64;
    config.icmp_errors_per_second = 10;
    Nat::new(config).expect("a sound configuration")
}

/// Who has an address on a link.
fn station(address: Ipv4Addr) -> MacAddress {
    let [a, b, c, d] = address.octets();
    MacAddress([2, 0, a, b, c, d])
}

/// Settings of every object.
pub(super) fn settings(placed: Placed) -> impl Fn(&str) -> ObjectSettings + Copy + 'static {
    move |_| match placed {
        Placed::Local => ObjectSettings::LOCAL,
        Placed::Replicated(_) => ObjectSettings {
            absence: Absence::Answer,
            ..ObjectSettings::REPLICATED
        },
    }
}

pub(super) fn endpoint(end: flows::Endpoint, session: &Session) -> Endpoint {
    Endpoint::new(
        Ipv4Addr::from(end.address),
        end.port,
        Protocol(session.protocol.number()),
    )
}

/// The first packets of a session: for TCP its handshake.
pub(super) fn opening(
    session: &Session,
    outside: Option<Endpoint>,
    step: usize,
) -> Option<(PortNumber, Vec<u8>)> {
    let (inside, remote) = (
        endpoint(session.inside, session),
        endpoint(session.remote, session),
    );
    let outside = outside.unwrap_or(remote);
    let (port, from, to, flags) = match step {
        0 => (INSIDE, inside, remote, TcpFlags::SYN),
        1 => (OUTSIDE, remote, outside, TcpFlags::SYN | TcpFlags::ACK),
        2 => (INSIDE, inside, remote, TcpFlags::ACK),
        _ => return None,
    };
    let mut bytes = vec![0; 128];
    let length = if session.protocol.number() == 6 {
        asterism_function::build::tcp4(
            &asterism_function::build::Header4::between(from.address, to.address),
            from.port,
            to.port,
            &asterism_function::build::Segment::with_flags(flags),
            &[],
            &mut bytes,
        )?
    } else {
        let flow = Flow4 {
            source: from.address,
            destination: to.address,
            source_port: from.port,
            destination_port: to.port,
            protocol: 17,
        };
        asterism_function::build::flow4(&flow, &[0; 18], &mut bytes)?
    };
    bytes.truncate(length);
    bytes[..6].copy_from_slice(&GATEWAY_MAC);
    Some((port, bytes))
}

impl NatBench {
    /// Opens every session and records bursts of their packets, drawn at random, both directions mixed.
    pub(super) fn new(flows: &Flows, placed: Placed, seed: u64) -> Result<Self, Failure> {
        Self::among(flows, placed, Stations::Configured, seed)
    }

    /// The same, with such stations on its links.
    pub(super) fn among(
        flows: &Flows,
        placed: Placed,
        stations: Stations,
        seed: u64,
    ) -> Result<Self, Failure> {
        let members = if placed == Placed::Local { 1 } else { 2 };
        let function = Arc::new(nat_among(flows.count(), members, stations));
        let mut bench = Self {
            cluster: None,
            alone: None,
            now: Time::ZERO,
            drawn: Drawn {
                outside: Vec::new(),
                draws: [Vec::new(), Vec::new()],
            },
        };
        let make = |parts: InstanceParts, settled: bool| {
            let pool =
                FramePool::new(if settled { 4 * READY } else { 64 }).expect("memory for frames");
            let ports: Vec<Box<dyn Port>> = vec![
                Box::new(RecordedPort::new(Vec::new())),
                Box::new(RecordedPort::new(Vec::new())),
            ];
            parts.start(function.clone(), settings(placed), pool, ports)
        };
        match placed {
            Placed::Local => bench.alone = Some(make(InstanceParts::alone(seed), true)),
            Placed::Replicated(delay) => {
                let names = vec![MemberId(1), MemberId(2)];
                let mut network = Network::new(seed);
                network.set_defaults(LinkConditions::with_delay(delay));
                let started = names.iter().map(|&name| {
                    let mut config = HostConfig::new(
                        ClusterId(1),
                        name,
                        Incarnation(u64::from(name.0)),
                        names.clone(),
                        ClusterKey::from_random(1, [1; 32]),
                        [name.0 as u8; 48],
                    );
                    config.replica.log_bytes_max = 64 << 20;
                    config.replica.log_groups_max = 1 << 22;
                    let (channel, mut parts) =
                        host(config, Time::ZERO).expect("a sound configuration");
                    (name, channel, vec![make(parts.remove(0), name == names[0])])
                });
                bench.cluster = Some(Cluster::new(started.collect(), network));
            }
        }
        bench.run(Duration::from_millis(300));
        bench.introduce(flows, stations)?;
        bench.drawn.draws = bench.open(flows, seed)?;
        let draws = bench.drawn.draws.clone();
        for (port, draws) in [INSIDE, OUTSIDE].into_iter().zip(draws) {
            bench.set_draws(port, draws);
        }
        Ok(bench)
    }

    /// As it is with tables that outgrow the cache.
    pub(super) fn prefetching(mut self) -> Self {
        self.instance().prefetch_above(0);
        self.run(Duration::from_millis(10));
        self
    }

    /// For counting its instructions.
    pub(super) fn counted(mut self) -> Work {
        self.refill();
        Box::new(move |packets| {
            let handled = self.packets(packets as usize);
            assert!(handled >= packets as usize, "the recorded packets ran out");
            self.check().unwrap_or_else(|failure| panic!("{failure:?}"));
        })
    }

    /// What it draws its packets from.
    pub(super) fn drawn(&self) -> &Drawn {
        &self.drawn
    }

    fn instance(&mut self) -> &mut Instance<Nat> {
        match (&mut self.cluster, &mut self.alone) {
            (Some(cluster), _) => &mut cluster.members_mut()[0].instances[0],
            (None, Some(alone)) => alone,
            (None, None) => unreachable!("a bench has one of them"),
        }
    }

    /// Lets time pass, and with it the state channel work.
    pub(super) fn run(&mut self, time: Duration) {
        self.now = self.now + time;
        match &mut self.cluster {
            Some(cluster) => cluster.run_until(self.now),
            None => {
                let now = self.now;
                self.instance().turn(now);
            }
        }
    }

    /// Has the stations on the links ask for the NAT's address, by which it learns theirs.
    fn introduce(&mut self, flows: &Flows, stations: Stations) -> Result<(), Failure> {
        let router = [(OUTSIDE, OUTSIDE_ROUTER, OUTSIDE_ADDRESS)];
        let inside: BTreeSet<_> = match stations {
            Stations::Configured => return Ok(()),
            Stations::Learnt => [(INSIDE, INSIDE_ROUTER, INSIDE_ADDRESS)].into(),
            Stations::OnLink => {
                let hosts = flows
                    .sessions()
                    .iter()
                    .map(|session| session.inside.address);
                hosts
                    .map(|host| (INSIDE, Ipv4Addr::from(host), INSIDE_ON_LINK))
                    .collect()
            }
        };
        for (port, asker, ours) in router.into_iter().chain(inside) {
            let mut bytes = [0; 64];
            let length =
                asterism_function::build::arp_request(station(asker), asker, ours, &mut bytes);
            let now = self.now;
            let length = length.expect("there is room for a request");
            if !self.instance().inject(now, port, &bytes[..length]) {
                return Err(Failure::Unsound("a request by ARP found no room".into()));
            }
            self.run(Duration::from_micros(10));
        }
        Ok(())
    }

    /// Opens all sessions; gives the draws of the two ports.
    fn open(&mut self, flows: &Flows, seed: u64) -> Result<[Vec<SmallFrame>; 2], Failure> {
        let mut templates = [Vec::new(), Vec::new()];
        for (place, session) in flows.sessions().iter().enumerate() {
            let mut outside = None;
            let steps = if session.protocol.number() == 6 { 3 } else { 1 };
            for step in 0..steps {
                let Some((port, bytes)) = opening(session, outside, step) else {
                    break;
                };
                let now = self.now;
                if !self.instance().inject(now, port, &bytes) {
                    return Err(Failure::Unsound(
                        "a packet that opens a session found no room".into(),
                    ));
                }
                if step == 0 {
                    let inside = endpoint(session.inside, session);
                    let found = self.instance().state().sessions.any_of(BY_INSIDE, &inside);
                    outside = found.ok().flatten().map(|at| at.row.outside());
                    if outside.is_none() {
                        let drops: Vec<_> = self.instance().tally().drops().collect();
                        return Err(Failure::Unsound(format!(
                            "session {place} was not opened: {drops:?}"
                        )));
                    }
                }
            }
            let given = outside.expect("it was opened");
            let given = flows::Endpoint {
                address: given.address.to_bits(),
                port: given.port,
            };
            self.drawn.outside.push(given);
            templates[0].push(frame(session, Direction::Outbound, given));
            templates[1].push(frame(session, Direction::Inbound, given));
            if place % 512 == 511 {
                // The state channel keeps up, and time does not stand still.
                self.run(Duration::from_millis(2));
            }
        }
        self.run(Duration::from_millis(500));
        let mut random = Random::new(seed ^ 0xD4A3);
        let count = (flows.count() as usize * DRAWS_PER_SESSION / 2).max(4 * READY);
        Ok(templates.map(|templates| {
            (0..count)
                .map(|_| templates[random.below(templates.len() as u64) as usize])
                .collect()
        }))
    }

    fn set_draws(&mut self, port: PortNumber, draws: Vec<SmallFrame>) {
        // Ports are the instance's: a new one takes the place of the empty one.
        self.instance()
            .replace_port(port, Box::new(RecordedPort::new(draws)));
    }

    /// Puts the next packets into buffers.
    pub(super) fn refill(&mut self) {
        for port in [INSIDE, OUTSIDE] {
            if let Some((port, pool)) = self.instance().port_and_pool(port) {
                // It cannot fail.
                let _ = port.flush(pool);
            }
        }
    }

    /// Handles the packets that lie ready, at least `count` of them; tells how many.
    #[inline]
    pub(super) fn packets(&mut self, count: usize) -> usize {
        let mut handled = 0;
        let mut now = self.now;
        let instance = self.instance();
        while handled < count {
            let read = instance.turn(now);
            if read == 0 {
                break;
            }
            handled += read;
            // 64 packets take a little over two microseconds.
            now = now + Duration::from_micros(2);
        }
        self.now = now;
        handled
    }

    /// On-CPU ns per packet of a window of some 130,000 packets. Every packet must be sent on.
    pub(super) fn window(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        watch.take_cpu_ns();
        let mut handled = 0;
        for _ in 0..PASSES {
            self.refill();
            watch.window(|| handled += self.packets(2 * READY));
        }
        self.run(Duration::from_millis(1));
        self.check()?;
        Ok(watch.take_cpu_ns() as f64 / handled as f64)
    }

    /// That nothing was lost.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let tally = self.instance().tally();
        if tally.dropped_total() > 0 || tally.groups_bad > 0 {
            let drops: Vec<_> = tally.drops().collect();
            return Err(Failure::Unsound(format!(
                "packets of known sessions were dropped: {drops:?}"
            )));
        }
        Ok(())
    }
}

/// The hand-written NAT on the same packets, between the same ports.
pub(super) struct FloorOnPorts {
    on_ports: OnPorts<RecordedPort>,
    now_ticks: u32,
}

impl FloorOnPorts {
    /// Knows the sessions of a bench, as they were opened there.
    pub(super) fn new(flows: &Flows, bench: &NatBench) -> Self {
        let Drawn { outside, draws } = bench.drawn();
        let mut nat = floor::Nat::new(flows.count());
        for (session, outside) in flows.sessions().iter().zip(outside) {
            nat.bind(session, *outside, 0);
        }
        let pool = FramePool::new(4 * READY).expect("memory for frames");
        let ports = draws.clone().map(RecordedPort::new);
        Self {
            on_ports: OnPorts::new(nat, pool, ports),
            now_ticks: 0,
        }
    }

    /// On-CPU ns per packet of a window as [`NatBench::window`] makes it. Every packet must be sent on.
    pub(super) fn window(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        self.now_ticks += 1;
        watch.take_cpu_ns();
        let before = self.sent();
        let mut read = 0;
        for _ in 0..PASSES {
            for port in &mut self.on_ports.ports {
                // It cannot fail.
                let _ = port.flush(&mut self.on_ports.pool);
            }
            watch.window(|| {
                let until = read + 2 * READY;
                while read < until {
                    match self.on_ports.turn(self.now_ticks) {
                        0 => break,
                        more => read += more,
                    }
                }
            });
        }
        if self.sent() - before != read as u64 {
            return Err(Failure::Unsound(
                "the floor did not send all packets on".into(),
            ));
        }
        Ok(watch.take_cpu_ns() as f64 / read as f64)
    }

    fn sent(&self) -> u64 {
        let ports = self.on_ports.ports.iter();
        ports.map(|port| port.statistics().sent_packets).sum()
    }
}

const _: () = assert!(FRAME_BYTES == 64);
