//! A point of time in whole microseconds, as anyone who drives a protocol core reads it from its clock.
//!
//! The zero is the driver's business (start of process, start of simulation). Values of two members are never compared:
//! a member's timestamps travel only to be echoed back to it.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// Microseconds since a zero of the driver's choosing. All arithmetic saturates: no input overflows or panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The earliest time.
    pub const ZERO: Time = Time(0);
    /// Later than everything: "never", when used as a deadline.
    pub const MAX: Time = Time(u64::MAX);

    /// A time of so many microseconds after the zero.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Time {
        Time(micros)
    }

    /// Microseconds since the zero.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This time plus `duration`, or [`Time::MAX`]. Parts of a microsecond are cut off.
    #[must_use]
    pub const fn saturating_add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(micros(duration)))
    }

    /// This time less `duration`, or [`Time::ZERO`].
    #[must_use]
    pub const fn saturating_sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(micros(duration)))
    }

    /// How long after `earlier` this is; zero when it is not after.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Whole microseconds of a duration, at most `u64::MAX`.
const fn micros(duration: Duration) -> u64 {
    let micros = duration.as_micros();
    if micros > u64::MAX as u128 {
        u64::MAX
    } else {
        micros as u64
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        self.saturating_add(duration)
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, duration: Duration) -> Time {
        self.saturating_sub(duration)
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::from_micros(5) - Duration::from_micros(6), Time::ZERO);
        assert_eq!(Time::ZERO + Duration::MAX, Time::MAX);
        assert_eq!(Time::from_micros(3) - Time::from_micros(9), Duration::ZERO);
        assert_eq!(
            Time::from_micros(9) - Time::from_micros(3),
            Duration::from_micros(6)
        );
    }

    #[test]
    fn shows_seconds() {
        assert_eq!(Time::from_micros(12_000_034).to_string(), "12.000034s");
    }
}
