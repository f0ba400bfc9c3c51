//! The clear header of every datagram: 32 bytes, authenticated, never encrypted.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0 | wire version | bits 0..=6 the version; bit 7 set: a handshake, 16 bytes of salt follow the header |
//! | 1 | key id | which cluster key |
//! | 2..4 | member | the sender |
//! | 4..8 | cluster | |
//! | 8..12 | epoch | the sender's |
//! | 12..16 | session | the first four bytes of the sender's salt |
//! | 16..24 | incarnation | the sender's |
//! | 24..32 | counter | the nonce |
//!
//! Integers are little-endian. The four-byte fields come first so that each integer lies on a multiple of its size.

use crate::{ClusterId, Epoch, Incarnation, MemberId};

/// Size of the clear header in bytes.
pub const HEADER_BYTES: usize = 32;
/// Size of the authentication tag that ends each datagram, in bytes.
pub const TAG_BYTES: usize = 16;
/// What sealing adds to a payload, in bytes: header and tag.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;
/// The greatest wire version that the header can say: bit 7 of its byte marks a handshake.
pub const WIRE_VERSION_MAX: u8 = 0x7f;
/// The salt that follows the header of a handshake datagram, in bytes.
pub(super) const SALT_BYTES: usize = 16;

const HANDSHAKE_BIT: u8 = 0x80;

/// The fields of a clear header. Reading one proves nothing: only a datagram that opened is the sender's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of everything inside, 0 to [`WIRE_VERSION_MAX`].
    pub version: u8,
    /// Whether this is a handshake datagram, whose header the sender's salt follows.
    pub handshake: bool,
    /// Number of the cluster key.
    pub key_id: u8,
    /// The sender.
    pub member: MemberId,
    /// The sender's cluster.
    pub cluster: ClusterId,
    /// The sender's epoch when it sealed.
    pub epoch: Epoch,
    /// Short name of the sender's salt.
    pub session: u32,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The nonce: one more than the sender's last.
    pub counter: u64,
}

impl Header {
    /// The 32 bytes on the wire. A version above [`WIRE_VERSION_MAX`] loses its top bit; configuration refuses those.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.version & WIRE_VERSION_MAX | if self.handshake { HANDSHAKE_BIT } else { 0 };
        bytes[1] = self.key_id;
        bytes[2..4].copy_from_slice(&self.member.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.cluster.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.session.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.counter.to_le_bytes());
        bytes
    }

    /// Reads the first 32 bytes; `None` if there are fewer. Any bytes are a header.
    #[must_use]
    pub fn decode(datagram: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = datagram.first_chunk()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some(Header {
            version: bytes[0] & WIRE_VERSION_MAX,
            handshake: bytes[0] & HANDSHAKE_BIT != 0,
            key_id: bytes[1],
            member: MemberId(u16::from_le_bytes([bytes[2], bytes[3]])),
            cluster: ClusterId(word(4)),
            epoch: Epoch(word(8)),
            session: word(12),
            incarnation: Incarnation(long(16)),
            counter: long(24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            version: 1,
            handshake: false,
            key_id: 2,
            member: MemberId(0x0304),
            cluster: ClusterId(0x0506_0708),
            epoch: Epoch(0x090a_0b0c),
            session: 0x0d0e_0f10,
            incarnation: Incarnation(0x1112_1314_1516_1718),
            counter: 0x191a_1b1c_1d1e_1f20,
        }
    }

    #[test]
    fn golden_bytes() {
        let golden = [
            0x01, 0x02, 0x04, 0x03, 0x08, 0x07, 0x06, 0x05, 0x0c, 0x0b, 0x0a, 0x09, 0x10, 0x0f,
            0x0e, 0x0d, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x20, 0x1f, 0x1e, 0x1d,
            0x1c, 0x1b, 0x1a, 0x19,
        ];
        assert_eq!(sample().encode(), golden);
        assert_eq!(Header::decode(&golden), Some(sample()));
        let handshake = Header {
            handshake: true,
            ..sample()
        };
        assert_eq!(handshake.encode()[0], 0x81);
        assert_eq!(Header::decode(&handshake.encode()), Some(handshake));
    }

    #[test]
    fn fewer_bytes_are_no_header() {
        assert_eq!(Header::decode(&[0; HEADER_BYTES - 1]), None);
        assert_eq!(Header::decode(&[]), None);
    }
}
