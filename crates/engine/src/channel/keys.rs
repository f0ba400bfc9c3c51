//! The keys of a state channel: taken up while it runs, and asked to the other members.

use asterism_placement::replicated::{AcceptedKey, AcceptedKeys};
use asterism_secure_channel::KeyRing;

use super::StateChannel;

impl StateChannel {
    /// Accepts the ring's keys from the next datagram on and no others, and seals under the one that it names; see
    /// [`SecureChannel::set_keys`](asterism_secure_channel::SecureChannel::set_keys). Anyone who calls it has seen that the hash seed is the same.
    pub fn set_keys(&mut self, keys: &KeyRing) {
        self.secure.set_keys(keys);
        self.announce_keys();
    }

    /// Has this host say from now on which keys it accepts, for anyone who changes them.
    pub fn announce_keys(&mut self) {
        let keys = self.secure.key_checks();
        let keys = keys.map(|(id, check)| AcceptedKey { id, check });
        self.accepted = AcceptedKeys::new(keys);
        self.protocols.replicator.announce_keys(self.accepted);
    }

    /// The keys that this host says it accepts; none before it says so.
    pub fn accepted_keys(&self) -> AcceptedKeys {
        self.accepted
    }
}
