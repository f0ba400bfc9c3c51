//! The retransmission timer of a connection (RFC 6298).

use core::time::Duration;

/// The timer before the first measurement (RFC 6298 §2.1).
const INITIAL_US: u64 = 1_000_000;
/// The shortest timer. RFC 6298 §2.4 says a second; Linux takes 200 ms, as here.
pub const RETRANSMIT_MIN: Duration = Duration::from_millis(200);
/// The longest timer (RFC 6298 §2.5).
pub const RETRANSMIT_MAX: Duration = Duration::from_secs(60);
const MIN_US: u64 = RETRANSMIT_MIN.as_micros() as u64;
const MAX_US: u64 = RETRANSMIT_MAX.as_micros() as u64;

/// What was measured, and the timer that follows from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetransmitTimer {
    smoothed_us: u64,
    variation_us: u64,
    timer_us: u64,
}

impl RetransmitTimer {
    pub(super) const fn new() -> RetransmitTimer {
        RetransmitTimer {
            smoothed_us: 0,
            variation_us: 0,
            timer_us: INITIAL_US,
        }
    }

    /// Takes the round trip of a segment that was sent once (§2.2, §2.3, §3).
    pub(super) fn measure(&mut self, us: u64) {
        if self.smoothed_us == 0 {
            (self.smoothed_us, self.variation_us) = (us.max(1), us / 2);
        } else {
            let difference = self.smoothed_us.abs_diff(us);
            self.variation_us = (3 * self.variation_us + difference) / 4;
            self.smoothed_us = ((7 * self.smoothed_us + us) / 8).max(1);
        }
        self.timer_us = (self.smoothed_us + 4 * self.variation_us).clamp(MIN_US, MAX_US);
    }

    /// The timer ran out (§5.5).
    pub(super) fn back_off(&mut self) {
        self.timer_us = (2 * self.timer_us).min(MAX_US);
    }

    /// The timer now.
    pub(super) const fn us(&self) -> u64 {
        self.timer_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_follows_measurements_and_doubles_within_its_bounds() {
        let mut timer = RetransmitTimer::new();
        assert_eq!(timer.us(), 1_000_000);
        timer.measure(300_000);
        assert_eq!(timer.us(), 300_000 + 4 * 150_000);
        timer.measure(300_000);
        assert_eq!(timer.us(), 300_000 + 4 * 112_500);
        let mut fast = RetransmitTimer::new();
        fast.measure(50);
        assert_eq!(fast.us(), MIN_US);
        for doubling in 1..20 {
            fast.back_off();
            assert_eq!(fast.us(), (MIN_US << doubling).min(MAX_US));
        }
    }
}
