//! Packets of each bucket, in parts. A zero stands with how many follow it, so that counts of a director that is standby fit one part.

use crate::fields::{Fields, VARINT_BYTES_MAX, write_varint};

/// Bytes of the counts of a part at most.
const COUNTS_BYTES_MAX: usize = 1_024;
/// Bytes of a part at most.
pub(crate) const PART_BYTES: usize = 8 + 4 + 4 + COUNTS_BYTES_MAX;
/// Buckets at most.
pub const BUCKETS_MAX: u32 = 65_536;

/// Counts of buckets in a row, of one taking.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountsPart {
    /// The number under which they were asked for.
    pub number: u64,
    /// Buckets of the flow space, at most [`BUCKETS_MAX`].
    pub buckets: u32,
    /// The bucket of the first count.
    pub from: u32,
    /// The counts, one at least.
    pub counts: Vec<u32>,
}

impl CountsPart {
    /// The counts of one taking from a bucket on, as many as fit; `None` if there is no such bucket.
    #[must_use]
    pub fn of(number: u64, counts: &[u32], from: u32) -> Option<CountsPart> {
        let buckets = u32::try_from(counts.len()).ok()?;
        let rest = counts
            .get(from as usize..)
            .filter(|rest| !rest.is_empty())?;
        let fitting = write(&mut Vec::new(), rest);
        Some(CountsPart {
            number,
            buckets,
            from,
            counts: rest[..fitting].to_vec(),
        })
    }

    /// The bucket after the last count; the number of buckets if these are the last.
    #[must_use]
    pub fn next(&self) -> u32 {
        self.from + self.counts.len() as u32
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.buckets.to_le_bytes());
        out.extend_from_slice(&self.from.to_le_bytes());
        write(out, &self.counts);
    }

    /// Reads a part, which ends with the bytes.
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<CountsPart> {
        let (number, buckets, from) = (fields.u64()?, fields.u32()?, fields.u32()?);
        if buckets > BUCKETS_MAX {
            return None;
        }
        let left = buckets.checked_sub(from)? as usize;
        let mut counts = Vec::new();
        while !fields.is_at_end() {
            let (count, times) = match fields.varint()? {
                0 => (0, fields.varint()? as usize + 1),
                count => (count, 1),
            };
            if times > left - counts.len() {
                return None;
            }
            counts.resize(counts.len() + times, count);
        }
        (!counts.is_empty()).then_some(CountsPart {
            number,
            buckets,
            from,
            counts,
        })
    }
}

/// Appends counts, as many as fit: how many.
fn write(out: &mut Vec<u8>, counts: &[u32]) -> usize {
    let end = out.len() + COUNTS_BYTES_MAX - 2 * VARINT_BYTES_MAX;
    let mut place = 0;
    while place < counts.len() && out.len() <= end {
        let zeros = counts[place..]
            .iter()
            .take_while(|count| **count == 0)
            .count();
        if zeros > 0 {
            write_varint(out, 0);
            write_varint(out, zeros as u32 - 1);
            place += zeros;
        } else {
            write_varint(out, counts[place]);
            place += 1;
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The counts read from their parts, and how many these were.
    fn travel(counts: &[u32]) -> (Vec<u32>, usize) {
        let mut read = Vec::new();
        let mut parts = 0;
        while let Some(part) = CountsPart::of(5, counts, read.len() as u32) {
            let mut bytes = Vec::new();
            part.encode(&mut bytes);
            assert!(bytes.len() <= PART_BYTES, "{}", bytes.len());
            let decoded = CountsPart::decode(&mut Fields(&bytes)).unwrap();
            assert_eq!(decoded, part);
            assert_eq!(
                (decoded.buckets, decoded.from),
                (counts.len() as u32, read.len() as u32)
            );
            read.extend(&decoded.counts);
            assert_eq!(decoded.next(), read.len() as u32);
            parts += 1;
        }
        (read, parts)
    }

    #[test]
    fn counts_of_a_standby_fit_one_part_and_others_few() {
        let silent = vec![0; BUCKETS_MAX as usize];
        assert_eq!(travel(&silent), (silent.clone(), 1));
        let busy: Vec<u32> = (0..16_384_u32).map(|bucket| bucket % 300).collect();
        let (read, parts) = travel(&busy);
        assert!(read == busy && parts <= 30, "{parts}");
        let most = vec![u32::MAX; 2_000];
        assert_eq!(travel(&most).0, most);
    }

    #[test]
    fn parts_that_lie_are_refused() {
        let mut bytes = Vec::new();
        let part = |buckets: u32, from: u32, counts: &[u8]| {
            bytes.clear();
            bytes.extend_from_slice(&7_u64.to_le_bytes());
            bytes.extend_from_slice(&buckets.to_le_bytes());
            bytes.extend_from_slice(&from.to_le_bytes());
            bytes.extend_from_slice(counts);
            CountsPart::decode(&mut Fields(&bytes))
        };
        let mut part = part;
        assert!(part(256, 254, &[1, 2]).is_some());
        assert!(part(256, 254, &[0, 1]).is_some());
        assert_eq!(part(256, 254, &[0, 2]), None, "more than there are");
        assert_eq!(part(256, 254, &[1, 2, 3]), None);
        assert_eq!(part(256, 256, &[]), None, "nothing in it");
        assert_eq!(part(256, 257, &[1]), None);
        assert_eq!(part(65_537, 0, &[1]), None);
        assert_eq!(part(256, 0, &[0]), None, "cut");
        assert_eq!(
            part(256, 0, &[0xff, 0xff, 0xff, 0xff, 0x7f]),
            None,
            "33 bits"
        );
        // A run that asks for memory.
        assert_eq!(part(256, 0, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]), None);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            counts in prop::collection::vec(prop_oneof![Just(0_u32), any::<u32>(), 0_u32..9], 0..2_000)
        ) {
            prop_assert_eq!(travel(&counts).0, counts);
        }
    }
}
