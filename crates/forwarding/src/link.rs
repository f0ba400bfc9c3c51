//! Egress: routes by longest prefix, and the Ethernet address of the next hop. Read `neighbour.rs` next.

use core::net::Ipv4Addr;

use asterism_function::{Cut, Late, MacAddress, Packet, Plain4, Tick};

use crate::interface::{Interface, Route, Side, is_host};
use crate::neighbour::{self, Neighbours};
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
    /// The same of a router whose station is to be learnt, and the link's own prefix (in network order).
    only_router: Option<Ipv4Addr>,
    own: (u32, u32),
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
    way: RouteDecision,
    /// Of a frame that goes this way, if it is [`RouteDecision::To`] a station.
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
pub enum ForwardingMode {
    /// As a router does it: this is a hop, which the time to live counts.
    Routed,
    /// As a switch does it: the IP packet stays as it is.
    Switched,
    /// A hop, through a tunnel to the next hop (RFC 2003).
    Tunnelled,
}

/// What a route says of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RouteDecision {
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
        let mask = interface.prefix().mask();
        let mut link = Self {
            interface,
            mac: high_bytes(interface.mac),
            beyond: (0, 0),
            only_station: [0; 12],
            only_router: None,
            own: (
                in_network_order(interface.address.to_bits() & mask),
                in_network_order(mask),
            ),
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
        let is_own = |route: &&Route| route.prefix == own.prefix && route.next_hop.is_none();
        let others = routes.iter().filter(|route| !is_own(route));
        let mut ways = others.map(|route| link.entry(route).way);
        let first = ways.next();
        match first.filter(|first| ways.all(|way| way == *first)) {
            Some(RouteDecision::To(station)) => {
                link.beyond = link.own;
                link.only_station = addressed(station, interface.mac);
            }
            Some(RouteDecision::Via(router)) => link.only_router = Some(router),
            Some(RouteDecision::OnLink) | None => {}
        }
        link
    }

    /// Whether one router, whose station is configured, has everything beyond the link: what [`Link::ethernet_to`] is fast for.
    #[must_use]
    pub fn leads_to_one_station(&self) -> bool {
        self.beyond != (0, 0)
    }

    /// The Ethernet addresses of a frame to a host that is known to be on this side (in network order). Four instructions
    /// if [one router has everything beyond the link](Link::leads_to_one_station), and without `SEARCHING` that is all that is tried.
    /// Else `None` where nobody is known, or who is known is to be asked again; and a probe of `neighbours`, which may be late,
    /// unless the station is configured. What was learnt is put together in `learnt`.
    #[inline(always)]
    pub fn ethernet_to<'e, const SEARCHING: bool>(
        &'e self,
        host: [u8; 4],
        neighbours: &Neighbours,
        now: Tick,
        learnt: &'e mut [u8; 12],
    ) -> Result<Option<&'e [u8; 12]>, Late> {
        let host = u32::from_ne_bytes(host);
        let (network, mask) = self.beyond;
        if host & mask != network {
            Ok(Some(&self.only_station))
        } else if SEARCHING {
            self.searched_ethernet_to(host, neighbours, now, learnt)
        } else {
            Ok(None)
        }
    }

    #[inline(never)]
    fn searched_ethernet_to<'e>(
        &'e self,
        host: u32,
        neighbours: &Neighbours,
        now: Tick,
        learnt: &'e mut [u8; 12],
    ) -> Result<Option<&'e [u8; 12]>, Late> {
        let (network, mask) = self.own;
        let address = match self.only_router {
            Some(router) if host & mask != network => router,
            _ => {
                let host = Ipv4Addr::from_octets(host.to_ne_bytes());
                let Some(entry) = self.entry_of(host) else {
                    return Ok(None);
                };
                match entry.way {
                    RouteDecision::To(_) => return Ok(Some(&entry.ethernet)),
                    RouteDecision::Via(router) => router,
                    RouteDecision::OnLink => match self.neighbour(host) {
                        Some(neighbour) => return Ok(Some(&neighbour.ethernet)),
                        None => host,
                    },
                }
            }
        };
        let Some(station) = neighbour::learnt(neighbours, now, address)? else {
            return Ok(None);
        };
        *learnt = self.addressed(station);
        Ok(Some(learnt))
    }

    fn entry(&self, route: &Route) -> Entry {
        let way = match route.next_hop {
            None => RouteDecision::OnLink,
            Some(next_hop) => match self.configured(next_hop) {
                Some(mac) => RouteDecision::To(mac),
                None => RouteDecision::Via(next_hop),
            },
        };
        let ethernet = match way {
            RouteDecision::To(mac) => addressed(mac, self.interface.mac),
            RouteDecision::Via(_) | RouteDecision::OnLink => [0; 12],
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
    pub(crate) fn way(&self, destination: Ipv4Addr) -> Option<RouteDecision> {
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
        mode: ForwardingMode,
    ) -> Result<Option<Cut>, TooLong> {
        let most = match mode {
            ForwardingMode::Routed | ForwardingMode::Switched => usize::from(self.mtu),
            ForwardingMode::Tunnelled => {
                usize::from(self.mtu).min(EMITTED_PACKET_MAX) - tunnel::OUTER
            }
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

    /// Whether a single host may have this address on the link.
    pub(crate) fn may_have(&self, address: Ipv4Addr) -> bool {
        is_host(address) && self.interface.prefix().broadcast() != Some(address)
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
