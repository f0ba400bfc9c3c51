//! The memory of tables: what a packet's read touches, laid out so that it costs few cache lines and never an allocation.
//!
//! Below the state objects. `region.rs` reserves memory (read it first), `index.rs` finds records by hash, `hash.rs` makes the
//! hashes, `prefetch_hints.rs` keeps what the prefetch pass over a burst foresees, and `blocks.rs` which items of a pool are in use. Nothing here knows keys, entries or objects.

pub mod blocks;
pub mod hash;
pub mod index;
pub mod prefetch_hints;
pub mod region;
