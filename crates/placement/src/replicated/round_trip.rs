//! Round trips to a member and the retransmission timeout that follows from them (RFC 6298 section 2).

use core::time::Duration;

use super::progress::RoundTrip;
use crate::Time;
use crate::mutant::{self, Mutant};

/// The timeout before the first measurement, unless the bounds say otherwise.
const TIMEOUT_INITIAL: Duration = Duration::from_millis(250);
/// Backing off doubles the timeout at most so often; the configured maximum ends it sooner.
const BACKOFF_MAX: u32 = 20;

/// The shortest round trip is that of the last one to two times so long: paths change.
const SHORTEST_KEPT: Duration = Duration::from_secs(15);

impl RoundTrip {
    /// After a measurement: what is the shortest now, and whether the path is congested. It is while the average is longer than
    /// the shortest by `above` and a quarter of the shortest, until it falls below half of that.
    pub(super) fn judge(&mut self, now: Time, above: Duration) {
        let is_first = self.shortest_since == Time::ZERO;
        if is_first || now.since(self.shortest_since) >= SHORTEST_KEPT {
            let before = if is_first {
                self.last
            } else {
                self.shortest[1]
            };
            self.shortest = [before, self.last];
            self.shortest_since = now;
        }
        self.shortest[1] = self.shortest[1].min(self.last);
        let most = self.excess_max(above);
        let most = if self.congested { most / 2 } else { most };
        self.congested = self.average > self.shortest() + most;
    }

    /// The shortest round trip of late.
    pub(super) fn shortest(&self) -> Duration {
        self.shortest[0].min(self.shortest[1])
    }

    /// How much longer than the shortest the average may be.
    pub(super) fn excess_max(&self, above: Duration) -> Duration {
        above + self.shortest() / 4
    }

    /// A round trip of what was sent at `sent_at`, and whether it counts. Of one longer than `most`, the longest timeout, either the
    /// path or a host that stood still is the cause, and everything that was under way meanwhile says the same. So what was sent
    /// until the first of them came is left out: what was sent since tells of the path. That counts as `most`, or it would put off
    /// repairs for longer than they may wait.
    pub(super) fn take(
        &mut self,
        now: Time,
        sent_at: Time,
        sample: Duration,
        most: Duration,
    ) -> bool {
        if sample <= most {
            self.overlong_since = None;
        } else {
            let since = *self.overlong_since.get_or_insert(now);
            if sent_at <= since && !mutant::active(Mutant::StandstillCounts) {
                return false;
            }
        }
        self.measured(sample.min(most));
        true
    }

    /// One more measurement.
    fn measured(&mut self, sample: Duration) {
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
    /// and not as overtaken (after RFC 8985 section 6.2, widened by the measured jitter). Like there it is bounded by a round
    /// trip, the shortest of late: after a host stood still for a while what was measured is wide and tells nothing of the path.
    pub(super) fn reordering(&self) -> Duration {
        if mutant::active(Mutant::HiccupDelaysRepair) {
            return self.jitter();
        }
        self.jitter().min(self.shortest())
    }

    fn jitter(&self) -> Duration {
        self.minimum / 4 + self.deviation * 2
    }

    /// How long after it was sent a message in a gap counts as lost: a round trip, and what it may be overtaken by.
    ///
    /// While changes are held back, because the path is congested, that is as long as round trips vary: its queue is full, and what is
    /// sent into it again sooner is lost again.
    pub(super) fn lost_after(&self, is_held_back: bool) -> (Duration, Duration) {
        if is_held_back {
            (self.average, self.jitter())
        } else {
            (self.average.min(self.last), self.reordering())
        }
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

    #[test]
    fn what_was_under_way_while_a_host_stood_still_is_left_out() {
        let (most, usual) = (Duration::from_millis(200), Duration::from_millis(20));
        let at = |ms: u64| Time::from_micros(ms * 1000);
        let mut round_trip = RoundTrip::default();
        let came = |round_trip: &mut RoundTrip, sent_ms: u64, now_ms: u64| {
            let sample = Duration::from_millis(now_ms - sent_ms);
            round_trip.take(at(now_ms), at(sent_ms), sample, most)
        };
        // The first of all too: nothing is known then.
        assert!(!came(&mut round_trip, 10, 900));
        assert_eq!(round_trip.samples, 0);
        assert!(came(&mut round_trip, 901, 921));
        assert_eq!(round_trip.average, usual);
        // Two seconds: what was sent before and meanwhile, and what was sent after.
        for sent_ms in (1000..3000).step_by(10) {
            assert!(
                !came(&mut round_trip, sent_ms, 3000 + (sent_ms - 1000) / 100) || sent_ms > 2800
            );
        }
        assert!(came(&mut round_trip, 3021, 3041));
        assert!(round_trip.average < usual * 4, "{round_trip:?}");
        // A path that is as long counts once what was sent since the first of it comes back, as the longest timeout.
        for sent_ms in 5000..5300 {
            assert!(!came(&mut round_trip, sent_ms, sent_ms + 300));
        }
        for sent_ms in 5301..5400 {
            assert!(came(&mut round_trip, sent_ms, sent_ms + 300));
        }
        assert!(round_trip.average > most * 9 / 10 && round_trip.average <= most);
    }

    #[test]
    fn the_mark_follows_the_average_and_the_shortest_follows_the_path() {
        let above = Duration::from_millis(2);
        let mut round_trip = RoundTrip::default();
        let mut now = Time::from_micros(1);
        let mut take = |sample_ms: u64, round_trip: &mut RoundTrip| {
            now = now + Duration::from_millis(100);
            round_trip.measured(Duration::from_millis(sample_ms));
            round_trip.judge(now, above);
            round_trip.congested
        };
        for _ in 0..50 {
            assert!(!take(4, &mut round_trip));
        }
        assert!(
            !take(20, &mut round_trip),
            "one late message is no congestion"
        );
        for _ in 0..3 {
            take(20, &mut round_trip);
        }
        assert!(round_trip.congested, "{round_trip:?}");
        // 3 ms beyond the shortest mark, half of it unmarks.
        while round_trip.average > Duration::from_micros(5_500) {
            assert!(round_trip.congested);
            take(4, &mut round_trip);
        }
        assert!(!round_trip.congested);
        // Another path, ten times as long: congested at first, until the last of the old one is one period old, or two.
        let marked = (0..400).filter(|_| take(40, &mut round_trip)).count();
        assert!((150..=300).contains(&marked), "{marked} samples of 100 ms");
        assert_eq!(round_trip.shortest().as_millis(), 40);
        assert_eq!(round_trip.minimum.as_millis(), 4);
    }
}
