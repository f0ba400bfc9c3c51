//! The launchers' clock: they measure how long processes take, and wait for files and processes that give no notice of a change.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is the clock of launchers, which are I/O through and through"
)]

use std::time::{Duration, Instant};

/// Now, for deadlines and for how long something took.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets the thread sleep.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
