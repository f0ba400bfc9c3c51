//! Which buckets move so that no host is above the mean (Split/Merge §5.2): moves, then exchanges, each of which makes the
//! hottest host cooler. A bucket is never split: an elephant ends up alone on its host and is reported.
//!
//! Loads are compared per weight. With weights alike, buckets below a fifth of the mean load always come within 1.2 of the mean.

use std::cmp::Reverse;

use super::mutant::{self, Mutant};
use super::sample::BucketLoad;

/// Exchanges tried for one host at most, each of two buckets. Keeps a call below some ten milliseconds.
const EXCHANGES_TRIED_MAX: usize = 100_000;
/// Moves and exchanges of one plan at most, for each bucket that may move: a bucket may move twice on its way.
const STEPS_PER_BUCKET_MAX: usize = 2;
/// Loads per weight are in these parts.
const SCALE: u128 = 1_000_000_000;

/// A host as balancing sees it.
#[derive(Clone, Debug)]
pub(super) struct Share {
    /// How much load it should have beside others.
    pub(super) weight: u64,
    /// Its buckets.
    pub(super) buckets: Vec<BucketLoad>,
}

/// A bucket that moves; hosts are places in the list of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) bucket: u32,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// What comes of balancing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The moves, at most one of a bucket.
    pub(super) moves: Vec<Move>,
    /// Each host's share of the mean load afterwards, in thousandths.
    pub(super) shares_permille: Vec<u64>,
}

/// The load of a host per weight.
fn relative(load: u64, weight: u64) -> u128 {
    u128::from(load) * SCALE / u128::from(weight.max(1))
}

/// Each host's share of the mean load, in thousandths, of loads beside their weights. All zero without any load.
pub(super) fn shares_permille(loads: &[(u64, u64)]) -> Vec<u64> {
    let load: u128 = loads.iter().map(|(load, _)| u128::from(*load)).sum();
    let weight: u128 = loads.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let share = |(own, own_weight): &(u64, u64)| {
        let mean = load * u128::from(*own_weight);
        let share = (u128::from(*own) * weight * 1_000).checked_div(mean);
        share.map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX))
    };
    loads.iter().map(share).collect()
}

/// Finds moves that bring every host to `target_permille` of the mean load, as far as buckets allow, with at most `buckets_max`
/// of them.
pub(super) fn plan(shares: &[Share], target_permille: u64, buckets_max: usize) -> Plan {
    let mut work = Work::new(shares, target_permille);
    for _ in 0..STEPS_PER_BUCKET_MAX * buckets_max + shares.len() {
        let Some(hot) = work.hottest_above_target() else {
            break;
        };
        let left = buckets_max.saturating_sub(work.moved());
        let is_cooler = left >= 1 && work.move_one(hot) || left >= 2 && work.exchange_one(hot);
        if !is_cooler {
            work.stuck.push(hot);
        }
    }
    work.plan()
}

struct Work<'a> {
    shares: &'a [Share],
    target_permille: u64,
    loads: Vec<u64>,
    /// Buckets by host, the largest first; each with the host that it comes from.
    buckets: Vec<Vec<(BucketLoad, usize)>>,
    /// Hosts that cannot be made cooler.
    stuck: Vec<usize>,
}

impl<'a> Work<'a> {
    fn new(shares: &'a [Share], target_permille: u64) -> Work<'a> {
        let mut buckets: Vec<Vec<_>> = Vec::with_capacity(shares.len());
        for (host, share) in shares.iter().enumerate() {
            let mut own: Vec<_> = share.buckets.iter().map(|bucket| (*bucket, host)).collect();
            own.sort_by_key(|(bucket, _)| order(*bucket));
            buckets.push(own);
        }
        let load = |share: &Share| -> u64 {
            let loads = share.buckets.iter().map(|bucket| bucket.packets_per_second);
            loads.sum()
        };
        Work {
            shares,
            target_permille,
            loads: shares.iter().map(load).collect(),
            buckets,
            stuck: Vec::new(),
        }
    }

    fn heat(&self, host: usize) -> u128 {
        relative(self.loads[host], self.shares[host].weight)
    }

    /// How hot a host would be with another load.
    fn heat_with(&self, host: usize, load: u64) -> u128 {
        relative(load, self.shares[host].weight)
    }

    /// The hottest host above the target, but for those that are stuck. The mean is that of the others, so that an elephant does
    /// not hide them.
    fn hottest_above_target(&self) -> Option<usize> {
        let hosts = (0..self.loads.len()).filter(|host| !self.stuck.contains(host));
        let hot = hosts
            .clone()
            .max_by_key(|host| (self.heat(*host), Reverse(*host)))?;
        let load: u128 = hosts.clone().map(|host| u128::from(self.loads[host])).sum();
        let weight: u128 = hosts.map(|host| u128::from(self.shares[host].weight)).sum();
        let limit = load * SCALE * u128::from(self.target_permille) / weight.max(1) / 1_000;
        (self.heat(hot) > limit).then_some(hot)
    }

    /// Moves the bucket that makes the hotter of both hosts coolest, if that makes the hot host cooler. The coolest host comes
    /// first; others are tried if no bucket helps there, which is so only with different weights.
    fn move_one(&mut self, hot: usize) -> bool {
        let others = (0..self.loads.len()).filter(|to| *to != hot);
        let coolest = others.clone().min_by_key(|to| (self.heat(*to), *to));
        let best = self.best_move(hot, coolest.into_iter());
        let best = best.or_else(|| self.best_move(hot, others));
        let Some((to, place)) = best else {
            return false;
        };
        self.carry(hot, place, to);
        true
    }

    /// The best move to one of these hosts, if one makes the hot host cooler.
    fn best_move(&self, hot: usize, hosts: impl Iterator<Item = usize>) -> Option<(usize, usize)> {
        let mut best = (self.heat(hot), None);
        for to in hosts {
            for (place, (bucket, _)) in self.buckets[hot].iter().enumerate() {
                let load = bucket.packets_per_second;
                let left = self.heat_with(hot, self.loads[hot] - load);
                let there = self.heat_with(to, self.loads[to] + load);
                let hotter = match mutant::active(Mutant::ElephantMoves) {
                    true => left,
                    false => left.max(there),
                };
                if load > 0 && hotter < best.0 {
                    best = (hotter, Some((to, place)));
                }
            }
        }
        best.1
    }

    /// Exchanges a bucket with a smaller one of another host, if that makes the hotter of both cooler.
    fn exchange_one(&mut self, hot: usize) -> bool {
        let before = self.heat(hot);
        let mut best: Option<(u128, usize, usize, usize)> = None;
        let mut tried = 0_usize;
        let mut others: Vec<usize> = (0..self.loads.len()).filter(|to| *to != hot).collect();
        others.sort_by_key(|to| (self.heat(*to), *to));
        'all: for to in others {
            for (place, (bucket, _)) in self.buckets[hot].iter().enumerate() {
                for (back, (smaller, _)) in self.buckets[to].iter().enumerate() {
                    if tried >= EXCHANGES_TRIED_MAX {
                        break 'all;
                    }
                    tried += 1;
                    let (load, less) = (bucket.packets_per_second, smaller.packets_per_second);
                    if less >= load {
                        continue;
                    }
                    let left = self.heat_with(hot, self.loads[hot] - load + less);
                    let there = self.heat_with(to, self.loads[to] + load - less);
                    let hotter = left.max(there);
                    if best.is_none_or(|(least, ..)| hotter < least) {
                        best = Some((hotter, to, place, back));
                    }
                }
            }
        }
        let Some((_, to, place, back)) = best.filter(|(after, ..)| *after < before) else {
            return false;
        };
        let smaller = self.buckets[to][back].0.bucket;
        self.carry(hot, place, to);
        let is_smaller = |(bucket, _): &(BucketLoad, usize)| bucket.bucket == smaller;
        if let Some(back) = self.buckets[to].iter().position(is_smaller) {
            self.carry(to, back, hot);
        }
        true
    }

    fn carry(&mut self, from: usize, place: usize, to: usize) {
        let (bucket, origin) = self.buckets[from].remove(place);
        self.loads[from] -= bucket.packets_per_second;
        self.loads[to] += bucket.packets_per_second;
        let place = self.buckets[to].partition_point(|(other, _)| order(*other) < order(bucket));
        self.buckets[to].insert(place, (bucket, origin));
    }

    /// Buckets that are not where they were.
    fn moved(&self) -> usize {
        let away = |(host, all): (usize, &Vec<(BucketLoad, usize)>)| {
            all.iter().filter(|(_, origin)| *origin != host).count()
        };
        self.buckets.iter().enumerate().map(away).sum()
    }

    fn plan(self) -> Plan {
        let weights = self.shares.iter().map(|share| share.weight);
        let loads: Vec<_> = self.loads.iter().copied().zip(weights).collect();
        let mut moves = Vec::new();
        for (to, all) in self.buckets.iter().enumerate() {
            let away = all.iter().filter(|(_, origin)| *origin != to);
            moves.extend(away.map(|(bucket, origin)| Move {
                bucket: bucket.bucket,
                from: *origin,
                to,
            }));
        }
        moves.sort_by_key(|one| (one.from, one.to, one.bucket));
        Plan {
            moves,
            shares_permille: shares_permille(&loads),
        }
    }
}

/// The order of a host's buckets: the largest first, then by number.
fn order(bucket: BucketLoad) -> (Reverse<u64>, u32) {
    (Reverse(bucket.packets_per_second), bucket.bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares with buckets of these loads, numbered in order.
    fn shares(loads: &[&[u64]]) -> Vec<Share> {
        let mut number = 0;
        let mut bucket = |load: &u64| {
            number += 1;
            BucketLoad {
                bucket: number,
                packets_per_second: *load,
            }
        };
        let share = |loads: &&[u64]| Share {
            weight: 1,
            buckets: loads.iter().map(&mut bucket).collect(),
        };
        loads.iter().map(share).collect()
    }

    #[test]
    fn buckets_move_or_are_exchanged() {
        let plan = plan(&shares(&[&[4, 4, 4], &[]]), 1_000, 9);
        let one = Move {
            bucket: 1,
            from: 0,
            to: 1,
        };
        assert_eq!(
            (&plan.moves[..], plan.shares_permille),
            (&[one][..], vec![1_333, 666])
        );
        // No single bucket helps: 7 + 5 beside 6 + 4 is better than 7 + 6 beside 5 + 4.
        let plan = super::plan(&shares(&[&[7, 6], &[5, 4]]), 1_000, 9);
        assert_eq!(plan.shares_permille, [1_000, 1_000]);
        assert_eq!(plan.moves.len(), 2);
        // An exchange takes two moves.
        let plan = super::plan(&shares(&[&[7, 6], &[5, 4]]), 1_000, 1);
        assert_eq!(plan.moves, []);
    }

    #[test]
    fn an_elephant_ends_up_alone_and_the_others_are_even() {
        let plan = plan(&shares(&[&[90, 1, 1], &[10, 10, 10], &[], &[]]), 1_100, 9);
        assert_eq!(plan.shares_permille.iter().max(), Some(&2_950));
        let alone = super::plan(&shares(&[&[90], &[10, 1], &[10, 1], &[10]]), 1_100, 9);
        assert_eq!(alone.moves, []);
        let nothing = super::plan(&shares(&[&[0, 0], &[]]), 1_100, 9);
        assert_eq!(
            (nothing.moves, nothing.shares_permille),
            (vec![], vec![0, 0])
        );
        assert_eq!(super::plan(&[], 1_100, 9), Plan::default());
    }

    #[test]
    fn capacity_is_weight() {
        let mut shares = shares(&[&[10; 30], &[]]);
        shares[0].weight = 1_000;
        shares[1].weight = 2_000;
        let plan = plan(&shares, 1_000, 99);
        assert_eq!(plan.shares_permille, [1_000, 1_000]);
        assert_eq!(plan.moves.len(), 20);
    }

    /// Of all loads and places: with buckets below a fifth of the mean all hosts come within 1.2 of it.
    #[test]
    fn small_buckets_always_come_within_the_factor() {
        let mut number = 7_u64;
        let mut next = |bound: u64| {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % bound
        };
        for _ in 0..300 {
            let hosts = 2 + next(12) as usize;
            let mut loads = vec![Vec::new(); hosts];
            let crowded = 1 + next(hosts as u64);
            for _ in 0..hosts * 12 {
                let host = next(crowded) as usize;
                loads[host].push(1 + next(100));
            }
            let total: u64 = loads.iter().flatten().sum();
            let largest = loads.iter().flatten().max().copied().unwrap_or(0);
            if largest * 5 * hosts as u64 > total {
                continue;
            }
            let loads: Vec<&[u64]> = loads.iter().map(Vec::as_slice).collect();
            let plan = plan(&shares(&loads), 1_200, 4_096);
            let worst = plan.shares_permille.into_iter().max().unwrap_or(0);
            assert!(worst <= 1_201, "{worst}: {loads:?}");
        }
    }
}
