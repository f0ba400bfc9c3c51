//! The library of network functions.
pub mod pass_through;

pub mod nat;
