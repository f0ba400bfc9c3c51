//! The limiter over instances that hear of one another late, its bounds by property, and hostile packets.

mod bound;
mod hostile;
mod metrics;
mod packets;
mod rules;
mod shared;
