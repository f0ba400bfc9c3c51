//! The orchestrator's clock: drivers measure how long the outside world takes, and wait for what gives no notice.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is the clock of drivers, which are I/O through and through"
)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use asterism_placement::Time;

/// Time of this process's clock, as the controller and the heartbeats take it.
pub(crate) fn time() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    Time::ZERO + START.get_or_init(Instant::now).elapsed()
}

/// Now, for deadlines and for how long something took.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets the thread sleep. For the state of files and processes that give no notice of a change.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
