//! How late a link was itself: microseconds between when a frame was due and when it was handed to the kernel.

use crate::error::LabError;

/// Up to here every microsecond has a bucket of its own.
const EXACT_US: u64 = 128;
/// Beyond, every doubling has so many buckets: a value is known to 3 %.
const BUCKETS_PER_DOUBLING: u64 = 32;
/// Doublings from `EXACT_US` on; the last bucket takes what is above (2,300 s).
const DOUBLINGS: u64 = 24;

/// A histogram of lateness.
#[derive(Clone, PartialEq, Eq)]
pub struct Lateness {
    buckets: Vec<u64>,
    frames: u64,
    worst_us: u64,
}

impl core::fmt::Debug for Lateness {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Lateness({} frames, p50 {} us, p99 {} us, p99.9 {} us, worst {} us)",
            self.frames,
            self.at_most_us(0.5),
            self.at_most_us(0.99),
            self.at_most_us(0.999),
            self.worst_us
        )
    }
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness {
            buckets: vec![0; (EXACT_US + DOUBLINGS * BUCKETS_PER_DOUBLING) as usize],
            frames: 0,
            worst_us: 0,
        }
    }
}

impl Lateness {
    pub(crate) fn record(&mut self, late_us: u64) {
        self.buckets[bucket_of(late_us)] += 1;
        self.frames += 1;
        self.worst_us = self.worst_us.max(late_us);
    }

    pub(crate) fn clear(&mut self) {
        self.buckets.fill(0);
        self.frames = 0;
        self.worst_us = 0;
    }

    /// Frames that were timed.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The longest lateness in microseconds.
    #[must_use]
    pub fn worst_us(&self) -> u64 {
        self.worst_us
    }

    /// The microseconds within which `share` (0 to 1) of the frames left; 0 when there was none. Exact to 3 %, from above.
    #[must_use]
    pub fn at_most_us(&self, share: f64) -> u64 {
        let wanted = (self.frames as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (place, frames) in self.buckets.iter().enumerate() {
            seen += frames;
            if seen >= wanted && *frames > 0 {
                return end_of(place).min(self.worst_us);
            }
        }
        self.worst_us
    }

    /// An error if 99 % of the frames did not leave within `bound_us`, or if none was timed: then nothing was tried.
    pub fn within(&self, bound_us: u64) -> Result<(), LabError> {
        let p99_us = self.at_most_us(0.99);
        if self.frames == 0 || p99_us > bound_us {
            return Err(LabError::Late { p99_us, bound_us });
        }
        Ok(())
    }
}

fn bucket_of(late_us: u64) -> usize {
    let late_us = late_us.min((EXACT_US << DOUBLINGS) - 1);
    if late_us < EXACT_US {
        return late_us as usize;
    }
    let doubling = u64::from(late_us.ilog2() - EXACT_US.ilog2());
    let within = (late_us - (EXACT_US << doubling)) * BUCKETS_PER_DOUBLING / (EXACT_US << doubling);
    (EXACT_US + doubling * BUCKETS_PER_DOUBLING + within) as usize
}

/// The largest value of a bucket.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT_US {
        return bucket;
    }
    let doubling = (bucket - EXACT_US) / BUCKETS_PER_DOUBLING;
    let within = (bucket - EXACT_US) % BUCKETS_PER_DOUBLING;
    let width = (EXACT_US << doubling) / BUCKETS_PER_DOUBLING;
    (EXACT_US << doubling) + (within + 1) * width - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_buckets_that_contain_them() {
        for value in (0..100_000).chain([1 << 20, (1 << 30) - 1, u64::MAX >> 20]) {
            let end = end_of(bucket_of(value));
            assert!(end >= value.min(1 << 30), "{value} ends at {end}");
            assert!(end <= value + value / 30 + 1, "{value} ends at {end}");
        }
        assert_eq!(bucket_of(u64::MAX), bucket_of(1 << 60));
    }

    #[test]
    fn shares_are_read_and_bounds_judged() {
        let mut lateness = Lateness::default();
        assert!(lateness.within(1_000_000).is_err(), "nothing was tried");
        for _ in 0..985 {
            lateness.record(7);
        }
        for _ in 0..15 {
            lateness.record(3_000);
        }
        assert_eq!(lateness.at_most_us(0.5), 7);
        assert_eq!(lateness.at_most_us(0.98), 7);
        assert_eq!(lateness.at_most_us(0.99), 3_000);
        assert_eq!((lateness.frames(), lateness.worst_us()), (1_000, 3_000));
        assert!(lateness.within(3_000).is_ok());
        let sentence = lateness.within(2_999).unwrap_err().to_string();
        assert!(
            sentence.contains("3000 µs") && sentence.contains("counts for nothing"),
            "{sentence}"
        );
        lateness.clear();
        assert_eq!(lateness, Lateness::default());
    }
}
