//! Reads that may not be answered at once: in the prefetch pass, late by settings, or of an entry that is not here.

use super::{Row, Table, Value};
use crate::context::{Late, Step, late_answer};
use crate::object::Absence;
use crate::wire::Writer;

/// In place of a hash: a read of the table that has no key.
const NO_KEY: u64 = 0;

impl<R: Row, V: Value> Table<R, V> {
    #[cold]
    pub(super) fn ahead(&self, lane: usize, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            return Err(self.prefetch_probe(lane, hash));
        }
        self.context.note_read(self.object, lane as u8, hash);
        self.context.decided(self.object, lane as u8, hash)?;
        if self.settings.late_us != 0
            && !self
                .context
                .fetched(self.object, hash, u64::from(self.settings.late_us))
        {
            return Err(late_answer());
        }
        self.context.trace(Step::Ask {
            object: self.object,
            lane: lane as u8,
            found: true,
        });
        Ok(())
    }

    /// [`Table::ahead`] for a read without a key. The prefetch pass goes on by the answer that is here, since entries are what
    /// it prefetches.
    #[cold]
    pub(super) fn ask_emptiness(&self) -> Result<(), Late> {
        if self.context.is_prefetching() {
            return Ok(());
        }
        self.context.note_read_of_emptiness(self.object);
        self.context.decided_emptiness(self.object, self.live)?;
        let late_us = u64::from(self.settings.late_us);
        if late_us != 0 && !self.context.fetched(self.object, NO_KEY, late_us) {
            return Err(late_answer());
        }
        Ok(())
    }

    /// Whether half of the capacity or more is taken by entries that are found or not forgotten yet: a read of the table, late as
    /// [`Table::is_empty`] is, and of no entry, so that a store does not check it when the call is committed.
    pub fn is_half_full(&self) -> Result<bool, Late> {
        if !self.context.answers_plainly() {
            self.ask_emptiness()?;
        }
        if self.settings.is_remote {
            self.room_answered()?;
            return Ok(self.own_max <= self.settings.capacity / 2);
        }
        Ok(self.held >= self.settings.capacity / 2)
    }

    /// A read found nothing here: late where the entries are in a store that was not asked yet, or where an absent entry may be on its way.
    #[cold]
    pub(super) fn absent(
        &self,
        lane: usize,
        hash: impl Fn() -> u64,
        key: impl Fn(&mut Writer<'_>),
    ) -> Result<(), Late> {
        if self.settings.is_remote {
            return self.answered(lane, hash(), key);
        }
        self.absent_here()
    }

    pub(super) fn absent_here(&self) -> Result<(), Late> {
        self.context.trace_absent();
        match self.settings.absence {
            Absence::Answer => Ok(()),
            Absence::Wait { us } => self.context.absent(None, u64::from(us)),
        }
    }
}
