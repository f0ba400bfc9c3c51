//! The crate's clocks and its lock: a server measures the outside world, and its connections share tables.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this file is the clock and the lock of a server, which is I/O through and through"
)]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Now, for limits of rates and of time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds since 1970, for the expiry of tokens. A date before 1970 counts as 1970.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

/// A table that connections share. Locked for a few instructions, never across a wait.
#[derive(Debug, Default)]
pub(crate) struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        Shared(Mutex::new(value))
    }

    /// A panic while the lock was held leaves counts and buckets usable, so it is ignored.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the thread sleep. For the tests' cluster, which answers late when it is asked to.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
