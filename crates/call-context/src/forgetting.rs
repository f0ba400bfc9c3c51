//! How an instance forgets incarnations of members that have ended, so that their slots in [`Origins`] serve again.
//!
//! A slot is freed when its incarnation is *over* (the epoch does not name it, and its end is closed) and nothing here refers to it.
//! A cycle finds out the latter in small steps, beside packets: it notes which incarnations are over when it begins, has every object
//! mark the slots that its entries refer to, and at its end frees those noted that have no mark.
//!
//! Entries that are written behind the place where the cycle is can only refer to this instance itself or to a slot that was looked up
//! meanwhile, and what is looked up during a cycle is marked as well. No object moves a reference from one place to another but within
//! what it marks in one step.
//!
//! Of each member it is remembered up to which incarnation it was forgotten: who is heard of once more, in a snapshot that was long on its
//! way, gets a slot, and what it wrote counts as known to all, as it did before.

mod cycle;

use crate::context::Context;
use crate::mutant::{self, Mutant};
use crate::stamp::{NamedOrigins, Origin, OriginName, Origins};

pub use cycle::FORGETS_FROM;
pub(crate) use cycle::Forgetting;

/// From so many on it looks again and again, whatever the last cycle left.
const FORGETS_ALWAYS_FROM: usize = crate::stamp::ORIGINS_MAX / 2;

impl Context {
    /// Goes on with a cycle, or begins one where there is cause. How many incarnations were forgotten: none but at the end of a cycle.
    ///
    /// There are so many `objects`. `mark(object, place, named)` marks the slots that some of an object's entries refer to, from a place on,
    /// and says where to go on; `None` at the object's end. It is called at most once, so that a step costs what the caller has it cost.
    pub fn forget_incarnations(
        &self,
        objects: usize,
        mark: impl FnOnce(u8, u32, &mut NamedOrigins) -> Option<u32>,
    ) -> usize {
        let forgetting = &self.forgetting;
        if !forgetting.runs.get() && !self.begin_forgetting() {
            return 0;
        }
        let (object, cursor) = forgetting.cursor.get();
        if usize::from(object) == objects {
            return self.end_forgetting();
        }
        let next = mark(object, cursor, &mut forgetting.named.borrow_mut());
        forgetting.cursor.set(match next {
            Some(next) => (object, next),
            None => (object + 1, 0),
        });
        0
    }

    /// What is looked up while a cycle runs may be written where the cycle has been already.
    #[inline]
    pub fn keep_origin(&self, origin: Origin) {
        if self.forgetting.runs.get() && !mutant::active(Mutant::LookupsUnmarked) {
            self.forgetting.named.borrow_mut().mark(origin.0);
        }
    }

    /// Calls `each` for the slots of a member's incarnations before this one of which all members have the same, or of which nothing
    /// was heard but by snapshots, the latest first, until it says that it has had enough.
    pub fn each_over_before(&self, name: OriginName, mut each: impl FnMut(Origin) -> bool) {
        let origins = self.origins.borrow();
        let (living, leases) = (self.living.borrow(), self.leasing.leases.borrow());
        let (applied, stable) = self.sequences_by_slot();
        let of = |sequences: &[u64], origin: Origin| {
            let known = sequences.get(usize::from(origin.0));
            known.copied().unwrap_or(0)
        };
        let sorted = origins.by_name();
        let end = sorted.partition_point(|&slot| origins.name(Origin(slot)) < name);
        for origin in sorted[..end].iter().rev().map(|&slot| Origin(slot)) {
            let before = origins.name(origin);
            if before.member != name.member {
                break;
            }
            let is_stranger = of(&applied, origin) == 0 && of(&stable, origin) == 0;
            let is_over = of(&stable, origin) == u64::MAX || is_stranger;
            let is_open = origin == Origins::OWN
                || living.binary_search(&before).is_ok()
                || leases.is_open(before);
            if is_over && !is_open && !each(origin) {
                break;
            }
        }
    }

    /// Calls `each` for the incarnations that are over, in the order of their names, with whether all members have the same of them.
    fn for_each_over(&self, mut each: impl FnMut(Origin, OriginName, bool)) {
        let origins = self.origins.borrow();
        let (living, leases) = (self.living.borrow(), self.leasing.leases.borrow());
        if living.is_empty() {
            return;
        }
        let (applied, stable) = self.sequences_by_slot();
        let of = |sequences: &[u64], origin: Origin| {
            let known = sequences.get(usize::from(origin.0));
            known.copied().unwrap_or(0)
        };
        let sorted = origins.by_name();
        // A later incarnation that was closed: its end came after the end of this one, which may have been passed over.
        let last_closed = |member: u16| {
            let end = sorted.partition_point(|&slot| origins.name(Origin(slot)).member <= member);
            let last = sorted[..end].iter().rev().map(|&slot| Origin(slot));
            last.take_while(|&origin| origins.name(origin).member == member)
                .find(|&origin| of(&stable, origin) == u64::MAX)
                .map_or(0, |origin| origins.name(origin).incarnation)
        };
        let mut known: Option<(u16, u64)> = None;
        let mut is_blocked = false;
        for &slot in sorted {
            let origin = Origin(slot);
            let name = origins.name(origin);
            let closed_until = match known {
                Some((member, until)) if member == name.member => until,
                _ => {
                    is_blocked = false;
                    last_closed(name.member)
                }
            };
            known = Some((name.member, closed_until));
            let is_open = origin == Origins::OWN
                || living.binary_search(&name).is_ok()
                || leases.is_open(name);
            let is_closed = name.incarnation <= closed_until;
            let is_stranger = of(&applied, origin) == 0 && of(&stable, origin) == 0;
            // What is remembered of a member is one number, so none is forgotten before those that came earlier may be.
            is_blocked |= is_open || !(is_closed || is_stranger);
            if !is_blocked {
                each(origin, name, is_closed);
            }
        }
    }

    fn begin_forgetting(&self) -> bool {
        let forgetting = &self.forgetting;
        if self.incarnations() < forgetting.begins_at.get() {
            return false;
        }
        let mut over = forgetting.over.borrow_mut();
        over.clear();
        forgetting.named.borrow_mut().clear();
        self.for_each_over(|origin, _, _| over.mark(origin.0));
        forgetting.cursor.set((0, 0));
        forgetting.runs.set(true);
        true
    }

    fn end_forgetting(&self) -> usize {
        let forgetting = &self.forgetting;
        forgetting.runs.set(false);
        let mut freed = Vec::new();
        {
            let (over, named) = (forgetting.over.borrow(), forgetting.named.borrow());
            let is_named = |origin: Origin| {
                named.contains(origin.0) && !mutant::active(Mutant::SlotReusedWhileNamed)
            };
            self.for_each_over(|origin, name, is_closed| {
                if over.contains(origin.0) && !is_named(origin) {
                    freed.push((origin, name, is_closed));
                }
            });
        }
        for &(origin, name, is_closed) in &freed {
            self.clear_sequences(origin);
            if is_closed {
                self.origins.borrow_mut().remember_forgotten(name);
            }
        }
        self.origins
            .borrow_mut()
            .free(freed.iter().map(|&(origin, ..)| origin));
        let twice = (2 * self.incarnations()).clamp(FORGETS_FROM, FORGETS_ALWAYS_FROM);
        forgetting.begins_at.set(twice);
        freed.len()
    }

    /// Of an incarnation that was forgotten and is heard of once more, all members have the same.
    pub(crate) fn recall_origin(&self, origin: Origin, name: OriginName) {
        if self.origins.borrow().was_forgotten(name) {
            self.set_stable(origin, u64::MAX);
        }
    }
}

const _: () = assert!(FORGETS_FROM < FORGETS_ALWAYS_FROM);
