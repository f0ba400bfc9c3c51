//! Dates of what happened: the cluster's time, by which entries idle out, and the date of this machine, which people and collectors
//! read. They may be hours apart, and the date may be corrected while the host runs; so the difference is taken when something is
//! shown, and a time of the cluster is never shown as a date.

use asterism_engine::transport::ChannelSnapshot;
use asterism_function::Tick;
use asterism_io::clock::MonotonicClock;
use asterism_placement::Time;

/// The date and the cluster's time count as one while they are closer: what is shown does not waver by a second.
const ALIKE_US: u64 = 2_000_000;

/// What a host's clock, the cluster's time and the date have to do with each other now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// The cluster's time at zero of the host's clock, in microseconds since 1970.
    pub cluster_at_zero_us: i64,
    /// The date at zero of the host's clock, as the date is now.
    pub date_at_zero_us: i64,
}

impl Dates {
    /// As they are now.
    #[must_use]
    pub fn now(clock: MonotonicClock, channel: &ChannelSnapshot) -> Dates {
        Dates {
            cluster_at_zero_us: channel.cluster_time_at_zero_us,
            date_at_zero_us: clock.date_at_zero_us(),
        }
    }

    /// Seconds of the cluster's time at a time of the host's clock.
    #[must_use]
    pub fn tick(&self, at: Time) -> Tick {
        Tick::try_from(self.cluster_us(at) / 1_000_000).unwrap_or(Tick::MAX)
    }

    /// The cluster's time at a time of the host's clock, in microseconds since 1970.
    #[must_use]
    pub fn cluster_us(&self, at: Time) -> u64 {
        from_zero(self.cluster_at_zero_us, at)
    }

    /// By how many microseconds the date is ahead of the cluster's time; none while they are alike.
    #[must_use]
    pub fn date_ahead_us(&self) -> i64 {
        let ahead_us = self.date_at_zero_us.saturating_sub(self.cluster_at_zero_us);
        if ahead_us.unsigned_abs() < ALIKE_US {
            0
        } else {
            ahead_us
        }
    }

    /// The date of a second of the cluster's time, in seconds since 1970.
    #[must_use]
    pub fn date_s(&self, tick: Tick) -> u64 {
        // To the nearest second.
        let ahead_s = self
            .date_ahead_us()
            .saturating_add(500_000)
            .div_euclid(1_000_000);
        i64::from(tick).saturating_add(ahead_s).max(0) as u64
    }

    /// The same for what has 32 bits for it.
    #[must_use]
    pub fn date_s32(&self, tick: Tick) -> Tick {
        Tick::try_from(self.date_s(tick)).unwrap_or(Tick::MAX)
    }

    /// The date at a time of the host's clock, in microseconds since 1970.
    #[must_use]
    pub fn date_us(&self, at: Time) -> u64 {
        from_zero(self.date_at_zero_us, at)
    }
}

/// Microseconds since 1970 at a time of a clock whose zero was then.
fn from_zero(zero_us: i64, at: Time) -> u64 {
    let since_zero_us = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    zero_us.saturating_add(since_zero_us).max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;
    const AT: Time = Time::from_micros(50_000_000);

    #[test]
    fn a_host_six_hours_ahead_shows_its_own_date_and_counts_the_clusters_seconds() {
        let dates = Dates {
            cluster_at_zero_us: 1_000_000 * S,
            date_at_zero_us: 1_021_600 * S + 300_000,
        };
        assert_eq!(dates.tick(AT), 1_000_050);
        assert_eq!(dates.date_us(AT), 1_021_650_300_000);
        assert_eq!(dates.date_s(1_000_050), 1_021_650, "the same moment");
        // Somebody corrects the date.
        let corrected = Dates {
            date_at_zero_us: 1_000_000 * S + 900_000,
            ..dates
        };
        assert_eq!(corrected.tick(AT), 1_000_050, "no entry notices");
        assert_eq!(
            corrected.date_s(1_000_040),
            1_000_040,
            "what was before, too"
        );
        assert_eq!(corrected.date_us(AT), 1_000_050_900_000);
    }

    #[test]
    fn no_date_is_before_1970_and_none_overflows() {
        let dates = Dates {
            cluster_at_zero_us: 1_700_000_000 * S,
            date_at_zero_us: 0,
        };
        assert_eq!(dates.date_s(1_699_999_990), 0);
        assert_eq!(dates.date_s(1_700_000_007), 7);
        let dates = Dates {
            cluster_at_zero_us: -5 * S,
            date_at_zero_us: i64::MAX,
        };
        assert_eq!((dates.tick(Time::ZERO), dates.date_s32(9)), (0, Tick::MAX));
        assert_eq!(dates.date_us(Time::MAX), i64::MAX as u64);
    }
}
