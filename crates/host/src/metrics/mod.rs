//! A host's counters for Prometheus: `exposition.rs` writes them, `server.rs` serves them over HTTP.

pub mod exposition;
pub mod server;
