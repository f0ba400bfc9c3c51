//! Seeds pass, replay exactly, and add up to the same whatever the number of threads.

use std::collections::BTreeSet;

use asterism_sim::{
    FAULTS_LEAST, KINDS_LEAST, OPERATIONS_LEAST, Options, Scenario, Trace, run_seed, run_seeds,
};

/// Seeds beyond those of CI that the ledger's runs found, each with what was wrong (`docs/src/ledger.md`).
const FOUND: [(u64, &str); 20] = [
    (
        12_093,
        "engine: the word that a stream is applied found the ring full",
    ),
    (30_614, "the same"),
    (
        21_913,
        "the scenario: an image carried the odd replica's entry on",
    ),
    (
        57_882,
        "placement: a relay carried acknowledgements to those alone that it heard itself",
    ),
    (
        50_930,
        "the scenario: a stranger came before the member whose name it had",
    ),
    (501_967, "the same"),
    (
        50_138,
        "the scenario: a command that found no room for one of its entries left it out",
    ),
    (509_962, "the same"),
    (
        91_630,
        "placement: the word that a full window has room again was lost, and nothing asked for it",
    ),
    (
        122_558,
        "the scenario: a stranger came before the member was heard, whose groups images had brought",
    ),
    (
        137_208,
        "state: who returned granted from all of its place until its pools looked at the epoch's assignment",
    ),
    (
        153_367,
        "the scenario: a last message was sent behind what a narrow link still had queued",
    ),
    (176_409, "the same"),
    (610_349, "the same"),
    (
        567_342,
        "state: an image did not say who had used an ended entry last",
    ),
    (
        745_547,
        "the scenario: who was served by an image never saw what nobody can read",
    ),
    (
        856_363,
        "the scenario: it looked in step with the auditor's reading, which is work that waits",
    ),
    (
        419_183,
        "the scenario: with logs of eleven groups all are equal 9.8 s after a return, not 9.2",
    ),
    (
        901_658,
        "the scenario: on a path that counts as congested repairs go 16 KiB in a round trip",
    ),
    (
        926_520,
        "the scenario: so does the last message, if something went again before",
    ),
];

#[test]
fn seeds_that_found_something_pass() {
    for (seed, what) in FOUND {
        let outcome = run_seed(seed, &mut Trace::new());
        assert!(outcome.is_ok(), "{seed}, {what}: {outcome:?}");
    }
}

#[test]
fn seeds_pass_and_enough_happens_in_each() {
    let summary = run_seeds(0..60, Options::default());
    for failed in &summary.failed {
        eprintln!("{failed}");
    }
    assert!(summary.failed.is_empty());
    assert_eq!(summary.passed, 60);
    assert!(summary.faults_least >= FAULTS_LEAST);
    assert!(summary.kinds_least as usize >= KINDS_LEAST);
    assert!(summary.operations_least >= OPERATIONS_LEAST);
    assert!(summary.faults.len() >= 10, "{:?}", summary.faults);
    for branch in [
        "images_joined",
        "walks_begun",
        "retransmits_by_timeout",
        "retransmits_by_echo",
        "groups_beyond_reorder",
        "groups_beyond_unapplied",
        "groups_covered_by_image",
        "table_forgotten",
        "table_revived",
        "table_dominated",
        "table_lost_writes",
        "pool_refused",
        "instance_late",
        "channel_backlogged",
        "frames_skipped",
    ] {
        assert!(
            summary.branches.get(branch).copied().unwrap_or(0) > 0,
            "{branch} was never taken"
        );
    }
}

#[test]
fn a_seed_replays_exactly() {
    let mut hashes = BTreeSet::new();
    for seed in 1_000..1_006 {
        let runs = [0, 1].map(|_| run_seed(seed, &mut Trace::new()).expect("the seed passes"));
        assert_eq!(runs[0], runs[1], "seed {seed}");
        hashes.insert(runs[0].trace);
    }
    assert_eq!(hashes.len(), 6, "seeds differ");
}

#[test]
fn threads_change_nothing() {
    let of = |threads| {
        let options = Options {
            threads,
            ..Options::default()
        };
        run_seeds(2_000..2_012, options)
    };
    assert_eq!(of(1), of(3));
}

#[test]
fn every_setting_comes_up() {
    let all: Vec<Scenario> = (0..400).map(Scenario::from_seed).collect();
    assert!((2..=5).all(|members| all.iter().any(|scenario| scenario.members() == members)));
    assert!(all.iter().any(|scenario| scenario.stranger.is_some()));
    assert!(all.iter().any(|scenario| scenario.later_build));
    assert!(all.iter().any(|scenario| scenario.rough_start));
    assert!(all.iter().any(|scenario| scenario.clocks_step));
    assert!(all.iter().any(|scenario| scenario.afterlife));
    assert!(
        all.iter()
            .any(|scenario| scenario.lanes.contains(&1) && scenario.lanes.contains(&2))
    );
    assert_eq!(Scenario::from_seed(7), Scenario::from_seed(7));
}
