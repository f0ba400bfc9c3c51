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
    /// What is in force, as threads tell each other.
    pub(crate) fn of(reported: &AtomicU8) -> Phase {
        match reported.load(Ordering::Acquire) {
            0 => Phase::Listening,
            1 => Phase::Running,
            2 => Phase::Draining,
            3 => Phase::Telling,
            _ => Phase::Ended,
        }
    }
}
