//! The clock of drivers, which measure how long the outside world takes, and wait for what gives no notice.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is the clock of drivers, which are I/O through and through"
)]

use std::time::{Duration, Instant};

/// Now, for deadlines and for how long something took.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets the thread sleep. For what gives no notice of a change.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
