//! The orchestrator, above the hosts of a cluster: [`steering`] sends packets to instances, as one trait with one driver,
//! [`epochs`] hands epochs to hosts over their control sockets, [`elasticity`] decides when hosts come and go, and [`usage`]
//! meters tenants. The orchestrator sees no packets, and no host waits for it.
//!
//! May depend on everything below the binary except the packets; today it needs none of it. Read first: `steering/mod.rs`,
//! then `epochs.rs`, `elasticity/mod.rs` and `usage/mod.rs`.
//! [`launch`] starts, finds and ends the processes of hosts, and [`epochs`] hands epochs to hosts over their control sockets. The
//! orchestrator sees no packets, and no host waits for it.
//!
//! May depend on everything below the binary except the packets; today it needs none of it. Read first: `steering/mod.rs`,
//! then `launch/mod.rs` and `epochs.rs`.
//! The orchestrator, above the hosts of a cluster: [`steering`] sends packets to instances, as one trait with two drivers, and
//! [`epochs`] hands epochs to hosts over their control sockets. The orchestrator sees no packets, and no host waits for it.
//!
//! May depend on everything below the binary except the packets; today it needs the commands of the director alone. Read first: `steering/mod.rs`,
//! then `epochs.rs`.

mod clock;
pub mod elasticity;
pub mod controller;
pub mod epochs;
pub mod launch;
pub mod steering;
pub mod usage;
