//! Where the headers of a frame are: the result of the one parse that a packet gets. The parse itself is `parse.rs`.

use core::fmt;

use crate::malformed::Malformed;
use crate::parse;

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

/// Where a frame's headers are and what they are: 8 bytes, to be kept beside the frame.
///
/// Invariant: network header ≤ transport header ≤ end, each present header lies wholly before the end. Only the parse
/// makes one, so it holds for every value; whether it fits a given frame is checked by `Packet::with_layout`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout(pub(crate) u64);

impl Default for Layout {
    /// Of a frame without a byte.
    fn default() -> Self {
        Self::opaque(Network::Other, 0, 0, 0)
    }
}

// The fields of a layout in its word. One word is made with three `or`s and returned in a register, where a struct of
// small fields is written and read byte by byte.
// What is tested on the common path is in the low half, where a test needs no constant in a register.
const TRANSPORT_SHIFT: u32 = 0; // 3 bits
const PLAIN_SHIFT: u32 = 3; // 1 bit
const NETWORK_SHIFT: u32 = 4; // 2 bits
const FRAGMENT_SHIFT: u32 = 6; // 2 bits
const VLAN_TAGS_SHIFT: u32 = 8; // 2 bits
const SOURCE_ROUTED_SHIFT: u32 = 10; // 1 bit
/// Set in no layout.
pub(crate) const NEVER_SET: u64 = 1 << 11;
const PROTOCOL_SHIFT: u32 = 12; // 8 bits
const NETWORK_AT_SHIFT: u32 = 20; // 8 bits
const TRANSPORT_AT_SHIFT: u32 = 28; // 16 bits
const END_SHIFT: u32 = 44; // 20 bits

/// The end of a frame that is not IP and longer than this is taken to be here. IP ends before 65,600.
const END_MAX: usize = (1 << 20) - 1;

impl Layout {
    /// Parses an Ethernet II frame without its frame check sequence. Verifies lengths and the IPv4 header checksum;
    /// transport checksums are not read. About fifty instructions for TCP or UDP over IPv4 without options or tags.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Layout, Malformed> {
        parse::parse::<true>(frame)
    }

    /// [`Layout::parse`] without the check of the IPv4 header checksum, for frames whose device has checked it.
    #[inline]
    pub fn parse_unverified(frame: &[u8]) -> Result<Layout, Malformed> {
        parse::parse::<false>(frame)
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

    /// The layout of a plain packet of TCP or UDP that ends at `end`.
    #[inline(always)]
    pub(crate) fn plain(protocol: u8, end: usize) -> Layout {
        let rest = OF_PLAIN.layouts[usize::from(protocol)];
        // The bit is in both; said again, it is known where the packet is used.
        Layout(rest | 1 << PLAIN_SHIFT | (end as u64) << END_SHIFT)
    }

    /// The layout of an IP packet. Every offset has been checked against the frame.
    #[inline(always)]
    pub(crate) const fn ip(
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
                | (upper.protocol as u64) << PROTOCOL_SHIFT
                | (network as u64) << NETWORK_SHIFT
                | (upper.fragment as u64) << FRAGMENT_SHIFT
                | (vlan_tags as u64) << VLAN_TAGS_SHIFT
                | (upper.source_routed as u64) << SOURCE_ROUTED_SHIFT
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

/// What the length in the transport header of a plain packet is at least; more than any length, of protocols whose packets are not
/// plain.
#[inline(always)]
pub(crate) fn least_length_if_plain(protocol: u8) -> usize {
    OF_PLAIN.least_lengths[usize::from(protocol)]
}

/// What plain packets of a transport have in common, by IP protocol: read instead of compared with, so that anyone who has TCP and UDP
/// mixed has no branch guessed wrong.
struct OfPlain {
    least_lengths: [usize; 256],
    layouts: [u64; 256],
}

static OF_PLAIN: OfPlain = {
    let mut of_plain = OfPlain {
        least_lengths: [usize::MAX; 256],
        layouts: [0; 256],
    };
    let transports = [(Transport::Tcp, 6, 20), (Transport::Udp, 17, 8)];
    let mut at = 0;
    while at < transports.len() {
        let (transport, protocol, least_length) = transports[at];
        let upper = Upper {
            protocol,
            fragment: Fragment::Whole,
            transport,
            source_routed: false,
        };
        of_plain.least_lengths[protocol as usize] = least_length;
        of_plain.layouts[protocol as usize] = Layout::ip(Network::Ipv4, 14, 34, 34, upper, 0).0
            & !(u64::MAX << END_SHIFT)
            | 1 << PLAIN_SHIFT;
        at += 1;
    }
    of_plain
};

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
pub(crate) struct Upper {
    pub(crate) protocol: u8,
    pub(crate) fragment: Fragment,
    pub(crate) transport: Transport,
    pub(crate) source_routed: bool,
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
