//! The library of network functions: a folder or file each, with its state, its settings, and what it does with a packet of each kind.
//! What it does not have to itself is in the rooms below (`asterism_forwarding`, `asterism_translation`, `asterism_tracking`,
//! `asterism_balancing`, `asterism_detection`, `asterism_blocking`).
//!
//! Layer 4; imports `asterism_function` and rooms, so it knows no port and no placement. Read first: `span.rs`, which is the shortest, then
//! `nat/mod.rs`.

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

pub use asterism_blocking::{blocked, manual};
