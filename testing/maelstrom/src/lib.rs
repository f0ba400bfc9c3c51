//! A node of Maelstrom (<https://github.com/jepsen-io/maelstrom>), which judges the cluster by rules that are not ours.
//!
//! Maelstrom starts a program once for each node and exchanges JSON messages with it, one a line, over standard input and
//! output. It loses and delays messages between nodes, and then checks whether the answers to clients can be true. A [`Node`]
//! is one host of a cluster: an instance and its state channel as they are shipped; its sealed datagrams travel as base64 in
//! messages of the type `asterism`. No rule of a protocol is written twice.
//!
//! Only `main.rs` reads a clock or does I/O. Read first: `node.rs` (lines in, lines out), then `host.rs` (the parts of a
//! host), `keeper.rs` (the network function whose state the workloads use) and `message.rs` (messages and errors).

mod host;
mod keeper;
mod message;
mod node;
mod workload;

pub use host::Start;
pub use keeper::ELEMENTS_MAX;
pub use node::{Node, Output, Tally};
pub use workload::Workload;
