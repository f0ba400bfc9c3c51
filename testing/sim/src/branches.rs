//! How often each branch of the protocols was taken, from the product's own counts.

use std::collections::BTreeMap;

use asterism_engine::Cluster;
use asterism_secure_channel::Refusal;

use crate::exercise::Exercise;

/// Times that each counted branch must be taken over 10,000 seeds, as `./test --nightly` runs them.
pub const TIMES_LEAST: u64 = 100;

/// Counts that are not branches, or that only a lying member or hundreds of deaths or datagrams at once bring about.
const NOT_BRANCHES: [&str; 6] = [
    "frames_inert",
    "incarnations_forgotten",
    "bytes_sent",
    "frames_refused",
    "handing_full",
    "answers_full",
];

/// The counts of a cluster.
pub fn count(cluster: &Cluster<Exercise>) -> BTreeMap<&'static str, u64> {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut add = |name, count| *counts.entry(name).or_default() += count;
    for member in cluster.members() {
        let channel = &member.channel;
        channel.counters().each(|name, reason, count| {
            if reason.is_none() && !NOT_BRANCHES.contains(&name) {
                add(name, count);
            }
        });
        channel.relay_tally().each(|name, count| {
            if !NOT_BRANCHES.contains(&name) {
                add(name, count);
            }
        });
        let tally = channel.tally();
        add("channel_refused_sealed", tally.refused_sealed);
        add("channel_held_by_log", tally.held_by_log);
        add("channel_backlogged", tally.backlogged);
        add("placement_refused", tally.refused_opened);
        for (reason, count) in channel.secure().refusals().iter() {
            match reason {
                Refusal::Replayed => add("sealed_replayed", count),
                Refusal::NotAdmitted => add("sealed_not_admitted", count),
                _ => {}
            }
        }
        for instance in &member.instances {
            let tally = instance.tally();
            add("instance_late", tally.late);
            add("instance_groups_applied", tally.groups_applied);
            add("instance_dropped", tally.dropped_total());
            let state = instance.state();
            for table in [
                state.winners.tally(),
                state.joined.tally(),
                state.sessions.tally(),
                state.banned.tally(),
                state.visited.tally(),
            ] {
                add("table_dominated", table.shadowed);
                add("table_lost_writes", table.lost_writes);
                add("table_forgotten", table.forgotten);
                add("table_revived", table.resurrected);
            }
            add("pool_refused", state.ports.usage().refused);
            add("tokens_refused", state.limits.tally().refused);
        }
    }
    counts
}

/// How often this thread took the branches that the product's crates mark, since it was asked last. In builds without planted bugs
/// none is counted.
pub fn take_marked() -> BTreeMap<&'static str, u64> {
    #[cfg(not(asterism_mutants))]
    return BTreeMap::new();
    #[cfg(asterism_mutants)]
    {
        use asterism_engine::branch as engine;
        use asterism_placement::branch as placement;
        use asterism_state::branch as state;

        let state = state::Branch::ALL.map(state::Branch::name).into_iter();
        let state = state.zip(state::take_counts());
        let placement = placement::Branch::ALL.map(placement::Branch::name);
        let placement = placement.into_iter().zip(placement::take_counts());
        let engine = engine::Branch::ALL.map(engine::Branch::name);
        let engine = engine.into_iter().zip(engine::take_counts());
        state.chain(placement).chain(engine).collect()
    }
}

/// Seeds over which each marked branch must be taken, in builds with planted bugs; others mark none.
pub const SEEDS_FOR_MARKS: u64 = 400;

/// Times that each marked branch must be taken over [`SEEDS_FOR_MARKS`].
pub const MARKED_LEAST: u64 = 10;

/// Marked branches that seeds hardly take, and what takes them.
const MARKED_ELSEWHERE: &[(&str, &str)] = &[
    (
        "ConfirmOfStranger",
        "deaths in a row: `crates/placement/tests/suite/membership`",
    ),
    ("EndedWithoutBeginning", "the same"),
    (
        "NewcomerHeldUp",
        "the same, by planted bug `JoinsOutOfOrder`",
    ),
    (
        "RemovalJoined",
        "more than ten streams: `crates/state/tests/suite/convergence`",
    ),
    (
        "StreamUnknown",
        "a host that never heard a stream: `crates/state/src/table/purge.rs`",
    ),
];

/// Marked branches taken fewer than [`MARKED_LEAST`] times, but for those that other tests take.
pub fn hardly_taken(counts: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
    // A count of a cluster begins with a small letter.
    let marked = counts
        .iter()
        .filter(|(name, _)| name.starts_with(char::is_uppercase));
    let elsewhere = |name: &str| MARKED_ELSEWHERE.iter().any(|(other, _)| *other == name);
    marked
        .filter(|(name, count)| **count < MARKED_LEAST && !elsewhere(name))
        .map(|(name, count)| (*name, *count))
        .collect()
}

/// Branches that seeds may take fewer times: a relay has seldom more to say than it has room for. Tests of the core take them.
const RARE_BY_NATURE: &[&str] = &["naks_suppressed"];

/// Branches taken fewer than [`TIMES_LEAST`] times.
pub fn rare(counts: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
    counts
        .iter()
        .filter(|(name, count)| {
            **count < TIMES_LEAST
                && !RARE_BY_NATURE.contains(*name)
                && !name.starts_with(char::is_uppercase)
        })
        .map(|(name, count)| (*name, *count))
        .collect()
}
