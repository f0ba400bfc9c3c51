//! The one clock of the I/O layer. Everything else takes [`Time`] as an argument.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use asterism_placement::Time;
use rustix::time::{ClockId, clock_gettime};

/// Reads the machine's clock since it was started (`CLOCK_BOOTTIME`) as [`Time`] since this clock was made.
///
/// Copies share their zero: make one at the start of a host and hand copies to all its threads, so that a
/// time one thread reads means the same to the others. It never goes back and does not jump when somebody
/// sets the machine's date. It goes on while the machine is suspended: a host that wakes up knows that its lease has run out
/// and that entries have idled. A reading costs some 20 ns and no system call.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    zero: Duration,
    wall_at_zero: Duration,
}

impl MonotonicClock {
    /// A clock that shows [`Time::ZERO`] now.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it reads the clock: say so")]
    pub fn new() -> Self {
        Self {
            zero: since_boot(),
            wall_at_zero: date(),
        }
    }

    /// Whole microseconds since [`MonotonicClock::new`].
    #[must_use]
    #[inline]
    pub fn now(&self) -> Time {
        Time::ZERO.saturating_add(since_boot().saturating_sub(self.zero))
    }

    /// Seconds since 1970 by the machine's date, read now. It may jump: use it for what people read, and once,
    /// by [`MonotonicClock::wall_at_zero`], for the base of ticks. Zero if the date is before 1970.
    #[must_use]
    pub fn wall(&self) -> u64 {
        date().as_secs()
    }

    /// Microseconds since 1970 at this clock's zero by the machine's date as it is now: it changes when somebody corrects the date.
    #[must_use]
    pub fn date_at_zero_us(&self) -> i64 {
        let date = i64::try_from(date().as_micros()).unwrap_or(i64::MAX);
        date.saturating_sub(self.now().as_micros() as i64)
    }

    /// Seconds since 1970 at this clock's zero, as the machine's date was then: what
    /// `tick_at_zero` of a host's configuration takes. Reads no clock.
    #[must_use]
    pub fn wall_at_zero(&self) -> u32 {
        u32::try_from(self.wall_at_zero.as_secs()).unwrap_or(u32::MAX)
    }
}

#[inline]
fn since_boot() -> Duration {
    let read = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(read.tv_sec).unwrap_or(0),
        u32::try_from(read.tv_nsec).unwrap_or(0),
    )
}

#[allow(
    clippy::disallowed_methods,
    reason = "this file is where the I/O layer reads the date"
)]
fn date() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_their_zero_and_time_goes_on() {
        let clock = MonotonicClock::new();
        let copy = clock;
        let first = clock.now();
        let other = std::thread::spawn(move || {
            let begin = copy.now();
            while copy.now() - begin < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
            copy.now()
        })
        .join()
        .unwrap();
        assert!(other - first >= Duration::from_millis(2));
        assert!(clock.now() >= other, "a reading after the join is later");
        assert!(clock.now() - first < Duration::from_secs(60));
    }

    /// Whatever the machine's date is: a test must pass on one that has none.
    #[test]
    fn the_date_is_read_in_two_ways_that_agree() {
        let clock = MonotonicClock::new();
        let date_s = clock.date_at_zero_us() / 1_000_000;
        assert!(clock.wall().abs_diff(date_s as u64) <= 2);
        assert!(u64::from(clock.wall_at_zero()).abs_diff(date_s as u64) <= 2);
    }
}
