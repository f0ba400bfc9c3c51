//! The parse of a frame, once per packet.
//!
//! The common packet takes a short path of constant offsets; all others, well-formed or not, the general one.

use core::hint::select_unpredictable;

use crate::checksum;
use crate::layout::{self, Fragment, Layout, NEVER_SET, Network, Transport, Upper, array, word};
use crate::malformed::Malformed;
use crate::packet::PLAIN;

/// Tags of IEEE 802.1Q or 802.1ad that are looked through; a frame with more is [`Network::Other`].
const VLAN_TAGS_MAX: u8 = 2;
/// Extension headers of one IPv6 packet that are walked; RFC 8200 has each occur once, destination options twice.
const EXTENSION_HEADERS_MAX: usize = 8;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_VLAN: u16 = 0x8100;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(crate) const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;

#[inline(always)]
pub(crate) fn parse<const VERIFY: bool>(frame: &[u8]) -> Result<Layout, Malformed> {
    match common::<VERIFY>(frame) {
        Some(layout) => Ok(layout),
        None => uncommon::<VERIFY>(frame).into_result(),
    }
}

/// Nearly every packet: whole TCP or UDP over IPv4, no tag, no IPv4 options, so that every offset is a constant.
/// `None` is for all others, well-formed or not: the general parse says what they are.
#[inline(always)]
pub(crate) fn common<const VERIFY: bool>(frame: &[u8]) -> Option<Layout> {
    let head = frame.first_chunk::<PLAIN>()?;
    let header = head[14..].first_chunk::<20>()?;
    // Read before the words that it is in, or it would be shifted out of them.
    let protocol = head[23];
    if word(head, 12) != Some(ETHERTYPE_IPV4)
        || header[0] != 0x45
        || word(header, 6)? & 0x3fff != 0
        || (VERIFY && !checksum::is_valid_begun_ipv4_header(header))
    {
        return None;
    }
    let end = 14 + usize::from(u16::from_be_bytes([header[2], header[3]]));
    if end > frame.len() {
        return None;
    }
    // No branch on the transport, which is anyone's guess: a wrong guess costs more than all that is done here.
    let data_offset = usize::from(head[46] >> 4) * 4;
    let udp_length = usize::from(u16::from_be_bytes([head[38], head[39]]));
    let length = select_unpredictable(protocol == TCP, data_offset, udp_length);
    if length < layout::least_length_if_plain(protocol) || 34 + length > end {
        return None;
    }
    Some(Layout::plain(protocol, end))
}

/// A layout or the reason why there is none in one word, to be returned in one register.
struct Outcome(u64);

impl Outcome {
    const MALFORMED: u64 = NEVER_SET;

    const fn of(result: Result<Layout, Malformed>) -> Outcome {
        match result {
            Ok(layout) => Outcome(layout.0),
            Err(reason) => Outcome(reason as u64 | Outcome::MALFORMED),
        }
    }

    #[inline(always)]
    fn into_result(self) -> Result<Layout, Malformed> {
        if self.0 & Outcome::MALFORMED == 0 {
            return Ok(Layout(self.0));
        }
        Err(*Malformed::ALL
            .get(self.0 as u8 as usize)
            .unwrap_or(&Malformed::LinkTooShort))
    }
}

#[cold]
#[inline(never)]
fn uncommon<const VERIFY: bool>(frame: &[u8]) -> Outcome {
    Outcome::of(parse_any::<VERIFY>(frame))
}

fn parse_any<const VERIFY: bool>(frame: &[u8]) -> Result<Layout, Malformed> {
    let mut vlan_tags = 0;
    let mut at = 12;
    let ethertype = loop {
        let ethertype = word(frame, at).ok_or(Malformed::LinkTooShort)?;
        if !matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN)
            || vlan_tags == VLAN_TAGS_MAX
        {
            break ethertype;
        }
        vlan_tags += 1;
        at += 4;
    };
    let network_at = at + 2;
    match ethertype {
        ETHERTYPE_IPV4 => {
            let first = *frame.get(network_at).ok_or(Malformed::NetworkTooShort)?;
            if first >> 4 != 4 {
                return Err(Malformed::Version);
            }
            let header_length = usize::from(first & 0x0f) * 4;
            if header_length < 20 {
                return Err(Malformed::HeaderLength);
            }
            ipv4::<VERIFY>(frame, network_at, header_length, vlan_tags)
        }
        ETHERTYPE_IPV6 => ipv6(frame, network_at, vlan_tags),
        ETHERTYPE_ARP => arp(frame, network_at, vlan_tags),
        _ => Ok(Layout::opaque(
            Network::Other,
            network_at as u8,
            frame.len(),
            vlan_tags,
        )),
    }
}

fn arp(frame: &[u8], network_at: usize, vlan_tags: u8) -> Result<Layout, Malformed> {
    let kind = array::<6>(frame, network_at).ok_or(Malformed::NetworkTooShort)?;
    if *kind != crate::arp::ETHERNET_IPV4 {
        return Ok(Layout::opaque(
            Network::Other,
            network_at as u8,
            frame.len(),
            vlan_tags,
        ));
    }
    if frame.len() < network_at + crate::arp::LENGTH {
        return Err(Malformed::NetworkTooShort);
    }
    Ok(Layout::opaque(
        Network::Arp,
        network_at as u8,
        frame.len(),
        vlan_tags,
    ))
}

/// The caller has checked the version and that `header_length` is what the header says.
fn ipv4<const VERIFY: bool>(
    frame: &[u8],
    network_at: usize,
    header_length: usize,
    vlan_tags: u8,
) -> Result<Layout, Malformed> {
    let header = array::<20>(frame, network_at).ok_or(Malformed::NetworkTooShort)?;
    let total_length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total_length < header_length {
        return Err(Malformed::HeaderLength);
    }
    let end = network_at + total_length;
    let packet = frame.get(..end).ok_or(Malformed::LengthBeyondFrame)?;
    let transport_at = network_at + header_length;
    if VERIFY {
        let header = packet
            .get(network_at..transport_at)
            .ok_or(Malformed::HeaderLength)?;
        if !checksum::Sum::ZERO.bytes(header).is_valid() {
            return Err(Malformed::HeaderChecksum);
        }
    }
    let protocol = header[9];
    let fragmentation = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    let (fragment, transport) = if fragmentation == 0 {
        (
            Fragment::Whole,
            transport(packet, transport_at, protocol, ICMP)?,
        )
    } else {
        fragment(packet, transport_at, protocol, ICMP, fragmentation & 0x1fff)?
    };
    let upper = Upper {
        protocol,
        fragment,
        transport,
        source_routed: false,
    };
    Ok(Layout::ip(
        Network::Ipv4,
        network_at,
        transport_at,
        end,
        upper,
        vlan_tags,
    ))
}

/// The transport header at `at` of a whole packet that ends where `packet` does. `icmp` is the control protocol of the
/// packet's own IP version; the other version's is an unknown protocol here.
fn transport(packet: &[u8], at: usize, protocol: u8, icmp: u8) -> Result<Transport, Malformed> {
    match protocol {
        6 => {
            let header = array::<20>(packet, at).ok_or(Malformed::TransportTooShort)?;
            let length = usize::from(header[12] >> 4) * 4;
            if length < 20 || at + length > packet.len() {
                return Err(Malformed::TcpDataOffset);
            }
            Ok(Transport::Tcp)
        }
        17 => {
            let header = array::<8>(packet, at).ok_or(Malformed::TransportTooShort)?;
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            if length < 8 || at + length > packet.len() {
                return Err(Malformed::UdpLength);
            }
            Ok(Transport::Udp)
        }
        _ if protocol == icmp => {
            array::<8>(packet, at).ok_or(Malformed::TransportTooShort)?;
            Ok(if icmp == ICMP {
                Transport::Icmp
            } else {
                Transport::Icmpv6
            })
        }
        _ => Ok(Transport::None),
    }
}

/// A part of a datagram, `offset` in units of eight bytes.
fn fragment(
    packet: &[u8],
    at: usize,
    protocol: u8,
    icmp: u8,
    offset: u16,
) -> Result<(Fragment, Transport), Malformed> {
    if usize::from(offset) * 8 + (packet.len() - at) > 65_535 {
        return Err(Malformed::FragmentBeyondDatagram);
    }
    if offset != 0 {
        return Ok((Fragment::Later, Transport::None));
    }
    // A first fragment is shorter than its lengths say, and one that cuts its own header has none that is complete.
    let length = match protocol {
        6 => packet
            .get(at + 12)
            .map_or(20, |byte| usize::from(byte >> 4) * 4),
        _ => 8,
    };
    let complete = at + length <= packet.len();
    Ok((
        Fragment::First,
        match protocol {
            6 if length < 20 => return Err(Malformed::TcpDataOffset),
            6 if complete => Transport::Tcp,
            17 if complete => Transport::Udp,
            ICMP if complete && icmp == ICMP => Transport::Icmp,
            ICMPV6 if complete && icmp == ICMPV6 => Transport::Icmpv6,
            _ => Transport::None,
        },
    ))
}

fn ipv6(frame: &[u8], network_at: usize, vlan_tags: u8) -> Result<Layout, Malformed> {
    let header = array::<40>(frame, network_at).ok_or(Malformed::NetworkTooShort)?;
    if header[0] >> 4 != 6 {
        return Err(Malformed::Version);
    }
    if has_mapped_address(header) {
        return Err(Malformed::MappedAddress);
    }
    let end = network_at + 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let packet = frame.get(..end).ok_or(Malformed::LengthBeyondFrame)?;
    let extensions = Extensions::walk(packet, network_at + 40, header[6])?;
    let (fragment, transport) = match extensions.fragment_at {
        Some(at) => {
            let offset = word(packet, at + 2).ok_or(Malformed::ExtensionTooShort)? & 0xfff9;
            if offset == 0 {
                (
                    Fragment::Whole,
                    transport(packet, extensions.end, extensions.protocol, ICMPV6)?,
                )
            } else {
                fragment(
                    packet,
                    extensions.end,
                    extensions.protocol,
                    ICMPV6,
                    offset >> 3,
                )?
            }
        }
        None => (
            Fragment::Whole,
            transport(packet, extensions.end, extensions.protocol, ICMPV6)?,
        ),
    };
    let upper = Upper {
        protocol: extensions.protocol,
        fragment,
        transport,
        source_routed: extensions.source_routed,
    };
    Ok(Layout::ip(
        Network::Ipv6,
        network_at,
        extensions.end,
        end,
        upper,
        vlan_tags,
    ))
}

/// Whether the source or destination in an IPv6 header is an IPv4-mapped address (RFC 4291 §2.5.5.2). Packets have none: a
/// function that keeps addresses of both versions in 128 bits would take one for IPv4's.
pub(crate) fn has_mapped_address(header: &[u8; 40]) -> bool {
    const MAPPED: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    header[8..24].starts_with(MAPPED) || header[24..].starts_with(MAPPED)
}

/// What the extension headers of an IPv6 packet lead to.
pub(crate) struct Extensions {
    /// Offset of what follows them.
    pub(crate) end: usize,
    /// The protocol of what follows them.
    pub(crate) protocol: u8,
    /// Offset of the fragment header.
    pub(crate) fragment_at: Option<usize>,
    /// A routing header has segments left.
    pub(crate) source_routed: bool,
}

impl Extensions {
    /// Walks the headers from `at`, the first of which is `next`, to the transport header or, in a later fragment, to
    /// the end of the fragment header. Each header takes at most 2,048 bytes, so the end fits 16 bits.
    pub(crate) fn walk(packet: &[u8], at: usize, next: u8) -> Result<Extensions, Malformed> {
        let mut walk = Extensions {
            end: at,
            protocol: next,
            fragment_at: None,
            source_routed: false,
        };
        let mut headers = 0;
        // Hop-by-hop options, routing, fragment, authentication, destination options.
        while matches!(walk.protocol, 0 | 43 | 44 | 51 | 60) {
            headers += 1;
            if headers > EXTENSION_HEADERS_MAX
                || (walk.protocol == 44 && walk.fragment_at.is_some())
            {
                return Err(Malformed::TooManyExtensions);
            }
            if walk.protocol == 0 && headers > 1 {
                return Err(Malformed::ExtensionOrder);
            }
            let header = array::<8>(packet, walk.end).ok_or(Malformed::ExtensionTooShort)?;
            let length = match walk.protocol {
                44 => 8,
                51 => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            let is_short = walk.protocol == 51 && length < 12; // RFC 4302 §2
            if is_short || walk.end + length > packet.len() {
                return Err(Malformed::ExtensionTooShort);
            }
            let is_later =
                walk.protocol == 44 && u16::from_be_bytes([header[2], header[3]]) >> 3 != 0;
            if walk.protocol == 44 {
                walk.fragment_at = Some(walk.end);
            }
            walk.source_routed |= walk.protocol == 43 && header[3] != 0;
            walk.protocol = header[0];
            walk.end += length;
            if is_later {
                break;
            }
        }
        Ok(walk)
    }
}
