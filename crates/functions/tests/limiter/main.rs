//! The limiter over instances that hear of one another late, its bounds by property, and hostile packets.

mod bound;
#[path = "../monitor/cluster.rs"]
#[allow(dead_code, reason = "shared with the monitor, which uses the rest")]
mod cluster;
mod hostile;
mod metrics;
mod packets;
mod rules;
mod shared;
