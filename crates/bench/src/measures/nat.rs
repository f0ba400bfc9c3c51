//! `nat.*`: what a packet of a known session costs, and what replication adds to it.

use std::time::Duration;

use super::floor::FloorBench;
use super::nat_bench::{FloorOnPorts, NatBench, Placed};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::instructions::{self, Work, Workload};
use crate::timing::{Spread, Stopwatch};
use crate::traffic::Flows;

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "nat.instructions",
        make: count_instructions,
    },
    Measure {
        name: "nat.replicated-instructions",
        make: added_instructions,
    },
    Measure {
        name: "nat.10k",
        make: |context| at_size(context, 10_000),
    },
    Measure {
        name: "nat.100k",
        make: |context| at_size(context, 100_000),
    },
    Measure {
        name: "nat.1m",
        make: |context| at_size(context, 1_000_000),
    },
    Measure {
        name: "nat.over-floor",
        make: over_floor,
    },
];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "nat.local",
        prepare: || prepare(Placed::Local),
    },
    Workload {
        name: "nat.local-prefetching",
        prepare: || work(prepared(Placed::Local).prefetching()),
    },
    Workload {
        name: "nat.replicated",
        prepare: || prepare(Placed::Replicated(Duration::ZERO)),
    },
    Workload {
        name: "nat.replicated-100ms",
        prepare: || prepare(Placed::Replicated(Duration::from_millis(100))),
    },
];

/// Sessions for the instruction counts.
const SESSIONS: u32 = 1_000;
/// Both hosts of the timed NATs are in one process, with nothing between them.
const NEAR: Placed = Placed::Replicated(Duration::ZERO);

fn prepare(placed: Placed) -> Work {
    work(prepared(placed))
}

fn prepared(placed: Placed) -> NatBench {
    let flows = Flows::of_both(SESSIONS, 1);
    NatBench::new(&flows, placed, 1).unwrap_or_else(|failure| panic!("{failure:?}"))
}

fn work(mut bench: NatBench) -> Work {
    bench.refill();
    Box::new(move |packets| {
        let handled = bench.packets(packets as usize);
        assert!(handled >= packets as usize, "the recorded packets ran out");
        bench
            .check()
            .unwrap_or_else(|failure| panic!("{failure:?}"));
    })
}

fn count_instructions(context: &Context) -> Result<Outcome, Failure> {
    context.say("stepping");
    let [local, prefetching] =
        instructions::per_packet_each(["nat.local", "nat.local-prefetching"])?;
    let mut outcome = Outcome::new(local, 1).variant("prefetching", prefetching);
    if context.full
        && let Some(counted) = instructions::per_packet_by_callgrind("nat.local")
    {
        outcome = outcome.variant("callgrind", counted?);
    }
    Ok(outcome)
}

fn added_instructions(context: &Context) -> Result<Outcome, Failure> {
    context.say("stepping");
    let placed = ["nat.local", "nat.replicated", "nat.replicated-100ms"];
    let [local, near, far] = instructions::per_packet_each(placed)?;
    let (near, far) = (near - local, far - local);
    Ok(Outcome::new(near.max(far), 1)
        .variant("local", local)
        .variant("0ms", near)
        .variant("100ms", far))
}

fn at_size(context: &Context, sessions: u32) -> Result<Outcome, Failure> {
    context.say("opening sessions");
    let flows = Flows::of_both(sessions, context.seed);
    let mut bench = NatBench::new(&flows, NEAR, context.seed)?;
    let mut watch = Stopwatch::default();
    bench.window(&mut watch)?;
    let windows = if context.full { 101 } else { 31 };
    context.say("measuring");
    let mut found = Vec::new();
    for _ in 0..windows {
        found.push(bench.window(&mut watch)?);
    }
    Ok(Outcome::of(&Spread::of(&found))
        .samples("replicated", found)
        .lost(watch.lost()))
}

/// Both loops take the same packets from the same kind of port and send them to the same kind. Beside it, what the
/// hand-written NAT costs without ports, on frames that lie in order and stay where they are.
fn over_floor(context: &Context) -> Result<Outcome, Failure> {
    let mut worst = 0.0;
    let mut outcome = Outcome::new(0.0, 0);
    let mut extras = Vec::new();
    for (sessions, name) in [(10_000, "10k"), (100_000, "100k"), (1_000_000, "1m")] {
        context.say(name);
        let flows = Flows::of_both(sessions, context.seed);
        let mut in_place = FloorBench::<true>::new(&flows, context.seed);
        let mut bench = NatBench::new(&flows, NEAR, context.seed)?;
        let mut floor = FloorOnPorts::new(&flows, &bench);
        let mut watch = Stopwatch::default();
        let mut bare_watch = Stopwatch::default();
        in_place.in_place(&mut bare_watch)?;
        floor.window(&mut watch)?;
        bench.window(&mut watch)?;
        let pairs = if context.full { 41 } else { 11 };
        let (mut ratios, mut ours, mut floors, mut bare) = (vec![], vec![], vec![], vec![]);
        for pair in 0..pairs {
            let (below, above) = if pair % 2 == 0 {
                let below = floor.window(&mut watch)?;
                (below, bench.window(&mut watch)?)
            } else {
                let above = bench.window(&mut watch)?;
                (floor.window(&mut watch)?, above)
            };
            ratios.push(above / below);
            ours.push(above);
            floors.push(below);
            bare.push(above / in_place.in_place(&mut bare_watch)?);
        }
        let spread = Spread::of(&ratios);
        if spread.median > worst {
            worst = spread.median;
            outcome = Outcome::of(&spread);
        }
        extras.push((name, ratios, [ours, floors, bare], watch.lost()));
    }
    for (name, ratios, [ours, floors, bare], lost) in extras {
        outcome = outcome
            .variant(name, Spread::of(&ratios).median)
            .variant(format!("{name}-ns"), Spread::of(&ours).median)
            .variant(format!("{name}-floor-ns"), Spread::of(&floors).median)
            .variant(format!("{name}-over-in-place"), Spread::of(&bare).median)
            .samples(name, ratios)
            .lost(lost);
    }
    Ok(outcome)
}
