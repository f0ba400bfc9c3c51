//! `sim.remote`: seeds in which links to a store, the store or hosts fail and the hosts do not do what one box does.
//!
//! The simulator runs them: half of them have an abstract store (`testing/sim/src/stores`), half the shipped client and the embedded store's
//! engine (`testing/sim/src/remote`). The bugs that are planted for them are part of `sim.mutants`.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_sim::Options;
use asterism_sim::remote::run_remotes;
use asterism_sim::stores::run_stores;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::wall_ns;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "sim.remote",
    make: seeds,
}];

/// Seeds that are run together, half of them of each kind.
const SEEDS_TOGETHER: u64 = 100;
/// Seeds of the long form.
const SEEDS_FULL: u64 = 3_000;
/// The short form begins no further seeds after so long.
const SHORT: Duration = Duration::from_secs(20);
/// Faults, and what came of them, that must all have happened, or the seeds prove nothing.
const FAULTS: &[&str] = &[
    "cut",
    "death",
    "death of a primary",
    "demotion",
    "duplication",
    "full primary",
    "loss",
    "outage",
    "pause",
    "primary with too few replicas",
    "return",
    "stall",
];
const BRANCHES: &[&str] = &[
    "commits of hosts that had died",
    "commits that a failover undid",
    "entries whose end was committed",
    "hosts that died while they loaded",
    "hosts that died while they read",
    "hosts that died while they waited for a replica",
    "hosts that died with a try under way",
    "packets committed whose host died before they left",
    "transactions decided before",
    "transactions refused",
];

fn seeds(context: &Context) -> Result<Outcome, Failure> {
    let options = Options {
        threads: std::thread::available_parallelism().map_or(1, |count| count.get()),
        ..Options::default()
    };
    let began_ns = wall_ns();
    let goes_on = |done: u64| match context.full {
        true => done < SEEDS_FULL,
        false => wall_ns() - began_ns < SHORT.as_nanos() as u64,
    };
    let (mut done, mut failed) = (0, 0);
    let mut happened = BTreeMap::<&str, u64>::new();
    while goes_on(done) {
        let seeds = done / 2..(done + SEEDS_TOGETHER) / 2;
        let with_client = run_remotes(seeds.clone(), options);
        for summary in [run_stores(seeds, options), with_client] {
            for one in &summary.failed {
                context.say(&one.to_string());
            }
            for (what, count) in summary.faults.iter().chain(&summary.branches) {
                *happened.entry(what).or_default() += count;
            }
            failed += summary.failed.len();
        }
        done += SEEDS_TOGETHER;
        context.say(&format!("{done} seeds, of which {failed} failed"));
    }
    let mut expected = FAULTS.iter().chain(BRANCHES);
    if let Some(missing) =
        expected.find(|what| happened.get(**what).is_none_or(|count| *count == 0))
    {
        return Err(Failure::Unsound(format!("{missing} never happened")));
    }
    let outcome = Outcome::new(failed as f64, 1).variant("seeds", done as f64);
    let by_what = |outcome: Outcome, (what, count): (&str, u64)| {
        outcome.variant(what.replace(' ', "-"), count as f64)
    };
    Ok(happened.into_iter().fold(outcome, by_what))
}
