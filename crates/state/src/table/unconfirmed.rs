//! Entries whose last change too few members are known to hold: a packet that reads one depends on that change.
//!
//! An entry loses a flag with such a change, and reads of the common path do not find it. The others look here at its version
//! (`unconfirmed.rs` of `asterism-call-context`). It gets the flag back when changes are confirmed, or, beyond a bound of those that wait for it, by the
//! sweep.

use super::record::{CONFIRMED, LIVE};
use super::{Row, Table, Value};
use crate::mutant::{self, Mutant};
use crate::stamp::Stamp;

/// Changes of a table at most that wait to be confirmed one by one.
pub(super) const WAITING_MAX: usize = 1 << 14;

impl<R: Row, V: Value> Table<R, V> {
    /// An entry came to live, ended or got another value by this write.
    #[inline]
    pub(super) fn note_change(&mut self, number: u32, stamp: Stamp, is_own: bool) {
        if self.settings.holds_output {
            self.note_version(number, stamp, is_own);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_version(&mut self, number: u32, stamp: Stamp, is_own: bool) {
        let Some(version) = self.context.version_of(stamp) else {
            return;
        };
        self.versions[number as usize] = version;
        if self.unconfirmed.len() < self.unconfirmed.capacity() {
            self.unconfirmed.push_back((version, number));
        }
        self.records[number as usize].header.flags &= !CONFIRMED;
        if is_own {
            self.context.depend_on(version);
        }
    }

    /// A packet reads an entry that lacks the flag.
    #[cold]
    #[inline(never)]
    pub(super) fn read_unconfirmed(&self, number: u32) {
        if self.settings.holds_output && !mutant::active(Mutant::UnconfirmedReadLeaves) {
            self.context.depend_on(self.versions[number as usize]);
        }
    }

    /// Gives the flag back to all entries whose last change is confirmed.
    #[cold]
    #[inline(never)]
    pub(super) fn restore_confirmed(&mut self) {
        let confirmed = self.context.confirmed_version();
        while let Some(&(version, number)) = self.unconfirmed.front()
            && version <= confirmed
        {
            self.unconfirmed.pop_front();
            // The entry may have changed again, or ended, since.
            let flags = self.records[number as usize].header.flags;
            if flags & (LIVE | CONFIRMED) == LIVE {
                self.sweep_unconfirmed(number);
            }
        }
    }

    /// Gives the flag back to an entry whose last change is confirmed.
    #[cold]
    #[inline(never)]
    pub(super) fn sweep_unconfirmed(&mut self, number: u32) {
        let flags = &mut self.records[number as usize].header.flags;
        debug_assert!(*flags & LIVE != 0, "an entry that ended is not found");
        if self.versions[number as usize] <= self.context.confirmed_version() {
            *flags |= CONFIRMED;
        }
    }
}
