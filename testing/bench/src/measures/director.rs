//! `director.cost`: what the built-in director adds to a bare loop that sends back what it receives.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use asterism_director::table::{BUCKETS_SANE, BucketSpace, Share, Slot, Table};
use asterism_director::{
    ArmConfig, Command, Control, Director, DirectorConfig, FlowKey, Host, HostLink, MacAddress,
};
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::Time;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::instructions::{self, Work, Workload};
use crate::timing::{Spread, Stopwatch};
use crate::traffic::{Flows, Random, Templates};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "director.cost",
    make: cost,
}];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "director.bare",
        prepare: || {
            let mut bare = Bare::new(FLOWS_FOR_INSTRUCTIONS, 7);
            Box::new(move |packets| bare.packets(u64::from(packets)))
        },
    },
    Workload {
        name: "director.cost",
        prepare: || prepare(0),
    },
    Workload {
        name: "director.exceptions",
        prepare: || prepare(EXCEPTIONS),
    },
];

/// Distinct flows of the measure.
const FLOWS: u32 = 1_000_000;
const FLOWS_FOR_INSTRUCTIONS: u32 = 1_000;
/// Flows with a place of their own, in the variant that has some.
const EXCEPTIONS: u32 = 4_096;
/// Frames of the pool.
const FRAMES: usize = 1_024;
/// Packets of a window: some 20 ms.
const WINDOW: u64 = 1 << 20;
const HOSTS: usize = 3;
const DIRECTOR: MacAddress = MacAddress([2, 0xd1, 0, 0, 0, 1]);

/// A port from which a packet of each flow comes in turn, in an order drawn at random, addressed to the director.
fn source(flows: u32, seed: u64) -> Box<dyn Port> {
    let templates = Templates::outbound(&Flows::of_both(flows, seed));
    let mut frames = templates.all().to_vec();
    let mut random = Random::new(seed);
    for place in (1..frames.len()).rev() {
        frames.swap(place, random.below(place as u64 + 1) as usize);
    }
    for frame in &mut frames {
        frame[..6].copy_from_slice(&DIRECTOR.0);
    }
    let frames = frames.iter().map(|frame| frame.as_slice());
    Box::new(MemoryPort::cycling("network", frames, u64::MAX))
}

/// The loop to compare with: every burst goes back as it came.
struct Bare {
    port: Box<dyn Port>,
    pool: FramePool,
    burst: Burst,
}

impl Bare {
    fn new(flows: u32, seed: u64) -> Bare {
        Bare {
            port: source(flows, seed),
            pool: FramePool::new(FRAMES).expect("memory for frames"),
            burst: Burst::new(),
        }
    }

    fn packets(&mut self, count: u64) {
        let mut handled = 0;
        while handled < count {
            handled += self.port.receive(&mut self.pool, &mut self.burst) as u64;
            self.port.send(&mut self.pool, &mut self.burst);
        }
    }

    /// On-CPU ns per packet of a window.
    fn window(&mut self, watch: &mut Stopwatch) -> f64 {
        watch.take_cpu_ns();
        watch.window(|| self.packets(WINDOW));
        watch.take_cpu_ns() as f64 / WINDOW as f64
    }
}

/// A director with one arm, three hosts, and so many exceptions of flows that send nothing.
struct Bench {
    director: Director,
    _control: Control,
    now_us: u64,
}

impl Bench {
    fn new(flows: u32, exceptions: u32, seed: u64) -> Bench {
        let space = BucketSpace::new(BUCKETS_SANE, seed).expect("a number of buckets");
        let shared = vec![Ipv4Addr::new(192, 0, 2, 1).into()];
        let mut config = DirectorConfig::new(vec![ArmConfig::one_armed(DIRECTOR, shared)], space);
        config.suspended.packets_max = FRAMES as u32 / 2;
        let pool = FramePool::new(FRAMES).expect("memory for frames");
        let ports = vec![source(flows, seed)];
        let (director, mut control) =
            Director::new(config, ports, pool, Time::ZERO).expect("a sound configuration");
        let slots = (0..HOSTS).filter_map(Slot::new);
        let names = ["a", "b", "c"];
        let shares: Vec<Share<'_>> = slots
            .zip(names)
            .map(|(slot, name)| Share {
                slot,
                name,
                weight: 1,
            })
            .collect();
        let mut bench_commands: Vec<Command> = shares
            .iter()
            .map(|share| Command::SetHost {
                slot: share.slot,
                host: Host::on_first_arm(HostLink {
                    mac: Some(MacAddress([2, 0, 0, 0, 1, share.slot.number() as u8])),
                    address: None,
                }),
            })
            .collect();
        let table = Table::new(space, &shares, &[], &BTreeMap::new());
        bench_commands.push(Command::Table(Box::new(table)));
        let client = |number: u32| Ipv4Addr::from_bits(0x6440_0000 + number);
        bench_commands.extend((0..exceptions).map(|number| Command::Pin {
            flow: FlowKey::between(
                (client(number).into(), 1_000),
                (Ipv4Addr::new(192, 0, 2, 1).into(), 80),
                6,
            ),
            to: shares[0].slot,
            idle: Duration::from_secs(3_600),
        }));
        let mut director = director;
        for command in bench_commands {
            control.send(command).expect("room for a command");
            director.turn(Time::ZERO);
            control.poll().expect("a director").expect("an answer");
        }
        Bench {
            director,
            _control: control,
            now_us: 0,
        }
    }

    fn packets(&mut self, count: u64) {
        let mut handled = 0;
        while handled < count {
            // A burst takes well under a microsecond; the clock is the loop's business.
            self.now_us += 1;
            handled += self.director.turn(Time::from_micros(self.now_us)) as u64;
        }
    }

    /// On-CPU ns per packet of a window. Every packet must go to a host.
    fn window(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        let before = self.director.statistics();
        watch.take_cpu_ns();
        watch.window(|| self.packets(WINDOW));
        let took = watch.take_cpu_ns() as f64 / WINDOW as f64;
        let after = self.director.statistics();
        let received = after.received - before.received;
        let forwarded = after.forwarded - before.forwarded;
        if received < WINDOW || forwarded != received {
            return Err(Failure::Unsound(format!(
                "the director sent {forwarded} of {received} packets on"
            )));
        }
        for number in 0..HOSTS {
            let sent = after.targets[number].packets - before.targets[number].packets;
            if sent * (HOSTS as u64 + 1) < received {
                return Err(Failure::Unsound(format!(
                    "host {number} got {sent} of {received} packets"
                )));
            }
        }
        Ok(took)
    }
}

fn prepare(exceptions: u32) -> Work {
    let mut bench = Bench::new(FLOWS_FOR_INSTRUCTIONS, exceptions, 7);
    Box::new(move |packets| bench.packets(u64::from(packets)))
}

fn cost(context: &Context) -> Result<Outcome, Failure> {
    context.say("one million flows");
    let mut bare = Bare::new(FLOWS, context.seed);
    let mut plain = Bench::new(FLOWS, 0, context.seed);
    let mut excepting = Bench::new(FLOWS, EXCEPTIONS, context.seed);
    let mut watch = Stopwatch::default();
    bare.window(&mut watch);
    plain.window(&mut watch)?;
    excepting.window(&mut watch)?;
    let rounds = if context.full { 61 } else { 21 };
    let (mut added, mut added_with, mut loops) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // A B, then B A: what drifts falls on both.
        let (without, with) = if round % 2 == 0 {
            let without = bare.window(&mut watch);
            (without, plain.window(&mut watch)?)
        } else {
            let with = plain.window(&mut watch)?;
            (bare.window(&mut watch), with)
        };
        added.push(with - without);
        added_with.push(excepting.window(&mut watch)? - without);
        loops.push(without);
    }
    context.say("stepping");
    let [without, with, with_exceptions] =
        instructions::per_packet_each(["director.bare", "director.cost", "director.exceptions"])?;
    Ok(Outcome::of(&Spread::of(&added))
        .variant("instructions", with - without)
        .variant("with-exceptions", Spread::of(&added_with).median)
        .variant("instructions-with-exceptions", with_exceptions - without)
        .variant("bare-loop", Spread::of(&loops).median)
        .samples("added", added)
        .samples("added-with-exceptions", added_with)
        .lost(watch.lost()))
}
