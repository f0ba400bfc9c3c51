//! The library of network functions.

pub mod nat;
