//! The replicated placement as a cluster in memory: seeded loss, duplication, reordering, cuts, pauses, slow appliers,
//! skewed clocks and strangers, then a heal phase that must end with everything equal, pruned and stable.
//!
//! A failing seed prints the command that replays it. `ASTERISM_SEEDS` sets how many seeds are run, from 0.

mod bytes;
mod clocks;
mod coalescing;
mod host;
mod network;
#[cfg(asterism_mutants)]
mod planted;
mod scenarios;
mod world;

use world::World;

const SEEDS: u64 = 2_000;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn run(seed: u64) -> world::Report {
    match World::new(seed).run() {
        Ok((report, _)) => report,
        Err(fault) => panic!(
            "seed {seed}: {fault}\nreplay: ASTERISM_SEED={seed} cargo test -p asterism-placement --test suite replicated:: one_seed"
        ),
    }
}

#[test]
fn every_seed_ends_equal() {
    let mut total = world::Report::default();
    // Two halves side by side: a seed shares nothing with another.
    let seeds = number("ASTERISM_SEEDS", SEEDS);
    let half = std::thread::spawn(move || (0..seeds / 2).map(run).collect::<Vec<_>>());
    let mut reports: Vec<_> = (seeds / 2..seeds).map(run).collect();
    reports.extend(half.join().expect("a seed failed"));
    for report in reports {
        total.steps += report.steps;
        total.scans += report.scans;
        total.snapshots_joined += report.snapshots_joined;
        total.retransmitted += report.retransmitted;
        total.refused += report.refused;
        total.heal_us = total.heal_us.max(report.heal_us);
    }
    println!("{seeds} seeds: {total:?} (heal_us is the longest)");
    assert!(
        total.scans > seeds / 20,
        "lagging_replicas were served: {total:?}"
    );
    assert!(
        total.snapshots_joined > seeds / 20
            && total.retransmitted > SEEDS
            && total.refused > SEEDS / 10
    );
}

#[test]
fn one_seed() {
    let seed = number("ASTERISM_SEED", 1);
    println!("{:?}", run(seed));
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [3, 77, 901] {
        let (first, second) = (run(seed), run(seed));
        assert_eq!((first.trace, first.steps), (second.trace, second.steps));
    }
}
