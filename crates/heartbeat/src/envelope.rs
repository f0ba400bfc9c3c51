//! The envelope of both directions: 32 clear bytes, the sealed message, and the tag.
//!
//! ```text
//!  0         1        2        3      4            8            24            32
//!  ┌─────────┬────────┬────────┬──────┬────────────┬────────────┬─────────────┬──────── ─ ─ ┬───────┐
//!  │ version │ sender │ key id │ zero │ cluster id │ salt       │ sequence    │ message     │ tag   │
//!  │ 1       │ 1 to 4 │        │      │ (4)        │ (16)       │ (8)         │ (sealed)    │ (16)  │
//!  └─────────┴────────┴────────┴──────┴────────────┴────────────┴─────────────┴──────── ─ ─ ┴───────┘
//! ```
//!
//! The salt is drawn at each start of a sender and gives it a key of its own; the sequence number is the nonce. All numbers are
//! little-endian.

use asterism_secure_channel::{ClusterId, KeyRing, PurposeCipher, Salt};

/// Bytes of a datagram at most: the least MTU of IPv6, without its headers and UDP's.
pub const DATAGRAM_BYTES_MAX: usize = 1_280 - 48;

const VERSION: u8 = 1;
/// Bytes of the clear header.
pub(crate) const HEADER_BYTES: usize = 32;
const _: () = assert!(
    HEADER_BYTES + 42 + 31 + crate::message::PART_BYTES + asterism_secure_channel::TAG_BYTES
        <= DATAGRAM_BYTES_MAX
);

/// Which end a datagram is from, and what it carries. Each kind is sealed under a key of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    /// A heartbeat of a host.
    Host,
    /// The reply of an orchestrator.
    Orchestrator,
    /// A part of a host's answer to a question.
    Answering,
    /// A question of an orchestrator.
    Asking,
}

impl Sender {
    fn code(self) -> u8 {
        match self {
            Sender::Host => 1,
            Sender::Orchestrator => 2,
            Sender::Answering => 3,
            Sender::Asking => 4,
        }
    }

    fn of(code: u8) -> Option<Sender> {
        [
            Sender::Host,
            Sender::Orchestrator,
            Sender::Answering,
            Sender::Asking,
        ]
        .into_iter()
        .find(|sender| sender.code() == code)
    }

    fn is_host(self) -> bool {
        matches!(self, Sender::Host | Sender::Answering)
    }

    fn purpose(self) -> &'static str {
        match self {
            Sender::Host => "heartbeat of a host",
            Sender::Orchestrator => "reply of an orchestrator",
            Sender::Answering => "answer of a host",
            Sender::Asking => "question of an orchestrator",
        }
    }
}

/// Seals one end's datagrams, and opens those of the other end.
#[derive(Debug)]
pub(crate) struct Envelope {
    cluster: ClusterId,
    keys: KeyRing,
    own: Sender,
    salt: Salt,
    cipher: PurposeCipher,
    /// The sequence number of the last datagram.
    last: u64,
}

/// A datagram that was opened.
#[derive(Debug)]
pub(crate) struct Opened<'d> {
    pub(crate) sender: Sender,
    pub(crate) salt: [u8; 16],
    pub(crate) sequence: u64,
    pub(crate) message: &'d [u8],
}

impl Envelope {
    pub(crate) fn new(cluster: ClusterId, keys: KeyRing, own: Sender, salt: [u8; 16]) -> Envelope {
        let salt = Salt(salt);
        let cipher = keys.sending().purpose_cipher(own.purpose(), cluster, &salt);
        Envelope {
            cluster,
            keys,
            own,
            salt,
            cipher,
            last: 0,
        }
    }

    /// Goes on under other keys; sequence numbers go on.
    pub(crate) fn set_keys(&mut self, keys: KeyRing) {
        let sending = keys.sending();
        self.cipher = sending.purpose_cipher(self.own.purpose(), self.cluster, &self.salt);
        self.keys = keys;
    }

    /// The salt of this end.
    pub(crate) fn salt(&self) -> [u8; 16] {
        self.salt.0
    }

    /// The sequence number of the last datagram that was sealed.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Seals the message that `encode` appends.
    pub(crate) fn seal(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        self.last += 1;
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES_MAX);
        datagram.extend_from_slice(&[VERSION, self.own.code(), self.keys.sending().id(), 0]);
        datagram.extend_from_slice(&self.cluster.0.to_le_bytes());
        datagram.extend_from_slice(&self.salt.0);
        datagram.extend_from_slice(&self.last.to_le_bytes());
        encode(&mut datagram);
        self.cipher.seal(self.last, &mut datagram, HEADER_BYTES);
        datagram
    }

    /// Opens a datagram of the other end in place; `None` if it is none of this cluster's. Costs some microseconds, since each sender has
    /// a key of its own, which is derived again.
    pub(crate) fn open<'d>(&self, datagram: &'d mut [u8]) -> Option<Opened<'d>> {
        let header: &[u8; HEADER_BYTES] = datagram.first_chunk()?;
        let sender = Sender::of(header[1])?;
        if datagram.len() > DATAGRAM_BYTES_MAX
            || (header[0], header[3]) != (VERSION, 0)
            || sender.is_host() == self.own.is_host()
            || header[4..8] != self.cluster.0.to_le_bytes()
        {
            return None;
        }
        let key = self.keys.keys().iter().find(|key| key.id() == header[2])?;
        let salt: [u8; 16] = header[8..24].try_into().ok()?;
        let sequence = u64::from_le_bytes(header[24..32].try_into().ok()?);
        let cipher = key.purpose_cipher(sender.purpose(), self.cluster, &Salt(salt));
        let message = cipher.open(sequence, datagram, HEADER_BYTES)?;
        Some(Opened {
            sender,
            salt,
            sequence,
            message,
        })
    }
}
