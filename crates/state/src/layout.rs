//! What two hosts must have alike for one to read what the other writes, as numbers: how values are written, and how a state's
//! objects are made.
//!
//! Numbers, and neither names of types nor the compiler's: they are the same in all builds of one version.

use crate::hash;
use crate::object::ObjectSettings;

/// The layout of a type that is written manually, under this name; `version` is another one when its bytes are.
#[must_use]
pub const fn manual(name: &str, version: u64) -> u64 {
    let bytes = name.as_bytes();
    let (mut sum, mut place) = (hash::word(version, 0x4C41_594F_5554_0001), 0);
    while place < bytes.len() {
        sum = hash::word(bytes[place] as u64, sum);
        place += 1;
    }
    sum
}

/// The layout of a type whose parts are written one after another, which `#[derive(Wire)]` finds.
#[must_use]
pub const fn of_parts(parts: &[u64]) -> u64 {
    let (mut sum, mut place) = (hash::word(parts.len() as u64, 0x4C41_594F_5554_0002), 0);
    while place < parts.len() {
        sum = hash::word(parts[place], sum);
        place += 1;
    }
    sum
}

/// The layout of a type of which no more is known than how large it is.
#[must_use]
pub const fn of_size(bytes: usize) -> u64 {
    hash::word(bytes as u64, 0x4C41_594F_5554_0003)
}

/// Bytes on the wire at most of a type of which no more is known than how large it is: addresses and varints may take a fourth more
/// than in memory, and a few fields may be counted.
#[must_use]
pub const fn bytes_of_size(bytes: usize) -> usize {
    bytes + bytes / 4 + 16
}

/// The bytes of parts that are written one after another.
#[must_use]
pub const fn bytes_of_parts(parts: &[usize]) -> usize {
    let (mut sum, mut place) = (0, 0);
    while place < parts.len() {
        sum += parts[place];
        place += 1;
    }
    sum
}

/// The bytes of the longest of some cases.
#[must_use]
pub const fn bytes_of_cases(cases: &[usize]) -> usize {
    let (mut most, mut place) = (0, 0);
    while place < cases.len() {
        if cases[place] > most {
            most = cases[place];
        }
        place += 1;
    }
    most
}

/// What hosts must have alike of a whole state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The objects' names, kinds and layouts, in order: anyone who differs misreads every byte.
    pub layout: u64,
    /// That, which of them are shared, and their sizes: anyone who differs has no room for, or no use of, what others write.
    pub whole: u64,
}

impl Shape {
    pub(crate) const EMPTY: Self = Self {
        layout: 1,
        whole: 2,
    };

    /// With an object of a name and a kind, whose operations are written so, and which is made with these numbers. What nobody
    /// else writes to may be of any size.
    pub(crate) fn add(
        &mut self,
        name: &str,
        settings: &ObjectSettings,
        layout: &[u64],
        made: &[u64],
    ) {
        self.layout = hash::word(hash::bytes(name.as_bytes(), of_parts(layout)), self.layout);
        let made = match settings.logged {
            true => hash::word(1, of_parts(made)),
            false => 0,
        };
        self.whole = hash::word(made, hash::word(self.layout, self.whole));
    }

    /// With another number that hosts must have alike however they are made.
    #[must_use]
    pub fn and(self, number: u64) -> Self {
        Self {
            layout: hash::word(number, self.layout),
            whole: hash::word(number, self.whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    #[test]
    fn what_is_written_otherwise_has_another_layout() {
        let layouts = [
            u8::LAYOUT,
            u16::LAYOUT,
            i16::LAYOUT,
            u64::LAYOUT,
            bool::LAYOUT,
            <()>::LAYOUT,
            <[u8; 2]>::LAYOUT,
            <[u8; 3]>::LAYOUT,
            Option::<u16>::LAYOUT,
            <(u8, u16)>::LAYOUT,
            <(u16, u8)>::LAYOUT,
            core::net::Ipv4Addr::LAYOUT,
            core::net::Ipv6Addr::LAYOUT,
            crate::Single::<u16>::LAYOUT,
            crate::Pair::<u8, u16>::LAYOUT,
            manual("session", 1),
            manual("session", 2),
            manual("sessions", 1),
            of_size(8),
            of_size(9),
        ];
        let mut apart = layouts.to_vec();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), layouts.len());
    }

    #[test]
    fn every_build_has_these_numbers() {
        let mut shape = Shape::EMPTY;
        let settings = ObjectSettings::REPLICATED;
        shape.add("sessions", &settings, &[u32::LAYOUT], &[64]);
        let numbers = [<(u32, [u8; 6])>::LAYOUT, shape.layout, shape.whole];
        assert_eq!(
            numbers,
            [
                17809382094718132938,
                13929507393061739158,
                10720811068002891972
            ]
        );
    }
}
