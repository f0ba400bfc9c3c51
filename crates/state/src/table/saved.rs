//! Entries that come back from a file, and entries shown to people.
//!
//! A restored entry is a write of this host: it is logged for the others like any other, and this instance says when it idles
//! out. That is only right where nobody has the state already, which the caller knows: an entry that others removed and
//! forgot since would live again.

use super::merge::{Copied, Whereabouts};
use super::operations::{OPERATION_REMOVED, SNAPSHOT_FLOOR, SNAPSHOT_TOUCHED};
use super::record::{DOMINATED, LIVE, OWN_TOUCH};
use super::{Row, Table, Value};
use crate::object::Since;
use crate::shown::{Provenance, Shown};
use crate::wire::{BadBytes, Reader};

impl<R: Row, V: Value> Table<R, V> {
    /// Writes an entry of a saved snapshot again, whose tag was read already, if it would still live. Tells whether it does.
    pub(crate) fn restore(
        &mut self,
        flags: u8,
        input: &mut Reader<'_>,
        since: &Since,
    ) -> Result<bool, BadBytes> {
        if flags & SNAPSHOT_FLOOR != 0 {
            self.generation_floor = self.generation_floor.max(input.varint()?);
            return Ok(false);
        }
        let row = R::decode(input)?;
        let generation = input.varint()?;
        let value = V::decode(input)?;
        let (seen, expired) = (input.u32()?, input.u32()?);
        crate::context::skip_stamp(input)?;
        let ended = input.u8()? != 0;
        if ended {
            crate::context::skip_stamp(input)?;
        }
        if flags & SNAPSHOT_TOUCHED != 0 {
            crate::context::skip_origin(input)?;
        }
        let age = since.saved.saturating_sub(seen).saturating_add(since.away);
        let idle = self.idle(&value);
        if ended || flags & OPERATION_REMOVED != 0 || seen <= expired || idle != 0 && age > idle {
            return Ok(false);
        }
        if self.held >= self.settings.capacity {
            self.tally.refused_full += 1;
            return Ok(false);
        }
        let hashes = self.hashes(&row);
        self.prefetch(&hashes);
        let known = self.identity_under(hashes[0], &row);
        let copy = Copied::own(
            row,
            value,
            generation,
            self.context.tick().saturating_sub(age).max(1),
        );
        let restored = self
            .publish(Whereabouts::new(known, &hashes), copy)
            .is_some();
        if restored {
            self.note_adopted(&row, copy.seen);
        }
        Ok(restored)
    }

    /// Looks at up to `count` records from the `cursor`th on, and calls `each` for every live entry with the number of the member
    /// that wrote it last. Gives where to go on, `None` at the end; what is inserted meanwhile may be missed, and is there the next
    /// time. For control-plane use.
    pub fn for_each_from(
        &self,
        (cursor, count): (u32, u32),
        mut each: impl FnMut(&R, &V, u16),
    ) -> Option<u32> {
        let end = cursor.saturating_add(count).min(self.used);
        for record in &self.records[cursor.min(end) as usize..end as usize] {
            if record.header.flags & LIVE != 0 {
                let origin = self.context.origin_name(record.header.stamp().origin);
                each(&record.row, &record.value, origin.member);
            }
        }
        (end < self.used).then_some(end)
    }

    /// Shows up to `records` records from `cursor` on; where to go on, `None` at the end.
    pub(crate) fn show(
        &self,
        cursor: u32,
        records: u32,
        each: &mut dyn FnMut(&Shown<'_>),
    ) -> Option<u32> {
        let end = cursor.saturating_add(records).min(self.used);
        for number in cursor..end {
            let record = &self.records[number as usize];
            let header = &record.header;
            if header.flags & LIVE == 0 {
                continue;
            }
            let origin = self.context.origin_name(header.stamp().origin);
            each(&Shown {
                key: &record.row,
                value: &record.value,
                provenance: Some(Provenance {
                    idle_class: record.value.idle_class(),
                    idle: self.idle(&record.value),
                    unused: self.context.tick().saturating_sub(header.seen),
                    generation: self.generation(number),
                    origin,
                    sequence: header.stamp().sequence,
                    alias: header.flags & DOMINATED != 0,
                    ends_here: header.flags & OWN_TOUCH != 0,
                }),
            });
        }
        (end < self.used).then_some(end)
    }
}
