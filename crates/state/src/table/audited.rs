//! The digests of a table's leaves, changed with every entry that comes, changes or ends.

use super::record::{LIVE, Record};
use super::{Row, Table, Value};
use crate::audit::{Leaf, Leaves};
use crate::context::Context;
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
    let content = crate::hash::bytes(scratch, 0);
    let header = &record.header;
    let stamp = header.stamp();
    let origin = context.origin_name(stamp.origin);
    let life = u64::from(header.generation) << 32 | u64::from(header.seen);
    let writer = crate::hash::words(origin.member.into(), origin.incarnation, 0);
    crate::hash::words(crate::hash::words(life, stamp.sequence, content), writer, 0)
}

impl<R: Row, V: Value> Table<R, V> {
    /// An entry became what it is in `after`, if it was there before. Only what can be found counts.
    #[inline]
    pub(super) fn audit(&mut self, before: Option<&Record<R, V>>, after: &Record<R, V>) {
        let Some(leaves) = &mut self.leaves else {
            return;
        };
        let before = before.filter(|record| record.header.flags & LIVE != 0);
        let after = Some(after).filter(|record| record.header.flags & LIVE != 0);
        let same = |left: &Record<R, V>, right: &Record<R, V>| {
            left.value == right.value
                && left.header.generation == right.header.generation
                && left.header.seen == right.header.seen
                && left.header.stamp() == right.header.stamp()
        };
        match (before, after) {
            (None, None) => return,
            (Some(before), Some(after)) if same(before, after) => return,
            _ => {}
        }
        for (record, comes) in [(before, false), (after, true)] {
            let Some(record) = record else { continue };
            let leaf = Leaves::of(record.row.lane_hash(0, self.context.seed()));
            let digest = digest(record, &self.context, &mut self.scratch);
            if comes {
                leaves.add(leaf, digest);
            } else {
                leaves.subtract(leaf, digest);
            }
        }
    }

    /// Copies leaves; false if the table is not shared.
    pub(crate) fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        Leaves::read(self.leaves.as_ref(), first, out)
    }

    /// A number that is equal on two members exactly if (but for chance, 2⁻⁶⁴) the same entries can be found there with the
    /// same values, generations, stamps and times. Reads the whole table.
    pub(crate) fn digest(&self) -> u64 {
        let mut scratch = Vec::new();
        let live = self.records[..self.used as usize]
            .iter()
            .filter(|record| record.header.flags & LIVE != 0);
        live.fold(0, |sum, record| {
            sum.wrapping_add(digest(record, &self.context, &mut scratch))
        })
    }
}
