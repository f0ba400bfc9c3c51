//! What stands above the hosts of a cluster. Today that is [`steering`]: what sends packets to instances, as one trait with
//! one driver; and [`epochs`]: handing hosts who takes part, over their control sockets. It sees no packets, and nothing of a host
//! waits for it.
//!
//! May import what is below the binary but for the packets themselves; today it needs none of it. Read first:
//! `steering/mod.rs`, then `epochs.rs`.

mod clock;
pub mod epochs;
pub mod steering;
