//! How far a stream was sent, and a sum over it.

use crate::envelope::{Reader, write_varint};

/// A position of a stream, and what is added up to there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPosition {
    /// The groups up to here.
    pub sequence: u64,
    /// The sum of their digests, modulo 2⁶⁴.
    pub digest: u64,
}

impl StreamPosition {
    /// ```text
    /// stream := sequence digest:u64
    /// ```
    pub(in super::super) fn write(self, out: &mut Vec<u8>) {
        write_varint(out, self.sequence);
        out.extend_from_slice(&self.digest.to_le_bytes());
    }

    pub(in super::super) fn read(body: &[u8]) -> Option<StreamPosition> {
        let mut reader = Reader::new(body);
        let position = StreamPosition {
            sequence: reader.sequence().filter(|&sequence| sequence > 0)?,
            digest: reader.fixed_u64()?,
        };
        reader.is_empty().then_some(position)
    }
}
