//! Usage of tenants, kept: heartbeats and epochs go in, what the truth store is to read and write comes out. No I/O.
//!
//! The leader meters ([`asterism_elasticity::usage`]) from the state that it read after it began to lead, so that no leader before it
//! writes any more. It shows only what it has stored: so what was shown never falls. An orchestrator that does not
//! lead shows what the leader stored.
//!
//! Read first: [`UsageKeeper`]. `stored.rs` has the form in which the store holds the state.

pub mod mutant;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_elasticity::usage::{Counts, Meter, Report, Taken, Usage};
use asterism_heartbeat::{Heartbeat, Stage};
use asterism_placement::Time;

use mutant::Mutant;
pub use stored::StoredError;

/// How often the leader stores what changed, and how often others read it.
pub const STORE_INTERVAL: Duration = Duration::from_secs(2);
/// After how long a store that failed is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// What must be stored at once is stored no sooner after the store before it.
const SPACING: Duration = Duration::from_millis(200);
/// A store that did not answer for so long is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What the truth store is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageCommand {
    /// To read the state.
    Read,
    /// To write it, under the leadership of this term alone.
    Store {
        /// The state.
        bytes: Vec<u8>,
        /// The term.
        term: u64,
    },
}

/// What became of a [`UsageCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageAnswer {
    /// The state; `None` if there is none yet.
    Read(Option<Vec<u8>>),
    /// It was written.
    Stored,
    /// The store did not answer, or refused. Nobody knows whether the state was written.
    Failed,
}

/// What is known of usage, for those who ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageView {
    /// What tenants used since the cluster began, by name, as it is stored.
    pub totals: BTreeMap<String, Usage>,
    /// Reports refused since the cluster began: of incarnations without an account, or of absurd counts.
    pub refused: u64,
    /// Why nothing is metered or stored; `None` if nothing is wrong.
    pub error: Option<String>,
}

/// A command that was not answered yet.
#[derive(Debug)]
struct Asked {
    at: Time,
    /// The term in which it was asked.
    term: Option<u64>,
    /// What is shown once it was stored; `None` of a read.
    stores: Option<UsageView>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct UsageKeeper {
    term: Option<u64>,
    /// Of this term; `None` until the state was read.
    meter: Option<Meter>,
    asked: Option<Asked>,
    /// When the store is asked next, unless something hurries.
    next: Time,
    /// It is not asked before this.
    not_before: Time,
    is_changed: bool,
    hurries: bool,
    shown: UsageView,
}

impl UsageKeeper {
    /// The term in which this orchestrator leads now, if it does.
    pub fn leads(&mut self, now: Time, term: Option<u64>) {
        if term == self.term {
            return;
        }
        self.term = term;
        self.next = now;
        self.hurries = false;
        if !mutant::active(Mutant::MeterOutlivesTerm) {
            self.meter = None;
        }
    }

    /// The members of the epoch in force, at a moment in milliseconds of UTC. May be called as often as one likes.
    pub fn members(&mut self, now_ms: u64, epoch: u32, members: &BTreeMap<String, u64>) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        let (known, epoch) = (meter.state().epoch, u64::from(epoch));
        // A record that was read before another leader named an epoch is none to go by.
        if epoch <= known {
            return;
        }
        match meter.members(epoch, now_ms, members) {
            Ok(()) => (self.is_changed, self.hurries) = (true, true),
            Err(error) => self.shown.error = Some(error.to_string()),
        }
    }

    /// What a heartbeat of the host in this place says of tenants. Accounts are of places, whose incarnations never come twice; a host
    /// that was forgotten may come back in another one, in its first.
    pub fn heartbeat(&mut self, now_ms: u64, place: &str, heartbeat: &Heartbeat) {
        let (Some(meter), Some(incarnation)) = (&mut self.meter, heartbeat.stage.incarnation())
        else {
            return;
        };
        if heartbeat.usage.is_empty() {
            return;
        }
        let counts = heartbeat.usage.iter().map(|usage| {
            let counts = Counts {
                packets: usage.packets,
                bytes: usage.bytes,
                flows: usage.flows,
                instance_ms: usage.instance_ms,
            };
            (usage.tenant.clone(), counts)
        });
        let report = Report {
            host: place.to_owned(),
            incarnation,
            tenants: counts.collect(),
        };
        // One that was refused is counted; the host reports again.
        let taken = meter.report(now_ms, &report);
        let is_last = taken == Ok(Taken::Closed) || matches!(heartbeat.stage, Stage::Ended(_));
        self.is_changed = true;
        // The host may never report it again.
        self.hurries |= is_last && !mutant::active(Mutant::LateReportWaits);
    }

    /// What the store is to do now. It is answered by [`UsageKeeper::answer`] before the next.
    pub fn poll_command(&mut self, now: Time) -> Option<UsageCommand> {
        if let Some(asked) = &self.asked {
            if now.since(asked.at) < ANSWER_MAX {
                return None;
            }
            self.asked = None;
        }
        if now < self.not_before || now < self.next && !self.hurries {
            return None;
        }
        let (term, meter) = (self.term, self.meter.as_mut());
        let (command, stores) = match (term, meter) {
            (Some(term), Some(meter)) => {
                if !self.is_changed {
                    self.next = now + STORE_INTERVAL;
                    return None;
                }
                let bytes = match stored::encode(meter) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        self.shown.error = Some(error.to_string());
                        self.not_before = now + STORE_INTERVAL;
                        return None;
                    }
                };
                let view = UsageView {
                    totals: meter.totals(),
                    refused: meter.state().refused,
                    error: None,
                };
                (self.is_changed, self.hurries) = (false, false);
                (UsageCommand::Store { bytes, term }, Some(view))
            }
            _ => (UsageCommand::Read, None),
        };
        if mutant::active(Mutant::ShownUnstored)
            && let Some(view) = &stores
        {
            self.shown = view.clone();
        }
        self.next = now + STORE_INTERVAL;
        let at = now;
        self.asked = Some(Asked { at, term, stores });
        Some(command)
    }

    /// What became of the last command.
    pub fn answer(&mut self, now: Time, answer: UsageAnswer) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let is_of_term = asked.term == self.term || mutant::active(Mutant::EarlierReadResumed);
        match (answer, asked.stores) {
            (UsageAnswer::Stored, Some(view)) => self.shown = view,
            (UsageAnswer::Read(bytes), None) => match stored::decode(bytes.as_deref()) {
                Ok(state) => {
                    let meter = Meter::resume(state);
                    self.shown = UsageView {
                        totals: meter.totals(),
                        refused: meter.state().refused,
                        error: None,
                    };
                    if is_of_term && self.term.is_some() && self.meter.is_none() {
                        self.meter = Some(meter);
                    }
                }
                // Nothing is written over it.
                Err(error) => self.shown.error = Some(error.to_string()),
            },
            _ => {
                self.is_changed = true;
                self.not_before = now + RETRY_AFTER;
                self.next = self.not_before;
                return;
            }
        }
        self.not_before = now + SPACING;
        if asked.term != self.term {
            // A leader that has begun reads the state again.
            self.next = now;
        }
    }

    /// What is known now.
    #[must_use]
    pub fn view(&self) -> &UsageView {
        &self.shown
    }
}
