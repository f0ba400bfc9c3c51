//! What a host counts, for Prometheus: `exposition.rs` writes it, `server.rs` hands it out over HTTP.

pub mod exposition;
pub mod server;
