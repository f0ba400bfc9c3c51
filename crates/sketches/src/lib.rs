//! What sketches keep of many keys in little memory: the data structures, without writers, operations or members.
//!
//! Layer 0, below the state objects, which share them among instances.
//!
//! Read first: `grid.rs` (rows of places, of count-min sketches and filters), then `summary.rs` (the heaviest keys of one writer) and
//! `ranking.rs` (those of all writers);
//! `other_summaries.rs` keeps those of others.

#![forbid(unsafe_code)]

mod grid;
mod other_summaries;
mod ranking;
mod summary;

pub use grid::Grid;
pub use other_summaries::{LastReport, Others};
pub use ranking::{Heavy, HeavyKeys, HeavyPlace};
pub use summary::{Counted, NO_PLACE, Summary};
