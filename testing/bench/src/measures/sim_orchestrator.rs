//! `sim.orchestrator`: seeds in which hosts, orchestrators, the store or the steering fail and the cluster does not keep its rules.
//!
//! The simulator runs them (`testing/sim/src/orchestrator`); its planted bugs of the controller are part of `sim.mutants`.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_sim::Options;
use asterism_sim::orchestrator::run_orchestrators;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::wall_ns;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "sim.orchestrator",
    make: seeds,
}];

/// Seeds that are run together.
const SEEDS_TOGETHER: u64 = 100;
/// Seeds of the long form.
const SEEDS_FULL: u64 = 3_000;
/// The short form begins no further seeds after so long.
const SHORT: Duration = Duration::from_secs(20);
/// Kinds of faults that must all have happened, or the seeds prove nothing.
const KINDS: usize = 16;

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
    let (mut done, mut failed, mut judged) = (0, 0, 0);
    let mut faults = BTreeMap::<&str, u64>::new();
    while goes_on(done) {
        let summary = run_orchestrators(done..done + SEEDS_TOGETHER, options);
        for one in &summary.failed {
            context.say(&one.to_string());
        }
        for (kind, count) in &summary.faults {
            *faults.entry(kind).or_default() += count;
        }
        failed += summary.failed.len();
        judged += summary.judged;
        done += SEEDS_TOGETHER;
        context.say(&format!("{done} seeds, of which {failed} failed"));
    }
    if faults.len() < KINDS {
        return Err(Failure::Unsound(format!(
            "{} kinds of faults happened, of {KINDS}",
            faults.len()
        )));
    }
    let outcome = Outcome::new(failed as f64, 1)
        .variant("seeds", done as f64)
        .variant("claims", judged as f64);
    let by_kind = |outcome: Outcome, (kind, count): (&str, u64)| {
        outcome.variant(kind.replace(' ', "-"), count as f64)
    };
    Ok(faults.into_iter().fold(outcome, by_kind))
}
