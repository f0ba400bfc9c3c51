//! The monitor over real captures and split between instances, what it exports as a real collector reads it, and hostile packets.

mod capture;
pub(crate) mod cluster;
mod collector;
mod exact;
mod hostile;
mod shared;
