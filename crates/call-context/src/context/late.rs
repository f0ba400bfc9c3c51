//! Answers that are late: reads that are fetched, and absences that may not be true yet.

use super::{Context, LATE, MISSES_PER_PACKET_MAX, Miss};
use crate::answer::{Late, Wait, late_answer};

impl Context {
    /// A read of this call was late.
    pub(super) fn note_late(&self) {
        self.attention.set(true);
        self.asking.set(self.asking.get() | LATE);
    }
    pub(super) fn forget_late(&self) {
        self.asking
            .set(self.asking.get() & !(LATE | super::requests::STAGED));
        self.acted.set(false);
    }
    /// Whether a read of `hash` was fetched already. If not, it is noted as missed, and the packet is late for `delay_us` microseconds. Of
    /// more than [`MISSES_PER_PACKET_MAX`] reads the further ones count as fetched.
    pub fn fetched(&self, object: u8, hash: u64, delay_us: u64) -> bool {
        let mut call = self.call.borrow_mut();
        let miss = Miss { object, hash };
        if call.misses[..call.misses_fetched.into()].contains(&miss) {
            return true;
        }
        let held = usize::from(call.misses_held);
        if !call.misses[..held].contains(&miss) {
            if held == MISSES_PER_PACKET_MAX {
                // To forget an earlier one would make it late once more, and so on for ever.
                return true;
            }
            call.misses[held] = miss;
            call.misses_held += 1;
        }
        self.note_late();
        call.wait = match call.wait {
            Wait::Fetch { delay_us: earlier } => Wait::Fetch {
                delay_us: earlier.max(delay_us),
            },
            Wait::Answers | Wait::TooMuch => call.wait,
            _ => Wait::Fetch { delay_us },
        };
        false
    }

    /// An entry is absent here, and may still be on its way from `member` (a place in the epoch's list; `None`: from any other member).
    ///
    /// # Errors
    /// It may be: the packet is late, but no longer than `wait_us` microseconds after its arrival.
    pub fn absent(&self, member: Option<u16>, wait_us: u64) -> Result<(), Late> {
        match self.covers(member, self.arrived_us.get()) {
            true => Ok(()),
            false => self.wait(wait_us, |until_us| Wait::Absent { member, until_us }),
        }
    }

    /// Late until `wait_us` after the packet's arrival, whatever was applied by then; called again when an entry that the call
    /// read is written.
    pub fn expect(&self, wait_us: u64) -> Result<(), Late> {
        self.wait(wait_us, |until_us| Wait::Written { until_us })
    }

    fn wait(&self, wait_us: u64, wait: impl FnOnce(u64) -> Wait) -> Result<(), Late> {
        let until_us = self.arrived_us.get().saturating_add(wait_us);
        if self.is_prefetching() || self.now_us() >= until_us {
            return Ok(());
        }
        self.note_late();
        let known = &mut self.call.borrow_mut().wait;
        if !matches!(known, Wait::Answers | Wait::TooMuch) {
            *known = wait(until_us);
        }
        Err(late_answer())
    }

    /// Whether the packet whose call was late waits for entries, not for reads under way.
    pub fn waits_for_entries(&self) -> bool {
        let wait = self.call.borrow().wait;
        matches!(wait, Wait::Absent { .. } | Wait::Written { .. })
    }

    /// Whether everything that `member` (a place in the epoch's list; `None`: every other member) wrote
    /// before `time_us` is applied here.
    pub fn covers(&self, member: Option<u16>, time_us: u64) -> bool {
        let covered = self.covered_us.borrow();
        match member {
            Some(place) => covered
                .get(usize::from(place))
                .is_none_or(|&until| until >= time_us),
            None => covered
                .iter()
                .zip(&self.identity.members)
                .all(|(&until, &member)| member == self.identity.own.member || until >= time_us),
        }
    }
    /// The first member, by its place, of which something written before `time_us` may not be applied here: of `member`, or of all
    /// others.
    pub fn uncovered(&self, member: Option<u16>, time_us: u64) -> Option<u16> {
        if member.is_some() {
            return member.filter(|_| !self.covers(member, time_us));
        }
        let others = self.identity.members.iter().enumerate();
        let mut others = others.filter(|(_, name)| **name != self.identity.own.member);
        let found = others.find(|(place, _)| !self.covers(Some(*place as u16), time_us));
        found.map(|(place, _)| place as u16)
    }
    /// Reports up to which local time a member's stream is covered.
    pub fn set_covered(&self, place: u16, until_us: u64) {
        if let Some(slot) = self.covered_us.borrow_mut().get_mut(usize::from(place)) {
            *slot = until_us;
        }
    }
}
