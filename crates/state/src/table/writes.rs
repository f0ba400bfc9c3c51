//! Writes of this instance: each makes a copy of the entry as it is to be, joins it here, and logs it for the others.

use super::fetched::{RECORDED_CHANGE, RECORDED_REMOVAL, RECORDED_TOUCH, RECORDED_WRITE};
use super::lanes::Hashes;
use super::merge::{Copied, Whereabouts};
use super::record::{LIVE, OWN_SHARE};
use super::{Row, Table, Value};
use crate::branch::{Branch, taken};
use crate::context::{Step, Tick, Written};
use crate::mutant::{self, Mutant};
use crate::stamp::Origins;

impl<R: Row, V: Value> Table<R, V> {
    /// Writes an entry again, and counts it against this instance's share from here on.
    #[cold]
    #[inline(never)]
    pub(super) fn write(&mut self, row: R, value: V) {
        if self.records_writes() {
            return self.record(RECORDED_WRITE, row, value);
        }
        let hashes = self.hashes(&row);
        self.prefetch(&hashes);
        self.write_under(&hashes, row, value);
    }

    /// The same of a row whose hashes are known, and whose lines were asked for.
    #[cold]
    #[inline(never)]
    pub(super) fn write_under(&mut self, hashes: &Hashes, row: R, value: V) {
        if self.records_writes() {
            return self.record(RECORDED_WRITE, row, value);
        }
        let tick = self.context.tick();
        let known = self.identity_under(hashes[0], &row);
        let above = match known {
            Some(number) => self.generation(number),
            None if mutant::active(Mutant::FloorForgotten) => 0,
            None => self.generation_floor,
        };
        let generation = above.saturating_add(1);
        let seen = tick.max(1);
        let copy = Copied::own(row, value, generation, seen);
        if let Some(number) = self.publish(Whereabouts::new(known, hashes), copy) {
            let flags = &mut self.records[number as usize].header.flags;
            self.own += u32::from(*flags & OWN_SHARE == 0);
            *flags |= OWN_SHARE;
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn refresh(&mut self, number: u32) {
        let record = self.records[number as usize];
        let due = self.context.tick() >= record.header.touch_due;
        if record.header.flags & LIVE == 0 || self.idle(&record.value) == 0 || !due {
            return;
        }
        if self.records_writes() {
            return self.record(RECORDED_TOUCH, record.row, record.value);
        }
        taken(Branch::UseAnnounced);
        let seen = self
            .context
            .tick()
            .max(record.header.seen.saturating_add(1));
        if mutant::active(Mutant::TouchNotAnnounced) {
            let due = self.touch_due(&record.value, seen);
            let header = &mut self.records[number as usize].header;
            (header.seen, header.touch_due) = (seen, due);
            return;
        }
        let copy = self.copy_of(number, record.value, self.generation(number), seen);
        self.publish(Whereabouts::In(number), copy);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn change(&mut self, number: u32, value: V) {
        let record = self.records[number as usize];
        if record.header.flags & LIVE == 0 {
            return;
        }
        if self.records_writes() {
            return self.record(RECORDED_CHANGE, record.row, value);
        }
        let due = self.context.tick() >= record.header.touch_due;
        let mut joined = record.value;
        let generation = if V::JOINS {
            joined.join(&value);
            self.generation(number)
        } else {
            joined = value;
            self.generation(number)
                .saturating_add(u64::from(value != record.value))
        };
        if joined == record.value && !due {
            return;
        }
        let seen = self
            .context
            .tick()
            .max(record.header.seen.saturating_add(u32::from(due)));
        let copy = self.copy_of(number, joined, generation, seen);
        self.publish(Whereabouts::In(number), copy);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn remove_entry(&mut self, number: u32) {
        let record = self.records[number as usize];
        if record.header.flags & LIVE == 0 {
            return;
        }
        if self.records_writes() {
            return self.record(RECORDED_REMOVAL, record.row, record.value);
        }
        let mut copy = self.copy_of(
            number,
            record.value,
            self.generation(number).saturating_add(1),
            // Not the last use itself: a time that travels must be near enough to now.
            record.header.seen.max(self.context.tick()),
        );
        copy.removed = true;
        self.publish(Whereabouts::In(number), copy);
    }

    pub(super) fn expire(&mut self, number: u32) {
        let record = self.records[number as usize];
        let mut copy = self.copy_of(
            number,
            record.value,
            self.generation(number),
            record.header.seen,
        );
        copy.expired = copy.seen;
        self.publish(Whereabouts::In(number), copy);
    }

    pub(super) fn copy_of(
        &self,
        number: u32,
        value: V,
        generation: u64,
        seen: Tick,
    ) -> Copied<R, V> {
        let row = self.records[number as usize].row;
        Copied::own(row, value, generation, seen)
    }

    /// Applies an own write here, to the record of its row if there is one, and logs it for the others.
    pub(super) fn publish(
        &mut self,
        known: Whereabouts<'_>,
        mut copy: Copied<R, V>,
    ) -> Option<u32> {
        let theirs = match known {
            Whereabouts::In(number) => Some(self.records[number as usize].header.stamp()),
            Whereabouts::Nowhere(_) => None,
        };
        let theirs = theirs.filter(|stamp| {
            mutant::active(Mutant::RemoteEntryNotLogged) && stamp.origin != Origins::OWN
        });
        let silent = theirs.is_some();
        copy.stamp = theirs.unwrap_or_else(|| self.stamp());
        copy.death = copy.stamp;
        self.context.trace(Step::Write {
            object: self.object,
            what: match known {
                _ if copy.removed => Written::Removed,
                _ if copy.expired > 0 => Written::Expired,
                Whereabouts::Nowhere(_) => Written::Added,
                Whereabouts::In(_) => Written::Changed,
            },
        });
        if self.settings.logged && !silent {
            self.log_copy(&copy);
        }
        self.merge_into(known, copy)
    }
}
