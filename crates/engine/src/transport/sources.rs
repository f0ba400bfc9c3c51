//! Where datagrams came from, as numbers: a member's address has a number of its own for good, and of the rest
//! the last few are kept. A flood of strangers grows nothing and pushes no member out.

use std::net::SocketAddr;

/// Addresses of strangers that are remembered for an answer.
pub const STRANGERS_MAX: usize = 1_024;
/// Numbers from here on are strangers'.
const STRANGERS_FROM: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct Sources {
    members: Vec<SocketAddr>,
    strangers: Box<[Option<SocketAddr>]>,
    /// How many strangers were numbered.
    numbered: u64,
}

/// Who has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The member at that place.
    Member(usize),
    /// Somebody.
    Stranger(SocketAddr),
}

impl Sources {
    pub(super) fn new(members: Vec<SocketAddr>) -> Self {
        Self {
            members,
            strangers: vec![None; STRANGERS_MAX].into(),
            numbered: 0,
        }
    }

    /// The member's place at that address.
    pub(super) fn place(&self, address: SocketAddr) -> Option<usize> {
        self.members.iter().position(|&member| member == address)
    }

    /// The number of an address that a datagram came from.
    pub(super) fn number(&mut self, address: SocketAddr) -> u64 {
        if let Some(place) = self.place(address) {
            return place as u64;
        }
        let last = self.numbered.saturating_sub(1);
        if self.numbered > 0 && self.strangers[slot(last)] == Some(address) {
            return STRANGERS_FROM + last;
        }
        self.strangers[slot(self.numbered)] = Some(address);
        self.numbered += 1;
        STRANGERS_FROM + self.numbered - 1
    }

    /// Who has that number; `None` once [`STRANGERS_MAX`] others came after it.
    pub(super) fn resolve(&self, number: u64) -> Option<Source> {
        if let Some(number) = number.checked_sub(STRANGERS_FROM) {
            let age = self.numbered.checked_sub(number)?;
            return (1..=STRANGERS_MAX as u64)
                .contains(&age)
                .then(|| self.strangers[slot(number)].map(Source::Stranger))?;
        }
        let place = usize::try_from(number).ok()?;
        (place < self.members.len()).then_some(Source::Member(place))
    }
}

fn slot(number: u64) -> usize {
    (number % STRANGERS_MAX as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> SocketAddr {
        SocketAddr::from((number.to_be_bytes(), 9))
    }

    #[test]
    fn a_flood_of_strangers_grows_nothing_and_forgets_no_member() {
        let mut sources = Sources::new(vec![address(1), address(2)]);
        let first = sources.number(address(100));
        assert_eq!(sources.number(address(100)), first, "one after the other");
        assert_eq!(sources.resolve(first), Some(Source::Stranger(address(100))));
        for number in 0..100_000 {
            let given = sources.number(address(1_000 + number));
            assert_eq!(
                sources.resolve(given),
                Some(Source::Stranger(address(1_000 + number)))
            );
        }
        assert_eq!(sources.strangers.len(), STRANGERS_MAX);
        assert_eq!(sources.resolve(first), None);
        assert_eq!(sources.number(address(2)), 1);
        assert_eq!(sources.resolve(1), Some(Source::Member(1)));
        for unknown in [2, STRANGERS_FROM - 1, STRANGERS_FROM + 200_000, u64::MAX] {
            assert_eq!(sources.resolve(unknown), None, "{unknown}");
        }
    }
}
