//! The set of moved buckets, and the parts in which it travels. No I/O.
//!
//! A director gets the whole set, as it gets the whole desired state: another set takes the place of the one before, so sending it
//! again changes nothing. The digest of a set is its name: parts of different sets are never joined.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};

use crate::fields::Fields;
use crate::message::{HostNumber, TARGETS_MAX};

/// Ranges of buckets in one part at most.
pub const PART_RANGES_MAX: usize = 120;
/// Parts of a set at most. A set that needs more is refused by who would send it.
pub const PARTS_MAX: usize = 256;
/// Bytes of a part at most.
pub(crate) const PART_BYTES: usize = 8 + 2 + 2 + 1 + TARGETS_MAX * 8 + 1 + PART_RANGES_MAX * 5;

/// Neighbouring buckets that one host has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedRange {
    /// The first bucket.
    pub first: u16,
    /// The last one, not below the first.
    pub last: u16,
    /// The host.
    pub host: HostNumber,
}

/// The buckets that do not go where the weights say, and the host that has each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    hosts: BTreeMap<u16, HostNumber>,
}

impl Moves {
    /// Gives a bucket to a host.
    pub fn insert(&mut self, bucket: u16, host: HostNumber) {
        self.hosts.insert(bucket, host);
    }

    /// How many buckets are moved.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The buckets in their order, each with its host.
    pub fn iter(&self) -> impl Iterator<Item = (u16, HostNumber)> {
        self.hosts.iter().map(|(bucket, host)| (*bucket, *host))
    }

    /// As few ranges as there can be, in the order of the buckets.
    #[must_use]
    pub fn ranges(&self) -> Vec<MovedRange> {
        let mut ranges: Vec<MovedRange> = Vec::new();
        for (bucket, host) in self.iter() {
            match ranges.last_mut() {
                Some(range) if range.host == host && range.last.checked_add(1) == Some(bucket) => {
                    range.last = bucket;
                }
                _ => ranges.push(MovedRange {
                    first: bucket,
                    last: bucket,
                    host,
                }),
            }
        }
        ranges
    }

    /// A number that equal sets have in common, and others only by chance: 0 of the empty one.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        for MovedRange { first, last, host } in self.ranges() {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&last.to_le_bytes());
            bytes.extend_from_slice(&host.0.to_le_bytes());
        }
        if bytes.is_empty() {
            return 0;
        }
        let digest = digest(&SHA256, &bytes);
        let first = digest.as_ref().first_chunk().copied();
        u64::from_le_bytes(first.unwrap_or_default())
    }

    /// The set in parts, each for one datagram; one without ranges if the set is empty. `None` if it needs more than [`PARTS_MAX`].
    #[must_use]
    pub fn parts(&self) -> Option<Vec<MovesPart>> {
        let set = self.digest();
        let ranges = self.ranges();
        let mut parts: Vec<Vec<MovedRange>> = vec![Vec::new()];
        let mut hosts: Vec<HostNumber> = Vec::new();
        for range in ranges {
            let is_new = !hosts.contains(&range.host);
            let is_full = parts.last().is_none_or(|part| {
                part.len() >= PART_RANGES_MAX || is_new && hosts.len() >= TARGETS_MAX
            });
            if is_full {
                parts.push(Vec::new());
                hosts.clear();
            }
            if !hosts.contains(&range.host) {
                hosts.push(range.host);
            }
            if let Some(part) = parts.last_mut() {
                part.push(range);
            }
        }
        let count = u16::try_from(parts.len()).ok()?;
        let part = |(part, ranges)| MovesPart {
            set,
            part,
            parts: count,
            ranges,
        };
        (parts.len() <= PARTS_MAX).then(|| (0..).zip(parts).map(part).collect())
    }
}

/// A part of a set of moved buckets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovesPart {
    /// The digest of the whole set.
    pub set: u64,
    /// Its number, from 0.
    pub part: u16,
    /// How many parts there are, at most [`PARTS_MAX`].
    pub parts: u16,
    /// In the order of the buckets, those of all parts; at most [`PART_RANGES_MAX`], of at most [`TARGETS_MAX`] hosts.
    pub ranges: Vec<MovedRange>,
}

impl MovesPart {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.set.to_le_bytes());
        out.extend_from_slice(&self.part.to_le_bytes());
        out.extend_from_slice(&self.parts.to_le_bytes());
        let ranges = &self.ranges[..self.ranges.len().min(PART_RANGES_MAX)];
        let mut hosts: Vec<HostNumber> = ranges.iter().map(|range| range.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        out.push(hosts.len() as u8);
        for host in &hosts {
            out.extend_from_slice(&host.0.to_le_bytes());
        }
        out.push(ranges.len() as u8);
        for MovedRange { first, last, host } in ranges {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&last.to_le_bytes());
            out.push(hosts.partition_point(|one| one < host) as u8);
        }
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<MovesPart> {
        let (set, part, parts) = (fields.u64()?, fields.u16()?, fields.u16()?);
        let hosts = usize::from(fields.u8()?);
        if part >= parts || usize::from(parts) > PARTS_MAX || hosts > TARGETS_MAX {
            return None;
        }
        let hosts: Option<Vec<HostNumber>> = (0..hosts)
            .map(|_| Some(HostNumber(fields.u64()?)))
            .collect();
        let hosts = hosts?;
        let count = usize::from(fields.u8()?);
        if count > PART_RANGES_MAX {
            return None;
        }
        let mut range = || {
            let (first, last) = (fields.u16()?, fields.u16()?);
            let host = *hosts.get(usize::from(fields.u8()?))?;
            (first <= last).then_some(MovedRange { first, last, host })
        };
        let ranges: Option<Vec<MovedRange>> = (0..count).map(|_| range()).collect();
        Some(MovesPart {
            set,
            part,
            parts,
            ranges: ranges?,
        })
    }
}

/// Why a part was not taken. The parts before it are forgotten: begin with the first one again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartError {
    /// It does not follow the part that came last, of the same set.
    #[error("a part is missing before this one, or it is of another set")]
    OutOfOrder,
    /// Its buckets do not come after those of the part before.
    #[error("a bucket has two hosts")]
    Overlap,
    /// All parts together are another set than they say.
    #[error("the parts are not those of one set")]
    OtherSet,
}

/// Joins the parts of a set, of which each comes after the one before.
#[derive(Debug, Default)]
pub struct MovesParts {
    /// The set, how many parts it has, and how many have come.
    set: Option<(u64, u16, u16)>,
    /// The first bucket that the next range may have.
    next: u32,
    moves: Moves,
}

impl MovesParts {
    /// Takes a part; the whole set with the last one. The first part of a set takes the place of whatever came before.
    ///
    /// # Errors
    /// [`PartError`]
    pub fn take(&mut self, part: &MovesPart) -> Result<Option<Moves>, PartError> {
        let before = std::mem::take(self);
        if part.part != 0 {
            if before.set != Some((part.set, part.parts, part.part)) {
                return Err(PartError::OutOfOrder);
            }
            *self = before;
        }
        let taken = self.take_next(part);
        if !matches!(taken, Ok(None)) {
            *self = MovesParts::default();
        }
        taken
    }

    fn take_next(&mut self, part: &MovesPart) -> Result<Option<Moves>, PartError> {
        for MovedRange { first, last, host } in &part.ranges {
            if u32::from(*first) < self.next {
                return Err(PartError::Overlap);
            }
            self.next = u32::from(*last) + 1;
            for bucket in *first..=*last {
                self.moves.insert(bucket, *host);
            }
        }
        let taken = part.part + 1;
        self.set = Some((part.set, part.parts, taken));
        if taken < part.parts {
            return Ok(None);
        }
        let moves = std::mem::take(&mut self.moves);
        match moves.digest() == part.set {
            true => Ok(Some(moves)),
            false => Err(PartError::OtherSet),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(pairs: impl IntoIterator<Item = (u16, u64)>) -> Moves {
        let mut moves = Moves::default();
        for (bucket, host) in pairs {
            moves.insert(bucket, HostNumber(host));
        }
        moves
    }

    #[test]
    fn neighbours_are_one_range_and_the_empty_set_is_one_part() {
        let moves = of([(3, 1), (1, 1), (2, 1), (4, 2), (u16::MAX, 2)]);
        let ranges = moves.ranges();
        let shown: Vec<_> = ranges.iter().map(|one| (one.first, one.last)).collect();
        assert_eq!(shown, [(1, 3), (4, 4), (u16::MAX, u16::MAX)]);
        let empty = Moves::default();
        assert_eq!(empty.digest(), 0);
        let parts = empty.parts().unwrap();
        assert_eq!(
            (parts.len(), parts[0].parts, parts[0].ranges.len()),
            (1, 1, 0)
        );
        assert_eq!(MovesParts::default().take(&parts[0]), Ok(Some(empty)));
        // All buckets of the largest flow space: one range.
        let all = of((0..=u16::MAX).map(|bucket| (bucket, 7)));
        assert_eq!(all.parts().unwrap().len(), 1);
        // Every other bucket: more than may be.
        let scattered = of((0..=u16::MAX).step_by(2).map(|bucket| (bucket, 7)));
        assert!(scattered.ranges().len() > PARTS_MAX * PART_RANGES_MAX);
        assert_eq!(scattered.parts(), None);
    }

    #[test]
    fn parts_count_in_their_order_and_of_one_set_alone() {
        let one = of((0..1_000).step_by(2).map(|bucket| (bucket, 1)));
        let other = of((0..1_000).step_by(2).map(|bucket| (bucket, 2)));
        let (ones, others) = (one.parts().unwrap(), other.parts().unwrap());
        assert_eq!(ones.len(), 5);
        let mut parts = MovesParts::default();
        assert_eq!(parts.take(&ones[1]), Err(PartError::OutOfOrder));
        assert_eq!(parts.take(&ones[0]), Ok(None));
        assert_eq!(parts.take(&others[1]), Err(PartError::OutOfOrder));
        assert_eq!(
            parts.take(&ones[1]),
            Err(PartError::OutOfOrder),
            "forgotten"
        );
        assert_eq!(parts.take(&ones[0]), Ok(None));
        assert_eq!(parts.take(&ones[2]), Err(PartError::OutOfOrder));
        // The first part of another set takes the place of the one that was begun.
        assert_eq!(parts.take(&ones[0]), Ok(None));
        for part in &others[..4] {
            assert_eq!(parts.take(part), Ok(None));
        }
        assert_eq!(parts.take(&others[4]), Ok(Some(other)));
        // Parts that lie.
        let mut wrong = ones.clone();
        wrong[1].ranges[0].first = 0;
        assert_eq!(parts.take(&wrong[0]), Ok(None));
        assert_eq!(parts.take(&wrong[1]), Err(PartError::Overlap));
        let mut short = ones[0].clone();
        short.parts = 1;
        assert_eq!(parts.take(&short), Err(PartError::OtherSet));
    }

    proptest! {
        #[test]
        fn any_set_travels_in_parts(
            pairs in prop::collection::btree_map(any::<u16>(), 0_u64..100, 0..600)
        ) {
            let moves = of(pairs);
            let mut joined = MovesParts::default();
            let mut whole = None;
            for part in moves.parts().unwrap() {
                let mut bytes = Vec::new();
                part.encode(&mut bytes);
                prop_assert!(bytes.len() <= PART_BYTES);
                let read = MovesPart::decode(&mut Fields(&bytes));
                prop_assert_eq!(read.as_ref(), Some(&part));
                prop_assert_eq!(&whole, &None);
                whole = joined.take(&part).unwrap();
            }
            prop_assert_eq!(whole, Some(moves));
        }
    }
}
