//! Entries of a store that stay here between calls, as long as the instance's end of the store says so.
//!
//! They are in a table of their own, which takes the place of this one while calls may be answered by it ([`Fetch::show_kept`]): such a call
//! reads as one of a table that is here. What it writes is recorded; if that is more than nothing, the call is made again with answers of
//! the store, and sees those alone. So what is kept is never part of a transaction, and may be gone or outdated at any time but while it is shown.
//!
//! An entry is kept of an answer to a read by a unique key that found it alone. It lives and is not shadowed, so that it is what each of its unique
//! keys finds. A group is asked for in any case ([`Table::group_member`]).
//!
//! [`Fetch::show_kept`]: crate::Fetch::show_kept

use super::fetched::read_entries;
use super::record::USED;
use super::{Row, Table, Value};
use crate::context::Tick;
use crate::mutant::{self, Mutant};

/// See the module.
#[derive(Debug)]
pub(super) struct KeptEntries<R: Row, V: Value> {
    /// The one of the two tables that is not in the other's place.
    other: Table<R, V>,
    is_shown: bool,
    /// The last second in which each entry has not ended, by its record.
    through: Vec<Tick>,
    /// None ends before.
    earliest: Tick,
}

impl<R: Row, V: Value> Table<R, V> {
    pub(super) fn expect_kept(&mut self) {
        if !self.settings.is_remote || self.kept.is_some() {
            return;
        }
        let mut settings = self.settings;
        settings.expected = 0;
        self.kept = Some(Box::new(KeptEntries {
            other: Self::new(self.context.clone(), self.object, settings),
            is_shown: false,
            through: Vec::new(),
            earliest: Tick::MAX,
        }));
    }

    pub(super) fn swap_kept(&mut self, shows: bool) {
        if let Some(mut kept) = self.kept.take() {
            if kept.is_shown != shows {
                core::mem::swap(self, &mut kept.other);
                kept.is_shown = shows;
            }
            self.kept = Some(kept);
        }
    }

    /// The kept entries, while they are not shown.
    fn hidden(&mut self) -> Option<&mut KeptEntries<R, V>> {
        let kept = self.kept.as_deref_mut()?;
        debug_assert!(!kept.is_shown, "they may be read now");
        Some(kept)
    }

    pub(super) fn keep_answered(&mut self, lane: usize, hash: u64, answer: &[u8]) {
        let context = self.context.clone();
        let Some(kept) = self.hidden().filter(|_| lane < R::UNIQUE) else {
            return;
        };
        let (mut found, mut count) = (None, 0);
        let read = read_entries(answer, context.addresses(), |row: R, value, known, _, _| {
            (found, count) = (Some((row, value, known)), count + 1);
        });
        let Some((row, value, known)) = found.filter(|_| read.is_ok() && count == 1) else {
            return;
        };
        // One of another key would be found by that, and stay when this answer goes.
        if row.lane_hash(lane, context.seed()) != hash {
            return;
        }
        let table = &mut kept.other;
        if let Some(number) = table.identity(&row) {
            table.take_out(number);
        }
        let through = match table.idle(&value) {
            0 => Tick::MAX,
            idle => known.touch_due.saturating_add(idle),
        };
        if known.is_shadowed || through < context.tick() {
            return;
        }
        let Some(number) = table.install_entry(row, value, known) else {
            return;
        };
        let number = number as usize;
        if kept.through.len() <= number {
            kept.through.resize(number + 1, Tick::MAX);
        }
        kept.through[number] = through;
        kept.earliest = kept.earliest.min(through);
    }

    pub(super) fn drop_kept_under(&mut self, lane: usize, hash: u64) {
        if let Some(kept) = self.hidden().filter(|_| lane < R::UNIQUE) {
            let table = &mut kept.other;
            let seed = table.seed();
            let first = |table: &Self| {
                table.lanes[lane].find(hash, |number| {
                    let row = &table.records[number as usize].row;
                    (row.lane_hash(lane, seed) == hash).then_some(number)
                })
            };
            while let Some(number) = first(table) {
                table.take_out(number);
            }
        }
    }

    pub(super) fn drop_kept_all(&mut self) {
        if let Some(kept) = self.hidden() {
            kept.other.empty();
            (kept.earliest, kept.through) = (Tick::MAX, Vec::new());
        }
    }

    pub(super) fn drop_kept_ended(&mut self) {
        let tick = self.context.tick();
        let Some(kept) = self.hidden().filter(|kept| kept.earliest < tick) else {
            return;
        };
        if mutant::active(Mutant::KeptOutlivesItsEnd) {
            return;
        }
        kept.earliest = Tick::MAX;
        for (number, through) in kept.through.iter_mut().enumerate() {
            if *through < tick {
                *through = Tick::MAX;
                if kept.other.records[number].header.flags & USED != 0 {
                    kept.other.take_out(number as u32);
                }
            }
            kept.earliest = kept.earliest.min(*through);
        }
    }

    /// Has an entry gone that is here for no writer.
    fn take_out(&mut self, number: u32) {
        self.unlink(number);
        self.release(number);
    }
}
