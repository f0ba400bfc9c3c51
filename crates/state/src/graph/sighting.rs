//! What a graph's table holds: an edge as one instance sees it.

use core::cmp::Ordering;

use crate::context::Context;
use crate::layout;
use crate::map::Key;
use crate::mutant::{self, Mutant};
use crate::stamp::OriginName;
use crate::table::{Row, Total, Value};
use crate::wire::{BadBytes, Reader, Wire, Writer};

/// The lane of one instance's sighting of an edge.
pub(super) const OWN: usize = 0;
/// The lane of all edges that begin at a node.
pub(super) const SOURCE: usize = 1;
/// The lane of all edges that end at a node.
pub(super) const DESTINATION: usize = 2;
/// The lane of all sightings of an edge.
pub(super) const EDGE: usize = 3;

/// Who writes a sighting: an instance, in one of its host's incarnations.
///
/// Packed, as [`Volume`] is, so that a sighting between IPv4 addresses is a record of 64 bytes, which lies in one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))]
pub(super) struct Witness {
    incarnation: u64,
    member: u16,
    lane: u16,
}

impl Witness {
    pub(super) fn own(context: &Context) -> Self {
        let identity = context.identity();
        Self {
            incarnation: identity.own.incarnation,
            member: identity.own.member,
            lane: identity.lane.0,
        }
    }

    /// The incarnation of the host that it is, or was, an instance of.
    pub(super) fn incarnation(self) -> OriginName {
        OriginName {
            member: self.member,
            incarnation: self.incarnation,
        }
    }
}

/// An edge, as one instance sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sighting<N> {
    pub(super) source: N,
    pub(super) destination: N,
    pub(super) witness: Witness,
}

impl<N: Key> Sighting<N> {
    #[inline(always)]
    pub(super) fn is_of(&self, source: &N, destination: &N) -> bool {
        self.source == *source && self.destination == *destination
    }
}

impl<N: Key> Wire for Sighting<N> {
    const LAYOUT: u64 = layout::of_parts(&[layout::manual("Sighting", 0), N::LAYOUT]);
    fn encode(&self, out: &mut Writer<'_>) {
        self.source.encode(out);
        self.destination.encode(out);
        let Witness {
            incarnation,
            member,
            lane,
        } = self.witness;
        OriginName {
            member,
            incarnation,
        }
        .encode(out);
        out.u16(lane);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let (source, destination) = (N::decode(input)?, N::decode(input)?);
        let name = OriginName::decode(input)?;
        Ok(Self {
            source,
            destination,
            witness: Witness {
                incarnation: name.incarnation,
                member: name.member,
                lane: input.u16()?,
            },
        })
    }
}

impl<N: Key> Row for Sighting<N> {
    const UNIQUE: usize = 1;
    const LANES: usize = 4;
    #[inline(always)]
    fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
        match lane {
            SOURCE => self.source.hash(seed),
            DESTINATION => self.destination.hash(seed),
            EDGE => edge_hash(&self.source, &self.destination, seed),
            _ => own_hash(&self.source, &self.destination, self.witness, seed),
        }
    }
    fn lane_key(&self, lane: usize, out: &mut Writer<'_>) {
        match lane {
            SOURCE => self.source.encode(out),
            DESTINATION => self.destination.encode(out),
            EDGE => (self.source, self.destination).encode(out),
            _ => self.encode(out),
        }
    }
    #[inline(always)]
    fn lane_equal(&self, lane: usize, other: &Self) -> bool {
        match lane {
            SOURCE => self.source == other.source,
            DESTINATION => self.destination == other.destination,
            EDGE => self.is_of(&other.source, &other.destination),
            _ => self == other,
        }
    }
    fn order(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

/// The hash of an edge. Source and destination do not commute in it.
#[inline(always)]
pub(super) fn edge_hash<N: Key>(source: &N, destination: &N, seed: u64) -> u64 {
    destination.hash(source.hash(seed))
}

/// The hash of an edge as an instance sees it.
#[inline(always)]
pub(super) fn own_hash<N: Key>(source: &N, destination: &N, witness: Witness, seed: u64) -> u64 {
    let name = u64::from(witness.member) << 16 | u64::from(witness.lane);
    let edge = edge_hash(source, destination, seed);
    asterism_memory::hash::words(witness.incarnation, name, edge)
}

/// What one instance added to an edge: a total that only grows, so that the greater copy is the newer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))]
pub(super) struct Volume {
    total: u64,
    /// As much of it as the others were reported: what travels, in snapshots too, and what is in the digest. In another's
    /// sighting it is all that is known.
    reported: u64,
}

impl Volume {
    /// A total of which the others are reported at once.
    pub(super) fn reported(total: u64) -> Self {
        Self {
            total,
            reported: total,
        }
    }

    #[inline(always)]
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Adds what the others are reported later. Stops at 2⁶⁴ - 1.
    #[inline(always)]
    pub(super) fn raise(&mut self, amount: u64) {
        self.total = self.total.saturating_add(amount);
    }
}

impl Wire for Volume {
    const LAYOUT: u64 = layout::manual("Volume", 0);
    fn encode(&self, out: &mut Writer<'_>) {
        let unreported = mutant::active(Mutant::UnreportedInSnapshots);
        out.varint(if unreported {
            self.total
        } else {
            self.reported
        });
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        input.varint().map(Self::reported)
    }
}

impl Value for Volume {
    const JOINS: bool = true;
    fn join(&mut self, other: &Self) {
        self.total = self.total.max(other.total);
        self.reported = self.reported.max(other.reported);
    }
}

impl Total for Volume {
    fn tell(&mut self) {
        self.reported = self.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use crate::table::Table;
    use proptest::prelude::*;

    #[test]
    fn a_sighting_between_addresses_lies_in_one_cache_line() {
        assert_eq!(Table::<Sighting<[u8; 4]>, Volume>::RECORD_BYTES, 64);
    }

    proptest! {
        #[test]
        fn sightings_and_volumes_keep_the_laws(nodes: [u8; 4], members: [u16; 2], volumes: [u64; 3], seed: u64) {
            let row = |source: u8, destination: u8, member: u16| Sighting {
                source: source % 3,
                destination: destination % 3,
                witness: Witness { incarnation: u64::from(member % 3), member: member % 2, lane: 0 },
            };
            let [a, b, c, d] = nodes;
            laws::row(row(a, b, members[0]), row(c, d, members[1]), seed);
            let [a, b, c] = volumes.map(|total| Volume { total, reported: total / 2 });
            laws::value(a, b, c);
        }

        #[test]
        fn sightings_come_back_from_their_bytes(source: u32, destination: u32, member: u16, incarnation: u64, lane: u16) {
            let sighting = Sighting { source, destination, witness: Witness { incarnation, member, lane } };
            let mut bytes = Vec::new();
            sighting.encode(&mut Writer::new(&mut bytes, &[]));
            prop_assert_eq!(Sighting::decode(&mut Reader::new(&bytes, &[])), Ok(sighting));
            for cut in 0..bytes.len() {
                prop_assert!(Sighting::<u32>::decode(&mut Reader::new(&bytes[..cut], &[])).is_err());
            }
        }
    }
}
