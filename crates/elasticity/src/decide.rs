//! The decisions of one cluster: from samples and a moment to actions, each with its reason.

use super::decision::{Action, Decision, Obstacle, Reason, Wanted};
use super::explain::{self, Explanation};
use super::fleet::{Fleet, Frozen};
use super::moves;
use super::mutant::{self, Mutant};
use super::rules::Rules;
use super::sample::HostSample;
use super::signals;
use super::size::Size;
use super::state::{FAILURES_MAX, Ordered, State, TOO_FEW_FOR, TooFew};
use super::time::UnixMs;

/// Decides on the hosts of one cluster. Does no I/O, reads no clock, and waits for nothing; a call takes microseconds, and
/// milliseconds where buckets move.
///
/// The caller calls [`Elasticity::decide`] at least as often as samples age ([`Rules::stale_after`]), carries out the actions,
/// reports how launches end, and keeps [`Elasticity::state`] where the next leader finds it, before it carries out an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elasticity {
    rules: Rules,
    state: State,
}

impl Elasticity {
    /// Begins without a state: every wait begins now.
    #[must_use]
    pub fn new(rules: Rules) -> Elasticity {
        let state = State::new(&rules.cluster);
        Elasticity { rules, state }
    }

    /// Continues where another leader, or the same one with other rules, stopped. A state that cannot be, or is of another
    /// cluster, does no harm ([`State::bounded`]).
    #[must_use]
    pub fn resume(rules: Rules, state: State) -> Elasticity {
        Elasticity { rules, state }
    }

    /// What the next leader needs.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Decides. At most one decision changes the number of hosts; buckets move only if none does. Without an action the result
    /// has at least one [`Action::Hold`], and one for each thing that is wanted and cannot be done.
    ///
    /// The same rules, state, moment and samples give the same decisions, in any order of the samples.
    pub fn decide(&mut self, now: UnixMs, samples: &[HostSample]) -> Vec<Decision> {
        let fleet = Fleet::new(samples, &self.rules, now);
        self.state = std::mem::take(&mut self.state).bounded(&self.rules, now);
        self.notice(now, &fleet);
        let decisions = self.choose(now, &fleet);
        let coming = self.size(now, &fleet).coming();
        for decision in &decisions {
            self.remember(now, &decision.action, coming);
            self.remember_too_few(now, &decision.reason, &fleet);
        }
        decisions
    }

    /// What would be decided now, what is waited for, and which threshold is nearest. Changes nothing.
    #[must_use]
    pub fn explain(&self, now: UnixMs, samples: &[HostSample]) -> Explanation {
        let mut copy = self.clone();
        let fleet = Fleet::new(samples, &copy.rules, now);
        copy.state = std::mem::take(&mut copy.state).bounded(&copy.rules, now);
        copy.notice(now, &fleet);
        let decisions = copy.choose(now, &fleet);
        explain::explain(&copy.rules, &copy.state, &fleet, now, decisions)
    }

    /// Reports that a launch failed: nothing is launched for a pause that doubles with each failure in a row.
    pub fn launch_failed(&mut self, now: UnixMs) {
        let state = &mut self.state;
        state.failures = state.failures.saturating_add(1).min(FAILURES_MAX);
        state.retry_at = Some(now.after(self.rules.pause(state.failures)));
        self.not_launched(1);
    }

    /// Reports that so many of the hosts that were decided are not launched, since there is no place for them: nothing is awaited of them.
    pub fn not_launched(&mut self, count: u32) {
        if let Some(ordered) = &mut self.state.ordered {
            ordered.hosts = ordered.hosts.saturating_sub(count);
        }
    }

    /// Reports that a launched host serves: launches succeed again.
    pub fn launch_succeeded(&mut self) {
        self.state.failures = 0;
        self.state.retry_at = None;
    }

    /// Updates the state by what the samples show.
    fn notice(&mut self, now: UnixMs, fleet: &Fleet<'_>) {
        self.state.seen = Some(now);
        let present = fleet.counts.present();
        let is_open = |ordered: &Ordered| present < ordered.hosts && now < ordered.until;
        self.state.ordered = self.state.ordered.filter(is_open);
        signals::observe(&mut self.state, &self.rules, fleet, now);
    }

    fn size<'a>(&'a self, now: UnixMs, fleet: &'a Fleet<'a>) -> Size<'a> {
        Size {
            rules: &self.rules,
            state: &self.state,
            fleet,
            now,
        }
    }

    fn choose(&self, now: UnixMs, fleet: &Fleet<'_>) -> Vec<Decision> {
        if let Some(obstacle) = frozen(fleet) {
            let wanted = Wanted::Change;
            return vec![hold(Reason::Held { wanted, obstacle })];
        }
        let mut decisions: Vec<Decision> = self.size(now, fleet).decide().into_iter().collect();
        let is_changed = decisions.iter().any(|one| one.action != Action::Hold);
        if let Some(rules) = self.rules.hot_spot.filter(|_| !is_changed) {
            decisions.extend(moves::decide(rules, &self.state, fleet, now));
        }
        if decisions.is_empty() {
            decisions.push(hold(Reason::Steady));
        }
        decisions
    }

    /// Remembers a size at which latency or lag asked for more hosts.
    fn remember_too_few(&mut self, now: UnixMs, reason: &Reason, fleet: &Fleet<'_>) {
        if let Reason::Above { excess, hosts, .. } = reason
            && !excess.metric.is_shared()
        {
            self.state.too_few = Some(TooFew {
                hosts: *hosts,
                packets_per_second: fleet.packets_per_second(),
                until: now.after(TOO_FEW_FOR),
            });
        }
    }

    /// Begins the waits that follow an action.
    fn remember(&mut self, now: UnixMs, action: &Action, coming: u32) {
        let state = &mut self.state;
        match action {
            Action::ScaleOut { count } => {
                state.changed = Some(now);
                state.restart_waits();
                state.ordered = Some(Ordered {
                    hosts: coming + count,
                    until: now.after(self.rules.launch_within),
                });
            }
            Action::ScaleIn { .. } => {
                if !mutant::active(Mutant::RemovalWithoutCoolDown) {
                    state.changed = Some(now);
                    state.restart_waits();
                }
            }
            Action::MoveBuckets { .. } => {
                state.moved = Some(now);
                state.hot.clear();
            }
            Action::Hold => {}
        }
    }
}

fn hold(reason: Reason) -> Decision {
    Decision {
        action: Action::Hold,
        reason,
    }
}

fn frozen(fleet: &Fleet<'_>) -> Option<Obstacle> {
    let counts = fleet.counts;
    fleet.frozen().map(|frozen| match frozen {
        Frozen::Twice(host) => Obstacle::SampledTwice { host: host.clone() },
        Frozen::TooMany(samples) => Obstacle::TooManySamples {
            samples: *samples as u64,
        },
        Frozen::Missing => Obstacle::SamplesMissing {
            fresh: counts.fresh,
            hosts: counts.serving + counts.suspected,
        },
    })
}
