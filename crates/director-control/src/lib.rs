//! Commands of orchestrators to directors on other machines, without I/O.
//!
//! An orchestrator's [`Commander`] and a director's [`Receiver`] exchange datagrams that are sealed under the cluster's key. A command
//! carries a whole desired state, a part of the whole set of moved buckets, or a question, so sending it again is always right. The
//! answer carries the status, or counts or moves that leave no room for it.
//!
//! ```text
//!  commander                                        receiver
//!     │ command { challenge 0, query }                  │  a director that started: its challenge is not known yet
//!     │────────────────────────────────────────────────►│
//!     │      answer { challenge c, stale }              │
//!     │◄────────────────────────────────────────────────│
//!     │ command { challenge c, apply }                  │
//!     │────────────────────────────────────────────────►│
//!     │      answer { challenge c, done, status }       │
//!     │◄────────────────────────────────────────────────│
//! ```
//!
//! **Recorded datagrams** change nothing. A command counts if it echoes the challenge of this start of the director, and if its number
//! is above all before of its sender. The last command of a sender that comes again gets the same answer again. An answer
//! counts if it names the sender's start and the number of the command that waits.
//!
//! **Moves** of buckets and flows count in one desired state alone, whose number they carry: the moves of an orchestrator that was
//! replaced are refused, as its desired states are.
//!
//! Read `message.rs` (the bytes), `moves.rs` and `counts.rs` (what takes several datagrams), then `commander.rs` and `receiver.rs`.
#![forbid(unsafe_code)]

mod commander;
mod counts;
mod fields;
mod message;
mod moves;
mod receiver;
#[cfg(test)]
mod tests;

pub use commander::{Commander, Handled};
pub use counts::{BUCKETS_MAX, CountsPart};
pub use message::{
    Answer, DesiredTarget, Flow, HostNumber, Outcome, REASON_BYTES_MAX, RefusedCommand,
    RefusedDatagrams, Request, Status, Suspended, TARGETS_MAX, TargetStatus, VERSION,
};
pub use moves::{MovedRange, Moves, MovesPart, MovesParts, PART_RANGES_MAX, PARTS_MAX, PartError};
pub use receiver::{CommandId, Received, Receiver, SENDERS_MAX};

use asterism_secure_channel::EnvelopeEnd;

/// The orchestrator's end.
const COMMANDER: EnvelopeEnd = EnvelopeEnd {
    code: 5,
    purpose: "command to a director",
};
/// The director's end.
const RECEIVER: EnvelopeEnd = EnvelopeEnd {
    code: 6,
    purpose: "answer of a director",
};
