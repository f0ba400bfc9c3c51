//! How full token buckets are. What bounds each is in `rates.rs`.

use asterism_memory::region::Region;
use asterism_memory::zeroed;

use crate::rates::Bounds;

zeroed! {
    /// A bucket, by what is missing in it.
    struct Level {
        /// Parts that were spent and not refilled.
        debt: u64,
        /// When that was so, in microseconds.
        at_us: u64,
        /// Tokens spent here that are counted nowhere else yet, below [`NOTED`] and [`SHORT`].
        unsaid: u64,
    }
}

/// With what is unsaid: the number is in the list of those of which something is.
const NOTED: u64 = 1 << 63;
/// And in the list of those of which it must be said soon.
const SHORT: u64 = 1 << 62;
const UNSAID: u64 = SHORT - 1;

/// The levels of buckets, by number.
#[derive(Debug)]
pub struct Levels {
    levels: Region<Level>,
}

impl Levels {
    /// Bytes of one.
    pub const BYTES: usize = size_of::<Level>();

    /// Levels of so many numbers, none of which has begun.
    pub fn new(room: u32) -> Self {
        Self {
            levels: Region::new(room as usize),
        }
    }

    /// What is missing in a bucket at a time. Time that goes back stands still.
    #[inline(always)]
    pub fn debt(&self, number: u32, bounds: &Bounds, now_us: u64) -> u64 {
        let Level { debt, at_us, .. } = self.levels[number as usize];
        bounds.refilled(debt, now_us.saturating_sub(at_us))
    }

    /// A bucket begins in which so much is missing.
    pub fn begin(&mut self, number: u32, debt: u64, now_us: u64) {
        self.levels[number as usize] = Level {
            debt,
            at_us: now_us,
            unsaid: 0,
        };
    }

    /// Takes tokens that the bucket has. What is missing in it then.
    #[inline(always)]
    pub fn spend(&mut self, number: u32, bounds: &Bounds, (tokens, now_us): (u64, u64)) -> u64 {
        let debt = bounds.spent(self.debt(number, bounds, now_us), tokens);
        let level = &mut self.levels[number as usize];
        level.debt = debt;
        level.at_us = level.at_us.max(now_us);
        debt
    }

    /// Keeps in mind that tokens were spent here, beside the level, which the packet has at hand. Whether the number belongs into
    /// the list of those now.
    #[inline(always)]
    pub fn note(&mut self, number: u32, tokens: u64) -> bool {
        let level = &mut self.levels[number as usize];
        let before = level.unsaid;
        let unsaid = (before & UNSAID).saturating_add(tokens).min(UNSAID);
        level.unsaid = unsaid | NOTED | before & SHORT;
        before & NOTED == 0
    }

    /// What is kept in mind must be said soon. Whether the number belongs into the list of those now.
    #[inline(always)]
    pub fn hurry(&mut self, number: u32) -> bool {
        let level = &mut self.levels[number as usize];
        let belongs = level.unsaid & SHORT == 0 && level.unsaid & UNSAID > 0;
        if belongs {
            level.unsaid |= SHORT;
        }
        belongs
    }

    /// Whether a number is in one of these lists.
    pub fn is_noted(&self, number: u32) -> bool {
        self.levels[number as usize].unsaid != 0
    }

    /// What was kept in mind of a number that leaves the list of those that hurry.
    pub fn take_short(&mut self, number: u32) -> u64 {
        self.take(number, SHORT)
    }

    /// And of one that leaves the list of all of which something was.
    pub fn take_noted(&mut self, number: u32) -> u64 {
        self.take(number, NOTED)
    }

    fn take(&mut self, number: u32, list: u64) -> u64 {
        let unsaid = &mut self.levels[number as usize].unsaid;
        let taken = *unsaid & UNSAID;
        *unsaid &= !(UNSAID | list);
        taken
    }

    /// Takes tokens that others spent already, which the bucket may not have: they are owed. Tells what is missing in it then, and
    /// what is written_off, in tokens.
    ///
    /// What was spent no longer than a second before it is heard of is never written_off. After a longer partition, in which both
    /// sides spent all they had, a bucket would otherwise stay empty for as long as that lasted.
    pub fn owe(
        &mut self,
        number: u32,
        bounds: &Bounds,
        (tokens, now_us): (u64, u64),
    ) -> (u64, u64) {
        let debt = self.spend(number, bounds, (tokens, now_us));
        let (written_off, debt) = bounds.written_off(debt);
        self.levels[number as usize].debt = debt;
        (debt, written_off)
    }

    /// Leaves no more missing than a full bucket has.
    pub fn owe_no_more_than_all(&mut self, number: u32, bounds: &Bounds) {
        let level = &mut self.levels[number as usize];
        // What is missing in a bucket that is empty now.
        level.debt = level.debt.min(bounds.debt_of_new(Some(0), 0));
    }

    /// Asks for the cache line of a level.
    #[inline(always)]
    pub fn prefetch(&self, number: u32) {
        self.levels.prefetch(number as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::TokenRate;

    fn bounds(instances: u32, shares: u32) -> Bounds {
        let rate = TokenRate {
            tokens_per_second: 10,
            burst_tokens: 100,
        };
        Bounds::new(rate, (instances, shares))
    }

    #[test]
    fn a_bucket_refills_to_its_burst_and_no_further() {
        let (mut levels, bounds) = (Levels::new(1), bounds(1, 1));
        let full = levels.debt(0, &bounds, 0);
        assert!(bounds.has(full, 0, 100) && !bounds.has(full, 0, 101));
        assert!(!bounds.has(full, 1, 100), "one is promised");
        levels.spend(0, &bounds, (100, 0));
        let tokens = |levels: &Levels, now_us| bounds.tokens(levels.debt(0, &bounds, now_us));
        assert_eq!(tokens(&levels, 99_999), 0);
        assert_eq!(tokens(&levels, 100_000), 1, "a tenth of a second");
        assert_eq!(tokens(&levels, u64::MAX), 100);
        levels.spend(0, &bounds, (1, 100_000));
        assert_eq!(tokens(&levels, 50_000), 0, "time goes back");
        assert_eq!(tokens(&levels, 300_000), 2);
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        // 100 tokens among three: 33 and a third each.
        let (mut levels, bounds) = (Levels::new(1), bounds(3, 3));
        let tokens = |levels: &Levels, now_us| bounds.tokens(levels.debt(0, &bounds, now_us));
        assert_eq!(tokens(&levels, 0), 33);
        levels.spend(0, &bounds, (33, 0));
        assert_eq!(tokens(&levels, 200_000), 1, "the rest, and 2/3 token");
        assert_eq!(tokens(&levels, 199_999), 0);
        assert_eq!(bounds.debt_of_new(None, 0), 0);
        let new = |us| bounds.tokens(bounds.debt_of_new(Some(1_000_000), us));
        assert_eq!(
            (new(0), new(1_000_000), new(5_000_000), new(99_000_000)),
            (0, 0, 13, 33)
        );
    }

    #[test]
    fn what_others_spent_is_owed_up_to_a_bound() {
        let (mut levels, bounds) = (Levels::new(1), bounds(3, 1));
        // 3 × (100 + 10 × 1 s) tokens.
        assert_eq!(levels.owe(0, &bounds, (330, 0)), (330_000_000, 0));
        assert_eq!(levels.owe(0, &bounds, (5, 0)), (330_000_000, 5));
        let (_, written_off) = levels.owe(0, &bounds, (u64::MAX, 100_000));
        assert!(written_off > 1 << 40);
        let tokens = |now_us| bounds.tokens(levels.debt(0, &bounds, now_us));
        assert_eq!(tokens(23_100_000), 0);
        assert_eq!(tokens(23_200_000), 1);
    }

    #[test]
    fn what_is_noted_is_in_each_list_once_and_taken_once() {
        let mut levels = Levels::new(1);
        assert!(!levels.hurry(0), "nothing is to be said");
        assert!(levels.note(0, 5) && !levels.note(0, 6));
        assert!(levels.hurry(0) && !levels.hurry(0) && !levels.note(0, 7));
        assert_eq!(levels.take_short(0), 18);
        assert!(levels.is_noted(0), "it is in the other list");
        assert!(!levels.note(0, 1) && levels.hurry(0));
        assert_eq!((levels.take_short(0), levels.take_noted(0)), (1, 0));
        assert!(!levels.is_noted(0) && levels.note(0, u64::MAX));
        assert_eq!((levels.take_noted(0), levels.is_noted(0)), (UNSAID, false));
    }
}
