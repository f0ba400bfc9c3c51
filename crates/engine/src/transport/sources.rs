//! Where datagrams came from, as numbers: a member's address has the number of its place, and any other a hash of the
//! address, so that it keeps its number. Of the others the last few are remembered for an answer: a flood of strangers
//! grows nothing and pushes no member out.

#![allow(
    clippy::disallowed_types,
    reason = "the I/O layer hands randomness in: nobody outside may choose addresses that share a number"
)]

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use asterism_secure_channel::{RELAYED_SOURCES_FROM, STRANGER_SOURCES_FROM};

/// Addresses of strangers that are remembered for an answer.
pub const STRANGERS_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct Sources {
    members: Vec<SocketAddr>,
    /// By number; a later one takes the place of an earlier.
    strangers: Box<[Option<(u64, SocketAddr)>]>,
    hashed_by: RandomState,
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
            hashed_by: RandomState::new(),
        }
    }

    /// Another address of a member, or a further member's, whose place is the next.
    pub(super) fn set(&mut self, place: usize, address: SocketAddr) {
        match self.members.get_mut(place) {
            Some(known) => *known = address,
            None => self.members.push(address),
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
        let number = self.stranger(address);
        self.strangers[slot(number)] = Some((number, address));
        number
    }

    /// Addresses of one network (an IPv4 address, the first half of an IPv6 one) have the 30 bits above the lowest 32 in common.
    fn stranger(&self, address: SocketAddr) -> u64 {
        let mut network = self.hashed_by.build_hasher();
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => ip.octets().hash(&mut network),
            IpAddr::V6(ip) => ip.octets()[..8].hash(&mut network),
        }
        let network = network.finish() % ((RELAYED_SOURCES_FROM - STRANGER_SOURCES_FROM) >> 32);
        let whole = self.hashed_by.hash_one((address.ip(), address.port()));
        STRANGER_SOURCES_FROM | network << 32 | whole & u64::from(u32::MAX)
    }

    /// Who has that number; `None` once another took its place.
    pub(super) fn resolve(&self, number: u64) -> Option<Source> {
        if number >= STRANGER_SOURCES_FROM {
            let (found, address) = self.strangers[slot(number)]?;
            return (found == number).then_some(Source::Stranger(address));
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
        assert_eq!(sources.number(address(100)), first);
        assert_eq!(sources.resolve(first), Some(Source::Stranger(address(100))));
        for number in 0..100_000 {
            let given = sources.number(address(1_000 + number));
            assert!((STRANGER_SOURCES_FROM..RELAYED_SOURCES_FROM).contains(&given));
            assert_eq!(
                sources.resolve(given),
                Some(Source::Stranger(address(1_000 + number)))
            );
        }
        assert_eq!(sources.strangers.len(), STRANGERS_MAX);
        assert_eq!(sources.resolve(first), None);
        assert_eq!(
            sources.number(address(100)),
            first,
            "an address keeps its number"
        );
        assert_eq!(sources.number(address(2)), 1);
        assert_eq!(sources.resolve(1), Some(Source::Member(1)));
        for unknown in [2, STRANGER_SOURCES_FROM - 1, RELAYED_SOURCES_FROM, u64::MAX] {
            assert_eq!(sources.resolve(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_network_is_reported_from_others_and_its_addresses_from_each_other() {
        let mut sources = Sources::new(Vec::new());
        let mut number = |text: &str| sources.number(text.parse().unwrap());
        let network = |number: u64| number >> 32;
        let one = number("192.0.2.1:9");
        let other_port = number("192.0.2.1:10");
        assert_ne!(one, other_port);
        assert_eq!(network(one), network(other_port));
        assert_ne!(network(one), network(number("192.0.2.2:9")));
        let six = number("[2001:db8::1]:9");
        assert_eq!(network(six), network(number("[2001:db8::2]:9")));
        assert_ne!(network(six), network(number("[2001:db8:0:1::1]:9")));
    }
}
