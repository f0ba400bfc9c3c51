//! How often each branch of the protocols was taken, from the product's own counts.

use std::collections::BTreeMap;

use asterism_engine::Cluster;
use asterism_placement::seal::Refusal;

use crate::exercise::Exercise;

/// Times that each counted branch must be taken over a CI run of 10,000 seeds.
pub const TIMES_LEAST: u64 = 100;

/// Counts that are not branches, or that only a lying member or hundreds of deaths or datagrams at once bring about.
const NOT_BRANCHES: [&str; 6] = [
    "frames_inert",
    "lives_forgotten",
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
        channel.replicator().counters().each(|name, reason, count| {
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
                add("table_dominated", table.dominated);
                add("table_lost_writes", table.lost_writes);
                add("table_forgotten", table.forgotten);
                add("table_revived", table.revived);
            }
            add("pool_refused", state.ports.usage().refused);
            add("tokens_refused", state.limits.tally().refused);
        }
    }
    counts
}

/// Branches that seeds may take fewer times: a relay has seldom more to say than it has room for. Tests of the core take them.
const RARE_BY_NATURE: &[&str] = &["lacks_unsaid"];

/// Branches taken fewer than [`TIMES_LEAST`] times.
pub fn rare(counts: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
    counts
        .iter()
        .filter(|(name, count)| **count < TIMES_LEAST && !RARE_BY_NATURE.contains(*name))
        .map(|(name, count)| (*name, *count))
        .collect()
}
