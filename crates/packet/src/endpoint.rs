//! Transport endpoints and the four-address form of an IPv4 flow.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::Ipv4Addr;

/// An IP protocol number, displayed as `tcp`, `udp`, `icmp`, `icmpv6` or the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Internet Control Message Protocol (RFC 792).
    pub const ICMP: Protocol = Protocol(1);
    /// Transmission Control Protocol (RFC 9293).
    pub const TCP: Protocol = Protocol(6);
    /// User Datagram Protocol (RFC 768).
    pub const UDP: Protocol = Protocol(17);
    /// Internet Control Message Protocol for IPv6 (RFC 4443).
    pub const ICMPV6: Protocol = Protocol(58);
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Protocol::ICMP => f.write_str("icmp"),
            Protocol::TCP => f.write_str("tcp"),
            Protocol::UDP => f.write_str("udp"),
            Protocol::ICMPV6 => f.write_str("icmpv6"),
            Protocol(number) => write!(f, "{number}"),
        }
    }
}

/// One end of an IPv4 flow: eight bytes. For an ICMP query the port is the query's identifier (RFC 5508 §3.1).
///
/// Ordered by address, then protocol, then port, as [`Endpoint::to_bits`] is, so that the ports of one address and
/// protocol are neighbours.
#[derive(Clone, Copy)]
pub struct Endpoint {
    /// The IPv4 address.
    pub address: Ipv4Addr,
    /// The port, or the identifier of an ICMP query.
    pub port: u16,
    /// The protocol whose port this is.
    pub protocol: Protocol,
}

impl Endpoint {
    /// An endpoint from its parts.
    #[inline]
    #[must_use]
    pub const fn new(address: Ipv4Addr, port: u16, protocol: Protocol) -> Endpoint {
        Endpoint {
            address,
            port,
            protocol,
        }
    }

    /// The endpoint as one number: address in bits 63..32, zero in 31..24, protocol in 23..16, port in 15..0.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.address.to_bits() as u64) << 32 | (self.protocol.0 as u64) << 16 | self.port as u64
    }

    /// The endpoint that [`Endpoint::to_bits`] made the number from. Bits 31..24 are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Endpoint {
        Endpoint {
            address: Ipv4Addr::from_bits((bits >> 32) as u32),
            port: bits as u16,
            protocol: Protocol((bits >> 16) as u8),
        }
    }
}

impl PartialEq for Endpoint {
    #[inline]
    fn eq(&self, other: &Endpoint) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl Eq for Endpoint {}

impl PartialOrd for Endpoint {
    #[inline]
    fn partial_cmp(&self, other: &Endpoint) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Endpoint {
    #[inline]
    fn cmp(&self, other: &Endpoint) -> Ordering {
        self.to_bits().cmp(&other.to_bits())
    }
}

impl Hash for Endpoint {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_bits());
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.address, self.port, self.protocol)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Both ends of a packet's flow in the direction of that packet. For an ICMP query, request or reply, both ports are
/// its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow4 {
    /// Who sent the packet.
    pub source: Ipv4Addr,
    /// Its recipient.
    pub destination: Ipv4Addr,
    /// The sender's port, or the ICMP identifier.
    pub source_port: u16,
    /// The receiver's port, or the ICMP identifier.
    pub destination_port: u16,
    /// The IP protocol number.
    pub protocol: u8,
}

impl Flow4 {
    /// The sender's end.
    #[inline]
    #[must_use]
    pub const fn source(&self) -> Endpoint {
        Endpoint::new(self.source, self.source_port, Protocol(self.protocol))
    }

    /// The receiver's end.
    #[inline]
    #[must_use]
    pub const fn destination(&self) -> Endpoint {
        Endpoint::new(
            self.destination,
            self.destination_port,
            Protocol(self.protocol),
        )
    }

    /// The flow of a packet that answers this one.
    #[inline]
    #[must_use]
    pub const fn reversed(&self) -> Flow4 {
        Flow4 {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            protocol: self.protocol,
        }
    }
}

impl fmt::Display for Flow4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flow4 {
            source,
            destination,
            source_port,
            destination_port,
            ..
        } = self;
        write!(
            f,
            "{source}:{source_port} > {destination}:{destination_port}/{}",
            Protocol(self.protocol)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn bits_keep_everything_and_order_ports_of_one_address_together() {
        let one = Endpoint::new(Ipv4Addr::new(203, 0, 113, 1), 40_000, Protocol::TCP);
        assert_eq!(Endpoint::from_bits(one.to_bits()), one);
        assert_eq!(one.to_string(), "203.0.113.1:40000/tcp");
        let next = Endpoint {
            port: 40_001,
            ..one
        };
        assert_eq!(next.to_bits(), one.to_bits() + 1);
        let udp = Endpoint {
            protocol: Protocol::UDP,
            port: 1,
            ..one
        };
        assert!(
            one < next
                && next < udp
                && udp
                    < Endpoint {
                        address: Ipv4Addr::new(203, 0, 113, 2),
                        ..one
                    }
        );
        assert_eq!(size_of::<Endpoint>(), 8);
    }

    #[test]
    fn reversing_a_flow_swaps_its_ends() {
        let flow = Flow4 {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(192, 0, 2, 1),
            source_port: 1234,
            destination_port: 53,
            protocol: 17,
        };
        assert_eq!(flow.reversed().source(), flow.destination());
        assert_eq!(flow.reversed().reversed(), flow);
        assert_eq!(flow.to_string(), "10.0.0.1:1234 > 192.0.2.1:53/udp");
    }
}
