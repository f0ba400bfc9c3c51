//! What two hosts must have alike for one to read what the other writes, as numbers: how values are written.
//! The crate of state objects adds up what a whole state is made of (`Shape`).
//!
//! Numbers, and neither names of types nor the compiler's: they are the same in all builds of one version.

use asterism_memory::hash;

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
}
