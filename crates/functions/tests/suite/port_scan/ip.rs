//! IP packets of any protocol, fragments, and ICMP errors.

use asterism_function::IpPrefix;
use asterism_function::build::{self, Header4};

use crate::port_scan::packets::host;

/// The prefix that holds an address alone.
pub(crate) fn alone(address: impl Into<core::net::IpAddr>) -> IpPrefix {
    address.into().to_string().parse().expect("an address")
}

/// An IPv4 packet of any protocol, whole or a fragment: its offset in bytes, and whether more follow.
pub(crate) fn ip(
    (from, to): (u16, u16),
    (protocol, ttl): (u8, u8),
    (offset, more): (u16, bool),
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 14 + 20];
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    bytes[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    let fragment = (u16::from(more) << 13) | (offset / 8);
    bytes[20..22].copy_from_slice(&fragment.to_be_bytes());
    bytes[22..24].copy_from_slice(&[ttl, protocol]);
    bytes[26..30].copy_from_slice(&host(from).octets());
    bytes[30..34].copy_from_slice(&host(to).octets());
    let sum: u32 = bytes[14..34]
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A UDP datagram with so many hops left.
pub(crate) fn udp_ttl(from: (u16, u16), to: (u16, u16), ttl: u8) -> Vec<u8> {
    let mut payload = Vec::new();
    for word in [from.1, to.1, 12, 0, 0, 0] {
        payload.extend(word.to_be_bytes());
    }
    ip((from.0, to.0), (17, ttl), (0, false), &payload)
}

/// What a host says of a frame's IP packet: an ICMP error of this type and code, which quotes its first 28 bytes, to who sent it.
pub(crate) fn icmp_error(reporter: u16, (icmp_type, code): (u8, u8), frame: &[u8]) -> Vec<u8> {
    let quoted = &frame[14..frame.len().min(14 + 28)];
    let to = u16::from_be_bytes([frame[28], frame[29]]);
    let ends = Header4::between(host(reporter), host(to));
    let mut bytes = vec![0; 128];
    let length = build::icmp4(&ends, icmp_type, code, [0; 4], quoted, &mut bytes);
    bytes.truncate(length.expect("it fits"));
    bytes
}
