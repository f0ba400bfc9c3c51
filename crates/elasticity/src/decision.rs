//! The output of elasticity: decisions, each with its reason and the figures behind it, as events and `asterism plan` show them.

use std::fmt;

use serde::Serialize;

use super::sample::Metric;
use super::time::{Span, UnixMs};

/// One decision. The caller carries out its action and reports its reason as an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// What is to be done.
    #[serde(flatten)]
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Launch so many hosts.
    ScaleOut {
        /// How many.
        count: u32,
    },
    /// Drain one host, then end it.
    ScaleIn {
        /// Which.
        host: String,
        /// How long it keeps its flows.
        drain: Span,
    },
    /// Steer buckets to another host.
    MoveBuckets {
        /// The host that has them.
        from: String,
        /// The host that gets them.
        to: String,
        /// Their numbers.
        buckets: Vec<u32>,
    },
    /// Do nothing.
    Hold,
}

/// Why something is done, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "because", rename_all = "kebab-case")]
pub enum Reason {
    /// There are fewer hosts than the minimum.
    BelowMinimum {
        /// Hosts that serve or start.
        hosts: u32,
        /// The minimum.
        minimum: u32,
        /// The window of the schedule that asks for it, if one does.
        #[serde(skip_serializing_if = "Option::is_none")]
        window: Option<String>,
    },
    /// There are more hosts than the maximum.
    AboveMaximum {
        /// Hosts that serve or start.
        hosts: u32,
        /// The maximum.
        maximum: u32,
        /// Why this host.
        choice: Choice,
    },
    /// A figure was above its threshold for long enough.
    Above {
        /// The figure.
        #[serde(flatten)]
        excess: Excess,
        /// Hosts that serve.
        hosts: u32,
        /// Hosts that bring the figure down, were there no limits.
        needed: u32,
    },
    /// All figures were below their thresholds for long enough.
    Below {
        /// The figures.
        figures: Vec<Slack>,
        /// For how long.
        lasted: Span,
        /// Why this host.
        choice: Choice,
    },
    /// The other hosts could have carried the load for long enough.
    Spare {
        /// Packets/s of all hosts.
        packets_per_second: u64,
        /// Packets/s that the others can carry, without the head-room.
        others_carry: u64,
        /// The fewest hosts that carry the load.
        fewest: u32,
        /// For how long.
        lasted: Span,
        /// Why this host.
        choice: Choice,
    },
    /// A host was above the mean for long enough.
    HotSpot {
        /// The host.
        host: String,
        /// Its share of the mean load, in thousandths.
        load_permille: u64,
        /// The greatest share of the mean load after all moves of this call, in thousandths.
        after_permille: u64,
        /// For how long.
        lasted: Span,
    },
    /// Something is wanted and cannot be done now.
    Held {
        /// What is wanted.
        wanted: Wanted,
        /// Why not.
        obstacle: Obstacle,
    },
    /// Nothing is wanted.
    Steady,
}

/// A figure above its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Excess {
    /// The metric.
    pub metric: Metric,
    /// The figure of a typical host.
    pub figure: u64,
    /// The threshold.
    pub out: u64,
    /// For how long.
    pub lasted: Span,
}

/// A figure below its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slack {
    /// The metric.
    pub metric: Metric,
    /// The figure.
    pub figure: u64,
    /// The threshold.
    pub within: u64,
    /// The figure that is expected with one host less.
    pub expected: u64,
    /// The greatest figure that may be expected.
    pub ceiling: u64,
}

/// Why a host was chosen to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "chosen", rename_all = "kebab-case")]
pub enum Choice {
    /// It has the least load.
    LeastLoaded {
        /// Its packets/s.
        packets_per_second: u64,
    },
    /// It is the newest of those with the least load.
    Newest {
        /// Its packets/s, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        packets_per_second: Option<u64>,
    },
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// More hosts.
    ScaleOut,
    /// One host less.
    ScaleIn,
    /// Buckets on other hosts.
    MoveBuckets,
    /// Any change: it is not known which.
    Change,
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "obstacle", rename_all = "kebab-case")]
pub enum Obstacle {
    /// Fewer than half of the hosts have fresh samples: the fault may be the orchestrator's own.
    SamplesMissing {
        /// Hosts with fresh samples.
        fresh: u32,
        /// Hosts that should have some.
        hosts: u32,
    },
    /// Two samples are of one host.
    SampledTwice {
        /// The host.
        host: String,
    },
    /// There are more samples than a cluster has hosts.
    TooManySamples {
        /// How many.
        samples: u64,
    },
    /// The last change was a short time ago.
    CoolingDown {
        /// Until when.
        until: UnixMs,
    },
    /// Launches have failed.
    BackingOff {
        /// How many in a row.
        failures: u32,
        /// Until when.
        until: UnixMs,
    },
    /// Enough hosts are on their way.
    Launching {
        /// How many serve or start.
        coming: u32,
        /// How many are needed.
        needed: u32,
    },
    /// No host may be added.
    AtMaximum {
        /// Hosts that run, those that leave included.
        hosts: u32,
        /// The maximum.
        maximum: u32,
    },
    /// No host may be removed.
    AtMinimum {
        /// Hosts that serve or start.
        hosts: u32,
        /// The minimum.
        minimum: u32,
        /// The window of the schedule that asks for it, if one does.
        #[serde(skip_serializing_if = "Option::is_none")]
        window: Option<String>,
    },
    /// A host could not leave without hosts being added again.
    WouldScaleOut {
        /// The figure that stands in the way.
        #[serde(flatten)]
        figure: Slack,
    },
    /// Latency or lag asked for more hosts when there was one less, at this load or less.
    TooFewBefore {
        /// Hosts that served then.
        hosts: u32,
        /// Packets/s of all hosts then, if they were known.
        #[serde(skip_serializing_if = "Option::is_none")]
        packets_per_second: Option<u64>,
        /// When this is forgotten.
        until: UnixMs,
    },
    /// A figure is not known of all hosts.
    Unknown {
        /// Its metric.
        metric: Metric,
    },
    /// Hosts are suspected: the others may be needed.
    Suspected {
        /// How many.
        suspected: u32,
    },
    /// Hosts start or leave: the load is not where it will be.
    Settling {
        /// How many start, or were ordered.
        starting: u32,
        /// How many leave.
        draining: u32,
    },
    /// A hot host's load is one bucket, which cannot be split.
    Unsplittable {
        /// The host.
        host: String,
        /// The bucket.
        bucket: u32,
        /// The bucket's packets/s.
        packets_per_second: u64,
        /// The host's share of the mean load, in thousandths.
        load_permille: u64,
    },
    /// A hot host has no buckets whose move would help enough.
    NoBetterPlace {
        /// The host.
        host: String,
        /// The host's share of the mean load, in thousandths.
        load_permille: u64,
    },
    /// The steering does not know the buckets of all hosts.
    NoBuckets {
        /// The hot host.
        host: String,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::ScaleOut { count: 1 } => f.write_str("add 1 host"),
            Action::ScaleOut { count } => write!(f, "add {count} hosts"),
            Action::ScaleIn { host, drain } => write!(f, "remove {host}, draining for {drain}"),
            Action::MoveBuckets { from, to, buckets } => {
                let some = if buckets.len() == 1 { "" } else { "s" };
                write!(f, "move {} bucket{some} from {from} to {to}", buckets.len())
            }
            Action::Hold => f.write_str("change nothing"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::BelowMinimum {
                hosts,
                minimum,
                window,
            } => {
                write!(f, "{hosts} hosts are fewer than the minimum of {minimum}")?;
                of_window(f, window.as_deref())
            }
            Reason::AboveMaximum {
                hosts,
                maximum,
                choice,
            } => write!(
                f,
                "{hosts} hosts are more than the maximum of {maximum}; {choice}"
            ),
            Reason::Above {
                excess,
                hosts,
                needed,
            } => write!(f, "{excess}; {needed} hosts are needed, {hosts} serve"),
            Reason::Below {
                figures,
                lasted,
                choice,
            } => {
                for (place, slack) in figures.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{slack}")?;
                }
                write!(f, " for {lasted}; {choice}")
            }
            Reason::Spare {
                packets_per_second,
                others_carry,
                fewest,
                lasted,
                choice,
            } => write!(
                f,
                "the others can carry {others_carry} packets/s with head-room, and all carry {packets_per_second} for {lasted}; {fewest} hosts are enough; {choice}"
            ),
            Reason::HotSpot {
                host,
                load_permille,
                after_permille,
                lasted,
            } => write!(
                f,
                "{host} has {} of the mean load for {lasted}, {} after all moves",
                Times(*load_permille),
                Times(*after_permille)
            ),
            Reason::Held { wanted, obstacle } => write!(f, "{wanted}, but {obstacle}"),
            Reason::Steady => f.write_str("nothing is wanted now"),
        }
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {} is above {} for {}",
            self.metric, self.figure, self.out, self.lasted
        )
    }
}

impl fmt::Display for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {} is below {} ({} of at most {} with one host less)",
            self.metric, self.figure, self.within, self.expected, self.ceiling
        )
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::LeastLoaded { packets_per_second } => {
                write!(f, "it has the least load, {packets_per_second} packets/s")
            }
            Choice::Newest {
                packets_per_second: Some(load),
            } => write!(
                f,
                "it is the newest of those with the least load, {load} packets/s"
            ),
            Choice::Newest {
                packets_per_second: None,
            } => f.write_str("it is the newest"),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wanted::ScaleOut => "more hosts are wanted",
            Wanted::ScaleIn => "fewer hosts would do",
            Wanted::MoveBuckets => "buckets should move",
            Wanted::Change => "changes may be wanted",
        })
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::SamplesMissing { fresh, hosts } => {
                write!(f, "only {fresh} of {hosts} hosts have fresh samples")
            }
            Obstacle::SampledTwice { host } => write!(f, "{host} has two samples"),
            Obstacle::TooManySamples { samples } => write!(f, "{samples} samples are too many"),
            Obstacle::CoolingDown { .. } => f.write_str("the last change was a short time ago"),
            Obstacle::BackingOff { failures: 1, .. } => f.write_str("the last launch failed"),
            Obstacle::BackingOff { failures, .. } => {
                write!(f, "the last {failures} launches failed")
            }
            Obstacle::Launching { coming, needed } => {
                write!(
                    f,
                    "{coming} hosts serve or start, of {needed} that are needed"
                )
            }
            Obstacle::AtMaximum { hosts, maximum } => {
                write!(f, "{hosts} hosts run, and {maximum} is the maximum")
            }
            Obstacle::AtMinimum {
                hosts,
                minimum,
                window,
            } => {
                write!(f, "there are {hosts} hosts, and {minimum} is the minimum")?;
                of_window(f, window.as_deref())
            }
            Obstacle::WouldScaleOut { figure } => write!(
                f,
                "{} would be {} with one host less, above {}",
                figure.metric, figure.expected, figure.ceiling
            ),
            Obstacle::TooFewBefore {
                hosts,
                packets_per_second: Some(load),
                ..
            } => write!(f, "{hosts} hosts were too few for {load} packets/s"),
            Obstacle::TooFewBefore { hosts, .. } => write!(f, "{hosts} hosts were too few"),
            Obstacle::Unknown { metric } => write!(f, "{metric} is not known of all hosts"),
            Obstacle::Suspected { suspected: 1 } => f.write_str("1 host is suspected"),
            Obstacle::Suspected { suspected } => write!(f, "{suspected} hosts are suspected"),
            Obstacle::Settling { starting, draining } => {
                write!(f, "{starting} hosts start and {draining} leave")
            }
            Obstacle::Unsplittable {
                host,
                bucket,
                packets_per_second,
                load_permille,
            } => write!(
                f,
                "bucket {bucket} alone has {packets_per_second} packets/s, so that {host} has {} of the mean load, and a bucket cannot be split",
                Times(*load_permille)
            ),
            Obstacle::NoBetterPlace {
                host,
                load_permille,
            } => write!(
                f,
                "no move helps {host}, which has {} of the mean load",
                Times(*load_permille)
            ),
            Obstacle::NoBuckets { host } => {
                write!(
                    f,
                    "the steering knows no buckets, and {host} is above the mean"
                )
            }
        }
    }
}

impl Obstacle {
    /// When the obstacle ends by itself, if that is known.
    #[must_use]
    pub fn until(&self) -> Option<UnixMs> {
        match self {
            Obstacle::CoolingDown { until }
            | Obstacle::BackingOff { until, .. }
            | Obstacle::TooFewBefore { until, .. } => Some(*until),
            _ => None,
        }
    }
}

fn of_window(f: &mut fmt::Formatter<'_>, window: Option<&str>) -> fmt::Result {
    match window {
        Some(window) => write!(f, " of the window {window}"),
        None => Ok(()),
    }
}

/// Thousandths, shown as a factor: `1.2 times`.
pub(super) struct Times(pub(super) u64);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} times", self.0 / 1_000, self.0 % 1_000 / 10)
    }
}
