//! Entries as bytes: operations of other instances, and snapshots.

use super::merge::Copied;
use super::record::{LIVE, REMOVED, USED};
use super::{Row, Table, Value};
use crate::branch::{Branch, taken};
use crate::context::{STAMP_BYTES_MAX, Tick, read_stamp, write_stamp};
use crate::mutant::{self, Mutant};
use crate::object::Part;
use crate::stamp::{Origin, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// Flag of an operation: uses up to the one it names are over.
pub(super) const OPERATION_EXPIRED: u8 = 1;
/// Flag of an operation: the entry is removed.
pub(super) const OPERATION_REMOVED: u8 = 2;
/// Flag of an operation: not an entry, but what a repair removes; see `purge.rs`.
pub(super) const OPERATION_PURGE: u8 = 4;
/// Flag of an operation with others beside it: the entry as another operation wrote it, whose stamp follows.
const OPERATION_STAMPED: u8 = 4;
/// Beside that: the entry lives. Of itself that has no flag.
const STAMPED_LIVE: u8 = 3;
/// Flag in a snapshot: not an entry, but the generation that new entries must start above.
pub(super) const SNAPSHOT_FLOOR: u8 = 4;
/// Flag of an entry in a snapshot, ended ones too: who announced its last use is another than who wrote it, and is named.
pub(super) const SNAPSHOT_TOUCHED: u8 = 1;

impl<R: Row, V: Value> Table<R, V> {
    /// Asks for the lines that an operation will need: most are of entries that are new here, which need those of all
    /// lanes.
    pub(crate) fn prefetch_operation(&self, input: &mut Reader<'_>) {
        if let Ok(row) = R::decode(input) {
            self.prefetch(&self.hashes(&row));
            if let Some(call) = &self.on_prefetch {
                call(&row);
            }
        }
    }

    /// Applies one operation whose tag (with `flags`) was read already.
    pub(crate) fn apply(
        &mut self,
        flags: u8,
        input: &mut Reader<'_>,
        stamp: Stamp,
    ) -> Result<(), BadBytes> {
        if flags & OPERATION_PURGE != 0 {
            return self.apply_uncommon(flags, input, stamp);
        }
        let copy = self.read_copy(flags, input, stamp)?;
        self.merge(copy);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn apply_uncommon(
        &mut self,
        flags: u8,
        input: &mut Reader<'_>,
        stamp: Stamp,
    ) -> Result<(), BadBytes> {
        let how = match flags & !OPERATION_STAMPED {
            0 => return self.apply_purge(input),
            STAMPED_LIVE => 0,
            how => how,
        };
        let mut copy = self.read_copy(how, input, stamp)?;
        copy.stamp = read_stamp(&self.context, input)?;
        self.merge(copy);
        Ok(())
    }

    /// An entry as an operation of this stamp has it.
    #[inline]
    fn read_copy(
        &self,
        flags: u8,
        input: &mut Reader<'_>,
        stamp: Stamp,
    ) -> Result<Copied<R, V>, BadBytes> {
        let row = R::decode(input)?;
        let generation = input.varint()?;
        let value = V::decode(input)?;
        let mut seen = self.widen(input.u24()?);
        if mutant::active(Mutant::ExpiryRestartsOnReceipt) {
            seen = self.context.tick();
        }
        let expired = if flags & OPERATION_EXPIRED != 0 {
            seen
        } else {
            0
        };
        Ok(Copied {
            row,
            value,
            generation,
            removed: flags & OPERATION_REMOVED != 0,
            seen,
            expired,
            stamp,
            death: stamp,
            toucher: stamp.origin,
            own: false,
            earlier: false,
            is_snapshot: false,
        })
    }

    /// Logs an entry of this instance's for the others, with its own stamp if that is another operation's.
    #[inline]
    pub(super) fn log_copy(&self, copy: &Copied<R, V>) {
        let flags = if copy.expired > 0 {
            OPERATION_EXPIRED
        } else {
            0
        } | if copy.removed { OPERATION_REMOVED } else { 0 };
        let is_stamped = copy.stamp != copy.death;
        let flags = match is_stamped {
            true => OPERATION_STAMPED | if flags == 0 { STAMPED_LIVE } else { flags },
            false => flags,
        };
        let length = self.context.log(|out| {
            out.tag(self.object, flags);
            copy.row.encode(out);
            out.varint(copy.generation);
            copy.value.encode(out);
            out.u24(copy.seen);
            if is_stamped {
                write_stamp(&self.context, copy.stamp, out);
            }
        });
        debug_assert!(
            length <= Self::OPERATION_BYTES + if is_stamped { STAMP_BYTES_MAX } else { 0 },
            "an entry took {length} bytes, of which its types say {} at most (`Wire::BYTES_MAX`)",
            Self::OPERATION_BYTES
        );
    }

    /// A time of which only the low 24 bits travelled (they wrap in 194 days): the one nearest to now.
    fn widen(&self, low: u32) -> Tick {
        const SPAN: i64 = 1 << 24;
        let now = i64::from(self.context.tick());
        let base = now / SPAN * SPAN + i64::from(low);
        let nearest = [base - SPAN, base, base + SPAN]
            .into_iter()
            .min_by_key(|time| (time - now).abs())
            .unwrap_or(base);
        // 0 is never: an entry was seen at 1 at the earliest.
        nearest.clamp(1, i64::from(Tick::MAX)) as Tick
    }

    /// Appends the whole state of entries from `cursor` on, as far as the part goes; tells where to go on, `None` at the end.
    ///
    /// By record, not by bucket: an entry stays in its record while the index around it is split. Each is as it is now, which
    /// is more than it was when the scan began (`docs/src/architecture/replication.md`).
    pub(crate) fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        if !self.settings.logged {
            return None;
        }
        for number in cursor..self.used {
            if !part.has_room() || !part.query() {
                return Some(number);
            }
            let record = &self.records[number as usize];
            let header = &record.header;
            if header.flags & USED == 0 {
                continue;
            }
            let live = header.flags & LIVE != 0;
            let mut writer = Writer::new(part.out(), self.context.addresses());
            // Of ended ones too: what another wrote meanwhile may let them live on, used last by who ended them.
            let named = live || !mutant::active(Mutant::LastUserOfTheEndedUnnamed);
            let touched = named && header.toucher != header.origin;
            let removed = header.flags & REMOVED != 0;
            writer.tag(
                self.object,
                if removed { OPERATION_REMOVED } else { 0 }
                    | if touched { SNAPSHOT_TOUCHED } else { 0 },
            );
            record.row.encode(&mut writer);
            writer.varint(self.generation(number));
            record.value.encode(&mut writer);
            writer.u32(header.seen);
            writer.u32(header.expired);
            self.write_stamp(header.stamp(), &mut writer);
            writer.u8(u8::from(!live));
            if !live {
                self.write_stamp(self.links[number as usize].death(), &mut writer);
            }
            if touched {
                crate::context::write_origin(&self.context, Origin(header.toucher), &mut writer);
            }
        }
        // Last, so that every part of a snapshot gets further than the one before.
        if self.generation_floor != 0 {
            if !part.has_room() {
                return Some(self.used.max(cursor));
            }
            let mut writer = Writer::new(part.out(), self.context.addresses());
            writer.tag(self.object, SNAPSHOT_FLOOR);
            writer.varint(self.generation_floor);
        }
        None
    }

    /// Joins one entry of a snapshot, whose tag was read already.
    pub(crate) fn apply_snapshot(
        &mut self,
        flags: u8,
        input: &mut Reader<'_>,
    ) -> Result<(), BadBytes> {
        if flags & SNAPSHOT_FLOOR != 0 {
            self.generation_floor = self.generation_floor.max(input.varint()?);
            return Ok(());
        }
        let row = R::decode(input)?;
        let generation = input.varint()?;
        let value = V::decode(input)?;
        let (seen, expired) = (input.u32()?, input.u32()?);
        let stamp = self.read_stamp(input)?;
        let death = if input.u8()? != 0 && !mutant::active(Mutant::SnapshotFieldSkipped) {
            self.read_stamp(input)?
        } else {
            stamp
        };
        let toucher = if flags & SNAPSHOT_TOUCHED != 0 {
            crate::context::read_origin(&self.context, input)?
        } else {
            stamp.origin
        };
        self.prefetch(&self.hashes(&row));
        // It was here, and was forgotten since by all rules: a part of a snapshot that was long on its way must not bring it back.
        // That the write is stable is not asked: anyone who removed it may have had it by a snapshot before by its writer's stream.
        if self.identity(&row).is_none() && self.context.has_applied(stamp) {
            taken(Branch::SnapshotCopyForgotten);
            return Ok(());
        }
        self.merge(Copied {
            row,
            value,
            generation,
            removed: flags & OPERATION_REMOVED != 0,
            seen,
            expired,
            stamp,
            death,
            toucher,
            own: false,
            earlier: self.context.is_earlier_incarnation(stamp.origin)
                && self.context.falls_to_lane(row.lane_hash(0, 0)),
            is_snapshot: true,
        });
        Ok(())
    }

    fn write_stamp(&self, stamp: Stamp, out: &mut Writer<'_>) {
        crate::context::write_stamp(&self.context, stamp, out);
    }

    fn read_stamp(&self, input: &mut Reader<'_>) -> Result<Stamp, BadBytes> {
        crate::context::read_stamp(&self.context, input)
    }
}
