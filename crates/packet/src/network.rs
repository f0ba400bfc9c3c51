//! What the IPv4 and IPv6 headers of a packet say.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;
use crate::layout::{Fragment, Network};
use crate::packet::Packet;
use crate::parse::Extensions;

/// IPv4.
impl Packet<'_> {
    /// The source address.
    #[inline]
    #[must_use]
    pub fn ipv4_source(&self) -> Option<Ipv4Addr> {
        self.ipv4()
            .map(|header| Ipv4Addr::new(header[12], header[13], header[14], header[15]))
    }

    /// The destination address.
    #[inline]
    #[must_use]
    pub fn ipv4_destination(&self) -> Option<Ipv4Addr> {
        self.ipv4()
            .map(|header| Ipv4Addr::new(header[16], header[17], header[18], header[19]))
    }

    /// The identification that fragments of one datagram share.
    #[inline]
    #[must_use]
    pub fn ipv4_identification(&self) -> Option<u16> {
        self.ipv4()
            .map(|header| u16::from_be_bytes([header[4], header[5]]))
    }

    /// The "don't fragment" flag.
    #[inline]
    #[must_use]
    pub fn ipv4_dont_fragment(&self) -> Option<bool> {
        self.ipv4().map(|header| header[6] & 0x40 != 0)
    }

    /// The total length of header and data in bytes.
    #[inline]
    #[must_use]
    pub fn ipv4_total_length(&self) -> Option<u16> {
        self.ipv4()
            .map(|header| u16::from_be_bytes([header[2], header[3]]))
    }

    /// The header length in bytes, options included.
    #[inline]
    #[must_use]
    pub fn ipv4_header_length(&self) -> Option<usize> {
        self.ipv4()
            .map(|_| self.layout.transport_offset() - self.layout.network_offset())
    }

    /// Whether the header checksum is right. The parse has checked it; this looks again, options included.
    #[must_use]
    pub fn verify_ipv4_checksum(&self) -> Option<bool> {
        self.ipv4()?;
        let header = self
            .bytes()
            .get(self.layout.network_offset()..self.layout.transport_offset())?;
        Some(Sum::ZERO.bytes(header).is_valid())
    }

    #[inline(always)]
    fn ipv4(&self) -> Option<&[u8; 20]> {
        self.network_header(Network::Ipv4)
    }
}

/// IPv6.
impl Packet<'_> {
    /// The source address.
    #[inline]
    #[must_use]
    pub fn ipv6_source(&self) -> Option<Ipv6Addr> {
        self.ipv6_address(8)
    }

    /// The destination address: of a source-routed packet the next one on its way.
    #[inline]
    #[must_use]
    pub fn ipv6_destination(&self) -> Option<Ipv6Addr> {
        self.ipv6_address(24)
    }

    /// The flow label, 20 bits.
    #[inline]
    #[must_use]
    pub fn ipv6_flow_label(&self) -> Option<u32> {
        self.ipv6()
            .map(|header| u32::from_be_bytes([0, header[1] & 0x0f, header[2], header[3]]))
    }

    /// The identification in the fragment header; `None` when there is no fragment header.
    #[must_use]
    pub fn ipv6_identification(&self) -> Option<u32> {
        let at = self.ipv6_fragment_header()?;
        self.array::<4>(at + 4)
            .map(|identification| u32::from_be_bytes(*identification))
    }

    /// Walks the extension headers again; only fragments pay for it.
    pub(crate) fn ipv6_fragment_header(&self) -> Option<usize> {
        let next = self.ipv6()?[6];
        let packet = self.bytes().get(..self.layout.end())?;
        Extensions::walk(packet, self.layout.network_offset() + 40, next)
            .ok()?
            .fragment_at
    }

    #[inline(always)]
    fn ipv6_address(&self, at: usize) -> Option<Ipv6Addr> {
        let header = self.ipv6()?;
        header[at..]
            .first_chunk::<16>()
            .map(|octets| Ipv6Addr::from_octets(*octets))
    }

    #[inline(always)]
    fn ipv6(&self) -> Option<&[u8; 40]> {
        self.network_header(Network::Ipv6)
    }
}

/// Either version of IP.
impl Packet<'_> {
    /// Time to live or hop limit.
    #[inline]
    #[must_use]
    pub fn ttl(&self) -> Option<u8> {
        match self.layout.network() {
            Network::Ipv4 => self.ipv4().map(|header| header[8]),
            Network::Ipv6 => self.ipv6().map(|header| header[7]),
            _ => None,
        }
    }

    /// The differentiated services code point, 0 to 63 (RFC 2474).
    #[inline]
    #[must_use]
    pub fn dscp(&self) -> Option<u8> {
        match self.layout.network() {
            Network::Ipv4 => self.ipv4().map(|header| header[1] >> 2),
            Network::Ipv6 => self
                .ipv6()
                .map(|header| (header[0] & 0x0f) << 2 | header[1] >> 6),
            _ => None,
        }
    }

    /// The flags of fragmentation as IPFIX's `fragmentFlags` has them: 0x40, do not fragment; 0x20, more fragments follow; of IPv6 the
    /// latter alone.
    #[inline]
    #[must_use]
    pub fn fragment_flags(&self) -> Option<u8> {
        match (self.layout.network(), self.layout.fragment()) {
            (Network::Ipv4, _) => self.ipv4().map(|header| header[6] & 0xe0),
            (Network::Ipv6, Fragment::Whole) => Some(0),
            (Network::Ipv6, _) => {
                let word = self.word(self.ipv6_fragment_header()? + 2)?;
                Some(((word & 1) << 5) as u8)
            }
            _ => None,
        }
    }

    /// Offset of the fragment in its datagram in bytes, zero for a whole one.
    #[must_use]
    pub fn fragment_offset(&self) -> Option<u16> {
        match (self.layout.network(), self.layout.fragment()) {
            (Network::Ipv4, _) => self
                .ipv4()
                .map(|header| (u16::from_be_bytes([header[6], header[7]]) & 0x1fff) << 3),
            (Network::Ipv6, Fragment::Later) => self
                .word(self.ipv6_fragment_header()? + 2)
                .map(|word| word & 0xfff8),
            (Network::Ipv6, _) => Some(0),
            _ => None,
        }
    }
}
