//! Checksums that an interface was to complete, completed in software.

use super::Offload;
use asterism_packet::checksum::Sum;
use asterism_packet::{Layout, Network, Transport};
use std::net::{Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Where the transport header of a TCP segment or UDP datagram is, as the packet is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) network: Network,
    pub(super) network_at: usize,
    pub(super) transport_at: usize,
    /// Where the checksum field is, from the transport header.
    pub(super) field: usize,
    pub(super) payload_at: usize,
    /// The end of the IP packet.
    pub(super) end: usize,
    pub(super) tcp: bool,
}

/// The place in a whole TCP or UDP packet; `None` for all others, and for IPv6 with extension headers, whose pseudo header
/// may name another destination (RFC 8200 §8.1).
pub(super) fn place(packet: &[u8]) -> Option<Place> {
    let layout = Layout::parse_unverified(packet).ok()?;
    let (network_at, transport_at) = (layout.network_offset(), layout.transport_offset());
    if layout.fragment() != asterism_packet::Fragment::Whole {
        return None;
    }
    if layout.network() == Network::Ipv6 && transport_at != network_at + 40 {
        return None;
    }
    let (tcp, field, header) = match layout.transport() {
        Transport::Tcp => (
            true,
            16,
            usize::from(packet.get(transport_at + 12)? >> 4) * 4,
        ),
        Transport::Udp => (false, 6, 8),
        _ => return None,
    };
    Some(Place {
        network: layout.network(),
        network_at,
        transport_at,
        field,
        payload_at: transport_at + header,
        end: layout.end(),
        tcp,
    })
}

/// The sum of the pseudo header.
pub(super) fn pseudo_sum(packet: &[u8], place: &Place) -> Sum {
    let bytes = |at: usize| packet.get(place.network_at + at..);
    let protocol = if place.tcp { TCP } else { UDP };
    let length = place.end - place.transport_at;
    if place.network == Network::Ipv6 {
        let source = bytes(8).and_then(|bytes| bytes.first_chunk::<16>());
        let destination = bytes(24).and_then(|bytes| bytes.first_chunk::<16>());
        let address = |bytes: Option<&[u8; 16]>| Ipv6Addr::from(*bytes.unwrap_or(&[0; 16]));
        Sum::pseudo_header6(
            address(source),
            address(destination),
            protocol,
            length as u32,
        )
    } else {
        let source = bytes(12).and_then(|bytes| bytes.first_chunk::<4>());
        let destination = bytes(16).and_then(|bytes| bytes.first_chunk::<4>());
        let address = |bytes: Option<&[u8; 4]>| Ipv4Addr::from(*bytes.unwrap_or(&[0; 4]));
        Sum::pseudo_header4(
            address(source),
            address(destination),
            protocol,
            length as u16,
        )
    }
}

fn put(packet: &mut [u8], at: usize, value: [u8; 2]) {
    if let Some(field) = packet.get_mut(at..at + 2) {
        field.copy_from_slice(&value);
    }
}

/// Writes into the checksum field what a device expects there: the sum of the pseudo header, not complemented.
pub(super) fn write_pseudo_sum(packet: &mut [u8], place: &Place) {
    let [high, low] = pseudo_sum(packet, place).finish();
    put(packet, place.transport_at + place.field, [!high, !low]);
}

/// Writes the whole checksum of the packet at `place`.
pub(super) fn write_checksum(packet: &mut [u8], place: &Place) {
    put(packet, place.transport_at + place.field, [0, 0]);
    let covered = packet.get(place.transport_at..place.end).unwrap_or(&[]);
    let sum = pseudo_sum(packet, place).bytes(covered);
    let value = if place.tcp {
        sum.finish()
    } else {
        sum.finish_udp()
    };
    put(packet, place.transport_at + place.field, value);
}

/// Completes the checksum that `offload` says is missing. TCP and UDP get it from scratch; of others the field is taken to hold
/// the sum of what the sender put in front, as the kernel does; SCTP gets its CRC.
pub(super) fn complete(packet: &mut [u8], offload: &Offload) {
    let start = usize::from(offload.checksum_start);
    let at = start + usize::from(offload.checksum_offset);
    match place(packet) {
        Some(place) if place.transport_at == start && place.transport_at + place.field == at => {
            write_checksum(packet, &place);
        }
        _ if is_sctp(packet, start, at) => write_crc(packet, start),
        _ => {
            let end = end_of(packet);
            if let Some(covered) = packet.get(start..end.max(start)) {
                let value = Sum::ZERO.bytes(covered).finish_udp();
                put(packet, at, value);
            }
        }
    }
}

/// Completes the checksum of a packet of which only that it lacks one is known (a ring says no more). False if it is neither TCP
/// nor UDP, and nothing was changed.
pub(crate) fn complete_unmarked(packet: &mut [u8]) -> bool {
    if let Some(place) = place(packet) {
        write_checksum(packet, &place);
        return true;
    }
    let Ok(layout) = Layout::parse_unverified(packet) else {
        return false;
    };
    let start = layout.transport_offset();
    let sctp = is_sctp(packet, start, start + 8);
    if sctp {
        write_crc(packet, start);
    }
    sctp
}

/// Completes the checksum of a TCP or UDP packet whose field holds the sum of its pseudo header: what a sender leaves that counts
/// on hardware. Returns whether it was one. A packet with a right checksum stays as it is, even if that is this sum.
pub(crate) fn complete_if_partial(packet: &mut [u8]) -> bool {
    let Some(place) = place(packet) else {
        return false;
    };
    let [high, low] = pseudo_sum(packet, &place).finish();
    let at = place.transport_at + place.field;
    let partial = packet.get(at..at + 2) == Some(&[!high, !low]);
    if partial {
        write_checksum(packet, &place);
    }
    partial
}

/// The end of the IP packet: Ethernet's padding is not summed.
fn end_of(packet: &[u8]) -> usize {
    Layout::parse_unverified(packet).map_or(packet.len(), |layout| layout.end())
}

fn is_sctp(packet: &[u8], start: usize, at: usize) -> bool {
    at == start + 8
        && Layout::parse_unverified(packet).is_ok_and(|layout| {
            layout.protocol() == SCTP
                && layout.transport_offset() == start
                && matches!(layout.network(), Network::Ipv4 | Network::Ipv6)
        })
}

/// SCTP's checksum is CRC32c over the packet with the field zero (RFC 9260 §6.8 and appendix A), least byte first.
fn write_crc(packet: &mut [u8], start: usize) {
    let end = end_of(packet);
    let Some(covered) = packet.get_mut(start..end) else {
        return;
    };
    if covered.len() < 12 {
        return;
    }
    covered[8..12].fill(0);
    let mut crc = u32::MAX;
    for byte in covered.iter() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1));
        }
    }
    covered[8..12].copy_from_slice(&(!crc).to_le_bytes());
}
