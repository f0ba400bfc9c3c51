//! The packet inside an ICMP error: what a translator must read, and rewrite together with the error around it (RFC 5508 §4,
//! RFC 4443 §2.4).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::{Change, Sum};
use crate::endpoint::{Endpoint, Flow4, Protocol};
use crate::layout::{self, Fragment, Network, Transport};
use crate::packet::Packet;
use crate::parse::{Extensions, has_mapped_address};
use crate::transport::IcmpKind;

/// Of the embedded transport header, the bytes that an error must quote (RFC 792); with fewer it counts as absent.
const QUOTED_TRANSPORT_MIN: usize = 8;

/// What the packet embedded in an ICMP error says. Its transport header is usually cut after eight bytes, and nothing
/// of it has been verified but that its headers are within the error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Embedded {
    network: Network,
    transport: Transport,
    fragment: Fragment,
    protocol: u8,
    source_routed: bool,
    header_checksum_valid: bool,
    network_at: usize,
    transport_at: usize,
    end: usize,
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    ports: Option<(u16, u16)>,
}

impl Embedded {
    /// The source address: anyone who sent the packet that the error is about.
    #[must_use]
    pub const fn source(&self) -> IpAddr {
        self.source
    }

    /// The destination address.
    #[must_use]
    pub const fn destination(&self) -> IpAddr {
        self.destination
    }

    /// The protocol.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        Protocol(self.protocol)
    }

    /// Source and destination port, or the identifier of an ICMP query or reply twice; `None` when they are not
    /// quoted.
    #[must_use]
    pub const fn ports(&self) -> Option<(u16, u16)> {
        self.ports
    }

    /// Which part of a datagram the packet was.
    #[must_use]
    pub const fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// The identification of the IPv4 header or the IPv6 fragment header, zero when there is none.
    #[must_use]
    pub const fn identification(&self) -> u32 {
        self.identification
    }

    /// Whether the IPv4 header checksum is right (RFC 5508 §4.2: drop the error when not); true of IPv6.
    #[must_use]
    pub const fn header_checksum_valid(&self) -> bool {
        self.header_checksum_valid
    }

    /// Both ends in the direction of the embedded packet, which is opposite to the error's; `None` for IPv6 and
    /// when the ports are not quoted.
    #[must_use]
    pub const fn flow4(&self) -> Option<Flow4> {
        match (self.source, self.destination, self.ports) {
            (
                IpAddr::V4(source),
                IpAddr::V4(destination),
                Some((source_port, destination_port)),
            ) => Some(Flow4 {
                source,
                destination,
                source_port,
                destination_port,
                protocol: self.protocol,
            }),
            _ => None,
        }
    }

    fn parse4(frame: &[u8], network_at: usize, limit: usize) -> Option<Embedded> {
        let header = layout::array::<20>(frame.get(..limit)?, network_at)?;
        let header_length = usize::from(header[0] & 0x0f) * 4;
        let total_length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[0] >> 4 != 4 || header_length < 20 || total_length < header_length {
            return None;
        }
        let transport_at = network_at + header_length;
        let whole_header = frame.get(network_at..transport_at)?;
        if transport_at > limit {
            return None;
        }
        let fragmentation = u16::from_be_bytes([header[6], header[7]]);
        let fragment = match (fragmentation & 0x1fff, fragmentation & 0x2000) {
            (0, 0) => Fragment::Whole,
            (0, _) => Fragment::First,
            _ => Fragment::Later,
        };
        let source = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
        let destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
        let embedded = Embedded {
            network: Network::Ipv4,
            transport: Transport::None,
            fragment,
            protocol: header[9],
            source_routed: false,
            header_checksum_valid: Sum::ZERO.bytes(whole_header).is_valid(),
            network_at,
            transport_at,
            end: limit.min(network_at + total_length),
            source: source.into(),
            destination: destination.into(),
            identification: u32::from(u16::from_be_bytes([header[4], header[5]])),
            ports: None,
        };
        Some(embedded.with_transport(frame))
    }

    fn parse6(frame: &[u8], network_at: usize, limit: usize) -> Option<Embedded> {
        let quoted = frame.get(..limit)?;
        let header = layout::array::<40>(quoted, network_at)?;
        if header[0] >> 4 != 6 || has_mapped_address(header) {
            return None;
        }
        let payload_length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let end = limit.min(network_at + 40 + payload_length);
        let extensions = Extensions::walk(frame.get(..end)?, network_at + 40, header[6]).ok()?;
        let (fragment, identification) = match extensions.fragment_at {
            Some(at) => {
                let header = layout::array::<8>(quoted, at)?;
                let fragment = match u16::from_be_bytes([header[2], header[3]]) & 0xfff9 {
                    0 => Fragment::Whole,
                    1 => Fragment::First,
                    _ => Fragment::Later,
                };
                (
                    fragment,
                    u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                )
            }
            None => (Fragment::Whole, 0),
        };
        let address = |at: usize| {
            layout::array::<16>(quoted, at).map(|octets| Ipv6Addr::from_octets(*octets))
        };
        let embedded = Embedded {
            network: Network::Ipv6,
            transport: Transport::None,
            fragment,
            protocol: extensions.protocol,
            source_routed: extensions.source_routed,
            header_checksum_valid: true,
            network_at,
            transport_at: extensions.end,
            end,
            source: address(network_at + 8)?.into(),
            destination: address(network_at + 24)?.into(),
            identification,
            ports: None,
        };
        Some(embedded.with_transport(frame))
    }

    /// Reads the ports, when as much of the transport header is quoted as must be.
    fn with_transport(self, frame: &[u8]) -> Embedded {
        if self.fragment == Fragment::Later || self.transport_at + QUOTED_TRANSPORT_MIN > self.end {
            return self;
        }
        let Some(header) = layout::array::<QUOTED_TRANSPORT_MIN>(frame, self.transport_at) else {
            return self;
        };
        let ports = (
            u16::from_be_bytes([header[0], header[1]]),
            u16::from_be_bytes([header[2], header[3]]),
        );
        let identifier = u16::from_be_bytes([header[4], header[5]]);
        let (transport, ports) = match (self.network, Protocol(self.protocol)) {
            (_, Protocol::TCP) => (Transport::Tcp, Some(ports)),
            (_, Protocol::UDP) => (Transport::Udp, Some(ports)),
            (Network::Ipv4, Protocol::ICMP) => (
                Transport::Icmp,
                IcmpKind::of_icmp(header[0])
                    .has_identifier()
                    .then_some((identifier, identifier)),
            ),
            (Network::Ipv6, Protocol::ICMPV6) => (
                Transport::Icmpv6,
                IcmpKind::of_icmpv6(header[0])
                    .has_identifier()
                    .then_some((identifier, identifier)),
            ),
            _ => (Transport::None, None),
        };
        Embedded {
            transport,
            ports,
            ..self
        }
    }
}

/// The packet inside an ICMP error.
impl Packet<'_> {
    /// What is embedded in this ICMP or ICMPv6 error; `None` when this is no error, or what it embeds is cut inside
    /// the IP headers or is not of the same IP version. Costs a parse: call it where [`Packet::flow4`] is `None`.
    #[must_use]
    pub fn embedded(&self) -> Option<Embedded> {
        if self.icmp_kind()? != IcmpKind::Error {
            return None;
        }
        let embedded_at = self.layout.transport_offset() + 8;
        match self.layout.transport() {
            Transport::Icmp => Embedded::parse4(self.bytes(), embedded_at, self.layout.end()),
            Transport::Icmpv6 => Embedded::parse6(self.bytes(), embedded_at, self.layout.end()),
            _ => None,
        }
    }

    /// Sets the embedded packet's source address and port (or ICMP identifier), where they are quoted. Repairs its
    /// IPv4 header checksum, its transport checksum where that is quoted, and the error's own. No effect when there
    /// is no embedded IPv4 packet.
    pub fn set_embedded_source(&mut self, to: Endpoint) {
        self.edit_embedded(IpAddr::V4(to.address), Some(to.port), Side::Source);
    }

    /// [`Packet::set_embedded_source`] for the destination.
    pub fn set_embedded_destination(&mut self, to: Endpoint) {
        self.edit_embedded(IpAddr::V4(to.address), Some(to.port), Side::Destination);
    }

    /// Sets the source address of the IPv6 packet embedded in an ICMPv6 error, and `port` when one is given.
    pub fn set_embedded_ipv6_source(&mut self, to: Ipv6Addr, port: Option<u16>) {
        self.edit_embedded(IpAddr::V6(to), port, Side::Source);
    }

    /// [`Packet::set_embedded_ipv6_source`] for the destination.
    pub fn set_embedded_ipv6_destination(&mut self, to: Ipv6Addr, port: Option<u16>) {
        self.edit_embedded(IpAddr::V6(to), port, Side::Destination);
    }

    fn edit_embedded(&mut self, address: IpAddr, port: Option<u16>, side: Side) {
        let Some(embedded) = self.embedded() else {
            return;
        };
        if address.is_ipv4() != (embedded.network == Network::Ipv4) {
            return;
        }
        let mut edit = Quotation {
            end: embedded.end,
            bytes: self.bytes_mut(),
            outer: Change::NONE,
        };
        let change = edit.replace_address(&embedded, address, side);
        edit.replace_transport(&embedded, change, port, side);
        let outer = edit.outer;
        let transport_at = self.layout.transport_offset();
        if let Some(checksum) = self.array_mut::<2>(transport_at + 2) {
            *checksum = outer.apply(*checksum);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

/// The quoted bytes while they are edited; every 16-bit word replaced is noted for the checksum of the error around.
struct Quotation<'a> {
    bytes: &'a mut [u8],
    end: usize,
    outer: Change,
}

impl Quotation<'_> {
    /// Replaces the address and returns what that does to a transport checksum.
    fn replace_address(&mut self, embedded: &Embedded, address: IpAddr, side: Side) -> Change {
        let mut change = Change::NONE;
        match address {
            IpAddr::V4(address) => {
                let at = embedded.network_at + if side == Side::Source { 12 } else { 16 };
                let [a, b, c, d] = address.octets();
                change = self.replace(at, [a, b], change);
                change = self.replace(at + 2, [c, d], change);
                self.repair(embedded.network_at + 10, change, false);
                change
            }
            IpAddr::V6(address) => {
                let at = embedded.network_at + if side == Side::Source { 8 } else { 24 };
                for (index, word) in address.segments().iter().enumerate() {
                    change = self.replace(at + 2 * index, word.to_be_bytes(), change);
                }
                let uncovered = side == Side::Destination && embedded.source_routed;
                if uncovered { Change::NONE } else { change }
            }
        }
    }

    /// Replaces the port or identifier and repairs the transport checksum, each where it is quoted.
    fn replace_transport(
        &mut self,
        embedded: &Embedded,
        address: Change,
        port: Option<u16>,
        side: Side,
    ) {
        let at = embedded.transport_at;
        let (port_at, checksum_at, covered) = match embedded.transport {
            Transport::Tcp => (at + side.port_offset(), at + 16, address),
            Transport::Udp => (at + side.port_offset(), at + 6, address),
            Transport::Icmp => (at + 4, at + 2, Change::NONE),
            Transport::Icmpv6 => (at + 4, at + 2, address),
            Transport::None => return,
        };
        let mut change = covered;
        if let (Some(port), Some(_)) = (port, embedded.ports) {
            change = self.replace(port_at, port.to_be_bytes(), change);
        }
        self.repair(checksum_at, change, embedded.transport == Transport::Udp);
    }

    /// Replaces one word, when it is quoted, and adds that to `change`.
    fn replace(&mut self, at: usize, new: [u8; 2], change: Change) -> Change {
        if at + 2 > self.end {
            return change;
        }
        let Some(word) = layout::array_mut::<2>(self.bytes, at) else {
            return change;
        };
        let old = *word;
        *word = new;
        self.outer = self.outer.and16(old, new);
        change.and16(old, new)
    }

    /// Applies `change` to the checksum at `at`, when it is quoted.
    fn repair(&mut self, at: usize, change: Change, is_udp: bool) {
        let Some(old) = layout::array::<2>(self.bytes, at).copied() else {
            return;
        };
        let new = if is_udp {
            change.apply_udp(old)
        } else {
            change.apply(old)
        };
        self.replace(at, new, Change::NONE);
    }
}

impl Side {
    const fn port_offset(self) -> usize {
        match self {
            Side::Source => 0,
            Side::Destination => 2,
        }
    }
}
