//! Checked views and in-place edits of packets, checksums and flow keys: layer 0 of Asterism.
//!
//! A frame is parsed once into a [`Layout`], eight bytes with the places of its headers. A [`Packet`] is a frame together
//! with its layout: every accessor and every edit is a method of it, none of them can fail on bytes that have changed since
//! the parse, and none allocates. [`build`] writes whole frames into a caller's buffer. Any bytes are safe to parse: a
//! malformed packet is a [`Malformed`] reason, never a panic.
//!
//! This crate depends only on `core`; it does no I/O and reads no clock. Read `layout.rs` first, then `packet.rs` and
//! `edit.rs`; `checksum.rs` holds the arithmetic that the edits share.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod answer;
mod arp;
pub mod build;
pub mod checksum;
mod cut;
mod edit;
mod embedded;
mod endpoint;
mod flow_key;
#[doc(hidden)]
pub mod fuzz;
mod layout;
mod mac;
mod malformed;
mod neighbour_discovery;
mod network;
mod packet;
mod parse;
mod plain;
mod transport;
mod vlan;

pub use arp::{Arp, ArpOperation};
pub use cut::Cut;
pub use embedded::Embedded;
pub use endpoint::{Endpoint, Flow4, Protocol};
pub use flow_key::FlowKey;
pub use layout::{Fragment, Layout, Network, Transport};
pub use mac::MacAddress;
pub use malformed::Malformed;
pub use neighbour_discovery::{NeighbourAdvertisement, NeighbourSolicitation};
pub use packet::Packet;
pub use plain::{Changes4, End, Forwarding4, Plain4};
pub use transport::{IcmpKind, TcpFlags};
pub use vlan::Vlan;
