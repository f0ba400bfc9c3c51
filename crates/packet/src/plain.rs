//! The plain packet, whole TCP or UDP over IPv4 without options or tags, read and forwarded in one step each: every
//! offset is a constant, and one test stands for all. Imports `packet`, `checksum`, `endpoint`, `transport`.
//!
//! What is read here can be read by the accessors of any packet, and what is edited by their edits; this is for
//! functions that count instructions.

use crate::checksum::Change;
use crate::endpoint::Protocol;
use crate::layout::Transport;
use crate::packet::{PLAIN, Packet};
use crate::transport::TcpFlags;

/// What a router or translator asks of a plain packet, as it stands there (addresses and ports in network order).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain4 {
    /// Source and destination address.
    pub addresses: [u8; 8],
    /// Source and destination port.
    pub ports: [u8; 4],
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The control bits; none of UDP.
    pub tcp_flags: TcpFlags,
    /// Time to live.
    pub ttl: u8,
    /// Bytes of the IP packet.
    pub length: u16,
}

/// Which end of a packet is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Who sent it.
    Source,
    /// Whom it is for.
    Destination,
}

/// How a plain packet is changed when it is forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwarding4<'a> {
    /// The new address of the end that is replaced.
    pub address: [u8; 4],
    /// The new port of that end, in network order.
    pub port: [u8; 2],
    /// The new Ethernet addresses: destination, then source.
    pub ethernet: &'a [u8; 12],
}

const LENGTH: usize = 16;
const TTL: usize = 22;
const PROTOCOL: usize = 23;
const HEADER_CHECKSUM: usize = 24;
const ADDRESSES: usize = 26;
const PORTS: usize = 34;
const UDP_CHECKSUM: usize = 40;
const TCP_FLAGS: usize = 47;
const TCP_CHECKSUM: usize = 50;
/// One less in the low byte of a word, as a sum of ~m + m' (RFC 1624): the time to live is the first byte of its
/// word, the low one in little-endian sums.
const TTL_LESS_ONE: ([u8; 2], [u8; 2]) = ([1, 0], [0, 0]);

impl Packet<'_> {
    /// The fields of a plain packet; `None` of any other. About twelve instructions.
    #[inline(always)]
    #[must_use]
    pub fn plain4(&self) -> Option<Plain4> {
        let frame = self.plain()?;
        let is_tcp = self.layout().transport() == Transport::Tcp;
        let flags = if is_tcp { frame[TCP_FLAGS] } else { 0 };
        Some(Plain4 {
            addresses: at(frame, ADDRESSES),
            ports: at(frame, PORTS),
            protocol: Protocol(frame[PROTOCOL]),
            tcp_flags: TcpFlags(flags),
            ttl: frame[TTL],
            length: u16::from_be_bytes(at(frame, LENGTH)),
        })
    }

    /// Replaces one end of a plain packet, takes one from its time to live and addresses its frame, and keeps all
    /// checksums right. `false`, and no effect, if it is not plain or its time to live would end. About thirty
    /// instructions.
    #[inline(always)]
    pub fn forward_plain4(&mut self, end: End, to: &Forwarding4<'_>) -> bool {
        let is_tcp = self.layout().transport() == Transport::Tcp;
        let Some(frame) = self.plain_mut() else {
            return false;
        };
        if frame[TTL] <= 1 {
            return false;
        }
        frame[TTL] -= 1;
        let (address_at, port_at) = match end {
            End::Source => (ADDRESSES, PORTS),
            End::Destination => (ADDRESSES + 4, PORTS + 2),
        };
        let change = Change::NONE.and32(at(frame, address_at), to.address);
        let header = change.and16(TTL_LESS_ONE.0, TTL_LESS_ONE.1);
        put(
            frame,
            HEADER_CHECKSUM,
            header.apply(at(frame, HEADER_CHECKSUM)),
        );
        let change = change.and16(at(frame, port_at), to.port);
        put(frame, address_at, to.address);
        put(frame, port_at, to.port);
        put(frame, 0, *to.ethernet);
        if is_tcp {
            put(frame, TCP_CHECKSUM, change.apply(at(frame, TCP_CHECKSUM)));
        } else {
            put(
                frame,
                UDP_CHECKSUM,
                change.apply_udp(at(frame, UDP_CHECKSUM)),
            );
        }
        true
    }
}

#[inline(always)]
fn at<const N: usize>(frame: &[u8; PLAIN], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&frame[offset..offset + N]);
    bytes
}

#[inline(always)]
fn put<const N: usize>(frame: &mut [u8; PLAIN], offset: usize, bytes: [u8; N]) {
    frame[offset..offset + N].copy_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{self, Header4, Segment};
    use crate::endpoint::Endpoint;
    use crate::mac::MacAddress;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    /// What the accessors and edits of any packet make of it.
    fn forwarded_step_by_step(frame: &mut [u8], end: End, to: Endpoint, macs: [MacAddress; 2]) {
        let mut packet = Packet::parse(frame).unwrap();
        packet.decrement_ttl();
        match end {
            End::Source => packet.set_source(to),
            End::Destination => packet.set_destination(to),
        }
        packet.set_ethernet(macs[1], macs[0]);
    }

    proptest! {
        #[test]
        fn agrees_with_the_edits_of_any_packet(
            source: u32, destination: u32, ports: (u16, u16), to: (u32, u16),
            ttl in 1u8.., flags: u8, is_tcp: bool, checksum: Option<[u8; 2]>, replaces_source: bool,
        ) {
            let header = Header4 {
                ttl,
                ..Header4::between(Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination))
            };
            let mut frame = [0; 80];
            let length = if is_tcp {
                let segment = Segment::with_flags(TcpFlags(flags));
                build::tcp4(&header, ports.0, ports.1, &segment, b"plain", &mut frame)
            } else {
                build::udp4(&header, ports.0, ports.1, b"thirteen byte", &mut frame)
            }.unwrap().max(60);
            // Also checksums that are wrong or absent.
            if let Some(checksum) = checksum {
                put(frame.first_chunk_mut().unwrap(), if is_tcp { TCP_CHECKSUM } else { UDP_CHECKSUM }, checksum);
            }
            let end = if replaces_source { End::Source } else { End::Destination };
            let macs = [MacAddress([2, 1, 1, 1, 1, 1]), MacAddress([2, 2, 2, 2, 2, 2])];
            let protocol = if is_tcp { Protocol::TCP } else { Protocol::UDP };
            let endpoint = Endpoint::new(Ipv4Addr::from_bits(to.0), to.1, protocol);

            let mut expected = frame;
            let mut packet = Packet::parse(&mut frame[..length]).unwrap();
            let plain = packet.plain4().unwrap();
            prop_assert_eq!(Some(plain.ttl), packet.ttl());
            prop_assert_eq!(Some(plain.length), packet.ipv4_total_length());
            prop_assert_eq!(plain.tcp_flags, packet.tcp_flags().unwrap_or_default());
            prop_assert_eq!(plain.addresses[..4].to_vec(), Ipv4Addr::from_bits(source).octets().to_vec());
            prop_assert_eq!(plain.addresses[4..].to_vec(), Ipv4Addr::from_bits(destination).octets().to_vec());
            prop_assert_eq!(plain.ports[..2].to_vec(), ports.0.to_be_bytes().to_vec());
            prop_assert_eq!(plain.ports[2..].to_vec(), ports.1.to_be_bytes().to_vec());
            prop_assert_eq!(plain.protocol, if is_tcp { Protocol::TCP } else { Protocol::UDP });

            let mut ethernet = [0; 12];
            ethernet[..6].copy_from_slice(&macs[0].0);
            ethernet[6..].copy_from_slice(&macs[1].0);
            let to = Forwarding4 {
                address: endpoint.address.octets(),
                port: endpoint.port.to_be_bytes(),
                ethernet: &ethernet,
            };
            if ttl == 1 {
                prop_assert!(!packet.forward_plain4(end, &to));
            } else {
                prop_assert!(packet.forward_plain4(end, &to));
                forwarded_step_by_step(&mut expected[..length], end, endpoint, macs);
            }
            prop_assert_eq!(&frame[..length], &expected[..length]);
        }
    }

    #[test]
    fn other_packets_are_left_alone() {
        let header = Header4::between(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST);
        let mut frame = [0; 80];
        let length = build::icmp4(&header, 8, 0, [0; 4], b"not plain", &mut frame).unwrap();
        let before = frame;
        let mut packet = Packet::parse(&mut frame[..length]).unwrap();
        assert_eq!(packet.plain4(), None);
        let to = Forwarding4 {
            address: [1; 4],
            port: [1; 2],
            ethernet: &[1; 12],
        };
        assert!(!packet.forward_plain4(End::Source, &to));
        assert_eq!(frame, before);
    }
}
