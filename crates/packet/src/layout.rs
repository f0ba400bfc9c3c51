//! Where the headers of a frame are: the one parse that a packet gets. Imports `checksum`.

use core::fmt;

use crate::checksum;

/// Tags of IEEE 802.1Q or 802.1ad that are looked through; a frame with more is [`Network::Other`].
const VLAN_TAGS_MAX: u8 = 2;
/// Extension headers of one IPv6 packet that are walked; RFC 8200 has each occur once, destination options twice.
const EXTENSION_HEADERS_MAX: usize = 8;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_VLAN: u16 = 0x8100;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(crate) const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;

/// What follows the Ethernet header and its VLAN tags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Network {
    /// IPv4 with a right header checksum.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ARP for IPv4 over Ethernet.
    Arp,
    /// Anything else, and what is passed through unread: MPLS, PPPoE, more than two VLAN tags, IEEE 802.3 lengths.
    Other,
}

/// The transport header that is there, completely: its options too, unless the packet is cut inside an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// TCP: at least 20 bytes, and as many as its data offset says.
    Tcp,
    /// UDP: 8 bytes.
    Udp,
    /// ICMP for IPv4: 8 bytes.
    Icmp,
    /// ICMP for IPv6: 8 bytes.
    Icmpv6,
    /// Another protocol, a later fragment, a first fragment too small to hold the header (RFC 1858), or no IP at all.
    None,
}

/// Which part of a datagram the packet is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fragment {
    /// All of it (IPv6: also an "atomic" fragment, RFC 6946).
    Whole,
    /// Its first part: the transport header is here, more follow.
    First,
    /// A later part: no transport header.
    Later,
}

/// Why bytes are not a packet. The frame is unchanged; what to do with it is the caller's choice, usually a counted drop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Malformed {
    /// The frame ends inside the Ethernet header or a VLAN tag.
    LinkTooShort,
    /// The frame ends inside the fixed part of the ARP, IPv4 or IPv6 header.
    NetworkTooShort,
    /// The version field disagrees with the Ethernet type.
    Version,
    /// The IPv4 header length is below 20 bytes, or beyond the total length.
    HeaderLength,
    /// The IPv4 or IPv6 length says more than the frame has.
    LengthBeyondFrame,
    /// The IPv4 header checksum is wrong.
    HeaderChecksum,
    /// An IPv6 extension header ends beyond the packet.
    ExtensionTooShort,
    /// More IPv6 extension headers than are walked (8), or two fragment headers.
    TooManyExtensions,
    /// A fragment that would reach beyond the largest datagram of 65,535 bytes.
    FragmentBeyondDatagram,
    /// A whole packet that ends inside its transport header.
    TransportTooShort,
    /// The TCP data offset is below 20 bytes or beyond the packet.
    TcpDataOffset,
    /// The UDP length is below 8 bytes or beyond the packet.
    UdpLength,
}

impl Malformed {
    /// Every reason, in the order of the layers.
    pub const ALL: [Malformed; 12] = [
        Malformed::LinkTooShort,
        Malformed::NetworkTooShort,
        Malformed::Version,
        Malformed::HeaderLength,
        Malformed::LengthBeyondFrame,
        Malformed::HeaderChecksum,
        Malformed::ExtensionTooShort,
        Malformed::TooManyExtensions,
        Malformed::FragmentBeyondDatagram,
        Malformed::TransportTooShort,
        Malformed::TcpDataOffset,
        Malformed::UdpLength,
    ];

    /// The reason in words, for a counter's legend.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Malformed::LinkTooShort => "frame ends inside the Ethernet header",
            Malformed::NetworkTooShort => "frame ends inside the network header",
            Malformed::Version => "IP version disagrees with the Ethernet type",
            Malformed::HeaderLength => "bad IPv4 header length",
            Malformed::LengthBeyondFrame => "IP length is beyond the frame",
            Malformed::HeaderChecksum => "wrong IPv4 header checksum",
            Malformed::ExtensionTooShort => "IPv6 extension header is beyond the packet",
            Malformed::TooManyExtensions => "too many IPv6 extension headers",
            Malformed::FragmentBeyondDatagram => "fragment reaches beyond the largest datagram",
            Malformed::TransportTooShort => "packet ends inside the transport header",
            Malformed::TcpDataOffset => "bad TCP data offset",
            Malformed::UdpLength => "bad UDP length",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

impl core::error::Error for Malformed {}

/// Where a frame's headers are and what they are: 8 bytes, to be kept beside the frame.
///
/// Invariant: network header ≤ transport header ≤ end, each present header lies wholly before the end. Only the parse
/// makes one, so it holds for every value; whether it fits a given frame is checked by `Packet::with_layout`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout(u64);

// The fields of a layout in its word. One word is made with three `or`s and returned in a register, where a struct of
// small fields is written and read byte by byte.
const TRANSPORT_AT_SHIFT: u32 = 0; // 16 bits
const NETWORK_AT_SHIFT: u32 = 16; // 8 bits
const PROTOCOL_SHIFT: u32 = 24; // 8 bits
const NETWORK_SHIFT: u32 = 32; // 2 bits
const FRAGMENT_SHIFT: u32 = 34; // 2 bits
const VLAN_TAGS_SHIFT: u32 = 36; // 2 bits
const SOURCE_ROUTED_SHIFT: u32 = 38; // 1 bit
const TRANSPORT_SHIFT: u32 = 40; // 3 bits; bit 39 is never set
const PLAIN_SHIFT: u32 = 43; // 1 bit
const END_SHIFT: u32 = 44; // 20 bits

/// The end of a frame that is not IP and longer than this is taken to be here. IP ends before 65,600.
const END_MAX: usize = (1 << 20) - 1;

impl Layout {
    /// Parses an Ethernet II frame without its frame check sequence. Verifies lengths and the IPv4 header checksum;
    /// transport checksums are not read. About fifty instructions for TCP or UDP over IPv4 without options or tags.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Layout, Malformed> {
        parse::<true>(frame)
    }

    /// [`Layout::parse`] without the check of the IPv4 header checksum, for frames whose device has checked it.
    #[inline]
    pub fn parse_unverified(frame: &[u8]) -> Result<Layout, Malformed> {
        parse::<false>(frame)
    }

    /// What follows the Ethernet header.
    #[inline]
    #[must_use]
    pub const fn network(&self) -> Network {
        match self.0 >> NETWORK_SHIFT & 3 {
            0 => Network::Ipv4,
            1 => Network::Ipv6,
            2 => Network::Arp,
            _ => Network::Other,
        }
    }

    /// The transport header that is completely there.
    #[inline]
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match self.0 >> TRANSPORT_SHIFT & 7 {
            0 => Transport::Tcp,
            1 => Transport::Udp,
            2 => Transport::Icmp,
            3 => Transport::Icmpv6,
            _ => Transport::None,
        }
    }

    /// Which part of a datagram this is.
    #[inline]
    #[must_use]
    pub const fn fragment(&self) -> Fragment {
        match self.0 >> FRAGMENT_SHIFT & 3 {
            0 => Fragment::Whole,
            1 => Fragment::First,
            _ => Fragment::Later,
        }
    }

    /// The IP protocol number, after IPv6 extension headers; of a later IPv6 fragment, what its fragment header names.
    /// Zero when the network is not IP.
    #[inline]
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        (self.0 >> PROTOCOL_SHIFT) as u8
    }

    /// Number of VLAN tags, 0 to 2.
    #[inline]
    #[must_use]
    pub const fn vlan_tags(&self) -> u8 {
        (self.0 >> VLAN_TAGS_SHIFT & 3) as u8
    }

    /// Offset of the network header in bytes: 14, 18 or 22.
    #[inline]
    #[must_use]
    pub const fn network_offset(&self) -> usize {
        (self.0 >> NETWORK_AT_SHIFT) as u8 as usize
    }

    /// Offset of the transport header or, where there is none, of what follows the IP headers.
    #[inline]
    #[must_use]
    pub const fn transport_offset(&self) -> usize {
        (self.0 >> TRANSPORT_AT_SHIFT) as u16 as usize
    }

    /// Offset of the first byte after the IP packet: the frame's length less its Ethernet padding. When the network is
    /// not IP, the frame's length, at most 2^20 - 1.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> usize {
        (self.0 >> END_SHIFT) as usize
    }

    /// Whether an IPv6 routing header has segments left: the pseudo header then names another destination than the
    /// IPv6 header (RFC 8200 §8.1).
    #[inline]
    pub(crate) const fn is_source_routed(&self) -> bool {
        self.0 >> SOURCE_ROUTED_SHIFT & 1 == 1
    }

    /// Whole TCP or UDP over IPv4 without options, in a frame without tags: every offset is known.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.0 >> PLAIN_SHIFT & 1 == 1
    }

    /// The layout of an IP packet. Every offset has been checked against the frame.
    #[inline(always)]
    fn ip(
        network: Network,
        network_at: usize,
        transport_at: usize,
        end: usize,
        upper: Upper,
        vlan_tags: u8,
    ) -> Layout {
        debug_assert!(
            network_at <= transport_at
                && transport_at <= end
                && transport_at <= 0xffff
                && end <= END_MAX
        );
        Layout(
            (transport_at as u64) << TRANSPORT_AT_SHIFT
                | (network_at as u64) << NETWORK_AT_SHIFT
                | u64::from(upper.protocol) << PROTOCOL_SHIFT
                | (network as u64) << NETWORK_SHIFT
                | (upper.fragment as u64) << FRAGMENT_SHIFT
                | u64::from(vlan_tags) << VLAN_TAGS_SHIFT
                | u64::from(upper.source_routed) << SOURCE_ROUTED_SHIFT
                | (upper.transport as u64) << TRANSPORT_SHIFT
                | (end as u64) << END_SHIFT,
        )
    }

    /// The layout of a frame of `length` bytes in which no header is read, or, of ARP, one that ends before `length`.
    #[inline]
    pub(crate) const fn opaque(
        network: Network,
        network_at: u8,
        length: usize,
        vlan_tags: u8,
    ) -> Layout {
        let end = if length > END_MAX { END_MAX } else { length };
        Layout(
            (network_at as u64) << TRANSPORT_AT_SHIFT
                | (network_at as u64) << NETWORK_AT_SHIFT
                | (network as u64) << NETWORK_SHIFT
                | (Fragment::Whole as u64) << FRAGMENT_SHIFT
                | (vlan_tags as u64) << VLAN_TAGS_SHIFT
                | (Transport::None as u64) << TRANSPORT_SHIFT
                | (end as u64) << END_SHIFT,
        )
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("network", &self.network())
            .field("network_offset", &self.network_offset())
            .field("transport", &self.transport())
            .field("transport_offset", &self.transport_offset())
            .field("end", &self.end())
            .field("fragment", &self.fragment())
            .field("protocol", &self.protocol())
            .field("vlan_tags", &self.vlan_tags())
            .finish()
    }
}

/// What an IP header leads to.
#[derive(Clone, Copy)]
struct Upper {
    protocol: u8,
    fragment: Fragment,
    transport: Transport,
    source_routed: bool,
}

/// `N` bytes at `at`, with one comparison.
#[inline(always)]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// [`array`], to be changed.
#[inline(always)]
pub(crate) fn array_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..at + N)?.try_into().ok()
}

#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    array::<2>(bytes, at).map(|word| u16::from_be_bytes(*word))
}

#[inline(always)]
fn parse<const VERIFY: bool>(frame: &[u8]) -> Result<Layout, Malformed> {
    match common::<VERIFY>(frame) {
        Some(layout) => Ok(layout),
        None => uncommon::<VERIFY>(frame).into_result(),
    }
}

/// Nearly every packet: whole TCP or UDP over IPv4, no tag, no IPv4 options, so that every offset is a constant.
/// `None` is for all others, well-formed or not: the general parse says what they are.
#[inline(always)]
fn common<const VERIFY: bool>(frame: &[u8]) -> Option<Layout> {
    let head = frame.first_chunk::<42>()?;
    let header = head[14..].first_chunk::<20>()?;
    if u32::from_be_bytes([head[12], head[13], head[14], head[15]]) >> 8 != 0x08_0045
        || [header[6] & 0x3f, header[7]] != [0, 0]
        || (VERIFY && !checksum::is_valid_ipv4_header(header))
    {
        return None;
    }
    let end = 14 + usize::from(u16::from_be_bytes([header[2], header[3]]));
    let packet = frame.get(..end)?;
    let protocol = header[9];
    let transport = match protocol {
        6 => {
            let length = usize::from(packet.get(46)? >> 4) * 4;
            if length < 20 || 34 + length > end {
                return None;
            }
            Transport::Tcp
        }
        17 => {
            let length = usize::from(u16::from_be_bytes([head[38], head[39]]));
            if length < 8 || 34 + length > end {
                return None;
            }
            Transport::Udp
        }
        _ => return None,
    };
    let upper = Upper {
        protocol,
        fragment: Fragment::Whole,
        transport,
        source_routed: false,
    };
    Some(Layout(
        Layout::ip(Network::Ipv4, 14, 34, end, upper, 0).0 | 1 << PLAIN_SHIFT,
    ))
}

/// A layout or the reason why there is none in one word, to be returned in one register.
struct Outcome(u64);

impl Outcome {
    /// Set in no layout.
    const MALFORMED: u64 = 1 << 39;

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
            let header = array::<8>(packet, walk.end).ok_or(Malformed::ExtensionTooShort)?;
            let length = match walk.protocol {
                44 => 8,
                51 => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            if walk.end + length > packet.len() {
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
