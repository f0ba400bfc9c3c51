//! The frames that replicators exchange; the envelope around them is `crate::envelope`.
//!
//! ```text
//! records     := first (length group[length])+        kind 1
//! acknowledge := count entry*count                    kind 2
//! entry       := origin applied ahead pairs (missing present)*pairs
//! keep-alive  := flags:u8                             kind 3; bit 0: an answer is wanted; bit 1: the relay carries it
//! keys        := (id:u8 check:u32)+                   kind 0x82; the cluster keys that the sender accepts
//! ask         := (origin first more)+                 kind 0x84; to the relay of the own site
//! lacks       := (origin first more)+                 kind 0x85; what a relay was asked for and has not
//! clock       := flags:u8 cluster:u64 date:u64        kind 0x86; bit 0: settled; microseconds since 1970
//! placements  := (objects:u64)x4 begun:u32 covered:u32 kind 0x87; objects wanted, shared, begun last and ever begun to share
//! snapshots                                           see `snapshot`
//! ```
//!
//! Beside them travel those of joining, leaving and closing (`crate::membership`), and those of auditors (`audit::Reading` and
//! `audit::StreamPosition`).

mod acknowledge;
mod ask;
mod clock;
mod frame;
#[cfg(test)]
mod golden;
mod keys;
mod placements;
mod snapshot;

pub(crate) use acknowledge::{AcknowledgeEntry, Acknowledgements, write_entry};
pub use ask::Asked;
pub(crate) use ask::{ASKED_BYTES_MAX, ASKED_MAX, AskedRuns};
pub(crate) use clock::{CLOCK_BYTES, ClockFrame};
pub(crate) use frame::{Frame, Frames, Groups};
pub(crate) use keys::KEYS_BYTES_MAX;
pub use keys::{AcceptedKey, AcceptedKeys};
pub(crate) use placements::PLACEMENTS_BYTES_MAX;
pub use placements::Placements;
pub(crate) use snapshot::{SnapshotAcknowledge, SnapshotEndFrame, StateSnapshot};

/// The most present runs in one entry of an acknowledgement.
pub(crate) const RUNS_MAX: usize = 64;
