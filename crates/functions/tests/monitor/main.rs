//! The monitor over real captures and split between instances, what it exports as a real collector reads it, and hostile packets.

mod capture;
mod cluster;
mod collector;
mod exact;
mod hostile;
#[path = "../programs/nfcapd.rs"]
mod nfcapd;
#[path = "../port_scan/packets.rs"]
mod packets;
mod shared;
