//! The placement protocols, sans I/O: in come messages and `now`, out come messages and deadlines.
//!
//! Nothing here opens a socket, reads a clock, spawns, locks, or draws randomness that was not handed in. May import
//! `asterism-state` and `asterism-packet`; today it needs neither, because operation groups are opaque bytes here.
//!
//! Read first: [`replicated`].

pub mod branch;
mod member;
pub mod mutant;
pub mod replicated;
pub mod seal;
mod time;
#[cfg(test)]
mod vectors;

pub use member::{ClusterId, Epoch, Incarnation, MemberId};
pub use time::Time;
