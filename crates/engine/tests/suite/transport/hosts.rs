//! Hosts that run as a product's do: a state channel's thread and an instance's thread each.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use asterism_engine::transport::{
    ChannelSnapshot, Notice, RunConfig, StateChannelThread, Stopped, UdpConfig, spawn,
};
use asterism_engine::{HostConfig, Instance, host};
use asterism_function::{
    Ask, Builder, Counter, Endpoint, Late, Map, NetworkFunction, PortNumber, Protocol, Reason,
    Verdict, state,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

/// Entries that a host has room for.
const ENTRIES_MAX: u32 = 1 << 16;

/// Counts packets, and remembers who sent them.
pub(crate) struct Register;

#[state]
pub(crate) struct Registered {
    packets: Counter,
    seen: Map<Endpoint, ()>,
}

impl NetworkFunction for Register {
    type State = Registered;
    fn state(&self, builder: &Builder) -> Registered {
        Registered {
            packets: builder.counter("packets"),
            seen: builder.table("seen", ENTRIES_MAX, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, Registered>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let source = flow.source();
        let known = ask.seen.get(&source)?;
        let room = match known {
            None => ask.seen.vacancy()?,
            Some(_) => None,
        };
        let mut act = ask.act()?;
        act.packets.add(1);
        if let Some(room) = room {
            act.seen.insert(room, source, ());
        }
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

/// A packet from the source of that number.
fn packet(source: u32) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let [_, high, middle, low] = source.to_be_bytes();
    let from = Endpoint::new([10, high, middle, low].into(), 1_000, Protocol::UDP);
    let flow = asterism_function::Flow4 {
        source: from.address,
        destination: [192, 0, 2, 1].into(),
        source_port: from.port,
        destination_port: 53,
        protocol: 17,
    };
    let length = asterism_function::build::flow4(&flow, b"payload", &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

enum Request {
    Packets(std::ops::Range<u32>),
    Ask(Sender<Held>),
}

/// What an instance holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) packets: u64,
    pub(crate) entries: usize,
    pub(crate) digests: Vec<u64>,
}

/// A running host.
pub(crate) struct Host {
    pub(crate) name: MemberId,
    pub(crate) channel: StateChannelThread,
    requests: Option<Sender<Request>>,
    instance: Option<JoinHandle<()>>,
    pub(crate) notices: Vec<Notice>,
}

/// The settings of the host of that number among so many.
pub(crate) fn host_config(number: u16, count: u16) -> HostConfig {
    let mut secrets = [0; 48];
    secrets[0] = number as u8 + 1;
    HostConfig::new(
        ClusterId(9),
        MemberId(number),
        Incarnation(u64::from(number) + 100),
        (0..count).map(MemberId).collect(),
        ClusterKey::from_random(1, [7; 32]),
        secrets,
    )
}

impl Host {
    pub(crate) fn start(number: u16, count: u16, udp: &UdpConfig, run: RunConfig) -> Self {
        Self::start_as(host_config(number, count), udp, run)
    }

    pub(crate) fn start_as(config: HostConfig, udp: &UdpConfig, run: RunConfig) -> Self {
        let clock = MonotonicClock::new();
        let name = config.member;
        let (channel, mut parts) = host(config, clock.now()).unwrap();
        let running = spawn(channel, udp, run, clock).unwrap();
        let waker = running.waker();
        let (requests, receiver) = channel_of_requests();
        let parts = parts.remove(0);
        let instance = std::thread::spawn(move || {
            let ports: Vec<Box<dyn Port>> = vec![
                Box::new(MemoryPort::new("in")),
                Box::new(MemoryPort::sink("out")),
            ];
            let mut instance = parts.start(
                Arc::new(Register),
                |_| ObjectSettings::REPLICATED,
                FramePool::new(256).unwrap(),
                ports,
            );
            drive(&mut instance, &receiver, clock, || waker.ring());
        });
        Self {
            name,
            channel: running,
            requests: Some(requests),
            instance: Some(instance),
            notices: Vec::new(),
        }
    }

    /// Has packets from the sources of these numbers arrive.
    pub(crate) fn feed(&self, sources: std::ops::Range<u32>) {
        let requests = self.requests.as_ref().unwrap();
        requests.send(Request::Packets(sources)).unwrap();
    }

    pub(crate) fn held(&self) -> Held {
        let (sender, receiver) = channel();
        let requests = self.requests.as_ref().unwrap();
        requests.send(Request::Ask(sender)).unwrap();
        receiver.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// The latest snapshot, when it is newer than this call.
    pub(crate) fn snapshot(&self) -> Arc<ChannelSnapshot> {
        let old = self.channel.snapshot().at;
        let begun = Instant::now();
        loop {
            let snapshot = self.channel.snapshot();
            if snapshot.at > old {
                return snapshot;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no new snapshot");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn take_notices(&mut self) -> &[Notice] {
        self.notices.extend(self.channel.events());
        &self.notices
    }

    pub(crate) fn stop(mut self) -> Stopped {
        self.requests = None;
        self.instance.take().unwrap().join().unwrap();
        self.channel.stop().unwrap()
    }
}

fn channel_of_requests() -> (Sender<Request>, Receiver<Request>) {
    channel()
}

/// An instance's thread: takes requests until nobody can make any.
fn drive(
    instance: &mut Instance<Register>,
    requests: &Receiver<Request>,
    clock: MonotonicClock,
    ring: impl Fn(),
) {
    let mut waiting = std::collections::VecDeque::new();
    let mut is_open = true;
    while is_open || !waiting.is_empty() {
        match requests.try_recv() {
            Ok(Request::Packets(sources)) => waiting.extend(sources),
            Ok(Request::Ask(answer)) => {
                let state = instance.state();
                let _ = answer.send(Held {
                    packets: state.packets.get().unwrap(),
                    entries: state.seen.len_now(),
                    digests: instance.digests(),
                });
            }
            Err(std::sync::mpsc::TryRecvError::Disconnected) => is_open = false,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        for _ in 0..32 {
            let Some(&source) = waiting.front() else {
                break;
            };
            if !instance.inject(clock.now(), PortNumber(0), &packet(source)) {
                break;
            }
            waiting.pop_front();
        }
        let worked = instance.turn(clock.now());
        ring();
        if worked == 0 && waiting.is_empty() {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    let begun = Instant::now();
    while !instance.tell_all(clock.now()) {
        ring();
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "not all is reported"
        );
    }
    ring();
}

/// Waits until every host has admitted every other.
pub(crate) fn meet(hosts: &[Host]) {
    let begun = Instant::now();
    let is_met = |host: &Host| {
        let snapshot = host.snapshot();
        let mut others = snapshot.members.iter();
        others.all(|member| {
            member.progress.member == host.name || member.admitted.is_some() && member.has_welcomed
        })
    };
    while !hosts.iter().all(is_met) {
        assert!(begun.elapsed() < Duration::from_secs(20), "not admitted");
    }
}

/// Waits until all hosts hold so many packets and entries, and the same.
pub(crate) fn converge(hosts: &[Host], packets: u64, entries: usize) {
    let begun = Instant::now();
    loop {
        let held: Vec<Held> = hosts.iter().map(Host::held).collect();
        let is_there = |held: &Held| held.packets == packets && held.entries == entries;
        if held.iter().all(is_there) && held.iter().all(|one| one.digests == held[0].digests) {
            return;
        }
        if begun.elapsed() > Duration::from_secs(30) {
            let snapshots: Vec<_> = hosts.iter().map(Host::snapshot).collect();
            let notices: Vec<Notice> = hosts
                .iter()
                .flat_map(|host| host.channel.events())
                .take(40)
                .collect();
            eprintln!("{notices:?}");
            panic!("not equal after 30 s: {held:#?}\n{snapshots:#?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A loopback address of this process's own for each host of each test: all of 127.0.0.0/8 is this machine's.
pub(crate) struct Addresses {
    net: u16,
}

impl Addresses {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        // Two processes at once are distinguished by port, tests of one process by address.
        Self {
            net: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn port() -> u16 {
        20_000 + (std::process::id() % 20_000) as u16
    }

    pub(crate) fn host(&self, number: u16) -> SocketAddr {
        let [_, low] = self.net.to_be_bytes();
        SocketAddr::from(([127, 77, low, number as u8 + 1], Self::port()))
    }

    pub(crate) fn group(&self) -> SocketAddr {
        let [_, low] = self.net.to_be_bytes();
        SocketAddr::from(([239, 192, 77, low], Self::port()))
    }

    /// Unicast from the host of that number to so many others.
    pub(crate) fn unicast(&self, number: u16, count: u16) -> UdpConfig {
        let others = (0..count).filter(|&other| other != number);
        UdpConfig::new(
            self.host(number),
            others.map(|other| (MemberId(other), self.host(other))),
        )
    }

    /// All hosts of so many, with what `change` makes of each one's settings.
    pub(crate) fn start(&self, count: u16, change: impl Fn(u16, &mut UdpConfig)) -> Vec<Host> {
        (0..count)
            .map(|number| {
                let mut udp = self.unicast(number, count);
                change(number, &mut udp);
                Host::start(number, count, &udp, RunConfig::default())
            })
            .collect()
    }
}

/// Free ports of an address: taken, and given back.
pub(crate) fn free_ports(address: &str, count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<UdpSocket> = (0..count)
        .map(|_| UdpSocket::bind(format!("{address}:0")).unwrap())
        .collect();
    sockets
        .iter()
        .map(|socket| socket.local_addr().unwrap())
        .collect()
}

/// Feeds each host packets from sources of its own, and waits until all are equal.
pub(crate) fn exercise(hosts: &[Host], each: u32, done: u32) {
    let count = hosts.len() as u32;
    for host in hosts {
        let first = u32::from(host.name.0) << 16 | done;
        host.feed(first..first + each);
    }
    let all = u64::from(count * (done + each));
    converge(hosts, all, all as usize);
}
