//! Who wrote an entry, and when in its writer's own order.
//!
//! Wall clocks never order writes (a skewed clock would win every race): generations do, and where
//! two writers reached the same generation, the caller's order, and last of all the stamp.

use core::cmp::Ordering;

/// The name of a stream of operations: one start of one host. The same everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OriginName {
    /// The member (host) that writes the stream.
    pub member: u16,
    /// Which start of that host. A restarted host is another origin.
    pub incarnation: u64,
}

/// A local short name of an [`OriginName`]: its place in [`Origins`]. Never sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin(pub u16);

/// The origins that this instance has heard of, oldest first. Slot 0 is the instance's own host.
#[derive(Clone, Debug)]
pub struct Origins {
    names: Vec<OriginName>,
    /// Their slots, in the order of the names.
    sorted: Vec<u16>,
}

/// Most origins (members × incarnations) that one instance keeps apart: entries have two bytes for each. None is given out again, so
/// a member that is started anew every ten seconds uses them up in a week.
pub const ORIGINS_MAX: usize = u16::MAX as usize;

impl Origins {
    /// A list with one entry, the instance's own host.
    pub fn new(own: OriginName) -> Self {
        // Room for a life of each member: to hear of those allocates nothing.
        let (mut names, mut sorted) = (Vec::with_capacity(64), Vec::with_capacity(64));
        names.push(own);
        sorted.push(0);
        Self { names, sorted }
    }

    /// The instance's own host.
    pub const OWN: Origin = Origin(0);

    /// The slot of `name`, given out now if it is new. `None` past [`ORIGINS_MAX`].
    pub fn slot(&mut self, name: OriginName) -> Option<Origin> {
        match self.place(name) {
            Ok(place) => Some(Origin(self.sorted[place])),
            Err(_) if self.names.len() >= ORIGINS_MAX => None,
            Err(place) => {
                let slot = self.names.len() as u16;
                self.names.push(name);
                self.sorted.insert(place, slot);
                Some(Origin(slot))
            }
        }
    }

    /// The slot of `name`, if it has one.
    pub fn find(&self, name: OriginName) -> Option<Origin> {
        let place = self.place(name).ok()?;
        Some(Origin(self.sorted[place]))
    }

    fn place(&self, name: OriginName) -> Result<usize, usize> {
        self.sorted
            .binary_search_by_key(&name, |&slot| self.names[usize::from(slot)])
    }

    /// The name behind a slot.
    pub fn name(&self, origin: Origin) -> OriginName {
        self.names[origin.0 as usize]
    }

    /// How many slots are in use.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The order of two stamps, equal on every member: by sequence, then by the writer's name.
    pub fn compare(&self, left: Stamp, right: Stamp) -> Ordering {
        left.sequence
            .cmp(&right.sequence)
            .then_with(|| self.name(left.origin).cmp(&self.name(right.origin)))
    }
}

/// The write that an entry's value comes from: the writer and its sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The writer.
    pub origin: Origin,
    /// The number of the operation group in the writer's stream, from 1.
    pub sequence: u64,
}

/// Of sequences by origin, this one is at least that.
pub(crate) fn raise(sequences: &mut Vec<u64>, origin: Origin, sequence: u64) {
    let place = usize::from(origin.0);
    if sequences.len() <= place {
        sequences.resize(place + 1, 0);
    }
    sequences[place] = sequences[place].max(sequence);
}

/// Whether a stamp is within sequences by origin.
pub(crate) fn reaches(sequences: &[u64], stamp: Stamp) -> bool {
    let until = sequences.get(usize::from(stamp.origin.0));
    until.is_some_and(|&until| until >= stamp.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_by_name_and_end() {
        let name = |life: u64| OriginName {
            member: (life % 3) as u16,
            incarnation: life.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        };
        let mut origins = Origins::new(name(0));
        for life in 0..ORIGINS_MAX as u64 {
            assert_eq!(origins.slot(name(life)), Some(Origin(life as u16)));
        }
        assert_eq!(origins.count(), ORIGINS_MAX);
        assert_eq!(origins.slot(name(ORIGINS_MAX as u64)), None);
        assert_eq!(origins.find(name(ORIGINS_MAX as u64)), None);
        for life in [0, 1, 2, 700, ORIGINS_MAX as u64 - 1] {
            let found = origins.find(name(life)).expect("it has one");
            assert_eq!(origins.name(found), name(life));
            assert_eq!(origins.slot(name(life)), Some(found));
        }
    }
}
