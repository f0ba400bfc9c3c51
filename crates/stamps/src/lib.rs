//! What replicas tell each other's copies apart by: who wrote an entry and when, and digests of what is there.
//!
//! Layer 0, below the state objects, whose entries have stamps and whose parts have digests.
//!
//! Read first: `stamp.rs` (names of writers, and the order of their writes), then `audit.rs` (leaves, which replicas compare).

#![forbid(unsafe_code)]

pub mod audit;
pub mod stamp;
