//! In-place edits of addresses, ports and time to live that keep every checksum right (RFC 1624). Imports `packet`,
//! `checksum`, `endpoint`.
//!
//! No edit sums a payload: each makes one [`Change`] and applies it to the checksums that cover it. A wrong checksum
//! stays exactly as wrong, so the receiver still sees the damage. In a fragment the transport checksum lies in the
//! first part: edit every part alike and the reassembled datagram is right.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{self, Change};
use crate::endpoint::Endpoint;
use crate::layout::{Network, Transport};
use crate::packet::Packet;

/// Offsets of a port in a TCP or UDP header.
const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 2;

/// IPv4.
impl Packet<'_> {
    /// Sets the source address and port of an IPv4 packet; of an ICMP query or reply the identifier. The endpoint's
    /// protocol is not looked at. Where there is no port (other protocols, ICMP errors, later fragments) only the
    /// address is set. Repairs the IPv4, TCP, UDP and ICMP checksums; of other protocols only IPv4's. No effect on
    /// what is not IPv4. About thirty-five instructions.
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
        if let Some(change) = self.set_ipv4_address::<ADDRESS>(to.address) {
            self.set_port::<PORT>(change, Some(to.port));
        }
    }

    /// Sets the address alone and repairs the header checksum.
    #[inline(always)]
    fn set_ipv4_address<const ADDRESS: usize>(&mut self, to: Ipv4Addr) -> Option<Change> {
        if self.layout.network() != Network::Ipv4 {
            return None;
        }
        let header = self.array_mut::<20>(self.layout.network_offset())?;
        let address = header[ADDRESS..].first_chunk_mut::<4>()?;
        let change = Change::NONE.and32(*address, to.octets());
        *address = to.octets();
        [header[10], header[11]] = change.apply([header[10], header[11]]);
        Some(change)
    }
}

/// IPv6.
impl Packet<'_> {
    /// Sets the source address of an IPv6 packet and repairs the TCP, UDP or ICMPv6 checksum.
    pub fn set_ipv6_source(&mut self, to: Ipv6Addr) {
        if let Some(change) = self.set_ipv6_address::<8>(to) {
            self.set_port::<SOURCE_PORT>(change, None);
        }
    }

    /// Sets the destination address of an IPv6 packet and repairs the TCP, UDP or ICMPv6 checksum. While a routing
    /// header has segments left, the checksum covers the last of them and not this address, and stays (RFC 8200 §8.1).
    pub fn set_ipv6_destination(&mut self, to: Ipv6Addr) {
        let Some(change) = self.set_ipv6_address::<24>(to) else {
            return;
        };
        if !self.layout.is_source_routed() {
            self.set_port::<DESTINATION_PORT>(change, None);
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
        self.set_port::<SOURCE_PORT>(Change::NONE, Some(port));
    }

    /// Sets the destination port of TCP or UDP, or the identifier of an ICMP query or reply.
    #[inline]
    pub fn set_destination_port(&mut self, port: u16) {
        self.set_port::<DESTINATION_PORT>(Change::NONE, Some(port));
    }

    /// Takes one from the time to live or hop limit and returns what is left. `None`, and no effect, when nothing
    /// would be left (the packet must not be forwarded; RFC 1812 §5.3.1) or the packet is not IP.
    #[inline]
    pub fn decrement_ttl(&mut self) -> Option<u8> {
        match self.layout.network() {
            Network::Ipv4 => {
                let header = self.array_mut::<20>(self.layout.network_offset())?;
                if header[8] <= 1 {
                    return None;
                }
                header[8] -= 1;
                [header[10], header[11]] = checksum::after_ttl_decrement([header[10], header[11]]);
                Some(header[8])
            }
            Network::Ipv6 => {
                let header = self.array_mut::<40>(self.layout.network_offset())?;
                if header[7] <= 1 {
                    return None;
                }
                header[7] -= 1;
                Some(header[7])
            }
            Network::Arp | Network::Other => None,
        }
    }

    /// Sets the port at `PORT`, or the ICMP identifier, when one is given, and repairs the transport checksum for it
    /// and for the `address` that has changed.
    #[inline(always)]
    fn set_port<const PORT: usize>(&mut self, address: Change, port: Option<u16>) {
        let transport_at = self.layout.transport_offset();
        match self.layout.transport() {
            Transport::Tcp => {
                let Some(header) = self.array_mut::<20>(transport_at) else {
                    return;
                };
                let change = replace_port(header, PORT, address, port);
                [header[16], header[17]] = change.apply([header[16], header[17]]);
            }
            Transport::Udp => {
                let Some(header) = self.array_mut::<8>(transport_at) else {
                    return;
                };
                let change = replace_port(header, PORT, address, port);
                [header[6], header[7]] = change.apply_udp([header[6], header[7]]);
            }
            Transport::Icmp | Transport::Icmpv6 => self.set_icmp_identifier(address, port),
            Transport::None => {}
        }
    }

    #[inline(never)]
    fn set_icmp_identifier(&mut self, address: Change, identifier: Option<u16>) {
        let has_identifier = self.icmp_identifier().is_some();
        let is_icmpv6 = self.layout.transport() == Transport::Icmpv6;
        let Some(header) = self.array_mut::<8>(self.layout.transport_offset()) else {
            return;
        };
        // ICMP for IPv4 has no pseudo header: the address does not matter.
        let covered = if is_icmpv6 { address } else { Change::NONE };
        let change = replace_port(header, 4, covered, identifier.filter(|_| has_identifier));
        [header[2], header[3]] = change.apply([header[2], header[3]]);
    }
}

#[inline(always)]
fn replace_port(header: &mut [u8], at: usize, change: Change, port: Option<u16>) -> Change {
    let Some(port) = port else { return change };
    let change = change.and16([header[at], header[at + 1]], port.to_be_bytes());
    [header[at], header[at + 1]] = port.to_be_bytes();
    change
}
