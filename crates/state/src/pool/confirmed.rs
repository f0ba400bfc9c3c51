//! Items that a table in a store shows to be in use.
//!
//! Where the rows that have items live in a store, no instance hears of all of them, and none needs leases. Each grant is confirmed
//! instead: the function reads whether a row has the item, and that read is part of the transaction that takes it. So the store refuses
//! the second of two instances that were granted the same item, however long one of them was away, and an item is free
//! again once its last row is gone, though its instance died.
//!
//! What an instance knows by itself are hints: items that it granted or found in use. They make it look elsewhere first; all are
//! forgotten when they leave nothing to grant.

use core::cell::Cell;

use asterism_memory::blocks::{Begin, BlockAllocator};

use super::{Grant, Pool, Shared, Space};
use crate::context::{Late, late_answer};
use crate::object::{Fetch, Home};
use crate::table::{Row, Table, Value};

/// Microseconds between two times at which hints are forgotten.
const FORGET_US: u64 = 1_000_000;

/// How far grants are confirmed.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    /// The function confirms grants by reads of a table, if that lives in a store.
    is_declared: Cell<bool>,
    /// It does.
    is_asked_for: Cell<bool>,
    /// When the hints were forgotten last, plus one; 0: never.
    forgotten_us: Cell<u64>,
}

impl Confirmed {
    /// Whether the function confirms each grant by a read of a store.
    pub(super) fn is_asked_for(&self) -> bool {
        self.is_asked_for.get()
    }
}

impl<S: Space> Pool<S> {
    /// The function reads, of each item that it was granted, whether a row of this table has it, before it takes it; and has another one by
    /// [`Pool::pass_over`] if one does. Where the table lives in a store ([`Table::lives_in_store`]), it must: see the module.
    pub fn confirmed_by<R: Row, V: Value>(&self, table: &Table<R, V>) {
        self.shared.confirmed.is_declared.set(true);
        if table.lives_in_store() {
            self.shared.confirmed.is_asked_for.set(true);
            self.shared
                .context
                .keeps_nothing_in_store(self.shared.object);
        }
    }

    /// The item is in use, as a store answered: another one of the range that is not known to be, near `wish`. `None` when there is none.
    ///
    /// # Errors
    /// Late in the prefetch pass, as [`Pool::grant`].
    pub fn pass_over(
        &self,
        grant: Grant<S::Item>,
        wish: u32,
    ) -> Result<Option<Grant<S::Item>>, Late> {
        let shared = &*self.shared;
        if shared.context.is_prefetching() {
            return Err(late_answer());
        }
        // It stays in use, as far as is known here.
        if shared.context.drop_grant(grant.ticket) {
            shared.settle(grant.number);
        }
        let range = grant.number / shared.space.items();
        self.granted(range, |shared| {
            shared.take_by(range, |ranges, begin| {
                shared.take_unused(ranges, (range, wish), begin)
            })
        })
    }
}

impl<S: Space> Shared<S> {
    /// The wished item, though it was in use once: the store knows whether it still is. Not one that another packet is granted.
    pub(super) fn take_wished(
        &self,
        ranges: &mut BlockAllocator,
        (range, wish): (u32, u32),
        begin: Begin,
    ) -> Option<u32> {
        let items = self.space.items();
        let is_there = wish < items && ranges.is_granted_from(range, wish);
        let number = range * items + wish;
        if is_there && !self.outstanding.borrow().contains(&number) {
            ranges.hold(range, wish);
            return Some(wish);
        }
        self.take_unused(ranges, (range, wish), begin)
    }

    /// One that is not known to be in use.
    fn take_unused(
        &self,
        ranges: &mut BlockAllocator,
        (range, wish): (u32, u32),
        begin: Begin,
    ) -> Option<u32> {
        if !ranges.has_free(range) {
            let now_us = self.context.now_us();
            let forgotten_us = &self.confirmed.forgotten_us;
            if forgotten_us.get() != 0 && now_us < forgotten_us.get() + FORGET_US {
                return None;
            }
            forgotten_us.set(now_us + 1);
            ranges.forget();
            for number in self.outstanding.borrow().iter() {
                ranges.hold(number / self.space.items(), number % self.space.items());
            }
        }
        ranges.take(range, wish, begin)
    }
}

impl<S: Space> Fetch for Pool<S> {
    fn stays_because(&self) -> Option<&'static str> {
        let Confirmed {
            is_declared,
            is_asked_for,
            ..
        } = &self.shared.confirmed;
        let is_confirmed = match self.shared.settings.home {
            Home::Remote => is_asked_for.get(),
            Home::Local | Home::Replicated => is_declared.get(),
        };
        (!is_confirmed).then_some("no table that lives there shows which of its items are in use")
    }
}
