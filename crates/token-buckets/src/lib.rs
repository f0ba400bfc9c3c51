//! How full token buckets are, and what bounds them: the arithmetic of rates and levels, without keys' numbers, writers or members.
//!
//! Layer 0, below the state objects, which share buckets among instances.
//!
//! Read first: `rates.rs` (at what rates buckets refill, and what an instance makes of that), then `level.rs` (what is missing in each), and
//! `in_store.rs` (what others spent, as sums of a store have it).

#![forbid(unsafe_code)]

mod in_store;
mod level;
mod rates;

pub use in_store::SpendingInStore;
pub use level::Levels;
pub use rates::{Bounds, BoundsByKey, BoundsOf, Rates, TokenRate, TokenRates};
