//! What elasticity remembers from one call to the next: a plain value, so that a new leader continues where the old one stopped.
//!
//! A state may be wrong: of a clock that went back, of another cluster, of an hour ago. [`State::bounded`] makes any of them
//! harmless, so that at worst a wait begins again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::mutant::{self, Mutant};
use super::rules::{HOSTS_MAX, Rules};
use super::sample::Metric;
use super::time::{Span, UnixMs};

/// Failed launches in a row that are counted; more change nothing.
pub const FAILURES_MAX: u32 = 32;
/// How long a size counts as too small after latency or lag had asked for more hosts.
pub const TOO_FEW_FOR: Span = Span::minutes(24 * 60);
/// Calls may be so far apart that waits go on, in ages from which samples count as missing.
const STALE_SPANS_APART_MAX: u64 = 3;

/// What elasticity remembers. All moments are in UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The cluster.
    pub cluster: String,
    /// The last call.
    pub seen: Option<UnixMs>,
    /// Since when metrics are above their thresholds to add hosts.
    pub above: BTreeMap<Metric, UnixMs>,
    /// Since when all metrics are below their thresholds to remove hosts, and would stay so with one host less.
    pub below: Option<UnixMs>,
    /// Since when the others could carry the load of one host.
    pub spare: Option<UnixMs>,
    /// Since when hosts are hot.
    pub hot: BTreeMap<String, UnixMs>,
    /// The last change of the number of hosts.
    pub changed: Option<UnixMs>,
    /// The last move of buckets.
    pub moved: Option<UnixMs>,
    /// Failed launches in a row.
    pub failures: u32,
    /// Until when nothing is launched.
    pub retry_at: Option<UnixMs>,
    /// Hosts that were ordered and may not be among the samples yet.
    pub ordered: Option<Ordered>,
    /// The last size that was too small by latency or lag.
    pub too_few: Option<TooFew>,
}

/// A size that was too small by latency or lag. How these grow when a host leaves cannot be computed; so it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TooFew {
    /// Hosts that served.
    pub hosts: u32,
    /// Packets/s of all hosts, if they were known.
    pub packets_per_second: Option<u64>,
    /// When it is forgotten.
    pub until: UnixMs,
}

/// Hosts that were ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ordered {
    /// How many there will be that serve or start.
    pub hosts: u32,
    /// When the order counts no longer.
    pub until: UnixMs,
}

impl State {
    /// The state of a cluster about which nothing is known.
    #[must_use]
    pub fn new(cluster: &str) -> State {
        State {
            cluster: cluster.to_owned(),
            ..State::default()
        }
    }

    /// The state as it may be believed at a moment: of this cluster, without gaps, and with no moment that cannot be.
    ///
    /// Waits begin again if the last call was too long ago to know that they went on. No cool-down, pause or order ends later
    /// than one that begins now.
    #[must_use]
    pub fn bounded(mut self, rules: &Rules, now: UnixMs) -> State {
        if self.cluster != rules.cluster {
            return State::new(&rules.cluster);
        }
        if mutant::active(Mutant::FutureBelieved) {
            return self;
        }
        let gap_max = Span(rules.stale_after.0.saturating_mul(STALE_SPANS_APART_MAX));
        let has_gap = self.seen.is_none_or(|seen| now.since(seen) > gap_max);
        if has_gap {
            self.restart_waits();
        }
        let known = rules.thresholds.keys();
        let known: Vec<Metric> = known.copied().collect();
        self.above.retain(|metric, _| known.contains(metric));
        while self.hot.len() > HOSTS_MAX as usize {
            self.hot.pop_last();
        }
        let past = |moment: &mut UnixMs| *moment = (*moment).min(now);
        self.above.values_mut().for_each(past);
        self.hot.values_mut().for_each(past);
        for moment in [
            &mut self.seen,
            &mut self.below,
            &mut self.spare,
            &mut self.changed,
            &mut self.moved,
        ] {
            moment.iter_mut().for_each(past);
        }
        self.failures = self.failures.min(FAILURES_MAX);
        let latest = now.after(rules.pause(self.failures));
        self.retry_at = self.retry_at.map(|retry_at| retry_at.min(latest));
        let until_max = now.after(rules.launch_within);
        self.ordered = self.ordered.map(|ordered| Ordered {
            hosts: ordered.hosts.min(rules.max),
            until: ordered.until.min(until_max),
        });
        let until_max = now.after(TOO_FEW_FOR);
        self.too_few = self.too_few.filter(|too_few| now < too_few.until);
        if let Some(too_few) = &mut self.too_few {
            too_few.until = too_few.until.min(until_max);
        }
        self
    }

    /// Forgets since when figures are above or below.
    pub(super) fn restart_waits(&mut self) {
        self.above.clear();
        self.hot.clear();
        self.below = None;
        self.spare = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policies;

    fn rules() -> Rules {
        let text = "[policy.a]\nhosts = { min = 1, max = 4 }\nflows = { out = 100, in = 50 }";
        Policies::read(text).unwrap().rules("a").unwrap().clone()
    }

    #[test]
    fn a_state_of_the_future_or_of_another_cluster_is_bounded() {
        let rules = rules();
        let now = UnixMs(1_000_000);
        let never = UnixMs(u64::MAX);
        let wrong = State {
            cluster: "a".to_owned(),
            seen: Some(never),
            above: [(Metric::Flows, never), (Metric::LagUs, never)].into(),
            below: Some(never),
            spare: Some(never),
            hot: (0..1_000).map(|host| (host.to_string(), never)).collect(),
            changed: Some(never),
            moved: Some(never),
            failures: u32::MAX,
            retry_at: Some(never),
            ordered: Some(Ordered {
                hosts: u32::MAX,
                until: never,
            }),
            too_few: Some(TooFew {
                hosts: 3,
                packets_per_second: None,
                until: never,
            }),
        };
        let bounded = wrong.clone().bounded(&rules, now);
        assert_eq!(bounded.above, [(Metric::Flows, now)].into());
        assert_eq!(bounded.hot.len(), HOSTS_MAX as usize);
        for moment in [
            bounded.seen,
            bounded.below,
            bounded.spare,
            bounded.changed,
            bounded.moved,
        ] {
            assert_eq!(moment, Some(now));
        }
        assert_eq!(bounded.failures, FAILURES_MAX);
        assert_eq!(bounded.retry_at, Some(now.after(rules.back_off.most)));
        let ordered = bounded.ordered.unwrap();
        assert_eq!(
            (ordered.hosts, ordered.until),
            (4, now.after(rules.launch_within))
        );
        assert_eq!(bounded.too_few.unwrap().until, now.after(TOO_FEW_FOR));
        let other = State {
            cluster: "b".to_owned(),
            ..wrong
        };
        assert_eq!(other.bounded(&rules, now), State::new("a"));
    }

    #[test]
    fn waits_begin_again_after_a_gap() {
        let rules = rules();
        let began = UnixMs(1_000_000);
        let state = State {
            seen: Some(began),
            above: [(Metric::Flows, began)].into(),
            changed: Some(began),
            ..State::new("a")
        };
        let soon = state.clone().bounded(&rules, UnixMs(1_030_000));
        assert_eq!(soon, state);
        let late = state.clone().bounded(&rules, UnixMs(1_030_001));
        assert_eq!(late.above.len(), 0);
        assert_eq!(late.changed, Some(began));
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&json).unwrap(), state);
    }
}
