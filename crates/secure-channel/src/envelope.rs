//! An envelope for datagrams between two ends of different kinds, such as hosts and orchestrators: 32 clear bytes, the sealed
//! message, and the tag.
//!
//! ```text
//!  0         1        2        3      4            8            24            32
//!  ┌─────────┬────────┬────────┬──────┬────────────┬────────────┬─────────────┬──────── ─ ─ ┬───────┐
//!  │ version │ sender │ key id │ zero │ cluster id │ salt       │ sequence    │ message     │ tag   │
//!  │ 2       │        │        │      │ (4)        │ (16)       │ (8)         │ (sealed)    │ (16)  │
//!  └─────────┴────────┴────────┴──────┴────────────┴────────────┴─────────────┴──────── ─ ─ ┴───────┘
//! ```
//!
//! The salt is drawn at each start of a sender and gives it a key of its own; the sequence number is the nonce. All numbers are
//! little-endian. Whether a datagram is fresh is for the protocol inside to see.

use crate::key::Salt;
use crate::key_ring::KeyRing;
use crate::member::ClusterId;
use crate::purpose::PurposeCipher;

/// Senders whose ciphers an envelope keeps at most; more than these cost some microseconds a datagram.
const KEPT_SENDERS_MAX: usize = 64;

/// Bytes of a datagram at most: the least MTU of IPv6, without its headers and UDP's.
pub const DATAGRAM_BYTES_MAX: usize = 1_280 - 48;

/// The version of the envelope and of the messages in it.
const VERSION: u8 = 3;
/// Bytes before the message.
const HEADER_BYTES: usize = 32;
/// Bytes of a message at most.
pub const MESSAGE_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES - crate::TAG_BYTES;

/// A kind of sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnvelopeEnd {
    /// Its number in the header, which no other kind has.
    pub code: u8,
    /// The purpose of its datagrams, from which its keys follow.
    pub purpose: &'static str,
}

/// Seals datagrams of one kind, and opens those of the kinds of the other end.
#[derive(Debug)]
pub struct Envelope {
    cluster: ClusterId,
    keys: KeyRing,
    own: EnvelopeEnd,
    others: &'static [EnvelopeEnd],
    salt: Salt,
    cipher: PurposeCipher,
    /// The sequence number of the last datagram.
    last: u64,
    /// Ciphers of senders that were heard, in the order in which they came.
    kept: Vec<(SenderKey, PurposeCipher)>,
}

/// What the cipher of a sender follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SenderKey {
    kind: u8,
    key: u8,
    salt: [u8; 16],
}

/// A datagram that was opened.
#[derive(Debug)]
pub struct OpenedEnvelope<'d> {
    /// Its kind.
    pub sender: EnvelopeEnd,
    /// The salt of the sender's start.
    pub salt: [u8; 16],
    /// The number of the datagram.
    pub sequence: u64,
    /// The message.
    pub message: &'d [u8],
}

impl Envelope {
    /// The envelope of an end, with the kinds that the other end sends, under a salt that this start of it has drawn.
    #[must_use]
    pub fn new(
        cluster: ClusterId,
        keys: KeyRing,
        (own, others): (EnvelopeEnd, &'static [EnvelopeEnd]),
        salt: [u8; 16],
    ) -> Envelope {
        let salt = Salt(salt);
        let cipher = keys.sending().purpose_cipher(own.purpose, cluster, &salt);
        Envelope {
            cluster,
            keys,
            own,
            others,
            salt,
            cipher,
            last: 0,
            kept: Vec::new(),
        }
    }

    /// Goes on under other keys; sequence numbers go on.
    pub fn set_keys(&mut self, keys: KeyRing) {
        let sending = keys.sending();
        self.cipher = sending.purpose_cipher(self.own.purpose, self.cluster, &self.salt);
        self.keys = keys;
        self.kept.clear();
    }

    /// The salt of this end.
    #[must_use]
    pub fn salt(&self) -> [u8; 16] {
        self.salt.0
    }

    /// The sequence number of the last datagram that was sealed.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Seals the message that `encode` appends.
    pub fn seal(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        self.last += 1;
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES_MAX);
        datagram.extend_from_slice(&[VERSION, self.own.code, self.keys.sending().id(), 0]);
        datagram.extend_from_slice(&self.cluster.0.to_le_bytes());
        datagram.extend_from_slice(&self.salt.0);
        datagram.extend_from_slice(&self.last.to_le_bytes());
        encode(&mut datagram);
        self.cipher.seal(self.last, &mut datagram, HEADER_BYTES);
        datagram
    }

    /// Opens a datagram of the other end in place; `None` if it is none of this cluster's. Each sender has a key of its own, whose
    /// derivation costs some microseconds: those of the senders heard last are kept.
    #[must_use]
    pub fn open<'d>(&mut self, datagram: &'d mut [u8]) -> Option<OpenedEnvelope<'d>> {
        let header: &[u8; HEADER_BYTES] = datagram.first_chunk()?;
        if datagram.len() > DATAGRAM_BYTES_MAX
            || (header[0], header[3]) != (VERSION, 0)
            || header[4..8] != self.cluster.0.to_le_bytes()
        {
            return None;
        }
        let sender = *self.others.iter().find(|other| other.code == header[1])?;
        let salt: [u8; 16] = header[8..24].try_into().ok()?;
        let sequence = u64::from_le_bytes(header[24..32].try_into().ok()?);
        let from = SenderKey {
            kind: sender.code,
            key: header[2],
            salt,
        };
        let message = match self.kept.iter().rposition(|(kept, _)| *kept == from) {
            Some(at) => self.kept[at].1.open(sequence, datagram, HEADER_BYTES)?,
            None => {
                let key = self.keys.keys().iter().find(|key| key.id() == from.key)?;
                let cipher = key.purpose_cipher(sender.purpose, self.cluster, &Salt(salt));
                let message = cipher.open(sequence, datagram, HEADER_BYTES)?;
                // Only a sender with the cluster's key takes the place of another.
                if self.kept.len() == KEPT_SENDERS_MAX {
                    self.kept.remove(0);
                }
                self.kept.push((from, cipher));
                message
            }
        };
        Some(OpenedEnvelope {
            sender,
            salt,
            sequence,
            message,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ClusterKey;

    const ONE: EnvelopeEnd = EnvelopeEnd {
        code: 1,
        purpose: "one",
    };
    const OTHER: EnvelopeEnd = EnvelopeEnd {
        code: 2,
        purpose: "other",
    };
    const CLUSTER: ClusterId = ClusterId(9);

    fn ring(id: u8) -> KeyRing {
        ClusterKey::from_random(id, [id; 32]).into()
    }

    fn sealed(key: u8, salt: u8) -> Vec<u8> {
        let ends: (_, &'static [EnvelopeEnd]) = (ONE, &[]);
        Envelope::new(CLUSTER, ring(key), ends, [salt; 16]).seal(|out| out.push(salt))
    }

    #[test]
    fn ciphers_are_kept_of_so_many_senders_and_only_of_those_with_the_key() {
        let ends: (_, &'static [EnvelopeEnd]) = (OTHER, &[ONE]);
        let mut envelope = Envelope::new(CLUSTER, ring(1), ends, [0; 16]);
        // More senders than are kept, in two rounds: each opens, by a kept cipher or by one that is derived again.
        for salt in (0..200).chain(0..200) {
            let opened = envelope
                .open(&mut sealed(1, salt))
                .map(|one| one.message.to_vec());
            assert_eq!(opened, Some(vec![salt]));
            assert!(envelope.kept.len() <= KEPT_SENDERS_MAX);
        }
        // Forgeries take nobody's place, also those under the salt of one that is kept.
        let kept: Vec<SenderKey> = envelope.kept.iter().map(|(from, _)| *from).collect();
        for salt in [7, 199, 250] {
            let mut forged = sealed(1, salt);
            *forged.last_mut().unwrap() ^= 1;
            assert!(envelope.open(&mut forged).is_none());
        }
        assert!(kept.iter().eq(envelope.kept.iter().map(|(from, _)| from)));
        // Without the key its senders are strangers, known or not.
        envelope.set_keys(ring(2));
        assert!(envelope.open(&mut sealed(1, 199)).is_none());
        assert!(envelope.open(&mut sealed(2, 199)).is_some());
    }
}
