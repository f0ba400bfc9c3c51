//! How full token buckets are, and what bounds them: the arithmetic of rates and levels, without keys' numbers, writers or members.
//!
//! Layer 0, below the state objects, which share buckets among instances.
//!
//! Read first: `rates.rs` (at what rates buckets refill, and what an instance makes of that), then `level.rs` (what is missing in each).

#![forbid(unsafe_code)]

mod level;
mod rates;

pub use level::Levels;
pub use rates::{Bounds, BoundsByKey, BoundsOf, Rates, TokenRate, TokenRates};
