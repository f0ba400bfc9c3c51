//! Frames read by offsets, apart from `asterism-packet`, which is what is judged.
//!
//! Only Ethernet II without tags, and IPv4: everything else is left out of recordings.

use core::net::Ipv4Addr;
use core::ops::Range;

/// Where the IPv4 header begins.
pub(crate) const IP: usize = 14;
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;

/// An address with a port, or an ICMP identifier, or zero where there is neither.
pub(crate) type End = (Ipv4Addr, u16);

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(octets.into())
}

/// The one's complement sum of bytes, not folded.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2);
    words
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)))
        .sum()
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// An IPv4 packet in a frame, whole or as quoted by an ICMP error.
#[derive(Clone, Debug)]
pub(crate) struct Ip {
    pub(crate) at: usize,
    pub(crate) transport: usize,
    /// Where the bytes at hand end: the packet's end, or the quotation's.
    pub(crate) end: usize,
    /// Bytes that the header says.
    pub(crate) length: usize,
    pub(crate) protocol: u8,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) identification: u16,
    /// In bytes.
    pub(crate) offset: usize,
    pub(crate) more: bool,
}

impl Ip {
    /// The packet of a frame; `None` if it is not IPv4 or not all there.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        if word(frame, 12)? != 0x0800 {
            return None;
        }
        let ip = Self::at(frame, IP, frame.len())?;
        (ip.length <= frame.len() - IP).then_some(ip)
    }

    fn at(bytes: &[u8], at: usize, limit: usize) -> Option<Self> {
        let first = *bytes.get(at)?;
        let header = usize::from(first & 15) * 4;
        let length = usize::from(word(bytes, at + 2)?);
        let fragment = word(bytes, at + 6)?;
        let ip = Self {
            at,
            transport: at + header,
            end: limit.min(at + length),
            length,
            protocol: *bytes.get(at + 9)?,
            source: address(bytes, at + 12)?,
            destination: address(bytes, at + 16)?,
            identification: word(bytes, at + 4)?,
            offset: usize::from(fragment & 0x1fff) * 8,
            more: fragment & 0x2000 != 0,
        };
        (first >> 4 == 4 && header >= 20 && ip.transport <= ip.end).then_some(ip)
    }

    pub(crate) fn is_fragment(&self) -> bool {
        self.more || self.offset != 0
    }

    /// The transport layer that is at hand.
    pub(crate) fn body(&self) -> Range<usize> {
        self.transport..self.end
    }

    pub(crate) fn icmp_type(&self, bytes: &[u8]) -> Option<u8> {
        (self.protocol == ICMP && self.offset == 0)
            .then(|| bytes.get(self.transport).copied())
            .flatten()
    }

    pub(crate) fn is_icmp_error(&self, bytes: &[u8]) -> bool {
        matches!(self.icmp_type(bytes), Some(3 | 4 | 5 | 11 | 12))
    }

    /// The control bits of a TCP segment.
    pub(crate) fn tcp_flags(&self, bytes: &[u8]) -> Option<u8> {
        (self.protocol == TCP && self.offset == 0 && self.transport + 14 <= self.end)
            .then(|| bytes[self.transport + 13])
    }

    /// The packet that an ICMP error quotes.
    pub(crate) fn quoted(&self, bytes: &[u8]) -> Option<Self> {
        self.is_icmp_error(bytes)
            .then(|| Self::at(bytes, self.transport + 8, self.end))
            .flatten()
    }

    /// Where the checksum of the transport layer stands, if it is at hand.
    pub(crate) fn checksum_at(&self) -> Option<usize> {
        let offset = match self.protocol {
            TCP => 16,
            UDP => 6,
            ICMP => 2,
            _ => return None,
        };
        (self.offset == 0 && self.transport + offset + 2 <= self.end)
            .then_some(self.transport + offset)
    }

    /// The pseudo header's part of a transport checksum; none of ICMP.
    pub(crate) fn pseudo_header(&self) -> u64 {
        if self.protocol == ICMP {
            return 0;
        }
        let length = self.length - (self.transport - self.at);
        sum(&self.source.octets())
            + sum(&self.destination.octets())
            + u64::from(self.protocol)
            + length as u64
    }

    /// Whether the transport checksum is right; `None` where it cannot be known: fragments, UDP without one.
    pub(crate) fn checksum_is_right(&self, bytes: &[u8]) -> Option<bool> {
        let at = self.checksum_at()?;
        if self.is_fragment() || self.protocol == UDP && word(bytes, at) == Some(0) {
            return None;
        }
        Some(fold(self.pseudo_header() + sum(&bytes[self.body()])) == 0xffff)
    }

    /// Both ends: with ports, an ICMP query's identifier at the end that asked, else zero.
    pub(crate) fn ends(&self, bytes: &[u8]) -> (End, End) {
        let (mut source, mut destination) = ((self.source, 0), (self.destination, 0));
        for place in self.places(bytes) {
            if place.is_source {
                source.1 = place.port;
            } else {
                destination.1 = place.port;
            }
        }
        (source, destination)
    }

    /// Where ports stand.
    pub(crate) fn places(&self, bytes: &[u8]) -> Vec<Place> {
        let mut places = Vec::new();
        let mut add = |at: usize, is_source| {
            if at + 2 <= self.end
                && let Some(port) = word(bytes, at)
            {
                places.push(Place {
                    at,
                    port,
                    is_source,
                });
            }
        };
        if self.offset == 0 && self.transport + 8 <= self.end {
            match (self.protocol, self.icmp_type(bytes)) {
                (TCP | UDP, _) => {
                    add(self.transport, true);
                    add(self.transport + 2, false);
                }
                (ICMP, Some(8 | 13 | 15 | 17)) => add(self.transport + 4, true),
                (ICMP, Some(0 | 14 | 16 | 18)) => add(self.transport + 4, false),
                _ => {}
            }
        }
        places
    }
}

/// Where a port stands in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) port: u16,
    pub(crate) is_source: bool,
}

/// Replaces a word and repairs the checksum at `checksum_at` by RFC 1624, equation 3. A UDP checksum of zero stays.
pub(crate) fn replace(bytes: &mut [u8], at: usize, new: u16, checksum_at: usize, is_udp: bool) {
    let (Some(old), Some(checksum)) = (word(bytes, at), word(bytes, checksum_at)) else {
        return;
    };
    put(bytes, at, new);
    if is_udp && checksum == 0 {
        return;
    }
    let mut repaired = !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new));
    if is_udp && repaired == 0 {
        repaired = 0xffff;
    }
    put(bytes, checksum_at, repaired);
}
