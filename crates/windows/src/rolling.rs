//! Digests of what was announced of cells that have a bucket of time each, of a ring that moves on.
//!
//! Each bucket that is kept has parts of its own, so that those of the past are compared while the present changes. The ring of
//! these digests ends at the newest bucket that anybody *announced*, which follows from the groups alone. The ring of the cells may
//! be further: this instance has added in a bucket that it has not informed of yet. What that dropped early is no more to be compared
//! here ([`UNSURE`]) until others drop it too. So is everything after an announcement was refused because the clocks of two
//! hosts are too far apart, for as long as others may hold it.

use asterism_memory::hash;
use asterism_memory::region::Region;
use asterism_memory::zeroed;
use asterism_stamps::audit::{LEAVES, Leaf, UNSURE};
use asterism_state_mutants::mutant::{self, Mutant};

use crate::Ring;

zeroed! {
    /// A total that was announced.
    pub struct Known {
        /// The total.
        pub total: u64,
        /// Of which bucket.
        pub bucket: u32,
    }
}

/// Digests of announced cells.
#[derive(Debug)]
pub struct Rolling {
    /// `parts` for each slot of the ring. Where that is more than [`LEAVES`], some are added up when they are read.
    leaves: Box<[Leaf]>,
    parts: u32,
    slots: u32,
    /// The newest bucket that was announced.
    head: u32,
    /// Nothing can be compared before the ring ends here.
    unsure_before: u32,
    set_back: u64,
    /// What this instance announced of its own cells.
    pub own: Region<Known>,
}

impl Rolling {
    /// Of so many cells; `None` if they are not compared.
    pub fn new(are_compared: bool, ring: &Ring, room: u32) -> Option<Self> {
        let slots = ring.slots();
        let parts = (LEAVES as u32 / slots).max(1);
        let leaves = (slots * parts).max(LEAVES as u32) as usize;
        are_compared.then(|| Self {
            leaves: vec![Leaf::default(); leaves].into(),
            parts,
            slots,
            head: 0,
            unsure_before: 0,
            set_back: 0,
            own: Region::new(room as usize),
        })
    }

    /// The newest bucket that was announced.
    pub fn head(&self) -> u32 {
        self.head
    }

    fn leaf(&self, bucket: u32, name: u64) -> usize {
        let part = ((name >> 56) * u64::from(self.parts)) >> 8;
        ((bucket % self.slots) * self.parts) as usize + part as usize
    }

    /// In which leaf the cell with this name is.
    pub fn leaf_of(&self, bucket: u32, name: u64) -> usize {
        self.leaf(bucket, name) % LEAVES
    }

    fn of_bucket(&mut self, bucket: u32) -> &mut [Leaf] {
        let first = ((bucket % self.slots) * self.parts) as usize;
        &mut self.leaves[first..first + self.parts as usize]
    }

    /// Somebody announced that the ring reaches this bucket: others are dropped.
    pub fn advance(&mut self, bucket: u32) {
        if bucket <= self.head {
            return;
        }
        let dropped = self.head.saturating_sub(self.slots) + 1;
        let last = bucket.saturating_sub(self.slots).min(self.head);
        for dropped in dropped..=last {
            for leaf in self.of_bucket(dropped) {
                leaf.digest = 0;
                leaf.changes = leaf.changes.wrapping_add(1);
            }
        }
        self.head = bucket;
    }

    /// An announcement of this bucket was refused, which others may have taken.
    pub fn refused(&mut self, bucket: u32) {
        let gone = bucket.saturating_add(self.slots);
        self.unsure_before = self.unsure_before.max(gone);
    }

    /// This host's clock was perhaps set back so far that the ring began again.
    pub fn follow(&mut self, ring: &Ring) {
        if self.set_back == ring.tally.set_back {
            return;
        }
        self.set_back = ring.tally.set_back;
        self.refused(self.head);
        self.head = ring.head();
        for leaf in &mut self.leaves {
            leaf.digest = 0;
            leaf.changes = leaf.changes.wrapping_add(1);
        }
    }

    /// A writer's announced total of a cell changed. Digests, or zero.
    #[inline]
    pub fn replace(&mut self, bucket: u32, name: u64, before: u64, after: u64) {
        let at = self.leaf(bucket, name);
        let leaf = &mut self.leaves[at];
        leaf.digest = leaf.digest.wrapping_add(after.wrapping_sub(before));
        leaf.changes = leaf.changes.wrapping_add(1);
    }

    /// As [`Rolling::replace`], of another writer.
    #[inline]
    pub fn applied(&mut self, bucket: u32, name: u64, before: u64, after: u64) {
        if !mutant::active(Mutant::CellNotAudited) {
            self.replace(bucket, name, before, after);
        }
    }

    /// Whether nothing of a bucket's slot can be compared, while the ring of the cells is as here.
    fn is_unsure(&self, slot: u32, ring: &Ring) -> bool {
        let dropped = self.head.saturating_sub(self.slots);
        let ahead = ring.head().saturating_sub(self.slots).min(self.head);
        // Of buckets in a row, at most as many as there are slots, whether one is in this slot.
        let first = dropped + 1;
        let to_slot = (slot + self.slots - first % self.slots) % self.slots;
        self.head < self.unsure_before || ahead >= first && first + to_slot <= ahead
    }

    /// Copies leaves from `first` on.
    pub fn read(&self, ring: &Ring, first: usize, out: &mut [Leaf]) -> bool {
        if first + out.len() > LEAVES {
            return false;
        }
        for (place, leaf) in (first..).zip(out) {
            *leaf = Leaf::default();
            for at in (place..self.leaves.len()).step_by(LEAVES) {
                let kept = &self.leaves[at];
                leaf.digest = leaf.digest.wrapping_add(kept.digest);
                leaf.changes = leaf.changes.wrapping_add(kept.changes);
            }
            let mut slots = (place..self.leaves.len()).step_by(LEAVES);
            if slots.any(|at| self.is_unsure(at as u32 / self.parts, ring)) {
                leaf.digest = UNSURE;
            }
        }
        true
    }
}

/// A cell's name with its bucket.
pub fn name_in(bucket: u32, name: u64) -> u64 {
    hash::words(name, bucket.into(), 3)
}
