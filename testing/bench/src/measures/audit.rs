//! `audit.alarm`: how soon hosts notice that a replica differs, and what looking costs.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_engine::transport::{RunConfig, StateChannelThread, UdpConfig, spawn};
use asterism_engine::{HostConfig, Instance, InstanceParts, host};
use asterism_function::{
    Ask, Builder, Late, NetworkFunction, PortNumber, Reason, Set, Verdict, Wire, Writer, state,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::MemberId;
use asterism_state::{ObjectSettings, OriginName};

use super::replication_hosts::configuration;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::instructions::{self, Work, Workload};
use crate::timing::{Spread, wall_ns};
use crate::traffic::Flows;
use crate::traffic::frames::frame_between;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "audit.alarm",
    make: alarm,
}];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "audit.with",
        prepare: || inserting(true),
    },
    Workload {
        name: "audit.without",
        prepare: || inserting(false),
    },
];

/// Hosts: one is the reference.
const HOSTS: u16 = 3;
/// New entries a second, of all hosts together.
const INSERTS_PER_SECOND: u64 = 10_000;
/// Each host inserts so many at once.
const INSERTS_AT_ONCE: u64 = 10;
/// Differences planted, one after the other.
const PLANTED: usize = 16;
/// An alarm that takes longer is none.
const ALARM_MAX: Duration = Duration::from_secs(10);
/// How long the state channels' processor time is watched, with an auditor and without.
const WATCHED: Duration = Duration::from_secs(3);
/// Of so many packets that the counter of instructions asks for one is made: a step is dear, and an entry has many.
const PACKETS_FOR_ONE: u32 = 8;
/// New entries of `nat.churn`, of each member, for so many packets of it.
const PACKETS_PER_ENTRY: f64 = 1_000.0;
const ENTRIES_MAX: u32 = 1 << 20;

/// Remembers every source and destination.
struct Seeing;

#[state]
struct Seen {
    seen: Set<u64>,
}

impl NetworkFunction for Seeing {
    type State = Seen;

    fn state(&self, builder: &Builder) -> Seen {
        Seen {
            seen: builder.table("seen", ENTRIES_MAX, &[]),
        }
    }

    fn packet(&self, ask: Ask<'_, Seen>) -> Result<Verdict, Late> {
        let Some(plain) = ask.packet().plain4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let ports = u64::from(u32::from_le_bytes(plain.ports()));
        let key = u64::from_le_bytes(plain.addresses()) ^ ports << 32;
        if ask.seen.get(&key)?.is_some() {
            return Ok(Verdict::Drop(Reason::Filtered));
        }
        let Some(room) = ask.seen.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        act.seen.insert(room, key, ());
        Ok(Verdict::Drop(Reason::Filtered))
    }
}

fn start(parts: InstanceParts, audited: bool) -> Instance<Seeing> {
    let ports: Vec<Box<dyn Port>> = vec![
        Box::new(MemoryPort::new("in")),
        Box::new(MemoryPort::sink("out")),
    ];
    let settings = move |_: &str| ObjectSettings {
        audited,
        ..ObjectSettings::REPLICATED
    };
    let pool = FramePool::new(512).expect("memory for frames");
    parts.start(Arc::new(Seeing), settings, pool, ports)
}

/// A new entry for every packet, alone: what digests cost is the difference.
fn inserting(audited: bool) -> Work {
    let mut instance = start(InstanceParts::alone(7), audited);
    let flows = Flows::of_both(1 << 16, 7);
    let mut frames = flows
        .sessions()
        .iter()
        .map(|session| frame_between(session.protocol, session.inside, session.remote))
        .collect::<Vec<_>>()
        .into_iter();
    let mut now_us = 0;
    Box::new(move |packets| {
        let mut left = (packets / PACKETS_FOR_ONE) as usize;
        while left > 0 {
            now_us += 1;
            let burst: Vec<_> = frames.by_ref().take(left.min(32)).collect();
            let time = asterism_placement::Time::from_micros(now_us);
            let bytes = burst.iter().map(|frame| &frame[..]);
            let taken = instance.inject_burst(time, PortNumber(0), bytes);
            assert_eq!(taken, burst.len(), "an instance alone takes every packet");
            left -= taken;
        }
    })
}

/// A host with its two threads.
struct Running {
    channel: StateChannelThread,
    plants: Sender<u64>,
    stop: Arc<AtomicBool>,
    instance: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.instance.take() {
            // What it had to say of a fault is on standard error already.
            let _ = thread.join();
        }
    }
}

/// Starts the hosts; each inserts at its share of the rate if they are `loaded`.
fn run_hosts(audited: bool, loaded: bool, seed: u64) -> Result<Vec<Running>, Failure> {
    let addresses = free_addresses()?;
    let clock = MonotonicClock::new();
    let start_one = |place: u16| {
        let config = HostConfig {
            audited_objects: usize::from(audited),
            ..configuration(place, HOSTS)
        };
        let own = addresses[usize::from(place)];
        let others = addresses.iter().enumerate();
        let peers = others
            .filter(|(_, address)| **address != own)
            .map(|(place, &address)| (MemberId(place as u16 + 1), address));
        let (channel, mut parts) =
            host(config, clock.now()).map_err(|error| Failure::Unsound(error.to_string()))?;
        let udp = UdpConfig::new(own, peers);
        let channel = spawn(channel, &udp, RunConfig::default(), clock)
            .map_err(|error| Failure::Unsound(error.to_string()))?;
        let (waker, stop) = (channel.waker(), Arc::new(AtomicBool::new(false)));
        let (plants, planted) = channel_of_plants();
        let (parts, ended) = (parts.remove(0), stop.clone());
        let instance = std::thread::spawn(move || {
            let mut instance = start(parts, audited);
            let inserts = if loaded { INSERTS_AT_ONCE } else { 0 };
            let load = Load::new(inserts, seed + u64::from(place));
            drive(&mut instance, load, &planted, &ended, clock, || {
                waker.ring()
            });
        });
        Ok(Running {
            channel,
            plants,
            stop,
            instance: Some(instance),
        })
    };
    (0..HOSTS).map(start_one).collect()
}

fn channel_of_plants() -> (Sender<u64>, Receiver<u64>) {
    channel()
}

fn free_addresses() -> Result<Vec<SocketAddr>, Failure> {
    let sockets: std::io::Result<Vec<UdpSocket>> =
        (0..HOSTS).map(|_| UdpSocket::bind("127.0.0.1:0")).collect();
    let addresses = sockets.and_then(|sockets| {
        sockets
            .iter()
            .map(UdpSocket::local_addr)
            .collect::<std::io::Result<Vec<_>>>()
    });
    addresses.map_err(|error| Failure::Unsound(format!("no loopback sockets: {error}")))
}

/// New entries at a steady rate.
struct Load {
    at_once: u64,
    every_us: u64,
    next_us: u64,
    flows: Flows,
    next: usize,
}

impl Load {
    fn new(at_once: u64, seed: u64) -> Self {
        Self {
            at_once,
            every_us: 1_000_000 * INSERTS_AT_ONCE * u64::from(HOSTS) / INSERTS_PER_SECOND,
            next_us: 0,
            flows: Flows::of_both(1 << 17, seed),
            next: 0,
        }
    }

    /// What is due goes into the instance.
    fn give(&mut self, instance: &mut Instance<Seeing>, clock: MonotonicClock) {
        let now = clock.now();
        if now.as_micros() < self.next_us {
            return;
        }
        self.next_us = now.as_micros() + self.every_us;
        let sessions = self.flows.sessions();
        let frames: Vec<_> = (0..self.at_once)
            .map(|_| {
                let session = &sessions[self.next % sessions.len()];
                self.next += 1;
                frame_between(session.protocol, session.inside, session.remote)
            })
            .collect();
        instance.inject_burst(now, PortNumber(0), frames.iter().map(|frame| &frame[..]));
    }
}

fn drive(
    instance: &mut Instance<Seeing>,
    mut load: Load,
    planted: &Receiver<u64>,
    stop: &AtomicBool,
    clock: MonotonicClock,
    ring: impl Fn(),
) {
    while !stop.load(Ordering::Acquire) {
        load.give(instance, clock);
        instance.turn(clock.now());
        ring();
        if let Ok(key) = planted.try_recv() {
            let mut group = Vec::new();
            let mut out = Writer::new(&mut group, &[]);
            out.u8(0);
            key.encode(&mut out);
            out.varint(1);
            out.u24(1);
            let nobody = OriginName {
                member: 1,
                incarnation: 1,
            };
            // Under a number that nobody will have applied.
            instance.apply_alone(nobody, 1 << 40, &group);
        }
        rest(Duration::from_micros(200));
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "threads leave their core to those that they wait for"
)]
fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// Parts that this host says differ.
fn differing(host: &Running) -> u32 {
    let audit = &host.channel.snapshot().audit;
    let leaves = audit.differing.iter().map(|(_, _, leaves)| leaves);
    leaves.map(|leaves| leaves.count_ones()).sum()
}

fn wait(what: &str, within: Duration, is_so: impl Fn() -> bool) -> Result<f64, Failure> {
    let begun = wall_ns();
    while !is_so() {
        if wall_ns() - begun > within.as_nanos() as u64 {
            return Err(Failure::Unsound(format!("{what}: not within {within:?}")));
        }
        rest(Duration::from_millis(1));
    }
    Ok((wall_ns() - begun) as f64 / 1e9)
}

fn joined(hosts: &[Running]) -> Result<(), Failure> {
    wait("hosts hear each other", ALARM_MAX, || {
        hosts.iter().all(|host| {
            let members = &host.channel.snapshot().members;
            let heard = members.iter().filter(|member| member.has_welcomed);
            heard.count() == usize::from(HOSTS) - 1
        })
    })?;
    Ok(())
}

/// Processor time of the state channels' threads, in seconds.
fn channels_time(hosts: &[Running]) -> f64 {
    let times = hosts
        .iter()
        .map(|host| host.channel.snapshot().thread.processor_time);
    times.sum::<Duration>().as_secs_f64()
}

/// Per cent of a core that a host's state channel uses while nothing is written.
fn idle_percent(audited: bool, seed: u64) -> Result<f64, Failure> {
    let hosts = run_hosts(audited, false, seed)?;
    joined(&hosts)?;
    rest(Duration::from_millis(500));
    let (begun, before) = (wall_ns(), channels_time(&hosts));
    rest(WATCHED);
    let used = channels_time(&hosts) - before;
    let watched = (wall_ns() - begun) as f64 / 1e9;
    Ok(100.0 * used / watched / f64::from(HOSTS))
}

fn alarm(context: &Context) -> Result<Outcome, Failure> {
    let hosts = run_hosts(true, true, context.seed)?;
    joined(&hosts)?;
    let compared = |host: &Running| host.channel.snapshot().audit.tally.equal > 1_000;
    wait("hosts compare", ALARM_MAX, || {
        hosts[1..].iter().all(compared)
    })?;
    let mut took = Vec::new();
    let rounds = if context.full { 4 * PLANTED } else { PLANTED };
    for round in 0..rounds {
        // At the reference too: then the others say so.
        let odd = round % usize::from(HOSTS);
        let says = if odd == 0 { 1 } else { odd };
        let before = differing(&hosts[says]);
        if hosts
            .iter()
            .any(|host| host.channel.snapshot().audit.tally.refused > 0)
        {
            return Err(Failure::Unsound("a reading was refused".into()));
        }
        let key = asterism_state::hash::words(context.seed, round as u64, 1);
        let sent = hosts[odd].plants.send(key);
        sent.map_err(|_| Failure::Unsound("an instance ended".into()))?;
        // One more that falls into a part which differs already shows nothing: it says nothing of the time either.
        match wait("an alarm", ALARM_MAX, || differing(&hosts[says]) > before) {
            Ok(time) => took.push(time),
            Err(_) if before > 0 => {}
            Err(error) => return Err(error),
        }
    }
    drop(hosts);
    if took.len() < rounds / 2 {
        return Err(Failure::Unsound(format!(
            "of {rounds} differences {} were reported",
            took.len()
        )));
    }
    context.say("what it costs");
    let (without, with) = (
        idle_percent(false, context.seed)?,
        idle_percent(true, context.seed)?,
    );
    let [with_digests, without_digests] =
        instructions::per_packet_each(["audit.with", "audit.without"])?;
    // An own entry, and one of each other member that makes as many.
    let per_insert = (with_digests - without_digests) * f64::from(PACKETS_FOR_ONE);
    let per_packet = per_insert * f64::from(HOSTS) / PACKETS_PER_ENTRY;
    let worst = took.iter().copied().fold(0.0, f64::max);
    let median = Spread::of(&took).median;
    Ok(Outcome::new(worst, took.len() as u32)
        .variant("median", median)
        .variant("instructions", per_packet)
        .variant("instructions-per-insert", per_insert)
        .variant("host-cpu-percent", with - without)
        .samples("alarm", took))
}
