//! Packets made manually, and a firewall for them.

use core::net::Ipv4Addr;

use asterism_function::build::{self, Header4, Segment};
use asterism_function::testkit::Testkit;
use asterism_function::{PortNumber, Reason, TcpFlags, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};

pub(crate) const INSIDE: PortNumber = PortNumber(0);
pub(crate) const OUTSIDE: PortNumber = PortNumber(1);
pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const RST: TcpFlags = TcpFlags::RST;
pub(crate) const SYN_ACK: TcpFlags = TcpFlags(SYN.0 | ACK.0);
pub(crate) const FIN_ACK: TcpFlags = TcpFlags(TcpFlags::FIN.0 | ACK.0);

/// Inside may begin everything, outside only connections to port 80; port 23 is a trap.
pub(crate) const RULES: &str = "block 2m tcp on outside to any port 23 log\n\
     allow tcp on outside to any port 80\n\
     allow any on inside\n";

pub(crate) fn config() -> FirewallConfig {
    FirewallConfig {
        rules: read_rules(RULES).expect("good rules"),
        settle_us: 0,
        ..FirewallConfig::default()
    }
}

pub(crate) fn kit() -> Testkit<Firewall> {
    Testkit::new(Firewall::new(config()))
}

/// An address by a number: below 1,000,000 inside, above outside.
pub(crate) fn host(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(10 << 24 | number)
}

pub(crate) fn frame(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut bytes = vec![0; 1_600];
    let length = write(&mut bytes).expect("it fits");
    bytes.truncate(length);
    bytes
}

/// A segment with numbers, a window of 64,000 and so many bytes of data.
pub(crate) fn tcp(
    from: (u32, u16),
    to: (u32, u16),
    flags: TcpFlags,
    (sequence, acknowledgement): (u32, u32),
    length: usize,
) -> Vec<u8> {
    let segment = Segment {
        sequence,
        acknowledgement,
        window: 64_000,
        ..Segment::with_flags(flags)
    };
    let header = Header4::between(host(from.0), host(to.0));
    frame(|out| build::tcp4(&header, from.1, to.1, &segment, &vec![7; length], out))
}

pub(crate) fn udp(from: (u32, u16), to: (u32, u16)) -> Vec<u8> {
    let header = Header4::between(host(from.0), host(to.0));
    frame(|out| build::udp4(&header, from.1, to.1, b"x", out))
}

pub(crate) fn echo(icmp_type: u8, from: u32, to: u32) -> Vec<u8> {
    let header = Header4::between(host(from), host(to));
    frame(|out| build::icmp4(&header, icmp_type, 0, [0, 9, 0, 1], b"", out))
}

/// The same packet over IPv6: addresses that end as the IPv4 ones do, no checksums.
pub(crate) fn to_ipv6(frame: &[u8]) -> Vec<u8> {
    let transport = &frame[34..];
    let protocol = if frame[23] == 1 { 58 } else { frame[23] };
    let mut bytes = frame[..12].to_vec();
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend((transport.len() as u16).to_be_bytes());
    bytes.extend([protocol, 64]);
    for at in [26, 30] {
        bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(&frame[at..at + 4]);
    }
    bytes.extend(transport);
    if protocol == 58 {
        bytes[54] = if bytes[54] == 8 { 128 } else { 129 };
    }
    bytes
}

/// One of several parts of an IPv4 packet: `data` from an offset in bytes.
pub(crate) fn part(frame: &[u8], offset: u16, length: usize, more: bool) -> Vec<u8> {
    let from = 34 + usize::from(offset);
    let mut bytes = frame[..34].to_vec();
    bytes.extend(&frame[from..(from + length).min(frame.len())]);
    let total = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    let word = (offset / 8) | if more { 0x2000 } else { 0 };
    bytes[20..22].copy_from_slice(&word.to_be_bytes());
    bytes[24..26].copy_from_slice(&[0, 0]);
    let mut sum: u32 = bytes[14..34]
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    bytes
}

pub(crate) fn passes(kit: &mut Testkit<Firewall>, port: PortNumber, frame: &[u8]) {
    let outcome = kit.packet(port, frame);
    assert_eq!(outcome.verdict, Verdict::Forward(PortNumber(port.0 ^ 1)));
    assert_eq!(outcome.packet, frame, "it leaves as it came");
}

pub(crate) fn drops(kit: &mut Testkit<Firewall>, port: PortNumber, frame: &[u8], reason: Reason) {
    assert_eq!(kit.packet(port, frame).verdict, Verdict::Drop(reason));
}
