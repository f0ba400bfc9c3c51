//! Files as users write them, and what they are said to mean.

mod chain;
mod sharing;
mod store;
