//! What a reading is, and how it travels.

use super::stream_position::StreamPosition;
use crate::envelope::{KIND_AUDIT, Reader, write_varint};
use crate::membership::MEMBERS_MAX;

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

/// A digest that says nothing: the leaf cannot be compared now.
pub const UNSURE: u64 = u64::MAX;

/// A leaf, as an instance reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Equal on two members exactly if (but for chance, 2⁻⁶⁴) the leaf is; [`UNSURE`] is equal to nothing.
    pub digest: u64,
    /// How often it changed there, modulo 2³²: an entry may come and go, and leave the digest as it was.
    pub changes: u32,
}

/// A segment's leaves.
pub type Leaves = [Leaf; SEGMENT_LEAVES];

/// What a reading of a round says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The first: the digests. The vector says what it has at the most.
    First(Box<[u64; SEGMENT_LEAVES]>),
    /// The second: a bit for each leaf that has changed since. The vector says what it has at the least.
    Second(u64),
}

/// A reading of the reference, as it travels.
///
/// ```text
/// audit := turn:u8 number object:u8 segment:u8 count sequence*count body
/// body  := digest:u64*64     turn 0
///        | changed:u64       turn 1; bit n: leaf n of the segment
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Of which round.
    pub number: u32,
    /// Of what.
    pub place: Place,
    /// For each member of the cluster, in the order of their names, a sequence of its stream; zero for who takes no part.
    pub vector: Vec<u64>,
    /// First or second, and what it says.
    pub turn: Turn,
}

impl Reading {
    pub(in super::super) fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(matches!(self.turn, Turn::Second(_))));
        write_varint(out, self.number.into());
        out.extend_from_slice(&[self.place.object, self.place.segment]);
        write_varint(out, self.vector.len() as u64);
        for &sequence in &self.vector {
            write_varint(out, sequence);
        }
        let words = match &self.turn {
            Turn::First(digests) => &digests[..],
            Turn::Second(changed) => core::slice::from_ref(changed),
        };
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads one of a cluster of so many members; `None` of anything else.
    pub(super) fn read(bytes: &[u8], members: usize) -> Option<Reading> {
        Self::parse(bytes).filter(|reading| reading.vector.len() == members)
    }

    /// Reads one of any cluster; `None` if it is not well formed.
    pub(in super::super) fn parse(bytes: &[u8]) -> Option<Reading> {
        let mut reader = Reader::new(bytes);
        let first = match reader.byte()? {
            0 => true,
            1 => false,
            _ => return None,
        };
        let number = reader.u32()?;
        let (object, segment) = (reader.byte()?, reader.byte()?);
        let members = reader.length().filter(|&count| count <= MEMBERS_MAX)?;
        if usize::from(segment) >= SEGMENTS {
            return None;
        }
        let vector = (0..members)
            .map(|_| reader.sequence())
            .collect::<Option<Vec<u64>>>()?;
        let turn = if first {
            let mut digests = [0; SEGMENT_LEAVES];
            for digest in &mut digests {
                *digest = reader.fixed_u64()?;
            }
            Turn::First(Box::new(digests))
        } else {
            Turn::Second(reader.fixed_u64()?)
        };
        reader.is_empty().then_some(Reading {
            number,
            place: Place { object, segment },
            vector,
            turn,
        })
    }
}

/// Whether the body of an auditor's frame is well formed.
pub(in super::super) fn is_well_formed(kind: u8, body: &[u8]) -> bool {
    match kind {
        KIND_AUDIT => Reading::parse(body).is_some(),
        _ => StreamPosition::read(body).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(turn: Turn) -> Reading {
        Reading {
            number: 300,
            turn,
            place: Place {
                object: 2,
                segment: 3,
            },
            vector: vec![5, 0, 1 << 40],
        }
    }

    fn first() -> Reading {
        reading(Turn::First(Box::new(core::array::from_fn(|leaf| {
            leaf as u64 * 7
        }))))
    }

    #[test]
    fn what_is_written_is_read() {
        for reading in [first(), reading(Turn::Second(1 << 63 | 5))] {
            let mut bytes = Vec::new();
            reading.write(&mut bytes);
            assert_eq!(Reading::read(&bytes, 3), Some(reading));
            assert_eq!(Reading::read(&bytes, 4), None, "another cluster's");
            for length in 0..bytes.len() {
                assert_eq!(Reading::read(&bytes[..length], 3), None);
            }
            bytes.push(0);
            assert_eq!(Reading::read(&bytes, 3), None, "something follows");
        }
    }

    #[test]
    fn a_full_cluster_fits_the_shortest_message() {
        let mut bytes = Vec::new();
        let full = Reading {
            // Eight years at a million groups a second.
            vector: vec![1 << 48; MEMBERS_MAX],
            ..first()
        };
        full.write(&mut bytes);
        assert!(bytes.len() + 64 <= crate::replicated::PAYLOAD_BYTES_MIN);
    }
}
