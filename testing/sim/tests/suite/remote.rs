//! Seeds of hosts with the shipped client of a store pass, replay exactly, and have all that may go wrong.

use asterism_sim::remote::{Ack, Keeps, RemotePlan, run_remote_seed, run_remotes};
use asterism_sim::{Options, Trace};

#[test]
fn seeds_of_real_clients_pass_and_all_that_is_judged_occurs() {
    let summary = run_remotes(0..100, Options::default());
    for failed in &summary.failed {
        eprintln!("{failed}");
    }
    assert!(summary.failed.is_empty());
    assert_eq!(summary.passed, 100);
    for fault in [
        "cut",
        "cut of a host",
        "death",
        "death of a primary",
        "demotion",
        "full primary",
        "pause",
        "primary with too few replicas",
        "return",
        "shard that is away",
        "stall",
    ] {
        assert!(summary.faults.get(fault).copied() > Some(0), "{fault}");
    }
    for name in [
        "nothing kept, the primary has it",
        "nothing kept, a replica has it",
        "answers kept, the primary has it",
        "answers kept, a replica has it",
        "keys known, the primary has it",
        "keys known, a replica has it",
        "commits",
        "commits of hosts that had died",
        "commits that a failover undid",
        "entries whose end was committed",
        "hosts that died while they loaded",
        "hosts that died while they read",
        "hosts that died while they waited for a replica",
        "hosts that died with a try under way",
        "packets committed whose host died before they left",
        "packets given up whose keys were another shard's",
        "packets that left and were forgotten by the store",
        "packets that left while another shard was away",
        "packets that read alone",
        "packets that read what has changed since",
        "packets to hosts that had died",
        "runs at whose end all entries ended",
        "runs with three shards",
        "runs with two shards",
    ] {
        let count = summary.branches.get(name).copied();
        assert!(count > Some(0), "{name} never occurred");
    }
}

#[test]
fn a_seed_of_each_way_to_keep_answers_replays_exactly() {
    let mut delivered = 0;
    for seed in 900..900 + Keeps::ALL.len() as u64 {
        let runs =
            [0, 1].map(|_| run_remote_seed(seed, &mut Trace::new()).expect("the seed passes"));
        assert_eq!(runs[0], runs[1], "seed {seed}");
        delivered += runs[0].delivered;
    }
    assert!(delivered > 0, "nothing left");
}

/// What a shard of a store without others decides is as it was before there were any: the seeds that find planted bugs are among them.
#[test]
fn a_quarter_of_the_seeds_have_shards_with_conversations_of_their_own() {
    let plans: Vec<RemotePlan> = (0..400).map(RemotePlan::from_seed).collect();
    let sharded = plans.iter().filter(|plan| plan.shards.len() > 1);
    assert!((70..130).contains(&sharded.clone().count()));
    for plan in sharded {
        assert!((2..=3).contains(&plan.shards.len()));
        assert_eq!(plan.clients.len(), 2 * plan.shards.len(), "{plan:?}");
    }
    let whole = plans.iter().filter(|plan| plan.shards.len() == 1);
    for plan in whole {
        assert_eq!((plan.clients.len(), plan.stray), (1, None));
    }
}

#[test]
fn each_way_to_keep_answers_is_run_with_each_acknowledgement() {
    let plans: Vec<RemotePlan> = (0..30).map(RemotePlan::from_seed).collect();
    for keeps in Keeps::ALL {
        for ack in [Ack::Primary, Ack::Replica] {
            let mut plans = plans.iter();
            assert!(plans.any(|plan| (plan.keeps, plan.ack) == (keeps, ack)));
        }
    }
}
