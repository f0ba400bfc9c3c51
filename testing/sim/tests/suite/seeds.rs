//! Seeds pass, replay exactly, and add up to the same whatever the number of threads.

use std::collections::BTreeSet;

use asterism_sim::functions::run_functions_seed;
use asterism_sim::{
    FAULTS_LEAST, KINDS_LEAST, OPERATIONS_LEAST, Options, Scenario, Trace, run_seed, run_seeds,
};

/// The simulator that a seed is for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A cluster and its faults: `asterism-sim seed N`.
    Cluster,
    /// A network function on several hosts: `asterism-sim function N`.
    Function,
}

use Kind::{Cluster, Function};

/// Seeds that failed once, each with the bug. A bug of the scenario is one of the simulator, not of the product. Later changes of
/// the scenarios gave some of these seeds another run than the one that failed.
const REGRESSIONS: [(u64, Kind, &str); 34] = [
    // Below 10,000, which `asterism-sim seeds 0..10000` runs too. The next test runs 0, 2, 4, 5, 8, 25, 30, 37 and 52, which failed once
    // as well; 6,883 takes seconds and is left to CI.
    (
        456,
        Cluster,
        "engine: a member with a full log reported groups as sent that still waited for room",
    ),
    (
        768,
        Cluster,
        "placement: a retransmission timer that expired early waited for a whole timeout more",
    ),
    (
        1_683,
        Cluster,
        "auditor: a late write that an earlier removal had shadowed raised an alarm",
    ),
    (1_947, Cluster, "the same"),
    (
        2_095,
        Cluster,
        "placement: an echo dated later data too, so a free path counted as congested",
    ),
    (6_213, Cluster, "the same"),
    (
        4_447,
        Cluster,
        "auditor: a peer's clock stepped while it held an echo, so half a snapshot was compared",
    ),
    (
        4_471,
        Cluster,
        "state: a late part of a snapshot resurrected entries that were removed and forgotten",
    ),
    (
        5_741,
        Cluster,
        "state: a port leaked when an ended copy that was never held here stood in its chain",
    ),
    (
        2_106,
        Function,
        "balancer: a reset in an open connection of another host counted as a refusal",
    ),
    // Beyond the seeds of CI.
    (
        10_044,
        Cluster,
        "placement: after a member stood still, losses towards it were repaired as much later",
    ),
    (10_431, Cluster, "the same"),
    (10_663, Cluster, "the same"),
    (
        12_093,
        Cluster,
        "engine: an acknowledgement of an applied stream was lost when its ring was full",
    ),
    (30_614, Cluster, "the same"),
    (
        20_077,
        Cluster,
        "state: a removing repair ignored what a snapshot had brought of ended incarnations",
    ),
    (
        21_913,
        Cluster,
        "scenario: a snapshot copied the planted difference to another member",
    ),
    (
        57_882,
        Cluster,
        "placement: a relay forwarded acknowledgements only to relays that it received from itself",
    ),
    (
        50_930,
        Cluster,
        "scenario: a stranger arrived before the member whose name it had",
    ),
    (501_967, Cluster, "the same"),
    (
        50_138,
        Cluster,
        "scenario: a command without room for one of its entries left that entry out",
    ),
    (509_962, Cluster, "the same"),
    (
        91_630,
        Cluster,
        "placement: nobody probed a closed window after the message that opens it was lost",
    ),
    (
        122_558,
        Cluster,
        "scenario: a stranger arrived before a member that was known by snapshots alone",
    ),
    (
        137_208,
        Cluster,
        "state: a member that returned granted ports before its pools knew the epoch's block assignment",
    ),
    (
        153_367,
        Cluster,
        "scenario: the lost last message was sent behind the queue of a narrow link",
    ),
    (176_409, Cluster, "the same"),
    (610_349, Cluster, "the same"),
    (
        567_342,
        Cluster,
        "state: a snapshot did not name the last user of an ended entry, so nobody expired it",
    ),
    (
        745_547,
        Cluster,
        "scenario: a member that was served by a snapshot never read the unreadable group",
    ),
    (
        856_363,
        Cluster,
        "scenario: equality was sampled in step with the auditor's reads, which count as work",
    ),
    (
        419_183,
        Cluster,
        "scenario: the bound for a return was too short for logs of eleven groups between sites",
    ),
    (
        901_658,
        Cluster,
        "scenario: the bound for healing ignored that congested paths repair 16 KiB a round trip",
    ),
    (
        926_520,
        Cluster,
        "scenario: so did the bound for the repair of a last message",
    ),
];

#[test]
fn seeds_that_failed_once_pass() {
    for (seed, kind, bug) in REGRESSIONS {
        let run = match kind {
            Cluster => run_seed,
            Function => run_functions_seed,
        };
        let outcome = run(seed, &mut Trace::new());
        assert!(outcome.is_ok(), "{kind:?} {seed}, {bug}: {outcome:?}");
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
        "snapshots_joined",
        "scans_begun",
        "retransmits_by_timeout",
        "retransmits_by_echo",
        "groups_beyond_reorder",
        "groups_beyond_unapplied",
        "groups_covered_by_snapshot",
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
