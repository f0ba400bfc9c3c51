//! `join.pause`: the longest turn of the packet loop of a host whose tables another one joins by, under full write load.

use super::join_load::{self, BYTES_PER_ENTRY, Turns};
use super::replication_hosts::provide_memory;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, wall_ns};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "join.pause",
    make: pause,
}];

/// Entries, what they are called, and runs in the short form; none: only in the long one.
const SIZES: [(u32, &str, usize); 3] = [
    (20_000, "20k", 5),
    (1_000_000, "1m", 5),
    (10_000_000, "10m", 0),
];
/// Runs in the short form at least, and the wall time after which no further one is begun.
const RUNS_LEAST: usize = 2;
const PATIENCE_NS: u64 = 18_000_000_000;
/// Runs of the long form.
const RUNS_FULL: usize = 7;
/// Runs of the largest size.
const RUNS_LARGEST: usize = 2;

/// Turns of several runs of one size, joined, and the longest turn of any.
pub(super) fn turns_of(
    context: &Context,
    (entries, name, runs): (u32, &str, usize),
) -> Result<Option<(Turns, f64)>, Failure> {
    let runs = match (context.full, runs) {
        (false, 0) => return Ok(None),
        (false, runs) => runs,
        (true, 0) => RUNS_LARGEST,
        (true, _) => RUNS_FULL,
    };
    provide_memory(entries as usize * BYTES_PER_ENTRY);
    let mut all = Vec::new();
    let mut longest = 0.0f64;
    let begun = wall_ns();
    for run in 0..runs {
        // On a busy machine fewer runs have to do: what it took from the work then stays in the figure.
        if !context.full && run >= RUNS_LEAST && wall_ns() - begun > PATIENCE_NS {
            break;
        }
        let turns = join_load::run(entries, context.seed)?;
        let this = worst_us(&turns.sponsor[turns.join.0..turns.join.1]);
        context.say(&format!(
            "{name}, run {}: longest turn {this:.1} µs",
            run + 1
        ));
        longest = longest.max(this);
        all.push(turns);
    }
    Ok(Some((Turns::least(all)?, longest)))
}

/// The longest of some turns, in microseconds.
fn worst_us(turns: &[u32]) -> f64 {
    f64::from(turns.iter().copied().max().unwrap_or(0)) / 1e3
}

fn median_us(turns: &[u32]) -> f64 {
    let turns: Vec<f64> = turns.iter().map(|&turn| f64::from(turn) / 1e3).collect();
    Spread::of(&turns).median
}

fn pause(context: &Context) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let mut value = None;
    for size in SIZES {
        let Some((turns, longest)) = turns_of(context, size)? else {
            continue;
        };
        let name = size.1;
        let before = &turns.sponsor[..turns.join.0];
        let during = &turns.sponsor[turns.join.0..turns.join.1];
        let walking = &turns.sponsor[turns.walk.0..=turns.walk.1];
        let other = &turns.other[turns.join.0..turns.join.1];
        let worst = worst_us(during);
        outcome = outcome
            .variant(format!("{name}-worst"), worst)
            .variant(format!("{name}-worst-before"), worst_us(before))
            .variant(format!("{name}-worst-at-other"), worst_us(other))
            .variant(
                format!("{name}-worst-at-newcomer"),
                worst_us(&turns.newcomer),
            )
            .variant(format!("{name}-worst-of-single-runs"), longest)
            .variant(format!("{name}-median-before"), median_us(before))
            .variant(format!("{name}-median-walking"), median_us(walking))
            .variant(format!("{name}-turns-of-walk"), walking.len() as f64)
            .variant(format!("{name}-turns-of-join"), during.len() as f64)
            .variant(format!("{name}-parts"), turns.parts as f64)
            .variant(
                format!("{name}-places-per-turn-most"),
                turns.places_most as f64,
            );
        if name == "1m" {
            value = Some((worst, if context.full { RUNS_FULL } else { size.2 }));
        }
    }
    let (worst, runs) = value.ok_or_else(|| Failure::Unsound("nothing was tried".into()))?;
    Ok(outcome.with_value(worst, runs as u32))
}
