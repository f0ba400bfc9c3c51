//! At what rates buckets refill, one for all keys or some with their own, and what an instance makes of that. Which of both it is is
//! known when a function is compiled: where all buckets have one rate, nothing is looked up.

use core::fmt::Debug;

use asterism_memory::region::Region;
use asterism_memory::zeroed;

use asterism_wire::Key;

/// A token bucket's rate: over any time `t` it gives `burst_tokens` + `tokens_per_second` × `t` at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRate {
    /// What it refills by, 1 at least.
    pub tokens_per_second: u64,
    /// What it holds when full, 1 to 2³².
    pub burst_tokens: u64,
}

impl TokenRate {
    /// Seconds in which an empty bucket fills, rounded up.
    fn seconds_to_fill(self) -> u64 {
        self.burst_tokens.div_ceil(self.tokens_per_second)
    }
}

/// The rates of buckets of which some have their own. It is the same at all hosts: they refuse each other where it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRates<K> {
    rest: TokenRate,
    /// By key, each once, and none that is the same as all the others'.
    own: Vec<(K, TokenRate)>,
}

impl<K: Key> TokenRates<K> {
    /// `own` for the keys that it names, for each the first that it has; `rest` for all others. What is said in another order, or
    /// of a key that gets no other rate by it, makes no difference.
    pub fn new(rest: TokenRate, own: impl IntoIterator<Item = (K, TokenRate)>) -> Self {
        let mut own: Vec<_> = own.into_iter().collect();
        own.sort_by_key(|&(key, _)| key);
        own.dedup_by_key(|&mut (key, _)| key);
        own.retain(|&(_, rate)| rate != rest);
        Self { rest, own }
    }

    /// Keys that have another rate than the rest, in their order.
    pub fn own(&self) -> &[(K, TokenRate)] {
        &self.own
    }
}

/// At what rates the buckets of an object refill: all at one [`TokenRate`], or some at their own ([`TokenRates`]).
pub trait Rates<K: Key>: Debug {
    #[doc(hidden)]
    type Bounds: BoundsOf<K>;
    /// Of buckets that `instances` spend from in so many `shares`, for so many numbers.
    #[doc(hidden)]
    fn bounds(&self, spenders: (u32, u32), room: u32) -> Self::Bounds;
    /// Seconds in which the slowest of them fills.
    #[doc(hidden)]
    fn fills_seconds(&self) -> u64;
    /// What hosts must have alike.
    #[doc(hidden)]
    fn made(&self) -> Vec<u64>;
    /// The same without rates of single keys.
    #[doc(hidden)]
    fn common(&self) -> Self
    where
        Self: Sized;
}

impl<K: Key> Rates<K> for TokenRate {
    type Bounds = Bounds;
    fn bounds(&self, spenders: (u32, u32), _: u32) -> Bounds {
        Bounds::new(*self, spenders)
    }
    fn fills_seconds(&self) -> u64 {
        self.seconds_to_fill()
    }
    fn made(&self) -> Vec<u64> {
        vec![self.tokens_per_second, self.burst_tokens]
    }
    fn common(&self) -> Self {
        *self
    }
}

impl<K: Key> Rates<K> for TokenRates<K> {
    type Bounds = BoundsByKey<K>;
    fn bounds(&self, spenders: (u32, u32), room: u32) -> BoundsByKey<K> {
        let own = self.own.iter();
        BoundsByKey {
            rest: Bounds::new(self.rest, spenders),
            own: own
                .map(|&(key, rate)| (key, Bounds::new(rate, spenders)))
                .collect(),
            of: Region::new(room as usize),
        }
    }
    fn fills_seconds(&self) -> u64 {
        let own = self.own.iter().map(|(_, rate)| rate.seconds_to_fill());
        own.fold(self.rest.seconds_to_fill(), u64::max)
    }
    /// That of a single rate, where none has its own.
    fn made(&self) -> Vec<u64> {
        let mut made = Rates::<K>::made(&self.rest);
        for (key, rate) in &self.own {
            made.push(key.hash(0));
            made.extend(Rates::<K>::made(rate));
        }
        made
    }
    fn common(&self) -> Self {
        Self::new(self.rest, [])
    }
}

/// Most tokens that a bucket holds.
const BURST_TOKENS_MAX: u64 = 1 << 32;
/// Parts of a token that are counted: what a rate of 1 a second refills in a microsecond.
const PARTS: u64 = 1_000_000;
/// What reaches this instance within this time of being spent elsewhere is paid back in full; see [`crate::Levels::owe`].
const DELAY_SECONDS_MAX: u64 = 1;

zeroed! {
    /// What bounds a bucket, for one instance.
    pub struct Bounds {
        /// Parts that refill in a microsecond.
        rate: u64,
        /// Parts of a full bucket.
        burst: u64,
        /// Parts that a token costs here: more where this instance has but a share of the bucket.
        token: u64,
        /// Parts that can be owed.
        debt_max: u64,
    }
}

impl Bounds {
    /// Of one bucket that `instances` spend from, of which this one has everything, or one of so many equal `shares`.
    pub fn new(rate: TokenRate, (instances, shares): (u32, u32)) -> Self {
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

    /// What is missing after a while in a bucket in which `debt` was.
    #[inline(always)]
    pub fn refilled(&self, debt: u64, us: u64) -> u64 {
        debt.saturating_sub(self.rate.saturating_mul(us))
    }

    /// What is missing in a new bucket: nothing, or, where it began empty at some time, what was not refilled since.
    #[inline(always)]
    pub fn debt_of_new(&self, empty_at_us: Option<u64>, now_us: u64) -> u64 {
        empty_at_us.map_or(0, |empty_at_us| {
            self.refilled(self.burst, now_us.saturating_sub(empty_at_us))
        })
    }

    /// Whether a bucket in which `debt` is missing has as many tokens, besides those that are promised.
    #[inline(always)]
    pub fn has(&self, debt: u64, promised: u64, tokens: u64) -> bool {
        self.spent(debt, promised.saturating_add(tokens)) <= self.burst
    }

    /// What is missing in a bucket in which `debt` was, without so many tokens more.
    #[inline(always)]
    pub fn spent(&self, debt: u64, tokens: u64) -> u64 {
        debt.saturating_add(tokens.saturating_mul(self.token))
    }

    /// Of what is missing, how many tokens more than can be owed, and what is left to be missing.
    pub fn written_off(&self, debt: u64) -> (u64, u64) {
        let over = debt.saturating_sub(self.debt_max);
        (over.div_ceil(self.token), debt - over)
    }

    /// Whether a bucket in which `debt` is missing is more than half empty.
    #[inline(always)]
    pub fn is_short(&self, debt: u64) -> bool {
        debt > self.burst / 2
    }

    /// Whole tokens of a bucket in which `debt` is missing.
    pub fn tokens(&self, debt: u64) -> u64 {
        self.burst.saturating_sub(debt) / self.token
    }
}

/// What bounds each bucket of an object, by the number of its key.
pub trait BoundsOf<K>: Debug {
    /// Bytes that a number takes.
    const BYTES: usize;
    /// Of a number that was begun.
    fn of(&self, number: u32) -> &Bounds;
    /// Of a key, which need not have a number.
    fn of_key(&self, key: &K) -> &Bounds;
    /// A number is a key's from now on.
    fn begin(&mut self, number: u32, key: &K);
    /// Has a number's come into the cache.
    fn prefetch(&self, number: u32);
}

/// All have the same.
impl<K> BoundsOf<K> for Bounds {
    const BYTES: usize = 0;
    #[inline(always)]
    fn of(&self, _: u32) -> &Bounds {
        self
    }
    #[inline(always)]
    fn of_key(&self, _: &K) -> &Bounds {
        self
    }
    fn begin(&mut self, _: u32, _: &K) {}
    fn prefetch(&self, _: u32) {}
}

/// Some have their own. A key is looked for when its bucket begins, and never again while it has one.
#[derive(Debug)]
pub struct BoundsByKey<K> {
    rest: Bounds,
    own: Box<[(K, Bounds)]>,
    of: Region<Bounds>,
}

impl<K: Key> BoundsOf<K> for BoundsByKey<K> {
    const BYTES: usize = size_of::<Bounds>();
    #[inline(always)]
    fn of(&self, number: u32) -> &Bounds {
        &self.of[number as usize]
    }
    fn of_key(&self, key: &K) -> &Bounds {
        let own = self.own.binary_search_by_key(key, |&(key, _)| key);
        own.map_or(&self.rest, |at| &self.own[at].1)
    }
    fn begin(&mut self, number: u32, key: &K) {
        self.of[number as usize] = *self.of_key(key);
    }
    #[inline(always)]
    fn prefetch(&self, number: u32) {
        self.of.prefetch(number as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rate(tokens_per_second: u64, burst_tokens: u64) -> TokenRate {
        TokenRate {
            tokens_per_second,
            burst_tokens,
        }
    }

    #[test]
    fn what_is_the_same_is_alike_however_it_is_said() {
        let (rest, fast, slow) = (rate(10, 100), rate(1_000, 200), rate(1, 50));
        let rates = TokenRates::new(rest, [(7u32, slow), (3, fast), (5, rest), (3, slow)]);
        assert_eq!(rates.own(), [(3, fast), (7, slow)]);
        assert_eq!(rates, TokenRates::new(rest, [(3, fast), (7, slow)]));
        let made = rates.made();
        let others = [
            TokenRates::new(rest, [(3, slow), (7, fast)]),
            TokenRates::new(rest, [(3, fast), (8, slow)]),
            TokenRates::new(rest, [(3, fast)]),
            TokenRates::new(slow, [(3, fast), (7, slow)]),
        ];
        assert!(others.iter().all(|other| other.made() != made));
        let none = TokenRates::<u32>::new(rest, [(1, rest)]);
        assert_eq!(none.made(), Rates::<u32>::made(&rest));
        assert_eq!((none.fills_seconds(), rates.fills_seconds()), (10, 50));
    }

    #[test]
    fn a_number_has_the_rate_of_the_key_whose_it_is_now() {
        let rates = TokenRates::new(rate(10, 100), [(3u32, rate(1_000, 200))]);
        let mut bounds = rates.bounds((1, 1), 4);
        bounds.begin(0, &3);
        bounds.begin(1, &4);
        let full = |bounds: &Bounds| bounds.tokens(0);
        assert_eq!((full(bounds.of(0)), full(bounds.of(1))), (200, 100));
        assert_eq!(
            (full(bounds.of_key(&3)), full(bounds.of_key(&9))),
            (200, 100)
        );
        bounds.begin(0, &5);
        assert_eq!(full(bounds.of(0)), 100, "another key's");
    }

    #[test]
    #[should_panic(expected = "leaves none")]
    fn a_burst_too_small_to_be_shared_is_refused() {
        let _ = Bounds::new(rate(1, 2), (3, 3));
    }

    #[test]
    #[should_panic(expected = "leaves none")]
    fn so_is_that_of_a_single_key() {
        let _ = TokenRates::new(rate(1, 3), [(1u32, rate(1, 2))]).bounds((3, 3), 1);
    }
}
