//! `pass-through.noop`, `pass-through.read-write`: what the packet loop costs, and what a shared counter
//! adds to it (Constellation §6.2, Table 3).

use std::sync::Arc;

use asterism_engine::{HostConfig, Instance, StateChannel, host};
use asterism_functions::pass_through::{Access, PassThrough};
use asterism_io::frame::FramePool;
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::instructions::{self, Work, Workload};
use crate::timing::{Spread, Stopwatch};
use crate::traffic::{Flows, Random, Templates};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "pass-through.noop",
        make: no_operation,
    },
    Measure {
        name: "pass-through.read-write",
        make: read_write,
    },
];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "pass-through.noop",
        prepare: || prepare(Access::None),
    },
    Workload {
        name: "pass-through.read-write",
        prepare: || prepare(Access::ReadWrite),
    },
];

/// Frames that go round between the two ports.
pub(super) const FRAMES: usize = 1_024;
/// Packets of a window: some 10 ms.
pub(super) const WINDOW: u64 = 1 << 20;

/// One instance of a replicated pass-through, with the state channel of its host.
pub(super) struct Bench {
    instance: Instance<PassThrough>,
    channel: StateChannel,
    now_us: u64,
}

impl Bench {
    pub(super) fn new(access: Access, seed: u64) -> Self {
        let mut pool = FramePool::new(4 * FRAMES).expect("memory for frames");
        let ports = looping_ports(&mut pool, seed).map(|port| Box::new(port) as Box<dyn Port>);
        let names = vec![MemberId(1), MemberId(2)];
        let config = HostConfig::new(
            ClusterId(1),
            names[0],
            Incarnation(1),
            names.clone(),
            ClusterKey::from_random(1, [1; 32]),
            [2; 48],
        );
        let (channel, mut parts) = host(config, Time::ZERO).expect("a sound configuration");
        let instance = parts.remove(0).start(
            Arc::new(PassThrough { access }),
            |_| ObjectSettings::REPLICATED,
            pool,
            ports.into(),
        );
        Self {
            instance,
            channel,
            now_us: 0,
        }
    }

    /// Handles at least so many packets; tells how many.
    fn packets(&mut self, count: u64) -> u64 {
        let mut handled = 0;
        while handled < count {
            // A burst takes well under a microsecond; the clock is the loop's business.
            self.now_us += 1;
            handled += self.instance.turn(Time::from_micros(self.now_us)) as u64;
        }
        handled
    }

    /// The channel's share, which another thread does in a host: so that rings never fill.
    fn channel(&mut self) {
        self.channel.turn(Time::from_micros(self.now_us));
    }

    /// On-CPU ns per packet of a window. Every packet must be sent on.
    pub(super) fn window(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        self.channel();
        let mut handled = 0;
        watch.window(|| handled = self.packets(WINDOW));
        let tally = self.instance.tally();
        if tally.dropped_total() > 0 || tally.forwarded != tally.received {
            return Err(Failure::Unsound("the pass-through lost packets".into()));
        }
        Ok(watch.take_cpu_ns() as f64 / handled as f64)
    }

    /// That the counter has every packet that was to be counted.
    pub(super) fn check(&self, access: Access) -> Result<(), Failure> {
        let counted = match access {
            Access::None | Access::Read => 0,
            Access::Write | Access::ReadWrite => self.instance.tally().received,
        };
        match self.instance.state().packets.get() {
            Ok(found) if found == counted => Ok(()),
            found => Err(Failure::Unsound(format!(
                "{counted} packets were to be counted with access {}, and the counter has {found:?}",
                access.name()
            ))),
        }
    }
}

/// An inside and an outside port between which the same frames go round.
pub(super) fn looping_ports(pool: &mut FramePool, seed: u64) -> [MemoryPort; 2] {
    let flows = Flows::of_both(FRAMES as u32, seed);
    let templates = Templates::outbound(&flows);
    let mut random = Random::new(seed);
    let frames: Vec<_> = (0..FRAMES).map(|_| *templates.draw(&mut random)).collect();
    ["inside", "outside"]
        .map(|name| MemoryPort::looping(name, pool, frames.iter().map(|frame| frame.as_slice())))
}

fn prepare(access: Access) -> Work {
    let mut bench = Bench::new(access, 7);
    Box::new(move |packets| {
        bench.packets(u64::from(packets));
    })
}

fn no_operation(context: &Context) -> Result<Outcome, Failure> {
    let mut bench = Bench::new(Access::None, context.seed);
    let mut watch = Stopwatch::default();
    bench.window(&mut watch)?;
    let windows = if context.full { 101 } else { 31 };
    let mut found = Vec::new();
    for _ in 0..windows {
        found.push(bench.window(&mut watch)?);
    }
    context.say("stepping");
    Ok(Outcome::of(&Spread::of(&found))
        .variant(
            "instructions",
            instructions::per_packet("pass-through.noop")?,
        )
        .samples("noop", found)
        .lost(watch.lost()))
}

fn read_write(context: &Context) -> Result<Outcome, Failure> {
    let mut plain = Bench::new(Access::None, context.seed);
    let mut shared = Bench::new(Access::ReadWrite, context.seed);
    let mut watch = Stopwatch::default();
    plain.window(&mut watch)?;
    shared.window(&mut watch)?;
    let rounds = if context.full { 61 } else { 21 };
    let mut added = Vec::new();
    for round in 0..rounds {
        // A B, then B A: what drifts falls on both.
        let (without, with) = if round % 2 == 0 {
            let without = plain.window(&mut watch)?;
            (without, shared.window(&mut watch)?)
        } else {
            let with = shared.window(&mut watch)?;
            (plain.window(&mut watch)?, with)
        };
        added.push(with - without);
    }
    context.say("stepping");
    let [without, with] =
        instructions::per_packet_each(["pass-through.noop", "pass-through.read-write"])?;
    Ok(Outcome::of(&Spread::of(&added))
        .variant("instructions", with - without)
        .samples("added", added)
        .lost(watch.lost()))
}
