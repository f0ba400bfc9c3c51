//! What a reading is, and how it travels.

use super::super::wire::{Reader, write_varint};

/// Parts into which the entries of every object are divided, by hash. Each has a digest of its own.
pub const LEAVES: usize = 256;
/// Of them one reading has so many, consecutive.
pub const SEGMENT_LEAVES: usize = 64;
/// Readings that cover an object.
pub const SEGMENTS: usize = LEAVES / SEGMENT_LEAVES;

/// Where a reading is of: an object and one of its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The object's number.
    pub object: u8,
    /// Which of its [`SEGMENTS`].
    pub segment: u8,
}

impl Place {
    pub(super) fn index(self) -> usize {
        usize::from(self.object) * SEGMENTS + usize::from(self.segment)
    }
    /// The first of its leaves, of the object's [`LEAVES`].
    #[must_use]
    pub fn first_leaf(self) -> usize {
        usize::from(self.segment) * SEGMENT_LEAVES
    }
}

/// The digests of a segment's leaves.
pub type Leaves = [u64; SEGMENT_LEAVES];

/// Which of a round's two readings it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The first: the vector says what it has at the most.
    First,
    /// The second: the vector says what it has at the least.
    Second,
}

/// A reading of the reference, as it travels.
///
/// ```text
/// audit := turn:u8 number object:u8 segment:u8 count sequence*count leaf:u64*64
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Of which round.
    pub number: u32,
    /// First or second.
    pub turn: Turn,
    /// Of what.
    pub place: Place,
    /// For each member of the cluster, in the order of their names, a sequence of its stream; zero for who takes no part.
    pub vector: Vec<u64>,
    /// The digests.
    pub leaves: Leaves,
}

impl Reading {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.turn == Turn::Second));
        write_varint(out, self.number.into());
        out.extend_from_slice(&[self.place.object, self.place.segment]);
        write_varint(out, self.vector.len() as u64);
        for &sequence in &self.vector {
            write_varint(out, sequence);
        }
        for leaf in self.leaves {
            out.extend_from_slice(&leaf.to_le_bytes());
        }
    }

    /// Reads one of a cluster of so many members; `None` of anything else.
    pub(super) fn read(bytes: &[u8], members: usize) -> Option<Reading> {
        let mut reader = Reader::new(bytes);
        let turn = match reader.byte()? {
            0 => Turn::First,
            1 => Turn::Second,
            _ => return None,
        };
        let number = reader.u32()?;
        let (object, segment) = (reader.byte()?, reader.byte()?);
        if usize::from(segment) >= SEGMENTS || reader.varint()? != members as u64 {
            return None;
        }
        let vector = (0..members)
            .map(|_| reader.sequence())
            .collect::<Option<Vec<u64>>>()?;
        let mut leaves = [0; SEGMENT_LEAVES];
        for leaf in &mut leaves {
            *leaf = reader.fixed_u64()?;
        }
        reader.is_empty().then_some(Reading {
            number,
            turn,
            place: Place { object, segment },
            vector,
            leaves,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> Reading {
        Reading {
            number: 300,
            turn: Turn::Second,
            place: Place {
                object: 2,
                segment: 3,
            },
            vector: vec![5, 0, 1 << 40],
            leaves: core::array::from_fn(|leaf| leaf as u64 * 7),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        reading().write(&mut bytes);
        assert_eq!(Reading::read(&bytes, 3), Some(reading()));
        assert_eq!(Reading::read(&bytes, 4), None, "another cluster's");
        for length in 0..bytes.len() {
            assert_eq!(Reading::read(&bytes[..length], 3), None);
        }
        bytes.push(0);
        assert_eq!(Reading::read(&bytes, 3), None, "something follows");
    }

    #[test]
    fn a_full_cluster_fits_the_shortest_message() {
        let mut bytes = Vec::new();
        let full = Reading {
            // Eight years at a million groups a second.
            vector: vec![1 << 48; crate::replicated::MEMBERS_MAX],
            ..reading()
        };
        full.write(&mut bytes);
        assert!(bytes.len() + 64 <= crate::replicated::PAYLOAD_BYTES_MIN);
    }
}
