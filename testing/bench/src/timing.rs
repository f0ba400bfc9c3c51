//! On-CPU time of named threads, interleaved pairs, and the time that was lost.
//!
//! Wall time on shared cores measures the scheduler, so costs are read from the threads' CPU clocks and
//! comparisons are ratios of neighbours in time. What was lost is reported beside them.

use serde::{Deserialize, Serialize};

/// The fewest pairs that a ratio may rest on.
pub const PAIRS_MIN: u32 = 9;

/// Nanoseconds that the calling thread has been on a processor.
pub fn thread_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds of wall time since an arbitrary start.
pub fn wall_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds that the living threads of a process have been on a processor, as the kernel accounts them; none once it
/// has ended. What threads took that ended meanwhile is not in it.
pub fn process_cpu_ns(process: u32) -> Option<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let Ok(text) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else {
            continue;
        };
        sum += text.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

/// Nanoseconds that child processes of this one were on a processor which have ended and were waited for.
pub fn children_cpu_ns() -> u64 {
    // SAFETY: a structure of numbers alone, all of which may be zero.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` is a place to write to.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    assert_eq!(result, 0, "a process may ask for what its children used");
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// The CPU clock of one thread, readable from any thread while that one lives.
#[derive(Debug, Clone, Copy)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// The clock of the calling thread, to be handed to the thread that measures.
    pub fn of_this_thread() -> Self {
        let mut clock = 0;
        // SAFETY: the calling thread is alive, and `clock` is a place to write to.
        let result = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        assert_eq!(result, 0, "a thread has a clock");
        Self(clock)
    }

    /// Nanoseconds on a processor so far. Reads zero once the thread has ended: read before joining it.
    pub fn cpu_ns(self) -> u64 {
        read_clock(self.0)
    }
}

/// Time during which a measured thread was not on a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LostTime {
    /// Wall time of the measured windows, ms.
    pub wall_ms: f64,
    /// Wall time of the windows without the thread's on-CPU time, ms.
    pub lost_ms: f64,
    /// The largest loss of a single window, or the longest gap that a spinning loop saw, ms.
    pub worst_gap_ms: f64,
}

impl LostTime {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            wall_ms: self.wall_ms + other.wall_ms,
            lost_ms: self.lost_ms + other.lost_ms,
            worst_gap_ms: self.worst_gap_ms.max(other.worst_gap_ms),
        }
    }

    /// Share of the wall time that was lost, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.wall_ms > 0.0 {
            self.lost_ms / self.wall_ms
        } else {
            0.0
        }
    }
}

/// Adds up the on-CPU time of windows of the calling thread, and what was lost in them.
#[derive(Debug, Default)]
pub struct Stopwatch {
    cpu_ns: u64,
    /// What an empty window takes, which is taken off each one; 0 where windows are so long that it does not matter.
    empty_ns: u64,
    lost: LostTime,
}

/// Empty windows that tell what one takes.
const EMPTY_WINDOWS: usize = 65;

impl Stopwatch {
    /// Finds out what an empty window takes here and now, which is a read of the thread's clock: 0.3 to 0.5 µs. It is taken off
    /// each window from here on. For windows of some µs.
    pub fn calibrate(&mut self) {
        let mut empty = [0; EMPTY_WINDOWS];
        for window in &mut empty {
            let before = thread_cpu_ns();
            *window = thread_cpu_ns() - before;
        }
        empty.sort_unstable();
        self.empty_ns = empty[EMPTY_WINDOWS / 2];
    }

    /// What is taken off each window.
    pub fn empty_ns(&self) -> u64 {
        self.empty_ns
    }

    /// Runs `work` as one window; two clock reads before and two after (some 0.3 µs in all).
    pub fn window<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let wall = wall_ns();
        let cpu = thread_cpu_ns();
        let result = work();
        let cpu = thread_cpu_ns() - cpu;
        let wall = wall_ns() - wall;
        self.cpu_ns += cpu.saturating_sub(self.empty_ns);
        let lost_ms = wall.saturating_sub(cpu) as f64 / 1e6;
        self.lost = self.lost.and(LostTime {
            wall_ms: wall as f64 / 1e6,
            lost_ms,
            worst_gap_ms: lost_ms,
        });
        result
    }

    /// On-CPU nanoseconds of all windows so far; starts again from zero.
    pub fn take_cpu_ns(&mut self) -> u64 {
        std::mem::take(&mut self.cpu_ns)
    }

    /// What was lost in all windows since the start.
    pub fn lost(&self) -> LostTime {
        self.lost
    }
}

/// For loops that spin: gaps between two turns that are longer than a turn can be.
#[derive(Debug)]
pub struct GapRecorder {
    longest_turn_ns: u64,
    started_ns: u64,
    last_ns: u64,
    lost_ns: u64,
    worst_ns: u64,
}

impl GapRecorder {
    /// Gaps longer than `longest_turn_ns` count as lost.
    pub fn new(now_ns: u64, longest_turn_ns: u64) -> Self {
        Self {
            longest_turn_ns,
            started_ns: now_ns,
            last_ns: now_ns,
            lost_ns: 0,
            worst_ns: 0,
        }
    }

    /// To be called once a turn.
    pub fn turn(&mut self, now_ns: u64) {
        let gap = now_ns.saturating_sub(self.last_ns);
        if gap > self.longest_turn_ns {
            self.lost_ns += gap;
            self.worst_ns = self.worst_ns.max(gap);
        }
        self.last_ns = now_ns;
    }

    /// What was lost up to the last turn.
    pub fn lost(&self) -> LostTime {
        LostTime {
            wall_ms: (self.last_ns - self.started_ns) as f64 / 1e6,
            lost_ms: self.lost_ns as f64 / 1e6,
            worst_gap_ms: self.worst_ns as f64 / 1e6,
        }
    }
}

/// The figure below which a share of `figures` lies, interpolated linearly between neighbours. Not a number if there are none.
pub fn at_share(figures: &[f64], share: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * (sorted.len().saturating_sub(1)) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low_figure), Some(high_figure)) => {
            low_figure + (high_figure - low_figure) * (place - low as f64)
        }
        _ => f64::NAN,
    }
}

/// Median and quartiles of some runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle.
    pub median: f64,
    /// A quarter of the runs lie below.
    pub first_quartile: f64,
    /// A quarter of the runs lie above.
    pub third_quartile: f64,
    /// How many runs.
    pub runs: u32,
}

impl Spread {
    /// Of `figures`, interpolated linearly between neighbours. Not a number if there are none.
    pub fn of(figures: &[f64]) -> Self {
        Self {
            median: at_share(figures, 0.5),
            first_quartile: at_share(figures, 0.25),
            third_quartile: at_share(figures, 0.75),
            runs: figures.len() as u32,
        }
    }
}

/// Two things measured beside each other.
#[derive(Debug, Clone)]
pub struct Pairs {
    /// First over second, pair by pair.
    pub ratios: Vec<f64>,
    /// The figures of the first.
    pub first: Vec<f64>,
    /// The figures of the second.
    pub second: Vec<f64>,
}

impl Pairs {
    /// Calls the two in the order A B, B A, A B, … `count` times (at least [`PAIRS_MIN`]); each hands back its figure,
    /// or why it has none, which ends all. A drift of the machine then weighs on both alike.
    pub fn interleaved<E>(
        count: u32,
        mut first: impl FnMut() -> Result<f64, E>,
        mut second: impl FnMut() -> Result<f64, E>,
    ) -> Result<Self, E> {
        let mut pairs = Self {
            ratios: Vec::new(),
            first: Vec::new(),
            second: Vec::new(),
        };
        for turn in 0..count.max(PAIRS_MIN) {
            let (a, b) = if turn % 2 == 0 {
                let a = first()?;
                (a, second()?)
            } else {
                let b = second()?;
                (first()?, b)
            };
            pairs.ratios.push(a / b);
            pairs.first.push(a);
            pairs.second.push(b);
        }
        Ok(pairs)
    }

    /// Median and quartiles of the pair ratios.
    pub fn spread(&self) -> Spread {
        Spread::of(&self.ratios)
    }
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place to write to; a clock that is gone leaves it zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_interpolates_between_neighbours() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(
            (
                spread.first_quartile,
                spread.median,
                spread.third_quartile,
                spread.runs
            ),
            (1.75, 2.5, 3.25, 4)
        );
        assert_eq!(Spread::of(&[7.0]).third_quartile, 7.0);
        assert!(Spread::of(&[]).median.is_nan());
    }

    #[test]
    fn pairs_alternate_their_order_and_cancel_a_drift() {
        let order = std::cell::RefCell::new(String::new());
        let clock = std::cell::Cell::new(0.0);
        let figure = |name: char, cost: f64| {
            order.borrow_mut().push(name);
            clock.set(clock.get() + 1.0);
            Ok::<f64, ()>(cost * (1.0 + clock.get() / 1_000.0))
        };
        let pairs = Pairs::interleaved(10, || figure('A', 2.0), || figure('B', 1.0))
            .expect("both have figures");
        assert_eq!(order.borrow().as_str(), "ABBAABBAABBAABBAABBA");
        assert_eq!(pairs.ratios.len(), 10);
        assert!((pairs.spread().median - 2.0).abs() < 0.001);
    }

    #[test]
    fn pairs_are_never_fewer_than_the_least_and_end_at_a_failure() {
        let pairs =
            Pairs::interleaved(1, || Ok::<_, ()>(1.0), || Ok(1.0)).expect("both have figures");
        assert_eq!(pairs.ratios.len(), PAIRS_MIN as usize);
        let failed = Pairs::interleaved(1, || Ok(1.0), || Err("a packet was lost"));
        assert_eq!(failed.expect_err("no figure"), "a packet was lost");
    }

    #[test]
    fn gaps_longer_than_a_turn_are_lost() {
        let mut gaps = GapRecorder::new(0, 1_000);
        for now in [500, 1_500, 5_001_500, 5_002_000] {
            gaps.turn(now);
        }
        let lost = gaps.lost();
        assert_eq!(
            (lost.lost_ms, lost.worst_gap_ms, lost.wall_ms),
            (5.0, 5.0, 5.002)
        );
    }

    #[test]
    fn what_an_empty_window_takes_is_taken_off() {
        let (mut plain, mut calibrated) = (Stopwatch::default(), Stopwatch::default());
        calibrated.calibrate();
        assert!(calibrated.empty_ns() > 0 && plain.empty_ns() == 0);
        for _ in 0..1_000 {
            plain.window(|| ());
            calibrated.window(|| ());
        }
        assert!(calibrated.take_cpu_ns() < plain.take_cpu_ns());
    }

    #[test]
    fn sleeping_costs_wall_time_but_no_cpu_time() {
        let mut watch = Stopwatch::default();
        watch.window(|| {
            let pause = libc::timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            };
            // SAFETY: both arguments are valid for the call.
            unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) }
        });
        assert!(watch.lost().lost_ms > 15.0);
        assert!(watch.take_cpu_ns() < 10_000_000);
        assert_eq!(watch.take_cpu_ns(), 0);
    }

    #[test]
    fn the_time_of_a_process_grows_while_it_works() {
        let own = std::process::id();
        let before = process_cpu_ns(own).expect("this process runs");
        let until = thread_cpu_ns() + 2_000_000_000;
        let mut sum = 0u64;
        // What runs now is accounted at the next tick of the kernel, and what a thread of another test used goes when it ends.
        while process_cpu_ns(own).expect("it still runs") <= before + 30_000_000 {
            assert!(thread_cpu_ns() < until, "two seconds are not seen");
            for _ in 0..100_000 {
                sum = std::hint::black_box(sum + 1);
            }
        }
        assert_eq!(process_cpu_ns(u32::MAX), None);
    }

    #[test]
    fn the_clock_of_another_thread_can_be_read() {
        let (send, receive) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            let mut sum = 0u64;
            while thread_cpu_ns() < 5_000_000 {
                sum = std::hint::black_box(sum + 1);
            }
            send.send(ThreadClock::of_this_thread())
                .expect("the measuring thread waits");
            let _ = wait.recv();
        });
        let clock = receive.recv().expect("the worker sends its clock");
        assert!(clock.cpu_ns() >= 5_000_000);
        drop(done);
        worker.join().expect("no panic");
    }
}
