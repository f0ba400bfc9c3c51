//! What is left in the log for groups and snapshots of this host, and why one is not accepted.

use super::config::GROUP_BYTES_MAX;

/// Why a group was not accepted. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubmitError {
    /// The log has no room; wait for acknowledgements ([`Replicator::log_room`](super::Replicator::log_room)).
    LogFull,
    /// The sequence is not the one after the last: the caller's mistake.
    NotConsecutive {
        /// The sequence that was due.
        expected: u64,
    },
    /// The group is empty or longer than [`GROUP_BYTES_MAX`]: the caller's mistake.
    BadLength,
}

impl core::fmt::Display for SubmitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SubmitError::LogFull => f.write_str("the log is full"),
            SubmitError::NotConsecutive { expected } => write!(f, "sequence {expected} was due"),
            SubmitError::BadLength => write!(f, "a group has 1 to {GROUP_BYTES_MAX} bytes"),
        }
    }
}

impl core::error::Error for SubmitError {}

/// Why a piece of a snapshot was not accepted. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotError {
    /// The window is full; try again when [`Replicator::snapshot_room`](super::Replicator::snapshot_room) is not zero.
    Busy,
    /// That member is not being served by this scan (it caught up, or a new scan replaced this one): stop scanning.
    NotScanning,
    /// The chunk is empty or longer than [`Replicator::snapshot_chunk_bytes_max`](super::Replicator::snapshot_chunk_bytes_max): the caller's mistake.
    BadLength,
}

impl core::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            SnapshotError::Busy => "the snapshot window is full",
            SnapshotError::NotScanning => "no such scan is under way",
            SnapshotError::BadLength => "a chunk is empty or does not fit a message",
        })
    }
}

impl core::error::Error for SnapshotError {}

/// Room left in the log for own groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCapacity {
    /// How many groups fit.
    pub groups: usize,
    /// How many bytes fit; a group needs its length and one byte, or two from 128 bytes on.
    pub bytes: usize,
}
