//! The orchestrator, above the hosts of a cluster. It sees no packets, and no host waits for it.
//!
//! - [`controller`] decides who takes part and where packets go, without I/O.
//! - [`steering`] sends packets to instances: one trait, with drivers for Linux routes, Open vSwitch and the built-in director.
//! - [`launch`] starts, finds and ends the processes of hosts. These two are crates of their own.
//! - [`run`] joins the controller with a socket, a store and a steering.
//! - [`usage`] meters what tenants use, without I/O.
//! - [`epochs`] hands epochs to hosts over their control sockets.
//!
//! May depend on everything below the binary except the packets. Read first: `controller/mod.rs`, then `run/mod.rs`.

mod clock;
pub mod controller;
pub mod epochs;
pub mod run;
pub mod usage;

pub use asterism_launch as launch;
pub use asterism_steering as steering;
