//! The NAT, clause by clause and on recorded traffic.
//!
//! `network.rs` is the small network that all tests send packets through.

mod established;
mod network;
