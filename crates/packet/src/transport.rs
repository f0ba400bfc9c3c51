//! What the TCP, UDP and ICMP headers of a packet say.

use core::fmt;
use core::net::Ipv4Addr;
use core::ops::{BitAnd, BitOr};

use crate::checksum::Sum;
use crate::endpoint::Flow4;
use crate::layout::{Fragment, Network, Transport};
use crate::packet::{PLAIN_IPV4, Packet};

/// The control bits of a TCP segment (RFC 9293 §3.1), a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: TcpFlags = TcpFlags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: TcpFlags = TcpFlags(0x02);
    /// Reset the connection.
    pub const RST: TcpFlags = TcpFlags(0x04);
    /// Push.
    pub const PSH: TcpFlags = TcpFlags(0x08);
    /// The acknowledgement number is significant.
    pub const ACK: TcpFlags = TcpFlags(0x10);
    /// The urgent pointer is significant.
    pub const URG: TcpFlags = TcpFlags(0x20);
    /// Congestion experienced, echoed (RFC 3168).
    pub const ECE: TcpFlags = TcpFlags(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: TcpFlags = TcpFlags(0x80);

    /// Whether every flag of `flags` is set.
    #[inline]
    #[must_use]
    pub const fn contains(self, flags: TcpFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether some flag of `flags` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, flags: TcpFlags) -> bool {
        self.0 & flags.0 != 0
    }
}

impl BitOr for TcpFlags {
    type Output = TcpFlags;
    #[inline]
    fn bitor(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

impl BitAnd for TcpFlags {
    type Output = TcpFlags;
    #[inline]
    fn bitand(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 & other.0)
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, name) in ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"]
            .iter()
            .enumerate()
        {
            if self.0 >> bit & 1 == 1 {
                write!(
                    f,
                    "{}{name}",
                    if self.0 & ((1 << bit) - 1) == 0 {
                        ""
                    } else {
                        "|"
                    }
                )?;
            }
        }
        if self.0 == 0 {
            f.write_str("none")
        } else {
            Ok(())
        }
    }
}

/// What an ICMP message is for, of either version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IcmpKind {
    /// Asks, and has an identifier: echo, timestamp, address mask.
    Query,
    /// Answers a query, and has its identifier.
    Reply,
    /// Reports an error about the packet embedded in it.
    Error,
    /// Anything else: redirects, router and neighbour discovery, multicast listeners.
    Other,
}

impl IcmpKind {
    /// The kind of an ICMP type for IPv4 (RFC 792, RFC 950). A redirect (5) embeds a packet too, and is an error here:
    /// RFC 5508 has a NAT treat what is embedded alike.
    #[inline]
    #[must_use]
    pub const fn of_icmp(icmp_type: u8) -> IcmpKind {
        match icmp_type {
            8 | 13 | 15 | 17 => IcmpKind::Query,
            0 | 14 | 16 | 18 => IcmpKind::Reply,
            3 | 4 | 5 | 11 | 12 => IcmpKind::Error,
            _ => IcmpKind::Other,
        }
    }

    /// The kind of an ICMPv6 type (RFC 4443: errors are below 128).
    #[inline]
    #[must_use]
    pub const fn of_icmpv6(icmp_type: u8) -> IcmpKind {
        match icmp_type {
            128 => IcmpKind::Query,
            129 => IcmpKind::Reply,
            1..=4 => IcmpKind::Error,
            _ => IcmpKind::Other,
        }
    }
}

impl IcmpKind {
    /// Whether messages of this kind have an identifier.
    #[inline]
    #[must_use]
    pub const fn has_identifier(self) -> bool {
        matches!(self, IcmpKind::Query | IcmpKind::Reply)
    }
}

/// Flows and ports.
impl Packet<'_> {
    /// Both ends of an IPv4 packet of TCP, UDP or an ICMP query or reply, whose identifier is put in both ports.
    /// `None` for anything else: other protocols, ICMP errors (see [`Packet::embedded`]), and fragments without a
    /// transport header. About twenty instructions.
    #[inline]
    #[must_use]
    pub fn flow4(&self) -> Option<Flow4> {
        if let Some(frame) = self.plain() {
            let (_, headers) = frame.split_at(PLAIN_IPV4);
            return Some(Flow4 {
                source: Ipv4Addr::new(headers[12], headers[13], headers[14], headers[15]),
                destination: Ipv4Addr::new(headers[16], headers[17], headers[18], headers[19]),
                source_port: u16::from_be_bytes([headers[20], headers[21]]),
                destination_port: u16::from_be_bytes([headers[22], headers[23]]),
                protocol: self.layout.protocol(),
            });
        }
        self.flow4_uncommon()
    }

    #[inline(never)]
    fn flow4_uncommon(&self) -> Option<Flow4> {
        let (source_port, destination_port) = self.ports()?;
        Some(Flow4 {
            source: self.ipv4_source()?,
            destination: self.ipv4_destination()?,
            source_port,
            destination_port,
            protocol: self.layout.protocol(),
        })
    }

    /// Source and destination port of TCP or UDP, of either IP version; of an ICMP query or reply, its identifier
    /// twice.
    #[inline]
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        if matches!(self.layout.transport(), Transport::Tcp | Transport::Udp) {
            let ports = self.array::<4>(self.layout.transport_offset())?;
            return Some((
                u16::from_be_bytes([ports[0], ports[1]]),
                u16::from_be_bytes([ports[2], ports[3]]),
            ));
        }
        self.icmp_identifier()
            .map(|identifier| (identifier, identifier))
    }

    /// Length of the transport header in bytes, zero when there is none.
    #[inline]
    pub(crate) fn transport_header_length(&self) -> usize {
        match self.layout.transport() {
            Transport::Tcp => self
                .tcp()
                .map_or(0, |header| usize::from(header[12] >> 4) * 4),
            Transport::Udp | Transport::Icmp | Transport::Icmpv6 => 8,
            Transport::None => 0,
        }
    }

    /// Whether the TCP, UDP, ICMP or ICMPv6 checksum is right, over all of the payload. `None` when it cannot be
    /// known: fragments, other protocols, and UDP over IPv4 without a checksum count as not known. A source-routed
    /// IPv6 packet, whose final destination is elsewhere, too.
    #[must_use]
    pub fn verify_transport_checksum(&self) -> Option<bool> {
        if self.layout.fragment() != Fragment::Whole || self.layout.is_source_routed() {
            return None;
        }
        let transport_at = self.layout.transport_offset();
        let end = match self.layout.transport() {
            Transport::None => return None,
            Transport::Udp => {
                let header = self.udp()?;
                if self.layout.network() == Network::Ipv4 && header[6..] == [0, 0] {
                    return None;
                }
                transport_at + usize::from(self.udp_length()?)
            }
            _ => self.layout.end(),
        };
        let segment = self.bytes().get(transport_at..end)?;
        let pseudo_header = match (self.layout.network(), self.layout.transport()) {
            (Network::Ipv4, Transport::Icmp) => Sum::ZERO,
            (Network::Ipv4, _) => Sum::pseudo_header4(
                self.ipv4_source()?,
                self.ipv4_destination()?,
                self.layout.protocol(),
                u16::try_from(segment.len()).ok()?,
            ),
            (Network::Ipv6, _) => Sum::pseudo_header6(
                self.ipv6_source()?,
                self.ipv6_destination()?,
                self.layout.protocol(),
                u32::try_from(segment.len()).ok()?,
            ),
            _ => return None,
        };
        Some(pseudo_header.bytes(segment).is_valid())
    }
}

/// TCP.
impl Packet<'_> {
    /// The control bits.
    #[inline]
    #[must_use]
    pub fn tcp_flags(&self) -> Option<TcpFlags> {
        self.tcp().map(|header| TcpFlags(header[13]))
    }

    /// The sequence number.
    #[inline]
    #[must_use]
    pub fn tcp_sequence(&self) -> Option<u32> {
        self.tcp()
            .map(|header| u32::from_be_bytes([header[4], header[5], header[6], header[7]]))
    }

    /// The acknowledgement number, significant when [`TcpFlags::ACK`] is set.
    #[inline]
    #[must_use]
    pub fn tcp_acknowledgement(&self) -> Option<u32> {
        self.tcp()
            .map(|header| u32::from_be_bytes([header[8], header[9], header[10], header[11]]))
    }

    /// The window as sent, not scaled.
    #[inline]
    #[must_use]
    pub fn tcp_window(&self) -> Option<u16> {
        self.tcp()
            .map(|header| u16::from_be_bytes([header[14], header[15]]))
    }

    /// The options, undecoded.
    #[must_use]
    pub fn tcp_options(&self) -> Option<&[u8]> {
        self.tcp()?;
        let transport_at = self.layout.transport_offset();
        self.bytes()
            .get(transport_at + 20..transport_at + self.transport_header_length())
    }

    #[inline(always)]
    fn tcp(&self) -> Option<&[u8; 20]> {
        if self.layout.transport() != Transport::Tcp {
            return None;
        }
        self.array(self.layout.transport_offset())
    }
}

/// UDP.
impl Packet<'_> {
    /// The length of header and data in bytes.
    #[inline]
    #[must_use]
    pub fn udp_length(&self) -> Option<u16> {
        self.udp()
            .map(|header| u16::from_be_bytes([header[4], header[5]]))
    }

    #[inline(always)]
    fn udp(&self) -> Option<&[u8; 8]> {
        if self.layout.transport() != Transport::Udp {
            return None;
        }
        self.array(self.layout.transport_offset())
    }
}

/// ICMP and ICMPv6.
impl Packet<'_> {
    /// The message type.
    #[inline]
    #[must_use]
    pub fn icmp_type(&self) -> Option<u8> {
        self.icmp().map(|header| header[0])
    }

    /// The message code.
    #[inline]
    #[must_use]
    pub fn icmp_code(&self) -> Option<u8> {
        self.icmp().map(|header| header[1])
    }

    /// The four bytes after the checksum: identifier and sequence number, unused, or the next hop's MTU.
    #[inline]
    #[must_use]
    pub fn icmp_rest(&self) -> Option<[u8; 4]> {
        self.icmp()
            .map(|header| [header[4], header[5], header[6], header[7]])
    }

    /// What the message is for.
    #[inline]
    #[must_use]
    pub fn icmp_kind(&self) -> Option<IcmpKind> {
        let icmp_type = self.icmp_type()?;
        Some(match self.layout.transport() {
            Transport::Icmpv6 => IcmpKind::of_icmpv6(icmp_type),
            _ => IcmpKind::of_icmp(icmp_type),
        })
    }

    /// The identifier of a query or reply.
    #[inline]
    #[must_use]
    pub fn icmp_identifier(&self) -> Option<u16> {
        match self.icmp_kind()? {
            IcmpKind::Query | IcmpKind::Reply => self
                .icmp()
                .map(|header| u16::from_be_bytes([header[4], header[5]])),
            _ => None,
        }
    }

    #[inline(always)]
    fn icmp(&self) -> Option<&[u8; 8]> {
        if !matches!(self.layout.transport(), Transport::Icmp | Transport::Icmpv6) {
            return None;
        }
        self.array(self.layout.transport_offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn flags_are_a_set() {
        let flags = TcpFlags::SYN | TcpFlags::ACK;
        assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::SYN | TcpFlags::RST));
        assert!(
            flags.intersects(TcpFlags::SYN | TcpFlags::RST) && !flags.intersects(TcpFlags::FIN)
        );
        assert_eq!(flags & TcpFlags::SYN, TcpFlags::SYN);
        assert_eq!(
            format!("{flags:?} {:?}", TcpFlags::default()),
            "SYN|ACK none"
        );
    }

    #[test]
    fn every_query_has_a_reply_and_every_error_embeds() {
        for (query, reply) in [(8, 0), (13, 14), (15, 16), (17, 18)] {
            assert_eq!(
                (IcmpKind::of_icmp(query), IcmpKind::of_icmp(reply)),
                (IcmpKind::Query, IcmpKind::Reply)
            );
        }
        let errors =
            (0..=255u8).filter(|icmp_type| IcmpKind::of_icmp(*icmp_type) == IcmpKind::Error);
        assert_eq!(errors.collect::<std::vec::Vec<_>>(), [3, 4, 5, 11, 12]);
        assert_eq!(
            (IcmpKind::of_icmpv6(128), IcmpKind::of_icmpv6(129)),
            (IcmpKind::Query, IcmpKind::Reply)
        );
        assert_eq!(
            (IcmpKind::of_icmpv6(2), IcmpKind::of_icmpv6(135)),
            (IcmpKind::Error, IcmpKind::Other)
        );
    }
}
