//! The orchestrator's clock: drivers measure how long the outside world takes.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is the clock of drivers, which are I/O through and through"
)]

use std::time::Instant;

/// Now, for deadlines and for how long something took.
pub(crate) fn now() -> Instant {
    Instant::now()
}
