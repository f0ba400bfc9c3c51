//! Who is well, and where packets go.

use std::collections::BTreeSet;

use asterism_placement::Time;

use super::host::{Host, Seen};
use super::input::{Heartbeat, Stage};
use super::mutant::{self, Mutant};
use super::{Awaited, Command, Controller, Event};
use crate::steering::{Desired, Generation, Standing, Target};

/// Bits of a desired state's number that count the changes within a term; the term is above them.
const CHANGES_BITS: u32 = 24;

/// Why packets leave a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unfit {
    /// It does not take part, or has not the state.
    NotReady,
    /// It is about to be stopped.
    Withdrawn,
    Silent,
    Isolated,
    LinkDown,
}

/// Members of which too little is heard.
struct Silences {
    /// Silent, and taken to be.
    believed: BTreeSet<String>,
    /// Silent for all others that are heard too.
    confirmed: BTreeSet<String>,
    /// Heard here, and silent for most of the others.
    isolated: BTreeSet<String>,
}

impl Controller {
    /// Judges all hosts by what was heard until now.
    pub(super) fn judge(&mut self, now: Time) {
        let Some((record, _)) = &self.record else {
            return;
        };
        let epoch = record.epoch_number();
        let Silences {
            believed,
            confirmed,
            isolated,
        } = self.silences(now);
        let mut leaving = Vec::new();
        for name in self.places.clone() {
            let incarnation = self.record().and_then(|record| record.member(&name));
            let is_withdrawn = self
                .record()
                .is_some_and(|record| record.withdrawn.contains(&name));
            let Some(host) = self.hosts.get_mut(&name) else {
                continue;
            };
            let silence = host.silence(now, &self.times);
            let unfit = match incarnation {
                Some(incarnation) => is_unfit(
                    host,
                    incarnation,
                    epoch,
                    believed.contains(&name),
                    isolated.contains(&name),
                ),
                None => Some(Unfit::NotReady),
            };
            let unfit = unfit.or(is_withdrawn.then_some(Unfit::Withdrawn));
            let health = &mut host.health;
            note_since(&mut health.suspected_since, believed.contains(&name), now);
            note_since(
                &mut health.confirmed_since,
                confirmed.contains(&name) && incarnation.is_some(),
                now,
            );
            let is_well = !matches!(
                unfit,
                Some(Unfit::Silent | Unfit::Isolated | Unfit::LinkDown)
            );
            note_since(&mut health.healthy_since, is_well, now);
            note_since(&mut health.serves_since, unfit.is_none(), now);
            if health
                .serves_since
                .is_some_and(|since| now.since(since) >= self.times.admit_pause_max)
            {
                host.admissions.forget();
            }
            let health = &mut host.health;
            match unfit {
                None if health.takes => {}
                None => {
                    // A silence that is not believed is no wellness either.
                    if health.may_return(now, &self.times) && silence.is_none() {
                        (health.takes, health.is_on_probation) = (true, false);
                        self.events_push(Event::Takes { host: name });
                    }
                }
                Some(why) if health.takes => leaving.push((name, why)),
                Some(_) => {}
            }
        }
        self.take_out(now, leaving);
    }

    /// What is heard of the members, by us and by each other.
    fn silences(&mut self, now: Time) -> Silences {
        let epoch = self.record().and_then(|record| record.epoch.as_ref());
        let members: Vec<String> =
            epoch.map_or_else(Vec::new, |epoch| epoch.members.keys().cloned().collect());
        let silent: BTreeSet<&String> = members
            .iter()
            .filter(|name| {
                self.hosts
                    .get(*name)
                    .is_some_and(|host| host.silence(now, &self.times).is_some())
            })
            .collect();
        // What members that are heard and have joined report of the others.
        let reporters: Vec<(&String, &BTreeSet<String>)> = members
            .iter()
            .filter(|name| !silent.contains(name))
            .filter_map(|name| Some((name, self.hosts.get(name)?.member.as_ref()?)))
            .filter(|(_, seen)| matches!(seen.last.stage, Stage::Serving(_)))
            .map(|(name, seen)| (name, &seen.last.silent))
            .collect();
        let is_confirmed = |name: &String| {
            let mut others = reporters
                .iter()
                .filter(|(reporter, _)| *reporter != name)
                .peekable();
            others.peek().is_some() && others.all(|(_, silent)| silent.contains(name))
        };
        let is_isolated = |name: &String| {
            let others = reporters.iter().filter(|(reporter, _)| *reporter != name);
            let (all, not) = others.fold((0, 0), |(all, not), (_, silent)| {
                (all + 1, not + usize::from(silent.contains(name)))
            });
            all >= 2 && 2 * not > all
        };
        // A host that joins carries nothing yet, and its heartbeats do not show that those of the others arrive.
        let counts = |name: &&String| {
            let seen = self.hosts.get(*name).and_then(|host| host.member.as_ref());
            let joins =
                |seen: &Seen| matches!(seen.last.stage, Stage::Awaiting | Stage::Joining(_));
            !seen.is_some_and(joins)
        };
        let all = members.iter().filter(counts).count();
        let count = silent.iter().copied().filter(counts).count();
        let are_most = are_most(count, all);
        // Heartbeats return one after the other; until all had the time to, silence of the rest is not believed either.
        let is_believed = !are_most && !self.was_frozen_lately(now);
        let confirmed: BTreeSet<String> = silent
            .iter()
            .filter(|name| is_confirmed(name))
            .map(|name| (*name).clone())
            .collect();
        let isolated: BTreeSet<String> = members
            .iter()
            .filter(|name| is_isolated(name))
            .cloned()
            .collect();
        let believed = |name: &String| {
            is_believed
                || confirmed.contains(name)
                || mutant::active(Mutant::MajoritySilenceBelieved)
        };
        let believed: BTreeSet<String> = silent
            .iter()
            .filter(|name| believed(name))
            .map(|name| (*name).clone())
            .collect();
        if are_most && believed.len() < count {
            self.frozen_at = Some(now);
            let event = Event::Frozen {
                silent: count,
                members: all,
            };
            self.report("frozen", String::new(), event);
        } else {
            self.forget_report("frozen", "");
        }
        Silences {
            believed,
            confirmed,
            isolated,
        }
    }

    /// Packets leave these hosts, unless no other host takes packets.
    fn take_out(&mut self, now: Time, leaving: Vec<(String, Unfit)>) {
        let takers = self.takers().count();
        if leaving.is_empty() {
            return self.forget_report("nobody", "");
        }
        if leaving.len() >= takers {
            return self.report("nobody", String::new(), Event::NobodyTakes);
        }
        for (name, why) in leaving {
            let Some(host) = self.hosts.get_mut(&name) else {
                continue;
            };
            let silence = host.silence(now, &self.times).unwrap_or_default();
            host.health.takes = false;
            host.health.is_on_probation = !matches!(why, Unfit::NotReady | Unfit::Withdrawn);
            let host = name;
            match why {
                Unfit::NotReady | Unfit::Withdrawn => {}
                Unfit::Silent => self.events_push(Event::Suspected { host, silence }),
                Unfit::Isolated => self.events_push(Event::Isolated { host }),
                Unfit::LinkDown => self.events_push(Event::LinkDown { host }),
            }
        }
    }

    fn was_frozen_lately(&self, now: Time) -> bool {
        let lately = |at: Time| now.since(at) < self.times.suspect_after_max;
        self.frozen_at.is_some_and(lately)
    }

    /// Commands the steering, if what is desired is not known to be in force.
    pub(super) fn steer(&mut self, now: Time, term: u64) {
        // A controller that has not steered yet, and hears few of the hosts or did not wait for all, does not know who takes packets.
        let awaits_first =
            |host: &Host| host.member.is_none() && host.silence(now, &self.times).is_none();
        let is_member = |name: &String| {
            self.record()
                .is_some_and(|record| record.member(name).is_some())
        };
        let awaits_some = self
            .hosts
            .iter()
            .any(|(name, host)| is_member(name) && awaits_first(host));
        if self.steering.desired.is_none() && (awaits_some || self.was_frozen_lately(now)) {
            return;
        }
        let is_settled = self
            .began
            .is_some_and(|began| now.since(began) >= self.times.suspect_after_max);
        let overdue = self
            .steering
            .awaited
            .as_ref()
            .is_some_and(|awaited| self.is_overdue(now, awaited.since));
        if overdue {
            self.steering.awaited = None;
        }
        let Some((record, _)) = self
            .record
            .as_ref()
            .filter(|_| is_settled && self.steering.awaited.is_none())
        else {
            return;
        };
        let target = |name: &str| {
            let standing = match record.drained.contains(name) {
                true => Standing::Drains,
                false => Standing::Takes,
            };
            (
                self.name_of(name),
                Target {
                    standing,
                    ..Target::TAKES
                },
            )
        };
        let is_steered = |name: &str| {
            let only = self.steered_only.as_ref();
            only.is_none_or(|only| only.contains(name))
        };
        let mut takers: Vec<(String, Target)> = self.takers().map(target).collect();
        let apart: Vec<String> = takers
            .extract_if(.., |(name, _)| !is_steered(name))
            .map(|(name, _)| name)
            .collect();
        takers.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for host in apart {
            self.report("apart", host.clone(), Event::NotSteered { host });
        }
        let before = self.steering.desired.as_ref();
        let is_same = before.is_some_and(|before| {
            before
                .targets()
                .map(|(name, target)| (name.to_owned(), target))
                .eq(takers.iter().cloned())
        });
        if is_same && now < self.steering.again_at {
            return;
        }
        let first = match mutant::active(Mutant::GenerationsBeginAgain) {
            true => 0,
            false => term << CHANGES_BITS,
        };
        let last = before.map_or(first, |before| before.generation().0);
        let generation = last + u64::from(!is_same);
        // Without a taker what is in force stays.
        let Ok(desired) = Desired::new(Generation(generation), takers) else {
            return;
        };
        self.steering.desired = Some(desired.clone());
        self.steering.awaited = Some(Awaited {
            what: generation,
            since: now,
        });
        self.commands.push_back(Command::Steer(desired));
    }
}

/// Whether so many silent ones of all members are too many to be believed. Two heartbeats are due some milliseconds apart: of a
/// half, the other half may be silent next.
pub(super) fn are_most(silent: usize, all: usize) -> bool {
    silent > 0 && (silent >= all || 2 * silent >= all && silent >= 2)
}

/// Why a member does not take packets, if so.
fn is_unfit(
    host: &Host,
    incarnation: u64,
    epoch: u32,
    is_silent: bool,
    is_isolated: bool,
) -> Option<Unfit> {
    if is_silent {
        return Some(Unfit::Silent);
    }
    // One that is silent with most others is as it was when it was heard last.
    let Some(seen) = &host.member else {
        return Some(Unfit::NotReady);
    };
    // A difference found later is the auditor's alarm; it is no reason to take the host out.
    let is_ready = host.health.takes || (agrees(&seen.last) && seen.last.epoch >= epoch);
    match () {
        () if !is_serving(seen.last.stage, incarnation) || !is_ready => Some(Unfit::NotReady),
        () if is_isolated => Some(Unfit::Isolated),
        () if host.is_link_down => Some(Unfit::LinkDown),
        () => None,
    }
}

fn is_serving(stage: Stage, incarnation: u64) -> bool {
    stage == Stage::Serving(incarnation)
        || (mutant::active(Mutant::JoinersTakePackets) && stage == Stage::Joining(incarnation))
}

fn agrees(heartbeat: &Heartbeat) -> bool {
    heartbeat.digests_agree || mutant::active(Mutant::DifferingTakesPackets)
}

/// Since when something is so.
fn note_since(since: &mut Option<Time>, is_so: bool, now: Time) {
    *since = is_so.then(|| since.unwrap_or(now));
}
