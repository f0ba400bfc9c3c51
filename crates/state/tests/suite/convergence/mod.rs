//! Replicas of a state with one object of every kind become equal, whatever the order in which their
//! operations arrive, and hold what the rules say.
//!
//! A failing seed is printed; `asterism_state` has no other source of chance.

#![allow(unreachable_pub, reason = "modules of one test, not a library")]

mod accumulated;
mod cluster;
mod graph;
mod inheritance;
mod leases;
mod oracle;
mod repairs;
mod shared;
mod successors;
mod windowed;

#[cfg(asterism_mutants)]
mod planted;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use asterism_state::audit::{LEAVES, Leaf, UNSURE};
use asterism_state::{Inspect, State};
use cluster::Cluster;
use shared::{CAPACITY, Chance, Shared};

/// Runs a cluster from a seed; panics where a rule is broken.
pub fn run(seed: u64) {
    let mut chance = Chance(seed ^ 0xC0FF_EE00);
    let members = 2 + chance.below(3);
    let ordered = chance.one_in(2);
    let steps = 40 + chance.below(400);
    let mut cluster = Cluster::new(seed, members, ordered);
    for _ in 0..1 + chance.below(3) {
        for _ in 0..steps {
            cluster.step();
        }
        cluster.settle();
        equal(&cluster);
        oracle::check(&cluster);
    }
    cluster.age();
    equal(&cluster);
    for replica in &cluster.replicas {
        let state = &replica.state;
        for held in [
            state.winners.held(),
            state.joins.held(),
            state.members.held(),
            state.pairs.held(),
            state.sessions.held(),
            state.users.held(),
        ] {
            assert_eq!(held, 0, "what idled out is forgotten");
        }
        assert_eq!(state.recent.entries(), 0, "old keys are forgotten");
        assert_eq!(state.limits.entries(), 0, "full buckets are forgotten");
        assert_eq!(state.talk.entries_held(), 0, "edges are forgotten");
        assert_eq!((state.talk.edges(), state.talk.nodes()), (0, 0));
        assert_eq!(state.ports.usage().in_use, 0, "every port came back");
    }
}

/// What hosts would compare is the same at both, where they are sure, and is what a look at everything gives.
fn audited<S: State>(name: &str, (here, there): (&S, &S), object: u8) {
    let leaves = |state: &S| {
        let mut leaves = [Leaf::default(); LEAVES];
        let kept = state.object(object)?.leaves(0, &mut leaves);
        kept.then(|| leaves.map(|leaf| leaf.digest))
    };
    let (Some(kept), Some(others)) = (leaves(here), leaves(there)) else {
        return;
    };
    if !kept.contains(&UNSURE) {
        let sum = kept.iter().fold(0u64, |sum, leaf| sum.wrapping_add(*leaf));
        assert_eq!(
            here.object(object).map(|object| object.announced()),
            Some(sum),
            "{name} is kept"
        );
    }
    for (here, there) in kept.into_iter().zip(others) {
        let is_sure = here != UNSURE && there != UNSURE;
        assert!(!is_sure || here == there, "{name} is compared");
    }
}

/// All members hold the same, and nothing was refused.
fn equal(cluster: &Cluster) {
    let first = &cluster.replicas[0].state;
    for replica in &cluster.replicas {
        let state = &replica.state;
        for ((name, here), there) in Shared::OBJECTS
            .iter()
            .zip(state.digests())
            .zip(first.digests())
        {
            assert_eq!(here, there, "{name} differs");
        }
        for (object, name) in (0..).zip(Shared::OBJECTS) {
            audited(name, (state, first), object);
        }
        assert_eq!(
            state.total.get(),
            Ok(cluster.added),
            "the sum of all adding"
        );
        let mut keyed = 0;
        state.keyed.for_each(|_, total| keyed += total);
        assert_eq!(keyed, cluster.added_keyed, "the sum of all adding by key");
        cluster.accumulated.check(state).expect("nothing is late");
        let windowed = cluster.windowed.check(&replica.context, state);
        windowed.expect("nothing is late");
        assert_eq!(state.latest.get(), first.latest.get());
        assert_eq!(state.flags.get(), first.flags.get());
        for tally in [
            state.winners.tally(),
            state.joins.tally(),
            state.members.tally(),
            state.pairs.tally(),
            state.sessions.tally(),
            state.users.tally(),
            state.talk.tally(),
        ] {
            assert_eq!(tally.refused_full, 0, "leased capacity never runs out");
        }
        assert_eq!(state.keyed.refused_full(), 0);
        assert_eq!(state.recent.refused_full(), 0);
        assert_eq!(state.limits.tally().refused_full, 0);
        assert!(state.winners.len_now() <= CAPACITY as usize);
    }
}

fn seeds(from: u64, count: u64) {
    for seed in from..from + count {
        if let Err(fault) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("seed {seed} broke a rule");
            resume_unwind(fault);
        }
    }
}

#[test]
fn replicas_become_equal_and_keep_the_rules() {
    seeds(0, 1_000);
}

#[test]
fn and_on_other_seeds() {
    seeds(1 << 32, 1_000);
}
