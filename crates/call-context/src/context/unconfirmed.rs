//! Writes that too few members are known to hold, and which of them the packet being handled depends on.
//!
//! A host may hold a packet back until enough other members have applied what the packet wrote or read (output commit). Each write
//! gets a *version* here, in the order in which this instance wrote or applied it. Versions are confirmed in that order too, so one
//! number says what a packet depends on: the greatest version that it wrote or read.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::Context;
use crate::mutant::{self, Mutant};
use crate::stamp::{Origin, Origins, Stamp, raise, reaches};

/// Versions of their own at most. Beyond them a write waits together with an earlier one of its origin.
pub const UNCONFIRMED_MAX: usize = 1 << 14;

/// Which writes are not confirmed.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// Other members that must have applied a write; 0: packets are not held back.
    copies: Cell<u32>,
    /// The writes after the last confirmed version, one for each version.
    writes: RefCell<VecDeque<Stamp>>,
    /// The version of the last write; the first is 1.
    last: Cell<u64>,
    /// Up to where each origin's stream is confirmed.
    through: RefCell<Vec<u64>>,
    /// The version that the packet being handled depends on; 0: none.
    dependency: Cell<u64>,
}

impl Context {
    /// From here on writes to objects that hold output have versions, and are confirmed once this many other members have them.
    /// Takes all memory that it needs.
    pub fn hold_output(&self, copies: u32) {
        self.unconfirmed.copies.set(copies);
        self.unconfirmed
            .writes
            .borrow_mut()
            .reserve(UNCONFIRMED_MAX);
        self.unconfirmed.through.borrow_mut().resize(64, 0);
    }

    /// Reports that enough members have `origin`'s stream up to `sequence`.
    pub fn confirm(&self, origin: Origin, sequence: u64) {
        let mut through = self.unconfirmed.through.borrow_mut();
        raise(&mut through, origin, sequence);
        let mut writes = self.unconfirmed.writes.borrow_mut();
        if mutant::active(Mutant::FirstChangeConfirmsAll) && writes.front().is_some() {
            return writes.clear();
        }
        while let Some(first) = writes.front()
            && reaches(&through, *first)
        {
            writes.pop_front();
        }
    }

    /// Every write up to this version is confirmed.
    #[inline]
    pub fn confirmed_version(&self) -> u64 {
        let unconfirmed = self.unconfirmed.writes.borrow().len() as u64;
        self.unconfirmed.last.get() - unconfirmed
    }

    /// Writes that are not confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.unconfirmed.writes.borrow().len()
    }

    /// The version that the packet being handled depends on so far; 0 if it depends on none.
    #[inline]
    pub fn dependency(&self) -> u64 {
        self.unconfirmed.dependency.get()
    }

    /// The packet being handled depends on this version, and perhaps on others.
    pub fn depend_on(&self, version: u64) {
        if version > self.confirmed_version() {
            let dependency = &self.unconfirmed.dependency;
            dependency.set(dependency.get().max(version));
            self.attention.set(true);
        }
    }

    /// Whether the packet needs attention for what it depends on.
    pub(super) fn depends(&self) -> bool {
        self.dependency() != 0 && !mutant::active(Mutant::StageForgetsDependency)
    }

    /// What is handled next depends on nothing yet.
    #[inline]
    pub fn depend_on_nothing(&self) {
        self.unconfirmed.dependency.set(0);
    }

    /// The packet's call ended, and another one goes on.
    #[inline]
    pub(super) fn take_dependency(&self) -> u64 {
        self.unconfirmed.dependency.take()
    }

    /// The version of a write that was made or applied here just now. `None`: it is confirmed.
    ///
    /// With one other copy asked for, another member's write is confirmed where it is applied: its writer has it, and this host.
    pub fn version_of(&self, stamp: Stamp) -> Option<u64> {
        let Unconfirmed {
            copies,
            writes,
            last,
            through,
            ..
        } = &self.unconfirmed;
        let is_own = stamp.origin == Origins::OWN;
        if copies.get() == 0 || copies.get() == 1 && !is_own || reaches(&through.borrow(), stamp) {
            return None;
        }
        let mut writes = writes.borrow_mut();
        let is_same = writes.back() == Some(&stamp);
        if is_same {
            return Some(last.get());
        }
        if writes.len() >= UNCONFIRMED_MAX
            && let Some(earlier) = writes
                .iter_mut()
                .rev()
                .find(|one| one.origin == stamp.origin)
        {
            earlier.sequence = earlier.sequence.max(stamp.sequence);
            return Some(last.get());
        }
        writes.push_back(stamp);
        last.set(last.get() + 1);
        Some(last.get())
    }
}
