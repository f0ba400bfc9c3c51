//! The context of calls: what all objects of one instance share while it calls functions.
//!
//! Layer 0, below the state objects, which it knows by their numbers only. It has the clock, the packet being handled with its
//! grants and late answers, the operations that the packet wrote, and what the placement reports about other members: how far their
//! streams are applied here, which incarnations there are, and which of them may grant from which blocks.
//!
//! Read first: `context.rs` (the context, and a packet's way through it), then `context/late.rs` (answers that are not here yet),
//! `context/requests.rs` (answers of stores), `leases.rs` (who may grant) and `forgetting.rs` (how slots of writers serve again).

#![forbid(unsafe_code)]

mod answer;
mod context;
mod forgetting;
mod identity;
mod incarnations;
mod leases;
mod reservations;
mod stamp_wire;
mod tick;
mod trace;

// Files of this crate import these as modules of their own, as those of the state objects do.
use asterism_stamps::stamp;
use asterism_state_mutants::{branch, mutant};
use asterism_wire as wire;

pub use answer::{Late, Nearby, Wait, late_answer, nearby_answer};
pub use context::{
    ADDITIONS_PER_CALL, ANSWER_BYTES_MAX, AWAITED_READS_MAX, Answered, Call, Context, Depends,
    GRANTS_PER_PACKET_MAX, GROUP_BYTES_MAX, LANE_ANY, LANE_CELLS, LANE_ROOM, LANE_SUM, LANE_SUMS,
    MISSES_PER_PACKET_MAX, OPERATION_BYTES_MAX, Query, REQUESTS_PER_PACKET_MAX, Ticket,
    Transaction, UNCONFIRMED_MAX, WRITES_PER_PACKET, WayToRead, WriteSet, WriteSetTooLong,
    entry_hash, stable_hash,
};
pub use forgetting::FORGETS_FROM;
pub use identity::{Identity, Sequencer};
pub use leases::{Leases, Note, Notes};
pub use reservations::Reservations;
pub use stamp_wire::{
    STAMP_BYTES_MAX, read_origin, read_stamp, skip_origin, skip_stamp, write_origin, write_stamp,
};
pub use tick::Tick;
pub use trace::{STEPS_MAX, StageEnd, Step, Written};
