//! A laboratory for tests and users: real programs in network namespaces, with links that delay, lose and limit.
//!
//! A [`Lab`] holds [`Node`]s (network namespaces) joined by cables, bridges and [`Wire`]s. A [`Wire`] is a user-space switch
//! whose paths have the conditions of `asterism_io::link`, and which records its own lateness. Programs run inside by
//! [`Node::program`]; [`nat::NatLab`] is a whole laboratory for a NAT cluster. No part has a name outside the laboratory's
//! own process: when that process ends, by whatever signal, programs, namespaces, interfaces and files end with it. Needs
//! root and `ip` (iproute2).
//!
//! Not a layer of the product: tests, measures and the command `asterism lab` use it. Read first: `lab.rs`, `node.rs`, then
//! `wire/mod.rs`.

mod clock;
mod error;
pub mod etcd;
pub mod http;
mod interface;
mod lab;
mod namespace;
pub mod nat;
mod node;
pub mod openvswitch;
pub mod outside;
mod port;
mod probe;
mod program;
pub mod redis;
pub mod squid;
pub mod steering;
pub mod wire;

pub use clock::pause;
pub use error::{LabError, needs, package_of};
pub use interface::set_offloads;
pub use lab::{Cable, Lab};
pub use namespace::permitted;
pub use node::{InterfaceCounts, Node, Offloads};
pub use port::KeptPort;
pub use probe::{FLOWS_MAX, Probe, Sent};
pub use program::{
    Finished, OUTPUT_BYTES_MAX, PROGRAM_TIME_MAX, Program, ProgramCommand, wait_until,
};
pub use wire::{Lateness, Wire, WireConfig, WireReport};
