//! What calls of a function ask stores for, what they were answered, and the transactions that come of it.
//!
//! Layer 0, below the state objects, whose reads these are; engines carry them to stores, and stores answer and commit them.
//!
//! Read first: `query.rs`, then `slots.rs` (the requests of packets), then `transaction.rs` (what a call read and wrote).

#![forbid(unsafe_code)]

mod query;
mod slots;
mod transaction;

pub use query::{LANE_ANY, LANE_CELLS, LANE_ROOM, LANE_SUM, LANE_SUMS, Query, Ticket};
pub use slots::{ANSWER_BYTES_MAX, Answered, REQUESTS_PER_PACKET_MAX, Reading, Slots};
pub use transaction::{Depends, Transaction, entry_hash, stable_hash};
