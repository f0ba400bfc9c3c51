//! Signals: which figures are beyond their thresholds, and since when.

use serde::Serialize;

use super::balance::shares_permille;
use super::decision::{Choice, Slack};
use super::fleet::Fleet;
use super::mutant::{self, Mutant};
use super::policy::{Consolidation, HotSpot, Thresholds};
use super::rules::Rules;
use super::sample::{BUCKETS_MAX, HostSample, Metric, PACKETS_PER_SECOND_MAX};
use super::state::State;
use super::time::UnixMs;

/// Loads that differ by less, in thousandths of the least, count as alike when a host is chosen to leave.
const ALIKE_PERMILLE: u128 = 100;

/// The load of one host beside the mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Heat {
    pub(super) host: String,
    pub(super) packets_per_second: u64,
    /// The share of the mean load, in thousandths.
    pub(super) load_permille: u64,
}

/// What the others could carry without the host that would leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpareLoad {
    pub(super) packets_per_second: u64,
    pub(super) others_carry: u64,
    pub(super) fewest: u32,
}

/// Updates since when signals are there.
pub(super) fn observe(state: &mut State, rules: &Rules, fleet: &Fleet<'_>, now: UnixMs) {
    if fleet.frozen().is_some() {
        state.restart_waits();
        return;
    }
    for (metric, thresholds) in &rules.thresholds {
        let is_above = fleet
            .typical(*metric)
            .is_some_and(|figure| figure > thresholds.out);
        if is_above {
            state.above.entry(*metric).or_insert(now);
        } else if !forgets_dips() {
            state.above.remove(metric);
        }
    }
    let slacks = slacks(rules, fleet);
    let all = slacks.iter().flatten();
    let fits = slacks.is_some() && all.clone().all(fits);
    let is_below = fits && all.clone().all(|slack| slack.figure < slack.within);
    state.below = since(state.below, is_below, now);
    let is_spare = rules.consolidation.is_some_and(|rules| {
        spare(rules, fleet).is_some_and(|load| load.packets_per_second <= load.others_carry)
    });
    state.spare = since(state.spare, fits && is_spare, now);
    let hot = rules.hot_spot.map(|rules| hot(rules, fleet));
    let hot = hot.unwrap_or_default();
    state
        .hot
        .retain(|host, _| hot.iter().any(|heat| heat.host == *host));
    for heat in hot {
        state.hot.entry(heat.host).or_insert(now);
    }
}

fn since(before: Option<UnixMs>, is_so: bool, now: UnixMs) -> Option<UnixMs> {
    is_so.then(|| before.unwrap_or(now))
}

fn forgets_dips() -> bool {
    mutant::active(Mutant::DipForgotten)
}

/// A metric as it is, and as it would be with one host less. None unless it is known of all of two or more hosts.
pub(super) fn slack(
    rules: &Rules,
    fleet: &Fleet<'_>,
    metric: Metric,
    thresholds: Thresholds,
) -> Option<Slack> {
    let figure = fleet.certain(metric)?;
    Some(Slack {
        metric,
        figure,
        within: thresholds.within,
        expected: fleet.with_one_less(figure)?,
        ceiling: rules.ceiling(thresholds),
    })
}

/// Whether a figure with one host less stays far enough below its threshold to add hosts.
pub(super) fn fits(slack: &Slack) -> bool {
    slack.expected <= slack.ceiling || mutant::active(Mutant::RemovalUnchecked)
}

/// All metrics with thresholds. None if there are none, or one of them is not known of all hosts.
pub(super) fn slacks(rules: &Rules, fleet: &Fleet<'_>) -> Option<Vec<Slack>> {
    let all = rules.thresholds.iter();
    let slacks = all.map(|(metric, thresholds)| slack(rules, fleet, *metric, *thresholds));
    let slacks: Option<Vec<Slack>> = slacks.collect();
    slacks.filter(|all| !all.is_empty())
}

/// The host that would leave: the newest of those with the least load for their weight.
pub(super) fn leaving<'a>(fleet: &Fleet<'a>) -> Option<(&'a HostSample, Choice)> {
    let newest = |sample: &&HostSample| (sample.standing_since, sample.host.clone());
    let Some(loads) = fleet.loads() else {
        let host = fleet.hosts().max_by_key(newest)?;
        let choice = Choice::Newest {
            packets_per_second: None,
        };
        return Some((host, choice));
    };
    let relative = |load: u64, weight: u64| u128::from(load) * 1_000_000_000 / u128::from(weight);
    let least = loads
        .iter()
        .map(|(_, load, weight)| relative(*load, *weight))
        .min()?;
    let alike = least + least * ALIKE_PERMILLE / 1_000;
    let candidates = loads
        .iter()
        .filter(|(_, load, weight)| relative(*load, *weight) <= alike);
    let count = candidates.clone().count();
    let (host, load, _) = candidates.max_by_key(|(sample, ..)| newest(sample))?;
    let choice = match count {
        1 => Choice::LeastLoaded {
            packets_per_second: *load,
        },
        _ => Choice::Newest {
            packets_per_second: Some(*load),
        },
    };
    Some((*host, choice))
}

/// The load beside what the others could carry. None unless loads and capacities of all of two or more hosts are known.
pub(super) fn spare(rules: Consolidation, fleet: &Fleet<'_>) -> Option<SpareLoad> {
    let (leaving, _) = leaving(fleet)?;
    let loads = fleet.loads().filter(|loads| loads.len() >= 2)?;
    let capacities: Option<Vec<(&str, u64)>> = fleet
        .hosts()
        .map(|sample| Some((sample.host.as_str(), sample.capacity()?)))
        .collect();
    let mut capacities = capacities?;
    let kept = u64::from(1_000_u32.saturating_sub(rules.head_room_permille));
    let carry = |capacity: u64| capacity * kept / 1_000;
    let others = capacities.iter().filter(|(host, _)| *host != leaving.host);
    let others_carry = carry(others.map(|(_, capacity)| capacity).sum());
    let packets_per_second = loads.iter().map(|(_, load, _)| load).sum();
    capacities.sort_by_key(|(_, capacity)| std::cmp::Reverse(*capacity));
    let mut fewest = 0;
    let mut sum = 0;
    for (_, capacity) in capacities {
        fewest += 1;
        sum += capacity;
        if carry(sum) >= packets_per_second {
            break;
        }
    }
    Some(SpareLoad {
        packets_per_second,
        others_carry,
        fewest,
    })
}

/// Whether the buckets of all hosts are known and no two hosts have the same one.
pub(super) fn has_buckets(fleet: &Fleet<'_>) -> bool {
    let mut numbers = Vec::new();
    for sample in fleet.hosts() {
        let Some(buckets) = &sample.buckets else {
            return false;
        };
        if numbers.len() + buckets.len() > BUCKETS_MAX {
            return false;
        }
        let is_sound = |load: u64| load <= PACKETS_PER_SECOND_MAX;
        if !buckets
            .iter()
            .all(|bucket| is_sound(bucket.packets_per_second))
        {
            return false;
        }
        numbers.extend(buckets.iter().map(|bucket| bucket.bucket));
    }
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    fleet.loads().is_some() && count == numbers.len()
}

/// Each host's share of the mean load: of its buckets' loads where the steering knows them, else of its packets/s. Empty where
/// the loads of some hosts are not known.
pub(super) fn heats(fleet: &Fleet<'_>) -> Vec<Heat> {
    let Some(loads) = fleet.loads() else {
        return Vec::new();
    };
    let by_bucket = has_buckets(fleet);
    let load = |sample: &HostSample, load: u64| match &sample.buckets {
        Some(buckets) if by_bucket => {
            let loads = buckets.iter().map(|bucket| bucket.packets_per_second);
            loads.sum()
        }
        _ => load,
    };
    let pairs: Vec<(u64, u64)> = loads
        .iter()
        .map(|(sample, own, weight)| (load(sample, *own), *weight))
        .collect();
    let heats = loads.iter().zip(&pairs).zip(shares_permille(&pairs));
    heats
        .map(|(((sample, ..), (load, _)), load_permille)| Heat {
            host: sample.host.clone(),
            packets_per_second: *load,
            load_permille,
        })
        .collect()
}

/// Hosts that are hot now.
fn hot(rules: HotSpot, fleet: &Fleet<'_>) -> Vec<Heat> {
    let mut heats = heats(fleet);
    heats.retain(|heat| {
        heat.load_permille > u64::from(rules.factor_permille)
            && heat.packets_per_second >= rules.least_packets_per_second
    });
    heats
}
