//! How two copies of an entry become one: a join, so the order in which copies arrive does not matter.
//!
//! By generation first (a removal is a generation of its own): a copy of an older one counts for nothing.
//! Within a generation values join, or the caller's order decides, or at last the stamp, and `seen` and
//! `expired` are maxima. Were `seen` a maximum over generations too, it would depend on whether somebody
//! had forgotten the entry before it was written again.
//!
//! Copies come from this instance (`writes.rs`), and from others (`operations.rs`).

use core::cmp::Ordering;

use super::lanes::Hashes;
use super::record::{CONFIRMED, Header, LIVE, LIVED, OWN_SHARE, OWN_TOUCH, REMOVED, Record, USED};
use super::{Row, Table, Value};
use crate::branch::{Branch, taken};
use crate::context::Tick;
use crate::mutant::{self, Mutant};
use crate::stamp::{Origin, Origins, Stamp};

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
    /// The operation that brings it, which ended it if it ended; of a snapshot, the operation that ended it.
    pub(super) death: Stamp,
    /// Who announced that use.
    pub(super) toucher: Origin,
    /// Written by this very instance.
    pub(super) own: bool,
    /// Written by this host in an earlier incarnation: it counts against this instance's share.
    pub(super) earlier: bool,
    /// A part of a snapshot, which the member that sent it has too.
    pub(super) is_snapshot: bool,
}

impl<R, V> Copied<R, V> {
    /// A live entry that this instance writes.
    #[inline]
    pub(super) fn own(row: R, value: V, generation: u64, seen: Tick) -> Copied<R, V> {
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
            is_snapshot: false,
        }
    }

    /// The operation that others know it by.
    #[inline]
    fn operation(&self) -> Stamp {
        if self.is_snapshot {
            self.stamp
        } else {
            self.death
        }
    }

    /// How the copy's generation stands to that of the entry: of an older one it counts for nothing.
    #[inline]
    fn compare_generation(&self, generation: u64, was_removed: bool) -> Ordering {
        let revives = was_removed && !self.removed;
        match self.generation.cmp(&generation) {
            Ordering::Less if revives && mutant::active(Mutant::RemovalForgetsGeneration) => {
                Ordering::Equal
            }
            order => order,
        }
    }
}

impl Header {
    /// Joins the last use, and who made it.
    #[inline]
    fn join_use<R, V>(&mut self, copy: &Copied<R, V>) {
        taken(match copy.seen > self.seen {
            true => Branch::UseLater,
            false => Branch::UseEarlier,
        });
        let is_later = match mutant::active(Mutant::EqualUseTakesOver) {
            true => copy.seen >= self.seen,
            false => copy.seen > self.seen,
        };
        if is_later || copy.own {
            self.seen = self.seen.max(copy.seen);
            self.toucher = copy.toucher.0;
            self.flags = self.flags & !OWN_TOUCH | if copy.own { OWN_TOUCH } else { 0 };
        }
    }

    /// Joins the uses that are over; whether the entry lives.
    #[inline]
    fn join_end<R, V>(&mut self, copy: &Copied<R, V>) -> bool {
        self.expired = self.expired.max(copy.expired);
        let live = self.flags & REMOVED == 0 && self.seen > self.expired;
        // A use changes nothing that a packet waits for: of an entry that lived, the flag stays as it is.
        let is_confirmed = match self.flags & LIVE {
            0 => CONFIRMED,
            _ => self.flags & CONFIRMED,
        };
        let found = if live { LIVE | LIVED | is_confirmed } else { 0 };
        self.flags = self.flags & !(LIVE | CONFIRMED) | found;
        live
    }
}

/// Joins concurrent values of one generation.
#[inline]
fn join_value<V: Value>(value: &mut V, other: &V) {
    if mutant::active(Mutant::ValuesOverwritten) {
        *value = *other;
    } else {
        value.join(other);
    }
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
    pub(super) fn merge_into(&mut self, known: Whereabouts<'_>, copy: Copied<R, V>) -> Option<u32> {
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
        if !copy.own && self.settings.logged && self.context.is_stable(copy.operation()) {
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
                | if live { LIVE | LIVED | CONFIRMED } else { 0 }
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
        self.audit(number, None, &record);
        self.link(number, copy.row, hashes);
        if live && !copy.is_snapshot {
            self.note_change(number, copy.death, copy.own);
        }
        if live && !copy.own {
            self.note_adopted(&copy.row, copy.seen);
        }
        if self.context.is_awaited() {
            self.wake_waiting(hashes);
        }
        Some(number)
    }

    /// Joins a copy into the record that has its row: its value, then its use, then its end.
    fn join(&mut self, number: u32, copy: Copied<R, V>) {
        let mut record = self.records[number as usize];
        let (was_live, was_removed) = {
            let flags = record.header.flags;
            (flags & LIVE != 0, flags & REMOVED != 0)
        };
        let newer = match copy.compare_generation(self.generation(number), was_removed) {
            Ordering::Less => {
                taken(Branch::CopyOutdated);
                let is_lost = copy.value != record.value && !was_removed;
                self.tally.lost_writes += u64::from(is_lost);
                return;
            }
            Ordering::Equal => false,
            Ordering::Greater => true,
        };
        let takes = self.takes_value(&mut record, &copy, newer);
        let header = &mut record.header;
        if takes {
            record.value = copy.value;
            header.generation_low = copy.generation as u32;
            header.set_stamp(copy.stamp);
            header.flags = header.flags & !REMOVED | if copy.removed { REMOVED } else { 0 };
        }
        if newer {
            (header.seen, header.expired) = (0, 0);
        }
        header.join_use(&copy);
        let live = header.join_end(&copy);
        // Of several operations that ended the entry, only one that is enough by itself may decide when
        // the entry is forgotten: anyone who applied it takes the entry for ended too.
        let ends = copy.removed && header.flags & REMOVED != 0 || copy.expired >= header.seen;
        if copy.expired > 0 && live {
            taken(Branch::EndOutlived);
        } else if live && !was_live {
            taken(Branch::Resurrected);
        }
        record.header.touch_due = self.touch_due(&record.value, record.header.seen);
        let before = core::mem::replace(&mut self.records[number as usize], record);
        if takes {
            self.note_generation(number, copy.generation);
        }
        self.audit(number, Some(&before), &record);
        if !live && (was_live || ends) {
            self.links[number as usize].set_death(copy.death);
        }
        if was_live != live {
            self.turn_over(number, live, &copy);
        }
        // A use alone changes nothing that a packet could wait for.
        let is_changed = was_live != live || before.value != record.value;
        if is_changed && !copy.is_snapshot {
            self.note_change(number, copy.death, copy.own);
        }
        if is_changed && self.context.is_awaited() {
            self.wake_waiting(&self.hashes(&copy.row));
        }
    }

    /// Whether the copy's value, stamp and removal replace those of the entry. Values that join do so here, and replace nothing.
    #[inline]
    fn takes_value(&mut self, record: &mut Record<R, V>, copy: &Copied<R, V>, newer: bool) -> bool {
        let removed = record.header.flags & REMOVED != 0;
        if newer {
            taken(Branch::CopyNewer);
            true
        } else if removed != copy.removed {
            taken(match removed {
                true => Branch::WriteBesideRemoval,
                false => Branch::RemovalBesideWrite,
            });
            // Written again while another removed it: the writing stands.
            removed
        } else if V::JOINS && !removed {
            join_value(&mut record.value, &copy.value);
            let known = record.header.stamp();
            if self.context.compare(copy.stamp, known).is_gt() {
                record.header.set_stamp(copy.stamp);
            }
            false
        } else {
            let order = copy
                .value
                .order(&record.value)
                .then_with(|| self.context.compare(copy.stamp, record.header.stamp()));
            self.tally.lost_writes += u64::from(copy.value != record.value);
            order.is_gt()
        }
    }

    /// An entry came back to life by a copy, or ended by it.
    #[inline]
    fn turn_over(&mut self, number: u32, live: bool, copy: &Copied<R, V>) {
        self.live = if live { self.live + 1 } else { self.live - 1 };
        self.turn(number, live);
        self.tally.resurrected += u64::from(live);
        self.relink(number);
        if live && !copy.own {
            let seen = self.records[number as usize].header.seen;
            self.note_adopted(&copy.row, seen);
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
        if self.live <= 1 {
            // The table was empty before this write, or is empty now.
            self.context.changed_emptiness(self.object);
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
}

/// The stamp of no write.
pub(super) const NOBODY: Stamp = Stamp {
    origin: Origins::OWN,
    sequence: 0,
};
