//! The placement protocols, sans I/O: messages and `now` go in, messages and deadlines come out.
//!
//! Nothing here opens a socket, reads a clock, spawns, locks, or draws randomness of its own. Operation groups are opaque
//! bytes here. Read first: [`replicated`].

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
