//! Decisions on the number of hosts: its bounds first, then figures above their thresholds, then hosts that could leave.

use super::decision::{Action, Decision, Excess, Obstacle, Reason, Slack, Wanted};
use super::fleet::Fleet;
use super::mutant::{self, Mutant};
use super::rules::Rules;
use super::signals;
use super::state::State;
use super::time::{Span, UnixMs};

/// All that a decision on the number of hosts depends on.
pub(super) struct Size<'a> {
    pub(super) rules: &'a Rules,
    pub(super) state: &'a State,
    pub(super) fleet: &'a Fleet<'a>,
    pub(super) now: UnixMs,
}

fn held(wanted: Wanted, obstacle: Obstacle) -> Decision {
    Decision {
        action: Action::Hold,
        reason: Reason::Held { wanted, obstacle },
    }
}

impl Size<'_> {
    /// The decision; None if the number of hosts is right.
    pub(super) fn decide(&self) -> Option<Decision> {
        self.below_minimum()
            .or_else(|| self.above_maximum())
            .or_else(|| self.above_thresholds())
            .or_else(|| self.could_leave())
    }

    /// Hosts that serve or start, suspects included, and those that were ordered and are not among the samples yet.
    pub(super) fn coming(&self) -> u32 {
        let counts = self.fleet.counts;
        if mutant::active(Mutant::StartingNotCounted) {
            return counts.serving + counts.suspected;
        }
        let ordered = self.state.ordered.map_or(0, |ordered| ordered.hosts);
        counts.present().max(ordered)
    }

    /// All hosts that count towards the maximum.
    fn total(&self) -> u32 {
        let counts = self.fleet.counts;
        let unseen = self.coming().saturating_sub(counts.present());
        counts.total() + unseen
    }

    fn below_minimum(&self) -> Option<Decision> {
        let (minimum, window) = self.rules.minimum(self.now);
        let hosts = self.coming();
        let lacking = minimum.checked_sub(hosts).filter(|lacking| *lacking > 0)?;
        let reason = Reason::BelowMinimum {
            hosts,
            minimum,
            window: window.map(ToString::to_string),
        };
        Some(self.launch(lacking, reason))
    }

    /// Adds hosts as far as bounds and failures of launches allow.
    fn launch(&self, wanted: u32, reason: Reason) -> Decision {
        let (failures, total, maximum) = (self.state.failures, self.total(), self.rules.max);
        if let Some(until) = self.backing_off() {
            return held(Wanted::ScaleOut, Obstacle::BackingOff { failures, until });
        }
        // After a failure one host shows whether launches succeed again.
        let step = if failures > 0 { 1 } else { self.rules.step };
        let count = wanted.min(step).min(maximum.saturating_sub(total));
        if count == 0 {
            let hosts = total;
            return held(Wanted::ScaleOut, Obstacle::AtMaximum { hosts, maximum });
        }
        Decision {
            action: Action::ScaleOut { count },
            reason,
        }
    }

    fn backing_off(&self) -> Option<UnixMs> {
        let is_later = |until: &UnixMs| *until > self.now;
        let until = self.state.retry_at.filter(is_later);
        until.filter(|_| !mutant::active(Mutant::BackOffForgotten))
    }

    fn cooling_down(&self) -> Option<Obstacle> {
        let until = self.state.changed?.after(self.rules.cool_down);
        (until > self.now).then_some(Obstacle::CoolingDown { until })
    }

    fn above_maximum(&self) -> Option<Decision> {
        let (hosts, maximum) = (self.fleet.counts.present(), self.rules.max);
        if hosts <= maximum {
            return None;
        }
        let obstacle = self.suspects().or_else(|| self.settling());
        if let Some(obstacle) = obstacle.or_else(|| self.cooling_down()) {
            return Some(held(Wanted::ScaleIn, obstacle));
        }
        self.remove(|choice| Reason::AboveMaximum {
            hosts,
            maximum,
            choice,
        })
    }

    /// Adds hosts if a figure was above its threshold for long enough.
    fn above_thresholds(&self) -> Option<Decision> {
        let rules = self.rules;
        let lasting = self.state.above.iter().filter_map(|(metric, since)| {
            let thresholds = rules.thresholds.get(metric)?;
            let figure = self.fleet.typical(*metric)?;
            let needed = match metric.is_shared() {
                true => self.fleet.needed(figure, rules.ceiling(*thresholds)),
                false => self.fleet.counts.serving + 1,
            };
            let excess = Excess {
                metric: *metric,
                figure,
                out: thresholds.out,
                lasted: self.now.since(*since),
            };
            (excess.lasted >= rules.out_for).then_some((needed, excess))
        });
        let (needed, excess) = lasting.max_by_key(|(needed, _)| *needed)?;
        let coming = self.coming().saturating_sub(self.fleet.counts.suspected);
        let Some(lacking) = needed.checked_sub(coming).filter(|lacking| *lacking > 0) else {
            return Some(held(
                Wanted::ScaleOut,
                Obstacle::Launching { coming, needed },
            ));
        };
        if let Some(obstacle) = self.cooling_down() {
            return Some(held(Wanted::ScaleOut, obstacle));
        }
        let reason = Reason::Above {
            excess,
            hosts: self.fleet.counts.serving,
            needed,
        };
        Some(self.launch(lacking, reason))
    }

    /// Removes a host if all figures were below their thresholds, or the others could carry the load, for long enough. Both
    /// include that the figures fit with one host less.
    fn could_leave(&self) -> Option<Decision> {
        let lasted = |since: Option<UnixMs>, least: Span| {
            let lasted = self.now.since(since?);
            (lasted >= least).then_some(lasted)
        };
        let below = lasted(self.state.below, self.rules.in_for);
        let consolidation = self.rules.consolidation;
        let spare = consolidation.and_then(|rules| {
            let lasted = lasted(self.state.spare, rules.lasts)?;
            Some((signals::spare(rules, self.fleet)?, lasted))
        });
        if below.is_none() && spare.is_none() {
            return self.does_not_fit();
        }
        let obstacle = self
            .suspects()
            .or_else(|| self.settling())
            .or_else(|| self.at_minimum())
            .or_else(|| self.too_few_before())
            .or_else(|| self.cooling_down());
        if let Some(obstacle) = obstacle {
            return Some(held(Wanted::ScaleIn, obstacle));
        }
        let figures = match self.expected() {
            Ok(figures) => figures,
            Err(obstacle) => return Some(held(Wanted::ScaleIn, obstacle)),
        };
        match (below, spare) {
            (Some(lasted), _) => self.remove(|choice| Reason::Below {
                figures,
                lasted,
                choice,
            }),
            (None, Some((load, lasted))) => self.remove(|choice| Reason::Spare {
                packets_per_second: load.packets_per_second,
                others_carry: load.others_carry,
                fewest: load.fewest,
                lasted,
                choice,
            }),
            (None, None) => None,
        }
    }

    /// Reports figures that are below their thresholds, and would not stay so with one host less.
    fn does_not_fit(&self) -> Option<Decision> {
        let figures = signals::slacks(self.rules, self.fleet)?;
        let is_below = figures.iter().all(|figure| figure.figure < figure.within);
        let figure = figures.into_iter().find(|figure| !signals::fits(figure));
        let figure = figure.filter(|_| is_below)?;
        Some(held(Wanted::ScaleIn, Obstacle::WouldScaleOut { figure }))
    }

    fn remove(&self, reason: impl FnOnce(super::Choice) -> Reason) -> Option<Decision> {
        let has_others = self.fleet.counts.serving >= 2;
        let (sample, choice) = signals::leaving(self.fleet).filter(|_| has_others)?;
        Some(Decision {
            action: Action::ScaleIn {
                host: sample.host.clone(),
                drain: self.rules.drain,
            },
            reason: reason(choice),
        })
    }

    fn suspects(&self) -> Option<Obstacle> {
        let suspected = self.fleet.counts.suspected;
        let is_clear = suspected == 0 || mutant::active(Mutant::SuspectIsPeer);
        (!is_clear).then_some(Obstacle::Suspected { suspected })
    }

    fn settling(&self) -> Option<Obstacle> {
        let counts = self.fleet.counts;
        let starting = self
            .coming()
            .saturating_sub(counts.serving + counts.suspected);
        let draining = counts.draining;
        (starting + draining > 0).then_some(Obstacle::Settling { starting, draining })
    }

    fn at_minimum(&self) -> Option<Obstacle> {
        let hosts = self.fleet.counts.present();
        let (minimum, window) = match mutant::active(Mutant::WindowIgnored) {
            true => (self.rules.min, None),
            false => self.rules.minimum(self.now),
        };
        (hosts <= minimum).then(|| Obstacle::AtMinimum {
            hosts,
            minimum,
            window: window.map(ToString::to_string),
        })
    }

    /// Whether latency or lag asked for more hosts at the smaller size, at this load or less.
    fn too_few_before(&self) -> Option<Obstacle> {
        let before = self.state.too_few?;
        let is_smaller = self.fleet.counts.serving <= before.hosts.saturating_add(1);
        let is_lighter = match (before.packets_per_second, self.fleet.packets_per_second()) {
            (Some(before), Some(load)) => load < self.rules.below(before),
            _ => false,
        };
        (is_smaller && !is_lighter).then_some(Obstacle::TooFewBefore {
            hosts: before.hosts,
            packets_per_second: before.packets_per_second,
            until: before.until,
        })
    }

    /// All figures with one host less; else the figure that stands in the way of its removal.
    fn expected(&self) -> Result<Vec<Slack>, Obstacle> {
        let mut all = Vec::new();
        for (metric, thresholds) in &self.rules.thresholds {
            let figure = signals::slack(self.rules, self.fleet, *metric, *thresholds)
                .ok_or(Obstacle::Unknown { metric: *metric })?;
            if !signals::fits(&figure) {
                return Err(Obstacle::WouldScaleOut { figure });
            }
            all.push(figure);
        }
        Ok(all)
    }
}
