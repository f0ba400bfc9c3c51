//! The laboratory's clocks: it is I/O through and through, and this is where it reads time.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is the laboratory's clock: nobody hands it one"
)]

use std::time::{Duration, Instant};

use asterism_placement::Time;

/// Now, for deadlines.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits for so long and no shorter, for tests in which something is to last. Parking a thread may end at once, as it does
/// after a scope of threads.
pub fn pause(time: Duration) {
    sleep(time);
}

/// Waits; for polls of what gives no notice.
pub(crate) fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The monotonic clock.
pub(crate) fn monotonic() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

/// The monotonic clock as links take it.
pub(crate) fn time_of(monotonic_ns: u64) -> Time {
    Time::from_micros(monotonic_ns / 1_000)
}

/// What to subtract from a time of the real clock, in which the kernel stamps packets, to have the monotonic one.
/// The best of three readings: a thread may lose its core between the two clocks.
pub(crate) fn real_minus_monotonic_ns() -> i64 {
    let mut best = (u64::MAX, 0);
    for _ in 0..3 {
        let before = monotonic_ns();
        let real = read(libc::CLOCK_REALTIME);
        let width = monotonic_ns() - before;
        if width < best.0 {
            best = (
                width,
                real.cast_signed() - (before + width / 2).cast_signed(),
            );
        }
        if width < 1_000 {
            break;
        }
    }
    best.1
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place to write to, and both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
