//! What flushes of accumulators are reported, and tell.

use core::cell::Cell;

use super::Context;

/// What flushes leave out for now.
#[derive(Debug, Default)]
pub(super) struct Patience {
    is_patient: Cell<bool>,
    is_lazy: Cell<bool>,
    /// Objects that are reported lazily, a bit for each.
    lazy: Cell<u64>,
}

impl Context {
    /// While set, accumulators keep their changes: the log has no room to spare for them, or the path is congested.
    pub fn hold_accumulators(&self, hold: bool) {
        self.hold_accumulators.set(hold);
    }
    /// Whether accumulators keep their changes now.
    #[inline]
    pub fn accumulators_held(&self) -> bool {
        self.hold_accumulators.get()
    }
    /// While set, flushes leave out what may wait for the next one that is not patient: what nobody decides by now.
    pub fn be_patient(&self, patient: bool) {
        self.patience.is_patient.set(patient);
    }
    /// Whether flushes leave out what may wait.
    #[inline]
    pub fn is_patient(&self) -> bool {
        self.patience.is_patient.get()
    }
    /// While set, flushes pass over the objects that are reported lazily.
    pub fn be_lazy(&self, lazy: bool) {
        self.patience.is_lazy.set(lazy);
    }
    /// Nobody decides by what this object holds: a lazy flush passes over it.
    pub fn tell_lazily(&self, object: u8) {
        let lazy = &self.patience.lazy;
        lazy.set(lazy.get() | 1 << object);
    }
    /// Whether a flush passes over this object now.
    #[inline]
    pub fn passes_over(&self, object: u8) -> bool {
        self.patience.is_lazy.get() && self.patience.lazy.get() >> object & 1 != 0
    }
    /// A flush reports a total that changed so often since it was reported before: `changes` is counted down from zero.
    #[inline]
    pub fn note_reported(&self, changes: u32) {
        let (before, reported) = self.reported.get();
        let changes = u64::from(changes.wrapping_neg());
        self.reported.set((before + changes, reported + 1));
    }
    /// Changes of cells that flushes reported so far, and totals that they reported: of objects with many cells, of which one total
    /// tells of many changes.
    pub fn reported(&self) -> (u64, u64) {
        self.reported.get()
    }
}
