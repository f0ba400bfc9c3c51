//! The orchestrator's clock.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is the clock of its threads, which are I/O through and through"
)]

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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

/// Milliseconds since 1970, by this machine's clock.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
