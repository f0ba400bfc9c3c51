//! How entries end: the last one who used an entry says when it idled out; everybody forgets it once
//! nobody can bring it back.

use super::record::{CONFIRMED, LIVE, LIVED, OWN_TOUCH, REMOVED, USED};
use super::{Row, Table, Value};
use crate::branch::{Branch, taken};
use crate::context::Tick;
use crate::mutant::{self, Mutant};
use crate::object::Sweep;
use crate::stamp::{NamedOrigins, Origin};

/// Ticks that an entry gets beyond its idle time and the quarter by which announced uses may be late.
const IDLE_GRACE_TICKS: u32 = 1;

/// How old an entry is, and whether it has ended: for tests of what may follow what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryAge {
    /// Its generation: a removal has one of its own.
    pub generation: u64,
    /// The last use, in that generation.
    pub seen: Tick,
    /// It can be found.
    pub is_live: bool,
    /// It was removed, and did not idle out.
    pub is_removed: bool,
}

impl<R: Row, V: Value> Sweep for Table<R, V> {
    fn sweep(&mut self, records: u32) -> u32 {
        let mut ended = 0;
        for _ in 0..records.min(self.used) {
            if self.sweep_next >= self.used {
                self.sweep_next = 0;
            }
            let number = self.sweep_next;
            self.sweep_next += 1;
            ended += u32::from(self.sweep_record(number));
        }
        ended
    }
    fn sweep_length(&self) -> u32 {
        self.used
    }
    fn confirmed(&mut self) {
        self.restore_confirmed();
    }
    /// Writers, last users and who ended what has ended.
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32> {
        if cursor == 0 {
            self.purges_named(named);
        }
        let end = cursor.saturating_add(records.max(1)).min(self.used);
        for number in cursor..end {
            let header = &self.records[number as usize].header;
            if header.flags & USED == 0 {
                continue;
            }
            named.mark(header.origin);
            named.mark(header.toucher);
            if header.flags & LIVE == 0 {
                named.mark(self.links[number as usize].death_origin);
            }
        }
        (end < self.used).then_some(end)
    }
}

impl<R: Row, V: Value> Table<R, V> {
    /// Calls `each` for every entry that is held, ended ones too; for tests, not for packets.
    pub fn for_each_age(&self, mut each: impl FnMut(&R, EntryAge)) {
        let held = (0..).zip(&self.records[..self.used as usize]);
        for (number, record) in held.filter(|(_, record)| record.header.flags & USED != 0) {
            let header = &record.header;
            let age = EntryAge {
                generation: self.generation(number),
                seen: header.seen,
                is_live: header.flags & LIVE != 0,
                is_removed: header.flags & REMOVED != 0,
            };
            each(&record.row, age);
        }
    }

    /// Ends or forgets what a record holds, if it is time; whether it did.
    #[inline]
    fn sweep_record(&mut self, number: u32) -> bool {
        if !self.purges.is_empty() && self.purge(number) {
            return true;
        }
        let flags = self.records[number as usize].header.flags;
        if flags & (CONFIRMED | OWN_TOUCH) == CONFIRMED | OWN_TOUCH {
            return self.end_idle(number);
        }
        if flags & (LIVE | CONFIRMED) == LIVE {
            self.sweep_unconfirmed(number);
        }
        if flags & (LIVE | OWN_TOUCH) == LIVE | OWN_TOUCH {
            self.end_idle(number)
        } else if flags & LIVE != 0 {
            self.end_orphan(number)
        } else if flags & USED != 0 {
            self.forget_ended(number)
        } else {
            false
        }
    }

    /// Ends an entry that this instance used last and that idled out; whether it did.
    #[inline]
    fn end_idle(&mut self, number: u32) -> bool {
        let is_over = self.is_idle(number);
        if is_over {
            taken(Branch::IdleEnded);
            self.expire(number);
        }
        is_over
    }

    /// Ends an idle entry whose last user has gone for good, if that falls to this instance; whether it did.
    #[inline]
    fn end_orphan(&mut self, number: u32) -> bool {
        if !self.is_idle(number) || mutant::active(Mutant::OrphansLiveOn) {
            return false;
        }
        let record = &self.records[number as usize];
        let hash = record.row.lane_hash(0, 0);
        let inherits =
            self.context.inherits(Origin(record.header.toucher), hash) || self.ends_all_itself();
        taken(match inherits {
            true => Branch::OrphanEnded,
            false => Branch::OrphanLeft,
        });
        if inherits {
            self.expire(number);
        }
        inherits
    }

    /// Whether an entry's idle time is over, even if announced uses are late.
    #[inline]
    pub(super) fn is_idle(&self, number: u32) -> bool {
        let record = &self.records[number as usize];
        let idle = self.idle(&record.value);
        let over = record
            .header
            .seen
            .saturating_add(idle)
            .saturating_add(idle / 4 + IDLE_GRACE_TICKS);
        idle != 0 && self.context.tick() > over
    }

    /// Forgets an ended entry once every member knows of the end; whether it did.
    #[inline]
    fn forget_ended(&mut self, number: u32) -> bool {
        let is_known = self.is_end_known(number);
        if is_known {
            self.forget(number);
        } else {
            self.keep_ended(number);
        }
        is_known
    }

    /// Whether every member knows of an entry's end.
    #[inline]
    fn is_end_known(&self, number: u32) -> bool {
        !self.settings.logged
            || self.is_end_reported(number)
                && self.context.is_stable(self.links[number as usize].death())
            || mutant::active(Mutant::TombstoneForgottenEarly)
    }

    /// The end of an entry is not known to every member: the entry stays, and nobody is called who waits for it to be forgotten.
    #[inline]
    fn keep_ended(&self, number: u32) {
        if mutant::active(Mutant::ReturnedBeforeStability)
            && let Some((_, call)) = &self.on_forget
        {
            call(&self.records[number as usize].row, true);
        } else {
            taken(Branch::EndUnstable);
        }
    }

    /// Drops an entry whose end every member knows: none can write for it any more.
    pub(super) fn forget(&mut self, number: u32) {
        let record = self.records[number as usize];
        self.generation_floor = self.generation_floor.max(self.generation(number));
        let emptied = self.unlink(number);
        self.release(number);
        self.tally.forgotten += 1;
        if record.header.flags & LIVED != 0
            && let Some((lane, call)) = &self.on_forget
        {
            // Ended copies that were never held here (of a snapshot, say) do not count: nobody calls for them.
            let last = emptied[*lane] || !self.any_lived(*lane, &record.row);
            taken(match last {
                true => Branch::ForgottenLast,
                false => Branch::ForgottenBeside,
            });
            call(&record.row, last);
        } else if record.header.flags & LIVED == 0 {
            taken(Branch::ForgottenUnheld);
        }
    }

    /// An entry's generation. Its upper half stands beside the links, off the packet's path, and is looked at once any entry of the
    /// table has one: until then a generation costs no cache line more than the entry does.
    #[inline]
    pub(super) fn generation(&self, number: u32) -> u64 {
        let low = u64::from(self.records[number as usize].header.generation_low);
        match self.has_wide_generations {
            true => u64::from(self.links[number as usize].generation_high) << 32 | low,
            false => low,
        }
    }

    /// Notes the upper half of a generation of which the header has the lower one.
    #[inline]
    pub(super) fn note_generation(&mut self, number: u32, generation: u64) {
        let high = (generation >> 32) as u32;
        self.has_wide_generations |= high != 0;
        if self.has_wide_generations {
            self.links[number as usize].generation_high = high;
        }
    }
}
