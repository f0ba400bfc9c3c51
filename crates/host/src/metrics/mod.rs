//! A host's counters for Prometheus: `exposition.rs` writes them, on a page of `page.rs`, and `server.rs` serves them over HTTP.

pub mod exposition;
pub mod page;
pub mod server;
