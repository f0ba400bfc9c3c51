//! What a host and its instances do now.

use std::sync::atomic::{AtomicU8, Ordering};

/// What an instance is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It listens to the other hosts and reads no packets yet.
    Listening,
    /// It reads packets.
    Running,
    /// It reads no more packets; parked ones end.
    Draining,
    /// It stands still, and tells what it noted.
    Telling,
    /// It ends.
    Ended,
}

impl Phase {
    /// The phase in force, as threads publish it to each other: a [`Phase`] as `u8`.
    #[must_use]
    #[inline]
    pub fn of(reported: &AtomicU8) -> Phase {
        match reported.load(Ordering::Acquire) {
            0 => Phase::Listening,
            1 => Phase::Running,
            2 => Phase::Draining,
            3 => Phase::Telling,
            _ => Phase::Ended,
        }
    }

    /// The phase as `status` and metrics name it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Phase::Listening => "listening",
            Phase::Running => "running",
            Phase::Draining | Phase::Telling => "draining",
            Phase::Ended => "ended",
        }
    }
}
