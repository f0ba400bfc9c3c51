//! What a controller hears: heartbeats, evidence, orders, and what became of its commands.

use std::collections::BTreeSet;

use asterism_placement::Time;

use super::record::Record;

/// One start of a host's process. A folder (the host's state, locked by its process) has a random number that never changes, and counts its
/// starts on disk. So a later start in the same folder proves that the earlier process has ended; a process in another
/// folder proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The folder's random number.
    pub folder: u64,
    /// The number of this start in it, from 1.
    pub start: u64,
}

impl Process {
    /// Whether that this process runs proves that `other` has ended.
    #[must_use]
    pub fn proves_ended(self, other: Process) -> bool {
        self.folder == other.folder && self.start > other.start
    }
}

/// How far a host's process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits until an epoch names an incarnation for it.
    Awaiting,
    /// It has begun this incarnation, and does not have the others' state yet.
    Joining(u64),
    /// It has joined and reads packets.
    Serving(u64),
    /// It reads no more packets, and ends once the others have all that it wrote.
    Leaving(u64),
    /// Its last message: it has stopped reading packets and granting ports for good.
    Ended(u64),
}

impl Stage {
    /// The incarnation that has begun, if one has.
    #[must_use]
    pub fn incarnation(self) -> Option<u64> {
        match self {
            Stage::Awaiting => None,
            Stage::Joining(incarnation)
            | Stage::Serving(incarnation)
            | Stage::Leaving(incarnation)
            | Stage::Ended(incarnation) => Some(incarnation),
        }
    }
}

/// A host's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The host's place.
    pub host: String,
    /// Its process.
    pub process: Process,
    /// How far it is.
    pub stage: Stage,
    /// The epoch that it has in force, or, while it waits, the last one that it was handed; 0 for none.
    pub epoch: u32,
    /// The members of its epoch that its state channel has not received for longer than its `silent_after`.
    pub silent: BTreeSet<String>,
    /// Whether its auditor finds no difference to any member.
    pub digests_agree: bool,
}

/// An operator's order, for the controller that leads; others ignore it, but for [`Order::Fence`]. It is in force once it is in the
/// record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The host gets no new flows, and no packets where the steering cannot tell flows apart.
    Drain(String),
    /// The host gets packets again.
    Restore(String),
    /// The operator declares that no process runs in this place in this incarnation or an earlier one. Ignored of an
    /// incarnation that was not named yet.
    Fence(String, u64),
}

/// What a controller is handed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A host's heartbeat, of an authenticated session.
    Heartbeat(Heartbeat),
    /// Whether the steering sees the link to a host down.
    Link {
        /// The host.
        host: String,
        /// Whether it is down.
        is_down: bool,
    },
    /// A launcher knows that the process has ended. Any number of times.
    Ended {
        /// The host.
        host: String,
        /// Its process.
        process: Process,
    },
    /// The operator's.
    Order(Order),
    /// This orchestrator leads until then, by its own clock, counted from before it asked.
    Leads {
        /// The term, which the store counts up with each leader. A term is of one start of an orchestrator's process: one that begins
        /// again does not lead on in it.
        term: u64,
        /// When it ends, unless this is handed in again.
        until: Time,
    },
    /// It does not lead.
    Follows,
    /// The record as the store has it.
    Record {
        /// The record.
        record: Record,
        /// Its version; 0: none was ever written.
        version: u64,
    },
    /// [`Command::Store`](super::Command::Store) was carried out, and the record has this version.
    Stored {
        /// The version.
        version: u64,
    },
    /// [`Command::Store`](super::Command::Store) was refused, or nobody knows whether it was carried out.
    NotStored,
    /// [`Command::Steer`](super::Command::Steer) is in force.
    Steered {
        /// The number of the state.
        generation: u64,
    },
    /// [`Command::Steer`](super::Command::Steer) failed; what is in force may not be known.
    NotSteered {
        /// The number of the state.
        generation: u64,
    },
}
