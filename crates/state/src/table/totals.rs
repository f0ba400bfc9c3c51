//! Entries whose values are totals that grow with every packet: changed here at once, asked to others now and then.
//!
//! For objects made on top of a table (`graph/`): each such entry is written by one instance alone, and its value joins by the
//! greater total, so that copies of any age join.

use super::merge::Whereabouts;
use super::record::LIVE;
use super::{At, Row, Table, Value};
use crate::context::Late;

/// A value that runs ahead of what others know. Its bytes say what they were reported, so that operations, snapshots and digests do.
pub trait Total: Value {
    /// All of it is distinguished from here on.
    fn tell(&mut self);
}

impl<R: Row, V: Value> Table<R, V> {
    /// As [`Table::find`], for an entry that none but this instance writes: its absence is never in doubt.
    #[inline(always)]
    pub(crate) fn find_own(
        &self,
        lane: usize,
        hash: u64,
        same: impl Fn(&R) -> bool,
    ) -> Result<Option<At<R, V>>, Late> {
        if !self.context.answers_plainly() {
            self.ahead(lane, hash)?;
        }
        let found = self.lanes[lane].find(hash, self.seek(same));
        Ok(found
            .filter(|(_, record)| record.is_found_by(lane))
            .map(|(number, record)| record.at(number)))
    }

    /// Whether reads are late by settings.
    pub(crate) fn late_us(&self) -> u32 {
        self.settings.late_us
    }

    /// Whether operations are logged for other instances.
    pub(crate) fn is_logged(&self) -> bool {
        self.settings.logged
    }

    /// Entries that there is memory for.
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// The record of exactly this row, if it is found.
    pub(crate) fn live(&self, row: &R) -> Option<u32> {
        self.identity(row)
            .filter(|&number| self.records[number as usize].header.flags & LIVE != 0)
    }

    pub(crate) fn row(&self, number: u32) -> &R {
        &self.records[number as usize].row
    }

    /// Reads a group as a packet does: late where the object's reads are, or where its absence may be.
    pub(crate) fn fold_group<T>(
        &self,
        lane: usize,
        hash: u64,
        same: impl Fn(&R) -> bool,
        fold: impl FnMut(Option<T>, &V) -> T,
    ) -> Result<Option<T>, Late> {
        if !self.context.answers_plainly() {
            self.ahead(lane, hash)?;
        }
        let folded = self.fold_living(lane, hash, same, fold);
        if folded.is_none() {
            self.absent_here()?;
        }
        Ok(folded)
    }

    /// Folds the values of a group's live rows, which stand before the ended ones.
    pub(crate) fn fold_living<T>(
        &self,
        lane: usize,
        hash: u64,
        same: impl Fn(&R) -> bool,
        mut fold: impl FnMut(Option<T>, &V) -> T,
    ) -> Option<T> {
        let mut folded = None;
        self.each_living(lane, hash, same, |_, value| {
            folded = Some(fold(folded.take(), value));
        });
        folded
    }

    /// Calls `each` for a group's live rows. Takes as many steps as there are.
    pub(crate) fn each_living(
        &self,
        lane: usize,
        hash: u64,
        same: impl Fn(&R) -> bool,
        mut each: impl FnMut(&R, &V),
    ) {
        let mut at = self.lanes[lane].find(hash, |number| {
            same(&self.records[number as usize].row).then_some(number)
        });
        while let Some(number) = at {
            let record = &self.records[number as usize];
            if record.header.flags & LIVE == 0 {
                return;
            }
            each(&record.row, &record.value);
            at = self.links[number as usize].next[lane].checked_sub(1);
        }
    }

    /// The entry that came to live, or ended, by the last write, operation or step of a sweep: each changes one at most.
    pub(crate) fn take_turned(&mut self) -> Option<(u32, bool)> {
        self.turned.take()
    }
}

impl<R: Row, V: Total> Table<R, V> {
    /// Raises the value of this instance's own live entry and tells nobody: [`Table::announce`] does.
    #[inline(always)]
    pub(crate) fn raise(&mut self, number: u32, raise: impl FnOnce(&mut V)) {
        debug_assert!(V::JOINS, "only totals that join may be reported later");
        let record = &mut self.records[number as usize];
        if record.header.flags & LIVE != 0 {
            raise(&mut record.value);
        }
    }

    /// Tells the others this instance's own entry as it is now, if it is live and `wanted`; the bytes that took.
    pub(crate) fn announce(&mut self, number: u32, wanted: impl Fn(&R) -> bool) -> usize {
        let record = self.records[number as usize];
        if record.header.flags & LIVE == 0 || !wanted(&record.row) {
            return 0;
        }
        let before = self.context.bytes_waiting();
        let (generation, seen) = (self.generation(number), record.header.seen);
        let mut value = record.value;
        value.tell();
        let copy = self.copy_of(number, value, generation, seen);
        self.publish(Whereabouts::In(number), copy);
        self.context.bytes_waiting() - before
    }
}
