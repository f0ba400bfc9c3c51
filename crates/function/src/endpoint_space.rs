//! The outside endpoints of a NAT, as a pool's items. Knows packets' endpoints and nothing of pools.

use core::net::Ipv4Addr;
use core::ops::RangeInclusive;

use asterism_packet::{Endpoint, Protocol};

use asterism_state::Space;

/// Addresses × protocols × a range of ports. A range is an address and a protocol: range
/// `a × protocols + p` for the address at place `a` and the protocol at place `p`.
///
/// Must be the same on every member: members are dealt blocks of it by their place in the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpace {
    addresses: Vec<Ipv4Addr>,
    protocols: Vec<Protocol>,
    first_port: u16,
    ports: u32,
}

impl EndpointSpace {
    /// The endpoints of `addresses` with `ports`, once for each of `protocols`. Repeated addresses and
    /// protocols count once.
    pub fn new(addresses: &[Ipv4Addr], ports: RangeInclusive<u16>, protocols: &[Protocol]) -> Self {
        Self {
            addresses: distinct(addresses),
            protocols: distinct(protocols),
            first_port: *ports.start(),
            ports: ports.len() as u32,
        }
    }

    /// The addresses, in the order of their ranges.
    pub fn addresses(&self) -> &[Ipv4Addr] {
        &self.addresses
    }

    /// The range of an address (by its place) and a protocol. `None` if there is none.
    pub fn range(&self, address: usize, protocol: Protocol) -> Option<u32> {
        let place = self.protocols.iter().position(|&held| held == protocol)?;
        (address < self.addresses.len()).then_some((address * self.protocols.len() + place) as u32)
    }
}

fn distinct<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut held = Vec::with_capacity(items.len());
    for &item in items {
        if !held.contains(&item) {
            held.push(item);
        }
    }
    held
}

impl Space for EndpointSpace {
    type Item = Endpoint;

    fn ranges(&self) -> u32 {
        (self.addresses.len() * self.protocols.len()) as u32
    }
    fn items(&self) -> u32 {
        self.ports
    }
    fn item(&self, range: u32, place: u32) -> Endpoint {
        let (address, protocol) = (
            range as usize / self.protocols.len(),
            range as usize % self.protocols.len(),
        );
        Endpoint::new(
            self.addresses[address],
            self.first_port.wrapping_add(place as u16),
            self.protocols[protocol],
        )
    }
    fn place(&self, item: &Endpoint) -> Option<(u32, u32)> {
        let address = self
            .addresses
            .iter()
            .position(|&held| held == item.address)?;
        let range = self.range(address, item.protocol)?;
        let place = u32::from(item.port.checked_sub(self.first_port)?);
        (place < self.ports).then_some((range, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_places_are_each_others_reverse() {
        let addresses = [
            Ipv4Addr::new(203, 0, 113, 1),
            Ipv4Addr::new(203, 0, 113, 1),
            Ipv4Addr::new(203, 0, 113, 9),
        ];
        for ports in [1024..=1123, 65_000..=u16::MAX, 0..=u16::MAX] {
            let protocols = [Protocol::TCP, Protocol::UDP, Protocol::ICMP];
            let space = EndpointSpace::new(&addresses, ports.clone(), &protocols);
            assert_eq!((space.ranges(), space.items()), (6, ports.len() as u32));
            let mut seen = std::collections::BTreeSet::new();
            for range in 0..space.ranges() {
                for place in 0..space.items() {
                    let item = space.item(range, place);
                    assert_eq!(space.place(&item), Some((range, place)));
                    assert!(ports.contains(&item.port) && seen.insert(item.to_bits()));
                }
            }
            let stranger = Endpoint::new(Ipv4Addr::LOCALHOST, *ports.start(), Protocol::TCP);
            assert_eq!(space.place(&stranger), None);
            let foreign = Endpoint::new(addresses[0], *ports.start(), Protocol(50));
            assert_eq!(space.place(&foreign), None);
        }
        let empty = EndpointSpace::new(&[], 1..=9, &[Protocol::TCP]);
        assert_eq!(empty.ranges(), 0);
        assert_eq!(empty.range(0, Protocol::TCP), None);
    }
}
