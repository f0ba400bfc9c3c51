//! In-place edits of addresses, ports and time to live that keep every checksum right (RFC 1624).
//!
//! No edit sums a payload: each makes one [`Change`] and applies it to the checksums that cover it. A wrong checksum
//! stays exactly as wrong, so the receiver still sees the damage. In a fragment the transport checksum lies in the
//! first part: edit every part alike and the reassembled datagram is right.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{self, Change};
use crate::endpoint::Endpoint;
use crate::layout::{self, Layout, Network, Transport};
use crate::packet::{PLAIN_IPV4, PLAIN_TRANSPORT, Packet};
use crate::transport::IcmpKind;

/// Offsets of a port in a TCP or UDP header.
const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 2;

/// IPv4.
impl Packet<'_> {
    /// Sets the source address and port of an IPv4 packet; of an ICMP query or reply the identifier. The endpoint's
    /// protocol is not looked at. Where there is no port (other protocols, ICMP errors, later fragments) only the
    /// address is set. Repairs the IPv4, TCP, UDP and ICMP checksums; of other protocols only IPv4's. No effect on
    /// what is not IPv4. About fifty instructions for plain TCP or UDP.
    #[inline]
    pub fn set_source(&mut self, to: Endpoint) {
        self.set_endpoint::<12, SOURCE_PORT>(to);
    }

    /// [`Packet::set_source`] for the destination.
    #[inline]
    pub fn set_destination(&mut self, to: Endpoint) {
        self.set_endpoint::<16, DESTINATION_PORT>(to);
    }

    #[inline(always)]
    fn set_endpoint<const ADDRESS: usize, const PORT: usize>(&mut self, to: Endpoint) {
        let is_udp = self.layout.transport() == Transport::Udp;
        let Some(frame) = self.plain_mut() else {
            return set_endpoint_uncommon::<ADDRESS, PORT>(self.layout, self.bytes_mut(), to);
        };
        let (_, headers) = frame.split_at_mut(PLAIN_IPV4);
        let (header, transport) = headers.split_at_mut(PLAIN_TRANSPORT - PLAIN_IPV4);
        let change = replace_address4::<ADDRESS>(header, to.address);
        let change = replace_port(transport, PORT, change, Some(to.port));
        if is_udp {
            [transport[6], transport[7]] = change.apply_udp([transport[6], transport[7]]);
        } else {
            [transport[16], transport[17]] = change.apply([transport[16], transport[17]]);
        }
    }
}

#[inline(never)]
fn set_endpoint_uncommon<const ADDRESS: usize, const PORT: usize>(
    layout: Layout,
    bytes: &mut [u8],
    to: Endpoint,
) {
    if layout.network() != Network::Ipv4 {
        return;
    }
    let Some(header) = layout::array_mut::<20>(bytes, layout.network_offset()) else {
        return;
    };
    let change = replace_address4::<ADDRESS>(header, to.address);
    set_port::<PORT>(layout, bytes, change, Some(to.port));
}

/// Replaces the address in an IPv4 header and repairs the header's checksum.
#[inline(always)]
fn replace_address4<const ADDRESS: usize>(header: &mut [u8], to: Ipv4Addr) -> Change {
    let [a, b, c, d] = to.octets();
    let old = [
        header[ADDRESS],
        header[ADDRESS + 1],
        header[ADDRESS + 2],
        header[ADDRESS + 3],
    ];
    let change = Change::NONE.and32(old, [a, b, c, d]);
    [
        header[ADDRESS],
        header[ADDRESS + 1],
        header[ADDRESS + 2],
        header[ADDRESS + 3],
    ] = [a, b, c, d];
    [header[10], header[11]] = change.apply([header[10], header[11]]);
    change
}

/// IPv6.
impl Packet<'_> {
    /// Sets the source address of an IPv6 packet and repairs the TCP, UDP or ICMPv6 checksum.
    pub fn set_ipv6_source(&mut self, to: Ipv6Addr) {
        if let Some(change) = self.set_ipv6_address::<8>(to) {
            set_port::<SOURCE_PORT>(self.layout, self.bytes_mut(), change, None);
        }
    }

    /// Sets the destination address of an IPv6 packet and repairs the TCP, UDP or ICMPv6 checksum. While a routing
    /// header has segments left, the checksum covers the last of them and not this address, and stays (RFC 8200 §8.1).
    pub fn set_ipv6_destination(&mut self, to: Ipv6Addr) {
        let Some(change) = self.set_ipv6_address::<24>(to) else {
            return;
        };
        if !self.layout.is_source_routed() {
            set_port::<DESTINATION_PORT>(self.layout, self.bytes_mut(), change, None);
        }
    }

    fn set_ipv6_address<const ADDRESS: usize>(&mut self, to: Ipv6Addr) -> Option<Change> {
        if self.layout.network() != Network::Ipv6 {
            return None;
        }
        let header = self.array_mut::<40>(self.layout.network_offset())?;
        let address = header[ADDRESS..].first_chunk_mut::<16>()?;
        let change = Change::NONE.and128(*address, to.octets());
        *address = to.octets();
        Some(change)
    }
}

/// Either version of IP.
impl Packet<'_> {
    /// Sets the source port of TCP or UDP, or the identifier of an ICMP query or reply.
    #[inline]
    pub fn set_source_port(&mut self, port: u16) {
        set_port::<SOURCE_PORT>(self.layout, self.bytes_mut(), Change::NONE, Some(port));
    }

    /// Sets the destination port of TCP or UDP, or the identifier of an ICMP query or reply.
    #[inline]
    pub fn set_destination_port(&mut self, port: u16) {
        set_port::<DESTINATION_PORT>(self.layout, self.bytes_mut(), Change::NONE, Some(port));
    }

    /// Takes one from the time to live or hop limit and returns what is left. `None`, and no effect, when nothing
    /// would be left (the packet must not be forwarded; RFC 1812 §5.3.1) or the packet is not IP.
    #[inline]
    pub fn decrement_ttl(&mut self) -> Option<u8> {
        match self.plain_mut() {
            Some(frame) => decrement_ttl4(&mut frame[PLAIN_IPV4..]),
            None => decrement_ttl_uncommon(self.layout, self.bytes_mut()),
        }
    }
}

#[inline(always)]
fn decrement_ttl4(header: &mut [u8]) -> Option<u8> {
    if header[8] <= 1 {
        return None;
    }
    header[8] -= 1;
    [header[10], header[11]] = checksum::after_ttl_decrement([header[10], header[11]]);
    Some(header[8])
}

#[inline(never)]
fn decrement_ttl_uncommon(layout: Layout, bytes: &mut [u8]) -> Option<u8> {
    match layout.network() {
        Network::Ipv4 => decrement_ttl4(layout::array_mut::<20>(bytes, layout.network_offset())?),
        Network::Ipv6 => {
            let header = layout::array_mut::<40>(bytes, layout.network_offset())?;
            if header[7] <= 1 {
                return None;
            }
            header[7] -= 1;
            Some(header[7])
        }
        Network::Arp | Network::Other => None,
    }
}

/// Sets the port at `PORT`, or the ICMP identifier, when one is given, and repairs the transport checksum for it and
/// for the `address` that has changed.
fn set_port<const PORT: usize>(
    layout: Layout,
    bytes: &mut [u8],
    address: Change,
    port: Option<u16>,
) {
    let transport_at = layout.transport_offset();
    match layout.transport() {
        Transport::Tcp => {
            let Some(header) = layout::array_mut::<20>(bytes, transport_at) else {
                return;
            };
            let change = replace_port(header, PORT, address, port);
            [header[16], header[17]] = change.apply([header[16], header[17]]);
        }
        Transport::Udp => {
            let Some(header) = layout::array_mut::<8>(bytes, transport_at) else {
                return;
            };
            let change = replace_port(header, PORT, address, port);
            [header[6], header[7]] = change.apply_udp([header[6], header[7]]);
        }
        Transport::Icmp => {
            // No pseudo header: the address does not matter.
            let Some(header) = layout::array_mut::<8>(bytes, transport_at) else {
                return;
            };
            let port = port.filter(|_| IcmpKind::of_icmp(header[0]).has_identifier());
            let change = replace_port(header, 4, Change::NONE, port);
            [header[2], header[3]] = change.apply([header[2], header[3]]);
        }
        Transport::Icmpv6 => {
            let Some(header) = layout::array_mut::<8>(bytes, transport_at) else {
                return;
            };
            let port = port.filter(|_| IcmpKind::of_icmpv6(header[0]).has_identifier());
            let change = replace_port(header, 4, address, port);
            [header[2], header[3]] = change.apply([header[2], header[3]]);
        }
        Transport::None => {}
    }
}

#[inline(always)]
fn replace_port(header: &mut [u8], at: usize, change: Change, port: Option<u16>) -> Change {
    let Some(port) = port else { return change };
    let change = change.and16([header[at], header[at + 1]], port.to_be_bytes());
    [header[at], header[at + 1]] = port.to_be_bytes();
    change
}
