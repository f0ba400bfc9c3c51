//! `replication.multicast-cost`: what an operation of 200 bytes costs the sender's state-channel thread that tells
//! three other hosts of it: four hosts in network namespaces on one bridge, sockets of the kernel, everything sealed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_engine::transport::{
    ChannelSnapshot, RunConfig, StateChannelThread, TransportError, UdpConfig, spawn,
};
use asterism_engine::{Instance, InstanceParts, host};
use asterism_function::{
    Ask, Builder, Key, Late, Map, NetworkFunction, PortNumber, Reason, Value, Verdict, Wire,
    objects, state,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::ring::RingWriter;
use asterism_lab::{Cable, Lab, LabError, Node, Offloads, permitted};
use asterism_placement::MemberId;
use asterism_state::ObjectSettings;

use super::replication_hosts::{configuration, fed_ports, feed};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::timing::{Spread, wall_ns};
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, Protocol, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "replication.multicast-cost",
    make: multicast_cost,
}];

/// Hosts: one writes, three listen.
const HOSTS: u16 = 4;
/// Entries that operations are about.
const ENTRIES: usize = 4_096;
/// Operations of a round.
const OPERATIONS_PER_ROUND: usize = 50_000;
/// Packets, and so operations, of a turn.
const BURST: usize = 32;
/// Words of a value, so that an operation with its key and the rest has 200 bytes and a few.
const VALUE_WORDS: usize = 24;
/// Bytes of an operation at least, as the log has it.
const OPERATION_BYTES: f64 = 200.0;
/// How long a group may wait for others.
const LOOKAHEAD: Duration = Duration::from_micros(200);
/// How long a round may take.
const ROUND_MAX_NS: u64 = 10_000_000_000;
/// After so long no further round of a way begins, if there were [`ROUNDS_MIN`], unless the long form is made.
const WAY_NS: u64 = 10_000_000_000;
/// Rounds of a way at least.
const ROUNDS_MIN: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
struct EntryKey(u64);

impl Key for EntryKey {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        objects::hash::words(self.0, 0, seed)
    }
}

/// How often its entry was written, and words that follow from that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct EntryValue([u64; VALUE_WORDS]);

impl EntryValue {
    fn of(count: u64) -> Self {
        let mut words = [count; VALUE_WORDS];
        for (place, word) in words.iter_mut().enumerate().skip(1) {
            *word = objects::hash::words(count, place as u64, 0x3A17);
        }
        Self(words)
    }
}

/// Writes an entry of 200 bytes for every packet.
struct Writing;

#[state]
struct Written {
    entries: Map<EntryKey, EntryValue>,
}

impl NetworkFunction for Writing {
    type State = Written;

    fn state(&self, builder: &Builder) -> Written {
        Written {
            entries: builder.table("entries", 2 * HOSTS as u32 * ENTRIES as u32, &[]),
        }
    }

    fn packet(&self, ask: Ask<'_, Written>) -> Result<Verdict, Late> {
        let Some(plain) = ask.packet().plain4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let key = EntryKey(u64::from_le_bytes(plain.addresses()));
        if let Some(at) = ask.entries.get(&key)? {
            let next = EntryValue::of(at.value.0[0] + 1);
            ask.act()?.entries.update(&at, next);
            return Ok(Verdict::Forward(PortNumber(1)));
        }
        let Some(room) = ask.entries.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let row = asterism_function::Single(key);
        ask.act()?.entries.insert(room, row, EntryValue::of(1));
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

/// What each entry was written, and everything together as one number.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    operations: u64,
    digests: Vec<u64>,
    groups_bad: u64,
}

impl Held {
    fn of(instance: &mut Instance<Writing>, keys: &[SmallFrame]) -> Self {
        let mut operations = 0;
        for frame in keys {
            let mut frame = *frame;
            let parsed = asterism_function::Packet::parse(&mut frame).ok();
            let key = parsed.and_then(|packet| {
                let plain = packet.plain4()?;
                Some(EntryKey(u64::from_le_bytes(plain.addresses())))
            });
            let found = key.and_then(|key| instance.state().entries.get(&key).ok().flatten());
            if let Some(at) = found
                && at.value == EntryValue::of(at.value.0[0])
            {
                operations += at.value.0[0];
            }
        }
        Self {
            operations,
            digests: instance.digests(),
            groups_bad: instance.tally().groups_bad,
        }
    }
}

/// How the sender sends.
#[derive(Clone, Copy)]
struct Delivery {
    multicast: bool,
    segmentation: bool,
}

/// What rounds of one way found.
struct Found {
    /// ns of the sender's channel thread per operation, by round.
    ns: Vec<f64>,
    datagrams_per_operation: f64,
    bytes_per_operation: f64,
    frames_per_datagram: f64,
    datagrams_per_message: f64,
    retransmitted: f64,
}

/// A running set of hosts. Fields drop in this order: threads before the namespaces that they use.
struct Bench {
    sender: Instance<Writing>,
    feed: RingWriter,
    channels: Vec<StateChannelThread>,
    stop: Arc<AtomicBool>,
    listeners: Option<JoinHandle<Vec<Held>>>,
    clock: MonotonicClock,
    keys: Vec<SmallFrame>,
    written: u64,
    switch: Node,
    _nodes: Vec<Node>,
    _lab: Lab,
}

fn absent(error: LabError) -> Failure {
    Failure::Absent(format!("the hosts' network was not built: {error}"))
}

fn not_started(error: TransportError) -> Failure {
    Failure::Absent(error.to_string())
}

impl Bench {
    fn new(way: Delivery, seed: u64) -> Result<Self, Failure> {
        let lab = Lab::new().map_err(absent)?;
        let switch = lab.node("switch").map_err(absent)?;
        let nodes = (0..HOSTS)
            .map(|number| lab.node(&format!("host{number}")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(absent)?;
        let ends: Vec<_> = nodes.iter().map(|node| (node, "eth0")).collect();
        let cable = Cable {
            offloads: Offloads::On,
            ..Cable::default()
        };
        lab.bridge(&switch, "br", &ends, &cable).map_err(absent)?;
        for (number, node) in nodes.iter().enumerate() {
            let line = format!("address add 10.99.0.{}/24 dev eth0", number + 1);
            node.ip(&[line]).map_err(absent)?;
        }

        let clock = MonotonicClock::new();
        let mut channels = Vec::new();
        let mut parts = Vec::new();
        // All threads share one core. On another one receivers would be woken by an interrupt between cores, for which the
        // sender pays here and would not if they were hosts of their own.
        stay_on_core(0);
        for (number, node) in nodes.iter().enumerate() {
            let (channel, part) = Self::start(way, number as u16, node, clock)?;
            channels.push(channel);
            parts.push(part);
        }
        let mut parts = parts.into_iter();
        let (ports, feed) = fed_ports();
        let sender = start(
            parts
                .next()
                .ok_or_else(|| Failure::Unsound("no host".into()))?,
            ports,
        );
        let flows = Flows::of(Protocol::Tcp, ENTRIES as u32, seed);
        let keys: Vec<SmallFrame> = flows
            .sessions()
            .iter()
            .map(|session| frame_between(session.protocol, session.inside, session.remote))
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let wakers: Vec<_> = channels[1..]
            .iter()
            .map(StateChannelThread::waker)
            .collect();
        let listeners = {
            let (stop, keys, parts) = (stop.clone(), keys.clone(), parts.collect::<Vec<_>>());
            std::thread::spawn(move || {
                let mut listeners: Vec<_> = parts
                    .into_iter()
                    .map(|parts| start(parts, fed_ports().0))
                    .collect();
                while !stop.load(Ordering::Acquire) {
                    for (listener, waker) in listeners.iter_mut().zip(&wakers) {
                        listener.turn(clock.now());
                        waker.ring();
                    }
                    if listeners.iter().all(|listener| !listener.is_behind()) {
                        rest(Duration::from_micros(50));
                    }
                }
                let held = |listener: &mut Instance<Writing>| Held::of(listener, &keys);
                listeners.iter_mut().map(held).collect()
            })
        };
        let mut bench = Self {
            sender,
            feed,
            channels,
            stop,
            listeners: Some(listeners),
            clock,
            keys,
            written: 0,
            switch,
            _nodes: nodes,
            _lab: lab,
        };
        bench.settle()?;
        Ok(bench)
    }

    fn start(
        way: Delivery,
        number: u16,
        node: &Node,
        clock: MonotonicClock,
    ) -> Result<(StateChannelThread, InstanceParts), Failure> {
        let mut config = configuration(number, HOSTS);
        config.replica.lookahead = LOOKAHEAD;
        // The listeners share a core: that one of them waits for it is no loss on the way.
        config.replica.retransmit_min = Duration::from_millis(50);
        let address = |number: u16| ([10, 99, 0, number as u8 + 1], 4_747).into();
        let peers = (0..HOSTS)
            .filter(|&other| other != number)
            .map(|other| (MemberId(other + 1), address(other)));
        let mut udp = UdpConfig::new(address(number), peers);
        if way.multicast {
            udp = udp.with_multicast(([239, 192, 99, 1], 4_748).into(), "eth0");
        }
        udp.segmentation = way.segmentation;
        let run = RunConfig {
            snapshot_interval: Duration::from_millis(1),
            ..RunConfig::default()
        };
        let (channel, mut parts) =
            host(config, clock.now()).map_err(|error| Failure::Unsound(error.to_string()))?;
        let channel = node
            .enter(|| spawn(channel, &udp, run, clock))
            .map_err(absent)?
            .map_err(not_started)?;
        Ok((channel, parts.remove(0)))
    }

    /// Writes so many operations and waits until all hosts have acknowledged them.
    fn write(&mut self, operations: usize) -> Result<(), Failure> {
        let begun = wall_ns();
        let waker = self.channels[0].waker();
        for first in (0..operations).step_by(BURST) {
            for number in first..operations.min(first + BURST) {
                let frame = &self.keys[(self.written as usize + number) % ENTRIES];
                feed(&mut self.feed, frame)?;
            }
            self.feed.publish();
            let wanted = self.written + operations.min(first + BURST) as u64;
            loop {
                self.sender.turn(self.clock.now());
                waker.ring();
                if self.sender.tally().received >= wanted {
                    break;
                }
                // The log is full: the listeners, on this core too, have to catch up.
                rest(Duration::from_micros(100));
                if wall_ns() - begun > ROUND_MAX_NS {
                    return Err(Failure::Unsound("a round did not end in 10 s".into()));
                }
            }
        }
        self.written += operations as u64;
        self.settle()
    }

    /// Waits until every host has what the sender wrote.
    fn settle(&mut self) -> Result<(), Failure> {
        let begun = wall_ns();
        let waker = self.channels[0].waker();
        let asked = self.clock.now();
        loop {
            self.sender.turn(self.clock.now());
            waker.ring();
            let is_settled = |channel: &StateChannelThread| {
                let snapshot = channel.snapshot();
                let admitted = snapshot.members.iter();
                snapshot.at > asked
                    && snapshot.is_quiet
                    && admitted.filter(|member| member.has_welcomed).count() + 1
                        == usize::from(HOSTS)
            };
            if self.channels.iter().all(is_settled) {
                return Ok(());
            }
            if wall_ns() - begun > ROUND_MAX_NS {
                return Err(Failure::Unsound(
                    "the hosts did not come to agree in 10 s".into(),
                ));
            }
            rest(Duration::from_micros(200));
        }
    }

    /// A snapshot of the sender that is newer than this call.
    fn snapshot(&self) -> Arc<ChannelSnapshot> {
        let asked = self.clock.now();
        loop {
            let snapshot = self.channels[0].snapshot();
            if snapshot.at > asked {
                return snapshot;
            }
            rest(Duration::from_micros(100));
        }
    }

    /// Frames that the sender has put on the bridge.
    fn frames(&self) -> Result<u64, Failure> {
        let counts = self.switch.interface_counts("br0").map_err(absent)?;
        Ok(counts.received)
    }

    /// Ends everything and checks that all hosts hold what was written.
    fn end(mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Release);
        let listeners = self.listeners.take().map(JoinHandle::join);
        let Some(Ok(held)) = listeners else {
            return Err(Failure::Unsound("a listener's thread panicked".into()));
        };
        let own = Held::of(&mut self.sender, &self.keys);
        if own.operations != self.written || self.written == 0 {
            return Err(Failure::Unsound(format!(
                "{} operations were written, the sender holds {}",
                self.written, own.operations
            )));
        }
        for (number, other) in held.iter().enumerate() {
            if *other != own || other.groups_bad > 0 {
                return Err(Failure::Unsound(format!(
                    "host {} holds {} operations of {} or is otherwise unequal",
                    number + 1,
                    other.operations,
                    own.operations
                )));
            }
        }
        for channel in core::mem::take(&mut self.channels) {
            let stopped = channel
                .stop()
                .map_err(|error| Failure::Unsound(error.to_string()))?;
            let counted = stopped.snapshot.transport;
            if counted.given_up > 0 || stopped.snapshot.channel.refused_opened > 0 {
                return Err(Failure::Unsound(format!(
                    "{} datagrams were given up, {} refused",
                    counted.given_up, stopped.snapshot.channel.refused_opened
                )));
            }
        }
        Ok(())
    }
}

fn start(parts: InstanceParts, ports: Vec<Box<dyn asterism_io::port::Port>>) -> Instance<Writing> {
    parts.start(
        Arc::new(Writing),
        |_| ObjectSettings::REPLICATED,
        FramePool::new(512).expect("memory for frames"),
        ports,
    )
}

#[allow(
    clippy::disallowed_methods,
    reason = "the measuring thread leaves its core to those that it waits for"
)]
fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// Rounds of one way.
fn rounds(way: Delivery, count: u32, context: &Context) -> Result<Found, Failure> {
    let begun = wall_ns();
    let mut bench = Bench::new(way, context.seed)?;
    bench.write(OPERATIONS_PER_ROUND)?;
    let mut ns = Vec::new();
    let (first, frames) = (bench.snapshot(), bench.frames()?);
    let logged = bench.sender.tally().group_bytes_written;
    for _ in 0..count {
        if ns.len() >= ROUNDS_MIN && wall_ns() - begun > WAY_NS && !context.full {
            break;
        }
        let before = bench.snapshot().thread.processor_time;
        bench.write(OPERATIONS_PER_ROUND)?;
        let spent = bench.snapshot().thread.processor_time - before;
        ns.push(spent.as_nanos() as f64 / OPERATIONS_PER_ROUND as f64);
    }
    let (last, frames) = (bench.snapshot(), bench.frames()? - frames);
    let logged = bench.sender.tally().group_bytes_written - logged;
    bench.end()?;
    let operations = ns.len() as f64 * OPERATIONS_PER_ROUND as f64;
    let since = |count: fn(&ChannelSnapshot) -> u64| (count(&last) - count(&first)) as f64;
    let datagrams = since(|snapshot| snapshot.transport.datagrams_sent);
    let copies = if way.multicast {
        1.0
    } else {
        f64::from(HOSTS) - 1.0
    };
    let found = Found {
        ns,
        datagrams_per_operation: datagrams / operations,
        bytes_per_operation: logged as f64 / operations,
        frames_per_datagram: frames as f64 / datagrams,
        datagrams_per_message: datagrams / since(|snapshot| snapshot.transport.messages_sent),
        retransmitted: since(|snapshot| snapshot.replication.groups_retransmitted) / operations,
    };
    if found.bytes_per_operation < OPERATION_BYTES {
        return Err(Failure::Unsound(format!(
            "operations had {:.1} bytes, not {OPERATION_BYTES}",
            found.bytes_per_operation
        )));
    }
    // One frame for an update's datagram (or fewer, segmented), whatever the number of members; with it come
    // acknowledgements of the sender and what one member alone lacked.
    let wanted = since(|snapshot| snapshot.channel.datagrams_sent) * copies;
    if frames as f64 > wanted * 1.02 + 200.0 {
        return Err(Failure::Unsound(format!(
            "the sender put {frames} frames on the bridge for {wanted} datagrams"
        )));
    }
    if way.segmentation && since(|snapshot| snapshot.transport.segmented_sent) < datagrams / 2.0 {
        return Err(Failure::Absent(
            "this kernel or its interfaces do not segment datagrams".into(),
        ));
    }
    Ok(found)
}

fn multicast_cost(context: &Context) -> Result<Outcome, Failure> {
    if !permitted() {
        return Err(Failure::Absent(
            "only root may make the network namespaces in which the hosts run".into(),
        ));
    }
    let (count, beside) = if context.full { (60, 15) } else { (21, 5) };
    let way = |multicast, segmentation| Delivery {
        multicast,
        segmentation,
    };
    context.say("multicast with segmentation");
    let found = rounds(way(true, true), count, context)?;
    context.say("multicast without segmentation");
    let plain = rounds(way(true, false), beside, context)?;
    context.say("unicast with segmentation");
    let unicast = rounds(way(false, true), beside, context)?;
    Ok(Outcome::of(&Spread::of(&found.ns))
        .variant("without-segmentation", Spread::of(&plain.ns).median)
        .variant("unicast", Spread::of(&unicast.ns).median)
        .variant("bytes-per-operation", found.bytes_per_operation)
        .variant("datagrams-per-operation", found.datagrams_per_operation)
        .variant("frames-per-datagram", found.frames_per_datagram)
        .variant(
            "frames-per-datagram-without-segmentation",
            plain.frames_per_datagram,
        )
        .variant("datagrams-per-message", found.datagrams_per_message)
        .variant("retransmitted", found.retransmitted)
        .samples("multicast", found.ns)
        .samples("without-segmentation", plain.ns)
        .samples("unicast", unicast.ns))
}
