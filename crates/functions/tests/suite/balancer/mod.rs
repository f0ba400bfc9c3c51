//! The load balancer: choices, modes, deaths, hostile packets, and several instances.
//!
//! `network.rs` is the small network that most tests send packets through.

mod choices;
mod cluster;
mod hostile;
mod leaving;
mod metrics;
mod modes;
pub(crate) mod network;
mod passive;
