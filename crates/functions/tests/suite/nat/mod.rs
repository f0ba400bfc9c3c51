//! The NAT, clause by clause and on recorded traffic.
//!
//! `network.rs` is the small network that most tests send packets through; `capture.rs` reads recordings.

mod capture;
mod carrier;
mod cluster;
mod collector;
mod connections;
mod established;
mod exempt;
mod hostile;
mod icmp;
mod laws;
mod links;
mod mapping;
pub(crate) mod network;
mod options;
mod own;
mod pcp;
mod settings;
mod stations;
