//! A cluster's samples as decisions see them: hosts by standing, and the figures that are known.

use std::collections::BTreeSet;

use serde::Serialize;

use super::mutant::{self, Mutant};
use super::rules::Rules;
use super::sample::{HostSample, Metric, SAMPLES_MAX, Standing};
use super::time::{Span, UnixMs};

/// How many hosts have which part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Hosts that serve.
    pub serving: u32,
    /// Of these, hosts with fresh samples.
    pub fresh: u32,
    /// Suspected hosts.
    pub suspected: u32,
    /// Hosts that start, and have not taken too long for it.
    pub starting: u32,
    /// Hosts that have been starting for longer than a launch may take.
    pub overdue: u32,
    /// Hosts that leave.
    pub draining: u32,
}

impl Counts {
    /// Hosts that serve, or will soon, or again.
    #[must_use]
    pub fn present(self) -> u32 {
        self.serving + self.suspected + self.starting
    }

    /// All hosts that run, or may run: those that count towards the maximum.
    #[must_use]
    pub fn total(self) -> u32 {
        self.present() + self.overdue + self.leaving()
    }

    fn leaving(self) -> u32 {
        match mutant::active(Mutant::LeavingNotCounted) {
            true => 0,
            false => self.draining,
        }
    }
}

/// Why samples allow no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    /// Two samples are of one host.
    Twice(String),
    /// There are more samples than a cluster has hosts.
    TooMany(usize),
    /// Fewer than half of the hosts have fresh samples.
    Missing,
}

/// The samples of one call.
#[derive(Debug)]
pub(super) struct Fleet<'a> {
    pub(super) counts: Counts,
    /// Hosts that serve, by name, each with whether its sample is fresh.
    serving: Vec<(&'a HostSample, bool)>,
    frozen: Option<Frozen>,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(samples: &'a [HostSample], rules: &Rules, now: UnixMs) -> Fleet<'a> {
        let mut fleet = Fleet {
            counts: Counts::default(),
            serving: Vec::new(),
            frozen: None,
        };
        if samples.len() > SAMPLES_MAX {
            fleet.frozen = Some(Frozen::TooMany(samples.len()));
            return fleet;
        }
        let mut names = BTreeSet::new();
        for sample in samples {
            if !names.insert(sample.host.as_str()) {
                fleet.frozen = Some(Frozen::Twice(sample.host.clone()));
            }
            let counts = &mut fleet.counts;
            match sample.standing {
                Standing::Serving => {
                    let is_fresh = is_fresh(sample, rules.stale_after);
                    counts.serving += 1;
                    counts.fresh += u32::from(is_fresh);
                    fleet.serving.push((sample, is_fresh));
                }
                Standing::Suspected => counts.suspected += 1,
                Standing::Starting if now.since(sample.standing_since) <= rules.launch_within => {
                    counts.starting += 1;
                }
                Standing::Starting => counts.overdue += 1,
                Standing::Draining => counts.draining += 1,
            }
        }
        fleet
            .serving
            .sort_by(|one, other| one.0.host.cmp(&other.0.host));
        if fleet.frozen.is_none() && has_lost_samples(fleet.counts) {
            fleet.frozen = Some(Frozen::Missing);
        }
        fleet
    }

    /// Why nothing may be decided, if so.
    pub(super) fn frozen(&self) -> Option<&Frozen> {
        self.frozen.as_ref()
    }

    /// Hosts that serve, by name.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &'a HostSample> {
        self.serving.iter().map(|(sample, _)| *sample)
    }

    /// The known figures of a metric, in the order of the hosts' names.
    fn figures(&self, metric: Metric) -> Vec<u64> {
        let known = self
            .serving
            .iter()
            .map(|(sample, is_fresh)| sample.figure(metric).filter(|_| *is_fresh));
        match mutant::active(Mutant::MissingIsZero) {
            true => known.map(Option::unwrap_or_default).collect(),
            false => known.flatten().collect(),
        }
    }

    /// The figure by which hosts are added: the mean of a shared metric, else the figure that half of the hosts reach. None
    /// where fewer than half of the hosts have one.
    pub(super) fn typical(&self, metric: Metric) -> Option<u64> {
        let mut figures = self.figures(metric);
        if figures.is_empty() || !is_enough(figures.len(), self.serving.len()) {
            return None;
        }
        if metric.is_shared() {
            return Some(figures.iter().sum::<u64>() / figures.len() as u64);
        }
        figures.sort_unstable();
        figures.get((figures.len() - 1) / 2).copied()
    }

    /// The figure by which hosts are removed: the mean of a shared metric, else the greatest. None unless all hosts have one.
    pub(super) fn certain(&self, metric: Metric) -> Option<u64> {
        let figures = self.figures(metric);
        if figures.is_empty() || figures.len() != self.serving.len() {
            return None;
        }
        match metric.is_shared() {
            true => Some(figures.iter().sum::<u64>().div_ceil(figures.len() as u64)),
            false => figures.into_iter().max(),
        }
    }

    /// A figure of [`Fleet::certain`] as it would be with one host less: the whole load on the others.
    pub(super) fn with_one_less(&self, figure: u64) -> Option<u64> {
        let hosts = u64::from(self.counts.serving);
        let left = hosts.checked_sub(1).filter(|left| *left > 0)?;
        figure.checked_mul(hosts).map(|sum| sum.div_ceil(left))
    }

    /// The hosts that bring a shared metric down to a figure.
    pub(super) fn needed(&self, typical: u64, figure: u64) -> u32 {
        let sum = u128::from(typical) * u128::from(self.counts.serving);
        let hosts = sum.div_ceil(u128::from(figure.max(1)));
        u32::try_from(hosts).unwrap_or(u32::MAX)
    }

    /// Packets/s of all hosts together; None unless all are known.
    pub(super) fn packets_per_second(&self) -> Option<u64> {
        let loads = self.loads()?;
        Some(loads.iter().map(|(_, load, _)| load).sum())
    }

    /// Packets/s of each host beside its weight: its capacity, or 1 for all if one of them is unknown. None unless the
    /// packets/s of all hosts are known.
    pub(super) fn loads(&self) -> Option<Vec<(&'a HostSample, u64, u64)>> {
        let weights: Option<Vec<u64>> = self.hosts().map(HostSample::capacity).collect();
        let weights = weights.unwrap_or_else(|| vec![1; self.serving.len()]);
        let loads = self.serving.iter().zip(weights);
        loads
            .map(|((sample, is_fresh), weight)| {
                let figure = sample.figure(Metric::PacketsPerSecond);
                let load = figure.filter(|_| *is_fresh)?;
                Some((*sample, load, weight))
            })
            .collect()
    }
}

/// Whether a sample is young enough to be used.
fn is_fresh(sample: &HostSample, stale_after: Span) -> bool {
    let age = sample.age_ms.unwrap_or(u64::MAX);
    age < stale_after.0 || age < u64::MAX && mutant::active(Mutant::StaleSampleCounts)
}

/// Whether samples of too many hosts are missing. Suspects have none: if most hosts are suspects, the fault is likely the
/// orchestrator's own.
fn has_lost_samples(counts: Counts) -> bool {
    let expected = counts.serving + counts.suspected;
    let least = match mutant::active(Mutant::FewDecideForAll) {
        true => 1,
        false => expected.div_ceil(2),
    };
    expected > 0 && counts.fresh < least
}

/// Whether figures of so many hosts stand for all.
fn is_enough(known: usize, hosts: usize) -> bool {
    2 * known >= hosts
}
