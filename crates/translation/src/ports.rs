//! The outside endpoints that the NAT hands out.

use core::net::Ipv4Addr;
use std::rc::Rc;

use asterism_function::{Endpoint, Protocol, Space};

use crate::accounting::PortAccounting;
use crate::config::NatConfig;

/// Protocols, each with ports of its own on every address.
const PROTOCOLS: [Protocol; 3] = [Protocol::TCP, Protocol::UDP, Protocol::ICMP];

/// All outside endpoints that are given out: a range for each address and protocol, the ports of the range on it.
/// Ports that are forwarded for ever are left out; all ranges are as long as the shortest one.
#[derive(Clone, Debug)]
pub struct OutsidePorts {
    addresses: Vec<Ipv4Addr>,
    /// The same in order, each with where it stands in the list.
    in_order: Vec<(Ipv4Addr, u32)>,
    first_port: u16,
    items: u32,
    /// For each range the forwarded ports within the range, in order.
    forwarded: Vec<Vec<u16>>,
    /// Who uses them.
    accounting: Option<Rc<PortAccounting>>,
}

impl OutsidePorts {
    /// The endpoints that a configuration offers.
    pub(crate) fn new(config: &NatConfig) -> Self {
        let (first_port, last_port) = config.outside_ports;
        let forwarded: Vec<Vec<u16>> = config
            .outside_addresses
            .iter()
            .flat_map(|address| PROTOCOLS.map(|protocol| (*address, protocol)))
            .map(|(address, protocol)| {
                let mut ports: Vec<u16> = config
                    .forwards
                    .iter()
                    .map(|forward| forward.outside)
                    .filter(|outside| outside.address == address && outside.protocol == protocol)
                    .map(|outside| outside.port)
                    .filter(|port| (first_port..=last_port).contains(port))
                    .collect();
                ports.sort_unstable();
                ports.dedup();
                ports
            })
            .collect();
        let left_out = forwarded.iter().map(Vec::len).max().unwrap_or(0);
        let range = usize::from(last_port.saturating_sub(first_port)) + 1;
        let mut in_order: Vec<_> = (config.outside_addresses.iter().copied())
            .zip(0..)
            .collect();
        in_order.sort_unstable();
        Self {
            addresses: config.outside_addresses.clone(),
            in_order,
            first_port,
            items: range.saturating_sub(left_out) as u32,
            forwarded,
            accounting: None,
        }
    }

    /// The same endpoints, with who uses them.
    pub(crate) fn with_census(self, accounting: Rc<PortAccounting>) -> Self {
        Self {
            accounting: Some(accounting),
            ..self
        }
    }

    /// Who uses them.
    pub(crate) fn accounting(&self) -> Option<&Rc<PortAccounting>> {
        self.accounting.as_ref()
    }

    pub(crate) fn all_addresses(&self) -> &[Ipv4Addr] {
        &self.addresses
    }

    /// Where an address stands in the list.
    pub(crate) fn place_of_address(&self, address: Ipv4Addr) -> Option<u32> {
        let (first, _) = *self.in_order.first()?;
        // Mostly they follow upon each other without a gap.
        let guess = address.to_bits().checked_sub(first.to_bits())? as usize;
        if let Some(&(known, place)) = self.in_order.get(guess)
            && known == address
        {
            return Some(place);
        }
        let found = self
            .in_order
            .binary_search_by_key(&address, |known| known.0);
        found.ok().map(|found| self.in_order[found].1)
    }

    /// The range of an address (by its place in the list) and a protocol.
    pub(crate) fn range(&self, address: u32, protocol: Protocol) -> u32 {
        let place = PROTOCOLS.iter().position(|known| *known == protocol);
        address * PROTOCOLS.len() as u32 + place.unwrap_or(0) as u32
    }

    /// The place to wish for on a range so that `port` is kept; a place that depends on `port` alone where it
    /// cannot be kept.
    pub(crate) fn wish(&self, range: u32, port: u16) -> u32 {
        self.place_of(range, port)
            .unwrap_or_else(|| u32::from(port.wrapping_sub(self.first_port)) % self.items.max(1))
    }

    fn place_of(&self, range: u32, port: u16) -> Option<u32> {
        let forwarded = self.forwarded.get(range as usize)?;
        let before = forwarded.binary_search(&port).err()?;
        let place = u32::from(port.checked_sub(self.first_port)?) - before as u32;
        (place < self.items).then_some(place)
    }
}

impl Space for OutsidePorts {
    type Item = Endpoint;

    fn ranges(&self) -> u32 {
        self.forwarded.len() as u32
    }
    fn items(&self) -> u32 {
        self.items
    }
    fn item(&self, range: u32, place: u32) -> Endpoint {
        let mut port = u32::from(self.first_port) + place;
        for forwarded in self.forwarded.get(range as usize).into_iter().flatten() {
            port += u32::from(u32::from(*forwarded) <= port);
        }
        let protocols = PROTOCOLS.len() as u32;
        let address = self.addresses.get((range / protocols) as usize);
        Endpoint::new(
            address.copied().unwrap_or(Ipv4Addr::UNSPECIFIED),
            port as u16,
            PROTOCOLS[(range % protocols) as usize],
        )
    }
    fn place(&self, item: &Endpoint) -> Option<(u32, u32)> {
        let address = self.place_of_address(item.address)?;
        let protocol = PROTOCOLS
            .iter()
            .position(|protocol| *protocol == item.protocol)?;
        let range = address * PROTOCOLS.len() as u32 + protocol as u32;
        Some((range, self.place_of(range, item.port)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_forwarding::Interface;
    use asterism_function::{MacAddress, PortNumber};

    /// Addresses of which some follow upon each other and some do not, and none stands where its number would put it.
    #[test]
    fn an_address_is_found_wherever_it_stands_in_the_list() {
        let last = |address: u8| Ipv4Addr::new(203, 0, 113, address);
        let listed = [9, 1, 2, 3, 200, 4].map(last);
        let interface = |port, address| {
            Interface::new(
                PortNumber(port),
                address,
                24,
                MacAddress([2, 0, 0, 0, 0, 1]),
            )
        };
        let (inside, outside) = (
            interface(0, Ipv4Addr::new(10, 0, 0, 1)),
            interface(1, last(254)),
        );
        let ports = OutsidePorts::new(&NatConfig::new(inside, outside, listed.to_vec()));
        for (place, address) in (0..).zip(listed) {
            assert_eq!(ports.place_of_address(address), Some(place), "{address}");
            let item = Endpoint::new(address, 5_000, Protocol::UDP);
            let (range, at) = ports.place(&item).unwrap();
            assert_eq!(ports.item(range, at), item);
        }
        for strange in [0, 5, 8, 10, 199, 201, 255].map(last) {
            assert_eq!(ports.place_of_address(strange), None, "{strange}");
        }
    }
}
