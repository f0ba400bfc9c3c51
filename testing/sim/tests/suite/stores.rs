//! Seeds of objects in a store pass, replay exactly, and have all that may go wrong.

use asterism_sim::stores::{Homes, StorePlan, Subject, run_store_seed, run_stores};
use asterism_sim::{Options, Trace};

#[test]
fn seeds_of_stores_pass_and_all_that_is_judged_occurs() {
    let summary = run_stores(0..120, Options::default());
    for failed in &summary.failed {
        eprintln!("{failed}");
    }
    assert!(summary.failed.is_empty());
    assert_eq!(summary.passed, 120);
    for fault in ["death", "return", "loss", "duplication", "outage"] {
        assert!(summary.faults.get(fault).copied() > Some(0), "{fault}");
    }
    for name in [
        "accounts, all in the store",
        "accounts, even in the store",
        "accounts, odd in the store",
        "signature, all in the store",
        "signature, even in the store",
        "signature, odd in the store",
        "commits",
        "commits of hosts that had died",
        "hosts that died with a transaction under way",
        "packets committed whose host died before they left",
        "packets emitted",
        "packets to hosts that had died",
        "packets without the store",
        "requests to a store that was away",
        "transactions decided before",
        "transactions refused",
    ] {
        let count = summary.branches.get(name).copied();
        assert!(count > Some(0), "{name} never occurred");
    }
}

#[test]
fn a_seed_of_each_kind_replays_exactly() {
    let kinds = (Subject::ALL.len() * Homes::ALL.len()) as u64;
    let mut delivered = 0;
    for seed in 900..900 + kinds {
        let runs =
            [0, 1].map(|_| run_store_seed(seed, &mut Trace::new()).expect("the seed passes"));
        assert_eq!(runs[0], runs[1], "seed {seed}");
        delivered += runs[0].delivered;
    }
    assert!(delivered > 0, "nothing left");
}

#[test]
fn each_function_is_run_with_each_choice_of_objects() {
    let kinds = (Subject::ALL.len() * Homes::ALL.len()) as u64;
    let plans: Vec<StorePlan> = (0..kinds).map(StorePlan::from_seed).collect();
    for subject in Subject::ALL {
        for homes in Homes::ALL {
            let mut plans = plans.iter();
            assert!(plans.any(|plan| (plan.subject, plan.homes) == (subject, homes)));
        }
    }
}
