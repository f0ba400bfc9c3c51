//! How full a token bucket is, and at what rate it fills.

use crate::memory::{Region, zeroed};

/// A token bucket's rate: over any time `t` it gives `burst_tokens` + `tokens_per_second` × `t` at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRate {
    /// What it refills by, 1 at least.
    pub tokens_per_second: u64,
    /// What it holds when full, 1 to 2³².
    pub burst_tokens: u64,
}

/// Most tokens that a bucket holds.
const BURST_TOKENS_MAX: u64 = 1 << 32;
/// Parts of a token that are counted: what a rate of 1 a second refills in a microsecond.
const PARTS: u64 = 1_000_000;
/// What reaches this instance within this time of being spent elsewhere is paid back in full; see [`Levels::owe`].
pub(super) const DELAY_SECONDS_MAX: u64 = 1;

/// What bounds the levels of one instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Parts that refill in a microsecond.
    rate: u64,
    /// Parts of a full bucket.
    burst: u64,
    /// Parts that a token costs here: more where this instance has but a share of the bucket.
    token: u64,
    /// Parts that can be owed.
    debt_max: u64,
}

impl Bounds {
    /// Of one bucket that `instances` spend from, of which this one has everything, or an equal share.
    pub(super) fn new(rate: TokenRate, instances: u32, shares: u32) -> Self {
        let TokenRate {
            tokens_per_second,
            burst_tokens,
        } = rate;
        assert!(
            tokens_per_second > 0 && (1..=BURST_TOKENS_MAX).contains(&burst_tokens),
            "a token bucket refills, and holds 1 to {BURST_TOKENS_MAX} tokens"
        );
        assert!(
            burst_tokens >= u64::from(shares),
            "a burst of {burst_tokens} tokens leaves none for some of {shares} instances"
        );
        let burst = burst_tokens * PARTS;
        let in_delay = tokens_per_second.saturating_mul(DELAY_SECONDS_MAX * PARTS);
        Self {
            rate: tokens_per_second,
            burst,
            // Scaled up instead of dividing the rest, so that shares add up exactly.
            token: PARTS * u64::from(shares),
            debt_max: burst
                .saturating_add(in_delay)
                .saturating_mul(instances.into()),
        }
    }

    fn refill(&self, us: u64) -> u64 {
        self.rate.saturating_mul(us)
    }
}

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
pub(super) struct Levels {
    bounds: Bounds,
    levels: Region<Level>,
}

impl Levels {
    pub(super) const BYTES: usize = size_of::<Level>();

    pub(super) fn new(bounds: Bounds, room: u32) -> Self {
        Self {
            bounds,
            levels: Region::new(room as usize),
        }
    }

    /// What is missing in a bucket at a time. Time that goes back stands still.
    #[inline(always)]
    pub(super) fn debt(&self, number: u32, now_us: u64) -> u64 {
        let Level { debt, at_us, .. } = self.levels[number as usize];
        debt.saturating_sub(self.bounds.refill(now_us.saturating_sub(at_us)))
    }

    /// What is missing in a new bucket: nothing, or, where it began empty at some time, what was not refilled since.
    #[inline(always)]
    pub(super) fn debt_of_new(&self, empty_at_us: Option<u64>, now_us: u64) -> u64 {
        empty_at_us.map_or(0, |empty_at_us| {
            let refilled = self.bounds.refill(now_us.saturating_sub(empty_at_us));
            self.bounds.burst.saturating_sub(refilled)
        })
    }

    /// Whether a bucket in which `debt` is missing has as many tokens, besides those that are promised.
    #[inline(always)]
    pub(super) fn has(&self, debt: u64, promised: u64, tokens: u64) -> bool {
        let wanted = promised.saturating_add(tokens);
        debt.saturating_add(wanted.saturating_mul(self.bounds.token)) <= self.bounds.burst
    }

    /// Whether a bucket in which `debt` is missing is more than half empty.
    #[inline(always)]
    pub(super) fn is_short(&self, debt: u64) -> bool {
        debt > self.bounds.burst / 2
    }

    /// Whole tokens of a bucket in which `debt` is missing.
    pub(super) fn tokens(&self, debt: u64) -> u64 {
        self.bounds.burst.saturating_sub(debt) / self.bounds.token
    }

    /// Whole tokens of a full one.
    pub(super) fn tokens_max(&self) -> u64 {
        self.bounds.burst / self.bounds.token
    }

    pub(super) fn begin(&mut self, number: u32, debt: u64, now_us: u64) {
        self.levels[number as usize] = Level {
            debt,
            at_us: now_us,
            unsaid: 0,
        };
    }

    /// Takes tokens that the bucket has. Whether it is more than half empty then.
    #[inline(always)]
    pub(super) fn spend(&mut self, number: u32, tokens: u64, now_us: u64) -> bool {
        let debt = self.debt(number, now_us);
        let level = &mut self.levels[number as usize];
        level.debt = debt.saturating_add(tokens.saturating_mul(self.bounds.token));
        level.at_us = level.at_us.max(now_us);
        let debt = level.debt;
        self.is_short(debt)
    }

    /// Keeps in mind that tokens were spent here, beside the level, which the packet has at hand. Whether the number belongs into
    /// the list of those now.
    #[inline(always)]
    pub(super) fn note(&mut self, number: u32, tokens: u64) -> bool {
        let level = &mut self.levels[number as usize];
        let before = level.unsaid;
        let unsaid = (before & UNSAID).saturating_add(tokens).min(UNSAID);
        level.unsaid = unsaid | NOTED | before & SHORT;
        before & NOTED == 0
    }

    /// What is kept in mind must be said soon. Whether the number belongs into the list of those now.
    #[inline(always)]
    pub(super) fn hurry(&mut self, number: u32) -> bool {
        let level = &mut self.levels[number as usize];
        let belongs = level.unsaid & SHORT == 0 && level.unsaid & UNSAID > 0;
        if belongs {
            level.unsaid |= SHORT;
        }
        belongs
    }

    /// Whether a number is in one of these lists.
    pub(super) fn is_noted(&self, number: u32) -> bool {
        self.levels[number as usize].unsaid != 0
    }

    /// What was kept in mind of a number that leaves the list of those that hurry.
    pub(super) fn take_short(&mut self, number: u32) -> u64 {
        self.take(number, SHORT)
    }

    /// And of one that leaves the list of all of which something was.
    pub(super) fn take_noted(&mut self, number: u32) -> u64 {
        self.take(number, NOTED)
    }

    fn take(&mut self, number: u32, list: u64) -> u64 {
        let unsaid = &mut self.levels[number as usize].unsaid;
        let taken = *unsaid & UNSAID;
        *unsaid &= !(UNSAID | list);
        taken
    }

    /// Takes tokens that others spent already, which the bucket may not have: they are owed. Tells what is forgiven, in tokens.
    ///
    /// What was spent no longer than [`DELAY_SECONDS_MAX`] before it is heard of is never forgiven. After a longer partition, in
    /// which both sides spent all they had, a bucket would otherwise stay empty for as long as that lasted.
    pub(super) fn owe(&mut self, number: u32, tokens: u64, now_us: u64) -> u64 {
        self.spend(number, tokens, now_us);
        let level = &mut self.levels[number as usize];
        let over = level.debt.saturating_sub(self.bounds.debt_max);
        level.debt -= over;
        over.div_ceil(self.bounds.token)
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, number: u32) {
        self.levels.prefetch(number as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: TokenRate = TokenRate {
        tokens_per_second: 10,
        burst_tokens: 100,
    };

    #[test]
    fn a_bucket_refills_to_its_burst_and_no_further() {
        let mut levels = Levels::new(Bounds::new(RATE, 1, 1), 1);
        assert!(levels.has(levels.debt(0, 0), 0, 100) && !levels.has(levels.debt(0, 0), 0, 101));
        assert!(!levels.has(levels.debt(0, 0), 1, 100), "one is promised");
        levels.spend(0, 100, 0);
        assert_eq!(levels.tokens(levels.debt(0, 99_999)), 0);
        assert_eq!(
            levels.tokens(levels.debt(0, 100_000)),
            1,
            "a tenth of a second"
        );
        assert_eq!(levels.tokens(levels.debt(0, u64::MAX)), 100);
        levels.spend(0, 1, 100_000);
        assert_eq!(levels.tokens(levels.debt(0, 50_000)), 0, "time goes back");
        assert_eq!(levels.tokens(levels.debt(0, 300_000)), 2);
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        // 100 tokens among three: 33 and a third each.
        let mut levels = Levels::new(Bounds::new(RATE, 3, 3), 1);
        assert_eq!(levels.tokens(levels.debt(0, 0)), 33);
        levels.spend(0, 33, 0);
        assert_eq!(
            levels.tokens(levels.debt(0, 200_000)),
            1,
            "the rest, and 2/3 token"
        );
        assert_eq!(levels.tokens(levels.debt(0, 199_999)), 0);
        assert_eq!(levels.debt_of_new(None, 0), 0);
        let new = |us| levels.tokens(levels.debt_of_new(Some(1_000_000), us));
        assert_eq!(
            (new(0), new(1_000_000), new(5_000_000), new(99_000_000)),
            (0, 0, 13, 33)
        );
    }

    #[test]
    fn what_others_spent_is_owed_up_to_a_bound() {
        let mut levels = Levels::new(Bounds::new(RATE, 3, 1), 1);
        // 3 × (100 + 10 × 1 s) tokens.
        assert_eq!(levels.owe(0, 330, 0), 0);
        assert_eq!(levels.owe(0, 5, 0), 5);
        assert!(levels.owe(0, u64::MAX, 100_000) > 1 << 40);
        assert_eq!(levels.tokens(levels.debt(0, 23_100_000)), 0);
        assert_eq!(levels.tokens(levels.debt(0, 23_200_000)), 1);
    }

    #[test]
    fn what_is_noted_is_in_each_list_once_and_taken_once() {
        let mut levels = Levels::new(Bounds::new(RATE, 3, 1), 1);
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

    #[test]
    #[should_panic(expected = "leaves none")]
    fn a_burst_too_small_to_be_shared_is_refused() {
        let _ = Bounds::new(
            TokenRate {
                tokens_per_second: 1,
                burst_tokens: 2,
            },
            3,
            3,
        );
    }
}
