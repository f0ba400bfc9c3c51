//! The orchestrator, above the hosts of a cluster: [`steering`] sends packets to instances, as one trait with one driver, and
//! [`epochs`] hands epochs to hosts over their control sockets. The orchestrator sees no packets, and no host waits for it.
//!
//! May depend on everything below the binary except the packets; today it needs none of it. Read first: `steering/mod.rs`,
//! then `epochs.rs`.

mod clock;
pub mod epochs;
pub mod steering;
