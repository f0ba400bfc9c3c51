//! The decisions: taken, written into the record, and carried out once the store has them.

use asterism_elasticity::{Action, Decision, Elasticity, Obstacle, Reason, Span, Standing};

use super::record::{LaunchRecord, Place, Wanted};
use super::runner::{Runner, Turn, is_heard};
use super::world::World;
use crate::launch::{Found, FoundState};
use crate::run::view::{HostView, Logged};

/// How often it is decided.
const DECIDE_INTERVAL: Span = Span(250);
/// How long packets of buckets are counted for one figure.
const BUCKETS_INTERVAL: Span = Span::seconds(2);

/// What is done once the store has the record.
#[derive(Debug, Default)]
pub(super) struct Decided {
    lines: Vec<Logged>,
    /// Buckets, and where they go.
    moves: Vec<(Vec<u32>, String)>,
}

impl Decided {
    pub(super) fn carry_out(self, world: &mut impl World) {
        for line in self.lines {
            world.log(line);
        }
        for (buckets, to) in self.moves {
            if let Err(why) = world.move_buckets(&buckets, &to) {
                world.log(Logged {
                    kind: "buckets-not-moved",
                    host: Some(to),
                    is_warning: true,
                    text: why.to_string(),
                });
            }
        }
    }
}

impl Runner {
    /// Decides, if it is time; what is decided is in `next`. Without the store nothing is.
    pub(super) fn decide(
        &mut self,
        world: &mut impl World,
        turn: Turn<'_>,
        next: &mut LaunchRecord,
    ) -> Decided {
        let mut decided = Decided::default();
        let launches = world.launcher().abilities().launches;
        if turn.now < self.decide_at || turn.view.store.error.is_some() || !launches {
            return decided;
        }
        self.decide_at = turn.now.after(DECIDE_INTERVAL);
        let rules = self.rules_for(next.ordered);
        if *self.elasticity.rules() != rules {
            let state = self.elasticity.state().clone();
            self.elasticity = Elasticity::resume(rules, state);
        }
        if self.rules.hot_spot.is_some() && turn.now.since(self.buckets_at) >= BUCKETS_INTERVAL {
            self.buckets_at = turn.now;
            self.buckets = world.buckets();
        }
        let samples = self.samples(turn, next);
        let mut held = None;
        for decision in self.elasticity.decide(turn.now, &samples) {
            self.take(turn, next, decision, &mut decided, &mut held);
        }
        self.held = held;
        self.note_reached(&samples, next, &mut decided);
        decided
    }

    fn take(
        &mut self,
        turn: Turn<'_>,
        next: &mut LaunchRecord,
        decision: Decision,
        decided: &mut Decided,
        held: &mut Option<String>,
    ) {
        let Decision { action, reason } = decision;
        let said = format!("{action}: {reason}");
        let (kind, host) = match action {
            Action::ScaleOut { count } => {
                let free = self.free_places(turn, next, count as usize);
                self.elasticity.not_launched(count - free.len() as u32);
                if free.is_empty() {
                    return hold(
                        &self.held,
                        held,
                        "places".to_owned(),
                        format!("{said}, but every place has a process"),
                        decided,
                    );
                }
                for name in free {
                    self.start_in(next, &name);
                }
                ("scale-out", None)
            }
            Action::ScaleIn { host, drain } => {
                if let Some(place) = next.places.get_mut(&host) {
                    place.wanted = Wanted::Leaves {
                        since: turn.now,
                        until: turn.now.after(drain),
                    };
                }
                ("scale-in", Some(host))
            }
            Action::MoveBuckets { from, to, buckets } => {
                decided.moves.push((buckets, to));
                ("buckets-move", Some(from))
            }
            Action::Hold => {
                if let Reason::Held { wanted, obstacle } = &reason {
                    let topic = format!("{wanted:?} {:?}", std::mem::discriminant(obstacle));
                    if !is_passing(obstacle) {
                        hold(&self.held, held, topic, reason.to_string(), decided);
                    }
                }
                return;
            }
        };
        decided.lines.push(Logged {
            kind,
            host,
            is_warning: false,
            text: said,
        });
    }

    /// Places without a process, in their order.
    fn free_places(&self, turn: Turn<'_>, record: &LaunchRecord, count: usize) -> Vec<String> {
        let is_free = |name: &&String| {
            let place = record.places.get(*name);
            let found = self.found(name);
            let ended = found.filter(|found| matches!(found.state, FoundState::Ended(_)));
            // The last heartbeats of a process that has ended take no place.
            let is_of_ended = |host: &HostView| {
                let is_it = |found: &Found| (1..=found.incarnation).contains(&host.launch);
                ended.is_some_and(is_it)
            };
            !place.is_some_and(Place::is_on)
                && (found.is_none() || ended.is_some())
                && !turn
                    .host(name)
                    .is_some_and(|host| is_heard(host) && !is_of_ended(host))
        };
        let free = self.places.iter().filter(is_free);
        free.take(count).cloned().collect()
    }

    fn start_in(&self, record: &mut LaunchRecord, name: &str) {
        let last = record.places.get(name).map_or(0, |place| place.launch);
        let known = self.found(name).map_or(0, |found| found.incarnation);
        let place = Place {
            launch: last.max(known) + 1,
            by: self.name.clone(),
            wanted: Wanted::Runs,
            is_new: true,
        };
        record.places.insert(name.to_owned(), place);
    }

    /// Ends an operator's order that a policy follows, once there are so many hosts.
    fn note_reached(
        &self,
        samples: &[asterism_elasticity::HostSample],
        next: &mut LaunchRecord,
        decided: &mut Decided,
    ) {
        let Some(ordered) = next.ordered.filter(|_| self.is_policy) else {
            return;
        };
        let serve =
            |sample: &&asterism_elasticity::HostSample| sample.standing == Standing::Serving;
        let serving = samples.iter().filter(serve).count();
        if serving == ordered as usize && serving == samples.len() {
            next.ordered = None;
            decided.lines.push(Logged {
                kind: "scale-reached",
                host: None,
                is_warning: false,
                text: format!("there are {ordered} hosts, as ordered; the policy goes on"),
            });
        }
    }
}

/// Notes that something is held, and reports it unless it was held before.
fn hold(
    before: &Option<String>,
    held: &mut Option<String>,
    topic: String,
    text: String,
    decided: &mut Decided,
) {
    if before.as_ref() != Some(&topic) {
        decided.lines.push(Logged {
            kind: "scale-held",
            host: None,
            is_warning: false,
            text,
        });
    }
    *held = Some(topic);
}

/// Whether an obstacle is only that an earlier decision is not finished, which is no news.
fn is_passing(obstacle: &Obstacle) -> bool {
    matches!(
        obstacle,
        Obstacle::Launching { .. } | Obstacle::Settling { .. }
    )
}
