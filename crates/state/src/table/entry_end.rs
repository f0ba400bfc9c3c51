//! How entries end: the last one who used an entry says when it idled out; everybody forgets it once
//! nobody can bring it back.

use super::record::{LIVE, LIVED, OWN_TOUCH, REMOVED, USED};
use super::{Row, Table, Value};
use crate::branch::{Branch, taken};
use crate::context::Tick;
use crate::mutant::{self, Mutant};
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

    /// Looks at the next `records` records for entries that idled out or can be forgotten; how many those were. Call it
    /// often with a small number: one whole turn takes `capacity in use / records` calls.
    pub(crate) fn sweep(&mut self, records: u32) -> u32 {
        let mut ended = 0;
        let tick = self.context.tick();
        for _ in 0..records.min(self.used) {
            if self.sweep_next >= self.used {
                self.sweep_next = 0;
            }
            let number = self.sweep_next;
            self.sweep_next += 1;
            if !self.purges.is_empty() && self.purge(number) {
                ended += 1;
                continue;
            }
            let header = &self.records[number as usize].header;
            if header.flags & (LIVE | OWN_TOUCH) == LIVE | OWN_TOUCH {
                let idle = self.idle(&self.records[number as usize].value);
                if idle != 0
                    && tick
                        > header
                            .seen
                            .saturating_add(idle)
                            .saturating_add(idle / 4 + IDLE_GRACE_TICKS)
                {
                    taken(Branch::IdleEnded);
                    self.expire(number);
                    ended += 1;
                }
            } else if header.flags & LIVE != 0 {
                ended += u32::from(self.end_orphan(number));
            } else if header.flags & (LIVE | USED) == USED {
                let death = self.links[number as usize].death();
                if !self.settings.logged
                    || self.context.is_stable(death)
                    || mutant::active(Mutant::TombstoneForgottenEarly)
                {
                    self.forget(number);
                    ended += 1;
                } else if mutant::active(Mutant::ReturnedBeforeStability)
                    && let Some((_, call)) = &self.on_forget
                {
                    call(&self.records[number as usize].row, true);
                } else {
                    taken(Branch::EndUnstable);
                }
            }
        }
        ended
    }

    /// Ends an idle entry whose last user has gone for good, if that falls to this instance; whether it did.
    #[inline]
    fn end_orphan(&mut self, number: u32) -> bool {
        let record = &self.records[number as usize];
        let idle = self.idle(&record.value);
        let over = record
            .header
            .seen
            .saturating_add(idle)
            .saturating_add(idle / 4 + IDLE_GRACE_TICKS);
        if idle == 0 || self.context.tick() <= over || mutant::active(Mutant::OrphansLiveOn) {
            return false;
        }
        let hash = record.row.lane_hash(0, 0);
        let inherits = self.context.inherits(Origin(record.header.toucher), hash);
        taken(match inherits {
            true => Branch::OrphanEnded,
            false => Branch::OrphanLeft,
        });
        if inherits {
            self.expire(number);
        }
        inherits
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

    /// [`Object::origins_named`](crate::Object::origins_named): writers, last users and who ended what has ended.
    pub(crate) fn origins_named(
        &self,
        cursor: u32,
        records: u32,
        named: &mut NamedOrigins,
    ) -> Option<u32> {
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

    /// Records in use, for planning sweeps.
    pub(crate) fn sweep_length(&self) -> u32 {
        self.used
    }
}
