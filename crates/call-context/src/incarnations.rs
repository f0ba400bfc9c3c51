//! Which incarnations of members there are, and what one instance inherits of those that have ended.

use core::cell::Ref;

use crate::context::Context;
use crate::stamp::{Origin, OriginName, Origins};

impl Context {
    /// The local slot of an origin, given out now if it has none; `None` past [`ORIGINS_MAX`](crate::stamp::ORIGINS_MAX).
    pub fn origin(&self, name: OriginName) -> Option<Origin> {
        let (slot, is_new) = {
            let mut origins = self.origins.borrow_mut();
            let before = origins.count();
            (origins.slot(name)?, origins.count() != before)
        };
        self.keep_origin(slot);
        if is_new {
            self.recall_origin(slot, name);
        }
        Some(slot)
    }
    /// How many incarnations of members are distinguished, of [`ORIGINS_MAX`](crate::stamp::ORIGINS_MAX).
    pub fn incarnations(&self) -> usize {
        self.origins.borrow().count()
    }
    /// The name of an origin that has a slot here.
    #[inline]
    pub fn origin_name(&self, origin: Origin) -> OriginName {
        self.origins.borrow().name(origin)
    }
    /// The slot of an origin, if it has one.
    pub fn known_origin(&self, name: OriginName) -> Option<Origin> {
        let slot = self.origins.borrow().find(name)?;
        self.keep_origin(slot);
        Some(slot)
    }
    /// How far each origin's stream is applied here, of those of which something is: also by a snapshot, of which what all
    /// members have (and so all of incarnations that ended and are closed) is known. Of those forgotten, the last one of each member: it
    /// stands for those before it.
    pub fn applied_through(&self) -> Vec<(OriginName, u64)> {
        let origins = self.origins.borrow();
        let (applied, stable) = self.sequences_by_slot();
        let of = |all: &[u64], slot: u16| all.get(usize::from(slot)).copied().unwrap_or(0);
        let slots = origins.by_name().iter();
        let known = slots.map(|&slot| {
            let through = of(&applied, slot).max(of(&stable, slot));
            (origins.name(Origin(slot)), through)
        });
        let forgotten = origins
            .forgotten()
            .filter(|&name| origins.find(name).is_none());
        known
            .filter(|(_, through)| *through > 0)
            .chain(forgotten.map(|name| (name, u64::MAX)))
            .collect()
    }
    /// Sequences by slot: up to where a stream is applied here, and up to where all have it.
    pub(crate) fn sequences_by_slot(&self) -> (Ref<'_, Vec<u64>>, Ref<'_, Vec<u64>>) {
        (self.applied.borrow(), self.stable.borrow())
    }
    /// Forgets how far the stream of a slot that is freed was applied.
    pub(crate) fn clear_sequences(&self, origin: Origin) {
        for sequences in [&self.applied, &self.stable] {
            if let Some(until) = sequences.borrow_mut().get_mut(usize::from(origin.0)) {
                *until = 0;
            }
        }
    }
    /// Reports which incarnations the epoch names.
    pub fn set_living(&self, incarnations: impl Iterator<Item = OriginName>) {
        let mut living = self.living.borrow_mut();
        let before = core::mem::take(&mut *living);
        living.extend(incarnations);
        living.sort_unstable();
        let mut leases = self.leasing.leases.borrow_mut();
        leases.begin(&self.identity.members, &before, &living, self.now_us());
        let mut covered = self.covered_us.borrow_mut();
        for (place, until) in covered.iter_mut().enumerate() {
            let member = self.identity.members[place];
            // Of a member that takes no part nothing is on its way once its incarnation is closed, or if this instance never knew an incarnation of it; of one
            // that does, what is.
            let takes_part = living
                .iter()
                .any(|incarnation| incarnation.member == member);
            if takes_part && *until == u64::MAX {
                *until = 0;
            } else if !takes_part && !living.is_empty() && !leases.is_closing(member) {
                *until = u64::MAX;
            }
        }
    }
    /// Reports that all members have the same of an ended incarnation: nothing of it is on its way.
    pub fn set_closed(&self, incarnation: OriginName) {
        self.leasing
            .leases
            .borrow_mut()
            .close(incarnation, self.now_us());
        let living = self.living.borrow();
        if living
            .iter()
            .any(|living| living.member == incarnation.member)
        {
            return;
        }
        let mut members = self.identity.members.iter();
        if let Some(place) = members.position(|&member| member == incarnation.member) {
            self.covered_us.borrow_mut()[place] = u64::MAX;
        }
    }
    /// Whether an entry that was last used by `toucher` has nobody who says when it idled out, and this instance is to say
    /// it: anyone who of the epoch the entry's hash falls to.
    pub fn inherits(&self, toucher: Origin, hash: u64) -> bool {
        let living = self.living.borrow();
        if living.is_empty() || living.contains(&self.origin_name(toucher)) {
            return false;
        }
        living[hash as usize % living.len()] == self.identity.own && self.falls_to_lane(hash)
    }
    /// Whether an incarnation may still write: the epoch names it, or no epoch was reported.
    pub fn goes_on(&self, incarnation: OriginName) -> bool {
        let living = self.living.borrow();
        living.is_empty() || living.contains(&incarnation)
    }
    /// Whether of this host's instances this one is meant by a hash.
    #[inline]
    pub fn falls_to_lane(&self, hash: u64) -> bool {
        let (lane, lanes) = self.identity.lane;
        (hash >> 32) % u64::from(lanes.max(1)) == u64::from(lane)
    }
    /// Whether an origin is this host before it was restarted.
    #[inline]
    pub fn is_earlier_incarnation(&self, origin: Origin) -> bool {
        origin != Origins::OWN && self.origin_name(origin).member == self.identity.own.member
    }
}
