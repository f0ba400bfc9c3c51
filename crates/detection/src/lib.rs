//! Detection of scans and floods.
//!
//! Layer 3c, above `blocking`; imports it and `asterism_function` alone.

pub mod mutant;
