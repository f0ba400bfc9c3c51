//! Flows: the key that both directions share, and the parts of a packet that give it.

use core::net::IpAddr;

use asterism_function::objects::hash;
use asterism_function::{
    Embedded, Fragment, Host, IcmpKind, Key, Network, Packet, PortNumber, Protocol, Transport,
    Vlan, Wire,
};

/// Which way a packet of a flow goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the flow's first end.
    Forth = 0,
    /// To it.
    Back = 1,
}

impl Direction {
    /// The other one.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::Forth => Self::Back,
            Self::Back => Self::Forth,
        }
    }
}

/// Where a packet comes in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Link {
    /// The first port.
    Inside,
    /// The second port.
    Outside,
}

impl Link {
    /// The link of a port: of the first one inside, of the second one outside.
    #[inline(always)]
    #[must_use]
    pub const fn of(port: PortNumber) -> Option<Self> {
        match port {
            PortNumber(0) => Some(Self::Inside),
            PortNumber(1) => Some(Self::Outside),
            _ => None,
        }
    }
}

/// A flow: the same for packets of both directions, on every instance.
///
/// Of TCP and UDP the first end is the smaller one by address and port. Of ICMP it is the one that asks, so that two hosts
/// that ping each other with one identifier have two flows; the ports are the identifier and the query's type. Of other
/// protocols there are no ports. The same addresses and ports on two VLANs are two flows.
///
/// 40 bytes; on the wire 15 bytes of IPv4 and 39 of IPv6, with a VLAN tag up to two more, with two tags up to four.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
pub struct Flow {
    first: Host,
    second: Host,
    ports: [u16; 2],
    /// The VLAN's number above eight bits of protocol.
    #[wire(varint)]
    kind: u32,
}

/// Bits of a protocol's number, above which a VLAN's stands.
const PROTOCOL_BITS: u32 = 8;

/// A VLAN and a protocol in one number: a small one, and so a byte on the wire, without a tag.
#[inline(always)]
pub(crate) const fn kind_of(vlan: Vlan, protocol: u8) -> u32 {
    vlan.to_bits() << PROTOCOL_BITS | protocol as u32
}

impl Flow {
    /// The flow of a packet between two ends, and the packet's direction.
    #[inline(always)]
    fn symmetric(
        (source, source_port): (Host, u16),
        (destination, destination_port): (Host, u16),
        kind: u32,
    ) -> (Self, Direction) {
        if (source, source_port) <= (destination, destination_port) {
            let ports = [source_port, destination_port];
            let flow = Self {
                first: source,
                second: destination,
                ports,
                kind,
            };
            (flow, Direction::Forth)
        } else {
            let ports = [destination_port, source_port];
            let flow = Self {
                first: destination,
                second: source,
                ports,
                kind,
            };
            (flow, Direction::Back)
        }
    }

    fn of_query(
        (source, destination): (Host, Host),
        identifier: u16,
        icmp_type: u8,
        kind: u32,
    ) -> Option<(Self, Direction)> {
        let version6 = kind as u8 == Protocol::ICMPV6.0;
        let (query, direction) = match (version6, icmp_type) {
            (false, 8 | 13 | 15 | 17) | (true, 128) => (icmp_type, Direction::Forth),
            (false, 0) => (8, Direction::Back),
            (false, 14 | 16 | 18) | (true, 129) => (icmp_type - 1, Direction::Back),
            _ => return None,
        };
        let (first, second) = match direction {
            Direction::Forth => (source, destination),
            Direction::Back => (destination, source),
        };
        let ports = [identifier, u16::from(query)];
        let flow = Self {
            first,
            second,
            ports,
            kind,
        };
        Some((flow, direction))
    }

    /// Its protocol.
    #[inline]
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        Protocol(self.kind as u8)
    }

    /// Its VLAN, where the [`Tracker`](crate::Tracker) tells VLANs apart.
    #[inline]
    #[must_use]
    pub const fn vlan(&self) -> Vlan {
        Vlan::from_bits(self.kind >> PROTOCOL_BITS)
    }

    /// Address and port of the end that sends packets of a direction.
    #[inline]
    #[must_use]
    pub const fn end(&self, direction: Direction) -> (Host, u16) {
        match direction {
            Direction::Forth => (self.first, self.ports[0]),
            Direction::Back => (self.second, self.ports[1]),
        }
    }

    /// The same for rules and reports: its port is 0 of a protocol without ports, also where [`Flow::end`] has something else there.
    #[inline]
    #[must_use]
    pub const fn endpoint(&self, direction: Direction) -> (Host, u16) {
        let (host, port) = self.end(direction);
        let has_ports = has_ports(self.protocol().0);
        (host, if has_ports { port } else { 0 })
    }
}

impl core::fmt::Debug for Flow {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (first, second, [a, b]) = (self.first.address(), self.second.address(), self.ports);
        let protocol = self.protocol();
        match protocol {
            Protocol::ICMP | Protocol::ICMPV6 => {
                write!(
                    formatter,
                    "{protocol} {first} asks {second} identifier {a} type {b}"
                )
            }
            Protocol::TCP | Protocol::UDP => {
                let (first, second) = (
                    core::net::SocketAddr::new(first, a),
                    core::net::SocketAddr::new(second, b),
                );
                write!(formatter, "{protocol} {first} and {second}")
            }
            _ => write!(formatter, "protocol {protocol} {first} and {second}"),
        }?;
        match self.vlan() {
            Vlan::NONE => Ok(()),
            vlan => write!(formatter, " vlan {vlan}"),
        }
    }
}

impl Key for Flow {
    const IS_OF_CONVERSATION: bool = true;
    fn between(&self) -> Option<(IpAddr, IpAddr)> {
        Some((self.first.address(), self.second.address()))
    }
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        let [a, b] = self.ports;
        let rest = u64::from(self.kind) << 32 | u64::from(a) << 16 | u64::from(b);
        let (first, second) = (self.first.words(), self.second.words());
        let upper = hash::words(first.0, second.0, seed);
        hash::words(first.1 ^ rest.rotate_left(20), second.1, upper)
    }
}

/// Whether a protocol is one whose flows have ports.
#[inline]
#[must_use]
pub const fn has_ports(protocol: u8) -> bool {
    protocol == Protocol::TCP.0 || protocol == Protocol::UDP.0
}

/// What a packet is to who tracks flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A packet of a flow that it may open.
    Opens(Flow, Direction),
    /// A packet of a flow that it cannot open: an answer to an ICMP query.
    Answers(Flow, Direction),
    /// An ICMP error about a packet of a flow; `None`: it names none that it could be about.
    Error(Option<Flow>),
    /// Neighbour discovery, listener reports and ARP: what a link needs to work (RFC 4890 §4.4).
    Link,
    /// A fragment without a transport header.
    LaterFragment,
    /// A first fragment that does not hold its whole transport header (RFC 1858 §3).
    TinyFragment,
    /// ICMP of another type.
    UnknownIcmp,
    /// Not IP.
    Foreign,
}

impl Kind {
    /// What a packet on a VLAN is. Reads headers only.
    #[inline(always)]
    pub(crate) fn of(packet: &Packet<'_>, vlan: Vlan) -> Self {
        let layout = packet.layout();
        if let (Transport::Tcp | Transport::Udp, Some((source, destination)), Some((from, to))) =
            (layout.transport(), Host::ends(packet), packet.ports())
        {
            let kind = kind_of(vlan, layout.protocol());
            let (flow, direction) = Flow::symmetric((source, from), (destination, to), kind);
            return Self::Opens(flow, direction);
        }
        Self::of_uncommon(packet, vlan)
    }

    #[inline(never)]
    fn of_uncommon(packet: &Packet<'_>, vlan: Vlan) -> Self {
        let layout = packet.layout();
        match layout.network() {
            Network::Arp => return Self::Link,
            Network::Other => return Self::Foreign,
            Network::Ipv4 | Network::Ipv6 => {}
        }
        if layout.fragment() == Fragment::Later {
            return Self::LaterFragment;
        }
        let Some(ends) = Host::ends(packet) else {
            return Self::Foreign;
        };
        let protocol = layout.protocol();
        let Some(icmp_type) = packet.icmp_type() else {
            let needs_header = matches!(
                Protocol(protocol),
                Protocol::TCP | Protocol::UDP | Protocol::ICMP | Protocol::ICMPV6
            );
            // IPv4 knows ICMP only, IPv6 only ICMPv6: the other one is a protocol like others there.
            if needs_header && layout.fragment() == Fragment::First {
                return Self::TinyFragment;
            }
            let kind = kind_of(vlan, protocol);
            let (flow, direction) = Flow::symmetric((ends.0, 0), (ends.1, 0), kind);
            return Self::Opens(flow, direction);
        };
        if layout.transport() == Transport::Icmpv6 && serves_the_link(icmp_type) {
            return Self::Link;
        }
        match packet.icmp_kind() {
            Some(IcmpKind::Error) => Self::Error(error_about(packet, vlan, ends.1)),
            Some(IcmpKind::Query | IcmpKind::Reply) => {
                let identifier = packet.icmp_identifier().unwrap_or(0);
                match Flow::of_query(ends, identifier, icmp_type, kind_of(vlan, protocol)) {
                    Some((flow, Direction::Forth)) => Self::Opens(flow, Direction::Forth),
                    Some((flow, Direction::Back)) => Self::Answers(flow, Direction::Back),
                    None => Self::UnknownIcmp,
                }
            }
            _ => Self::UnknownIcmp,
        }
    }
}

/// Multicast listener discovery (RFC 2710, RFC 3810) and neighbour discovery (RFC 4861).
const fn serves_the_link(icmpv6_type: u8) -> bool {
    matches!(icmpv6_type, 130..=137 | 143)
}

/// The flow that an error is about: only where the error goes to the source of the packet inside (RFC 5508 §4.2).
///
/// Whether the checksum in the quoted header holds does not matter: routers quote headers whose TTL they have lowered already, and
/// none asks of a firewall to drop their errors (RFC 5508 REQ-3 is for translators, which rewrite the header). What of it names
/// the flow is judged like any packet's addresses and ports.
fn error_about(packet: &Packet<'_>, vlan: Vlan, destination: Host) -> Option<Flow> {
    let embedded = packet.embedded()?;
    if Host::from(embedded.source()) != destination {
        return None;
    }
    let source = Host::from(embedded.source());
    let target = Host::from(embedded.destination());
    if embedded.fragment() == Fragment::Later {
        return None;
    }
    let protocol = embedded.protocol();
    let kind = kind_of(vlan, protocol.0);
    match (protocol, embedded.ports()) {
        (Protocol::TCP | Protocol::UDP, Some((from, to))) => {
            Some(Flow::symmetric((source, from), (target, to), kind).0)
        }
        (Protocol::TCP | Protocol::UDP, None) => None,
        (Protocol::ICMP | Protocol::ICMPV6, ports) => {
            let (identifier, _) = ports?;
            let icmp_type = embedded_icmp_type(packet, &embedded)?;
            let ends = (source, target);
            Flow::of_query(ends, identifier, icmp_type, kind).map(|(flow, _)| flow)
        }
        _ => Some(Flow::symmetric((source, 0), (target, 0), kind).0),
    }
}

/// The type of the ICMP message inside an error. Behind extension headers of IPv6 it is not looked for.
fn embedded_icmp_type(packet: &Packet<'_>, embedded: &Embedded) -> Option<u8> {
    let at = packet.layout().transport_offset() + 8;
    let bytes = packet.bytes();
    let length = match embedded.source() {
        IpAddr::V4(_) => usize::from(bytes.get(at)? & 15) * 4,
        IpAddr::V6(_) if *bytes.get(at + 6)? == Protocol::ICMPV6.0 => 40,
        IpAddr::V6(_) => return None,
    };
    bytes.get(at + length).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{BadBytes, Reader, Writer};
    use core::net::Ipv4Addr;

    #[test]
    fn both_directions_have_one_flow_and_it_comes_back_from_the_wire() {
        let ends = [
            (
                "10.0.0.1".parse::<IpAddr>().unwrap(),
                "192.0.2.9".parse::<IpAddr>().unwrap(),
            ),
            (
                "2001:db8::1".parse().unwrap(),
                "2001:db8::2".parse().unwrap(),
            ),
        ];
        for (a, b) in ends {
            let (a, b) = (Host::from(a), Host::from(b));
            let mut seen = Vec::new();
            for (vlan, more) in [
                (Vlan::NONE, 0),
                (Vlan::new(10, 0), 1),
                (Vlan::new(4_095, 0), 2),
                (Vlan::new(4_095, 4_095), 4),
            ] {
                let kind = kind_of(vlan, 6);
                let (there, forth) = Flow::symmetric((a, 7), (b, 80), kind);
                let (back, reverse) = Flow::symmetric((b, 80), (a, 7), kind);
                assert_eq!((there, forth), (back, reverse.reversed()));
                assert_eq!(there.hash(5), back.hash(5));
                assert_eq!((there.vlan(), there.protocol()), (vlan, Protocol::TCP));
                assert!(!seen.contains(&there), "VLANs have flows of their own");
                seen.push(there);
                let mut bytes = Vec::new();
                there.encode(&mut Writer::new(&mut bytes, &[]));
                let hosts = if a.address().is_ipv4() { 12 } else { 34 };
                assert_eq!(bytes.len(), hosts + 5 + more);
                assert_eq!(Flow::decode(&mut Reader::new(&bytes, &[])), Ok(there));
                for length in 0..bytes.len() {
                    assert_eq!(
                        Flow::decode(&mut Reader::new(&bytes[..length], &[])),
                        Err(BadBytes)
                    );
                }
            }
        }
        assert_eq!(size_of::<Flow>(), 40, "a VLAN has its place");
    }

    #[test]
    fn two_hosts_that_ping_each_other_have_two_flows() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let (a, b) = (Host::from(a), Host::from(b));
        let (asked, _) = Flow::of_query((a, b), 1, 8, 1).unwrap();
        let (answered, direction) = Flow::of_query((b, a), 1, 0, 1).unwrap();
        assert_eq!((asked, direction), (answered, Direction::Back));
        assert_ne!(Flow::of_query((b, a), 1, 8, 1).unwrap().0, asked);
        assert_ne!(Flow::of_query((a, b), 1, 13, 1).unwrap().0, asked);
        assert_eq!(Flow::of_query((a, b), 1, 9, 1), None);
    }
}
