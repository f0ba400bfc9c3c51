//! Where packets leave: routes by longest prefix, and the Ethernet address of the next hop. Imports
//! `asterism_function`, `config`.

use core::net::Ipv4Addr;

use asterism_function::{MacAddress, Packet};

use super::config::{Interface, NatConfig, Route, Side};

/// One side's interface and the routes that lead there.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) interface: Interface,
    /// Longest prefix first.
    routes: Vec<Entry>,
    /// Neighbours whose Ethernet address is configured, by address.
    neighbours: Vec<(Ipv4Addr, MacAddress)>,
    /// Bytes of the largest IP packet that may leave; `usize::MAX`: not checked.
    pub(super) mtu: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    network: u32,
    mask: u32,
    way: Way,
}

/// What a route says of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Hand it to this station.
    To(MacAddress),
    /// Hand it to the router of this address, whose station is not configured.
    Via(Ipv4Addr),
    /// The destination is on the link.
    OnLink,
}

impl Link {
    pub(super) fn new(config: &NatConfig, side: Side) -> Self {
        let interface = match side {
            Side::Inside => config.inside,
            Side::Outside => config.outside,
        };
        let mut neighbours = config.neighbours.clone();
        neighbours.sort_unstable_by_key(|(address, _)| *address);
        let own = Route {
            prefix: interface.prefix(),
            side,
            next_hop: None,
        };
        let mut routes: Vec<Route> = config.routes.clone();
        routes.push(own);
        routes.retain(|route| route.side == side);
        routes.sort_by_key(|route| core::cmp::Reverse(route.prefix.length));
        let mut link = Self {
            interface,
            routes: Vec::new(),
            neighbours,
            mtu: match interface.mtu {
                0 => usize::MAX,
                mtu => mtu.into(),
            },
        };
        link.routes = routes.iter().map(|route| link.entry(route)).collect();
        link
    }

    fn entry(&self, route: &Route) -> Entry {
        Entry {
            network: route.prefix.address.to_bits() & route.prefix.mask(),
            mask: route.prefix.mask(),
            way: match route.next_hop {
                None => Way::OnLink,
                Some(next_hop) => match self.configured(next_hop) {
                    Some(mac) => Way::To(mac),
                    None => Way::Via(next_hop),
                },
            },
        }
    }

    /// The way to a destination on this side; `None`: it is not on this side. A few instructions for each route.
    #[inline(always)]
    pub(super) fn way(&self, destination: Ipv4Addr) -> Option<Way> {
        let destination = destination.to_bits();
        self.routes
            .iter()
            .find(|entry| destination & entry.mask == entry.network)
            .map(|entry| entry.way)
    }

    /// Whether a frame is for this interface.
    #[inline(always)]
    pub(super) fn takes(&self, packet: &Packet<'_>) -> bool {
        packet.ethernet_destination() == self.interface.mac || self.interface.promiscuous
    }

    /// Whether a packet may leave here as it is: it lives for another hop and is not too long.
    #[inline(always)]
    pub(super) fn carries(&self, packet: &Packet<'_>) -> bool {
        packet.ttl().is_some_and(|ttl| ttl > 1) && !self.is_too_long(packet)
    }

    /// Whether an IP packet is longer than the link allows.
    #[inline(always)]
    pub(super) fn is_too_long(&self, packet: &Packet<'_>) -> bool {
        packet.layout().end() - packet.layout().network_offset() > self.mtu
    }

    /// How many bits of the route to a destination are given; `None` without a route.
    pub(super) fn specificity(&self, destination: Ipv4Addr) -> Option<u32> {
        let destination = destination.to_bits();
        self.routes
            .iter()
            .find(|entry| destination & entry.mask == entry.network)
            .map(|entry| entry.mask.count_ones())
    }

    /// The configured Ethernet address of a neighbour.
    pub(super) fn configured(&self, address: Ipv4Addr) -> Option<MacAddress> {
        self.neighbours
            .binary_search_by_key(&address, |(known, _)| *known)
            .ok()
            .map(|place| self.neighbours[place].1)
    }
}
