//! Which hosts of a capture are inside, and packets from outside as they come to a NAT: to the endpoint that it gave.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use asterism_function::{Endpoint, Packet, PortNumber, Protocol};
use asterism_functions::nat::{BY_INSIDE, Ends, NatState, ROUTES_MAX, Side};

use super::chains::TRANSLATED;
use super::{INSIDE, OUTSIDE};

/// Routes that the NAT has anyway.
const ROUTES_OF_ALL: usize = 4;

/// Who is inside. Private addresses are, unless they talk to each other: then who was seen first is, and its peer is not. The
/// same of public addresses.
pub(in crate::measures) struct Sides {
    sides: BTreeMap<Ipv4Addr, Side>,
}

fn usual(host: Ipv4Addr) -> Side {
    if host.is_private() {
        Side::Inside
    } else {
        Side::Outside
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Inside => Side::Outside,
        Side::Outside => Side::Inside,
    }
}

fn is_one_host(address: Ipv4Addr) -> bool {
    !(address.is_multicast()
        || address.is_broadcast()
        || address.is_loopback()
        || address.octets()[0] == 0
        || address.octets()[3] == 255)
}

impl Sides {
    pub(in crate::measures) fn of<'f>(frames: impl Iterator<Item = &'f [u8]>) -> Self {
        let mut sides: BTreeMap<Ipv4Addr, Side> = BTreeMap::new();
        for frame in frames {
            let mut frame = frame.to_vec();
            let Ok(packet) = Packet::parse(&mut frame) else {
                continue;
            };
            let Some((from, to)) = packet.ipv4_source().zip(packet.ipv4_destination()) else {
                continue;
            };
            if !is_one_host(from) || !is_one_host(to) || from == to {
                continue;
            }
            let of_source = match (sides.get(&from), sides.get(&to)) {
                (Some(side), _) => *side,
                (None, Some(side)) => other(*side),
                (None, None) if usual(from) == usual(to) => Side::Inside,
                (None, None) => usual(from),
            };
            sides.entry(from).or_insert(of_source);
            sides.entry(to).or_insert(other(of_source));
        }
        // A NAT has so many routes; further hosts are where their addresses say.
        let mut left = ROUTES_MAX - ROUTES_OF_ALL;
        sides.retain(|host, side| {
            let is_usual = *side == usual(*host);
            let stays = !is_usual && left > 0;
            left -= usize::from(stays);
            stays
        });
        Self { sides }
    }

    /// The hosts that are not where their addresses say.
    pub(super) fn routes(&self) -> Vec<(Ipv4Addr, Side)> {
        self.sides
            .iter()
            .map(|(host, side)| (*host, *side))
            .collect()
    }

    /// The port that a packet comes by; what is no IPv4 comes from inside.
    pub(in crate::measures) fn port(&self, frame: &mut [u8]) -> PortNumber {
        let packet = Packet::parse(frame).ok();
        let Some(source) = packet.and_then(|packet| packet.ipv4_source()) else {
            return INSIDE;
        };
        let side = self.sides.get(&source).copied();
        match side.unwrap_or_else(|| usual(source)) {
            Side::Inside => INSIDE,
            Side::Outside => OUTSIDE,
        }
    }
}

/// The endpoint that a NAT gave to an inside one: for this remote one, or else for any.
fn given(nat: &NatState, inside: Endpoint, mut remote: Endpoint) -> Option<Endpoint> {
    if remote.protocol == Protocol::ICMP {
        remote.port = 0;
    }
    let found = nat.sessions.by_left(&Ends::between(inside, remote));
    let found = match found.ok().flatten() {
        Some(found) => Some(found),
        None => nat.sessions.any_of(BY_INSIDE, &inside).ok().flatten(),
    };
    found.map(|found| found.row.outside())
}

/// Makes a packet to an inside host one to where that host appears; one that nobody is known for stays as it is.
pub(super) fn address(nat: &NatState, packet: &mut Packet<'_>) {
    if let Some(flow) = packet.flow4() {
        if let Some(outside) = given(nat, flow.destination(), flow.source()) {
            packet.set_destination(outside);
        }
        return;
    }
    let portless = Endpoint::new(TRANSLATED, 0, Protocol(0));
    let Some(embedded) = packet.embedded() else {
        if packet.fragment_offset().is_some_and(|offset| offset > 0) {
            packet.set_destination(portless);
        }
        return;
    };
    let ends = (embedded.source(), embedded.destination(), embedded.ports());
    let (IpAddr::V4(source), IpAddr::V4(destination), Some(ports)) = ends else {
        return;
    };
    let inside = Endpoint::new(source, ports.0, embedded.protocol());
    let remote = Endpoint::new(destination, ports.1, embedded.protocol());
    if let Some(outside) = given(nat, inside, remote) {
        packet.set_embedded_source(outside);
        packet.set_destination(portless);
    }
}
