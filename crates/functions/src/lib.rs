//! The network functions: a folder or file each, with its state, its settings, and the handling of each kind of packet.
//! Shared parts are in the building blocks below (`asterism_forwarding`, `asterism_translation`, `asterism_tracking`,
//! `asterism_balancing`, `asterism_detection`, `asterism_blocking`).
//!
//! Layer 4; functions know no port and no placement. Read first: `span.rs`, the shortest, then `nat/mod.rs`.

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
