//! The library of network functions.
pub mod balancer;
pub mod cache_digests;
pub mod events;
pub mod firewall;
pub mod ipfix;
pub mod limiter;
pub mod monitor;
pub mod mutant;
pub mod nat;
pub mod pass_through;
pub mod port_scan;
pub mod signature;
pub mod span;

pub use asterism_blocking::{blocked, by_hand};
