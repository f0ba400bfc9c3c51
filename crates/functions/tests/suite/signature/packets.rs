//! Packets and signatures made manually.

use asterism_function::TcpFlags;
use asterism_function::build::{self, Header4, Segment};
use asterism_functions::signature::{Carrier, Signature, SignatureConfig, Signatures};

/// An endpoint: an address's last two bytes, and a port.
pub(crate) type End = (u16, u16);

pub(crate) fn host(number: u16) -> core::net::Ipv4Addr {
    core::net::Ipv4Addr::from_bits(10 << 24 | u32::from(number))
}

fn frame(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut bytes = vec![0; 3_000];
    let length = write(&mut bytes).expect("it fits");
    bytes.truncate(length);
    bytes
}

/// A TCP segment.
pub(crate) fn tcp(from: End, to: End, sequence: u32, payload: &[u8]) -> Vec<u8> {
    flagged(from, to, sequence, TcpFlags::ACK, payload)
}

/// A TCP segment with the flags of choice.
pub(crate) fn flagged(
    from: End,
    to: End,
    sequence: u32,
    flags: TcpFlags,
    payload: &[u8],
) -> Vec<u8> {
    let segment = Segment {
        sequence,
        ..Segment::with_flags(flags)
    };
    frame(|out| {
        let header = Header4::between(host(from.0), host(to.0));
        build::tcp4(&header, from.1, to.1, &segment, payload, out)
    })
}

/// A UDP datagram.
pub(crate) fn udp(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    frame(|out| {
        let header = Header4::between(host(from.0), host(to.0));
        build::udp4(&header, from.1, to.1, payload, out)
    })
}

/// A TCP segment over IPv6, between `2001:db8::number`.
pub(crate) fn tcp6(from: End, to: End, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14 + 40 + 20];
    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    bytes[14] = 0x60;
    bytes[18..20].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    bytes[20..22].copy_from_slice(&[6, 64]);
    for (at, number) in [(22, from.0), (38, to.0)] {
        bytes[at..at + 4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        bytes[at + 14..at + 16].copy_from_slice(&number.to_be_bytes());
    }
    bytes[54..56].copy_from_slice(&from.1.to_be_bytes());
    bytes[56..58].copy_from_slice(&to.1.to_be_bytes());
    bytes[58..62].copy_from_slice(&sequence.to_be_bytes());
    bytes[66..68].copy_from_slice(&[5 << 4, 0x10]);
    bytes.extend_from_slice(payload);
    bytes
}

/// An IPv4 TCP packet made its datagram's first fragment.
pub(crate) fn first_fragment(mut frame: Vec<u8>) -> Vec<u8> {
    frame[20] = 0x20;
    frame[24..26].copy_from_slice(&[0, 0]);
    let sum: u32 = frame[14..34]
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Signatures of these bytes, numbered from 1, for any carrier and port.
pub(crate) fn list(bytes: &[&[u8]]) -> Vec<Signature> {
    bytes
        .iter()
        .enumerate()
        .map(|(place, bytes)| Signature {
            id: place as u32 + 1,
            message: format!("test {place}"),
            bytes: bytes.to_vec(),
            carrier: Carrier::Any,
            ports: Vec::new(),
        })
        .collect()
}

/// The function of a configuration without faults.
pub(crate) fn made(config: &SignatureConfig) -> Signatures {
    Signatures::new(config.clone()).expect("a configuration without faults")
}
