//! Where packets leave: routes by longest prefix, and the Ethernet address of the next hop. Imports
//! `asterism_function`, `interface`.

use core::net::Ipv4Addr;

use asterism_function::{Cut, MacAddress, Packet, Plain4};

use crate::interface::{Interface, Route, Side};
use crate::tunnel;

/// Bytes of a packet that is cut or put into another, at most: what a function may emit.
const EMITTED_PACKET_MAX: usize = 1_500;
/// Parts that a packet is cut into at most: 65,535 bytes for a link of 1,500.
const PARTS_MAX: usize = 45;

/// A packet is too long for a link, and must not be cut or would be cut into too many parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLong {
    /// How long it may be.
    pub(crate) most: u16,
}

/// One side's interface and the routes that lead there.
#[derive(Clone, Debug)]
pub struct Link {
    /// The port and our address there.
    pub interface: Interface,
    /// The interface's Ethernet address in the high bytes of a word, as [`Link::takes`] compares it.
    mac: u64,
    /// All routes but the link's own have one station: the Ethernet addresses of a frame to it, for hosts beyond
    /// this prefix. Otherwise the prefix is of length zero, beyond which there is nothing.
    beyond: (u32, u32),
    only_station: [u8; 12],
    /// Longest prefix first.
    routes: Vec<Entry>,
    /// Neighbours whose Ethernet address is configured, by address.
    neighbours: Vec<Configured>,
    /// Bytes of the largest IP packet that may leave; `u16::MAX`, which none exceeds: not checked.
    mtu: u16,
    /// Bytes of the largest frame without tags or padding.
    frame_bytes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    network: u32,
    mask: u32,
    way: Way,
    /// Of a frame that goes this way, if it is [`Way::To`] a station.
    ethernet: [u8; 12],
}

/// A neighbour whose Ethernet address is configured.
#[derive(Clone, Copy, Debug)]
struct Configured {
    address: Ipv4Addr,
    mac: MacAddress,
    /// Of a frame to it.
    ethernet: [u8; 12],
}

/// How a packet is carried over a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carriage {
    /// As a router does it: this is a hop, which the time to live counts.
    Routed,
    /// As a switch does it: the IP packet stays as it is.
    Switched,
    /// A hop, through a tunnel to the next hop (RFC 2003).
    Tunnelled,
}

/// What a route says of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Hand it to this station.
    To(MacAddress),
    /// Hand it to the router of this address, whose station is not configured.
    Via(Ipv4Addr),
    /// The destination is on the link.
    OnLink,
}

impl Link {
    /// The link behind an interface, with the routes of its side.
    #[must_use]
    pub fn new(
        interface: Interface,
        side: Side,
        routes: &[Route],
        neighbours: &[(Ipv4Addr, MacAddress)],
    ) -> Self {
        let mut neighbours: Vec<Configured> = neighbours
            .iter()
            .map(|&(address, mac)| Configured {
                address,
                mac,
                ethernet: addressed(mac, interface.mac),
            })
            .collect();
        neighbours.sort_unstable_by_key(|neighbour| neighbour.address);
        let in_network_order = |word: u32| u32::from_ne_bytes(word.to_be_bytes());
        let own = Route {
            prefix: interface.prefix(),
            side,
            next_hop: None,
        };
        let mut routes: Vec<Route> = routes.to_vec();
        routes.push(own);
        routes.retain(|route| route.side == side);
        routes.sort_by_key(|route| core::cmp::Reverse(route.prefix.length));
        let mut link = Self {
            interface,
            mac: high_bytes(interface.mac),
            beyond: (0, 0),
            only_station: [0; 12],
            routes: Vec::new(),
            neighbours,
            mtu: match interface.mtu {
                0 => u16::MAX,
                mtu => mtu,
            },
            frame_bytes_max: 0,
        };
        link.frame_bytes_max = 14 + usize::from(link.mtu);
        link.routes = routes.iter().map(|route| link.entry(route)).collect();
        let mut stations = link
            .routes
            .iter()
            .map(|entry| entry.way)
            .filter(|way| *way != Way::OnLink);
        if let Some(Way::To(station)) = stations.next()
            && stations.all(|way| way == Way::To(station))
        {
            let mask = interface.prefix().mask();
            link.beyond = (
                in_network_order(interface.address.to_bits() & mask),
                in_network_order(mask),
            );
            link.only_station = addressed(station, interface.mac);
        }
        link
    }

    /// The Ethernet addresses of a frame to a host that is known to be on this side (in network order); `None` where the
    /// station is not configured. Four instructions if one router has everything beyond the link; without `THOROUGH`
    /// that is all that is tried.
    #[inline(always)]
    pub fn ethernet_to<const THOROUGH: bool>(&self, host: [u8; 4]) -> Option<&[u8; 12]> {
        let host = u32::from_ne_bytes(host);
        let (network, mask) = self.beyond;
        if host & mask != network {
            Some(&self.only_station)
        } else if THOROUGH {
            self.searched_ethernet_to(host)
        } else {
            None
        }
    }

    #[inline(never)]
    fn searched_ethernet_to(&self, host: u32) -> Option<&[u8; 12]> {
        let host = Ipv4Addr::from_octets(host.to_ne_bytes());
        let entry = self.entry_of(host)?;
        match entry.way {
            Way::To(_) => Some(&entry.ethernet),
            Way::Via(_) => None,
            Way::OnLink => self.neighbour(host).map(|neighbour| &neighbour.ethernet),
        }
    }

    fn entry(&self, route: &Route) -> Entry {
        let way = match route.next_hop {
            None => Way::OnLink,
            Some(next_hop) => match self.configured(next_hop) {
                Some(mac) => Way::To(mac),
                None => Way::Via(next_hop),
            },
        };
        let ethernet = match way {
            Way::To(mac) => addressed(mac, self.interface.mac),
            Way::Via(_) | Way::OnLink => [0; 12],
        };
        Entry {
            network: route.prefix.address.to_bits() & route.prefix.mask(),
            mask: route.prefix.mask(),
            way,
            ethernet,
        }
    }

    fn entry_of(&self, destination: Ipv4Addr) -> Option<&Entry> {
        let destination = destination.to_bits();
        self.routes
            .iter()
            .find(|entry| destination & entry.mask == entry.network)
    }

    /// The way to a destination on this side; `None`: it is not on this side.
    pub(crate) fn way(&self, destination: Ipv4Addr) -> Option<Way> {
        self.entry_of(destination).map(|entry| entry.way)
    }

    /// Whether a frame is for this interface.
    #[inline(always)]
    pub fn takes(&self, packet: &Packet<'_>) -> bool {
        let destination = packet.bytes().first_chunk::<8>();
        destination.is_some_and(|bytes| u64::from_le_bytes(*bytes) << 16 == self.mac)
            || self.interface.promiscuous
    }

    /// Whether an IP packet of this many bytes is longer than the link allows.
    #[inline(always)]
    pub fn is_too_long(&self, length: u16) -> bool {
        length > self.mtu
    }

    /// How a packet is cut for the link; `None`: it is short enough. What goes through a tunnel is cut before it goes in.
    pub(crate) fn cut(
        &self,
        packet: &Packet<'_>,
        carriage: Carriage,
    ) -> Result<Option<Cut>, TooLong> {
        let most = match carriage {
            Carriage::Routed | Carriage::Switched => usize::from(self.mtu),
            Carriage::Tunnelled => usize::from(self.mtu).min(EMITTED_PACKET_MAX) - tunnel::OUTER,
        };
        let layout = packet.layout();
        if layout.end() - layout.network_offset() <= most {
            return Ok(None);
        }
        let cut = Cut::of(packet, most.min(EMITTED_PACKET_MAX));
        match cut.filter(|cut| cut.count() <= PARTS_MAX) {
            Some(cut) => Ok(Some(cut)),
            None => Err(TooLong { most: most as u16 }),
        }
    }

    /// [`Link::is_too_long`] of a plain packet; without `THOROUGH` by the frame, whose padding is in it.
    #[inline(always)]
    pub fn may_be_too_long<const THOROUGH: bool>(
        &self,
        plain: &Plain4<'_>,
        packet: &Packet<'_>,
    ) -> bool {
        if THOROUGH {
            self.is_too_long(plain.length())
        } else {
            packet.bytes().len() > self.frame_bytes_max
        }
    }

    /// The Ethernet addresses of a frame to a station.
    #[inline(always)]
    pub fn addressed(&self, station: MacAddress) -> [u8; 12] {
        addressed(station, self.interface.mac)
    }

    /// How many bits of the route to a destination are given; `None` without a route.
    pub(crate) fn specificity(&self, destination: Ipv4Addr) -> Option<u32> {
        self.entry_of(destination)
            .map(|entry| entry.mask.count_ones())
    }

    /// The configured Ethernet address of a neighbour.
    pub(crate) fn configured(&self, address: Ipv4Addr) -> Option<MacAddress> {
        self.neighbour(address).map(|neighbour| neighbour.mac)
    }

    fn neighbour(&self, address: Ipv4Addr) -> Option<&Configured> {
        self.neighbours
            .binary_search_by_key(&address, |neighbour| neighbour.address)
            .ok()
            .map(|place| &self.neighbours[place])
    }
}

/// The Ethernet addresses of a frame: the receiver's, then the sender's.
fn addressed(receiver: MacAddress, sender: MacAddress) -> [u8; 12] {
    let mut ethernet = [0; 12];
    ethernet[..6].copy_from_slice(&receiver.0);
    ethernet[6..].copy_from_slice(&sender.0);
    ethernet
}

fn high_bytes(MacAddress([a, b, c, d, e, f]): MacAddress) -> u64 {
    u64::from_le_bytes([0, 0, a, b, c, d, e, f])
}
