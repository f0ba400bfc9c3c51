//! Whole frames written into a caller's buffer: datagrams for generators and tests, ICMP errors, ARP. Imports
//! `checksum`, `layout`, `packet`.
//!
//! Every function returns the frame's length, or `None`, with the buffer's content unspecified, when it does not fit.

use core::net::Ipv4Addr;

pub use crate::answer::refusal;
use crate::arp::{self, Arp, ArpOperation};
use crate::checksum::Sum;
use crate::endpoint::{Flow4, Protocol};
use crate::layout::{self, Fragment, Layout, Network, Transport};
use crate::mac::MacAddress;
pub use crate::neighbour_discovery::{
    neighbour_announcement, neighbour_answer, neighbour_solicitation, solicited_node,
};
use crate::parse;
use crate::transport::{IcmpKind, TcpFlags};

/// Bytes of an ICMP error's IP packet at most (RFC 1812 §4.3.2.3).
const ICMP_ERROR_LENGTH_MAX: usize = 576;
const ETHERNET: usize = 14;
const IPV4: usize = 20;

/// What a built IPv4 packet has before its transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header4 {
    /// Ethernet source.
    pub ethernet_source: MacAddress,
    /// Ethernet destination.
    pub ethernet_destination: MacAddress,
    /// IPv4 source.
    pub source: Ipv4Addr,
    /// IPv4 destination.
    pub destination: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// Identification.
    pub identification: u16,
    /// "Don't fragment".
    pub dont_fragment: bool,
}

impl Header4 {
    /// Between two addresses, with Ethernet addresses made up from them, a time to live of 64, identification 0 and
    /// "don't fragment".
    #[must_use]
    pub const fn between(source: Ipv4Addr, destination: Ipv4Addr) -> Header4 {
        Header4 {
            ethernet_source: local_mac(source),
            ethernet_destination: local_mac(destination),
            source,
            destination,
            ttl: 64,
            identification: 0,
            dont_fragment: true,
        }
    }
}

/// The TCP fields beside the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Control bits.
    pub flags: TcpFlags,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Window, not scaled.
    pub window: u16,
}

impl Segment {
    /// A segment with these control bits, sequence and acknowledgement number 1, and the largest window.
    #[must_use]
    pub const fn with_flags(flags: TcpFlags) -> Segment {
        Segment {
            flags,
            sequence: 1,
            acknowledgement: 1,
            window: 65_535,
        }
    }
}

/// A UDP datagram over IPv4 with its checksum.
pub fn udp4(
    header: &Header4,
    source_port: u16,
    destination_port: u16,
    payload: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let length = u16::try_from(8 + payload.len()).ok()?;
    let mut fields = [0; 8];
    fields[..2].copy_from_slice(&source_port.to_be_bytes());
    fields[2..4].copy_from_slice(&destination_port.to_be_bytes());
    fields[4..6].copy_from_slice(&length.to_be_bytes());
    let sum = Sum::pseudo_header4(header.source, header.destination, Protocol::UDP.0, length);
    [fields[6], fields[7]] = sum.bytes(&fields).bytes(payload).finish_udp();
    write4(header, Protocol::UDP, &[&fields, payload], out)
}

/// A TCP segment over IPv4, without options, with its checksum.
pub fn tcp4(
    header: &Header4,
    source_port: u16,
    destination_port: u16,
    segment: &Segment,
    payload: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let length = u16::try_from(20 + payload.len()).ok()?;
    let mut fields = [0; 20];
    fields[..2].copy_from_slice(&source_port.to_be_bytes());
    fields[2..4].copy_from_slice(&destination_port.to_be_bytes());
    fields[4..8].copy_from_slice(&segment.sequence.to_be_bytes());
    fields[8..12].copy_from_slice(&segment.acknowledgement.to_be_bytes());
    fields[12] = 5 << 4;
    fields[13] = segment.flags.0;
    fields[14..16].copy_from_slice(&segment.window.to_be_bytes());
    let sum = Sum::pseudo_header4(header.source, header.destination, Protocol::TCP.0, length);
    [fields[16], fields[17]] = sum.bytes(&fields).bytes(payload).finish();
    write4(header, Protocol::TCP, &[&fields, payload], out)
}

/// An ICMP message over IPv4 with its checksum; `rest` are the four bytes after it, of a query the identifier and
/// sequence number.
pub fn icmp4(
    header: &Header4,
    icmp_type: u8,
    code: u8,
    rest: [u8; 4],
    payload: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let mut fields = [icmp_type, code, 0, 0, rest[0], rest[1], rest[2], rest[3]];
    [fields[2], fields[3]] = Sum::ZERO.bytes(&fields).bytes(payload).finish();
    write4(header, Protocol::ICMP, &[&fields, payload], out)
}

/// A packet of `flow` as a generator needs it: UDP, a TCP segment with `ACK`, or an ICMP echo request. `None` for
/// other protocols too.
pub fn flow4(flow: &Flow4, payload: &[u8], out: &mut [u8]) -> Option<usize> {
    let header = Header4::between(flow.source, flow.destination);
    match Protocol(flow.protocol) {
        Protocol::UDP => udp4(
            &header,
            flow.source_port,
            flow.destination_port,
            payload,
            out,
        ),
        Protocol::TCP => {
            let segment = Segment::with_flags(TcpFlags::ACK);
            tcp4(
                &header,
                flow.source_port,
                flow.destination_port,
                &segment,
                payload,
                out,
            )
        }
        Protocol::ICMP => {
            let [a, b] = flow.source_port.to_be_bytes();
            icmp4(&header, 8, 0, [a, b, 0, 1], payload, out)
        }
        _ => None,
    }
}

/// The ICMP error "time to live exceeded in transit" (RFC 792) about `original`, a frame whose time to live has not
/// been decremented yet.
///
/// As every ICMP error here it goes back to the frame's Ethernet source with the same VLAN tags, from the address
/// `from`. `None` also where RFC 1812 §4.3.2.7 forbids an error: about ICMP errors, later fragments, packets to or
/// from multicast or broadcast addresses (Ethernet's included), packets from no single host, and what is not IPv4.
pub fn icmp_time_exceeded(original: &[u8], from: Ipv4Addr, out: &mut [u8]) -> Option<usize> {
    icmp_error(original, from, 11, 0, [0; 4], out)
}

/// The ICMP error "fragmentation needed" (RFC 1191) about `original`, which was too large for the next hop.
pub fn icmp_fragmentation_needed(
    original: &[u8],
    from: Ipv4Addr,
    next_hop_mtu: u16,
    out: &mut [u8],
) -> Option<usize> {
    let [high, low] = next_hop_mtu.to_be_bytes();
    icmp_error(original, from, 3, 4, [0, 0, high, low], out)
}

/// The ICMP error "destination unreachable" with `code`: 0 network, 1 host, 2 protocol, 3 port, 13 prohibited
/// (RFC 792, RFC 1812).
pub fn icmp_unreachable(
    original: &[u8],
    from: Ipv4Addr,
    code: u8,
    out: &mut [u8],
) -> Option<usize> {
    icmp_error(original, from, 3, code, [0; 4], out)
}

/// An ARP request of `sender` for the Ethernet address of `target`, broadcast.
pub fn arp_request(
    sender_mac: MacAddress,
    sender: Ipv4Addr,
    target: Ipv4Addr,
    out: &mut [u8],
) -> Option<usize> {
    let request = Arp {
        operation: ArpOperation::Request,
        sender_mac,
        sender,
        target_mac: MacAddress::default(),
        target,
    };
    write_arp(&request, MacAddress::BROADCAST, out)
}

/// The reply to `request` that says that its target is at `mac`.
pub fn arp_reply(request: &Arp, mac: MacAddress, out: &mut [u8]) -> Option<usize> {
    let reply = Arp {
        operation: ArpOperation::Reply,
        sender_mac: mac,
        sender: request.target,
        target_mac: request.sender_mac,
        target: request.sender,
    };
    write_arp(&reply, request.sender_mac, out)
}

fn write_arp(packet: &Arp, ethernet_destination: MacAddress, out: &mut [u8]) -> Option<usize> {
    let mut writer = Writer { out, at: 0 };
    writer.put(&ethernet_destination.0)?;
    writer.put(&packet.sender_mac.0)?;
    writer.put(&parse::ETHERTYPE_ARP.to_be_bytes())?;
    writer.put(&arp::ETHERNET_IPV4)?;
    writer.put(&packet.operation.number().to_be_bytes())?;
    writer.put(&packet.sender_mac.0)?;
    writer.put(&packet.sender.octets())?;
    writer.put(&packet.target_mac.0)?;
    writer.put(&packet.target.octets())?;
    Some(writer.at)
}

fn icmp_error(
    original: &[u8],
    from: Ipv4Addr,
    icmp_type: u8,
    code: u8,
    rest: [u8; 4],
    out: &mut [u8],
) -> Option<usize> {
    let layout = Layout::parse_unverified(original).ok()?;
    if layout.network() != Network::Ipv4 || layout.fragment() == Fragment::Later {
        return None;
    }
    let link = original.get(..layout.network_offset())?;
    let quoted = original.get(layout.network_offset()..layout.end())?;
    let header = layout::array::<IPV4>(quoted, 0)?;
    let sender = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let receiver = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    if !is_one_host(sender)
        || receiver.is_multicast()
        || receiver.is_broadcast()
        || link[0] & 1 == 1
    {
        return None;
    }
    if layout.transport() == Transport::Icmp
        && IcmpKind::of_icmp(*original.get(layout.transport_offset())?) == IcmpKind::Error
    {
        return None;
    }
    let quoted = quoted
        .get(..ICMP_ERROR_LENGTH_MAX - IPV4 - 8)
        .unwrap_or(quoted);
    let mut message = [icmp_type, code, 0, 0, rest[0], rest[1], rest[2], rest[3]];
    [message[2], message[3]] = Sum::ZERO.bytes(&message).bytes(quoted).finish();

    let mut writer = Writer { out, at: 0 };
    writer.put(&link[6..12])?;
    writer.put(&link[..6])?;
    writer.put(&link[12..])?;
    let header = Header4 {
        ttl: 64,
        identification: 0,
        dont_fragment: false,
        ..Header4::between(from, sender)
    };
    writer.put(&ipv4_header(&header, Protocol::ICMP, 8 + quoted.len())?)?;
    writer.put(&message)?;
    writer.put(quoted)?;
    Some(writer.at)
}

/// Whether an address names one host to which an error may be sent.
pub(crate) fn is_one_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

fn write4(header: &Header4, protocol: Protocol, parts: &[&[u8]], out: &mut [u8]) -> Option<usize> {
    let mut writer = Writer { out, at: 0 };
    writer.put(&header.ethernet_destination.0)?;
    writer.put(&header.ethernet_source.0)?;
    writer.put(&parse::ETHERTYPE_IPV4.to_be_bytes())?;
    writer.put(&ipv4_header(
        header,
        protocol,
        parts.iter().map(|part| part.len()).sum(),
    )?)?;
    for part in parts {
        writer.put(part)?;
    }
    debug_assert!(writer.at >= ETHERNET + IPV4);
    Some(writer.at)
}

pub(crate) fn ipv4_header(
    header: &Header4,
    protocol: Protocol,
    payload_length: usize,
) -> Option<[u8; IPV4]> {
    let total_length = u16::try_from(IPV4 + payload_length).ok()?;
    let mut fields = [0; IPV4];
    fields[0] = 0x45;
    fields[2..4].copy_from_slice(&total_length.to_be_bytes());
    fields[4..6].copy_from_slice(&header.identification.to_be_bytes());
    fields[6] = u8::from(header.dont_fragment) << 6;
    fields[8] = header.ttl;
    fields[9] = protocol.0;
    fields[12..16].copy_from_slice(&header.source.octets());
    fields[16..].copy_from_slice(&header.destination.octets());
    [fields[10], fields[11]] = Sum::ZERO.bytes(&fields).finish();
    Some(fields)
}

const fn local_mac(address: Ipv4Addr) -> MacAddress {
    let [a, b, c, d] = address.octets();
    MacAddress([2, 0, a, b, c, d])
}

/// Appends to a buffer, or says that it is full.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut [u8],
    pub(crate) at: usize,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len())?;
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }
}
