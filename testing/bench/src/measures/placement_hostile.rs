//! `placement.hostile`: seeds in which functions whose objects live in a hostile store differ from one sequential box.
//!
//! The simulator runs them (`testing/sim/src/stores`): each seed is a function, a choice of the objects that live in the store, hosts that
//! die and are replaced, and a store that is slow, forgetful, unwilling and away for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_sim::Options;
use asterism_sim::stores::{Homes, Subject, run_stores};

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::wall_ns;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "placement.hostile",
    make: hostile,
}];

/// Functions times choices of objects: so many seeds have each once.
const KINDS: u64 = (Subject::ALL.len() * Homes::ALL.len()) as u64;
/// Seeds that are run together, and then once more.
const SEEDS_TOGETHER: u64 = 10 * KINDS;
/// Seeds of the long form.
const SEEDS_FULL: u64 = 500 * KINDS;
/// The short form begins no further seeds after so long.
const SHORT: Duration = Duration::from_secs(20);
/// What must have happened, or the seeds prove nothing.
const HAPPENED: [&str; 6] = [
    "transactions refused",
    "transactions decided before",
    "requests to a store that was away",
    "hosts that died with a transaction under way",
    "commits of hosts that had died",
    "packets emitted",
];

fn hostile(context: &Context) -> Result<Outcome, Failure> {
    let options = Options {
        threads: std::thread::available_parallelism().map_or(1, |count| count.get()),
        ..Options::default()
    };
    let began_ns = wall_ns();
    let goes_on = |done: u64| match context.full {
        true => done < SEEDS_FULL,
        false => wall_ns() - began_ns < SHORT.as_nanos() as u64,
    };
    let (mut done, mut differing) = (0, 0);
    let mut counts = BTreeMap::<&str, u64>::new();
    while goes_on(done) {
        let range = done..done + SEEDS_TOGETHER;
        let [summary, again] = [0, 1].map(|_| run_stores(range.clone(), options));
        if summary.trace != again.trace {
            return Err(Failure::Unsound(format!(
                "two runs of the seeds {range:?} took different ways"
            )));
        }
        for failed in &summary.failed {
            context.say(&failed.to_string());
        }
        differing += summary.failed.len();
        for (name, count) in summary.branches.iter().chain(&summary.faults) {
            *counts.entry(name).or_default() += count;
        }
        done += SEEDS_TOGETHER;
        context.say(&format!("{done} seeds, of which {differing} differ"));
    }
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    if let Some(name) = HAPPENED.into_iter().find(|name| count(name) == 0) {
        return Err(Failure::Unsound(format!(
            "no {name}: the seeds prove nothing"
        )));
    }
    let variant =
        |outcome: Outcome, (name, of): (&str, &str)| outcome.variant(name, count(of) as f64);
    let all = [
        ("commits", "commits"),
        ("refusals", "transactions refused"),
        ("decided-before", "transactions decided before"),
        ("deaths", "death"),
        ("outages", "outage"),
        ("commits-of-dead-hosts", "commits of hosts that had died"),
    ];
    let outcome = Outcome::new(differing as f64, 2)
        .variant("functions-by-homes", KINDS as f64)
        .variant("seeds", done as f64);
    Ok(all.into_iter().fold(outcome, variant))
}
