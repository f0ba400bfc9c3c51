//! `functions.chain`: what a chain of four costs, beside what its functions cost alone on the same packets between the same
//! ports.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Instance, InstanceParts};
use asterism_function::chain::{Chain, ChainState, Stage};
use asterism_function::{Endpoint, NetworkFunction, PortNumber};
use asterism_functions::nat::{BY_INSIDE, NatState};
use asterism_functions::pass_through::{Access, PassThrough};
use asterism_functions::port_scan::{PortScan, PortScanConfig, Response};
use asterism_io::frame::FramePool;
use asterism_io::port::Port;
use asterism_placement::Time;
use asterism_state::ObjectSettings;

use super::nat_bench::{PASSES, READY, RecordedPort, endpoint, nat, opening};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::instructions::{self, Work, Workload};
use crate::timing::{Spread, Stopwatch};
use crate::traffic::frames::frame;
use crate::traffic::{Direction, Flows, Random, flows};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "functions.chain",
    make: chain_of_four,
}];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "chain.one",
        prepare: || of_pass_throughs(1),
    },
    Workload {
        name: "chain.five",
        prepare: || of_pass_throughs(5),
    },
    Workload {
        name: "chain.four",
        prepare: of_four,
    },
];

/// Sessions, as many as the NAT's instructions are counted with.
const SESSIONS: u32 = 1_000;
const PORTS: [PortNumber; 2] = [PortNumber(0), PortNumber(1)];
/// The stage that is the NAT.
const NAT: usize = 1;

/// A function alone on local state, with sessions that it knows and bursts of their packets.
struct Bench<F: NetworkFunction> {
    instance: Instance<F>,
    now: Time,
}

/// Where a session appears outside, as the function's state says.
type Outside<S> = fn(&S, Endpoint) -> Option<Endpoint>;

impl<F: NetworkFunction> Bench<F> {
    fn new(
        function: F,
        outside: Outside<F::State>,
        flows: &Flows,
        seed: u64,
    ) -> Result<Self, Failure> {
        let pool = FramePool::new(4 * READY).expect("memory for frames");
        let empty = || Box::new(RecordedPort::new(Vec::new())) as Box<dyn Port>;
        let parts = InstanceParts::alone(seed);
        let local = |_: &str| ObjectSettings::LOCAL;
        let mut bench = Self {
            instance: parts.start(Arc::new(function), local, pool, vec![empty(), empty()]),
            now: Time::ZERO,
        };
        let mut templates = [Vec::new(), Vec::new()];
        for session in flows.sessions() {
            bench.now = bench.now + Duration::from_micros(10);
            let inside = endpoint(session.inside, session);
            let mut given = None;
            for step in 0..3 {
                let Some((port, bytes)) = opening(session, given, step) else {
                    break;
                };
                if !bench.instance.inject(bench.now, port, &bytes) {
                    return Err(Failure::Unsound("a first packet found no room".into()));
                }
                given = given.or_else(|| outside(bench.instance.state(), inside));
            }
            let given = given.ok_or_else(|| Failure::Unsound("a session was not opened".into()))?;
            let given = flows::Endpoint {
                address: given.address.to_bits(),
                port: given.port,
            };
            templates[0].push(frame(session, Direction::Outbound, given));
            templates[1].push(frame(session, Direction::Inbound, given));
        }
        let mut random = Random::new(seed ^ 0xC4A1);
        for (port, templates) in PORTS.into_iter().zip(templates) {
            let draw = |_| templates[random.below(templates.len() as u64) as usize];
            let draws = (0..4 * READY).map(draw).collect();
            let port_of = Box::new(RecordedPort::new(draws));
            bench.instance.replace_port(port, port_of);
        }
        Ok(bench)
    }

    /// On-CPU ns per packet of a window of some 130,000 packets. Every packet must be sent on.
    fn window(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        watch.take_cpu_ns();
        let before = self.instance.tally().forwarded;
        let mut handled = 0;
        for _ in 0..PASSES {
            self.refill();
            watch.window(|| handled += self.packets(2 * READY));
        }
        let tally = self.instance.tally();
        if tally.dropped_total() > 0 || tally.forwarded - before != handled as u64 {
            return Err(Failure::Unsound(
                "packets of known sessions were lost".into(),
            ));
        }
        Ok(watch.take_cpu_ns() as f64 / handled as f64)
    }

    fn refill(&mut self) {
        for port in PORTS {
            if let Some((port, pool)) = self.instance.port_and_pool(port) {
                // It cannot fail.
                let _ = port.flush(pool);
            }
        }
    }

    fn packets(&mut self, count: usize) -> usize {
        let mut handled = 0;
        while handled < count {
            let read = self.instance.turn(self.now);
            if read == 0 {
                break;
            }
            handled += read;
            self.now = self.now + Duration::from_micros(2);
        }
        handled
    }
}

/// Functions that translate nothing show a session as it is inside.
fn as_inside<S>(_: &S, inside: Endpoint) -> Option<Endpoint> {
    Some(inside)
}

fn of_nat(state: &NatState, inside: Endpoint) -> Option<Endpoint> {
    let found = state.sessions.any_of(BY_INSIDE, &inside).ok().flatten()?;
    Some(found.row.outside())
}

fn of_chain(state: &ChainState, inside: Endpoint) -> Option<Endpoint> {
    of_nat(state.stage(NAT)?, inside)
}

fn port_scan() -> PortScan {
    PortScan::new(PortScanConfig {
        response: Response::Detect,
        ..PortScanConfig::default()
    })
}

fn pass_through(access: Access) -> PassThrough {
    PassThrough { access }
}

/// The chain of four.
fn four() -> Chain {
    let stages = vec![
        Stage::new("port-scan", Arc::new(port_scan())),
        Stage::new("nat", Arc::new(nat(SESSIONS, 1))),
        Stage::new("write", Arc::new(pass_through(Access::Write))),
        Stage::new("read", Arc::new(pass_through(Access::Read))),
    ];
    Chain::new(stages).expect("a sound chain")
}

fn chain_of_four(context: &Context) -> Result<Outcome, Failure> {
    let flows = Flows::of_both(SESSIONS, context.seed);
    let seed = context.seed;
    context.say("opening sessions");
    let mut chain = Bench::new(four(), of_chain, &flows, seed)?;
    let mut scan = Bench::new(port_scan(), as_inside, &flows, seed)?;
    let mut translate = Bench::new(nat(SESSIONS, 1), of_nat, &flows, seed)?;
    let mut write = Bench::new(pass_through(Access::Write), as_inside, &flows, seed)?;
    let mut read = Bench::new(pass_through(Access::Read), as_inside, &flows, seed)?;
    context.say("measuring");
    let mut watch = Stopwatch::default();
    let rounds = if context.full { 61 } else { 21 };
    let (mut ratios, mut chains, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=rounds {
        let before = chain.window(&mut watch)?;
        let parts = [
            scan.window(&mut watch)?,
            translate.window(&mut watch)?,
            write.window(&mut watch)?,
            read.window(&mut watch)?,
        ];
        // On both sides of its parts: what drifts falls on both.
        let whole = (before + chain.window(&mut watch)?) / 2.0;
        let sum: f64 = parts.iter().sum();
        if round > 0 {
            ratios.push(whole / sum);
            chains.push(whole);
            sums.push(sum);
        }
    }
    context.say("stepping");
    let [one, five] = instructions::per_packet_each(["chain.one", "chain.five"])?;
    Ok(Outcome::of(&Spread::of(&ratios))
        .variant("chain-ns", Spread::of(&chains).median)
        .variant("parts-ns", Spread::of(&sums).median)
        .variant("instructions-a-stage", (five - one) / 4.0)
        .samples("ratio", ratios)
        .lost(watch.lost()))
}

/// A chain of functions that do nothing: what is left is what a stage costs.
fn of_pass_throughs(count: usize) -> Work {
    let names = ["1", "2", "3", "4", "5"];
    let stages = names[..count].iter();
    let stages = stages.map(|name| Stage::new(name, Arc::new(pass_through(Access::None))));
    let chain = Chain::new(stages.collect()).expect("a sound chain");
    counted(chain, as_inside)
}

fn of_four() -> Work {
    counted(four(), of_chain)
}

/// Known sessions through a chain, for counting its instructions.
fn counted(chain: Chain, outside: Outside<ChainState>) -> Work {
    let flows = Flows::of_both(SESSIONS, 1);
    let mut bench = Bench::new(chain, outside, &flows, 1).expect("sessions open");
    bench.refill();
    Box::new(move |packets| {
        let handled = bench.packets(packets as usize);
        assert!(handled >= packets as usize, "the recorded packets ran out");
        assert_eq!(bench.instance.tally().dropped_total(), 0);
    })
}
