//! Decisions on buckets: what of a hot host's load goes where.

use std::collections::BTreeMap;

use super::balance::{self, Plan, Share};
use super::decision::{Action, Decision, Obstacle, Reason, Wanted};
use super::fleet::Fleet;
use super::policy::HotSpot;
use super::sample::HostSample;
use super::signals::{self, Heat};
use super::state::State;
use super::time::{Span, UnixMs};

/// Thousandths of the mean load by which moves must make a hot host cooler: less is not worth a move.
const GAIN_PERMILLE_MIN: u64 = 50;

/// Moves for hosts that were hot for long enough, and reports of those that no move helps.
pub(super) fn decide(
    rules: HotSpot,
    state: &State,
    fleet: &Fleet<'_>,
    now: UnixMs,
) -> Vec<Decision> {
    let mut heats = signals::heats(fleet);
    heats.sort_by_key(|heat| std::cmp::Reverse(heat.load_permille));
    let lasted = |heat: &Heat| {
        let lasted = now.since(*state.hot.get(&heat.host)?);
        (lasted >= rules.lasts).then_some(lasted)
    };
    let hot: Vec<(&Heat, Span)> = heats
        .iter()
        .filter_map(|heat| Some((heat, lasted(heat)?)))
        .collect();
    let Some((hottest, _)) = hot.first() else {
        return Vec::new();
    };
    if let Some(obstacle) = obstacle(rules, state, fleet, now, hottest) {
        return vec![held(obstacle)];
    }
    let hosts: Vec<&HostSample> = fleet.hosts().collect();
    let shares = shares(fleet);
    let target_permille = 1_000 + u64::from(rules.factor_permille.saturating_sub(1_000)) / 2;
    let plan = balance::plan(&shares, target_permille, rules.buckets_max as usize);
    let after = |heat: &Heat| {
        let place = hosts.iter().position(|sample| sample.host == heat.host);
        let after = place.and_then(|place| plan.shares_permille.get(place));
        after.copied().unwrap_or(heat.load_permille)
    };
    let helps = hot
        .iter()
        .any(|(heat, _)| after(heat) + GAIN_PERMILLE_MIN <= heat.load_permille);
    let mut decisions = Vec::new();
    if helps {
        decisions = moves(&plan, &hosts, &hot);
    }
    // With all moves used up it is not known which hosts stay hot.
    let is_whole = plan.moves.len() + 1 < rules.buckets_max as usize;
    for (heat, _) in hot.iter().filter(|_| is_whole || !helps) {
        let left = if helps {
            after(heat)
        } else {
            heat.load_permille
        };
        if left > u64::from(rules.factor_permille) {
            let place = hosts.iter().position(|sample| sample.host == heat.host);
            let share = place.and_then(|place| shares.get(place));
            decisions.push(held(stays_hot(rules, heat, left, share)));
        }
    }
    decisions
}

fn held(obstacle: Obstacle) -> Decision {
    let wanted = Wanted::MoveBuckets;
    Decision {
        action: Action::Hold,
        reason: Reason::Held { wanted, obstacle },
    }
}

fn obstacle(
    rules: HotSpot,
    state: &State,
    fleet: &Fleet<'_>,
    now: UnixMs,
    hottest: &Heat,
) -> Option<Obstacle> {
    let counts = fleet.counts;
    let until = state.moved.map(|moved| moved.after(rules.cool_down));
    if !signals::has_buckets(fleet) {
        let host = hottest.host.clone();
        return Some(Obstacle::NoBuckets { host });
    }
    if counts.suspected > 0 {
        let suspected = counts.suspected;
        return Some(Obstacle::Suspected { suspected });
    }
    if counts.draining > 0 {
        return Some(Obstacle::Settling {
            starting: counts.starting,
            draining: counts.draining,
        });
    }
    let until = until.filter(|until| *until > now)?;
    Some(Obstacle::CoolingDown { until })
}

fn shares(fleet: &Fleet<'_>) -> Vec<Share> {
    let loads = fleet.loads().unwrap_or_default();
    let share = |(sample, _, weight): &(&HostSample, u64, u64)| Share {
        weight: *weight,
        buckets: sample.buckets.clone().unwrap_or_default(),
    };
    loads.iter().map(share).collect()
}

/// One decision for each pair of hosts between which buckets move.
fn moves(plan: &Plan, hosts: &[&HostSample], hot: &[(&Heat, Span)]) -> Vec<Decision> {
    let mut pairs: BTreeMap<(usize, usize), Vec<u32>> = BTreeMap::new();
    for one in &plan.moves {
        pairs
            .entry((one.from, one.to))
            .or_default()
            .push(one.bucket);
    }
    let name = |place: usize| hosts.get(place).map(|sample| sample.host.clone());
    let after_permille = plan.shares_permille.iter().copied().max().unwrap_or(0);
    let decisions = pairs.into_iter().filter_map(|((from, to), buckets)| {
        let (from, to) = (name(from)?, name(to)?);
        let own = hot.iter().find(|(heat, _)| heat.host == from);
        let (heat, lasted) = own.or(hot.first())?;
        let reason = Reason::HotSpot {
            host: heat.host.clone(),
            load_permille: heat.load_permille,
            after_permille,
            lasted: *lasted,
        };
        let action = Action::MoveBuckets { from, to, buckets };
        Some(Decision { action, reason })
    });
    decisions.collect()
}

/// Why a host stays hot: an elephant, or buckets that do not fit elsewhere.
fn stays_hot(rules: HotSpot, heat: &Heat, left: u64, share: Option<&Share>) -> Obstacle {
    let buckets = share.map_or(&[][..], |share| &share.buckets);
    let largest = buckets
        .iter()
        .max_by_key(|bucket| bucket.packets_per_second);
    let alone = |load: u64| {
        let permille = u128::from(load) * u128::from(heat.load_permille);
        permille / u128::from(heat.packets_per_second.max(1))
    };
    match largest {
        Some(bucket) if alone(bucket.packets_per_second) > u128::from(rules.factor_permille) => {
            Obstacle::Unsplittable {
                host: heat.host.clone(),
                bucket: bucket.bucket,
                packets_per_second: bucket.packets_per_second,
                load_permille: left,
            }
        }
        _ => Obstacle::NoBetterPlace {
            host: heat.host.clone(),
            load_permille: left,
        },
    }
}
