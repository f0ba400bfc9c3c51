//! Who takes part: the next record for the store, and the hand-over of its epoch to hosts.

use std::time::Duration;

use asterism_epochs::EpochFile;
use asterism_heartbeat::RegistrationRefused;
use asterism_placement::Time;

use super::host::{Host, Seen};
use super::input::{Order, Process, Stage};
use super::leadership::READ_EVERY;
use super::mutant::{self, Mutant};
use super::record::Record;
use super::times::Times;
use super::{Command, Controller, Event};

/// Hosts that begin by an epoch wait so long at most until the members that serve have it.
const NEWCOMERS_WAIT_MAX: Duration = Duration::from_millis(200);

/// What is to change in the next epoch.
#[derive(Default)]
struct Changes {
    /// Members to leave out.
    without: Vec<String>,
    /// Hosts that left, or leave now, whose processes have ended.
    fenced: Vec<String>,
    /// Hosts that begin a new incarnation, and their processes.
    again: Vec<(String, Process)>,
}

impl Controller {
    /// The record that the store should have; `None` if it has it.
    pub(super) fn next_record(&mut self, now: Time) -> Option<Record> {
        let record = self.record.as_ref()?.0.clone();
        let mut next = record.clone();
        for order in &self.orders {
            match order {
                Order::Drain(host) => next.drained.extend(self.place_of(host)),
                Order::Withdraw(host) => next.withdrawn.extend(self.place_of(host)),
                Order::Restore(host) => {
                    if let Some(place) = self.place_of(host) {
                        next.drained.remove(&place);
                        next.withdrawn.remove(&place);
                    }
                }
                // The latter is carried out below.
                Order::Fence(..) | Order::Forget(_) => {}
            }
        }
        if !self.is_outrun(now, &record) {
            self.register(now, &record, &mut next);
        }
        // A place may have passed to another host: an epoch of that record would name the process of the former one.
        let is_settled = next.hosts == record.hosts;
        let is_due =
            is_settled && now >= self.epoch_not_before && !self.awaits_members(now, &record);
        if is_due && !self.is_outrun(now, &record) {
            let epoch = match &record.epoch {
                Some(epoch) => self.next_epoch(now, epoch, &mut next),
                None => self.first_epoch(now, &mut next),
            };
            if epoch.is_some() {
                next.epoch = epoch;
                self.epoch_not_before = now + self.times.epoch_pause;
            }
        }
        (next != record).then_some(next)
    }

    /// Whether a host has a later epoch than the record. The record may be an old answer of the store, so it is read again; if that does
    /// not help, the store lost what it had.
    fn is_outrun(&mut self, now: Time, record: &Record) -> bool {
        let stored = record.epoch_number();
        let seen = self
            .hosts
            .values()
            .filter_map(|host| host.member.as_ref())
            .map(|seen| seen.last.epoch)
            .max();
        match seen.filter(|seen| *seen > stored) {
            Some(seen) => {
                let since = *self.outrun_since.get_or_insert(now);
                self.read_now_and_then(now);
                if now.since(since) >= 2 * READ_EVERY {
                    self.report("back", String::new(), Event::StoreWentBack { stored, seen });
                }
                true
            }
            None => {
                self.outrun_since = None;
                self.forget_report("back", "");
                false
            }
        }
    }

    /// Whether too little is known of the members to make an epoch: nothing was heard of one yet, and there was no time for it. An
    /// epoch that admits hosts beside it would have them join by a member that may have ended with all others.
    fn awaits_members(&self, now: Time, record: &Record) -> bool {
        let members = record.epoch.iter().flat_map(|epoch| epoch.members.keys());
        let is_unheard =
            |host: &Host| host.member.is_none() && host.silence(now, &self.times).is_none();
        let is_awaited = |name: &String| {
            self.hosts.get(name).is_some_and(is_unheard) && !self.has_ended(name, record)
        };
        members.into_iter().any(is_awaited)
    }

    /// Hosts that wait to be named, and their processes.
    fn waiting(&self, now: Time) -> Vec<(String, Process)> {
        let record = self.record();
        let waiting = |(name, host): (&String, &Host)| {
            let is_member = record.is_some_and(|record| record.member(name).is_some());
            Some((name.clone(), host.waiting(now, &self.times, is_member)?))
        };
        self.hosts.iter().filter_map(waiting).collect()
    }

    /// Whether the wait for more hosts is over: `enough` of them wait, or the first has waited for long enough.
    fn is_founded(&mut self, now: Time, waiting: usize, enough: usize) -> bool {
        if waiting == 0 {
            self.founding_since = None;
            return false;
        }
        let since = *self.founding_since.get_or_insert(now);
        waiting == enough || now.since(since) >= self.times.found_after
    }

    /// The first epoch: all hosts that wait.
    fn first_epoch(&mut self, now: Time, next: &mut Record) -> Option<EpochFile> {
        let mut waiting = self.waiting(now);
        self.enter_addresses(&mut waiting, next);
        if !self.is_founded(now, waiting.len(), self.places.len()) {
            return None;
        }
        let mut epoch = EpochFile {
            epoch: 1,
            members: waiting.iter().map(|(name, _)| (name.clone(), 1)).collect(),
            ..EpochFile::default()
        };
        self.founding_since = None;
        self.enter_hosts(&mut epoch, None, next);
        next.named.extend(waiting);
        Some(epoch)
    }

    fn next_epoch(&mut self, now: Time, epoch: &EpochFile, next: &mut Record) -> Option<EpochFile> {
        let mut changes = self.changes(now, epoch, next);
        self.enter_addresses(&mut changes.again, next);
        let goes_on = epoch.members.iter().any(|(name, incarnation)| {
            !changes.without.contains(name)
                && !changes.again.iter().any(|(again, _)| again == name)
                && self.may_have_state(name, *incarnation)
        });
        if !goes_on {
            return self.founding_epoch(now, epoch, next);
        }
        self.founding_since = None;
        let again: Vec<String> = changes.again.iter().map(|(name, _)| name.clone()).collect();
        let is_nothing =
            changes.without.is_empty() && changes.fenced.is_empty() && again.is_empty();
        if is_nothing {
            return None;
        }
        let made = match changes.without.is_empty() && again.is_empty() {
            true => epoch.next_fenced(&self.places, &changes.fenced),
            false => epoch
                .next(&self.places, &changes.without, &again, false)
                .and_then(|mut made| {
                    // One that was left out and begins again at once is fenced by its new incarnation.
                    let fenced: Vec<String> = changes
                        .fenced
                        .iter()
                        .filter(|name| !again.contains(name))
                        .cloned()
                        .collect();
                    made.fence(&fenced)?;
                    Ok(made)
                }),
        };
        match made {
            Ok(mut made) => {
                self.enter_hosts(&mut made, Some(epoch), next);
                next.named.extend(changes.again);
                self.forget_report("next", "");
                Some(made)
            }
            Err(why) => {
                let why = why.to_string();
                self.report("next", String::new(), Event::NoNextEpoch { why });
                None
            }
        }
    }

    /// Whether others can join by a member: it has joined, or its stage is not known here. One that founds the cluster and has not begun
    /// yet would wait for those that wait for it.
    fn may_have_state(&self, name: &str, incarnation: u64) -> bool {
        let seen = self.hosts.get(name).and_then(|host| host.member.as_ref());
        let lacks = |stage| stage == Stage::Awaiting || stage == Stage::Joining(incarnation);
        seen.is_none_or(|seen| !lacks(seen.last.stage))
    }

    /// Whether a member is still joining, by a heartbeat of now: it has not the state, has granted nothing, and nobody can join by it.
    fn has_nothing_yet(&self, now: Time, name: &str, incarnation: u64) -> bool {
        let Some(host) = self.hosts.get(name) else {
            return false;
        };
        let joins = |seen: &Seen| seen.last.stage == Stage::Joining(incarnation);
        host.silence(now, &self.times).is_none() && host.member.as_ref().is_some_and(joins)
    }

    /// The members that had the state have all ended: those that wait begin again, with the state that they saved.
    fn founding_epoch(
        &mut self,
        now: Time,
        epoch: &EpochFile,
        next: &mut Record,
    ) -> Option<EpochFile> {
        let all_ended = epoch.members.iter().all(|(name, incarnation)| {
            self.has_ended(name, next) || self.has_nothing_yet(now, name, *incarnation)
        });
        let mut waiting = self.waiting(now);
        waiting.retain(|(name, _)| {
            let is_due = self
                .hosts
                .get(name)
                .is_some_and(|host| host.admissions.are_due(now));
            is_due && (next.last_incarnation(name).is_none() || self.has_ended(name, next))
        });
        self.enter_addresses(&mut waiting, next);
        // Members that join may come to serve at any moment, and would then have to begin again: they are given that time.
        let may_serve = !epoch.members.keys().all(|name| self.has_ended(name, next));
        let enough = match may_serve {
            true => usize::MAX,
            false => epoch.members.len(),
        };
        if !all_ended || !self.is_founded(now, waiting.len(), enough) {
            return None;
        }
        let present: Vec<String> = waiting.iter().map(|(name, _)| name.clone()).collect();
        match epoch.next_founding(&present) {
            Ok(mut made) => {
                self.founding_since = None;
                self.enter_hosts(&mut made, Some(epoch), next);
                next.named.extend(waiting);
                Some(made)
            }
            Err(why) => {
                let why = why.to_string();
                self.report("next", String::new(), Event::NoNextEpoch { why });
                None
            }
        }
    }

    /// What another record changes, once the store has it: hosts that were admitted wait longer the next time, with every
    /// controller, and the one that leads reports.
    pub(super) fn note_changes(&mut self, now: Time, before: &Record, after: &Record) {
        let is_reported = self.leads(now);
        for name in self.places.clone() {
            let (was, is) = (before.member(&name), after.member(&name));
            if was == is {
                continue;
            }
            if let (Some(incarnation), true) = (was, is_reported) {
                let epoch = after.epoch.as_ref();
                let is_fenced =
                    is.is_some() || epoch.is_some_and(|epoch| epoch.fenced.contains_key(&name));
                self.events_push(Event::LeftOut {
                    host: name.clone(),
                    incarnation,
                    is_fenced,
                });
            }
            let Some(incarnation) = is else {
                continue;
            };
            if let Some(host) = self.hosts.get_mut(&name) {
                host.admissions.note(now, &self.times);
            }
            self.forget_report("evidence", &name);
            if is_reported {
                self.events_push(Event::Admitted {
                    host: name,
                    incarnation,
                });
            }
        }
    }

    fn changes(&mut self, now: Time, epoch: &EpochFile, record: &Record) -> Changes {
        let mut changes = Changes::default();
        let waiting = self.waiting(now);
        let evictions_stand = self.do_evictions_stand(now, epoch, record);
        for name in self.places.clone() {
            let has_ended = self.has_ended(&name, record);
            let waits = waiting.iter().find(|(other, _)| *other == name);
            let is_unbegun =
                waits.is_some_and(|(_, process)| record.named.get(&name) == Some(process));
            let may_begin = record.last_incarnation(&name).is_none()
                || has_ended
                || is_unbegun
                || epoch.fenced.contains_key(&name);
            let Some(host) = self.hosts.get(&name) else {
                continue;
            };
            if let Some(waits) = waits {
                if may_begin && host.admissions.are_due(now) {
                    changes.again.push(waits.clone());
                    continue;
                }
                if !may_begin {
                    let incarnation = record.last_incarnation(&name).unwrap_or_default();
                    let event = Event::AwaitsEvidence {
                        host: name.clone(),
                        incarnation,
                    };
                    self.report("evidence", name.clone(), event);
                    let host = self.name_of(&name);
                    self.refuse(&host, waits.1, Some(RegistrationRefused::NameInUse));
                }
            }
            let Some(host) = self.hosts.get(&name) else {
                continue;
            };
            let is_evicted = self.is_evicted(now, host);
            let is_evicted = is_evicted && evictions_stand;
            let is_member = epoch.members.contains_key(&name);
            if is_member && (has_ended || is_evicted) {
                changes.without.push(name.clone());
            }
            let is_fenced = is_proven(has_ended, is_evicted);
            if is_fenced
                && (is_member || epoch.left.contains_key(&name))
                && !epoch.fenced.contains_key(&name)
            {
                changes.fenced.push(name);
            }
        }
        changes
    }

    /// Whether silent hosts may be left out. Without evidence at least half of the members go on: the few that are heard may be the
    /// ones that are cut off.
    fn do_evictions_stand(&self, now: Time, epoch: &EpochFile, record: &Record) -> bool {
        let evicted = epoch.members.keys().filter(|name| {
            let is_evicted = |host: &Host| self.is_evicted(now, host);
            self.hosts.get(*name).is_some_and(is_evicted) && !self.has_ended(name, record)
        });
        2 * evicted.count() <= epoch.members.len() || mutant::active(Mutant::MajorityIsEvicted)
    }

    /// Whether a host was silent for so long, by all that is heard, that an epoch is to leave it out.
    fn is_evicted(&self, now: Time, host: &Host) -> bool {
        let health = &host.health;
        match mutant::active(Mutant::SuspectsAreEvicted) {
            true => health.suspected_since.is_some(),
            false => health
                .confirmed_since
                .is_some_and(|since| now.since(since) >= self.times.evict_after),
        }
    }

    /// Whether the process of a place's last incarnation is known to have ended.
    fn has_ended(&self, name: &str, record: &Record) -> bool {
        let Some(host) = self.hosts.get(name) else {
            return false;
        };
        let last = record.last_incarnation(name);
        let process = record.named.get(name);
        let is_replaced = host.other.as_ref().is_some_and(|other| {
            let other = other.last.process;
            process.is_some_and(|named| other.proves_ended(*named))
                || mutant::active(Mutant::AnyProcessIsFencing)
        });
        is_replaced
            || process.is_some_and(|process| host.has_ended(*process))
            || host
                .fenced
                .is_some_and(|fenced| last.is_some_and(|last| last <= fenced))
    }

    /// Hands the epoch to the processes that have an earlier one.
    pub(super) fn hand(&mut self, now: Time) {
        let Some((record, _)) = &self.record else {
            return;
        };
        let Some(epoch) = &record.epoch else {
            return;
        };
        // A member that is overtaken by a newcomer grants no ports until it has the epoch too: members get it first.
        let lags = |host: &Host| {
            let serves = |seen: &Seen| matches!(seen.last.stage, Stage::Serving(_));
            let is_before = |seen: &Seen| seen.last.epoch < epoch.epoch;
            let member = host.member.as_ref();
            member.is_some_and(|seen| serves(seen) && is_before(seen))
                && host.silence(now, &self.times).is_none()
        };
        let newcomers_wait =
            now.since(self.epoch_since) < NEWCOMERS_WAIT_MAX && self.hosts.values().any(lags);
        for (name, host) in &mut self.hosts {
            let named = record.named.get(name).copied();
            for seen in [&host.member, &host.other].into_iter().flatten() {
                let process = seen.last.process;
                if seen.last.epoch >= epoch.epoch || !is_for(seen, named) {
                    continue;
                }
                if newcomers_wait && seen.last.stage == Stage::Awaiting {
                    continue;
                }
                let is_it = |(to, number, _): &(Process, u32, Time)| {
                    (*to, *number) == (process, epoch.epoch)
                };
                let handed = host.handed.filter(is_it);
                if handed.is_some_and(|(.., at)| is_under_way(now.since(at), &self.times)) {
                    continue;
                }
                host.handed = Some((process, epoch.epoch, now));
                let entry = record.hosts.iter().find(|(_, entry)| entry.place == *name);
                let host = entry.map_or(name, |(host, _)| host).clone();
                let epoch = epoch.clone();
                self.commands.push_back(Command::Hand {
                    host,
                    process,
                    epoch,
                });
            }
        }
    }
}

/// Whether a process that is left out has ended, by evidence.
fn is_proven(has_ended: bool, is_evicted: bool) -> bool {
    has_ended || (is_evicted && mutant::active(Mutant::SilenceIsFencing))
}

/// Whether an epoch may be handed to a process. One that waits begins the incarnation that the epoch names; only the process for which
/// it was named may.
fn is_for(seen: &Seen, named: Option<Process>) -> bool {
    seen.last.stage != Stage::Awaiting
        || named == Some(seen.last.process)
        || mutant::active(Mutant::HandedToAnyProcess)
}

/// Whether an epoch that was handed so long ago may still arrive.
fn is_under_way(since: Duration, times: &Times) -> bool {
    since < times.retry_after || mutant::active(Mutant::HandedOnce)
}
