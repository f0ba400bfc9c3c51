//! The sending side: one session key, one counter.

use core::fmt;

use super::header::{HEADER_BYTES, Header, OVERHEAD_BYTES};
use super::key::{Cipher, ClusterKey, Session};
use crate::{ClusterId, Epoch};

/// The last counter that is sealed: 2^48, which is nine years at a million datagrams per second. Counters never wrap.
pub const COUNTER_MAX: u64 = 1 << 48;

/// Seals this host's datagrams. Anyone who makes one hands in a salt that no sealer had before.
pub struct Sealer {
    cipher: Cipher,
    cluster: ClusterId,
    session: Session,
    key_id: u8,
    version: u8,
    /// The last counter used; it goes on when the key changes.
    counter: u64,
}

/// Why nothing was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// [`COUNTER_MAX`] datagrams were sealed: restart with a fresh salt. The buffer is as it was.
    CounterExhausted,
    /// The buffer handed in is shorter than the header's place. It is as it was.
    NoRoomForHeader,
    /// The payload exceeds what the cipher can seal (64 GiB). The buffer is as it was but for its header.
    PayloadTooLong,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SealError::CounterExhausted => {
                "all counters of this session are used; restart the host"
            }
            SealError::NoRoomForHeader => {
                "the buffer has no room for the header before the payload"
            }
            SealError::PayloadTooLong => "the payload exceeds what the cipher can seal",
        })
    }
}

impl core::error::Error for SealError {}

impl Sealer {
    /// A sealer at its first counter. Costs a key derivation, under 1 µs with the processor's SHA and AES instructions.
    #[must_use]
    pub fn new(key: &ClusterKey, cluster: ClusterId, session: Session, version: u8) -> Sealer {
        Sealer {
            cipher: key.session_cipher(cluster, &session),
            cluster,
            session,
            key_id: key.id(),
            version,
            counter: 0,
        }
    }

    /// The longest payload for datagrams of at most so many bytes (of UDP payload); zero if even an empty one is longer.
    #[must_use]
    pub const fn max_payload(datagram_bytes_max: usize) -> usize {
        datagram_bytes_max.saturating_sub(OVERHEAD_BYTES)
    }

    /// Clears `out` and writes the sealed datagram to it: one copy of the payload. Allocates only if `out` has too
    /// little capacity.
    ///
    /// # Errors
    /// [`SealError`]; `out` is then empty.
    pub fn seal(
        &mut self,
        epoch: Epoch,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        out.clear();
        out.resize(HEADER_BYTES, 0);
        out.extend_from_slice(payload);
        let sealed = self.seal_in_place(epoch, out);
        if sealed.is_err() {
            out.clear();
        }
        sealed
    }

    /// Seals a buffer that holds [`HEADER_BYTES`] bytes of any content and then the payload: writes the header there,
    /// encrypts the payload where it is, and appends the tag (so 16 bytes of capacity beyond the payload avoid an
    /// allocation).
    ///
    /// # Errors
    /// [`SealError`]; the buffer is not to be sent.
    pub fn seal_in_place(&mut self, epoch: Epoch, buffer: &mut Vec<u8>) -> Result<(), SealError> {
        self.seal_after(epoch, None, HEADER_BYTES, buffer)
    }

    /// Seals a handshake: the salt follows the header in the clear, then `message`. Its header says the oldest version that
    /// the sender understands, not the one that it speaks.
    pub(super) fn seal_handshake(
        &mut self,
        epoch: Epoch,
        oldest: u8,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        out.clear();
        out.resize(HEADER_BYTES, 0);
        out.extend_from_slice(&self.session.salt.0);
        let clear = out.len();
        out.extend_from_slice(message);
        self.seal_after(epoch, Some(oldest), clear, out)
    }

    /// The wire version in the header of what is sealed from now on.
    pub fn set_version(&mut self, version: u8) {
        self.version = version;
    }

    /// The wire version in the header of what is sealed.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Goes over to another cluster key from the next datagram on: same salt, same counter, another session key.
    pub fn use_key(&mut self, key: &ClusterKey) {
        self.cipher = key.session_cipher(self.cluster, &self.session);
        self.key_id = key.id();
    }

    /// The number of the cluster key that is sealed under.
    #[must_use]
    pub fn key_id(&self) -> u8 {
        self.key_id
    }

    /// What this sealer's session key is derived from.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The counter of the last datagram; zero before the first.
    #[must_use]
    pub fn counter(&self) -> u64 {
        self.counter
    }

    fn seal_after(
        &mut self,
        epoch: Epoch,
        handshake: Option<u8>,
        clear_bytes: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        if self.counter >= COUNTER_MAX {
            return Err(SealError::CounterExhausted);
        }
        let Some((clear, text)) = buffer.split_at_mut_checked(clear_bytes) else {
            return Err(SealError::NoRoomForHeader);
        };
        // Spent even if sealing fails: a counter is never used twice.
        self.counter += 1;
        let header = Header {
            version: handshake.unwrap_or(self.version),
            handshake: handshake.is_some(),
            key_id: self.key_id,
            member: self.session.member,
            cluster: self.cluster,
            epoch,
            session: self.session.salt.short_name(),
            incarnation: self.session.incarnation,
            counter: self.counter,
        };
        clear[..HEADER_BYTES].copy_from_slice(&header.encode());
        let tag = self
            .cipher
            .seal(self.counter, clear, text)
            .ok_or(SealError::PayloadTooLong)?;
        buffer.extend_from_slice(&tag);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn set_counter(&mut self, counter: u64) {
        self.counter = counter;
    }
}
