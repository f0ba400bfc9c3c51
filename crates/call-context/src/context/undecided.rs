//! Objects here that transactions write of which a store has not decided yet.
//!
//! What such a transaction read here, it read before; what it writes here is made when the store has committed it. A packet that read
//! the same entry meanwhile and wrote it would have its write overwritten, and one that took the last room would leave none for it. So
//! reads that a decision may answer otherwise are late until it is here. Entries that transactions only read are not looked after.
//!
//! While there are none, reads do not come here: they look at one bit of [`Context::asking`], which they look at in any case.

use core::cell::RefCell;
use std::collections::HashMap;

use super::Context;
use super::awaited::{WHOLE, key_of};
use crate::answer::{Late, Wait, late_answer};
use crate::mutant::{self, Mutant};

/// Some transaction is not decided: a bit of [`Context::asking`].
const UNDECIDED: u16 = 128;

/// How many transactions write what a read finds, by the read's key. The objects' own keys stand for entries that are added or removed.
#[derive(Debug, Default)]
pub(super) struct Undecided(RefCell<HashMap<u64, u32>>);

impl Context {
    /// A transaction that writes what a read by this key finds begins to wait for its decision, or has it.
    pub fn note_undecided(&self, (object, lane, hash): (u8, u8, u64), begins: bool) {
        let key = key_of(object, lane, hash);
        let mut keys = self.undecided.0.borrow_mut();
        let count = keys.entry(key).or_default();
        if begins {
            *count += 1;
        } else {
            *count = count.saturating_sub(1);
            if *count == 0 {
                keys.remove(&key);
            }
        }
        let bit = if keys.is_empty() { 0 } else { UNDECIDED };
        self.asking.set(self.asking.get() & !UNDECIDED | bit);
        drop(keys);
        if !begins && self.is_awaited() {
            self.changed(object, lane, hash);
        }
    }
    /// The same of one that adds an entry to an object, or removes one.
    pub fn note_undecided_entry(&self, object: u8, begins: bool) {
        self.note_undecided((object, WHOLE, 0), begins);
        if !begins && self.is_awaited() {
            self.changed_emptiness(object);
        }
    }

    #[inline]
    fn undecided(&self, object: u8, lane: u8, hash: u64) -> u32 {
        if self.asking.get() & UNDECIDED == 0 {
            return 0;
        }
        self.count_undecided(object, lane, hash)
    }
    #[cold]
    fn count_undecided(&self, object: u8, lane: u8, hash: u64) -> u32 {
        let keys = self.undecided.0.borrow();
        let count = keys.get(&key_of(object, lane, hash)).copied();
        count.unwrap_or_default()
    }
    /// Whether what a read by this key finds is decided.
    ///
    /// # Errors
    /// A decision may change it: the packet is late until the decision is here.
    #[inline]
    pub fn decided(&self, object: u8, lane: u8, hash: u64) -> Result<(), Late> {
        match self.undecided(object, lane, hash) {
            0 => Ok(()),
            _ if mutant::active(Mutant::UndecidedWriteUnseen) => Ok(()),
            _ => self.await_decision(),
        }
    }
    /// The same of what a read of the object without a key finds.
    ///
    /// # Errors
    /// As [`Context::decided`].
    #[inline]
    pub fn decided_whole(&self, object: u8) -> Result<(), Late> {
        self.decided(object, WHOLE, 0)
    }
    /// Whether it is decided that an object, in which `entries` are found, has entries.
    ///
    /// # Errors
    /// Decisions may empty it, or give it the first one: the packet is late until they are here.
    #[inline]
    pub fn decided_emptiness(&self, object: u8, entries: u32) -> Result<(), Late> {
        match self.undecided(object, WHOLE, 0) {
            0 => Ok(()),
            count if count < entries => Ok(()),
            _ => self.await_decision(),
        }
    }
    /// Whether it is decided that an object is full.
    ///
    /// # Errors
    /// Decisions may give it room again: the packet is late until they are here. Never in the prefetch pass.
    #[cold]
    pub fn decided_room(&self, object: u8) -> Result<(), Late> {
        if self.is_prefetching() || self.undecided(object, WHOLE, 0) == 0 {
            return Ok(());
        }
        self.note_read_of(object);
        self.await_decision()
    }

    #[cold]
    fn await_decision(&self) -> Result<(), Late> {
        self.note_late();
        let wait = &mut self.call.borrow_mut().wait;
        if !matches!(wait, Wait::Answers | Wait::TooMuch) {
            *wait = Wait::Written { until_us: u64::MAX };
        }
        Err(late_answer())
    }
}
