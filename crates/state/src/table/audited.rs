//! The digests of a table's leaves, changed with every entry that comes, changes or ends.

use super::merge::Whereabouts;
use super::record::{LIVE, REMOVED, Record};
use super::{Row, Table, Value};
use crate::audit::{Leaf, LeafSet, Leaves};
use crate::branch::{Branch, taken};
use crate::context::Context;
use crate::mutant::{self, Mutant};
use crate::object::Audit;
use crate::stamp::OriginName;
use crate::wire::Writer;

/// A number that is equal for two entries exactly if (but for chance, 2⁻⁶⁴) row, value, generation, stamp and last use are.
fn digest<R: Row, V: Value>(
    record: &Record<R, V>,
    context: &Context,
    scratch: &mut Vec<u8>,
) -> u64 {
    scratch.clear();
    // Addresses in full: what they are shortened to is a member's own business.
    let mut out = Writer::new(scratch, &[]);
    record.row.encode(&mut out);
    record.value.encode(&mut out);
    let content = asterism_memory::hash::bytes(scratch, 0);
    let header = &record.header;
    let stamp = header.stamp();
    let origin = context.origin_name(stamp.origin);
    let incarnation = u64::from(header.generation_low) << 32 | u64::from(header.seen);
    let writer = asterism_memory::hash::words(origin.member.into(), origin.incarnation, 0);
    asterism_memory::hash::words(
        asterism_memory::hash::words(incarnation, stamp.sequence, content),
        writer,
        0,
    )
}

impl<R: Row, V: Value> Table<R, V> {
    /// An entry became what it is in `after`, or came as that. Only what can be found has a digest, but a change of what has
    /// ended counts as well: a write that comes after the removal that it preceded leaves no other trace.
    #[inline]
    pub(super) fn audit(
        &mut self,
        number: u32,
        before: Option<&Record<R, V>>,
        after: &Record<R, V>,
    ) {
        let Some(leaves) = &mut self.leaves else {
            return;
        };
        if number >= self.digested {
            return;
        }
        let what = |record: &Record<R, V>| {
            let header = &record.header;
            let (ended, flags) = (header.expired, header.flags & (LIVE | REMOVED));
            (
                header.generation_low,
                header.seen,
                ended,
                header.stamp(),
                flags,
            )
        };
        if before.is_some_and(|before| before.value == after.value && what(before) == what(after)) {
            return;
        }
        let leaf = Leaves::of(after.row.lane_hash(0, self.context.seed()));
        leaves.note_change(leaf);
        let is_live = |record: &&Record<R, V>| record.header.flags & LIVE != 0;
        if let Some(before) = before.filter(is_live) {
            leaves.subtract(leaf, digest(before, &self.context, &mut self.scratch));
        }
        if let Some(after) = Some(after).filter(is_live) {
            leaves.add(leaf, digest(after, &self.context, &mut self.scratch));
        }
    }

    /// Takes a record into the digests that is not in them yet, if all before it are.
    pub(super) fn digest_first(&mut self, number: u32) {
        if number != self.digested {
            return;
        }
        let record = &self.records[number as usize];
        if let Some(leaves) = &mut self.leaves
            && record.header.flags & LIVE != 0
        {
            let leaf = Leaves::of(record.row.lane_hash(0, self.context.seed()));
            leaves.add(leaf, digest(record, &self.context, &mut self.scratch));
        }
        self.digested += 1;
    }

    /// [`Audit::write_again`] of the `wanted` entries alone.
    pub(crate) fn write_those_again(
        &mut self,
        leaves: &LeafSet,
        (cursor, records): (u32, u32),
        wanted: impl Fn(&R) -> bool,
    ) -> (Option<u32>, u32) {
        let end = cursor.saturating_add(records).min(self.used);
        let mut written = 0;
        for number in cursor..end {
            let record = self.records[number as usize];
            let leaf = Leaves::of(record.row.lane_hash(0, self.context.seed()));
            let is_live = record.header.flags & LIVE != 0;
            if !is_live || !leaves.contains(leaf) || !wanted(&record.row) {
                if !is_live {
                    taken(Branch::EndedNotWritten);
                }
                continue;
            }
            taken(Branch::WrittenAgain);
            let later = u64::from(!mutant::active(Mutant::RewriteKeepsGeneration));
            let generation = self.generation(number).saturating_add(later);
            let seen = record.header.seen.max(self.context.tick());
            let copy = self.copy_of(number, record.value, generation, seen);
            self.publish(Whereabouts::In(number), copy);
            written += 1;
        }
        ((end < self.used).then_some(end), written)
    }
}

impl<R: Row, V: Value> Audit for Table<R, V> {
    /// A number that is equal on two members exactly if (but for chance, 2⁻⁶⁴) the same entries can be found there with the
    /// same values, generations, stamps and times. Reads the whole table.
    fn digest(&self) -> u64 {
        let mut scratch = Vec::new();
        let live = self.records[..self.used as usize]
            .iter()
            .filter(|record| record.header.flags & LIVE != 0);
        live.fold(0, |sum, record| {
            sum.wrapping_add(digest(record, &self.context, &mut scratch))
        })
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        Leaves::read(self.leaves.as_ref(), first, out)
    }
    /// A generation later, so that they replace what others have.
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        self.write_those_again(leaves, (cursor, records), |_| true)
    }
    fn remove_elsewhere(&mut self, leaves: &LeafSet, through: &[(OriginName, u64)]) -> bool {
        self.write_purge(leaves, through);
        true
    }
}
