//! `nat.churn`: known and new flows mixed at three members, each of which applies what the others open.
//!
//! Against a NAT with local state that gets the packets of one member. Its tables hold as many flows as the members', in the
//! same order, or the measure would compare caches: members were at 0.97 against one whose own flows lie side by side, when
//! no flow at all was opened. A comparison with one that knows only its own flows is a variant.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use asterism_engine::{Instance, InstanceParts};
use asterism_functions::nat::Nat;
use asterism_io::frame::{BURST, FramePool};
use asterism_io::ring::RingWriter;
use asterism_placement::Time;
use std::time::Duration;

use super::nat_bench::{Placed, nat, settings};
use super::replication_hosts::{Host, Hosts, Start, fed_ports, feed, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
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
/// Set-ups, each with memory of its own: where tables happen to lie is worth up to a tenth, the same for all pairs of one.
const SET_UPS: u64 = 5;
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
/// Flows that a member opens in a window.
const NEW_FLOWS: usize = PASSES * (PASS / PACKETS_PER_NEW_FLOW);

/// Packets of one member: of known flows at random, and now and then the first of a new one.
pub(super) struct Source {
    frames: Vec<SmallFrame>,
    pub(super) opened: usize,
    random: Random,
}

impl Source {
    pub(super) fn new(seed: u64, flows_max: usize) -> Self {
        let flows = Flows::of(Protocol::Udp, flows_max as u32, seed);
        let frames = flows
            .sessions()
            .iter()
            .map(|session| frame_between(session.protocol, session.inside, session.remote));
        Self::of(frames.collect(), seed)
    }

    /// A flow by each of these packets.
    pub(super) fn of(frames: Vec<SmallFrame>, seed: u64) -> Self {
        Self {
            frames,
            opened: 0,
            random: Random::new(seed),
        }
    }

    /// Opens a number of flows, one packet each.
    pub(super) fn open(&mut self, flows: usize, to: &mut RingWriter) -> Result<(), Failure> {
        for _ in 0..flows {
            let frame = self
                .frames
                .get(self.opened)
                .ok_or_else(|| Failure::Unsound("no flows are left".into()))?;
            feed(to, frame)?;
            self.opened += 1;
        }
        to.publish();
        Ok(())
    }

    /// Packets for one pass, of which one in `per_new_flow` opens a flow.
    pub(super) fn pass(
        &mut self,
        packets: usize,
        per_new_flow: usize,
        to: &mut RingWriter,
    ) -> Result<(), Failure> {
        for number in 0..packets {
            if number % per_new_flow == per_new_flow / 2 {
                self.open(1, to)?;
            } else {
                let known = self.random.below(self.opened as u64) as usize;
                feed(to, &self.frames[known])?;
            }
        }
        to.publish();
        Ok(())
    }
}

/// A member of the cluster: its packets, and the end by which its port is fed.
struct Fed {
    source: Source,
    feed: RingWriter,
}

/// The same NAT with local state, given the packets that the first member gets.
struct Alone {
    instance: Instance<Nat>,
    fed: Fed,
    /// Flows of the other members, which it knows but gets no further packets of: its tables are then as large as theirs,
    /// and flows lie in them in the same order.
    others: Vec<Source>,
    now: Time,
}

/// What the pairs of all set-ups gave.
#[derive(Default)]
struct Found {
    ratios: Vec<f64>,
    with_state_channel: Vec<f64>,
    over_smaller: Vec<f64>,
    packet_thread: Stopwatch,
}

fn churn(context: &Context) -> Result<Outcome, Failure> {
    let pairs = if context.full { 41 } else { 9 };
    let mut found = Found::default();
    stay_on_core(0);
    provide_memory(MEMORY_BYTES);
    // Kept until the end, or the next one would lie where the one before lay.
    let mut set_ups = Vec::new();
    for set_up in 0..SET_UPS {
        context.say(&format!("opening flows, {} of {SET_UPS}", set_up + 1));
        let seed = context.seed + set_up * 1_000;
        set_ups.push(measure(seed, pairs, &mut found)?);
    }
    Ok(Outcome::of(&Spread::of(&found.ratios))
        .variant(
            "with-state-channel",
            Spread::of(&found.with_state_channel).median,
        )
        .variant(
            "over-a-table-of-own-flows",
            Spread::of(&found.over_smaller).median,
        )
        .samples("packet-thread", found.ratios)
        .samples("with-state-channel", found.with_state_channel)
        .samples("over-a-table-of-own-flows", found.over_smaller)
        .lost(found.packet_thread.lost()))
}

/// A cluster, and the two that it is held against.
struct SetUp {
    _hosts: Hosts<Nat>,
    _alone: [Alone; 2],
}

/// Pairs of windows of one set-up.
fn measure(seed: u64, pairs: usize, found: &mut Found) -> Result<SetUp, Failure> {
    let flows = KNOWN + (pairs + WARM_ROUNDS + 1) * NEW_FLOWS + 16;
    let function = || Arc::new(nat((flows * MEMBERS) as u32, MEMBERS as u32));
    let source = |member: usize| Source::new(seed + 100 * member as u64, flows);
    let mut alone = Alone::new(function(), seed, source(0), (1..MEMBERS).map(source))?;
    let mut smaller = Alone::new(function(), seed, source(0), None)?;
    let mut members = Vec::new();
    let mut starts = Vec::new();
    for member in 0..MEMBERS {
        let (ports, feed) = fed_ports();
        starts.push(Start {
            function: function(),
            ports,
        });
        let source = source(member);
        members.push(Fed { source, feed });
    }
    let mut hosts = Hosts::new(starts, |_| {}, settings(Placed::Replicated(Duration::ZERO)))?;
    for Fed { source, feed } in &mut members {
        source.open(KNOWN, feed)?;
    }
    hosts.settle()?;

    let mut local = Stopwatch::default();
    let mut channel_thread = Stopwatch::default();
    for round in 0..pairs + WARM_ROUNDS {
        // A B B A: anyone who came first comes last in the next round.
        let alone_first = round % 2 == 0;
        let mut alone_ns = 0.0;
        if alone_first {
            alone_ns = alone.window(&mut local)?;
        }
        window(
            &mut hosts,
            &mut members,
            &mut found.packet_thread,
            &mut channel_thread,
        )?;
        if !alone_first {
            alone_ns = alone.window(&mut local)?;
        }
        let smaller_ns = smaller.window(&mut local)?;
        let packets = (PASSES * PASS) as f64;
        let (packet_ns, channel_ns) = (
            found.packet_thread.take_cpu_ns() as f64 / packets,
            channel_thread.take_cpu_ns() as f64 / packets,
        );
        if round >= WARM_ROUNDS {
            found.ratios.push(alone_ns / packet_ns);
            found
                .with_state_channel
                .push(alone_ns / (packet_ns + channel_ns));
            found.over_smaller.push(smaller_ns / packet_ns);
        }
    }
    hosts.settle()?;
    hosts.check()?;
    let opened: usize = members.iter().map(|member| member.source.opened).sum();
    let known = hosts.members[0].instance.state().sessions.len_now();
    let known_alone = alone.instance.state().sessions.len_now();
    if known != opened || known_alone != opened {
        return Err(Failure::Unsound(format!(
            "{opened} flows were opened, {known} are known in the cluster and {known_alone} alone"
        )));
    }
    Ok(SetUp {
        _hosts: hosts,
        _alone: [alone, smaller],
    })
}

/// One window of all members: first the others in full, then the first, its two threads in turn and timed apart. Hosts share
/// no core's cache, nor do a host's packet loop and its state channel, which has the second core.
fn window(
    hosts: &mut Hosts<Nat>,
    members: &mut [Fed],
    packet_thread: &mut Stopwatch,
    channel_thread: &mut Stopwatch,
) -> Result<(), Failure> {
    let start = hosts.now;
    let turns = PASS / 32 + 1;
    for (member, Fed { source, feed }) in hosts.members.iter_mut().zip(members.iter_mut()).skip(1) {
        for pass in 0..PASSES as u32 {
            source.pass(PASS, PACKETS_PER_NEW_FLOW, feed)?;
            let now = start + PASS_TIME * pass;
            for _ in 0..turns {
                member.instance.turn(now);
            }
            member.mail.pass(now, usize::MAX);
        }
    }
    hosts.deliver();
    let (Host { instance, mail, .. }, Fed { source, feed }) =
        (&mut hosts.members[0], &mut members[0]);
    in_turns(
        |pass| {
            let now = start + PASS_TIME * pass;
            // What the others sent comes evenly over the window.
            let some = mail.waiting().div_ceil(PASSES - pass as usize);
            channel_thread.window(|| mail.pass(now, some));
        },
        |pass, hand_over| {
            source.pass(PASS, PACKETS_PER_NEW_FLOW, feed)?;
            hand_over()?;
            let now = start + PASS_TIME * pass;
            packet_thread.window(|| {
                for _ in 0..turns {
                    instance.turn(now);
                }
            });
            Ok(())
        },
    )?;
    hosts.deliver();
    hosts.now = start + PASS_TIME * PASSES as u32;
    Ok(())
}

/// The passes of a window, for each of which `packets` hands over once to a thread on the other core and waits until `channel` is
/// done there. The NAT that is alone hands over too, to a thread that does nothing: a core that slept has forgotten much.
fn in_turns(
    mut channel: impl FnMut(u32) + Send,
    mut packets: impl FnMut(u32, &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let (begin, begun) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        scope.spawn(move || {
            stay_on_core(1);
            for pass in begun {
                channel(pass);
                if end.send(()).is_err() {
                    break;
                }
            }
        });
        for pass in 0..PASSES as u32 {
            packets(pass, &mut || {
                if begin.send(pass).is_err() || ended.recv().is_err() {
                    return Err(Failure::Unsound("the state channel's thread ended".into()));
                }
                Ok(())
            })?;
        }
        Ok(())
    })
}

impl Alone {
    fn new(
        function: Arc<Nat>,
        seed: u64,
        source: Source,
        others: impl IntoIterator<Item = Source>,
    ) -> Result<Self, Failure> {
        let (ports, feed) = fed_ports();
        let pool = FramePool::new(512).expect("memory for frames");
        let instance =
            InstanceParts::alone(seed).start(function, settings(Placed::Local), pool, ports);
        let mut alone = Self {
            instance,
            fed: Fed { source, feed },
            others: others.into_iter().collect(),
            now: Time::ZERO,
        };
        for _ in 0..KNOWN.div_ceil(BURST) {
            let flows = BURST.min(KNOWN - alone.fed.source.opened);
            alone.fed.source.open(flows, &mut alone.fed.feed)?;
            alone.turns(flows);
            alone.open_of_others(flows)?;
        }
        Ok(alone)
    }

    fn open_of_others(&mut self, flows: usize) -> Result<(), Failure> {
        for other in 0..self.others.len() {
            self.others[other].open(flows, &mut self.fed.feed)?;
            self.turns(flows);
        }
        Ok(())
    }

    fn turns(&mut self, packets: usize) {
        for _ in 0..packets / 32 + 1 {
            self.instance.turn(self.now);
        }
    }

    fn window(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        watch.take_cpu_ns();
        in_turns(
            |_| {},
            |_, hand_over| {
                // As the members come to know them; not timed.
                self.open_of_others(NEW_FLOWS / PASSES)?;
                self.fed
                    .source
                    .pass(PASS, PACKETS_PER_NEW_FLOW, &mut self.fed.feed)?;
                hand_over()?;
                watch.window(|| self.turns(PASS));
                self.now = self.now + PASS_TIME;
                Ok(())
            },
        )?;
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
