//! Addresses of either IP version as keys.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use asterism_packet::Packet;
use asterism_state::{BadBytes, Key, Reader, Wire, Writer, hash, layout};

/// An address of either IP version in two words; IPv4 is held in its mapped form (RFC 4291 §2.5.5.2).
///
/// No IPv6 packet has such an address: the parse refuses it ([`Malformed::MappedAddress`](crate::Malformed)), so the two versions
/// never meet in a key. Ranges of addresses are made by [`IpPrefix`](crate::IpPrefix), which leaves IPv4's place out of IPv6's ranges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Host {
    high: u64,
    low: u64,
}

/// The words of a mapped IPv4 address but for the address.
const MAPPED: u64 = 0xffff_0000_0000;

impl Host {
    /// Source and destination of an IP packet; `None` of what is none.
    #[inline(always)]
    #[must_use]
    pub fn ends(packet: &Packet<'_>) -> Option<(Self, Self)> {
        if let (Some(source), Some(destination)) = (packet.ipv4_source(), packet.ipv4_destination())
        {
            return Some((source.into(), destination.into()));
        }
        Some((
            packet.ipv6_source()?.into(),
            packet.ipv6_destination()?.into(),
        ))
    }

    /// Both words in one number: the order in which prefixes are ranges.
    #[must_use]
    pub const fn to_bits(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    pub(crate) const fn from_bits(bits: u128) -> Self {
        Self {
            high: (bits >> 64) as u64,
            low: bits as u64,
        }
    }

    /// The address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        if self.is_ipv4() {
            IpAddr::V4(Ipv4Addr::from_bits(self.low as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(self.to_bits()))
        }
    }

    /// Whether packets for this address go to several hosts: multicast, and IPv4's limited broadcast.
    #[inline(always)]
    #[must_use]
    pub const fn is_group(self) -> bool {
        if self.is_ipv4() {
            self.low as u32 >= 0xe000_0000
        } else {
            self.high >> 56 == 0xff
        }
    }

    /// Both words, for hashing.
    #[inline(always)]
    #[must_use]
    pub const fn words(self) -> (u64, u64) {
        (self.high, self.low)
    }

    /// Whether it is an IPv4 address.
    #[inline(always)]
    #[must_use]
    pub const fn is_ipv4(self) -> bool {
        self.high == 0 && self.low >> 32 == MAPPED >> 32
    }
}

impl From<Ipv4Addr> for Host {
    #[inline(always)]
    fn from(address: Ipv4Addr) -> Self {
        Self {
            high: 0,
            low: MAPPED | u64::from(address.to_bits()),
        }
    }
}

impl From<Ipv6Addr> for Host {
    #[inline(always)]
    fn from(address: Ipv6Addr) -> Self {
        Self::from_bits(address.to_bits())
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl core::fmt::Display for Host {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.address().fmt(formatter)
    }
}

/// As people know it: entries of a state are found by this text.
impl core::fmt::Debug for Host {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, formatter)
    }
}

/// A version byte, then the address as [`Writer::address`] or 16 bytes.
impl Wire for Host {
    const LAYOUT: u64 = layout::manual("host", 1);
    const BYTES_MAX: usize = 17;
    fn encode(&self, out: &mut Writer<'_>) {
        if self.is_ipv4() {
            out.u8(4);
            out.address(self.low as u32);
        } else {
            out.u8(6);
            out.u64(self.high);
            out.u64(self.low);
        }
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        match input.u8()? {
            4 => Ok(Ipv4Addr::from_bits(input.address()?).into()),
            6 => {
                let host = Self {
                    high: input.u64()?,
                    low: input.u64()?,
                };
                // An IPv4 address has one form on the wire.
                if host.is_ipv4() {
                    Err(BadBytes)
                } else {
                    Ok(host)
                }
            }
            _ => Err(BadBytes),
        }
    }
}

impl Key for Host {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        hash::words(self.low, self.high, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_in_memory_and_on_the_wire() {
        for text in [
            "0.0.0.0",
            "203.0.113.9",
            "255.255.255.255",
            "2001:db8::1",
            "::1",
            "ff02::fb",
            "::ffff:1.2.3.4",
        ] {
            let host = Host::from(text.parse::<IpAddr>().unwrap());
            let mut bytes = Vec::new();
            host.encode(&mut Writer::new(&mut bytes, &[0xcb00_7109]));
            assert_eq!(
                Host::decode(&mut Reader::new(&bytes, &[0xcb00_7109])),
                Ok(host),
                "{text}"
            );
            assert_eq!(host.to_string(), text.replace("::ffff:", ""));
            assert_eq!(format!("{host:?}"), host.to_string(), "as it is sought");
        }
    }

    #[test]
    fn an_ipv4_address_has_one_form_on_the_wire() {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes, &[]);
        out.u8(6);
        out.u64(0);
        out.u64(MAPPED | 1);
        assert_eq!(Host::decode(&mut Reader::new(&bytes, &[])), Err(BadBytes));
    }

    #[test]
    fn groups_are_reported_from_hosts() {
        for (text, group) in [
            ("224.0.0.251", true),
            ("255.255.255.255", true),
            ("223.255.255.255", false),
            ("ff02::1", true),
            ("fe80::1", false),
        ] {
            assert_eq!(
                Host::from(text.parse::<IpAddr>().unwrap()).is_group(),
                group,
                "{text}"
            );
        }
    }
}
