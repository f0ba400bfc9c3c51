//! How two copies of an entry become one: a join, so the order in which copies arrive does not matter.
//!
//! By generation first (a removal is a generation of its own): a copy of an older one counts for nothing.
//! Within a generation values join, or the caller's order decides, or at last the stamp, and `seen` and
//! `expired` are maxima. Were `seen` a maximum over generations too, it would depend on whether somebody
//! had forgotten the entry before it was written again.

use super::lanes::Hashes;
use super::record::{Header, LIVE, LIVED, OWN_SHARE, OWN_TOUCH, REMOVED, Record, USED};
use super::{Row, Table, Value};
use crate::branch::{Branch, taken};
use crate::context::Tick;
use crate::mutant::{self, Mutant};
use crate::object::Part;
use crate::stamp::{Origin, Origins, Stamp};
use crate::trace::{Step, Written};
use crate::wire::{BadBytes, Reader, Writer};

/// Flag of an operation: uses up to the one it names are over.
pub(super) const OPERATION_EXPIRED: u8 = 1;
/// Flag of an operation: the entry is removed.
pub(super) const OPERATION_REMOVED: u8 = 2;
/// Flag of an operation: not an entry, but what a repair removes; see `purge.rs`.
pub(super) const OPERATION_PURGE: u8 = 4;
/// Flag in a snapshot: not an entry, but the generation that new entries must start above.
pub(super) const SNAPSHOT_FLOOR: u8 = 4;
/// Flag of an entry in a snapshot, ended ones too: who announced its last use is another than who wrote it, and is named.
pub(super) const SNAPSHOT_TOUCHED: u8 = 1;

/// A copy of an entry, ours or a member's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied<R, V> {
    pub(super) row: R,
    pub(super) value: V,
    pub(super) generation: u64,
    pub(super) removed: bool,
    pub(super) seen: Tick,
    pub(super) expired: Tick,
    pub(super) stamp: Stamp,
    /// The operation that ended it, if it ended.
    pub(super) death: Stamp,
    /// Who announced that use.
    pub(super) toucher: Origin,
    /// Written by this very instance.
    pub(super) own: bool,
    /// Written by this host in an earlier incarnation: it counts against this instance's share.
    pub(super) earlier: bool,
}

/// Where a row is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whereabouts<'h> {
    /// In this record.
    In(u32),
    /// Nowhere yet; it is put where these lead.
    Nowhere(&'h Hashes),
}

impl<'h> Whereabouts<'h> {
    pub(super) fn new(known: Option<u32>, hashes: &'h Hashes) -> Self {
        known.map_or(Self::Nowhere(hashes), Self::In)
    }
}

impl<R: Row, V: Value> Table<R, V> {
    /// Joins a copy into the table.
    #[inline(always)]
    pub(super) fn merge(&mut self, copy: Copied<R, V>) {
        match self.identity(&copy.row) {
            Some(number) => self.merge_into(Whereabouts::In(number), copy),
            None => self.merge_into(Whereabouts::Nowhere(&self.hashes(&copy.row)), copy),
        };
    }

    /// Joins a copy into the record of its row, if there is one. Tells which record has it then.
    fn merge_into(&mut self, known: Whereabouts<'_>, copy: Copied<R, V>) -> Option<u32> {
        self.generation_floor = self.generation_floor.max(copy.generation.saturating_sub(1));
        let hashes = match known {
            Whereabouts::In(number) => {
                self.join(number, copy);
                return Some(number);
            }
            Whereabouts::Nowhere(hashes) => hashes,
        };
        // Every member applied that write, so this one did, and has forgotten the entry since: a slow
        // snapshot must not bring it back.
        if !copy.own && self.settings.logged && self.context.is_stable(copy.stamp) {
            taken(Branch::CopyForgotten);
            return None;
        }
        self.adopt(copy, hashes)
    }

    fn adopt(&mut self, copy: Copied<R, V>, hashes: &Hashes) -> Option<u32> {
        let live = !copy.removed && copy.seen > copy.expired;
        let mut header = Header {
            touch_due: self.touch_due(&copy.value, copy.seen),
            seen: copy.seen,
            toucher: copy.toucher.0,
            expired: copy.expired,
            generation_low: copy.generation as u32,
            flags: USED
                | if live { LIVE | LIVED } else { 0 }
                | if copy.removed { REMOVED } else { 0 }
                | if copy.own { OWN_TOUCH } else { 0 }
                | if copy.earlier { OWN_SHARE } else { 0 },
            ..Header::default()
        };
        header.set_stamp(copy.stamp);
        // Written whole, and not read back: its cache line may be still on its way.
        let record = Record {
            header,
            row: copy.row,
            value: copy.value,
        };
        let Some(number) = self.allocate(record) else {
            self.tally.refused_full += 1;
            return None;
        };
        self.note_generation(number, copy.generation);
        self.own += u32::from(copy.earlier);
        self.live += u32::from(live);
        if live {
            self.turn(number, true);
        } else {
            self.links[number as usize].set_death(copy.death);
        }
        self.audit(None, &record);
        self.link(number, copy.row, hashes);
        if live && !copy.own {
            self.note_adopted(&copy.row, copy.seen);
        }
        if self.context.is_awaited() {
            self.wake_waiting(hashes);
        }
        Some(number)
    }

    fn join(&mut self, number: u32, copy: Copied<R, V>) {
        let mut record = self.records[number as usize];
        let generation = self.generation(number);
        let header = &mut record.header;
        let was_live = header.flags & LIVE != 0;
        let removed = header.flags & REMOVED != 0;
        let revives = mutant::active(Mutant::RemovalForgetsGeneration) && removed && !copy.removed;
        if copy.generation < generation && !revives {
            taken(Branch::CopyOutdated);
            self.tally.lost_writes += u64::from(copy.value != record.value && !removed);
            return;
        }
        let newer = copy.generation > generation;
        if newer {
            taken(Branch::CopyNewer);
        } else if removed != copy.removed {
            taken(match removed {
                true => Branch::WriteBesideRemoval,
                false => Branch::RemovalBesideWrite,
            });
        }
        let takes = if newer || revives {
            true
        } else if removed != copy.removed {
            // Written again while another removed it: the writing stands.
            removed
        } else if V::JOINS && !removed {
            if mutant::active(Mutant::ValuesOverwritten) {
                record.value = copy.value;
            } else {
                record.value.join(&copy.value);
            }
            if self.context.compare(copy.stamp, header.stamp()).is_gt() {
                header.set_stamp(copy.stamp);
            }
            false
        } else {
            let order = copy
                .value
                .order(&record.value)
                .then_with(|| self.context.compare(copy.stamp, header.stamp()));
            self.tally.lost_writes += u64::from(copy.value != record.value);
            order.is_gt()
        };
        if takes {
            record.value = copy.value;
            header.generation_low = copy.generation as u32;
            header.set_stamp(copy.stamp);
            header.flags = header.flags & !REMOVED | if copy.removed { REMOVED } else { 0 };
        }
        if newer {
            (header.seen, header.expired) = (0, 0);
        }
        taken(match copy.seen > header.seen {
            true => Branch::UseLater,
            false => Branch::UseEarlier,
        });
        let is_later = match mutant::active(Mutant::EqualUseTakesOver) {
            true => copy.seen >= header.seen,
            false => copy.seen > header.seen,
        };
        if is_later || copy.own {
            header.seen = header.seen.max(copy.seen);
            header.toucher = copy.toucher.0;
            header.flags = header.flags & !OWN_TOUCH | if copy.own { OWN_TOUCH } else { 0 };
        }
        header.expired = header.expired.max(copy.expired);
        let live = header.flags & REMOVED == 0 && header.seen > header.expired;
        header.flags = header.flags & !LIVE | if live { LIVE | LIVED } else { 0 };
        // Of several operations that ended the entry, only one that is enough by itself may decide when
        // the entry is forgotten: anyone who applied it takes the entry for ended too.
        let ends = copy.removed && header.flags & REMOVED != 0 || copy.expired >= header.seen;
        let seen = header.seen;
        if copy.expired > 0 && live {
            taken(Branch::EndOutlived);
        } else if live && !was_live {
            taken(Branch::Resurrected);
        }
        record.header.touch_due = self.touch_due(&record.value, seen);
        let before = core::mem::replace(&mut self.records[number as usize], record);
        if takes {
            self.note_generation(number, copy.generation);
        }
        self.audit(Some(&before), &record);
        if !live && (was_live || ends) {
            self.links[number as usize].set_death(copy.death);
        }
        if was_live != live {
            self.live = if live { self.live + 1 } else { self.live - 1 };
            self.turn(number, live);
            self.tally.resurrected += u64::from(live);
            self.relink(number);
            if live && !copy.own {
                self.note_adopted(&copy.row, seen);
            }
        }
        // A use alone changes nothing that a packet could wait for.
        let is_changed = was_live != live || before.value != record.value;
        if is_changed && self.context.is_awaited() {
            self.wake_waiting(&self.hashes(&copy.row));
        }
    }

    /// Packets that were late for want of what was written are called again.
    #[cold]
    #[inline(never)]
    fn wake_waiting(&self, hashes: &Hashes) {
        if mutant::active(Mutant::OthersWriteWakesNobody) && self.settings.logged {
            return;
        }
        for (lane, &hash) in hashes.iter().enumerate().take(R::LANES) {
            self.context.changed(self.object, lane as u8, hash);
        }
        self.context.changed_some(self.object);
    }

    /// When a use of an entry last seen at `seen` is announced next: after a quarter of its idle time.
    pub(super) fn touch_due(&self, value: &V, seen: Tick) -> Tick {
        match self.idle(value) {
            0 => Tick::MAX,
            idle => seen
                .min(self.context.tick())
                .saturating_add((idle / 4).max(1)),
        }
    }

    /// The idle time of an entry with this value, in ticks; 0 is for ever.
    pub(super) fn idle(&self, value: &V) -> Tick {
        self.settings.idle[usize::from(value.idle_class()) % self.settings.idle.len()]
    }

    // --- writes of this instance

    /// Writes an entry again, and counts it against this instance's share from here on.
    #[cold]
    #[inline(never)]
    pub(super) fn write(&mut self, row: R, value: V) {
        let hashes = self.hashes(&row);
        self.prefetch(&hashes);
        self.write_under(&hashes, row, value);
    }

    /// The same of a row whose hashes are known, and whose lines were asked for.
    #[cold]
    #[inline(never)]
    pub(super) fn write_under(&mut self, hashes: &Hashes, row: R, value: V) {
        let tick = self.context.tick();
        let known = self.identity_under(hashes[0], &row);
        let above = match known {
            Some(number) => self.generation(number),
            None if mutant::active(Mutant::FloorForgotten) => 0,
            None => self.generation_floor,
        };
        let generation = above.saturating_add(1);
        let seen = tick.max(1);
        let copy = Copied {
            row,
            value,
            generation,
            removed: false,
            seen,
            expired: 0,
            stamp: NOBODY,
            death: NOBODY,
            toucher: Origins::OWN,
            own: true,
            earlier: false,
        };
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
        Copied {
            row,
            value,
            generation,
            removed: false,
            seen,
            expired: 0,
            stamp: NOBODY,
            death: NOBODY,
            toucher: Origins::OWN,
            own: true,
            earlier: false,
        }
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
            let flags = if copy.expired > 0 {
                OPERATION_EXPIRED
            } else {
                0
            } | if copy.removed { OPERATION_REMOVED } else { 0 };
            let object = self.object;
            let length = self.context.log(|out| {
                out.tag(object, flags);
                copy.row.encode(out);
                out.varint(copy.generation);
                copy.value.encode(out);
                out.u24(copy.seen);
            });
            debug_assert!(
                length <= Self::OPERATION_BYTES,
                "an entry took {length} bytes, of which its types say {} at most (`Wire::BYTES_MAX`)",
                Self::OPERATION_BYTES
            );
        }
        self.merge_into(known, copy)
    }

    // --- operations of others

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
            return self.apply_purge(input);
        }
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
        let removed = flags & OPERATION_REMOVED != 0;
        self.merge(Copied {
            row,
            value,
            generation,
            removed,
            seen,
            expired,
            stamp,
            death: stamp,
            toucher: stamp.origin,
            own: false,
            earlier: false,
        });
        Ok(())
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
                crate::stamp_wire::write_origin(&self.context, Origin(header.toucher), &mut writer);
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
            crate::stamp_wire::read_origin(&self.context, input)?
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
        });
        Ok(())
    }

    fn write_stamp(&self, stamp: Stamp, out: &mut Writer<'_>) {
        crate::stamp_wire::write_stamp(&self.context, stamp, out);
    }

    fn read_stamp(&self, input: &mut Reader<'_>) -> Result<Stamp, BadBytes> {
        crate::stamp_wire::read_stamp(&self.context, input)
    }
}

pub(super) const NOBODY: Stamp = Stamp {
    origin: crate::stamp::Origins::OWN,
    sequence: 0,
};
