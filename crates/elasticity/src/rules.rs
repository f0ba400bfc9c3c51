//! The rules of one cluster: its policies joined, checked, and with their defaults.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::policy::{BackOff, Consolidation, HotSpot, Policy, Thresholds};
use super::policy_error::PolicyError;
use super::sample::{Metric, NAME_BYTES_MAX};
use super::schedule::{Offset, WINDOWS_MAX, Window};
use super::time::{Span, UnixMs};

/// Hosts of a cluster at most, as steering and membership have it.
pub const HOSTS_MAX: u32 = 64;

/// What decisions follow. Every field is within its limits, and none contradicts another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// The cluster.
    pub cluster: String,
    /// Hosts at least that serve or start, outside the schedule's windows.
    pub min: u32,
    /// Hosts at most, those that leave included.
    pub max: u32,
    /// Hosts that one decision adds at most; by default 1.
    pub step: u32,
    /// The thresholds of each metric that has some.
    pub thresholds: BTreeMap<Metric, Thresholds>,
    /// How long a figure is above its threshold before hosts are added; by default 30 s.
    pub out_for: Span,
    /// How long all figures are below their thresholds before a host is removed; by default 5 min.
    pub in_for: Span,
    /// How long nothing is added or removed after a change; by default 1 min.
    pub cool_down: Span,
    /// How far below `out` figures must be after a host was removed, in thousandths of it; by default 200.
    pub hysteresis_permille: u32,
    /// How long a host that leaves keeps its flows; by default 30 s.
    pub drain: Span,
    /// How long a launch counts as on its way; by default 1 min.
    pub launch_within: Span,
    /// The age from which samples count as missing; by default 10 s.
    pub stale_after: Span,
    /// Pauses after failed launches; by default 10 s to 10 min.
    pub back_off: BackOff,
    /// Moves of buckets; by default none.
    pub hot_spot: Option<HotSpot>,
    /// Removal of hosts whose load the others can carry; by default none.
    pub consolidation: Option<Consolidation>,
    /// Weekly windows with greater minimums.
    pub schedule: Vec<Window>,
    /// The distance of the schedule's times from UTC; by default none.
    pub utc_offset: Offset,
}

/// The limits of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The field, as policies have it.
    pub field: &'static str,
    /// The least value; milliseconds for spans.
    pub least: u64,
    /// The greatest value; milliseconds for spans.
    pub most: u64,
    /// Whether the field is a span of time.
    pub is_span: bool,
}

const fn number(field: &'static str, least: u64, most: u64) -> Limits {
    Limits {
        field,
        least,
        most,
        is_span: false,
    }
}

const fn span(field: &'static str, least: Span, most: Span) -> Limits {
    Limits {
        field,
        least: least.0,
        most: most.0,
        is_span: true,
    }
}

const DAY: Span = Span::minutes(24 * 60);

/// The limits of all fields that have some.
pub(super) const LIMITS: [Limits; 19] = [
    number("hosts.min", 1, HOSTS_MAX as u64),
    number("hosts.max", 1, HOSTS_MAX as u64),
    number("hosts.step", 1, HOSTS_MAX as u64),
    number("schedule.min", 1, HOSTS_MAX as u64),
    span("out_for", Span(0), DAY),
    span("in_for", Span(0), DAY),
    span("cool_down", Span::seconds(1), DAY),
    number("hysteresis_permille", 50, 900),
    span("drain", Span(0), DAY),
    span("launch_within", Span::seconds(1), DAY),
    span("stale_after", Span::seconds(1), Span::minutes(5)),
    span("back_off.first", Span::seconds(1), DAY),
    span("back_off.most", Span::seconds(1), DAY),
    number("hot_spot.factor_permille", 1_100, 10_000),
    span("hot_spot.for", Span(0), DAY),
    number("hot_spot.buckets_max", 1, 4_096),
    span("hot_spot.cool_down", Span::seconds(1), DAY),
    number("consolidation.head_room_permille", 50, 900),
    span("consolidation.for", Span(0), DAY),
];

/// Policies of one cluster, each with its name.
type Named<'a> = [(&'a str, &'a Policy)];

impl Rules {
    /// Joins the policies of a cluster.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(super) fn joined(cluster: &str, policies: &Named<'_>) -> Result<Rules, Vec<PolicyError>> {
        let mut join = Join {
            cluster,
            policies,
            errors: Vec::new(),
        };
        let rules = join.rules();
        match rules {
            Some(rules) if join.errors.is_empty() => Ok(rules),
            _ => Err(join.errors),
        }
    }

    /// The same rules with exactly so many hosts, as an operator ordered: all at once, whatever the figures are.
    #[must_use]
    pub fn exactly(&self, hosts: u32) -> Rules {
        Rules {
            min: hosts,
            max: hosts,
            step: hosts.max(1),
            cool_down: Span(0),
            thresholds: BTreeMap::new(),
            consolidation: None,
            schedule: Vec::new(),
            ..self.clone()
        }
    }

    /// The least number of hosts at a moment, and the window that asks for it, if one does.
    #[must_use]
    pub fn minimum(&self, now: UnixMs) -> (u32, Option<&Window>) {
        let windows = self.schedule.iter();
        let lasting = windows.filter(|window| window.contains(now, self.utc_offset));
        match lasting.max_by_key(|window| window.min) {
            Some(window) if window.min > self.min => (window.min.min(self.max), Some(window)),
            _ => (self.min, None),
        }
    }

    /// The greatest figure of a metric after a host was removed.
    #[must_use]
    pub fn ceiling(&self, thresholds: Thresholds) -> u64 {
        self.below(thresholds.out)
    }

    /// The figure that is below another one by the hysteresis.
    #[must_use]
    pub fn below(&self, figure: u64) -> u64 {
        below(figure, self.hysteresis_permille)
    }

    /// The pause after so many failed launches in a row.
    #[must_use]
    pub fn pause(&self, failures: u32) -> Span {
        let doublings = failures.saturating_sub(1).min(32);
        let pause = self.back_off.first.0.saturating_mul(1 << doublings);
        Span(pause.min(self.back_off.most.0))
    }
}

/// The figure that is a share below another one.
fn below(figure: u64, permille: u32) -> u64 {
    let kept = u64::from(1_000_u32.saturating_sub(permille));
    (u128::from(figure) * u128::from(kept) / 1_000) as u64
}

struct Join<'a> {
    cluster: &'a str,
    policies: &'a Named<'a>,
    errors: Vec<PolicyError>,
}

/// A value, with the policy that has it.
type Of<'a, T> = Option<(&'a str, T)>;

impl<'a> Join<'a> {
    fn rules(&mut self) -> Option<Rules> {
        self.check_names();
        let (min, max) = self.bounds();
        let step = self.field("hosts.step", |policy| policy.hosts?.step);
        let hysteresis = self.field("hysteresis_permille", |policy| policy.hysteresis_permille);
        let hysteresis_permille = hysteresis.map_or(200, |(_, permille)| permille);
        let thresholds = self.thresholds(hysteresis_permille);
        let out_for = self.field("out_for", |policy| policy.out_for);
        let in_for = self.field("in_for", |policy| policy.in_for);
        let cool_down = self.field("cool_down", |policy| policy.cool_down);
        let drain = self.field("drain", |policy| policy.drain);
        let launch_within = self.field("launch_within", |policy| policy.launch_within);
        let stale_after = self.field("stale_after", |policy| policy.stale_after);
        self.within("hosts.step", step);
        self.within("hysteresis_permille", hysteresis);
        for (field, value) in [
            ("out_for", out_for),
            ("in_for", in_for),
            ("cool_down", cool_down),
            ("drain", drain),
            ("launch_within", launch_within),
            ("stale_after", stale_after),
        ] {
            self.within(field, value.map(|(policy, span)| (policy, span.0)));
        }
        let back_off = self.back_off();
        let hot_spot = self.hot_spot();
        let consolidation = self.consolidation(thresholds.is_empty());
        let schedule = self.schedule(max);
        let utc_offset = self.field("utc_offset", |policy| policy.utc_offset);
        let span_or = |value: Of<'_, Span>, default| value.map_or(default, |(_, span)| span);
        Some(Rules {
            cluster: self.cluster.to_owned(),
            min: min?.1,
            max: max?.1,
            step: step.map_or(1, |(_, step)| step),
            thresholds,
            out_for: span_or(out_for, Span::seconds(30)),
            in_for: span_or(in_for, Span::minutes(5)),
            cool_down: span_or(cool_down, Span::minutes(1)),
            hysteresis_permille,
            drain: span_or(drain, Span::seconds(30)),
            launch_within: span_or(launch_within, Span::minutes(1)),
            stale_after: span_or(stale_after, Span::seconds(10)),
            back_off,
            hot_spot,
            consolidation,
            schedule,
            utc_offset: utc_offset.map_or(Offset::default(), |(_, offset)| offset),
        })
    }

    /// The value of a field that one policy has, or several have alike.
    fn field<T: PartialEq>(
        &mut self,
        field: &'static str,
        value: impl Fn(&Policy) -> Option<T>,
    ) -> Of<'a, T> {
        let mut found: Of<'a, T> = None;
        for (name, policy) in self.policies {
            match (&found, value(policy)) {
                (_, None) => {}
                (None, Some(value)) => found = Some((name, value)),
                (Some((_, first)), Some(value)) if *first == value => {}
                (Some((first, _)), Some(_)) => self.errors.push(PolicyError::Both {
                    cluster: self.cluster.to_owned(),
                    field,
                    first: (*first).to_owned(),
                    second: (*name).to_owned(),
                }),
            }
        }
        found
    }

    /// Refuses a value outside its limits.
    fn within<T: Into<u64>>(&mut self, field: &'static str, value: Of<'_, T>) {
        let Some((policy, value)) = value else {
            return;
        };
        let value = value.into();
        let Some(limits) = LIMITS.iter().find(|limits| limits.field == field) else {
            return;
        };
        if (limits.least..=limits.most).contains(&value) {
            return;
        }
        let shown = |value: u64| match limits.is_span {
            true => format!("\"{}\"", Span(value)),
            false => value.to_string(),
        };
        self.errors.push(PolicyError::OutOfLimits {
            policy: policy.to_owned(),
            field,
            value: shown(value),
            least: shown(limits.least),
            most: shown(limits.most),
        });
    }

    fn check_names(&mut self) {
        for (name, _) in self.policies {
            for checked in [*name, self.cluster] {
                if checked.is_empty() || checked.len() > NAME_BYTES_MAX {
                    self.errors.push(PolicyError::Name {
                        policy: (*name).to_owned(),
                        name: checked.to_owned(),
                    });
                }
            }
        }
    }

    /// The greatest minimum and the least maximum of the policies.
    fn bounds(&mut self) -> (Of<'a, u32>, Of<'a, u32>) {
        let policies = self.policies;
        for (name, policy) in policies {
            let bounds = policy.hosts.unwrap_or_default();
            self.within("hosts.min", bounds.min.map(|min| (*name, min)));
            self.within("hosts.max", bounds.max.map(|max| (*name, max)));
        }
        let mins = policies
            .iter()
            .filter_map(|(name, policy)| Some((*name, policy.hosts?.min?)));
        let maxes = policies
            .iter()
            .filter_map(|(name, policy)| Some((*name, policy.hosts?.max?)));
        let min = mins.max_by_key(|(_, min)| *min);
        let max = maxes.min_by_key(|(_, max)| *max);
        let first = policies.first().map_or("", |(name, _)| *name);
        for (field, value) in [("hosts.min", min), ("hosts.max", max)] {
            if value.is_none() {
                let policy = first.to_owned();
                self.errors.push(PolicyError::NoBound { policy, field });
            }
        }
        if let (Some((min_of, min)), Some((max_of, max))) = (min, max)
            && min > max
        {
            self.errors.push(PolicyError::MinAboveMax {
                min_of: min_of.to_owned(),
                min,
                max_of: max_of.to_owned(),
                max,
            });
        }
        (min, max)
    }

    fn thresholds(&mut self, hysteresis_permille: u32) -> BTreeMap<Metric, Thresholds> {
        let mut all = BTreeMap::new();
        for metric in Metric::ALL {
            let found = self.field(metric.name(), |policy| policy.thresholds(metric));
            let Some((policy, thresholds)) = found else {
                continue;
            };
            all.insert(metric, thresholds);
            let Thresholds { out, within } = thresholds;
            let most = below(out, hysteresis_permille);
            let policy = policy.to_owned();
            if !(1..=metric.greatest()).contains(&out) {
                self.errors.push(PolicyError::OutOfLimits {
                    policy,
                    field: metric.name(),
                    value: format!("{{ out = {out} }}"),
                    least: "1".to_owned(),
                    most: metric.greatest().to_string(),
                });
            } else if within >= out {
                self.errors.push(PolicyError::InAboveOut {
                    policy,
                    metric,
                    within,
                    out,
                    most,
                });
            } else if within > most {
                self.errors.push(PolicyError::TooClose {
                    policy,
                    metric,
                    within,
                    out,
                    hysteresis_permille,
                    most,
                });
            }
        }
        all
    }

    fn back_off(&mut self) -> BackOff {
        let default = BackOff {
            first: Span::seconds(10),
            most: Span::minutes(10),
        };
        let Some((policy, back_off)) = self.field("back_off", |policy| policy.back_off) else {
            return default;
        };
        self.within("back_off.first", Some((policy, back_off.first.0)));
        self.within("back_off.most", Some((policy, back_off.most.0)));
        if back_off.first > back_off.most {
            self.errors.push(PolicyError::BackOffOrder {
                policy: policy.to_owned(),
                first: back_off.first,
                most: back_off.most,
            });
        }
        back_off
    }

    fn hot_spot(&mut self) -> Option<HotSpot> {
        let (policy, hot_spot) = self.field("hot_spot", |policy| policy.hot_spot)?;
        self.within(
            "hot_spot.factor_permille",
            Some((policy, hot_spot.factor_permille)),
        );
        self.within("hot_spot.for", Some((policy, hot_spot.lasts.0)));
        self.within("hot_spot.buckets_max", Some((policy, hot_spot.buckets_max)));
        self.within("hot_spot.cool_down", Some((policy, hot_spot.cool_down.0)));
        Some(hot_spot)
    }

    fn consolidation(&mut self, has_no_thresholds: bool) -> Option<Consolidation> {
        let (policy, rules) = self.field("consolidation", |policy| policy.consolidation)?;
        self.within(
            "consolidation.head_room_permille",
            Some((policy, rules.head_room_permille)),
        );
        self.within("consolidation.for", Some((policy, rules.lasts.0)));
        if has_no_thresholds {
            let policy = policy.to_owned();
            self.errors.push(PolicyError::OnlyConsolidates { policy });
        }
        Some(rules)
    }

    fn schedule(&mut self, max: Of<'_, u32>) -> Vec<Window> {
        let policies = self.policies;
        let mut all = Vec::new();
        for (name, policy) in policies {
            for window in policy.schedule.iter().flatten() {
                self.within("schedule.min", Some((*name, window.min)));
                let days: BTreeSet<_> = window.days.iter().collect();
                if days.is_empty() || days.len() != window.days.len() {
                    self.errors.push(PolicyError::WindowDays {
                        policy: (*name).to_owned(),
                        window: window.to_string(),
                    });
                }
                if let Some((max_of, max)) = max.filter(|(_, max)| window.min > *max) {
                    self.errors.push(PolicyError::WindowAboveMax {
                        policy: (*name).to_owned(),
                        window: window.to_string(),
                        min: window.min,
                        max_of: max_of.to_owned(),
                        max,
                    });
                }
                all.push(window.clone());
            }
        }
        if all.len() > WINDOWS_MAX {
            let policy = policies.first().map_or("", |(name, _)| *name).to_owned();
            self.errors.push(PolicyError::TooManyWindows {
                policy,
                windows: all.len(),
            });
            all.clear();
        }
        all
    }
}
