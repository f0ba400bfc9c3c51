//! Clusters that list no members: hosts register, and get a place.
//!
//! All decisions are of places, as in clusters with a list; this file knows which host has which. A host that waits and has no place
//! is a *newcomer*. The leader gives it the lowest place that is free, in the record, and from then on the host is like any other of
//! the list. A host keeps its place until the operator orders to forget it, or if it was never admitted and is gone.
//!
//! # What it keeps
//!
//! 1. **One host has one place, and a place one host.**
//! 2. **A place is free once its last process has ended**, by the evidence that the epoch names.
//! 3. **No two hosts have one address**, and a host has another one only from an epoch on that names its next incarnation.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use asterism_epochs::{EpochFile, HostEntry, is_host_address, is_host_name};
use asterism_heartbeat::RegistrationRefused;
use asterism_placement::Time;

use super::input::{Heartbeat, Order, Process, Stage};
use super::mutant::{self, Mutant};
use super::record::Record;
use super::{Command, Controller, Event};

/// Hosts without a place that are known at a time; of more the one that was heard longest ago is forgotten.
pub const NEWCOMERS_MAX: usize = 64;
/// A newcomer that was silent for so long is gone.
const NEWCOMER_GONE: Duration = Duration::from_secs(2);
/// A host that got a place and was never admitted loses it after so long a silence.
const UNNAMED_KEPT: Duration = Duration::from_secs(30);

/// A host that waits and has no place.
#[derive(Clone, Debug)]
struct Newcomer {
    process: Process,
    address: SocketAddr,
    heard: Time,
}

/// What a controller knows of hosts that register.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    newcomers: BTreeMap<String, Newcomer>,
    /// The processes that were refused, and why.
    refused: BTreeMap<String, (Process, RegistrationRefused)>,
}

/// Why a host is not forgotten. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// Hosts of a listed cluster are changed in the configuration.
    #[error("the configuration lists the members of this cluster: take the host out of the list")]
    Listed,
    /// It has no place.
    #[error("no such host has a place")]
    Unknown,
    /// It takes part.
    #[error("it takes part: stop it first, and wait until an epoch leaves it out")]
    Member,
    /// Its last process may still run.
    #[error(
        "nothing proves that its last process has ended: make sure that it has, and order its fencing"
    )]
    NotFenced,
}

impl Controller {
    /// The place of a host; `None` if it has none.
    #[must_use]
    pub fn place_of(&self, host: &str) -> Option<String> {
        if self.registrations.is_none() {
            return self.hosts.contains_key(host).then(|| host.to_owned());
        }
        let entry = self.record()?.hosts.get(host)?;
        Some(entry.place.clone())
    }

    /// The host that has a place, or the place's name if none has.
    #[must_use]
    pub fn name_of(&self, place: &str) -> String {
        let host = self.registrations.as_ref().and_then(|_| {
            let mut hosts = self.record()?.hosts.iter();
            hosts.find(|(_, entry)| entry.place == place)
        });
        host.map_or(place, |(name, _)| name.as_str()).to_owned()
    }

    /// Hosts that register: those that have a place, and newcomers. `None` in a cluster that lists its members.
    #[must_use]
    pub fn registered(&self) -> Option<Vec<String>> {
        let registrations = self.registrations.as_ref()?;
        let with_place = self
            .record()
            .into_iter()
            .flat_map(|record| record.hosts.keys());
        let mut names: Vec<String> = with_place
            .chain(registrations.newcomers.keys())
            .cloned()
            .collect();
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// Takes the heartbeat of a host without a place.
    pub(super) fn hear_newcomer(&mut self, now: Time, heartbeat: Heartbeat) {
        // Until the record was read nobody's place is known.
        let Some(registrations) = self
            .registrations
            .as_mut()
            .filter(|_| self.record.is_some())
        else {
            return;
        };
        let (Stage::Awaiting, Some(address)) = (heartbeat.stage, heartbeat.address) else {
            // It was forgotten and still runs, or it is of another configuration.
            registrations.newcomers.remove(&heartbeat.host);
            return self.report_unknown(heartbeat.host);
        };
        let newcomers = &mut registrations.newcomers;
        if newcomers.len() >= NEWCOMERS_MAX && !newcomers.contains_key(&heartbeat.host) {
            let oldest = newcomers.iter().min_by_key(|(_, newcomer)| newcomer.heard);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| newcomers.remove(&name));
        }
        let process = heartbeat.process;
        let newcomer = Newcomer {
            process,
            address,
            heard: now,
        };
        match newcomers.get_mut(&heartbeat.host) {
            // The first of two is kept while it is heard.
            Some(known)
                if known.process.folder != process.folder
                    && now.since(known.heard) < NEWCOMER_GONE =>
            {
                let name = heartbeat.host;
                self.report("two", name.clone(), Event::TwoProcesses { host: name });
            }
            Some(known) if known.process.proves_ended(process) => {}
            Some(known) => *known = newcomer,
            None => _ = newcomers.insert(heartbeat.host, newcomer),
        }
    }

    /// Gives newcomers places in the next record, and takes them from hosts that are gone or to be forgotten.
    pub(super) fn register(&mut self, now: Time, record: &Record, next: &mut Record) {
        let Some(registrations) = &mut self.registrations else {
            return;
        };
        registrations
            .newcomers
            .retain(|_, newcomer| now.since(newcomer.heard) < NEWCOMER_GONE);
        let newcomers = registrations.newcomers.clone();
        self.release(now, record, next);
        for (name, newcomer) in &newcomers {
            let entry = self.entry_for(name, newcomer.address, next);
            let why = entry.as_ref().err().copied();
            self.refuse(name, newcomer.process, why);
            if let Ok(entry) = entry {
                next.hosts.insert(name.clone(), entry);
            }
        }
    }

    /// The place that a newcomer gets.
    fn entry_for(
        &self,
        name: &str,
        address: SocketAddr,
        record: &Record,
    ) -> Result<HostEntry, RegistrationRefused> {
        let is_place = self.places.iter().any(|place| place == name);
        if !is_host_name(name) || is_place {
            return Err(RegistrationRefused::Invalid);
        }
        if let Some(why) = address_fault(record, name, address) {
            return Err(why);
        }
        let place = self.places.iter().find(|place| is_free(record, place));
        let place = place.ok_or(RegistrationRefused::NoFreePlace)?.clone();
        Ok(HostEntry { place, address })
    }

    /// Places of hosts that were never admitted and are gone, and of those that the operator has forgotten.
    fn release(&mut self, now: Time, record: &Record, next: &mut Record) {
        let is_gone = |place: &str| {
            !record.named.contains_key(place)
                && record.member(place).is_none()
                && self.hosts.get(place).is_some_and(|host| {
                    let heard = host.other.as_ref().map(|seen| seen.heard);
                    let heard = heard.unwrap_or(host.watched_since);
                    now.since(heard.max(host.watched_since)) >= UNNAMED_KEPT
                })
        };
        next.hosts.retain(|_, entry| !is_gone(&entry.place));
        let mut ordered = Vec::new();
        self.orders.retain(|order| match order {
            Order::Forget(name) => {
                let is_allowed = may_forget(record, name).is_ok();
                if is_allowed {
                    ordered.push(name.clone());
                }
                is_allowed
            }
            _ => true,
        });
        for name in ordered {
            if let Some(entry) = next.hosts.remove(&name) {
                next.named.remove(&entry.place);
                next.drained.remove(&entry.place);
                next.withdrawn.remove(&entry.place);
            }
        }
    }

    /// Whether the operator may have a host forgotten.
    ///
    /// # Errors
    /// Why not.
    pub fn may_forget(&self, host: &str) -> Result<(), ForgetError> {
        if self.registrations.is_none() {
            return Err(ForgetError::Listed);
        }
        may_forget(self.record().ok_or(ForgetError::Unknown)?, host)
    }

    /// Enters the addresses of hosts that begin an incarnation, and takes out those whose address another host has.
    pub(super) fn enter_addresses(
        &mut self,
        begin: &mut Vec<(String, Process)>,
        next: &mut Record,
    ) {
        if self.registrations.is_none() {
            return;
        }
        begin.retain(|(place, process)| {
            let name = self.name_of(place);
            let waits = self
                .hosts
                .get(place)
                .and_then(|host| host.awaiting(*process));
            let Some(address) = waits.and_then(|heartbeat| heartbeat.address) else {
                return false;
            };
            let why = address_fault(next, &name, address);
            self.refuse(&name, *process, why);
            if why.is_none()
                && let Some(entry) = next.hosts.get_mut(&name)
            {
                entry.address = address;
            }
            why.is_none()
        });
    }

    /// Completes an epoch that follows `before`: its hosts are those of the record, but a member that goes on is where it was.
    pub(super) fn enter_hosts(
        &self,
        made: &mut EpochFile,
        before: Option<&EpochFile>,
        next: &Record,
    ) {
        if self.registrations.is_none() {
            return;
        }
        made.hosts.clone_from(&next.hosts);
        for (name, entry) in before.iter().flat_map(|before| &before.hosts) {
            let was = before.and_then(|before| before.members.get(&entry.place));
            if was.is_some() && was == made.members.get(&entry.place) {
                made.hosts.insert(name.clone(), entry.clone());
            }
        }
        made.deal_places(&self.places, before);
    }

    /// Says to a process why it gets no place, or that it is not refused any more.
    pub(super) fn refuse(
        &mut self,
        host: &str,
        process: Process,
        why: Option<RegistrationRefused>,
    ) {
        let Some(registrations) = &mut self.registrations else {
            return;
        };
        let refused = why.map(|why| (process, why));
        let known = registrations.refused.get(host).copied();
        if known == refused {
            return;
        }
        match refused {
            Some(refused) => _ = registrations.refused.insert(host.to_owned(), refused),
            None => _ = registrations.refused.remove(host),
        }
        if registrations.refused.len() > 2 * NEWCOMERS_MAX {
            registrations.refused.pop_first();
        }
        self.commands.push_back(Command::Refuse {
            host: host.to_owned(),
            process,
            why,
        });
        if let Some(why) = why
            && why != RegistrationRefused::NameInUse
        {
            let host = host.to_owned();
            self.events_push(Event::NotRegistered { host, why });
        }
    }

    /// Another record: hosts that have a place are no newcomers, and a place that has another host is observed from the beginning.
    pub(super) fn note_hosts(&mut self, now: Time, before: Option<&Record>, after: &Record) {
        let is_reported = self.leads(now);
        let Some(registrations) = &mut self.registrations else {
            return;
        };
        let newcomers = &mut registrations.newcomers;
        newcomers.retain(|name, _| !after.hosts.contains_key(name));
        let none = BTreeMap::new();
        let was = before.map_or(&none, |before| &before.hosts);
        let changed = |one: &BTreeMap<String, HostEntry>, other: &BTreeMap<String, HostEntry>| {
            let place = |hosts: &BTreeMap<String, HostEntry>, name: &str| {
                hosts.get(name).map(|entry| entry.place.clone())
            };
            one.iter()
                .filter(|(name, entry)| place(other, name).as_ref() != Some(&entry.place))
                .map(|(name, entry)| (name.clone(), entry.clone()))
                .collect::<Vec<_>>()
        };
        let (gone, come) = (changed(was, &after.hosts), changed(&after.hosts, was));
        for (_, entry) in &gone {
            if let Some(host) = self.hosts.get_mut(&entry.place) {
                *host = super::host::Host::default();
            }
        }
        for (_, entry) in gone.iter().chain(&come) {
            if let Some(host) = self.hosts.get_mut(&entry.place) {
                host.watched_since = now;
            }
        }
        if !is_reported || before.is_none() {
            return;
        }
        for (host, _) in gone {
            self.events_push(Event::Forgotten { host });
        }
        for (host, entry) in come {
            self.events_push(Event::Registered { host, entry });
        }
    }

    /// This orchestrator leads no more: it refuses nobody.
    pub(super) fn refuse_nobody(&mut self) {
        let Some(registrations) = &mut self.registrations else {
            return;
        };
        for (host, (process, _)) in std::mem::take(&mut registrations.refused) {
            self.commands.push_back(Command::Refuse {
                host,
                process,
                why: None,
            });
        }
    }
}

/// Why a host cannot be at an address: none can, or not with the other hosts.
fn address_fault(record: &Record, name: &str, address: SocketAddr) -> Option<RegistrationRefused> {
    let others = record.hosts.iter().filter(|(other, _)| *other != name);
    let others: Vec<SocketAddr> = others.map(|(_, entry)| entry.address).collect();
    let is_of_family = |other: &SocketAddr| other.is_ipv4() == address.is_ipv4();
    if !is_host_address(address) || !others.iter().all(is_of_family) {
        return Some(RegistrationRefused::Invalid);
    }
    let is_taken = others.contains(&address) && !mutant::active(Mutant::AddressOfAnother);
    is_taken.then_some(RegistrationRefused::AddressInUse)
}

/// Whether no host has a place, and its last process is known to have ended.
fn is_free(record: &Record, place: &str) -> bool {
    !has_host(record, place) && record.member(place).is_none() && is_fenced(record, place)
}

fn has_host(record: &Record, place: &str) -> bool {
    let has_host = record.hosts.values().any(|entry| entry.place == place);
    has_host && !mutant::active(Mutant::PlaceGivenTwice)
}

/// Whether a place that takes no part had no process, or one that is known to have ended.
fn is_fenced(record: &Record, place: &str) -> bool {
    record
        .epoch
        .as_ref()
        .is_none_or(|epoch| epoch.left.get(place) == epoch.fenced.get(place))
        || mutant::active(Mutant::PlaceReusedUnfenced)
}

fn may_forget(record: &Record, host: &str) -> Result<(), ForgetError> {
    let entry = record.hosts.get(host).ok_or(ForgetError::Unknown)?;
    if record.member(&entry.place).is_some() {
        return Err(ForgetError::Member);
    }
    match is_fenced(record, &entry.place) {
        true => Ok(()),
        false => Err(ForgetError::NotFenced),
    }
}
