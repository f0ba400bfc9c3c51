//! Commands of orchestrators to directors on other machines, without I/O.
//!
//! An orchestrator's [`Commander`] and a director's [`Receiver`] exchange datagrams that are sealed under the cluster's key. A command
//! carries a whole desired state or asks for the status, so sending it again is always right. The answer carries the status.
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
//! Read `message.rs` (the bytes), then `commander.rs` and `receiver.rs`.
#![forbid(unsafe_code)]

mod commander;
mod message;
mod receiver;
#[cfg(test)]
mod tests;

pub use commander::{Commander, Handled};
pub use message::{
    Answer, DesiredTarget, HostNumber, Outcome, REASON_BYTES_MAX, RefusedCommand, Request, Status,
    TARGETS_MAX, TargetStatus,
};
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
