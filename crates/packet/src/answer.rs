//! Answers that refuse a packet in the name of its destination, written into a caller's buffer: a TCP reset or an ICMP error,
//! of either IP version.
//!
//! They go back as the packet came: to its Ethernet source, with the same VLAN tags, from the address that it was sent to.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::build;
use crate::checksum::Sum;
use crate::endpoint::Protocol;
use crate::layout::{self, Fragment, Layout, Network, Transport};
use crate::transport::{IcmpKind, TcpFlags};

/// Bytes of an ICMPv6 error's IP packet at most (RFC 4443 §2.4).
const ICMPV6_ERROR_LENGTH_MAX: usize = 1_280;
const IPV6: usize = 40;
/// What is left of the time to live of what is written here, at its first hop.
const TTL: u8 = 64;
/// The ICMPv6 redirect, which is no error by its number (RFC 4443 §2.4 e.2).
const REDIRECT: u8 = 137;

/// Refuses a packet: with a reset where it is a TCP segment, else with the ICMP error "communication administratively prohibited"
/// (RFC 1812 §5.2.7.1, RFC 4443 §3.1).
///
/// `None`, with the buffer's content unspecified, where it does not fit or nothing may be answered: to resets, ICMP errors, fragments
/// of TCP, later fragments, packets to several hosts (Ethernet's included) or from no single one, source-routed packets, and what
/// is not IP.
pub fn refusal(original: &[u8], out: &mut [u8]) -> Option<usize> {
    let packet = Original::of(original)?;
    match (packet.layout.transport(), packet.layout.fragment()) {
        (Transport::Tcp, Fragment::Whole) => packet.reset(out),
        (Transport::Tcp, _) | (_, Fragment::Later) => None,
        _ => packet.prohibited(out),
    }
}

/// A packet that may be answered.
struct Original<'a> {
    bytes: &'a [u8],
    layout: Layout,
    source: IpAddr,
    destination: IpAddr,
}

impl<'a> Original<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let layout = Layout::parse_unverified(bytes).ok()?;
        let at = layout.network_offset();
        let address4 =
            |at| layout::array::<4>(bytes, at).map(|octets| Ipv4Addr::from(*octets).into());
        let address6 =
            |at| layout::array::<16>(bytes, at).map(|octets| Ipv6Addr::from(*octets).into());
        let (source, destination): (IpAddr, IpAddr) = match layout.network() {
            Network::Ipv4 => (address4(at + 12)?, address4(at + 16)?),
            Network::Ipv6 => (address6(at + 8)?, address6(at + 24)?),
            Network::Arp | Network::Other => return None,
        };
        let is_one_host = |address: &IpAddr| match address {
            IpAddr::V4(address) => build::is_one_host(*address),
            IpAddr::V6(address) => {
                !(address.is_multicast() || address.is_unspecified() || address.is_loopback())
            }
        };
        let is_to_a_group = bytes.first().is_some_and(|first| first & 1 == 1);
        let may_be_answered = is_one_host(&source)
            && is_one_host(&destination)
            && !is_to_a_group
            && !layout.is_source_routed();
        may_be_answered.then_some(Self {
            bytes,
            layout,
            source,
            destination,
        })
    }

    /// The sum of the pseudo header of an answer.
    fn pseudo_header(&self, protocol: Protocol, length: usize) -> Option<Sum> {
        Some(match (self.destination, self.source) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                Sum::pseudo_header4(from, to, protocol.0, u16::try_from(length).ok()?)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Sum::pseudo_header6(from, to, protocol.0, u32::try_from(length).ok()?)
            }
            _ => return None,
        })
    }

    /// Writes a frame of these parts.
    fn write(&self, protocol: Protocol, parts: [&[u8]; 2], out: &mut [u8]) -> Option<usize> {
        let mut writer = build::Writer { out, at: 0 };
        let link = self.bytes.get(..self.layout.network_offset())?;
        writer.put(&link[6..12])?;
        writer.put(&link[..6])?;
        writer.put(&link[12..])?;
        let length = parts[0].len() + parts[1].len();
        match (self.destination, self.source) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                // Not to be fragmented, so its identification says nothing (RFC 6864 §4.1).
                let header = build::Header4 {
                    ttl: TTL,
                    ..build::Header4::between(from, to)
                };
                writer.put(&build::ipv4_header(&header, protocol, length)?)?;
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut header = [0; IPV6];
                header[0] = 0x60;
                header[4..6].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
                header[6] = protocol.0;
                header[7] = TTL;
                header[8..24].copy_from_slice(&from.octets());
                header[24..].copy_from_slice(&to.octets());
                writer.put(&header)?;
            }
            _ => return None,
        }
        writer.put(parts[0])?;
        writer.put(parts[1])?;
        Some(writer.at)
    }

    /// The reset that a closed port answers with (RFC 9293 §3.10.7.1).
    fn reset(&self, out: &mut [u8]) -> Option<usize> {
        let at = self.layout.transport_offset();
        let header = layout::array::<20>(self.bytes, at)?;
        let flags = TcpFlags(header[13]);
        if flags.contains(TcpFlags::RST) {
            return None;
        }
        let mut fields = [0; 20];
        fields[..2].copy_from_slice(&header[2..4]);
        fields[2..4].copy_from_slice(&header[..2]);
        fields[12] = 5 << 4;
        if flags.contains(TcpFlags::ACK) {
            fields[4..8].copy_from_slice(&header[8..12]);
            fields[13] = TcpFlags::RST.0;
        } else {
            let data = self.layout.end() - at - usize::from(header[12] >> 4) * 4;
            let bits = [TcpFlags::SYN, TcpFlags::FIN].map(|bit| usize::from(flags.contains(bit)));
            let length = data + bits[0] + bits[1];
            let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            let acknowledged = sequence.wrapping_add(length as u32);
            fields[8..12].copy_from_slice(&acknowledged.to_be_bytes());
            fields[13] = TcpFlags::RST.0 | TcpFlags::ACK.0;
        }
        let sum = self.pseudo_header(Protocol::TCP, fields.len())?;
        [fields[16], fields[17]] = sum.bytes(&fields).finish();
        self.write(Protocol::TCP, [&fields, &[]], out)
    }

    fn prohibited(&self, out: &mut [u8]) -> Option<usize> {
        let icmp_type = self.bytes.get(self.layout.transport_offset()).copied();
        match self.destination {
            IpAddr::V4(from) => build::icmp_unreachable(self.bytes, from, 13, out),
            IpAddr::V6(_) => {
                if self.layout.transport() == Transport::Icmpv6
                    && icmp_type.is_none_or(|icmp_type| {
                        icmp_type == REDIRECT || IcmpKind::of_icmpv6(icmp_type) == IcmpKind::Error
                    })
                {
                    return None;
                }
                let quoted = self
                    .bytes
                    .get(self.layout.network_offset()..self.layout.end())?;
                let quoted = quoted
                    .get(..ICMPV6_ERROR_LENGTH_MAX - IPV6 - 8)
                    .unwrap_or(quoted);
                let mut message = [1, 1, 0, 0, 0, 0, 0, 0];
                let sum = self.pseudo_header(Protocol::ICMPV6, message.len() + quoted.len())?;
                [message[2], message[3]] = sum.bytes(&message).bytes(quoted).finish();
                self.write(Protocol::ICMPV6, [&message, quoted], out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Header4, Segment};
    use crate::packet::Packet;
    use std::vec;
    use std::vec::Vec;

    fn frame(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
        let mut bytes = vec![0; 1_600];
        let length = write(&mut bytes).expect("it fits");
        bytes.truncate(length);
        bytes
    }

    fn answer(original: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; 1_600];
        let length = refusal(original, &mut out)?;
        out.truncate(length);
        let packet = Packet::parse(&mut out).expect("well-formed");
        assert_eq!(packet.verify_transport_checksum(), Some(true));
        assert_eq!(packet.ethernet_source().0, original[..6]);
        assert_eq!(packet.ethernet_destination().0, original[6..12]);
        Some(out)
    }

    fn header() -> Header4 {
        Header4::between([10, 0, 0, 7].into(), [192, 0, 2, 1].into())
    }

    fn tcp(flags: TcpFlags, data: &[u8]) -> Vec<u8> {
        let segment = Segment {
            sequence: 100,
            acknowledgement: 900,
            ..Segment::with_flags(flags)
        };
        frame(|out| build::tcp4(&header(), 4_000, 80, &segment, data, out))
    }

    /// The same packet over IPv6, with a VLAN tag.
    fn version6(frame: &[u8], protocol: u8) -> Vec<u8> {
        let mut bytes = frame[..12].to_vec();
        bytes.extend([0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend(((frame.len() - 34) as u16).to_be_bytes());
        bytes.extend([protocol, 9]);
        bytes.extend("2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend("2001:db8:1::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(&frame[34..]);
        bytes
    }

    #[test]
    fn a_segment_is_answered_by_the_reset_of_a_closed_port() {
        for (flags, data, answered) in [
            (TcpFlags::SYN, &b""[..], (TcpFlags(0x14), 0, 101)),
            (TcpFlags::SYN, b"data", (TcpFlags(0x14), 0, 105)),
            (TcpFlags(0x11), b"data", (TcpFlags::RST, 900, 0)),
            (TcpFlags::FIN, b"", (TcpFlags(0x14), 0, 101)),
        ] {
            let segment = tcp(flags, data);
            for original in [segment.clone(), version6(&segment, 6)] {
                let mut bytes = answer(&original).expect("an answer");
                let packet = Packet::parse(&mut bytes).unwrap();
                assert_eq!(packet.ports(), Some((80, 4_000)));
                let said = (
                    packet.tcp_flags().unwrap(),
                    packet.tcp_sequence().unwrap(),
                    packet.tcp_acknowledgement().unwrap(),
                );
                assert_eq!(said, answered, "{flags:?}");
                assert!(packet.payload().is_empty());
            }
        }
        assert_eq!(answer(&tcp(TcpFlags::RST, b"")), None);
        assert_eq!(answer(&tcp(TcpFlags(0x14), b"")), None);
    }

    #[test]
    fn all_else_is_answered_by_an_icmp_error_that_quotes_it() {
        let data = vec![7; 1_400];
        let datagram = frame(|out| build::udp4(&header(), 4_000, 53, &data, out));
        let mut bytes = answer(&datagram).expect("an answer");
        let packet = Packet::parse(&mut bytes).unwrap();
        assert_eq!(
            (packet.icmp_type(), packet.icmp_code()),
            (Some(3), Some(13))
        );
        assert_eq!(packet.ipv4_source(), Some([192, 0, 2, 1].into()));
        let quoted = packet.embedded().expect("the datagram");
        assert_eq!(quoted.ports(), Some((4_000, 53)));
        let mut bytes = answer(&version6(&datagram, 17)).expect("an answer");
        assert_eq!(bytes.len(), 18 + ICMPV6_ERROR_LENGTH_MAX);
        assert_eq!(bytes[12..16], [0x81, 0, 0, 5], "the same VLAN");
        let packet = Packet::parse(&mut bytes).unwrap();
        assert_eq!((packet.icmp_type(), packet.icmp_code()), (Some(1), Some(1)));
        let quoted = packet.embedded().expect("the datagram");
        assert_eq!(quoted.ports(), Some((4_000, 53)));
        // A packet with an IPv4-mapped address is none, nor is one that is quoted.
        for at in [18 + 40 + 8 + 8, 18 + 40 + 8 + 24] {
            let mut mapped = bytes.clone();
            mapped[at..at + 12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
            let packet = Packet::parse(&mut mapped).unwrap();
            assert_eq!(packet.embedded(), None);
        }
        // An error is not answered, in either version.
        let error = frame(|out| build::icmp_unreachable(&datagram, [192, 0, 2, 1].into(), 3, out));
        assert_eq!(answer(&error), None);
        assert_eq!(answer(&answer(&version6(&datagram, 17)).unwrap()), None);
    }

    #[test]
    fn nothing_is_answered_to_or_from_several_hosts() {
        let good = tcp(TcpFlags::SYN, b"");
        assert!(answer(&good).is_some());
        for (at, byte) in [(0, 3), (26, 224), (30, 224), (26, 0), (30, 127)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(answer(&bad), None, "byte {at}");
        }
        for (at, byte) in [(26, 0xff), (42, 0xff)] {
            let mut bad = version6(&good, 6);
            bad[at] = byte;
            assert_eq!(answer(&bad), None, "byte {at}");
        }
        for length in 0..good.len() {
            let mut short = good.clone();
            short.truncate(length);
            assert_eq!(refusal(&short, &mut [0; 200]), None);
            assert!(refusal(&good, &mut vec![0; length.min(53)]).is_none());
        }
    }
}
