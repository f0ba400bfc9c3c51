//! The library of network functions.
pub mod pass_through;

pub mod balancer;
pub mod firewall;
pub mod limiter;
pub mod monitor;
pub mod nat;
pub mod port_scan;
pub mod signature;
