//! Round trips to a member and the retransmission timeout that follows from them (RFC 6298 section 2).

use core::time::Duration;

use super::progress::RoundTrip;

/// The timeout before the first measurement, unless the bounds say otherwise.
const TIMEOUT_INITIAL: Duration = Duration::from_millis(250);
/// Backing off doubles the timeout at most so often; the configured maximum ends it sooner.
const BACKOFF_MAX: u32 = 20;

impl RoundTrip {
    /// One more measurement.
    pub(super) fn measured(&mut self, sample: Duration) {
        self.last = sample;
        if self.samples == 0 {
            self.minimum = sample;
            self.average = sample;
            self.deviation = sample / 2;
        } else {
            self.minimum = self.minimum.min(sample);
            self.deviation = (self.deviation * 3 + self.average.abs_diff(sample)) / 4;
            self.average = (self.average * 7 + sample) / 8;
        }
        self.samples += 1;
    }

    /// How long to wait for an acknowledgement that may itself be delayed by `acknowledge_delay`.
    pub(super) fn timeout(
        &self,
        acknowledge_delay: Duration,
        backoff: u32,
        least: Duration,
        most: Duration,
    ) -> Duration {
        let base = match self.samples {
            0 => TIMEOUT_INITIAL,
            _ => self.average + self.deviation * 4 + acknowledge_delay,
        };
        base.max(least)
            .saturating_mul(1 << backoff.min(BACKOFF_MAX))
            .min(most)
    }

    /// How much later than a lost message another one must have been sent, and echoed, before the first counts as lost
    /// and not as overtaken (after RFC 8985 section 6.2, widened by the measured jitter).
    pub(super) fn reordering(&self) -> Duration {
        self.minimum / 4 + self.deviation * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_rfc_and_its_bounds() {
        let (least, most, delay) = (
            Duration::from_millis(2),
            Duration::from_secs(1),
            Duration::from_millis(1),
        );
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.timeout(delay, 0, least, most), TIMEOUT_INITIAL);
        round_trip.measured(Duration::from_millis(80));
        assert_eq!(
            round_trip.timeout(delay, 0, least, most),
            Duration::from_millis(241)
        );
        for _ in 0..100 {
            round_trip.measured(Duration::from_millis(80));
        }
        assert_eq!(round_trip.timeout(delay, 0, least, most).as_millis(), 81);
        assert_eq!(round_trip.timeout(delay, 1, least, most).as_millis(), 162);
        assert_eq!(round_trip.timeout(delay, u32::MAX, least, most), most);
        round_trip.measured(Duration::from_millis(40));
        assert_eq!(
            (
                round_trip.minimum.as_millis(),
                round_trip.average.as_millis()
            ),
            (40, 75)
        );
    }
}
