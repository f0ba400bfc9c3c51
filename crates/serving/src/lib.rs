//! Connections of bounded number and time, and a very small HTTP server.
//!
//! It knows nothing of what is asked for and answered. Read first: `connections.rs`, then `http.rs`.

#![forbid(unsafe_code)]

pub mod connections;
pub mod http;
