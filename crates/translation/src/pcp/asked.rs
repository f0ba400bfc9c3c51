//! What is kept of a mapping for the host that asked for it.

use asterism_function::{Tick, Value, Wire};

use super::message::Nonce;

/// What it takes to change a mapping, by its inside endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
#[value(order(since, nonce_high, nonce_low))]
pub struct Asked {
    /// When it was prolonged last.
    pub since: Tick,
    /// The number that its asker made up: its first eight bytes.
    pub nonce_high: u64,
    /// The other four.
    pub nonce_low: u32,
}

impl Asked {
    pub(super) fn new(nonce: Nonce, since: Tick) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = nonce.0;
        Self {
            since,
            nonce_high: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            nonce_low: u32::from_be_bytes([i, j, k, l]),
        }
    }

    /// Whether the same made both.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        (self.nonce_high, self.nonce_low) == (other.nonce_high, other.nonce_low)
    }
}
