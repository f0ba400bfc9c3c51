//! Which backend a new flow gets, and which backends live.
//!
//! Layer 3c, above `forwarding`; imports it and `asterism_function` alone.

pub mod mutant;
