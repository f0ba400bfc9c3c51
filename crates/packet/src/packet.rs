//! A frame with its layout: what every network function reads and edits.
//!
//! This file holds the frame itself, Ethernet and VLAN; `network.rs` the IP accessors, `transport.rs` those of TCP, UDP
//! and ICMP, `edit.rs` and `embedded.rs` what changes a packet and keeps its checksums right.

use core::ops::Range;

use crate::layout::{self, Layout, Network};
use crate::mac::MacAddress;
use crate::malformed::Malformed;
use crate::parse;

/// Bytes of the Ethernet, IPv4 and TCP headers of a plain packet, none with options.
pub(crate) const PLAIN: usize = 54;
/// Offset of the IPv4 header in a plain packet.
pub(crate) const PLAIN_IPV4: usize = 14;
/// Offset of the transport header in a plain packet.
pub(crate) const PLAIN_TRANSPORT: usize = 34;

/// A mutable frame and where its headers are.
///
/// Accessors answer `None`, and edits do nothing, where the packet has no such header. Bytes may be changed at will
/// through [`Packet::bytes_mut`]: the layout then describes the old bytes, answers may be nonsense, nothing panics.
pub struct Packet<'a> {
    bytes: &'a mut [u8],
    pub(crate) layout: Layout,
}

impl<'a> Packet<'a> {
    /// Parses `frame`, an Ethernet II frame without its frame check sequence.
    #[inline]
    pub fn parse(frame: &'a mut [u8]) -> Result<Packet<'a>, Malformed> {
        let layout = Layout::parse(frame)?;
        Ok(Packet {
            bytes: frame,
            layout,
        })
    }

    /// [`Packet::parse`] of nearly every packet, inlined: whole TCP or UDP over IPv4, no tag, no options, at least 54
    /// bytes. `None` of all others, well-formed or not.
    #[inline(always)]
    #[must_use]
    pub fn parse_plain(frame: &'a mut [u8]) -> Option<Packet<'a>> {
        let layout = parse::common::<true>(frame)?;
        Some(Packet {
            bytes: frame,
            layout,
        })
    }

    /// Joins a frame to the layout that it was parsed to before. Costs one comparison.
    ///
    /// A layout that reaches beyond the frame cannot be this frame's; the packet is then [`Network::Other`]. A wrong
    /// layout that fits gives wrong answers and wrong edits, and is safe.
    #[inline]
    #[must_use]
    pub fn with_layout(frame: &'a mut [u8], layout: Layout) -> Packet<'a> {
        let layout = if layout.end() <= frame.len() {
            layout
        } else {
            Layout::opaque(Network::Other, 0, frame.len(), 0)
        };
        Packet {
            bytes: frame,
            layout,
        }
    }

    /// [`Packet::with_layout`] of a plain packet; `None` if the layout is not one, or reaches beyond the frame.
    #[inline(always)]
    #[must_use]
    pub fn plain_with_layout(frame: &'a mut [u8], layout: Layout) -> Option<Packet<'a>> {
        let fits = layout.is_plain() && frame.len() >= PLAIN && layout.end() <= frame.len();
        fits.then_some(Packet {
            bytes: frame,
            layout,
        })
    }

    /// The same packet for a while, after which this one can be used again. Costs nothing.
    #[inline(always)]
    #[must_use]
    pub fn reborrow(&mut self) -> Packet<'_> {
        Packet {
            bytes: self.bytes,
            layout: self.layout,
        }
    }

    /// Where the headers are.
    #[inline]
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The whole frame, Ethernet padding included.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The whole frame, to be changed.
    #[inline]
    #[must_use]
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// What follows the transport header, or the IP headers where there is no transport header, without Ethernet
    /// padding; for UDP, up to its own length.
    #[must_use]
    pub fn payload_range(&self) -> Range<usize> {
        let transport_at = self.layout.transport_offset();
        let end = match self.udp_length() {
            Some(length) => (transport_at + usize::from(length)).min(self.layout.end()),
            None => self.layout.end(),
        };
        (transport_at + self.transport_header_length()).min(end)..end
    }

    /// The bytes of [`Packet::payload_range`].
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(self.payload_range()).unwrap_or(&[])
    }

    /// Who sent the frame; zero when the frame is shorter than an Ethernet header.
    #[inline]
    #[must_use]
    pub fn ethernet_source(&self) -> MacAddress {
        MacAddress(self.array::<6>(6).copied().unwrap_or_default())
    }

    /// The recipient of the frame; zero when the frame is shorter than an Ethernet header.
    #[inline]
    #[must_use]
    pub fn ethernet_destination(&self) -> MacAddress {
        MacAddress(self.array::<6>(0).copied().unwrap_or_default())
    }

    /// The Ethernet type after the VLAN tags that were looked through.
    #[inline]
    #[must_use]
    pub fn ethertype(&self) -> u16 {
        self.layout
            .network_offset()
            .checked_sub(2)
            .and_then(|at| self.word(at))
            .unwrap_or(0)
    }

    /// Sets both Ethernet addresses, as a router does on the next hop.
    #[inline]
    pub fn set_ethernet(&mut self, source: MacAddress, destination: MacAddress) {
        if let Some(addresses) = self.array_mut::<12>(0) {
            addresses[..6].copy_from_slice(&destination.0);
            addresses[6..].copy_from_slice(&source.0);
        }
    }

    /// The identifier in the outermost VLAN tag, 0 to 4095.
    #[inline]
    #[must_use]
    pub fn vlan_id(&self) -> Option<u16> {
        self.vlan_tag(0)
    }

    /// The identifier in the second VLAN tag.
    #[inline]
    #[must_use]
    pub fn inner_vlan_id(&self) -> Option<u16> {
        self.vlan_tag(1)
    }

    /// Sets the identifier in the outermost VLAN tag, whose priority stays. Bits above the twelve are ignored; an
    /// untagged frame stays so.
    #[inline]
    pub fn set_vlan_id(&mut self, id: u16) {
        if self.layout.vlan_tags() > 0
            && let Some(control) = self.array_mut::<2>(14)
        {
            *control = (u16::from_be_bytes(*control) & 0xf000 | id & 0x0fff).to_be_bytes();
        }
    }

    fn vlan_tag(&self, index: u8) -> Option<u16> {
        if index >= self.layout.vlan_tags() {
            return None;
        }
        self.word(14 + 4 * usize::from(index))
            .map(|control| control & 0x0fff)
    }

    /// The headers of a plain packet, with one comparison; its first byte is the frame's, so that IPv4 is at
    /// [`PLAIN_IPV4`] and the transport header at [`PLAIN_TRANSPORT`]. A UDP frame so short that it was not even
    /// padded is not plain here.
    #[inline(always)]
    pub(crate) fn plain(&self) -> Option<&[u8; PLAIN]> {
        if self.layout.is_plain() {
            self.bytes.first_chunk()
        } else {
            None
        }
    }

    /// [`Packet::plain`], to be changed.
    #[inline(always)]
    pub(crate) fn plain_mut(&mut self) -> Option<&mut [u8; PLAIN]> {
        if self.layout.is_plain() {
            self.bytes.first_chunk_mut()
        } else {
            None
        }
    }

    /// `N` bytes of the network header from its start, when the network is `network`.
    #[inline(always)]
    pub(crate) fn network_header<const N: usize>(&self, network: Network) -> Option<&[u8; N]> {
        if self.layout.network() != network {
            return None;
        }
        self.array(self.layout.network_offset())
    }

    #[inline(always)]
    pub(crate) fn array<const N: usize>(&self, at: usize) -> Option<&[u8; N]> {
        layout::array(self.bytes, at)
    }

    #[inline(always)]
    pub(crate) fn array_mut<const N: usize>(&mut self, at: usize) -> Option<&mut [u8; N]> {
        layout::array_mut(self.bytes, at)
    }

    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> Option<u16> {
        layout::word(self.bytes, at)
    }
}

impl core::fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Packet")
            .field("length", &self.bytes.len())
            .field("layout", &self.layout)
            .finish()
    }
}
