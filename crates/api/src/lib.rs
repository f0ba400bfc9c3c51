//! The HTTP API of a cluster: plain data, the trait that an orchestrator implements, a server, tokens, and a blocking client.
//!
//! Nothing here knows the orchestrator: it implements [`ClusterApi`] and starts a [`Server`](server::Server), which runs on threads
//! of its own. This is the only crate that may use tokio; its public functions need no runtime.
//!
//! Read `cluster_api.rs` first, then `data/mod.rs`, `server/mod.rs` and `server/routes.rs`. `docs/src/api.md` is the page for users.

#![forbid(unsafe_code)]

pub mod client;
mod clock;
mod cluster_api;
pub mod data;
pub mod server;
pub mod testing;
pub mod tokens;

pub use cluster_api::{Caller, ClusterApi, OrderError, Scope};
