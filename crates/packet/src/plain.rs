//! The plain packet, whole TCP or UDP over IPv4 without options or tags, read and forwarded in one step each: every offset is a
//! constant, and one test stands for all. Which of the two it is decides no branch: mixed, they would be guessed wrong half of
//! the time.
//!
//! What is read here can be read by the accessors of any packet, and what is edited by their edits; this is for
//! functions that count instructions.

use core::hint::select_unpredictable;

use crate::checksum::{Change, FoldedChange, TransportChange};
use crate::endpoint::{Endpoint, Protocol};
use crate::packet::{PLAIN, Packet};
use crate::transport::TcpFlags;

/// What a router or translator asks of a plain packet. Nothing is read before it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain4<'a> {
    frame: &'a [u8; PLAIN],
}

impl Plain4<'_> {
    /// Source and destination address, as they stand there (in network order).
    #[inline(always)]
    #[must_use]
    pub fn addresses(&self) -> [u8; 8] {
        at(self.frame, ADDRESSES)
    }

    /// The destination address alone.
    #[inline(always)]
    #[must_use]
    pub fn destination(&self) -> [u8; 4] {
        at(self.frame, ADDRESSES + 4)
    }

    /// Source and destination port, as they stand there.
    #[inline(always)]
    #[must_use]
    pub fn ports(&self) -> [u8; 4] {
        at(self.frame, PORTS)
    }

    /// TCP or UDP.
    #[inline(always)]
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        Protocol(self.frame[PROTOCOL])
    }

    /// The control bits; none of UDP.
    #[inline(always)]
    #[must_use]
    pub fn tcp_flags(&self) -> TcpFlags {
        TcpFlags(select_unpredictable(
            is_tcp(self.frame),
            self.frame[TCP_FLAGS],
            0,
        ))
    }

    /// The sequence number of a TCP segment, as it stands there; of UDP what is in its place.
    #[inline(always)]
    #[must_use]
    pub fn tcp_sequence(&self) -> [u8; 4] {
        at(self.frame, TCP_SEQUENCE)
    }

    /// The acknowledgement number of a TCP segment, in the same way.
    #[inline(always)]
    #[must_use]
    pub fn tcp_acknowledgement(&self) -> [u8; 4] {
        at(self.frame, TCP_SEQUENCE + 4)
    }

    /// Time to live.
    #[inline(always)]
    #[must_use]
    pub fn ttl(&self) -> u8 {
        self.frame[TTL]
    }

    /// Bytes of the IP packet.
    #[inline(always)]
    #[must_use]
    pub fn length(&self) -> u16 {
        u16::from_be_bytes(at(self.frame, LENGTH))
    }
}

/// Which end of a packet is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Who sent it.
    Source,
    /// Its recipient.
    Destination,
}

/// What it does to the checksums of plain packets when one end is replaced and one taken from the time to live. The
/// same for all packets of a flow: made once, four bytes to be kept with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changes4 {
    header: FoldedChange,
    transport: TransportChange,
}

impl Changes4 {
    /// Where `new` replaces `old`, both of one protocol.
    #[must_use]
    pub fn between(old: Endpoint, new: Endpoint) -> Self {
        let address = Change::NONE.and32(old.address.octets(), new.address.octets());
        Self {
            header: address.and16(TTL_LESS_ONE.0, TTL_LESS_ONE.1).folded(),
            transport: address
                .and16(old.port.to_be_bytes(), new.port.to_be_bytes())
                .folded_for_transport(),
        }
    }
}

/// How a plain packet is changed when it is forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwarding4<'a> {
    /// The new address of the end that is replaced.
    pub address: [u8; 4],
    /// The new port of that end, in network order.
    pub port: [u8; 2],
    /// From what stands there to these.
    pub changes: Changes4,
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
const TCP_SEQUENCE: usize = 38;
const TCP_FLAGS: usize = 47;
const TCP_CHECKSUM: usize = 50;
/// One less in the low byte of a word, as a sum of ~m + m' (RFC 1624): the time to live is the first byte of its
/// word, the low one in little-endian sums.
const TTL_LESS_ONE: ([u8; 2], [u8; 2]) = ([1, 0], [0, 0]);

impl Packet<'_> {
    /// The view of a plain packet; `None` of any other. Costs a test.
    #[inline(always)]
    #[must_use]
    pub fn plain4(&self) -> Option<Plain4<'_>> {
        self.plain().map(|frame| Plain4 { frame })
    }

    /// Replaces one end of a plain packet, takes one from its time to live and addresses its frame, and keeps all
    /// checksums right. `false`, and no effect, if it is not plain. About thirty instructions.
    ///
    /// The caller has seen that the time to live is above one: zero becomes 255, with a wrong header checksum.
    #[inline(always)]
    pub fn forward_plain4(&mut self, end: End, to: &Forwarding4<'_>) -> bool {
        let Some(frame) = self.plain_mut() else {
            return false;
        };
        let (address_at, port_at) = match end {
            End::Source => (ADDRESSES, PORTS),
            End::Destination => (ADDRESSES + 4, PORTS + 2),
        };
        frame[TTL] = frame[TTL].wrapping_sub(1);
        let checksum = at(frame, HEADER_CHECKSUM);
        put(frame, HEADER_CHECKSUM, to.changes.header.apply(checksum));
        put(frame, address_at, to.address);
        put(frame, port_at, to.port);
        put(frame, 0, *to.ethernet);
        let is_tcp = is_tcp(frame);
        // 17 for UDP and 6 for TCP: only bit 1 tells.
        let checksum_at =
            UDP_CHECKSUM + usize::from(frame[PROTOCOL] & 2) * ((TCP_CHECKSUM - UDP_CHECKSUM) / 2);
        let checksum = at(frame, checksum_at);
        put(
            frame,
            checksum_at,
            to.changes.transport.apply(checksum, is_tcp),
        );
        true
    }
}

/// Plain packets are of TCP or UDP.
#[inline(always)]
fn is_tcp(frame: &[u8; PLAIN]) -> bool {
    frame[PROTOCOL] == Protocol::TCP.0
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
    use crate::layout::Layout;
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
            ttl in 2u8.., flags: u8, is_tcp: bool, checksum: Option<[u8; 2]>, replaces_source: bool,
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
            let old = if replaces_source { (source, ports.0) } else { (destination, ports.1) };
            let old = Endpoint::new(Ipv4Addr::from_bits(old.0), old.1, protocol);

            let mut expected = frame;
            let mut packet = Packet::parse(&mut frame[..length]).unwrap();
            let plain = packet.plain4().unwrap();
            prop_assert_eq!(Some(plain.ttl()), packet.ttl());
            prop_assert_eq!(Some(plain.length()), packet.ipv4_total_length());
            prop_assert_eq!(plain.tcp_flags(), packet.tcp_flags().unwrap_or_default());
            prop_assert_eq!(plain.addresses()[..4].to_vec(), Ipv4Addr::from_bits(source).octets().to_vec());
            prop_assert_eq!(plain.addresses()[4..].to_vec(), Ipv4Addr::from_bits(destination).octets().to_vec());
            prop_assert_eq!(plain.ports()[..2].to_vec(), ports.0.to_be_bytes().to_vec());
            prop_assert_eq!(plain.ports()[2..].to_vec(), ports.1.to_be_bytes().to_vec());
            prop_assert_eq!(plain.protocol(), if is_tcp { Protocol::TCP } else { Protocol::UDP });

            let mut ethernet = [0; 12];
            ethernet[..6].copy_from_slice(&macs[0].0);
            ethernet[6..].copy_from_slice(&macs[1].0);
            let to = Forwarding4 {
                address: endpoint.address.octets(),
                port: endpoint.port.to_be_bytes(),
                changes: Changes4::between(old, endpoint),
                ethernet: &ethernet,
            };
            prop_assert!(packet.forward_plain4(end, &to));
            forwarded_step_by_step(&mut expected[..length], end, endpoint, macs);
            prop_assert_eq!(&frame[..length], &expected[..length]);
        }
    }

    #[test]
    fn a_layout_kept_gives_the_plain_packet_and_no_other() {
        let header = Header4::between(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST);
        let mut frame = [0; 80];
        let segment = Segment::with_flags(TcpFlags::ACK);
        let length = build::tcp4(&header, 1, 2, &segment, b"plain", &mut frame).unwrap();
        let layout = *Packet::parse_plain(&mut frame[..length]).unwrap().layout();
        let again = Packet::plain_with_layout(&mut frame[..length], layout).unwrap();
        assert_eq!(
            again.plain4().map(|plain| plain.ports()),
            Some([0, 1, 0, 2])
        );
        // Another frame than the one that it was of.
        assert!(Packet::plain_with_layout(&mut frame[..length - 1], layout).is_none());
        assert!(Packet::plain_with_layout(&mut [], layout).is_none());
        assert!(Packet::plain_with_layout(&mut frame, Layout::default()).is_none());
        let length = build::icmp4(&header, 8, 0, [0; 4], b"not plain", &mut frame).unwrap();
        let layout = Layout::parse(&frame[..length]).unwrap();
        assert!(Packet::plain_with_layout(&mut frame[..length], layout).is_none());
    }

    #[test]
    fn other_packets_are_left_alone() {
        let header = Header4::between(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST);
        let mut frame = [0; 80];
        let length = build::icmp4(&header, 8, 0, [0; 4], b"not plain", &mut frame).unwrap();
        let before = frame;
        let mut packet = Packet::parse(&mut frame[..length]).unwrap();
        assert_eq!(packet.plain4(), None);
        let nobody = Endpoint::new(Ipv4Addr::UNSPECIFIED, 0, Protocol::UDP);
        let to = Forwarding4 {
            address: [1; 4],
            port: [1; 2],
            changes: Changes4::between(nobody, nobody),
            ethernet: &[1; 12],
        };
        assert!(!packet.forward_plain4(End::Source, &to));
        assert_eq!(frame, before);
    }
}
