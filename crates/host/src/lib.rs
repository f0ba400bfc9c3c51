//! A host: the process that `asterism run` starts, with its instances, its state channel and what they need to be a service.
//!
//! - `run/`: the service. It starts the packet loops and the state channel, reloads, watches files, exports, and ends in order.
//!   What is known of it outside its packet loops is the crate `asterism_host_view`, and its
//!   page for Prometheus is `asterism_host_metrics`.
//! - `control/`: the control socket.
//! - `eve/`: alerts as lines of JSON.
//!
//! Read first: `run/mod.rs`.

pub mod control;
pub mod eve;
pub mod run;
pub mod stations;
