//! The crate's clock: terms of leadership and deadlines of calls are measured by it.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is the clock of stores, which are I/O through and through"
)]

use std::time::{Duration, Instant};

/// A clock that only goes forward, as the time since a moment of its own. Simulators hand in theirs.
pub type Clock = Box<dyn FnMut() -> Duration + Send>;

/// The machine's monotonic clock.
#[must_use]
pub fn monotonic() -> Clock {
    let start = Instant::now();
    Box::new(move || start.elapsed())
}
