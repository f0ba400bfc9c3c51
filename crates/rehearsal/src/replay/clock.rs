//! A capture's clock, which may step: time stamps become times that never go back.
//!
//! A clock that is set back must not stop time: the packets after it would all come at once. A capture may also be made of several, each
//! with a clock of its own, whose packets alternate. So a few *timelines* are remembered, each where its last packet was, and a packet
//! goes on where the nearest timeline ended.

use std::time::Duration;

/// Packets that are out of order by less than this are taken as simultaneous: captures of several queues are so.
const REORDERED_MAX_NS: u64 = 100_000_000;
/// Timelines that are remembered; the one that was used least lately is forgotten.
const TIMELINES_MAX: usize = 4;

/// A clock of the capture: its last time stamp, and when that was on the clock that never goes back.
#[derive(Clone, Copy, Debug)]
struct Timeline {
    stamp_ns: u64,
    at_ns: u64,
}

/// Time stamps of one capture as times.
#[derive(Debug)]
pub(super) struct CaptureClock {
    /// The one that was used last comes first.
    timelines: Vec<Timeline>,
    gap_max_ns: u64,
    latest_ns: u64,
    /// How often a time stamp was before all that came shortly before it.
    pub(super) steps_back: u64,
    /// The longest of these steps.
    pub(super) step_most: Duration,
}

impl CaptureClock {
    /// A timeline that is silent for longer than `gap_max` is forgotten.
    pub(super) fn new(gap_max: Duration) -> Self {
        Self {
            timelines: Vec::with_capacity(TIMELINES_MAX + 1),
            gap_max_ns: u64::try_from(gap_max.as_nanos())
                .unwrap_or(u64::MAX)
                .max(REORDERED_MAX_NS),
            latest_ns: 0,
            steps_back: 0,
            step_most: Duration::ZERO,
        }
    }

    /// When a packet with this time stamp came: never before the packet that was asked about before it.
    pub(super) fn time_of(&mut self, stamp_ns: u64) -> u64 {
        let Some(&current) = self.timelines.first() else {
            self.latest_ns = stamp_ns;
            self.go_on(stamp_ns, stamp_ns);
            return stamp_ns;
        };
        let (latest_ns, gap_max_ns) = (self.latest_ns, self.gap_max_ns);
        self.timelines
            .retain(|one| latest_ns - one.at_ns <= gap_max_ns);
        // Where it would be in the past the clock that was set back reaches a stamp that it had shown before.
        let goes_on = |one: &Timeline| {
            let passed = stamp_ns.saturating_sub(one.stamp_ns);
            one.stamp_ns <= stamp_ns.saturating_add(REORDERED_MAX_NS)
                && passed <= gap_max_ns
                && one.at_ns.saturating_add(passed) >= latest_ns.saturating_sub(REORDERED_MAX_NS)
        };
        let nearest = (0..self.timelines.len())
            .filter(|&place| goes_on(&self.timelines[place]))
            .min_by_key(|&place| self.timelines[place].stamp_ns.abs_diff(stamp_ns));
        let from = match nearest {
            Some(place) => self.timelines.remove(place),
            // A long gap, which the user of `replay` may shorten.
            None if stamp_ns >= current.stamp_ns => current,
            None => {
                self.steps_back += 1;
                let step = Duration::from_nanos(current.stamp_ns - stamp_ns);
                self.step_most = self.step_most.max(step);
                Timeline {
                    stamp_ns,
                    at_ns: self.latest_ns,
                }
            }
        };
        let passed = stamp_ns.saturating_sub(from.stamp_ns);
        self.latest_ns = self.latest_ns.max(from.at_ns.saturating_add(passed));
        // What is out of order does not take its timeline back.
        match stamp_ns < from.stamp_ns {
            true => self.go_on(from.stamp_ns, from.at_ns),
            false => self.go_on(stamp_ns, from.at_ns.saturating_add(passed)),
        }
        self.latest_ns
    }

    fn go_on(&mut self, stamp_ns: u64, at_ns: u64) {
        self.timelines.insert(0, Timeline { stamp_ns, at_ns });
        self.timelines.truncate(TIMELINES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    /// The times of these stamps since the first one, in milliseconds, and how many steps there were.
    fn times(stamps: impl IntoIterator<Item = u64>) -> (Vec<u64>, u64) {
        let mut clock = CaptureClock::new(Duration::from_secs(10));
        let times: Vec<u64> = stamps
            .into_iter()
            .map(|stamp| clock.time_of(stamp))
            .collect();
        assert!(times.is_sorted());
        let since = times.iter().map(|time| (time - times[0]) / 1_000_000);
        (since.collect(), clock.steps_back)
    }

    #[test]
    fn time_goes_on_where_a_clock_is_set_back() {
        let step = |number: u64| START + number * SECOND / 5;
        let stamps = (0..100).map(|number| match number < 30 {
            true => step(number),
            false => step(number) - 3_600 * SECOND,
        });
        let (times, steps) = times(stamps);
        assert_eq!((times[29], times[30]), (5_800, 5_800));
        assert_eq!((times[99], steps), (5_800 + 69 * 200, 1));
    }

    #[test]
    fn a_first_stamp_that_is_late_and_several_steps_are_counted() {
        let stamps = [9_000, 0, 1, 2, 3, 1, 2, 3].map(|second| START + second * SECOND);
        assert_eq!(
            times(stamps),
            (vec![0, 0, 1_000, 2_000, 3_000, 3_000, 4_000, 5_000], 2)
        );
        let again = [500, 501, 0, 1, 2].map(|second| START + second * SECOND);
        assert_eq!(times(again), (vec![0, 1_000, 1_000, 2_000, 3_000], 1));
    }

    #[test]
    fn clocks_that_alternate_each_go_on() {
        let stamps = (0..50).flat_map(|number| {
            let stamp = START + number * SECOND / 10;
            [stamp, stamp - 3_600 * SECOND]
        });
        let (times, steps) = times(stamps);
        assert_eq!((times[98], times[99], steps), (4_900, 4_900, 1));
    }

    #[test]
    fn what_is_a_little_out_of_order_is_no_step() {
        let stamps = (0..100).map(|number| match number % 2 {
            0 => START + number * SECOND / 50,
            _ => START + number * SECOND / 50 - 50_000_000,
        });
        let (times, steps) = times(stamps);
        assert_eq!((times[98], steps), (1_960, 0));
    }

    #[test]
    fn a_clock_that_reaches_an_old_stamp_again_goes_on() {
        // Set back by 30 s, and on past where it was.
        let stamps = (0..100).map(|second| match second < 20 {
            true => START + second * SECOND,
            false => START + second * SECOND - 30 * SECOND,
        });
        let (times, steps) = times(stamps);
        assert_eq!((times[99], steps), (98_000, 1));
    }

    #[test]
    fn extreme_stamps_end_in_no_panic() {
        let (times, _) = times([u64::MAX, 0, u64::MAX, 1, u64::MAX - 1, u64::MAX]);
        assert_eq!(times.len(), 6);
    }
}
