//! Hosts of one process on virtual time: a configuration is tried before real packets pass.
//!
//! `fleet.rs` holds hosts with their state channels and the links between them. Three commands use it: `replay/` (a capture through a
//! function), `scenario/` (`asterism test`: packets and what must come of them) and `demo/` (a cluster of NATs at work).

pub mod demo;
pub mod fleet;
pub mod replay;
pub mod scenario;
