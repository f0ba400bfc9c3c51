//! Who wrote an entry, and when in its writer's own order.
//!
//! Wall clocks never order writes (a skewed clock would win every race): generations do, and where
//! two writers reached the same generation, the caller's order, and last of all the stamp.

use core::cmp::Ordering;

use asterism_wire::{BadBytes, Reader, Wire, Writer};

/// The name of a stream of operations: one start of one host. The same everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OriginName {
    /// The member (host) that writes the stream.
    pub member: u16,
    /// Which start of that host. A restarted host is another origin.
    pub incarnation: u64,
}

impl Wire for OriginName {
    const LAYOUT: u64 = asterism_wire::layout::manual("OriginName", 0);
    fn encode(&self, out: &mut Writer<'_>) {
        out.u16(self.member);
        out.u64(self.incarnation);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            member: input.u16()?,
            incarnation: input.u64()?,
        })
    }
}

/// A local short name of an [`OriginName`]: its place in [`Origins`]. Never sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin(pub u16);

/// The origins that this instance has heard of and not forgotten since (`forgetting.rs` of `asterism-call-context`). Slot 0 is the
/// instance's own host.
#[derive(Clone, Debug)]
pub struct Origins {
    /// By slot; of a slot that is free, the name that it had last.
    names: Vec<OriginName>,
    /// The slots in use, in the order of their names.
    sorted: Vec<u16>,
    /// Slots that were freed.
    free: Vec<u16>,
    /// By member in order: up to this incarnation its closed ones were forgotten.
    forgotten: Vec<(u16, u64)>,
}

/// Most origins (members × incarnations) that one instance keeps apart at a time: entries have two bytes for each. One that has ended and
/// to which nothing refers is forgotten, so what uses them up is entries that never end, of as many incarnations.
pub const ORIGINS_MAX: usize = u16::MAX as usize;

impl Origins {
    /// A list with one entry, the instance's own host.
    pub fn new(own: OriginName) -> Self {
        // Room for an incarnation of each member: to hear of those allocates nothing.
        let (mut names, mut sorted) = (Vec::with_capacity(64), Vec::with_capacity(64));
        names.push(own);
        sorted.push(0);
        Self {
            names,
            sorted,
            free: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// The instance's own host.
    pub const OWN: Origin = Origin(0);

    /// The slot of `name`, given out now if it is new. `None` past [`ORIGINS_MAX`].
    pub fn slot(&mut self, name: OriginName) -> Option<Origin> {
        match self.place(name) {
            Ok(place) => Some(Origin(self.sorted[place])),
            Err(_) if self.sorted.len() >= ORIGINS_MAX => None,
            Err(place) => {
                let slot = match self.free.pop() {
                    Some(slot) => {
                        self.names[usize::from(slot)] = name;
                        slot
                    }
                    None => {
                        self.names.push(name);
                        (self.names.len() - 1) as u16
                    }
                };
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
        self.sorted.len()
    }

    /// The slots in use, in the order of their names.
    pub fn by_name(&self) -> &[u16] {
        &self.sorted
    }

    /// Takes slots back, to be given out to other origins.
    pub fn free(&mut self, slots: impl Iterator<Item = Origin>) {
        let mut freed = NamedOrigins::default();
        for Origin(slot) in slots {
            freed.mark(slot);
            self.free.push(slot);
        }
        self.sorted.retain(|&slot| !freed.contains(slot));
    }

    /// Notes that an origin which was closed is forgotten.
    pub fn remember_forgotten(&mut self, name: OriginName) {
        let known = self
            .forgotten
            .binary_search_by_key(&name.member, |known| known.0);
        match known {
            Ok(place) => {
                let until = &mut self.forgotten[place].1;
                *until = (*until).max(name.incarnation);
            }
            Err(place) => {
                let first = (name.member, name.incarnation);
                self.forgotten.insert(place, first);
            }
        }
    }

    /// Whether an origin that has no slot was forgotten, or came before one that was.
    pub fn was_forgotten(&self, name: OriginName) -> bool {
        self.forgotten()
            .any(|last| last.member == name.member && last.incarnation >= name.incarnation)
    }

    /// Of each member of which any was forgotten, the last one.
    pub fn forgotten(&self) -> impl Iterator<Item = OriginName> + '_ {
        let known = self.forgotten.iter();
        known.map(|&(member, incarnation)| OriginName {
            member,
            incarnation,
        })
    }

    /// The order of two stamps, equal on every member: by sequence, then by the writer's name.
    pub fn compare(&self, left: Stamp, right: Stamp) -> Ordering {
        left.sequence
            .cmp(&right.sequence)
            .then_with(|| self.name(left.origin).cmp(&self.name(right.origin)))
    }
}

/// A set of slots of [`Origins`]: those that something refers to. 8 KiB from the first one on.
#[derive(Clone, Debug, Default)]
pub struct NamedOrigins {
    words: Vec<u64>,
}

impl NamedOrigins {
    /// Adds a slot.
    #[inline]
    pub fn mark(&mut self, slot: u16) {
        if self.words.is_empty() {
            self.words = vec![0; (ORIGINS_MAX + 1) / u64::BITS as usize];
        }
        self.words[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    /// Whether a slot is among them.
    pub fn contains(&self, slot: u16) -> bool {
        let word = self.words.get(usize::from(slot) / 64);
        word.is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.words.fill(0);
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
pub fn raise(sequences: &mut Vec<u64>, origin: Origin, sequence: u64) {
    let place = usize::from(origin.0);
    if sequences.len() <= place {
        sequences.resize(place + 1, 0);
    }
    sequences[place] = sequences[place].max(sequence);
}

/// Whether a stamp is within sequences by origin.
pub fn reaches(sequences: &[u64], stamp: Stamp) -> bool {
    let until = sequences.get(usize::from(stamp.origin.0));
    until.is_some_and(|&until| until >= stamp.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_by_name_and_end() {
        let name = |incarnation: u64| OriginName {
            member: (incarnation % 3) as u16,
            incarnation: incarnation.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        };
        let mut origins = Origins::new(name(0));
        for incarnation in 0..ORIGINS_MAX as u64 {
            assert_eq!(
                origins.slot(name(incarnation)),
                Some(Origin(incarnation as u16))
            );
        }
        assert_eq!(origins.count(), ORIGINS_MAX);
        assert_eq!(origins.slot(name(ORIGINS_MAX as u64)), None);
        assert_eq!(origins.find(name(ORIGINS_MAX as u64)), None);
        for incarnation in [0, 1, 2, 700, ORIGINS_MAX as u64 - 1] {
            let found = origins.find(name(incarnation)).expect("it has one");
            assert_eq!(origins.name(found), name(incarnation));
            assert_eq!(origins.slot(name(incarnation)), Some(found));
        }
    }
}
