//! Seeds of network functions pass, replay exactly, and each function is judged by what it does.

use asterism_sim::functions::{FUNCTIONS, Plan, Subject, run_functions, run_functions_seed};
use asterism_sim::{Options, Trace};

#[test]
fn seeds_of_all_functions_pass_and_all_that_is_judged_occurs() {
    let summary = run_functions(0..160, Options::default());
    for failed in &summary.failed {
        eprintln!("{failed}");
    }
    assert!(summary.failed.is_empty());
    assert_eq!(summary.passed, 160);
    for fault in ["death", "return", "loss", "duplication", "reordering"] {
        assert!(summary.faults.get(fault).copied() > Some(0), "{fault}");
    }
    for name in [
        "nat",
        "firewall",
        "balancer",
        "limiter",
        "monitor",
        "port-scan",
        "signature",
        "pass-through",
        "attacks",
        "backends watched",
        "new flows that avoid",
        "nat asked for ports",
        "nat of a carrier",
        "packets that may bind nothing",
        "packets that may open nothing",
        "blocks held against the log",
        "refused in roll calls",
        "chain",
        "web-cache digests",
        "misses",
        "queries of unknown digests",
        "digests served",
        "reports of what was not there",
        "thefts refused",
        "visits of asked ports",
        "late answers",
        "bindings lost with their host",
        "connections between the ends of one that ended",
        "late",
        "packets that had to keep a binding",
        "packets that only the dead had counted",
        "passed limits of tenants",
        "roll calls",
        "signatures",
        "lists of signatures changed",
        "signatures over a change of lists",
        "streams with a part alone",
        "sums held against packets",
    ] {
        let count = summary.branches.get(name).copied();
        assert!(count > Some(0), "{name} never occurred");
    }
}

#[test]
fn a_seed_of_each_function_replays_exactly() {
    for seed in 800..800 + 4 * FUNCTIONS.len() as u64 {
        let runs =
            [0, 1].map(|_| run_functions_seed(seed, &mut Trace::new()).expect("the seed passes"));
        assert_eq!(runs[0], runs[1], "seed {seed}, {:?}", Subject::of(seed));
        assert!(runs[0].delivered > 0, "seed {seed}: nothing left");
    }
}

#[test]
fn plans_have_both_kinds_of_routing_deaths_and_returns() {
    let plans: Vec<Plan> = (0..200).map(Plan::from_seed).collect();
    let count = |has: fn(&Plan) -> bool| plans.iter().filter(|plan| has(plan)).count();
    assert!((30..170).contains(&count(|plan| plan.sprays)));
    assert!((30..170).contains(&count(|plan| plan.deals_again)));
    assert!((100..200).contains(&count(|plan| plan.death.is_some())));
    let returns = |plan: &Plan| {
        let death = plan.death.as_ref();
        death.is_some_and(|death| death.returns.is_some())
    };
    assert!((30..170).contains(&count(returns)));
    assert!(count(|plan| plan.link.loss == 0.0) > 0);
    let victims = plans
        .iter()
        .filter_map(|plan| Some((plan, plan.death.as_ref()?)));
    for (plan, death) in victims {
        assert!(death.victim < plan.hosts);
    }
}
