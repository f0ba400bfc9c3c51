//! Packets made manually.

use asterism_function::TcpFlags;
use asterism_function::build::{self, Header4, Segment};

/// An address by its last two bytes.
pub(crate) fn host(number: u16) -> core::net::Ipv4Addr {
    core::net::Ipv4Addr::from_bits(10 << 24 | u32::from(number))
}

fn frame(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut bytes = vec![0; 1_600];
    let length = write(&mut bytes).expect("it fits");
    bytes.truncate(length);
    bytes
}

/// A TCP segment from (host, port) to (host, port).
pub(crate) fn tcp(from: (u16, u16), to: (u16, u16), flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
    let refuses = flags == TcpFlags::RST | TcpFlags::ACK;
    let segment = Segment {
        sequence: if refuses { 0 } else { 7 },
        ..Segment::with_flags(flags)
    };
    frame(|out| {
        build::tcp4(
            &Header4::between(host(from.0), host(to.0)),
            from.1,
            to.1,
            &segment,
            payload,
            out,
        )
    })
}

/// A SYN.
pub(crate) fn syn(from: u16, to: (u16, u16)) -> Vec<u8> {
    tcp((from, 40_000), to, TcpFlags::SYN, b"")
}

/// A UDP datagram.
pub(crate) fn udp(from: (u16, u16), to: (u16, u16), payload: &[u8]) -> Vec<u8> {
    frame(|out| {
        build::udp4(
            &Header4::between(host(from.0), host(to.0)),
            from.1,
            to.1,
            payload,
            out,
        )
    })
}

/// An echo request.
pub(crate) fn ping(from: u16, to: u16) -> Vec<u8> {
    frame(|out| {
        build::icmp4(
            &Header4::between(host(from), host(to)),
            8,
            0,
            [0, 1, 0, 1],
            b"",
            out,
        )
    })
}

/// A SYN over IPv6, from and to `2001:db8::number`.
pub(crate) fn syn6(from: u16, to: (u16, u16)) -> Vec<u8> {
    let mut bytes = vec![0; 14 + 40 + 20];
    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    let (address, rest) = (14 + 8, 14 + 40);
    bytes[14] = 0x60;
    bytes[19] = 20;
    bytes[20..22].copy_from_slice(&[6, 64]);
    for (at, number) in [(address, from), (address + 16, to.0)] {
        bytes[at..at + 4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        bytes[at + 14..at + 16].copy_from_slice(&number.to_be_bytes());
    }
    bytes[rest..rest + 2].copy_from_slice(&40_000u16.to_be_bytes());
    bytes[rest + 2..rest + 4].copy_from_slice(&to.1.to_be_bytes());
    bytes[rest + 12..rest + 14].copy_from_slice(&[5 << 4, 2]);
    bytes
}
