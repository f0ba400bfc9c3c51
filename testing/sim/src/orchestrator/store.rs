//! The store of the simulated orchestrators: one record, its version, and a lease of who leads.

use std::time::Duration;

use asterism_orchestrator::controller::Record;
use asterism_placement::Time;

/// How long a leader leads, unless it asks again.
pub(super) const TERM: Duration = Duration::from_millis(1_500);

/// The store. All it does is in one order; what arrives late is done late.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) record: Record,
    pub(super) version: u64,
    /// The record before, and its version: what a stale reader gets.
    pub(super) before: (Record, u64),
    /// Who leads: a start of an orchestrator. The next start of the same one is another, or it would count its commands from the beginning.
    leader: Option<((usize, u32), Time)>,
    pub(super) term: u64,
    /// When a record was written last.
    pub(super) written_at: Time,
}

impl Store {
    /// An orchestrator asks to lead, or to lead on: the term, if it does.
    pub(super) fn campaign(&mut self, now: Time, orchestrator: (usize, u32)) -> Option<u64> {
        match self.leader {
            Some((leader, until)) if leader != orchestrator && now < until => return None,
            Some((leader, until)) if leader == orchestrator && now < until => {}
            _ => self.term += 1,
        }
        self.leader = Some((orchestrator, now + TERM));
        Some(self.term)
    }

    /// Ends the leadership of this term, if it lasts: whose it was.
    pub(super) fn depose(&mut self, now: Time, term: u64) -> Option<(usize, u32)> {
        let leader = self.leader(now).filter(|_| self.term == term)?;
        self.leader = None;
        Some(leader)
    }

    /// The term in which another orchestrator leads.
    pub(super) fn led_in(&self, now: Time) -> Option<u64> {
        self.leader(now).map(|_| self.term)
    }

    /// Writes a record if it replaces the one that is there, and its writer leads in the last term.
    pub(super) fn write(
        &mut self,
        now: Time,
        record: &Record,
        replaces: u64,
        term: u64,
    ) -> Option<u64> {
        if term != self.term || replaces != self.version {
            return None;
        }
        self.before = (
            core::mem::replace(&mut self.record, record.clone()),
            self.version,
        );
        self.version += 1;
        self.written_at = now;
        Some(self.version)
    }

    /// Who leads.
    pub(super) fn leader(&self, now: Time) -> Option<(usize, u32)> {
        self.leader
            .filter(|(_, until)| now < *until)
            .map(|(leader, _)| leader)
    }
}
