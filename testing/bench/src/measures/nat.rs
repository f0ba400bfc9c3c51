//! `nat.*`: what a packet of a known session costs, and what replication adds to it.

use std::time::Duration;

use super::floor::FloorBench;
use super::nat_bench::{FloorOnPorts, NatBench, Placed};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::instructions::{self, Work, Workload};
use crate::timing::{Spread, Stopwatch};
use crate::traffic::{Flows, Protocol};

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
        prepare: || prepared(Placed::Local).prefetching().counted(),
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
    prepared(placed).counted()
}

fn prepared(placed: Placed) -> NatBench {
    let flows = Flows::of_both(SESSIONS, 1);
    NatBench::new(&flows, placed, 1).unwrap_or_else(|failure| panic!("{failure:?}"))
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
    context.say("measuring");
    let mut watch = Stopwatch::default();
    let found = windows(&mut bench, if context.full { 101 } else { 31 }, &mut watch)?;
    Ok(Outcome::of(&Spread::of(&found))
        .samples("replicated", found)
        .lost(watch.lost()))
}

/// What a packet took in each of so many windows, after one that does not count.
fn windows(bench: &mut NatBench, count: usize, watch: &mut Stopwatch) -> Result<Vec<f64>, Failure> {
    bench.window(watch)?;
    (0..count).map(|_| bench.window(watch)).collect()
}

/// Sessions, the name of their number, and set-ups, each with memory of its own: where tables happen to lie is worth up to a tenth, the
/// same for all pairs of one, and most where they are about as large as a cache.
const SIZES: [(u32, &str, u64); 3] = [
    (10_000, "10k", 9),
    (100_000, "100k", 3),
    (1_000_000, "1m", 3),
];

/// What the pairs of all set-ups of a size gave: ratios, and nanoseconds of the NAT, of the floor on the same ports, and of the NAT
/// over the floor in place.
#[derive(Default)]
struct OverFloor {
    ratios: Vec<f64>,
    ours: Vec<f64>,
    floors: Vec<f64>,
    over_in_place: Vec<f64>,
    watch: Stopwatch,
}

/// Both loops take the same packets from the same kind of port and send them to the same kind. Beside it, what the
/// hand-written NAT costs without ports, on frames that lie in order and stay where they are.
fn over_floor(context: &Context) -> Result<Outcome, Failure> {
    let mut worst = 0.0;
    let mut outcome = Outcome::new(0.0, 0);
    let mut found = Vec::new();
    for (sessions, name, count) in SIZES {
        let mut of_size = OverFloor::default();
        // Kept until the size is done, or the next set-up would lie where the one before lay.
        let mut set_ups = Vec::new();
        for set_up in 0..count {
            context.say(&format!("{name}, {} of {count}", set_up + 1));
            set_ups.push(of_size.measure(context, sessions, set_up)?);
        }
        let spread = Spread::of(&of_size.ratios);
        if spread.median > worst {
            worst = spread.median;
            outcome = Outcome::of(&spread);
        }
        found.push((name, of_size));
    }
    for (name, of_size) in found {
        let median = |values: &[f64]| Spread::of(values).median;
        outcome = outcome
            .variant(name, median(&of_size.ratios))
            .variant(format!("{name}-ns"), median(&of_size.ours))
            .variant(format!("{name}-floor-ns"), median(&of_size.floors))
            .variant(
                format!("{name}-over-in-place"),
                median(&of_size.over_in_place),
            )
            .samples(name, of_size.ratios)
            .lost(of_size.watch.lost());
    }
    // As many flows of UDP alone: what it costs that nobody knows which transport comes next.
    let flows = Flows::of(Protocol::Udp, SIZES[0].0, context.seed);
    let mut bench = NatBench::new(&flows, NEAR, context.seed)?;
    let of_udp = windows(&mut bench, 21, &mut Stopwatch::default())?;
    Ok(outcome.variant("10k-udp-ns", Spread::of(&of_udp).median))
}

impl OverFloor {
    /// Adds the pairs of one set-up, which is handed back.
    fn measure(
        &mut self,
        context: &Context,
        sessions: u32,
        set_up: u64,
    ) -> Result<(NatBench, FloorOnPorts, FloorBench<true>), Failure> {
        let seed = context.seed + set_up;
        let flows = Flows::of_both(sessions, seed);
        let mut in_place = FloorBench::<true>::new(&flows, seed);
        let mut bench = NatBench::new(&flows, NEAR, seed)?;
        let mut floor = FloorOnPorts::new(&flows, &bench);
        let watch = &mut self.watch;
        let mut bare_watch = Stopwatch::default();
        in_place.in_place(&mut bare_watch)?;
        floor.window(watch)?;
        bench.window(watch)?;
        for pair in 0..if context.full { 21 } else { 5 } {
            let (below, above) = if pair % 2 == 0 {
                let below = floor.window(watch)?;
                (below, bench.window(watch)?)
            } else {
                let above = bench.window(watch)?;
                (floor.window(watch)?, above)
            };
            self.ratios.push(above / below);
            self.ours.push(above);
            self.floors.push(below);
            self.over_in_place
                .push(above / in_place.in_place(&mut bare_watch)?);
        }
        Ok((bench, floor, in_place))
    }
}
