//! A host's counters for Prometheus: `exposition.rs` writes them, on a page of `asterism_output`, and `server.rs` serves them over HTTP.
//!
//! Reads the host's view alone (`asterism_host_view`): a scrape costs the packet loops nothing. Read first: `exposition.rs`.

pub mod exposition;
pub mod server;
