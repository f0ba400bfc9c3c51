//! A host's counters for Prometheus: `exposition.rs` writes them, on a page of `asterism_output`, and `server.rs` serves them over HTTP.

pub mod exposition;
pub mod server;
