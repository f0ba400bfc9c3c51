//! The input of decisions: one sample for each host of a cluster, with the figures that the host and the steering reported.
//!
//! Samples come from outside. A figure that is missing, old or absurd counts as missing; a cluster of which too few figures are
//! known is left alone ([`super::Obstacle`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::time::UnixMs;

/// Samples of one call at most: members, and those that leave. With more of them nothing is decided.
pub const SAMPLES_MAX: usize = 256;
/// Buckets of one call at most. With more of them none is moved.
pub const BUCKETS_MAX: usize = 65_536;
/// Bytes of a host's name at most.
pub const NAME_BYTES_MAX: usize = 64;
/// Packets/s of one host beyond which a figure is absurd: more than 400 Gbit/s of the shortest frames.
pub const PACKETS_PER_SECOND_MAX: u64 = 1_000_000_000;
/// Shares of a host's cores beyond which a figure is absurd, in thousandths: all of them, and an error of measurement.
pub const CPU_PERMILLE_MAX: u64 = 1_100;
/// Flows of one host beyond which a figure is absurd.
pub const FLOWS_MAX: u64 = 10_000_000_000;
/// Latency beyond which a figure is absurd, in microseconds: a minute.
pub const LATENCY_US_MAX: u64 = 60_000_000;
/// Replication lag beyond which a figure is absurd, in microseconds: an hour.
pub const LAG_US_MAX: u64 = 3_600_000_000;

/// A figure by which clusters grow and shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Packets that a host handles in a second.
    PacketsPerSecond,
    /// The share of its cores that a host uses, in thousandths.
    CpuPermille,
    /// Flows that a host has.
    Flows,
    /// The latency that 99 % of a host's packets keep, in microseconds.
    #[serde(rename = "latency_99_us")]
    Latency99Us,
    /// How far a host's replica lags behind, in microseconds.
    LagUs,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 5] = [
        Metric::PacketsPerSecond,
        Metric::CpuPermille,
        Metric::Flows,
        Metric::Latency99Us,
        Metric::LagUs,
    ];

    /// The metric's name in policies, events and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Metric::PacketsPerSecond => "packets_per_second",
            Metric::CpuPermille => "cpu_permille",
            Metric::Flows => "flows",
            Metric::Latency99Us => "latency_99_us",
            Metric::LagUs => "lag_us",
        }
    }

    /// The greatest figure that is not absurd.
    #[must_use]
    pub fn greatest(self) -> u64 {
        match self {
            Metric::PacketsPerSecond => PACKETS_PER_SECOND_MAX,
            Metric::CpuPermille => CPU_PERMILLE_MAX,
            Metric::Flows => FLOWS_MAX,
            Metric::Latency99Us => LATENCY_US_MAX,
            Metric::LagUs => LAG_US_MAX,
        }
    }

    /// Whether hosts share the metric's sum, so that more hosts have less of it each. Latency and lag have no sum.
    #[must_use]
    pub fn is_shared(self) -> bool {
        !matches!(self, Metric::Latency99Us | Metric::LagUs)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Metric::PacketsPerSecond => "packets/s",
            Metric::CpuPermille => "CPU thousandths",
            Metric::Flows => "flows",
            Metric::Latency99Us => "us of 99 % latency",
            Metric::LagUs => "us of lag",
        })
    }
}

/// A host's part in its cluster, as membership and health know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Was launched and gets no packets yet.
    Starting,
    /// Gets packets.
    Serving,
    /// Serves or is dead: health has not decided, and its packets go to others meanwhile.
    Suspected,
    /// Leaves: gets no new flows, and ends when its own are gone.
    Draining,
}

/// The load of one bucket of flows, as the steering counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketLoad {
    /// The bucket's number, unique in the cluster.
    pub bucket: u32,
    /// Its packets/s.
    pub packets_per_second: u64,
}

/// The last that is known of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSample {
    /// The host's name.
    pub host: String,
    /// Its part in the cluster.
    pub standing: Standing,
    /// Since when that is its part.
    pub standing_since: UnixMs,
    /// How old the figures below are, in milliseconds. None: the host never reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// [`Metric::PacketsPerSecond`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_second: Option<u64>,
    /// [`Metric::CpuPermille`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_permille: Option<u64>,
    /// [`Metric::Flows`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u64>,
    /// [`Metric::Latency99Us`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_99_us: Option<u64>,
    /// [`Metric::LagUs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_us: Option<u64>,
    /// Packets/s that the host can carry, from its registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_packets_per_second: Option<u64>,
    /// The buckets that are steered to the host. None where the steering has no buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<BucketLoad>>,
}

impl HostSample {
    /// A sample without figures.
    #[must_use]
    pub fn unknown(host: &str, standing: Standing, standing_since: UnixMs) -> HostSample {
        HostSample {
            host: host.to_owned(),
            standing,
            standing_since,
            age_ms: None,
            packets_per_second: None,
            cpu_permille: None,
            flows: None,
            latency_99_us: None,
            lag_us: None,
            capacity_packets_per_second: None,
            buckets: None,
        }
    }

    /// The figure of a metric; None if it is missing or absurd.
    #[must_use]
    pub fn figure(&self, metric: Metric) -> Option<u64> {
        let figure = match metric {
            Metric::PacketsPerSecond => self.packets_per_second,
            Metric::CpuPermille => self.cpu_permille,
            Metric::Flows => self.flows,
            Metric::Latency99Us => self.latency_99_us,
            Metric::LagUs => self.lag_us,
        };
        figure.filter(|figure| *figure <= metric.greatest())
    }

    /// What the host can carry; None if it is unknown, zero or absurd.
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        let capacity = self.capacity_packets_per_second;
        capacity.filter(|capacity| (1..=PACKETS_PER_SECOND_MAX).contains(capacity))
    }
}

/// A reading of a counter that only grows within an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The incarnation of the host that counted.
    pub incarnation: u64,
    /// When it was read, by the host's clock.
    pub at: UnixMs,
    /// The count.
    pub count: u64,
}

/// The rate between two readings, in whole units a second. None where there is none: another incarnation, a counter or a clock
/// that went back, readings of one moment, or a rate above `greatest`.
#[must_use]
pub fn rate_per_second(earlier: Reading, later: Reading, greatest: u64) -> Option<u64> {
    let ms = later.at.0.checked_sub(earlier.at.0).filter(|ms| *ms > 0)?;
    let grown = later.count.checked_sub(earlier.count)?;
    let rate = u128::from(grown) * 1_000 / u128::from(ms);
    let is_same = earlier.incarnation == later.incarnation;
    u64::try_from(rate)
        .ok()
        .filter(|rate| is_same && *rate <= greatest)
}

/// A figure that was measured as a fraction. None for negative figures, infinities, not-a-number, and figures above
/// `greatest`.
#[must_use]
pub fn whole(figure: f64, greatest: u64) -> Option<u64> {
    let is_sound = figure.is_finite() && figure >= 0.0 && figure <= greatest as f64;
    is_sound.then_some(figure as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_figures_are_missing() {
        let mut sample = HostSample::unknown("a", Standing::Serving, UnixMs(0));
        for metric in Metric::ALL {
            assert_eq!(sample.figure(metric), None);
        }
        sample.cpu_permille = Some(CPU_PERMILLE_MAX);
        assert_eq!(sample.figure(Metric::CpuPermille), Some(CPU_PERMILLE_MAX));
        sample.cpu_permille = Some(CPU_PERMILLE_MAX + 1);
        sample.packets_per_second = Some(0_u64.wrapping_sub(7));
        assert_eq!(sample.figure(Metric::CpuPermille), None);
        assert_eq!(sample.figure(Metric::PacketsPerSecond), None);
        for capacity in [0, u64::MAX] {
            sample.capacity_packets_per_second = Some(capacity);
            assert_eq!(sample.capacity(), None);
        }
        for figure in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5, 1e300] {
            assert_eq!(whole(figure, 1_000), None);
        }
        assert_eq!(whole(999.9, 1_000), Some(999));
    }

    #[test]
    fn rates_are_of_one_incarnation_that_grows() {
        let reading = |incarnation, at, count| Reading {
            incarnation,
            at: UnixMs(at),
            count,
        };
        let rate = |earlier, later| rate_per_second(earlier, later, 10_000);
        assert_eq!(rate(reading(1, 0, 0), reading(1, 500, 700)), Some(1_400));
        assert_eq!(rate(reading(1, 0, 0), reading(2, 500, 700)), None);
        assert_eq!(rate(reading(1, 0, 9), reading(1, 500, 8)), None);
        assert_eq!(rate(reading(1, 500, 0), reading(1, 500, 8)), None);
        assert_eq!(rate(reading(1, 500, 0), reading(1, 499, 8)), None);
        assert_eq!(rate(reading(1, 0, 0), reading(1, 1, u64::MAX)), None);
    }
}
