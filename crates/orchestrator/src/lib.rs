//! What stands above the hosts of a cluster. Today that is [`steering`]: what sends packets to instances, as one trait with
//! one driver. It sees no packets, and nothing of a host waits for it.
//!
//! May import what is below the binary but for the packets themselves; today it needs none of it. Read first:
//! `steering/mod.rs`.

mod clock;
pub mod steering;
