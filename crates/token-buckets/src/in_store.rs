//! What an instance knows of spending that a store has, as sums by key and bucket of time. The level of a bucket is the instance's own
//! (`level.rs`): this says how much of a sum others have spent, and since when.
//!
//! Sums only grow, so of two answers the greater one is the newer. What a sum has beyond this instance's own spending, others have spent. Of its
//! undecided spending nobody knows whether the store has it, so it is taken for own spending until the decision.

use std::collections::HashMap;

use asterism_memory::region::Region;
use asterism_memory::zeroed;
use asterism_state_mutants::mutant::{self, Mutant};
use asterism_windows::{Ring, Window};

/// Seconds since the cluster's time base.
type Tick = u32;

/// Buckets of time in which the slowest token bucket fills. A read asks for twice as many.
const PARTS: u32 = 4;

zeroed! {
    /// What was spent of a number's key in one bucket of time.
    struct Cell {
        own: u64,
        others: u64,
        bucket: u32,
    }
}

/// Spending by number and bucket of time: this instance's, and others' as far as a store has reported it.
#[derive(Debug)]
pub struct SpendingInStore {
    ring: Ring,
    /// Seconds in which the slowest token bucket fills.
    fills_s: Tick,
    cells: Region<Cell>,
    /// What undecided transactions spend, by the hash of the key and the bucket of time.
    undecided: HashMap<(u64, u32), u64>,
}

impl SpendingInStore {
    /// The buckets of time in a store, of token buckets of which the slowest one fills in so many seconds, 1 at least.
    #[must_use]
    pub fn buckets(fills_seconds: u64) -> Ring {
        Ring::new(Window {
            buckets: 2 * PARTS,
            bucket_seconds: narrow(fills_seconds).div_ceil(PARTS),
        })
    }

    /// Of so many numbers, with nothing spent.
    pub fn new(fills_seconds: u64, room: u32) -> Self {
        let ring = Self::buckets(fills_seconds);
        Self {
            ring,
            fills_s: narrow(fills_seconds),
            cells: Region::new(room as usize * ring.slots() as usize),
            undecided: HashMap::new(),
        }
    }

    /// Bytes of so many numbers.
    #[must_use]
    pub fn bytes_of(&self, numbers: u32) -> usize {
        numbers as usize * self.ring.slots() as usize * size_of::<Cell>()
    }

    /// A transaction whose packet arrived at a second, and which spends of a key by its hash, waits for its decision from now on (`begins`), or
    /// has it.
    pub fn note_undecided(&mut self, (hash, arrived): (u64, Tick), count: u64, begins: bool) {
        if !begins && mutant::active(Mutant::DecidedStaysUndecided) {
            return;
        }
        let of = (hash, self.ring.bucket(arrived));
        let tokens = self.undecided.entry(of).or_default();
        *tokens = match begins {
            true => tokens.saturating_add(count),
            false => tokens.saturating_sub(count),
        };
        if *tokens == 0 {
            self.undecided.remove(&of);
        }
    }

    /// The store has taken what this instance spent, for a packet that arrived at a second.
    pub fn spent(&mut self, number: u32, (count, arrived): (u64, Tick)) {
        if let Some(bucket) = self.ring.add_at(arrived) {
            let cell = self.cell(number, bucket);
            cell.own = cell.own.saturating_add(count);
        }
    }

    /// Whether a report of a bucket of time may be learnt from, at this host's `tick`: it is kept, and not ahead of all clocks.
    pub fn accepts(&mut self, bucket: u32, tick: Tick) -> bool {
        self.ring.accept(bucket, tick)
    }

    /// The store has so much in a bucket of time that is accepted, of a number and of the hash of its key. What others spent of it that was not
    /// known.
    pub fn learn(&mut self, (number, hash): (u32, u64), (bucket, total): (u32, u64)) -> u64 {
        let undecided = self.undecided.get(&(hash, bucket)).copied();
        let cell = self.cell(number, bucket);
        let own = match mutant::active(Mutant::OwnTakenForOthers) {
            true => 0,
            false => cell.own.saturating_add(undecided.unwrap_or_default()),
        };
        let others = total.saturating_sub(own);
        let raise = others.saturating_sub(cell.others);
        cell.others = cell.others.max(others);
        raise
    }

    /// Seconds since a bucket of time was over, and with it what was spent in it; 0 while it is not.
    #[must_use]
    pub fn over_since(&self, bucket: u32, tick: Tick) -> Tick {
        tick.saturating_sub(self.ring.end_of(bucket))
    }

    /// Whether a key that begins again has what one has that goes on with a full bucket: all that was spent of the number has refilled
    /// since its bucket of time was over.
    #[must_use]
    pub fn may_forget(&self, number: u32, tick: Tick) -> bool {
        let slots = self.ring.slots() as usize;
        let mut cells = self.cells[number as usize * slots..][..slots].iter();
        cells.all(|cell| {
            !self.ring.keeps(cell.bucket) || self.over_since(cell.bucket, tick) >= self.fills_s
        })
    }

    /// Buckets of time that are over are kept no longer than a store has them.
    pub fn keep_up(&mut self, tick: Tick) {
        self.ring.keep_up(tick);
    }

    /// The cell of a bucket that is kept, of this bucket from now on.
    fn cell(&mut self, number: u32, bucket: u32) -> &mut Cell {
        let at = number as usize * self.ring.slots() as usize + self.ring.slot(bucket) as usize;
        let cell = &mut self.cells[at];
        if cell.bucket != bucket {
            (cell.own, cell.others, cell.bucket) = (0, 0, bucket);
        }
        cell
    }
}

fn narrow(seconds: u64) -> Tick {
    Tick::try_from(seconds).unwrap_or(Tick::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buckets of three seconds, of which eleven are kept.
    fn spending() -> SpendingInStore {
        let mut spending = SpendingInStore::new(10, 2);
        assert_eq!(
            (spending.ring.slots(), spending.bytes_of(2)),
            (11, 22 * size_of::<Cell>())
        );
        assert!(spending.accepts(101, 300));
        spending
    }

    #[test]
    fn others_spent_what_a_sum_has_beyond_own_spending() {
        let mut spending = spending();
        assert_eq!(spending.learn((0, 7), (101, 30)), 30);
        assert_eq!(spending.learn((0, 7), (101, 30)), 0);
        spending.spent(0, (5, 300));
        assert_eq!(spending.learn((0, 7), (101, 36)), 1);
        spending.note_undecided((7, 300), 10, true);
        assert_eq!(spending.learn((0, 7), (101, 46)), 0);
        assert_eq!(spending.learn((0, 7), (102, 10)), 10, "of another bucket");
        assert_eq!(spending.learn((1, 8), (101, 10)), 10, "of another key");
        spending.note_undecided((7, 300), 10, false);
        assert_eq!(spending.learn((0, 7), (101, 46)), 10);
        assert_eq!(spending.learn((0, 7), (101, u64::MAX)), u64::MAX - 46);
        spending.spent(0, (u64::MAX, 300));
        assert_eq!(spending.learn((0, 7), (101, u64::MAX)), 0);
        assert!(spending.undecided.is_empty());
    }

    #[test]
    fn a_number_is_forgotten_when_all_has_refilled_since() {
        let mut spending = spending();
        assert!(spending.may_forget(0, 300));
        spending.learn((0, 7), (100, 1));
        spending.spent(1, (1, 300));
        let first = |spending: &SpendingInStore, number| {
            (300..).find(|tick| spending.may_forget(number, *tick))
        };
        assert_eq!(
            [first(&spending, 0), first(&spending, 1)],
            [Some(310), Some(313)]
        );
        // Nor does a bucket of time stay that nobody has any more.
        spending.keep_up(10_000);
        assert!(!spending.accepts(101, 10_000) && !spending.accepts(0, 10_000));
        assert!(!spending.accepts(u32::MAX, 10_000));
    }

    #[test]
    fn the_slowest_and_the_fastest_buckets_have_buckets_of_time() {
        assert_eq!(SpendingInStore::buckets(1).end_of(1), 1);
        assert_eq!(SpendingInStore::buckets(u64::MAX).end_of(1), 1 << 30);
    }
}
