//! Who leads: this orchestrator within its term, or another one, as long as hosts hear it.

use std::time::Duration;

use asterism_placement::Time;

use super::health::are_most;
use super::host::{Host, Seen};
use super::input::Stage;
use super::mutant::{self, Mutant};
use super::{Command, Controller, Event, SteeringState};

/// How often an orchestrator reads a record that another one may have written: while it does not lead, it learns so who takes part, and
/// whose heartbeats these are.
pub(super) const READ_EVERY: Duration = Duration::from_secs(1);

impl Controller {
    pub(super) fn lead(&mut self, now: Time, term: u64, until: Time) {
        match self.term {
            Some((known, _)) if known > term => {}
            Some((known, end)) if known == term => self.term = Some((term, end.max(until))),
            _ => {
                self.term = Some((term, until));
                (self.led_in, self.deposing) = (None, None);
                self.forget_report("deposes", "");
                self.forget_report("nobody", "");
                self.commands.clear();
                // What the store had under another leader need not be what it has.
                self.not_stored();
                self.orders.clear();
                self.steering = SteeringState::default();
                self.events_push(Event::Leads { term });
                self.report_suspected(now);
            }
        }
    }

    /// Reports the hosts from which packets leave now, since another orchestrator led when they fell silent.
    fn report_suspected(&mut self, now: Time) {
        let silence = |host: &Host| {
            host.health.suspected_since?;
            host.silence(now, &self.times)
        };
        let hosts = self.hosts.iter();
        let silent: Vec<Event> = hosts
            .filter_map(|(name, host)| {
                Some(Event::Suspected {
                    host: name.clone(),
                    silence: silence(host)?,
                })
            })
            .collect();
        for event in silent {
            self.events_push(event);
        }
    }

    pub(super) fn follow(&mut self, led_in: Option<u64>) {
        if self.led_in != led_in {
            (self.led_in, self.deposing) = (led_in, None);
            self.forget_report("deposes", "");
        }
        if self.term.take().is_some() {
            self.commands.clear();
            self.not_stored();
            self.orders.clear();
            self.refuse_nobody();
            self.events_push(Event::LeadsNoMore);
        }
    }

    /// The term, while this orchestrator leads.
    pub(super) fn leading(&self, now: Time) -> Option<u64> {
        let (term, until) = self.term?;
        (now < until || mutant::active(Mutant::TermNeverEnds)).then_some(term)
    }

    /// Reads the record, unless it was read lately: another orchestrator may have written it.
    pub(super) fn read_now_and_then(&mut self, now: Time) {
        if now >= self.read_at {
            self.read_at = now + READ_EVERY;
            self.commands.push_back(Command::Read);
        }
    }

    /// Asks the store to end the term of another orchestrator that no host hears, instead of waiting for the term's end.
    pub(super) fn depose(&mut self, now: Time) {
        let retry_after = self.times.retry_after;
        let is_asked = |since: Time| now.since(since) < retry_after;
        let Some(term) = self.led_in else {
            return;
        };
        if self.deposing.is_some_and(is_asked) || !self.is_missed(now, term) {
            return;
        }
        self.deposing = Some(now);
        self.report("deposes", String::new(), Event::Deposes { term });
        self.commands.push_back(Command::Depose { term });
    }

    /// Whether every member that is heard here misses the leader of this term. If most members are silent here, or one was not heard
    /// yet, nobody can say so: this orchestrator may be the one that is cut off.
    fn is_missed(&self, now: Time, term: u64) -> bool {
        let patience = self.times.suspect_after + self.times.heartbeat;
        let epoch = self.record().and_then(|record| record.epoch.as_ref());
        let members = epoch.into_iter().flat_map(|epoch| epoch.members.keys());
        // What a joiner hears or misses counts for nothing, as in `silences`.
        let joins = |seen: &Seen| matches!(seen.last.stage, Stage::Awaiting | Stage::Joining(_));
        let hosts: Vec<&Host> = members
            .filter_map(|name| self.hosts.get(name))
            .filter(|host| !host.member.as_ref().is_some_and(joins))
            .collect();
        let (silent, heard): (Vec<&Host>, Vec<&Host>) = hosts
            .iter()
            .partition(|host| host.silence(now, &self.times).is_some());
        let misses_it = |host: &&Host| {
            let seen = host.member.as_ref();
            seen.is_some_and(|seen| seen.misses_leader(now, term, patience))
        };
        let is_heard = !heard.is_empty() && !are_most(silent.len(), hosts.len());
        match mutant::active(Mutant::DeposedByOneHost) {
            true => heard.iter().any(misses_it),
            false => is_heard && heard.iter().all(misses_it),
        }
    }
}
