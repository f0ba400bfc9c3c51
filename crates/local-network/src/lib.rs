//! The network of a cluster on one machine, without root: two Ethernet segments, the [director](asterism_director) between them,
//! clients and servers that make and check traffic, and links to hosts that are processes of their own.
//!
//! ```text
//!   clients ──┐                                      ┌── servers
//!             ├── inside segment    outside segment ──┤
//!   director ─┤                                      ├─ director (its other arm)
//!             ├──────────── host a ──────────────────┤
//!             └──────────── host b ──────────────────┘
//! ```
//!
//! One thread turns all of it; it takes a core while packets come and sleeps while none do. Hosts are `asterism run` with
//! shared-memory ports: they may start, die and return at any time. Nobody steers until the owner of the directors' controls does.
//!
//! Read first: `network/` (what is built, and its thread), then `segment/` (the switch), `traffic/` (clients and servers),
//! `cable.rs` (how stations of other pools are attached), `addresses.rs` (who has which address) and `configuration.rs` (the file of
//! the hosts).
#![forbid(unsafe_code)]

pub mod addresses;
mod cable;
mod configuration;
mod error;
mod network;
pub mod segment;
pub mod traffic;

pub use cable::{CablePort, RING_BYTES, cable};
pub use configuration::{
    ClusterFile, SOCKET_PATH_BYTES_MAX, link_line, link_socket, loopback_addresses,
};
pub use error::LocalNetworkError;
pub use network::{
    DIRECTORS_MAX, HostLinks, LocalNetwork, LocalNetworkConfig, NetworkSnapshot, SLOTS_SANE,
    SPACE_SEED,
};

/// Tests count what the packet path allocates: nothing.
#[cfg(test)]
#[global_allocator]
static COUNTING: asterism_function::testkit::CountingAllocator =
    asterism_function::testkit::CountingAllocator;
