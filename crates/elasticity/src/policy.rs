//! Policies as an operator writes them: a table `[policy.NAME]` of the configuration.
//!
//! Several policies may be of one cluster, such as one with thresholds and one with a schedule: [`Policies::rules`] joins them.
//! Policies that contradict each other, or themselves, are refused with a sentence that names both sides ([`PolicyError`]). What
//! decisions use is [`super::Rules`], with every default filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::policy_error::{PoliciesError, PolicyError};
use super::rules::{Limits, Rules};
use super::sample::Metric;
use super::schedule::{Offset, Window};
use super::time::Span;

/// Policies of one configuration at most.
pub const POLICIES_MAX: usize = 64;

/// One policy. Absent fields are left to other policies of the cluster, or to their defaults ([`super::Rules`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// The cluster that the policy is of; by default the cluster of the policy's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Bounds of the number of hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<HostBounds>,
    /// Packets/s of a host, the mean of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_per_second: Option<Thresholds>,
    /// The share of its cores that a host uses, in thousandths, the mean of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_permille: Option<Thresholds>,
    /// Flows of a host, the mean of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<Thresholds>,
    /// 99 % latency in microseconds: of half of the hosts to scale out, of all to scale in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_99_us: Option<Thresholds>,
    /// Replication lag in microseconds: of half of the hosts to scale out, of all to scale in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_us: Option<Thresholds>,
    /// How long a figure is above its threshold before hosts are added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_for: Option<Span>,
    /// How long all figures are below their thresholds, and fit with one host less, before a host is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_for: Option<Span>,
    /// How long nothing is added or removed after a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cool_down: Option<Span>,
    /// How far below its `out` threshold a figure must be after a host was removed, in thousandths. `in` thresholds must be as
    /// far below `out`, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hysteresis_permille: Option<u32>,
    /// How long a host that leaves keeps its flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Span>,
    /// How long a launch may take before it no longer counts as on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_within: Option<Span>,
    /// The age from which samples count as missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_after: Option<Span>,
    /// Pauses after failed launches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_off: Option<BackOff>,
    /// Moves of buckets away from hosts above the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_spot: Option<HotSpot>,
    /// Removal of hosts whose load the others can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidation: Option<Consolidation>,
    /// Weekly windows with greater minimums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Vec<Window>>,
    /// The distance of the schedule's times from UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc_offset: Option<Offset>,
}

/// Bounds of the number of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostBounds {
    /// Hosts at least that serve or start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// Hosts at most, those that leave included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Hosts that one decision adds at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

/// The thresholds of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// Hosts are added above it.
    pub out: u64,
    /// Hosts may be removed below it.
    #[serde(rename = "in")]
    pub within: u64,
}

/// Pauses after failed launches: the first, doubled with each failure in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackOff {
    /// The pause after the first failure.
    pub first: Span,
    /// The longest pause.
    pub most: Span,
}

/// Moves of buckets away from hosts above the mean (Split/Merge §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotSpot {
    /// The share of the mean load from which a host is hot, in thousandths.
    pub factor_permille: u32,
    /// How long a host is hot before its buckets move.
    #[serde(rename = "for")]
    pub lasts: Span,
    /// Buckets that one decision moves at most.
    #[serde(default = "HotSpot::default_buckets_max")]
    pub buckets_max: u32,
    /// How long no bucket moves after buckets have moved.
    #[serde(default = "HotSpot::default_cool_down")]
    pub cool_down: Span,
    /// Packets/s below which no host is hot.
    #[serde(default = "HotSpot::default_least")]
    pub least_packets_per_second: u64,
}

impl HotSpot {
    fn default_buckets_max() -> u32 {
        64
    }
    fn default_cool_down() -> Span {
        Span::seconds(30)
    }
    fn default_least() -> u64 {
        1_000
    }
}

/// Removal of hosts whose load the others can carry (Split/Merge §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consolidation {
    /// The share of the remaining hosts' capacity that stays free, in thousandths.
    pub head_room_permille: u32,
    /// How long the others could have carried the load before a host is removed.
    #[serde(rename = "for")]
    pub lasts: Span,
}

impl Policy {
    /// The thresholds of a metric.
    #[must_use]
    pub fn thresholds(&self, metric: Metric) -> Option<Thresholds> {
        match metric {
            Metric::PacketsPerSecond => self.packets_per_second,
            Metric::CpuPermille => self.cpu_permille,
            Metric::Flows => self.flows,
            Metric::Latency99Us => self.latency_99_us,
            Metric::LagUs => self.lag_us,
        }
    }
}

/// All policies of a configuration, each by its name, checked together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    clusters: BTreeMap<String, Rules>,
}

/// The part of a configuration that has policies.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    policy: BTreeMap<String, Policy>,
}

impl Policies {
    /// The tables `[policy.NAME]` of a configuration. Other tables are ignored.
    ///
    /// # Errors
    /// A field is unknown or of another type, or policies contradict themselves or each other: all that is wrong, one sentence
    /// each. Nothing was changed.
    pub fn read(text: &str) -> Result<Policies, PoliciesError> {
        let written: Written = toml::from_str(text)
            .map_err(|error| PoliciesError::one(PolicyError::Unreadable(error.to_string())))?;
        Policies::new(&written.policy)
    }

    /// Checks policies by name and joins those of one cluster.
    ///
    /// # Errors
    /// Policies contradict themselves or each other: all that is wrong, one sentence each. Nothing was changed.
    pub fn new(policies: &BTreeMap<String, Policy>) -> Result<Policies, PoliciesError> {
        if policies.len() > POLICIES_MAX {
            let error = PolicyError::TooMany {
                policies: policies.len(),
            };
            return Err(PoliciesError::one(error));
        }
        let mut of_clusters: BTreeMap<&str, Vec<(&str, &Policy)>> = BTreeMap::new();
        for (name, policy) in policies {
            let cluster = policy.cluster.as_deref().unwrap_or(name);
            of_clusters.entry(cluster).or_default().push((name, policy));
        }
        let mut clusters = BTreeMap::new();
        let mut errors = Vec::new();
        for (cluster, policies) in of_clusters {
            match Rules::joined(cluster, &policies) {
                Ok(rules) => {
                    clusters.insert(cluster.to_owned(), rules);
                }
                Err(refused) => errors.extend(refused),
            }
        }
        match errors.is_empty() {
            true => Ok(Policies { clusters }),
            false => Err(PoliciesError(errors)),
        }
    }

    /// The rules of a cluster; None if it has no policy.
    #[must_use]
    pub fn rules(&self, cluster: &str) -> Option<&Rules> {
        self.clusters.get(cluster)
    }

    /// All clusters that have policies, by name.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, &Rules)> {
        self.clusters
            .iter()
            .map(|(name, rules)| (name.as_str(), rules))
    }

    /// The bounds of numbers and spans, for the configuration's reference.
    #[must_use]
    pub fn limits() -> &'static [Limits] {
        &super::rules::LIMITS
    }
}
