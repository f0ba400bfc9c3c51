//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::layout::Network;
use crate::mac::MacAddress;
use crate::packet::Packet;

/// The fields that say "Ethernet and IPv4": hardware type, protocol type, both address lengths.
pub(crate) const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Bytes of such a packet.
pub(crate) const LENGTH: usize = 28;

/// What an ARP packet does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArpOperation {
    /// Asks who has the target address.
    Request,
    /// Says that the sender has the sender address.
    Reply,
    /// Another operation number.
    Other(u16),
}

impl ArpOperation {
    pub(crate) const fn number(self) -> u16 {
        match self {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
            ArpOperation::Other(number) => number,
        }
    }
}

/// An ARP packet's fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Arp {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddress,
    /// The sender's IPv4 address; 0.0.0.0 in a probe (RFC 5227).
    pub sender: Ipv4Addr,
    /// The target's Ethernet address, without meaning in a request.
    pub target_mac: MacAddress,
    /// The target's IPv4 address.
    pub target: Ipv4Addr,
}

impl Packet<'_> {
    /// The ARP packet in this frame, when it is one for IPv4 over Ethernet.
    #[must_use]
    pub fn arp(&self) -> Option<Arp> {
        let packet = self.network_header::<LENGTH>(Network::Arp)?;
        let mac = |at: usize| {
            packet[at..]
                .first_chunk::<6>()
                .map(|bytes| MacAddress(*bytes))
        };
        let address = |at: usize| {
            packet[at..]
                .first_chunk::<4>()
                .map(|bytes| Ipv4Addr::from_octets(*bytes))
        };
        Some(Arp {
            operation: match u16::from_be_bytes([packet[6], packet[7]]) {
                1 => ArpOperation::Request,
                2 => ArpOperation::Reply,
                number => ArpOperation::Other(number),
            },
            sender_mac: mac(8)?,
            sender: address(14)?,
            target_mac: mac(18)?,
            target: address(24)?,
        })
    }
}
