//! A table that begins to be shared while packets flow, or is so no longer.
//!
//! What others write is applied in either case, so that nothing of it is lost when the table is shared here again. While it is not,
//! what is written here has no number, and ended entries are forgotten at once: others may hold what ended here, or lack what is
//! here. So whenever a table begins to be shared anywhere, each instance that shares it writes all that it holds again
//! ([`Table::announce_held`]), ended entries too: from then on all have the join of what each had. The state channel decides when: see
//! `crates/engine/src/channel/sharing.rs`.

use super::merge::{Copied, Whereabouts};
use super::record::{LIVE, REMOVED, USED};
use super::{Row, Table, TableSettings, Value};
use crate::audit::Leaves;
use crate::context::{Context, STAMP_BYTES_MAX};
use crate::mutant::{self, Mutant};
use crate::object::Absence;

/// A table begins to be shared with so many shares of entries at most, those that others wrote included: together they fit the
/// memory of all, and leave room for what each may add.
const HELD_SHARES: u32 = super::SLACK - 1;

/// How many entries an instance may hold that count as its own.
pub(super) fn own_max(context: &Context, settings: &TableSettings) -> u32 {
    let (_, shares) = context.identity().share();
    match settings.logged && !mutant::active(Mutant::CapacityNotLeased) {
        true => settings.capacity.div_ceil(shares),
        false => settings.capacity,
    }
}

impl<R: Row, V: Value> Table<R, V> {
    /// See [`Replicate::share`](crate::Replicate::share).
    pub(crate) fn share(&mut self, shares: bool) -> bool {
        let before = self.settings;
        if shares == before.logged || !before.chosen.movable {
            return before.logged;
        }
        self.settings.logged = shares;
        let own_max = own_max(&self.context, &self.settings);
        if shares && (self.own > own_max || self.held > own_max.saturating_mul(HELD_SHARES)) {
            self.settings.logged = false;
            return false;
        }
        let chosen = before.chosen;
        self.own_max = own_max;
        self.settings.holds_output = shares && chosen.holds_output;
        self.settings.absence = if shares {
            chosen.absence
        } else {
            Absence::Answer
        };
        self.is_absence_certain = self.settings.is_absence_certain();
        self.leaves = Leaves::new(shares && chosen.audited);
        self.digested = if shares { 0 } else { u32::MAX };
        shares
    }

    /// See [`Replicate::announce`](crate::Replicate::announce).
    pub(crate) fn announce_held(&mut self, cursor: u32, records: u32) -> Option<u32> {
        let end = cursor.saturating_add(records).min(self.used);
        for number in cursor..end {
            self.digest_first(number);
            let record = self.records[number as usize];
            let header = record.header;
            if header.flags & USED == 0 || mutant::active(Mutant::HeldNotAnnounced) {
                continue;
            }
            let is_live = header.flags & LIVE != 0;
            // What ended has no use after its end.
            let ended = if is_live { 0 } else { header.expired };
            let seen = header.seen.max(ended);
            let mut copy = self.copy_of(number, record.value, self.generation(number), seen);
            copy.removed = header.flags & REMOVED != 0;
            copy.expired = if is_live || copy.removed { 0 } else { seen };
            self.publish_again(number, copy);
        }
        if end < self.used {
            return Some(end);
        }
        // What began before the table was shared last leaves the rest to what begins after that.
        if self.digested >= end {
            self.digested = u32::MAX;
        }
        None
    }

    /// Writes an entry of which others may have what is here already, by the very operation that wrote it, or lack it: with the stamp that
    /// it has, if that is later, so that it becomes the same everywhere.
    fn publish_again(&mut self, number: u32, mut copy: Copied<R, V>) {
        let known = self.records[number as usize].header.stamp();
        let bytes = Self::OPERATION_BYTES + STAMP_BYTES_MAX;
        copy.death = self.context.stamp(self.settings.logged, bytes);
        let is_later = self.context.compare(known, copy.death).is_gt();
        copy.stamp = match is_later && !mutant::active(Mutant::AnnouncedUnderOwnStamp) {
            true => known,
            false => copy.death,
        };
        self.log_copy(&copy);
        self.merge_into(Whereabouts::In(number), copy);
    }

    /// Whether the end of an entry has a number, by which it is known when all members know it.
    pub(super) fn is_end_reported(&self, number: u32) -> bool {
        self.links[number as usize].death().sequence != 0
            || mutant::active(Mutant::LocalEndForgotten)
    }

    /// Whether entries that others used last are ended here as well: each host ends its own copy.
    pub(super) fn ends_all_itself(&self) -> bool {
        !self.settings.logged && !mutant::active(Mutant::OthersEntriesStay)
    }
}
