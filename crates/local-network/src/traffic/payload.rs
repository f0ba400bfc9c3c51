//! The bytes that packets carry: a pattern that both ends compute, so that each byte is checked.
//!
//! Byte `n` of a stream is byte `n mod 8` of a hash of `n / 8` and the stream's key. A datagram and the first segment of an
//! upload begin with a header; the pattern follows.

use asterism_memory::hash;

use super::STREAM_BYTES_MAX;

/// Which way a stream goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// From the client.
    Up,
    /// From the server.
    Down,
}

/// The key of a flow's stream.
pub(super) fn key(seed: u64, flow: u64, direction: Direction) -> u64 {
    hash::words(flow, direction as u64 + 1, seed)
}

/// Writes a stream from `offset`, a multiple of 8, on.
pub(super) fn fill(out: &mut [u8], key: u64, offset: u64) {
    for (word, chunk) in (offset / 8..).zip(out.chunks_mut(8)) {
        let bytes = hash::word(word, key).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// Whether these are the bytes of a stream from `offset` on; a stream is cut at multiples of 8 only.
pub(super) fn is_right(bytes: &[u8], key: u64, offset: u64) -> bool {
    offset.is_multiple_of(8)
        && (offset / 8..).zip(bytes.chunks(8)).all(|(word, chunk)| {
            let right = hash::word(word, key).to_le_bytes();
            *chunk == right[..chunk.len()]
        })
}

/// The first bytes of a header.
const MAGIC: u32 = 0x4153_4e54;

/// The header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Datagram {
    /// The flow's number, which no other flow has.
    pub(super) flow: u64,
    /// Which request of the flow it is, or answers.
    pub(super) sequence: u32,
    /// Requests of the flow.
    pub(super) total: u32,
    /// Answers of the flow that the client has received.
    pub(super) answered: u32,
}

impl Datagram {
    /// Bytes of the header.
    pub(super) const BYTES: usize = 24;

    pub(super) fn write(&self, direction: Direction, out: &mut [u8; Self::BYTES]) {
        out[..4].copy_from_slice(&(MAGIC ^ direction as u32).to_be_bytes());
        out[4..12].copy_from_slice(&self.flow.to_be_bytes());
        out[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        out[16..20].copy_from_slice(&self.total.to_be_bytes());
        out[20..].copy_from_slice(&self.answered.to_be_bytes());
    }

    pub(super) fn read(direction: Direction, bytes: &[u8]) -> Option<Datagram> {
        let header = bytes.first_chunk::<{ Self::BYTES }>()?;
        if word(header, 0) != MAGIC ^ direction as u32 {
            return None;
        }
        Some(Datagram {
            flow: u64::from(word(header, 4)) << 32 | u64::from(word(header, 8)),
            sequence: word(header, 12),
            total: word(header, 16),
            answered: word(header, 20),
        })
    }
}

/// The header of an upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Upload {
    /// The flow's number, which no other flow has.
    pub(super) flow: u64,
    /// Bytes of the upload, this header included.
    pub(super) up: u32,
    /// Bytes of the download.
    pub(super) down: u32,
}

impl Upload {
    /// Bytes of the header, a multiple of 8.
    pub(super) const BYTES: usize = 24;

    pub(super) fn write(&self, out: &mut [u8; Self::BYTES]) {
        out.fill(0);
        out[..4].copy_from_slice(&MAGIC.to_be_bytes());
        out[4..12].copy_from_slice(&self.flow.to_be_bytes());
        out[12..16].copy_from_slice(&self.up.to_be_bytes());
        out[16..20].copy_from_slice(&self.down.to_be_bytes());
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Upload> {
        let header = bytes.first_chunk::<{ Self::BYTES }>()?;
        let upload = Upload {
            flow: u64::from(word(header, 4)) << 32 | u64::from(word(header, 8)),
            up: word(header, 12),
            down: word(header, 16),
        };
        let is_upload = word(header, 0) == MAGIC
            && (Self::BYTES as u32..=STREAM_BYTES_MAX).contains(&upload.up)
            && upload.down <= STREAM_BYTES_MAX;
        is_upload.then_some(upload)
    }
}

fn word(bytes: &[u8; 24], at: usize) -> u32 {
    let part = bytes.get(at..at + 4).and_then(|part| part.first_chunk());
    u32::from_be_bytes(*part.unwrap_or(&[0; 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_stream_is_checked() {
        let key = key(1, 2, Direction::Up);
        let mut whole = [0; 100];
        fill(&mut whole, key, 0);
        let mut part = [0; 36];
        fill(&mut part, key, 64);
        assert_eq!(whole[64..], part);
        assert!(is_right(&whole, key, 0) && is_right(&part, key, 64));
        assert!(!is_right(&part, key, 56) && !is_right(&whole[1..], key, 1));
        assert!(!is_right(&whole, super::key(1, 2, Direction::Down), 0));
        assert!(!is_right(&whole, super::key(1, 3, Direction::Up), 0));
        for at in 0..whole.len() {
            let mut wrong = whole;
            wrong[at] ^= 1;
            assert!(!is_right(&wrong, key, 0), "{at}");
        }
    }

    #[test]
    fn headers_are_read_as_they_were_written() {
        let datagram = Datagram {
            flow: 1 << 40 | 5,
            sequence: 2,
            total: 3,
            answered: 4,
        };
        let mut bytes = [0; Datagram::BYTES];
        datagram.write(Direction::Down, &mut bytes);
        assert_eq!(Datagram::read(Direction::Down, &bytes), Some(datagram));
        assert_eq!(Datagram::read(Direction::Up, &bytes), None);
        assert_eq!(Datagram::read(Direction::Down, &bytes[1..]), None);
        let upload = Upload {
            flow: 1 << 40 | 5,
            up: 24,
            down: 8,
        };
        upload.write(&mut bytes);
        assert_eq!(Upload::read(&bytes), Some(upload));
        bytes[15] = 23;
        assert_eq!(Upload::read(&bytes), None, "shorter than its header");
        let long = Upload {
            down: STREAM_BYTES_MAX + 1,
            ..upload
        };
        long.write(&mut bytes);
        assert_eq!(Upload::read(&bytes), None);
    }
}
