//! Packets made manually.

use asterism_function::IpPrefix;
use asterism_function::build::{self, Header4};

/// An address by its last two bytes.
pub(crate) fn host(number: u16) -> core::net::Ipv4Addr {
    core::net::Ipv4Addr::from_bits(10 << 24 | u32::from(number))
}

/// The /24 that an address lies in.
pub(crate) fn network(number: u16) -> IpPrefix {
    IpPrefix::new(host(number & 0xff00).into(), 24).expect("a network")
}

/// A UDP datagram of an IP packet of `bytes` bytes, 28 at least.
pub(crate) fn udp(from: (u16, u16), to: (u16, u16), bytes: usize) -> Vec<u8> {
    let header = Header4::between(host(from.0), host(to.0));
    let payload = vec![0; bytes - 28];
    let mut frame = vec![0; 1_600];
    let length = build::udp4(&header, from.1, to.1, &payload, &mut frame).expect("it fits");
    frame.truncate(length);
    frame
}

/// An echo request with an identifier.
pub(crate) fn echo(from: u16, to: u16, identifier: u16) -> Vec<u8> {
    let header = Header4::between(host(from), host(to));
    let [high, low] = identifier.to_be_bytes();
    let mut frame = vec![0; 128];
    let rest = [high, low, 0, 1];
    let length = build::icmp4(&header, 8, 0, rest, b"", &mut frame).expect("it fits");
    frame.truncate(length);
    frame
}
