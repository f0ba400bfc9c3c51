//! `nat.churn`: known and new flows mixed at three members, each of which applies what the others open.

use std::sync::Arc;

use asterism_engine::frame::FramePool;
use asterism_engine::ring::RingWriter;
use asterism_engine::{Instance, InstanceParts};
use asterism_functions::nat::Nat;
use asterism_placement::Time;
use std::time::Duration;

use super::nat_bench::{Placed, nat, settings};
use super::replication_hosts::{Hosts, Start, fed_ports, feed, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, Stopwatch};
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, Protocol, Random, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "nat.churn",
    make: churn,
}];

/// More than all tables here come to hold.
const MEMORY_BYTES: usize = 1 << 30;
/// Rounds before those that count.
const WARM_ROUNDS: usize = 4;
/// Members that all take packets.
const MEMBERS: usize = 3;
/// Flows that each member knows before.
const KNOWN: usize = 10_000;
/// Packets that a member takes between two deliveries.
const PASS: usize = 8_000;
/// One packet in so many opens a flow.
const PACKETS_PER_NEW_FLOW: usize = 1_000;
/// What a pass takes at about thirty nanoseconds a packet.
const PASS_TIME: Duration = Duration::from_micros(250);
/// Passes of a window: some ten milliseconds.
const PASSES: usize = 32;

/// Packets of one member: of known flows at random, and now and then the first of a new one.
struct Source {
    frames: Vec<SmallFrame>,
    opened: usize,
    random: Random,
    feed: RingWriter,
}

impl Source {
    fn new(seed: u64, flows_max: usize, feed: RingWriter) -> Self {
        let flows = Flows::of(Protocol::Udp, flows_max as u32, seed);
        let frames = flows
            .sessions()
            .iter()
            .map(|session| frame_between(session.protocol, session.inside, session.remote));
        Self {
            frames: frames.collect(),
            opened: 0,
            random: Random::new(seed),
            feed,
        }
    }

    /// Opens a number of flows, one packet each.
    fn open(&mut self, flows: usize) -> Result<(), Failure> {
        for _ in 0..flows {
            let frame = self
                .frames
                .get(self.opened)
                .ok_or_else(|| Failure::Unsound("no flows are left".into()))?;
            feed(&mut self.feed, frame)?;
            self.opened += 1;
        }
        self.feed.publish();
        Ok(())
    }

    /// Packets for one pass.
    fn pass(&mut self) -> Result<(), Failure> {
        for number in 0..PASS {
            if number % PACKETS_PER_NEW_FLOW == PACKETS_PER_NEW_FLOW / 2 {
                self.open(1)?;
            } else {
                let known = self.random.below(self.opened as u64) as usize;
                feed(&mut self.feed, &self.frames[known])?;
            }
        }
        self.feed.publish();
        Ok(())
    }
}

/// The same NAT alone.
struct Alone {
    instance: Instance<Nat>,
    source: Source,
    now: Time,
}

fn churn(context: &Context) -> Result<Outcome, Failure> {
    let pairs = if context.full { 201 } else { 61 };
    let flows = KNOWN + (pairs + WARM_ROUNDS + 1) * PASSES * (PASS / PACKETS_PER_NEW_FLOW) + 16;
    let function = || Arc::new(nat((flows * MEMBERS) as u32, MEMBERS as u32));
    context.say("opening flows");
    provide_memory(MEMORY_BYTES);
    let mut alone = {
        let (ports, feed) = fed_ports();
        let pool = FramePool::new(512).expect("memory for frames");
        let instance = InstanceParts::alone(context.seed).start(
            function(),
            settings(Placed::Local),
            pool,
            ports,
        );
        Alone {
            instance,
            source: Source::new(context.seed, flows, feed),
            now: Time::ZERO,
        }
    };
    alone.source.open(KNOWN)?;
    alone.turns(KNOWN);
    let mut sources = Vec::new();
    let mut starts = Vec::new();
    for member in 0..MEMBERS {
        let (ports, feed) = fed_ports();
        starts.push(Start {
            function: function(),
            ports,
        });
        sources.push(Source::new(context.seed + 100 * member as u64, flows, feed));
    }
    let mut hosts = Hosts::new(starts, |_| {}, settings(Placed::Replicated(Duration::ZERO)))?;
    for source in &mut sources {
        source.open(KNOWN)?;
    }
    hosts.settle()?;

    context.say("measuring");
    let mut local = Stopwatch::default();
    let mut packet_thread = Stopwatch::default();
    let mut channel_thread = Stopwatch::default();
    let (mut ratios, mut whole) = (Vec::new(), Vec::new());
    for round in 0..pairs + WARM_ROUNDS {
        let before = if round % 2 == 0 {
            alone.window(&mut local)?
        } else {
            0.0
        };
        window(
            &mut hosts,
            &mut sources,
            &mut packet_thread,
            &mut channel_thread,
        )?;
        let after = if round % 2 == 1 {
            alone.window(&mut local)?
        } else {
            0.0
        };
        let packets = (PASSES * PASS) as f64;
        let (packet_ns, channel_ns) = (
            packet_thread.take_cpu_ns() as f64 / packets,
            channel_thread.take_cpu_ns() as f64 / packets,
        );
        if round >= WARM_ROUNDS {
            ratios.push((before + after) / packet_ns);
            whole.push((before + after) / (packet_ns + channel_ns));
        }
    }
    hosts.settle()?;
    hosts.check()?;
    let opened: usize = sources.iter().map(|source| source.opened).sum();
    let known = hosts.members[0].instance.state().sessions.len();
    if known != opened {
        return Err(Failure::Unsound(format!(
            "{opened} flows were opened and {known} are known"
        )));
    }
    Ok(Outcome::of(&Spread::of(&ratios))
        .variant("with-state-channel", Spread::of(&whole).median)
        .samples("packet-thread", ratios)
        .samples("with-state-channel", whole)
        .lost(packet_thread.lost()))
}

/// One window of all members: first the others in full, then the first with its two threads timed apart. In turn, not
/// interleaved: hosts do not share a core's cache.
fn window(
    hosts: &mut Hosts<Nat>,
    sources: &mut [Source],
    packet_thread: &mut Stopwatch,
    channel_thread: &mut Stopwatch,
) -> Result<(), Failure> {
    let start = hosts.now;
    let turns = PASS / 32 + 1;
    for (member, source) in hosts.members.iter_mut().zip(sources.iter_mut()).skip(1) {
        for pass in 0..PASSES as u32 {
            source.pass()?;
            let now = start + PASS_TIME * pass;
            for _ in 0..turns {
                member.instance.turn(now);
            }
            member.channel_pass(now, usize::MAX);
        }
    }
    hosts.deliver();
    let (first, source) = (&mut hosts.members[0], &mut sources[0]);
    for pass in 0..PASSES as u32 {
        source.pass()?;
        let now = start + PASS_TIME * pass;
        // What the others sent comes evenly over the window.
        let waiting = first.datagrams_waiting().div_ceil(PASSES - pass as usize);
        channel_thread.window(|| first.channel_pass(now, waiting));
        packet_thread.window(|| {
            for _ in 0..turns {
                first.instance.turn(now);
            }
        });
    }
    hosts.deliver();
    hosts.now = start + PASS_TIME * PASSES as u32;
    Ok(())
}

impl Alone {
    fn turns(&mut self, packets: usize) {
        for _ in 0..packets / 32 + 1 {
            self.instance.turn(self.now);
        }
        self.now = self.now + PASS_TIME;
    }

    fn window(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        watch.take_cpu_ns();
        for _ in 0..PASSES {
            self.source.pass()?;
            watch.window(|| self.turns(PASS));
        }
        let tally = self.instance.tally();
        if tally.dropped_total() > 0 {
            return Err(Failure::Unsound(format!(
                "packets were dropped: {:?}",
                tally.drops().collect::<Vec<_>>()
            )));
        }
        Ok(watch.take_cpu_ns() as f64 / (PASSES * PASS) as f64)
    }
}
