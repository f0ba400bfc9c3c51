//! The bandwidth cap: a token bucket that may go into debt by one datagram and its copies.

use std::time::Duration;

use asterism_placement::Time;

/// What may leave at once after a silence, as a time at the capped rate. Over any span of T seconds a capped
/// host sends at most `rate * (T + PACE_BURST)` bits and one datagram with its copies.
pub const PACE_BURST: Duration = Duration::from_millis(5);

/// Credit is counted in millionths of a bit: microseconds times bits per second.
const PARTS: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Pace {
    /// Bits per second; 0 for no cap.
    rate: i64,
    credit: i64,
    at: Time,
}

impl Pace {
    pub(super) fn new(bits_per_second: Option<u64>) -> Self {
        Self {
            rate: bits_per_second.unwrap_or(0) as i64,
            credit: 0,
            at: Time::ZERO,
        }
    }

    /// Whether something may leave now.
    pub(super) fn may_send(&mut self, now: Time) -> bool {
        if self.rate == 0 {
            return true;
        }
        let most = self.rate.saturating_mul(PACE_BURST.as_micros() as i64);
        let elapsed = now.since(self.at).as_micros().min(1_000_000) as i64;
        self.at = self.at.max(now);
        self.credit = self
            .credit
            .saturating_add(self.rate.saturating_mul(elapsed))
            .min(most);
        self.credit >= 0
    }

    /// So many bytes are on their way.
    pub(super) fn spend(&mut self, bytes: usize) {
        if self.rate != 0 {
            self.credit = self.credit.saturating_sub(bytes as i64 * 8 * PARTS);
        }
    }

    /// When something may leave again; `None` if it may as of the last question.
    pub(super) fn next(&self) -> Option<Time> {
        (self.rate != 0 && self.credit < 0).then(|| {
            let wait = self.credit.unsigned_abs().div_ceil(self.rate as u64);
            self.at + Duration::from_micros(wait)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cap_everything_leaves() {
        let mut pace = Pace::new(None);
        pace.spend(usize::MAX >> 8);
        assert!(pace.may_send(Time::ZERO));
        assert_eq!(pace.next(), None);
    }

    #[test]
    fn over_any_span_the_stated_bound_holds() {
        for rate in [64_000u64, 10_000_000, 1_000_000_000] {
            let mut pace = Pace::new(Some(rate));
            let bytes = 1_500;
            let (mut now, mut sent) = (Time::from_micros(7_000_000), Vec::new());
            let end = now + Duration::from_secs(2);
            while now < end {
                while pace.may_send(now) {
                    pace.spend(bytes);
                    sent.push(now);
                }
                now = pace.next().unwrap().max(now + Duration::from_micros(1));
            }
            let bits = (sent.len() * bytes * 8) as f64;
            let least = rate as f64 * 2.0 * 0.99 - (bytes * 8) as f64;
            let most = rate as f64 * (2.0 + PACE_BURST.as_secs_f64()) + (bytes * 8) as f64;
            assert!((least..=most).contains(&bits), "{rate}: {bits}");
        }
    }

    #[test]
    fn a_clock_that_stands_or_jumps_gives_no_more_than_the_burst() {
        let mut pace = Pace::new(Some(1_000_000_000));
        assert!(pace.may_send(Time::from_micros(50)));
        pace.spend(10_000_000);
        assert!(!pace.may_send(Time::from_micros(50)));
        assert!(!pace.may_send(Time::from_micros(10)), "an earlier reading");
        assert!(pace.may_send(Time::MAX));
        pace.spend(1_000_000);
        assert!(!pace.may_send(Time::MAX));
    }
}
