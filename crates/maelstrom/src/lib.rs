//! A node of Maelstrom (<https://github.com/jepsen-io/maelstrom>): what is tested here is judged by rules that are not ours.
//!
//! Maelstrom starts a program once for each node, hands it one JSON message a line on standard input, takes such lines from
//! its standard output, loses and delays what nodes say to each other, and then looks whether what clients were reported can
//! be true. A [`Node`] is one host of a cluster, an instance and its state channel as they are shipped; its sealed datagrams
//! travel as base64 in messages of the type `asterism`. No rule of a protocol is written twice.
//!
//! It may import all layers below the program; it opens no socket and reads no clock: `main.rs` does. Read first:
//! `node.rs` (lines in, lines out), then `host.rs` (what a host is made of), `keeper.rs` (the network function whose state
//! the workloads use) and `message.rs` (messages and errors).

mod host;
mod keeper;
mod message;
mod node;
mod workload;

pub use host::Start;
pub use keeper::ELEMENTS_MAX;
pub use node::{Node, Output, Tally};
pub use workload::Workload;
