//! Time cut into buckets of equal length, of which a ring of the newest is kept.
//!
//! Which buckets are kept follows from the operations alone and not from anybody's clock: the ring ends at the newest bucket
//! that any operation spoke of (its *head*), which is a maximum, so that all who applied the same operations keep the same
//! buckets. Clocks only say into which bucket an addition goes, and which of the buckets a read sums.
//!
//! `rolling.rs` has digests of what is announced of buckets, for hosts to compare.
//!
//! Layer 0, below the state objects, which have sums in each bucket.

#![forbid(unsafe_code)]

mod rolling;

use asterism_wire::{BadBytes, Reader};

pub use rolling::{Known, Rolling, name_in};

/// Seconds since the cluster's time base.
type Tick = u32;

/// By how many seconds hosts' clocks may differ. The ring is longer than the window by as much, so that no clock within it takes
/// buckets from another's window; what a clock further ahead says is refused.
pub const SKEW_SECONDS_MAX: Tick = 4;

/// Buckets of a window at most.
const BUCKETS_MAX: u32 = 256;

/// What a windowed object sums: this many buckets of this many seconds, the current one included. So a sum covers between
/// `buckets` - 1 and `buckets` times `bucket_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Buckets of the window, 1 to 256.
    pub buckets: u32,
    /// Seconds of a bucket, 1 at least.
    pub bucket_seconds: Tick,
}

/// What a windowed object did not take up; for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowTally {
    /// Totals that came, or were added here, when their bucket was dropped already.
    pub expired: u64,
    /// Totals of a member whose clock is ahead of this host's by more than [`SKEW_SECONDS_MAX`].
    pub ahead: u64,
    /// How often this host's clock was set back by more than that, and it began again with nothing.
    pub set_back: u64,
}

/// The buckets that are kept. Buckets are numbered from 1; 0 is none.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    window: Window,
    /// Buckets that a member's clock may be ahead.
    ahead_max: u32,
    slots: u32,
    head: u32,
    /// The newest bucket that anything was added in.
    written: u32,
    /// What it did not take up.
    pub tally: WindowTally,
}

impl Ring {
    /// With no bucket kept.
    ///
    /// # Panics
    /// When the window has no buckets, or too many, or they have no seconds.
    #[must_use]
    pub fn new(window: Window) -> Self {
        assert!(
            (1..=BUCKETS_MAX).contains(&window.buckets) && window.bucket_seconds > 0,
            "a window has 1 to {BUCKETS_MAX} buckets of at least a second"
        );
        let ahead_max = 1 + SKEW_SECONDS_MAX.div_ceil(window.bucket_seconds);
        Self {
            window,
            ahead_max,
            slots: window.buckets + ahead_max,
            head: 0,
            written: 0,
            tally: WindowTally::default(),
        }
    }

    /// The same of which no bucket is kept, now or later.
    pub fn without_buckets(&self) -> Self {
        Self {
            slots: 0,
            head: u32::MAX,
            ..*self
        }
    }

    /// Seconds that a window has at most.
    pub fn window_seconds(&self) -> Tick {
        let Window {
            buckets,
            bucket_seconds,
        } = self.window;
        bucket_seconds.saturating_mul(buckets)
    }

    /// Seconds after its last addition after which no window reaches a bucket, whatever this clock and another one show.
    #[must_use]
    pub fn kept_seconds(&self) -> Tick {
        self.window.bucket_seconds.saturating_mul(self.slots)
    }

    /// The buckets that a read at `tick` sums where nothing tells which is the newest: those of the window, and those of clocks that are ahead.
    #[must_use]
    pub fn read_at(&self, tick: Tick) -> core::ops::RangeInclusive<u32> {
        let now = self.bucket(tick);
        let before = now.saturating_sub(self.window.buckets);
        before + 1..=now.saturating_add(self.ahead_max)
    }

    /// Whether an addition at a bucket comes so late that no window reaches it at `tick`.
    #[must_use]
    pub fn is_over(&self, bucket: u32, tick: Tick) -> bool {
        self.bucket(tick).saturating_sub(self.slots) >= bucket
    }

    /// How many buckets are kept.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The newest bucket that any operation spoke of.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// The bucket of a time.
    #[inline(always)]
    pub fn bucket(&self, tick: Tick) -> u32 {
        (tick / self.window.bucket_seconds).saturating_add(1)
    }

    /// The first second after a bucket.
    #[must_use]
    pub fn end_of(&self, bucket: u32) -> Tick {
        bucket.saturating_mul(self.window.bucket_seconds)
    }

    /// Where a bucket is kept.
    #[inline(always)]
    pub fn slot(&self, bucket: u32) -> u32 {
        bucket % self.slots
    }

    /// Whether a bucket is kept: neither dropped nor none.
    #[inline(always)]
    pub fn keeps(&self, bucket: u32) -> bool {
        bucket > self.dropped() && bucket <= self.head
    }

    /// The first second of each bucket that is kept, the oldest first.
    pub fn kept(&self) -> impl Iterator<Item = Tick> + use<> {
        let seconds = self.window.bucket_seconds;
        (self.dropped() + 1..=self.head).map(move |bucket| (bucket - 1).saturating_mul(seconds))
    }

    /// The newest bucket that is dropped.
    #[inline(always)]
    fn dropped(&self) -> u32 {
        self.head.saturating_sub(self.slots)
    }

    /// The buckets that a read at `tick` sums: those after the first and up to the second. What clocks ahead of this one
    /// added counts.
    #[inline(always)]
    pub fn shown(&self, tick: Tick) -> (u32, u32) {
        self.newest(self.window.buckets, tick)
    }

    /// The same of so many buckets.
    #[inline(always)]
    pub fn newest(&self, buckets: u32, tick: Tick) -> (u32, u32) {
        let before = self.bucket(tick).saturating_sub(buckets);
        (before.max(self.dropped()), self.head)
    }

    /// Whether an addition at `tick` finds its bucket: which one.
    #[inline(always)]
    pub fn add_at(&mut self, tick: Tick) -> Option<u32> {
        let bucket = self.bucket(tick);
        if bucket <= self.dropped() {
            self.tally.expired += 1;
            return None;
        }
        self.write(bucket);
        Some(bucket)
    }

    /// Whether what a member said of a bucket is taken up, at this host's `tick`.
    pub fn accept(&mut self, bucket: u32, tick: Tick) -> bool {
        if !self.advance(bucket, tick) {
            return false;
        }
        if bucket <= self.dropped() {
            self.tally.expired += 1;
            return false;
        }
        self.write(bucket);
        true
    }

    /// A member said that the ring ends at a bucket. Whether that may be, at this host's `tick`.
    pub fn advance(&mut self, bucket: u32, tick: Tick) -> bool {
        if bucket > self.bucket(tick).saturating_add(self.ahead_max) {
            self.tally.ahead += 1;
            return false;
        }
        self.head = self.head.max(bucket);
        true
    }

    #[inline(always)]
    fn write(&mut self, bucket: u32) {
        self.head = self.head.max(bucket);
        self.written = self.written.max(bucket);
    }

    /// Moves the ring on to the bucket of `tick` if that drops something: then the others must be reported, for this is no
    /// addition. Without it, what nobody adds to any more would stay for ever.
    pub fn keep_up(&mut self, tick: Tick) -> bool {
        let now = self.bucket(tick);
        if self.head > now.saturating_add(self.ahead_max) {
            // Nothing would be added here until time catches up with what the clock said.
            (self.head, self.written) = (now, 0);
            self.tally.set_back += 1;
            return false;
        }
        let moves = now > self.head && self.written > self.dropped();
        if moves {
            self.head = now;
        }
        moves
    }

    /// In which bucket what was saved of `bucket` belongs now, if that was `away` seconds ago and the time was `saved` then; `None` if its
    /// time is over.
    pub fn restored(&self, bucket: u32, (saved, away): (Tick, Tick), tick: Tick) -> Option<u32> {
        let began = bucket
            .checked_sub(1)?
            .checked_mul(self.window.bucket_seconds)?;
        let age = saved.saturating_sub(began).saturating_add(away);
        let bucket = self.bucket(tick.checked_sub(age)?);
        let (before, _) = self.shown(tick);
        (bucket > before).then_some(bucket)
    }
}

/// A bucket's number, which is not 0.
pub fn read_bucket(input: &mut Reader<'_>) -> Result<u32, BadBytes> {
    u32::try_from(input.varint()?)
        .ok()
        .filter(|&bucket| bucket > 0)
        .ok_or(BadBytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Window = Window {
        buckets: 3,
        bucket_seconds: 10,
    };

    #[test]
    fn a_window_of_three_buckets_keeps_two_more() {
        let mut ring = Ring::new(WINDOW);
        assert_eq!(
            ring.slots(),
            5,
            "one for the rest of a bucket, one for skew"
        );
        assert_eq!(ring.add_at(95), Some(10));
        assert_eq!(ring.shown(95), (7, 10));
        assert!(ring.accept(12, 95), "a little ahead");
        assert!(!ring.accept(13, 95), "further than clocks may be");
        assert_eq!(ring.shown(95), (7, 12), "the window lost nothing by it");
        assert!(ring.accept(8, 95) && !ring.accept(7, 95));
        assert_eq!((ring.tally.expired, ring.tally.ahead), (1, 1));
        assert_eq!(ring.add_at(60), None);
    }

    #[test]
    fn silence_moves_the_ring_until_nothing_is_kept() {
        let mut ring = Ring::new(WINDOW);
        assert!(!ring.keep_up(95), "nothing to drop");
        ring.add_at(95);
        let moved = (0..1_000)
            .filter(|second| ring.keep_up(95 + second))
            .count();
        assert_eq!(
            moved, 5,
            "once a bucket, until the last addition is dropped"
        );
        assert!(!ring.keeps(10));
    }

    #[test]
    fn a_clock_that_is_set_back_begins_again() {
        let mut ring = Ring::new(WINDOW);
        ring.add_at(10_000);
        assert_eq!(ring.add_at(100), None);
        assert!(!ring.keep_up(100));
        assert_eq!(ring.tally.set_back, 1);
        assert!(!ring.keeps(1_001), "what it said then is of no time now");
        assert_eq!(ring.add_at(100), Some(11));
    }

    #[test]
    fn the_end_of_time_is_no_fault() {
        let mut ring = Ring::new(Window {
            buckets: 1,
            bucket_seconds: 1,
        });
        assert_eq!(ring.add_at(Tick::MAX), Some(u32::MAX));
        assert!(ring.accept(u32::MAX, Tick::MAX) && ring.keeps(u32::MAX));
        assert!(!ring.keep_up(Tick::MAX));
        assert!(!ring.accept(1, Tick::MAX));
        assert_eq!(ring.restored(u32::MAX, (0, u32::MAX), 5), None);
    }

    proptest! {
        /// What is kept is decided by what was said, in whatever order.
        #[test]
        fn what_is_kept_does_not_depend_on_the_order(mut buckets in prop::collection::vec(1u32..40, 1..20), by: usize) {
            let kept = |buckets: &[u32]| {
                let mut ring = Ring::new(WINDOW);
                for &bucket in buckets {
                    ring.accept(bucket, 400);
                }
                (1..50).filter(|&bucket| ring.keeps(bucket)).collect::<Vec<_>>()
            };
            let straight = kept(&buckets);
            let by = by % buckets.len();
            buckets.rotate_left(by);
            prop_assert_eq!(&straight, &kept(&buckets));
            buckets.reverse();
            prop_assert_eq!(&straight, &kept(&buckets));
        }

        #[test]
        fn what_was_saved_keeps_its_age(bucket in 1u32..100, saved in 0u32..1_000, away in 0u32..50, now in 0u32..5_000) {
            let ring = Ring::new(WINDOW);
            let began = (bucket - 1) * 10;
            let age = saved.saturating_sub(began) + away;
            let restored = ring.restored(bucket, (saved, away), now);
            prop_assert_eq!(restored.is_some(), age <= now && (now - age) / 10 + 3 > now / 10);
            if let Some(restored) = restored {
                prop_assert_eq!(restored, (now - age) / 10 + 1);
            }
        }
    }
}
