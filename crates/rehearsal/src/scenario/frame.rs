//! A packet as its fields: written as a frame, read from one, and shown in the words of a scenario.

use core::fmt::{self, Display};
use core::net::IpAddr;

use asterism_function::{IcmpKind, MacAddress, Packet, Protocol, TcpFlags};
use asterism_packet::checksum::Sum;
use asterism_packet::{Network, Transport};

use super::words::show_bytes;

/// Time to live of packets that say none.
pub(super) const TTL: u8 = 64;
/// The most bytes of payload that a frame may have, so that it fits an Ethernet frame with whatever headers.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1_400;
/// Bytes of a packet that an ICMP error here is about, at most: its headers and eight bytes.
const QUOTED_BYTES_MAX: usize = 48;
const ICMP: u8 = Protocol::ICMP.0;
const ICMPV6: u8 = Protocol::ICMPV6.0;
/// Letters of TCP's control bits, from the lowest on.
pub(super) const FLAG_LETTERS: &str = "FSRPAUEC";

/// What of a packet scenarios can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) station: MacAddress,
    pub(super) protocol: u8,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ports: Option<(u16, u16)>,
    pub(super) ttl: u8,
    pub(super) tcp: Option<Segment>,
    /// Type and code.
    pub(super) icmp: Option<(u8, u8)>,
    /// Identifier and sequence number of an ICMP query or reply.
    pub(super) query: Option<(u16, u16)>,
    /// What an ICMP error is about.
    pub(super) about: Option<Box<Fields>>,
    pub(super) payload: Vec<u8>,
}

/// What of a TCP header scenarios can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) flags: TcpFlags,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
}

/// A kind of ICMP message: its word, with type and code in IPv4, and in IPv6.
type Message = (&'static str, (u8, u8), (u8, u8));

/// Kinds of ICMP messages.
pub(super) const MESSAGES: [Message; 8] = [
    ("echo", (8, 0), (128, 0)),
    ("reply", (0, 0), (129, 0)),
    ("network-unreachable", (3, 0), (1, 0)),
    ("host-unreachable", (3, 1), (1, 3)),
    ("port-unreachable", (3, 3), (1, 4)),
    ("prohibited", (3, 13), (1, 1)),
    ("too-big", (3, 4), (2, 0)),
    ("time-exceeded", (11, 0), (3, 0)),
];

impl Fields {
    /// Reads them; `None` of what is not IP, or no packet. The other way round from [`Fields::frame`], but for what an error quotes.
    pub(super) fn read(frame: &mut [u8]) -> Option<Fields> {
        let packet = Packet::parse(frame).ok()?;
        let (source, destination): (IpAddr, IpAddr) = match packet.layout().network() {
            Network::Ipv4 => (
                packet.ipv4_source()?.into(),
                packet.ipv4_destination()?.into(),
            ),
            Network::Ipv6 => (
                packet.ipv6_source()?.into(),
                packet.ipv6_destination()?.into(),
            ),
            _ => return None,
        };
        let query = packet.icmp_identifier().and_then(|id| {
            let rest = packet.icmp_rest()?;
            Some((id, u16::from_be_bytes([rest[2], rest[3]])))
        });
        let has_ports = matches!(packet.layout().transport(), Transport::Tcp | Transport::Udp);
        let about = packet.embedded().map(|inner| {
            let is_query = matches!(inner.protocol().0, ICMP | ICMPV6);
            Box::new(Fields {
                station: MacAddress::default(),
                protocol: inner.protocol().0,
                source: inner.source(),
                destination: inner.destination(),
                ports: inner.ports().filter(|_| !is_query),
                ttl: 0,
                tcp: None,
                icmp: None,
                query: inner.ports().filter(|_| is_query).map(|(id, _)| (id, 0)),
                about: None,
                payload: Vec::new(),
            })
        });
        let payload = match about {
            Some(_) => Vec::new(),
            None => packet.payload().to_vec(),
        };
        Some(Fields {
            station: packet.ethernet_destination(),
            protocol: packet.layout().protocol(),
            source,
            destination,
            ports: packet.ports().filter(|_| has_ports),
            ttl: packet.ttl()?,
            tcp: packet.tcp_flags().map(|flags| Segment {
                flags,
                sequence: packet.tcp_sequence().unwrap_or(0),
                acknowledgement: packet.tcp_acknowledgement().unwrap_or(0),
            }),
            icmp: packet.icmp_type().zip(packet.icmp_code()),
            query,
            about,
            payload,
        })
    }

    /// Whether a frame's checksums are right, as far as it has any.
    pub(super) fn is_intact(frame: &mut [u8]) -> bool {
        let Ok(packet) = Packet::parse(frame) else {
            return false;
        };
        packet.verify_ipv4_checksum() != Some(false)
            && packet.verify_transport_checksum() != Some(false)
    }

    /// Whether this is `other` as it may leave somewhere else: with another time to live and other Ethernet addresses.
    pub(super) fn is_passed(&self, other: &Fields) -> bool {
        let as_sent = Fields {
            ttl: other.ttl,
            station: other.station,
            ..self.clone()
        };
        as_sent == *other
    }

    /// The whole frame, with right checksums.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(64);
        frame.extend(self.station.0);
        frame.extend([2, 0, 0, 0, 0, 1]);
        frame.extend(match self.source {
            IpAddr::V4(_) => [0x08, 0x00],
            IpAddr::V6(_) => [0x86, 0xdd],
        });
        frame.extend(self.network());
        frame
    }

    /// The IP packet.
    fn network(&self) -> Vec<u8> {
        let upper = self.upper();
        let mut packet = Vec::with_capacity(40 + upper.len());
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                packet.extend([0x45, 0]);
                packet.extend((20 + upper.len() as u16).to_be_bytes());
                packet.extend([0, 0, 0x40, 0, self.ttl, self.protocol, 0, 0]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
                let sum = Sum::ZERO.bytes(&packet).finish();
                packet[10..12].copy_from_slice(&sum);
            }
            (source, destination) => {
                packet.extend([0x60, 0, 0, 0]);
                packet.extend((upper.len() as u16).to_be_bytes());
                packet.extend([self.protocol, self.ttl]);
                packet.extend(v6(source));
                packet.extend(v6(destination));
            }
        }
        packet.extend(upper);
        packet
    }

    /// The transport header and what follows it.
    fn upper(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20 + self.payload.len());
        let (source, destination) = self.ports.unwrap_or_default();
        let checksum_at = match self.protocol {
            6 => {
                let segment = self.tcp.unwrap_or(Segment {
                    flags: TcpFlags::ACK,
                    sequence: 1,
                    acknowledgement: 1,
                });
                bytes.extend(source.to_be_bytes());
                bytes.extend(destination.to_be_bytes());
                bytes.extend(segment.sequence.to_be_bytes());
                bytes.extend(segment.acknowledgement.to_be_bytes());
                bytes.extend([5 << 4, segment.flags.0, 0xff, 0xff, 0, 0, 0, 0]);
                16
            }
            17 => {
                bytes.extend(source.to_be_bytes());
                bytes.extend(destination.to_be_bytes());
                bytes.extend((8 + self.payload.len() as u16).to_be_bytes());
                bytes.extend([0, 0]);
                6
            }
            ICMP | ICMPV6 => {
                let (kind, code) = self.icmp.unwrap_or((8, 0));
                let (id, sequence) = self.query.unwrap_or_default();
                bytes.extend([kind, code, 0, 0]);
                bytes.extend(id.to_be_bytes());
                bytes.extend(sequence.to_be_bytes());
                if let Some(about) = &self.about {
                    let mut quoted = about.network();
                    quoted.truncate(QUOTED_BYTES_MAX);
                    bytes.extend(quoted);
                }
                2
            }
            _ => return self.payload.clone(),
        };
        bytes.extend(&self.payload);
        let sum = match (self.source, self.destination, self.protocol) {
            (_, _, ICMP) => Sum::ZERO,
            (IpAddr::V4(source), IpAddr::V4(destination), protocol) => {
                Sum::pseudo_header4(source, destination, protocol, bytes.len() as u16)
            }
            (source, destination, protocol) => Sum::pseudo_header6(
                v6(source).into(),
                v6(destination).into(),
                protocol,
                bytes.len() as u32,
            ),
        };
        let sum = sum.bytes(&bytes);
        let sum = match self.protocol {
            17 => sum.finish_udp(),
            _ => sum.finish(),
        };
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&sum);
        bytes
    }
}

/// The sixteen bytes of an address.
fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The word of a protocol.
pub(super) fn protocol_word(protocol: u8) -> &'static str {
    match protocol {
        6 => "tcp",
        17 => "udp",
        ICMP | ICMPV6 => "icmp",
        _ => "ip",
    }
}

/// The letters of control bits.
pub(super) fn flag_letters(flags: TcpFlags) -> String {
    let letters = FLAG_LETTERS.chars().enumerate();
    let set = letters.filter(|(bit, _)| flags.0 >> bit & 1 == 1);
    match set.map(|(_, letter)| letter).collect::<String>() {
        none if none.is_empty() => "-".to_owned(),
        letters => letters,
    }
}

/// The word of an ICMP message, if it has one.
pub(super) fn message_word(is_v6: bool, message: (u8, u8)) -> Option<&'static str> {
    let of = |one: &&Message| message == if is_v6 { one.2 } else { one.1 };
    MESSAGES.iter().find(of).map(|(word, ..)| *word)
}

/// As a step of a scenario would say it.
impl Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |address: IpAddr, port: Option<u16>| match (address, port) {
            (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
            (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
            (IpAddr::V6(address), None) => format!("[{address}]"),
            (address, None) => address.to_string(),
        };
        let (source, destination) = (self.ports.map(|one| one.0), self.ports.map(|one| one.1));
        write!(
            f,
            "{} {} > {}",
            protocol_word(self.protocol),
            end(self.source, source),
            end(self.destination, destination)
        )?;
        if let Some(tcp) = self.tcp {
            write!(f, " {}", flag_letters(tcp.flags))?;
        }
        if let Some(message) = self.icmp {
            match message_word(self.source.is_ipv6(), message) {
                Some(word) => write!(f, " {word}")?,
                None => write!(f, " of type {} and code {}", message.0, message.1)?,
            }
        }
        if let Some((id, _)) = self.query {
            write!(f, " id={id}")?;
        }
        if protocol_word(self.protocol) == "ip" {
            write!(f, " protocol={}", self.protocol)?;
        }
        if let Some(about) = &self.about {
            write!(f, " about {about}")?;
        }
        if !self.payload.is_empty() {
            write!(f, " {}", show_bytes(&self.payload))?;
        }
        Ok(())
    }
}

/// Whether a message is a query or the reply to one, which have identifiers.
pub(super) fn has_identifier(is_v6: bool, message: (u8, u8)) -> bool {
    let kind = match is_v6 {
        true => IcmpKind::of_icmpv6(message.0),
        false => IcmpKind::of_icmp(message.0),
    };
    kind.has_identifier()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(protocol: u8, source: &str, destination: &str) -> Fields {
        Fields {
            station: MacAddress([2, 0, 0, 0, 0, 2]),
            protocol,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ports: matches!(protocol, 6 | 17).then_some((5000, 53)),
            ttl: TTL,
            tcp: (protocol == 6).then_some(Segment {
                flags: TcpFlags::SYN,
                sequence: 7,
                acknowledgement: 0,
            }),
            icmp: None,
            query: None,
            about: None,
            payload: b"hello".to_vec(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_its_checksums_are_right() {
        let echo = |protocol, source: &str, destination: &str, kind| Fields {
            icmp: Some((kind, 0)),
            query: Some((9, 1)),
            ..fields(protocol, source, destination)
        };
        let about = Fields {
            payload: Vec::new(),
            ..fields(17, "203.0.113.1", "192.0.2.1")
        };
        let error = Fields {
            icmp: Some((3, 3)),
            about: Some(Box::new(about)),
            payload: Vec::new(),
            ..fields(1, "192.0.2.1", "203.0.113.1")
        };
        let (a, b) = ("2001:db8::1", "2001:db8::2");
        for (packet, shown) in [
            (
                fields(17, "10.0.0.7", "192.0.2.1"),
                "udp 10.0.0.7:5000 > 192.0.2.1:53 \"hello\"",
            ),
            (
                fields(6, a, b),
                "tcp [2001:db8::1]:5000 > [2001:db8::2]:53 S \"hello\"",
            ),
            (
                fields(47, a, b),
                "ip [2001:db8::1] > [2001:db8::2] protocol=47 \"hello\"",
            ),
            (
                echo(1, "10.0.0.7", "192.0.2.1", 8),
                "icmp 10.0.0.7 > 192.0.2.1 echo id=9 \"hello\"",
            ),
            (
                echo(58, a, b, 129),
                "icmp [2001:db8::1] > [2001:db8::2] reply id=9 \"hello\"",
            ),
            (
                error,
                "icmp 192.0.2.1 > 203.0.113.1 port-unreachable about udp 203.0.113.1:5000 > 192.0.2.1:53",
            ),
        ] {
            assert_eq!(packet.to_string(), shown);
            let mut frame = packet.frame();
            assert!(Fields::is_intact(&mut frame), "{shown}");
            let read = Fields::read(&mut frame).unwrap();
            assert_eq!(read.to_string(), shown);
            if packet.about.is_none() {
                assert_eq!(read, packet);
            }
            let last = frame.len() - 1;
            frame[last] ^= 1;
            assert_eq!(
                Fields::is_intact(&mut frame),
                packet.protocol == 47,
                "{shown}"
            );
        }
    }
}
