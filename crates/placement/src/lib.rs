//! The placement protocols, sans I/O: messages and `now` go in, messages and deadlines come out.
//!
//! Nothing here opens a socket, reads a clock, spawns, locks, or draws randomness of its own. Operation groups are opaque
//! bytes here. Read first: [`envelope`], then [`replicated`].

pub mod branch;
pub mod envelope;
pub mod membership;
pub mod mutant;
pub mod replicated;
#[cfg(test)]
mod vectors;

pub use asterism_secure_channel::{ClusterId, Epoch, Incarnation, MemberId, Time};
