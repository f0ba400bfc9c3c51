//! When accumulators may log what changed: at once while the path is free, in rounds while it is congested (Constellation
//! section 4.2, "adaptive bandwidth optimization").
//!
//! A cell that changes ten times before it is logged travels once. So on a congested path instances keep changes back for a
//! *window*: it opens when they drained what had changed, and closes when all members that keep pace have that, or when its
//! length is over. What was logged is never touched (RULES 12), and nothing but accumulators waits.
//!
//! Rounds are numbered, and an instance may drain once in each: none is passed over because another one was faster. How much
//! all may drain in a round is bounded by what the path takes in some ten milliseconds: more would only fill queues, before
//! which all else waits, until they overflow. The rest goes on changing where it is.

use core::time::Duration;

use crate::Time;
use crate::mutant::{self, Mutant};

use super::counters::Counters;

/// How long a path must have been free before changes go at once again, the first time.
const CALM_MIN: Duration = Duration::from_millis(20);
/// The longest such time; it doubles while the path is congested again soon.
const CALM_MAX: Duration = Duration::from_secs(1);
/// So soon.
const RELAPSE: Duration = Duration::from_secs(1);
/// What a round's bytes may take beyond a round trip and that again.
const QUEUE_TARGET: Duration = Duration::from_millis(10);
/// Bytes that may be drained in a round: at first, at least, and at most.
const ROUND_BYTES: u64 = 64 << 10;
const ROUND_BYTES_MIN: u64 = 16 << 10;
const ROUND_BYTES_MAX: u64 = 1 << 30;
/// The shortest time over which the throughput is measured.
const SAMPLE_MIN: Duration = Duration::from_millis(1);

/// The window in which accumulators keep back what changes, as [`Replicator::window`](super::Replicator::window) tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// An instance that has drained in this round keeps changes back until there is another one. Zero: none need to.
    pub round: u64,
    /// How long the window lasts at most, from when it opened; [`Config::coalescing_max`](super::Config::coalescing_max) at
    /// the most, zero while no changes are kept back.
    pub length: Duration,
    /// When it opened.
    pub opened: Time,
    /// The own groups that instances drained in this round end here; `None` until one did.
    pub drained: Option<u64>,
    /// Bytes that instances may drain in this round, all together; zero while no changes are kept back.
    pub bytes: u64,
}

/// What is known of the way to the members that keep pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// Nobody is there.
    pub(super) is_empty: bool,
    /// It is congested.
    pub(super) pressed: bool,
    /// How long an acknowledgement of a small message takes.
    pub(super) round_trip: Duration,
    /// How long it takes at least.
    pub(super) round_trip_min: Duration,
    /// How much longer than that the average may be before it is congested.
    pub(super) excess_max: Duration,
    /// All of them have received the own stream up to here.
    pub(super) received: u64,
    /// It was sent up to here.
    pub(super) sent: u64,
    /// The last own group.
    pub(super) head: u64,
    /// Bytes of the own stream up to `received`, since the start.
    pub(super) passed: u64,
    /// Bytes of the own stream beyond.
    pub(super) outstanding: u64,
}

/// The open window, and what the next one is made by.
#[derive(Clone, Debug, Default)]
pub(super) struct Coalescing {
    window: Window,
    rounds: u64,
    /// The least length of the next window: doubles when one ran out.
    grown: Duration,
    /// Bytes that may be drained in the next round.
    bytes: u64,
    /// When an instance last said that it drained, and the bytes that were under way then.
    drained_at: Time,
    under_way: u64,
    /// An instance had more to drain than it might.
    is_short: bool,
    calm_since: Option<Time>,
    calm_needed: Duration,
    /// When changes last began to go at once again.
    freed: Option<Time>,
    throughput: Throughput,
}

/// Bytes a second that all members that keep pace received, while something was under way.
#[derive(Clone, Debug, Default)]
struct Throughput {
    average: Option<u64>,
    at: Time,
    passed: u64,
    is_busy: bool,
}

impl Throughput {
    fn measure(&mut self, now: Time, path: &Path) {
        let elapsed = now.since(self.at);
        if elapsed < path.round_trip.max(SAMPLE_MIN) {
            return;
        }
        let is_busy = path.outstanding > 0;
        // Members come and go, and with them what all have.
        if self.is_busy && is_busy && path.passed >= self.passed {
            let bytes = u128::from(path.passed - self.passed);
            let sample = (bytes * 1_000_000 / elapsed.as_micros().max(1)) as u64;
            self.average = Some(match self.average {
                None => sample,
                Some(average) => average - average / 4 + sample / 4,
            });
        }
        (self.at, self.passed, self.is_busy) = (now, path.passed, is_busy);
    }

    /// How long what is under way takes; `None` if that is not known.
    fn time_for(&self, bytes: u64) -> Option<Duration> {
        let average = self.average.filter(|&average| average > 0)?;
        let micros = u128::from(bytes) * 1_000_000 / u128::from(average);
        Some(Duration::from_micros(micros.min(1 << 40) as u64))
    }
}

impl Coalescing {
    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// Whether the path has to be looked at though nothing presses.
    pub(super) fn is_open(&self) -> bool {
        self.window.round != 0
    }

    /// An instance says that all that had changed is logged, or as much as may be; `whole` says which.
    pub(super) fn drained(
        &mut self,
        now: Time,
        (round, whole): (u64, bool),
        path: &Path,
        most: Duration,
    ) {
        if round != self.window.round || round == 0 {
            return;
        }
        self.window.drained = Some(path.head);
        (self.drained_at, self.under_way) = (now, path.outstanding);
        self.is_short |= !whole;
        let expected = self.throughput.time_for(path.outstanding);
        let expected = expected.map_or(most, |time| time + path.round_trip);
        self.window.length = expected.max(self.grown).min(most);
    }

    /// When the window closes whatever is acknowledged; `None` while none is open, and while what was drained was not even
    /// sent: more of it would only wait behind that.
    pub(super) fn closes_at(&self, sent: u64) -> Option<Time> {
        let Window {
            round,
            length,
            opened,
            drained,
            ..
        } = self.window;
        let is_sent = drained.is_none_or(|through| through <= sent);
        (round != 0 && is_sent && !mutant::active(Mutant::WindowWithoutEnd))
            .then_some(opened + length)
    }

    /// Opens and closes the window as the path is now.
    pub(super) fn turn(&mut self, now: Time, path: &Path, most: Duration, counters: &mut Counters) {
        if path.is_empty || most.is_zero() {
            self.window = Window::default();
            return;
        }
        if path.pressed {
            self.calm_since = None;
        } else {
            self.calm_since.get_or_insert(now);
        }
        if self.window.round == 0 {
            if path.pressed {
                counters.coalescing_begun += 1;
                self.calm_needed = match self.freed {
                    Some(freed) if now.since(freed) < RELAPSE => {
                        (self.calm_needed * 2).min(CALM_MAX)
                    }
                    _ => CALM_MIN,
                };
                self.grown = Duration::ZERO;
                self.bytes = ROUND_BYTES;
                self.throughput = Throughput::default();
                self.throughput.measure(now, path);
                self.open(now, path.round_trip.min(most));
            }
            return;
        }
        self.throughput.measure(now, path);
        let drained = self.window.drained;
        let has_all = drained.is_some_and(|through| through <= path.received);
        let elapsed = now.since(self.window.opened);
        if has_all && !mutant::active(Mutant::WindowIgnoresAcknowledgement) {
            counters.windows_acknowledged += 1;
            self.grown = elapsed.min(self.grown) / 2;
            self.resize(now, path);
        } else if self.closes_at(path.sent).is_some_and(|at| at <= now) {
            counters.windows_expired += 1;
            if drained.is_some() {
                self.grown = (self.window.length * 2).min(most);
                self.bytes = (self.bytes / 2).max(ROUND_BYTES_MIN);
            }
        } else {
            return;
        }
        let is_calm = |since: Time| now.since(since) >= self.calm_needed;
        if core::mem::take(&mut self.is_short) {
            self.calm_since = None;
        }
        if self.calm_since.is_some_and(is_calm) {
            self.freed = Some(now);
            self.window = Window::default();
        } else {
            self.open(now, self.window.length.min(most));
        }
    }

    /// All have a round's bytes: how many the next one may have follows from how long that took.
    fn resize(&mut self, now: Time, path: &Path) {
        let took = now
            .since(self.drained_at)
            .saturating_sub(path.round_trip_min);
        let target = QUEUE_TARGET + path.round_trip_min;
        let target = target.max(path.excess_max * 2);
        let bytes = if took > target {
            let bytes = u128::from(self.under_way) * target.as_micros() / took.as_micros();
            (bytes as u64).max(self.bytes / 2)
        } else if self.is_short {
            self.bytes * 2
        } else {
            self.bytes
        };
        self.bytes = bytes.clamp(ROUND_BYTES_MIN, ROUND_BYTES_MAX);
    }

    fn open(&mut self, now: Time, length: Duration) {
        debug_assert!((ROUND_BYTES_MIN..=ROUND_BYTES_MAX).contains(&self.bytes));
        self.rounds += 1;
        self.window = Window {
            round: self.rounds,
            length,
            opened: now,
            drained: None,
            bytes: self.bytes,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A congested path with all of it received.
    fn pressed(head: u64) -> Path {
        Path {
            pressed: true,
            round_trip: ms(1),
            received: head,
            sent: head,
            head,
            passed: head * 1_000,
            ..Path::default()
        }
    }

    #[test]
    fn a_free_path_has_no_window() {
        let (mut coalescing, mut counters) = (Coalescing::default(), Counters::default());
        for step in 0..100 {
            let path = Path {
                pressed: false,
                ..pressed(step)
            };
            coalescing.turn(at(step), &path, MOST, &mut counters);
            assert_eq!(coalescing.window(), Window::default());
        }
        coalescing.turn(at(100), &pressed(1), Duration::ZERO, &mut counters);
        assert!(!coalescing.is_open(), "switched off");
        let nobody = Path {
            is_empty: true,
            ..pressed(1)
        };
        coalescing.turn(at(101), &nobody, MOST, &mut counters);
        assert!(!coalescing.is_open(), "nobody to wait for");
    }

    #[test]
    fn an_acknowledgement_closes_the_window_and_its_end_does() {
        let (mut coalescing, mut counters) = (Coalescing::default(), Counters::default());
        coalescing.turn(at(0), &pressed(5), MOST, &mut counters);
        assert_eq!(coalescing.window().round, 1);
        // Ten groups were drained, of which no member has anything: the throughput is not known.
        let under_way = Path {
            received: 5,
            outstanding: 10_000,
            ..pressed(15)
        };
        coalescing.drained(at(0), (1, true), &under_way, MOST);
        assert_eq!(coalescing.window().length, MOST);
        coalescing.turn(at(1), &under_way, MOST, &mut counters);
        assert_eq!(coalescing.window().round, 1, "not acknowledged, not over");
        coalescing.turn(at(12), &pressed(15), MOST, &mut counters);
        assert_eq!(coalescing.window().round, 2, "acknowledged");
        coalescing.drained(at(12), (1, true), &under_way, MOST);
        assert_eq!(coalescing.window().drained, None, "of another round");
        coalescing.drained(at(12), (2, true), &under_way, MOST);
        let closes = coalescing.closes_at(15).unwrap();
        assert_eq!(
            closes,
            coalescing.window().opened + coalescing.window().length
        );
        coalescing.turn(closes, &under_way, MOST, &mut counters);
        assert_eq!(coalescing.window().round, 3, "over");
        assert_eq!(counters.windows_acknowledged, 1);
        assert_eq!(counters.windows_expired, 1);
    }

    #[test]
    fn what_was_drained_and_not_sent_keeps_more_from_the_log() {
        let (mut coalescing, mut counters) = (Coalescing::default(), Counters::default());
        coalescing.turn(at(0), &pressed(5), MOST, &mut counters);
        let unsent = Path {
            received: 5,
            sent: 5,
            ..pressed(15)
        };
        coalescing.drained(at(0), (1, true), &unsent, MOST);
        assert_eq!(coalescing.closes_at(5), None);
        coalescing.turn(at(5_000), &unsent, MOST, &mut counters);
        assert_eq!(coalescing.window().round, 1);
        let sent = Path { sent: 15, ..unsent };
        coalescing.turn(at(5_001), &sent, MOST, &mut counters);
        assert_eq!(coalescing.window().round, 2, "it is over long since");
    }

    #[test]
    fn the_length_follows_throughput_and_doubles_when_it_was_too_short() {
        let (mut coalescing, mut counters) = (Coalescing::default(), Counters::default());
        let mut path = Path {
            outstanding: 100_000,
            ..pressed(5)
        };
        coalescing.turn(at(0), &path, MOST, &mut counters);
        // A thousand bytes a millisecond pass.
        for step in 1..10 {
            path.passed += 1_000;
            path.received = 0;
            coalescing.turn(at(step), &path, MOST, &mut counters);
        }
        let round = coalescing.window().round;
        path.outstanding = 20_000;
        coalescing.drained(at(9), (round, true), &path, MOST);
        assert_eq!(coalescing.window().length, ms(21), "20 ms and a round trip");
        let closes = coalescing.closes_at(path.sent).unwrap();
        path.passed += 1_000 * closes.since(at(9)).as_millis() as u64;
        coalescing.turn(closes, &path, MOST, &mut counters);
        coalescing.drained(closes, (round + 1, true), &path, MOST);
        assert_eq!(coalescing.window().length, ms(42), "twice as long");
        for _ in 0..3 {
            let Window { round, opened, .. } = coalescing.window();
            coalescing.turn(opened + MOST, &path, MOST, &mut counters);
            coalescing.drained(opened + MOST, (round + 1, true), &path, MOST);
            assert!(coalescing.window().length <= MOST);
        }
        assert_eq!(coalescing.window().length, MOST);
    }

    #[test]
    fn a_path_that_is_free_again_is_used_freely_the_sooner_the_longer_it_stays_so() {
        let (mut coalescing, mut counters) = (Coalescing::default(), Counters::default());
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..4 {
            coalescing.turn(at(now), &pressed(5), MOST, &mut counters);
            assert!(coalescing.is_open());
            let begun = now;
            while coalescing.is_open() {
                now += 1;
                let path = Path {
                    pressed: false,
                    ..pressed(5)
                };
                let round = coalescing.window().round;
                coalescing.drained(at(now), (round, true), &path, MOST);
                coalescing.turn(at(now), &path, MOST, &mut counters);
            }
            waits.push(now - begun);
            now += 1;
        }
        assert_eq!(waits, [21, 41, 81, 161]);
        now += 5_000;
        coalescing.turn(at(now), &pressed(5), MOST, &mut counters);
        assert_eq!(coalescing.calm_needed, CALM_MIN);
    }

    #[test]
    fn a_round_has_as_many_bytes_as_the_path_takes_in_some_milliseconds() {
        let (mut coalescing, mut counters) = (Coalescing::default(), Counters::default());
        let mut path = pressed(5);
        path.round_trip_min = ms(2);
        path.excess_max = ms(2);
        coalescing.turn(at(0), &path, MOST, &mut counters);
        let mut now = 0;
        let mut sizes = Vec::new();
        // Ten thousand bytes a millisecond pass, and there is always more to drain.
        for round in 1..12 {
            path.outstanding = coalescing.window().bytes;
            coalescing.drained(at(now), (round, false), &path, MOST);
            now += 2 + path.outstanding / 10_000;
            path.outstanding = 0;
            coalescing.turn(at(now), &path, MOST, &mut counters);
            sizes.push(coalescing.window().bytes);
        }
        assert_eq!(sizes[0], 2 * ROUND_BYTES);
        // Twelve milliseconds' worth, or up to twice that, from then on.
        assert!(
            sizes.iter().all(|size| (100_000..=270_000).contains(size)),
            "{sizes:?}"
        );
        // Who drains all that there is needs no more, and a path that is free meanwhile is not left while it is short.
        path.pressed = false;
        for round in 12..40 {
            coalescing.drained(at(now), (round, false), &path, MOST);
            now += 2;
            coalescing.turn(at(now), &path, MOST, &mut counters);
            assert_eq!(coalescing.window().round, round + 1);
        }
        let bytes = coalescing.window().bytes;
        coalescing.drained(at(now), (40, true), &path, MOST);
        coalescing.turn(at(now + 2), &path, MOST, &mut counters);
        assert_eq!(coalescing.window().bytes, bytes);
    }

    /// Whatever happens: rounds are numbered without a gap, no window is longer than the longest, none stays open that all
    /// have acknowledged, and none beyond its end once everything was sent.
    #[test]
    fn random_paths() {
        for seed in 0..2_000u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let (mut coalescing, mut counters) = (Coalescing::default(), Counters::default());
            let most = Duration::from_micros(1 + random(100_000));
            let mut path = Path::default();
            let mut now = Time::from_micros(random(1_000_000));
            let mut rounds = 0;
            for _ in 0..400 {
                now = now + Duration::from_micros(random(5_000));
                path.head += random(50);
                path.sent += random(path.head - path.sent + 1);
                path.received += random(path.sent - path.received + 1);
                path.passed = path.received * 100;
                path.outstanding = (path.head - path.received) * 100;
                path.pressed = random(20) != 0;
                path.is_empty = random(100) == 0;
                path.round_trip = Duration::from_micros(random(3_000));
                if random(3) == 0 {
                    let round = coalescing.window().round;
                    coalescing.drained(now, (round, random(2) == 0), &path, most);
                }
                coalescing.turn(now, &path, most, &mut counters);
                let window = coalescing.window();
                assert!(window.length <= most, "{seed}");
                let bounds = ROUND_BYTES_MIN..=ROUND_BYTES_MAX;
                assert!(window.round == 0 || bounds.contains(&window.bytes));
                if window.round == 0 {
                    assert_eq!(window, Window::default(), "{seed}");
                    continue;
                }
                assert!(
                    window.round == rounds || window.round == rounds + 1,
                    "{seed}"
                );
                rounds = window.round;
                let acknowledged = window.drained.is_some_and(|end| end <= path.received);
                let sent = window.drained.is_none_or(|end| end <= path.sent);
                assert!(!acknowledged, "{seed}: open though all have it");
                assert!(
                    !sent || window.length.is_zero() || now.since(window.opened) < window.length,
                    "{seed}: open beyond its end"
                );
            }
        }
    }
}
