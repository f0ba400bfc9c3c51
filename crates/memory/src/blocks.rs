//! Numbered items that are leased in blocks: which are in use, and what this instance may do with each block of them.
//!
//! Plain data. What is known of a block lies together, so that a grant costs one cache line of it, and holding or returning an
//! item another.

use crate::region::prefetch;

/// Items of a block: what is known of them is one word.
pub const BLOCK_ITEMS: u32 = 64;

/// What an instance may do with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Another instance's.
    Foreign,
    /// The epoch has dealt it to this instance, which may not grant from it yet.
    Quarantined,
    /// Its own by place.
    Own,
    /// It was another's, and is granted from here.
    Reclaimed,
}

impl Standing {
    /// Whether this instance grants items of such a block.
    #[inline]
    pub fn is_granted_from(self) -> bool {
        matches!(self, Standing::Own | Standing::Reclaimed)
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// A bit for each item that is in use, which any instance may have granted. Places beyond the range's end are in use for ever.
    used: u64,
    standing: Standing,
}

impl Block {
    fn has_free(&self) -> bool {
        self.standing.is_granted_from() && self.used != u64::MAX
    }
}

/// What is known of a range beside its blocks.
#[derive(Clone, Copy, Debug, Default)]
struct RangeState {
    /// Items that this instance may grant.
    free: u32,
    /// The block where the last search ended.
    next: u32,
}

/// Where a search for a free item begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At the block of the wished item: neighbouring wishes stay neighbours, and outsiders cannot count upwards.
    AtWish,
    /// Where the last one ended.
    WhereLastEnded,
}

/// All items of a pool.
#[derive(Debug)]
pub struct BlockAllocator {
    /// Items of a range.
    items: u32,
    /// Blocks of a range.
    range_blocks: u32,
    /// Range by range.
    blocks: Vec<Block>,
    ranges: Vec<RangeState>,
    in_use: u32,
    /// Items of the blocks that stand so.
    quarantined: u32,
    reclaimed: u32,
}

impl BlockAllocator {
    /// Nothing is used, and nothing is this instance's.
    pub fn new(ranges: u32, items: u32) -> Self {
        let range_blocks = items.div_ceil(BLOCK_ITEMS);
        let nothing = Block {
            used: 0,
            standing: Standing::Foreign,
        };
        let mut blocks = vec![nothing; (ranges * range_blocks) as usize];
        let rest = items % BLOCK_ITEMS;
        if rest != 0 {
            let last = blocks.iter_mut().skip(range_blocks as usize - 1);
            last.step_by(range_blocks as usize)
                .for_each(|block| block.used = u64::MAX << rest);
        }
        Self {
            items,
            range_blocks,
            blocks,
            ranges: vec![RangeState::default(); ranges as usize],
            in_use: 0,
            quarantined: 0,
            reclaimed: 0,
        }
    }

    /// Items in use, of blocks that are granted from.
    #[inline]
    pub fn in_use(&self) -> u32 {
        self.in_use
    }
    /// Items of blocks that are quarantined.
    pub fn quarantined(&self) -> u32 {
        self.quarantined
    }
    /// Items of blocks that were another's and are granted from here.
    pub fn reclaimed(&self) -> u32 {
        self.reclaimed
    }
    /// Items that may be granted.
    pub fn free(&self) -> u32 {
        self.ranges.iter().map(|range| range.free).sum()
    }
    /// Whether an item of the range may be granted.
    #[inline]
    pub fn has_free(&self, range: u32) -> bool {
        let range = self.ranges.get(range as usize);
        range.is_some_and(|range| range.free > 0)
    }

    /// The block of an item, by its range and place, and its bit.
    fn bit(&self, range: u32, place: u32) -> (usize, u64) {
        let block = range * self.range_blocks + place / BLOCK_ITEMS;
        (block as usize, 1 << (place % BLOCK_ITEMS))
    }

    /// Whether this instance grants items of the block of this one.
    #[inline]
    pub fn is_granted_from(&self, range: u32, place: u32) -> bool {
        let block = self.blocks[self.bit(range, place).0];
        block.standing.is_granted_from()
    }

    /// Whether an item is in use, which any instance may have granted.
    #[inline]
    pub fn is_used(&self, range: u32, place: u32) -> bool {
        let (block, bit) = self.bit(range, place);
        self.blocks[block].used & bit != 0
    }

    /// Asks for what a look at an item reads.
    #[inline]
    pub fn prefetch(&self, range: u32, place: u32) {
        if let Some(block) = self.blocks.get(self.bit(range, place).0) {
            prefetch(block);
        }
    }

    /// Items of a block of a range.
    fn block_items(&self, block: u32) -> u32 {
        (self.items - block * BLOCK_ITEMS).min(BLOCK_ITEMS)
    }

    /// Looks at every block again: `judge` says how each one stands, by range and number. What is granted from and `keeps` so stays
    /// that while it is only quarantined; how many did. A look at each, so some milliseconds for a pool of millions of items.
    pub fn deal(&mut self, keeps: bool, judge: impl Fn(u32, u32) -> Standing) -> usize {
        let mut kept = 0;
        (self.in_use, self.quarantined, self.reclaimed) = (0, 0, 0);
        for number in 0..self.ranges.len() as u32 {
            let mut free = 0;
            for block in 0..self.range_blocks {
                let items = self.block_items(block);
                let known = &mut self.blocks[(number * self.range_blocks + block) as usize];
                let judged = judge(number, block);
                if judged != Standing::Quarantined || !(keeps && known.standing.is_granted_from()) {
                    known.standing = judged;
                } else {
                    kept += 1;
                }
                match known.standing {
                    Standing::Quarantined => self.quarantined += items,
                    Standing::Reclaimed => self.reclaimed += items,
                    Standing::Own | Standing::Foreign => {}
                }
                if known.standing.is_granted_from() {
                    free += known.used.count_zeros();
                    self.in_use += items - known.used.count_zeros();
                }
            }
            self.ranges[number as usize] = RangeState { free, next: 0 };
            self.assert_sound(number);
        }
        kept
    }

    /// What holds of a range after every change: counts are those of its blocks. Long ranges are only bounded.
    fn assert_sound(&self, range: u32) {
        const COUNTED_MAX: u32 = 16;
        if !cfg!(debug_assertions) {
            return;
        }
        let free = self.ranges[range as usize].free;
        assert!(free <= self.items);
        if self.range_blocks <= COUNTED_MAX {
            let first = (range * self.range_blocks) as usize;
            let blocks = &self.blocks[first..first + self.range_blocks as usize];
            let granted = blocks
                .iter()
                .filter(|block| block.standing.is_granted_from());
            let counted: u32 = granted.map(|block| block.used.count_zeros()).sum();
            assert_eq!(free, counted, "items that may be granted");
        }
    }

    /// No item is in use any more.
    pub fn forget(&mut self) {
        for range in 0..self.ranges.len() as u32 {
            for block in 0..self.range_blocks {
                let items = self.block_items(block);
                let known = &mut self.blocks[(range * self.range_blocks + block) as usize];
                let beyond = u64::MAX.checked_shl(items).unwrap_or(0);
                let freed = (known.used & !beyond).count_ones();
                known.used = beyond;
                if known.standing.is_granted_from() {
                    self.ranges[range as usize].free += freed;
                    self.in_use -= freed;
                }
            }
            self.assert_sound(range);
        }
    }

    /// Takes a free item of a range that may be granted, the one at `wish` if it is one.
    #[inline]
    pub fn take(&mut self, range: u32, wish: u32, begin: Begin) -> Option<u32> {
        if !self.has_free(range) {
            return None;
        }
        let wished =
            wish < self.items && self.is_granted_from(range, wish) && !self.is_used(range, wish);
        let place = if wished {
            wish
        } else {
            let first = match begin {
                Begin::AtWish => wish / BLOCK_ITEMS % self.range_blocks,
                Begin::WhereLastEnded => self.ranges[range as usize].next,
            };
            let block = |number: u32| &self.blocks[(range * self.range_blocks + number) as usize];
            let mut numbers = (first..self.range_blocks).chain(0..first);
            let number = numbers.find(|&number| block(number).has_free())?;
            self.ranges[range as usize].next = number;
            let free = !block(number).used;
            let turn = wish % BLOCK_ITEMS;
            let bit = (free.rotate_right(turn).trailing_zeros() + turn) % BLOCK_ITEMS;
            number * BLOCK_ITEMS + bit
        };
        let (block, bit) = self.bit(range, place);
        debug_assert!(place < self.items && self.blocks[block].used & bit == 0);
        self.blocks[block].used |= bit;
        self.count_used(range);
        self.assert_sound(range);
        Some(place)
    }

    fn count_used(&mut self, range: u32) {
        self.ranges[range as usize].free -= 1;
        self.in_use += 1;
    }

    /// An item is in use; false if it was already.
    #[inline]
    pub fn hold(&mut self, range: u32, place: u32) -> bool {
        let (block, bit) = self.bit(range, place);
        let block = &mut self.blocks[block];
        let is_new = block.used & bit == 0;
        block.used |= bit;
        if is_new && block.standing.is_granted_from() {
            self.count_used(range);
        }
        self.assert_sound(range);
        is_new
    }

    /// An item is in use no more.
    #[inline]
    pub fn put(&mut self, range: u32, place: u32) {
        let (block, bit) = self.bit(range, place);
        let block = &mut self.blocks[block];
        let was_used = block.used & bit != 0;
        block.used &= !bit;
        if was_used && block.standing.is_granted_from() {
            self.ranges[range as usize].free += 1;
            self.in_use -= 1;
        }
        self.assert_sound(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_can_be_granted_again() {
        let mut ranges = every_other();
        let free = ranges.free();
        let taken: Vec<_> =
            core::iter::from_fn(|| ranges.take(1, 70, Begin::WhereLastEnded)).collect();
        assert!(ranges.hold(0, 199) && !ranges.has_free(1));
        ranges.forget();
        assert_eq!((ranges.free(), ranges.in_use()), (free, 0));
        let again: Vec<_> =
            core::iter::from_fn(|| ranges.take(1, 70, Begin::WhereLastEnded)).collect();
        assert_eq!(taken.len(), again.len());
        assert!(again.iter().all(|place| *place < 200));
    }

    /// Two ranges of 200 items, of which this instance has every other block.
    fn every_other() -> BlockAllocator {
        let mut ranges = BlockAllocator::new(2, 200);
        ranges.deal(false, |range, block| match (range + block) % 2 {
            0 => Standing::Own,
            _ => Standing::Foreign,
        });
        ranges
    }

    #[test]
    fn what_is_wished_is_granted_once_and_else_what_lies_next_to_it() {
        let mut ranges = every_other();
        assert_eq!(ranges.take(0, 130, Begin::AtWish), Some(130));
        assert_eq!(ranges.take(0, 130, Begin::AtWish), Some(131));
        // Of a foreign block: the next own one, at the same place of it.
        assert_eq!(ranges.take(0, 70, Begin::AtWish), Some(134));
        // Behind the last own block comes the first.
        assert_eq!(ranges.take(0, 199, Begin::AtWish), Some(7));
        assert_eq!(ranges.in_use(), 4);
    }

    #[test]
    fn every_item_is_granted_once_and_then_none() {
        let mut ranges = every_other();
        let mut granted = std::collections::BTreeSet::new();
        while let Some(place) = ranges.take(1, 3, Begin::WhereLastEnded) {
            assert!(ranges.is_granted_from(1, place), "{place}");
            assert!(place < 200 && granted.insert(place), "{place}");
        }
        // Blocks 1 and 3, the second of which is cut short.
        assert_eq!(granted.len(), 64 + 8);
        assert_eq!(ranges.in_use(), 72);
        assert!(!ranges.has_free(1) && ranges.has_free(0));
        ranges.put(1, 70);
        ranges.put(1, 70);
        assert_eq!(ranges.free(), 64 + 64 + 1);
        assert_eq!(ranges.take(1, 0, Begin::AtWish), Some(70));
    }

    #[test]
    fn what_others_use_is_held_and_counts_where_it_comes_to_be_granted_from() {
        let mut ranges = every_other();
        assert!(ranges.hold(0, 64) && !ranges.hold(0, 64));
        assert_eq!(ranges.in_use(), 0, "it is another's");
        ranges.deal(true, |_, block| match block {
            0 => Standing::Quarantined,
            1 => Standing::Reclaimed,
            _ => Standing::Foreign,
        });
        assert_eq!(ranges.in_use(), 1);
        assert_eq!(ranges.reclaimed(), 2 * 64);
        // Block 0 of the first range is granted from as before; that of the second never was.
        assert_eq!(ranges.quarantined(), 64);
        assert!(ranges.is_granted_from(0, 0) && !ranges.is_granted_from(1, 0));
        assert_eq!(ranges.take(0, 64, Begin::AtWish), Some(65));
    }
}
