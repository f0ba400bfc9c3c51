//! A laboratory for tests and users: real programs in network namespaces, with links that delay, lose and limit.
//!
//! A [`Lab`] holds [`Node`]s (network namespaces) joined by cables, bridges and [`Wire`]s; a [`Wire`] is a user-space
//! switch whose paths have the conditions of `asterism_engine::link` and that records how late it was itself. Programs run
//! inside by [`Node::program`]; [`nat::NatLab`] is a whole laboratory for a NAT cluster. Nothing has a name outside the laboratory's own process: when that ends, by whatever
//! signal, programs, namespaces, interfaces and files go with it. Needs root and `ip` (iproute2).
//!
//! Not a layer of the product: tests, measures and the command `asterism lab` use it. May import `link` of
//! `asterism-engine` and the `Time` of `asterism-placement`. Read first: `lab.rs`, `node.rs`, then `wire/mod.rs`.

mod clock;
mod error;
pub mod http;
mod interface;
mod lab;
mod namespace;
pub mod nat;
mod node;
mod program;
pub mod squid;
pub mod wire;

pub use clock::pause;
pub use error::{LabError, needs, package_of};
pub use interface::set_offloads;
pub use lab::{Cable, Lab};
pub use namespace::permitted;
pub use node::{InterfaceCounts, Node, Offloads};
pub use program::{
    Finished, OUTPUT_BYTES_MAX, PROGRAM_TIME_MAX, Program, ProgramCommand, wait_until,
};
pub use wire::{Lateness, Wire, WireConfig, WireReport};
