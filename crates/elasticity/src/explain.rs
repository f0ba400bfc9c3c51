//! The dry run: what would be decided now, what is waited for, and which threshold is nearest. `asterism plan` shows it.

use std::fmt;

use serde::Serialize;

use super::decision::{Decision, Obstacle, Reason, Times, Wanted};
use super::fleet::{Counts, Fleet};
use super::rules::Rules;
use super::sample::Metric;
use super::signals;
use super::state::State;
use super::time::{Span, UnixMs};

/// A threshold that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "watch", rename_all = "kebab-case")]
pub enum Watch {
    /// Hosts are added above it.
    Out {
        /// The metric.
        metric: Metric,
        /// The figure; None if too few hosts have one.
        figure: Option<u64>,
        /// The threshold.
        threshold: u64,
    },
    /// A host may be removed below it.
    In {
        /// The metric.
        metric: Metric,
        /// The figure; None unless all hosts have one.
        figure: Option<u64>,
        /// The threshold.
        threshold: u64,
    },
    /// A host is removed if the others can carry the load.
    Spare {
        /// Packets/s of all hosts; None unless loads and capacities of all hosts are known.
        figure: Option<u64>,
        /// What the others can carry, without the head-room.
        threshold: u64,
    },
    /// Buckets move away from a host above it.
    HotSpot {
        /// The hottest host; None unless the loads of all hosts are known.
        host: Option<String>,
        /// Its share of the mean load, in thousandths.
        figure: Option<u64>,
        /// The share from which it is hot.
        threshold: u64,
    },
}

/// Something that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// What follows if nothing else is in the way.
    pub wanted: Wanted,
    /// What is waited for.
    #[serde(rename = "for")]
    pub until_what: WaitFor,
    /// How much longer, in milliseconds.
    pub remaining_ms: u64,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitFor {
    /// A figure stays above its threshold.
    Above(Metric),
    /// All figures stay below their thresholds.
    AllBelow,
    /// The others can still carry the load.
    Spare,
    /// A host stays hot.
    Hot(String),
    /// The last change settles.
    CoolDown,
    /// The pause after failed launches.
    BackOff,
    /// A size that was too small is forgotten.
    Forgetting,
}

/// A dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The cluster.
    pub cluster: String,
    /// The moment.
    pub now: UnixMs,
    /// The hosts by standing.
    pub hosts: Counts,
    /// The least number of hosts at this moment.
    pub minimum: u32,
    /// The window of the schedule that asks for it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// The greatest number of hosts.
    pub maximum: u32,
    /// What would be decided now.
    pub decisions: Vec<Decision>,
    /// What is waited for, the shortest wait first.
    pub waits: Vec<Wait>,
    /// All thresholds.
    pub watches: Vec<Watch>,
    /// The place in `watches` of the nearest threshold that is not reached; None if no figure is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<usize>,
}

impl Watch {
    /// How near the figure is to the threshold, in thousandths: 1,000 and more are beyond it.
    #[must_use]
    pub fn nearness_permille(&self) -> Option<u64> {
        let share = |part: u64, whole: u64| {
            let share = u128::from(part) * 1_000 / u128::from(whole.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        match self {
            Watch::Out {
                figure, threshold, ..
            }
            | Watch::HotSpot {
                figure, threshold, ..
            } => Some(share((*figure)?, *threshold)),
            Watch::In {
                figure, threshold, ..
            }
            | Watch::Spare { figure, threshold } => Some(share(*threshold, (*figure)?)),
        }
    }
}

/// Explains decisions by the state and the samples that they came from.
pub(super) fn explain(
    rules: &Rules,
    state: &State,
    fleet: &Fleet<'_>,
    now: UnixMs,
    decisions: Vec<Decision>,
) -> Explanation {
    let (minimum, window) = rules.minimum(now);
    let watches = watches(rules, fleet);
    let near = |(_, watch): &(usize, &Watch)| watch.nearness_permille();
    let known = watches.iter().enumerate();
    let reached = known.filter(|one| near(one).is_some_and(|near| near < 1_000));
    let nearest = reached.max_by_key(near).map(|(place, _)| place);
    Explanation {
        cluster: rules.cluster.clone(),
        now,
        hosts: fleet.counts,
        minimum,
        window: window.map(ToString::to_string),
        maximum: rules.max,
        waits: waits(rules, state, now, &decisions),
        decisions,
        watches,
        nearest,
    }
}

fn watches(rules: &Rules, fleet: &Fleet<'_>) -> Vec<Watch> {
    let mut all = Vec::new();
    for (metric, thresholds) in &rules.thresholds {
        all.push(Watch::Out {
            metric: *metric,
            figure: fleet.typical(*metric),
            threshold: thresholds.out,
        });
        all.push(Watch::In {
            metric: *metric,
            figure: fleet.certain(*metric),
            threshold: thresholds.within,
        });
    }
    if let Some(rules) = rules.consolidation {
        let load = signals::spare(rules, fleet);
        all.push(Watch::Spare {
            figure: load.map(|load| load.packets_per_second),
            threshold: load.map_or(0, |load| load.others_carry),
        });
    }
    if let Some(rules) = rules.hot_spot {
        let heats = signals::heats(fleet);
        let hottest = heats.into_iter().max_by_key(|heat| heat.load_permille);
        all.push(Watch::HotSpot {
            figure: hottest.as_ref().map(|heat| heat.load_permille),
            host: hottest.map(|heat| heat.host),
            threshold: u64::from(rules.factor_permille),
        });
    }
    all
}

fn waits(rules: &Rules, state: &State, now: UnixMs, decisions: &[Decision]) -> Vec<Wait> {
    let mut all = Vec::new();
    let mut push = |wanted, until_what, until: UnixMs| {
        if until > now {
            all.push(Wait {
                wanted,
                until_what,
                remaining_ms: until.since(now).0,
            });
        }
    };
    let out = Wanted::ScaleOut;
    for (metric, since) in &state.above {
        push(out, WaitFor::Above(*metric), since.after(rules.out_for));
    }
    if let Some(since) = state.below {
        push(
            Wanted::ScaleIn,
            WaitFor::AllBelow,
            since.after(rules.in_for),
        );
    }
    if let (Some(since), Some(rules)) = (state.spare, rules.consolidation) {
        push(Wanted::ScaleIn, WaitFor::Spare, since.after(rules.lasts));
    }
    if let Some(rules) = rules.hot_spot {
        for (host, since) in &state.hot {
            let host = WaitFor::Hot(host.clone());
            push(Wanted::MoveBuckets, host, since.after(rules.lasts));
        }
    }
    for decision in decisions {
        if let Reason::Held { wanted, obstacle } = &decision.reason
            && let Some(until) = obstacle.until()
        {
            let what = match obstacle {
                Obstacle::BackingOff { .. } => WaitFor::BackOff,
                Obstacle::TooFewBefore { .. } => WaitFor::Forgetting,
                _ => WaitFor::CoolDown,
            };
            push(*wanted, what, until);
        }
    }
    all.sort_by_key(|wait| wait.remaining_ms);
    all
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.hosts;
        write!(f, "cluster {}: {} serving", self.cluster, counts.serving)?;
        for (count, what) in [
            (counts.serving - counts.fresh, "without a fresh sample"),
            (counts.suspected, "suspected"),
            (counts.starting, "starting"),
            (counts.overdue, "starting for too long"),
            (counts.draining, "leaving"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        write!(f, "; {} to {} hosts allowed", self.minimum, self.maximum)?;
        match &self.window {
            Some(window) => writeln!(f, " by the window {window}")?,
            None => writeln!(f)?,
        }
        for decision in &self.decisions {
            writeln!(f, "now: {}", decision.action)?;
            writeln!(f, "     {}", decision.reason)?;
        }
        for wait in &self.waits {
            let remaining = whole_seconds(wait.remaining_ms);
            writeln!(f, "in {remaining}: {}", wait.sentence())?;
        }
        for (place, watch) in self.watches.iter().enumerate() {
            let mark = match self.nearest == Some(place) {
                true => ", the nearest",
                false => "",
            };
            writeln!(f, "{watch}{mark}")?;
        }
        Ok(())
    }
}

/// A wait rounded up to seconds, so that it never reads as over before it is.
fn whole_seconds(ms: u64) -> Span {
    Span::seconds(ms.div_ceil(1_000))
}

impl Wait {
    /// What follows, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match &self.until_what {
            WaitFor::Above(metric) => format!("hosts are added if {metric} stay above"),
            WaitFor::AllBelow => "a host may be removed if all figures stay below".to_owned(),
            WaitFor::Spare => {
                "a host may be removed if the others can still carry the load".to_owned()
            }
            WaitFor::Hot(host) => format!("buckets move if {host} stays above the mean"),
            WaitFor::CoolDown => "the cool-down ends".to_owned(),
            WaitFor::Forgetting => "the size that was too small may be tried again".to_owned(),
            WaitFor::BackOff => "the next launch is tried".to_owned(),
        }
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |figure: &Option<u64>| match figure {
            Some(figure) => figure.to_string(),
            None => "unknown".to_owned(),
        };
        match self {
            Watch::Out {
                metric,
                figure,
                threshold,
            } => write!(f, "add above {threshold}: {metric} {}", shown(figure))?,
            Watch::In {
                metric,
                figure,
                threshold,
            } => write!(f, "remove below {threshold}: {metric} {}", shown(figure))?,
            Watch::Spare { figure, threshold } => write!(
                f,
                "remove if the others carry it ({threshold}): packets/s of all {}",
                shown(figure)
            )?,
            Watch::HotSpot {
                host,
                figure,
                threshold,
            } => write!(
                f,
                "move above {} the mean: {} {}",
                Times(*threshold),
                host.as_deref().unwrap_or("hottest host"),
                figure.map_or("unknown".to_owned(), |figure| Times(figure).to_string())
            )?,
        }
        match self.nearness_permille() {
            Some(near @ 0..=999) => write!(f, " ({} % of the way)", near / 10),
            Some(_) => f.write_str(" (reached)"),
            None => Ok(()),
        }
    }
}
