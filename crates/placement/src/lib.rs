//! The placement protocols, sans I/O: messages and `now` go in, messages and deadlines come out.
//!
//! Nothing here opens a socket, reads a clock, spawns, locks, or draws randomness of its own. Operation groups are opaque
//! bytes here. A protocol is a [`Protocol`]. Read first: [`envelope`] and [`membership`], which every protocol needs,
//! then [`replicated`].

pub mod branch;
pub mod envelope;
pub mod membership;
pub mod mutant;
mod protocol;
pub mod replicated;
#[cfg(test)]
mod vectors;

pub use protocol::Protocol;

pub use asterism_secure_channel::{ClusterId, Epoch, Incarnation, MemberId, Time};
