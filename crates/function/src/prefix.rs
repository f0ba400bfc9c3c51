//! IP prefixes of either version, and sets of them. The two versions never meet: an IPv6 prefix holds no IPv4 address,
//! although [`Host`] keeps IPv4 addresses in their mapped form. Read `host.rs` first.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Host;

/// Leading bits that all IPv4-mapped addresses share, `::ffff:0:0/96` (RFC 4291 §2.5.5.2).
const MAPPED_BITS: u8 = 96;
/// The first and the last IPv4-mapped address.
const MAPPED: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

/// A network of either IP version: addresses of that version that share their leading bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    first: Host,
    /// Leading bits of 128; of IPv4 never less than [`MAPPED_BITS`].
    bits: u8,
    is_ipv4: bool,
}

/// Why an address and a length are no prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpPrefixError {
    /// The text before the slash is no address.
    Address,
    /// The length is no number, or the address has fewer bits.
    Length {
        /// The most bits that the address has.
        most: u8,
    },
    /// Bits of the address behind the length are set.
    HostBits {
        /// The prefix of that length.
        network: IpPrefix,
        /// The prefix of the address alone.
        host: IpPrefix,
    },
    /// IPv4 addresses in their IPv6 form, which no packet has.
    Mapped {
        /// The same addresses in IPv4's own form.
        ipv4: IpPrefix,
    },
}

impl IpPrefix {
    /// All IPv4 addresses.
    pub const IPV4: Self = Self::of_bits(MAPPED.0, MAPPED_BITS, true);
    /// All IPv6 addresses.
    pub const IPV6: Self = Self::of_bits(0, 0, false);
    /// The last IPv6 address.
    pub const IPV6_LAST: Self = Self::of_bits(u128::MAX, 128, false);

    const fn of_bits(address: u128, bits: u8, is_ipv4: bool) -> Self {
        Self {
            first: Host::from_bits(address & mask(bits)),
            bits,
            is_ipv4,
        }
    }

    /// The prefix of so many leading bits of an address: 0 to 32 of IPv4, 0 to 128 of IPv6.
    ///
    /// # Errors
    /// The length is too large, bits behind it are set, or all addresses are IPv4-mapped.
    pub const fn new(address: IpAddr, length: u8) -> Result<Self, IpPrefixError> {
        let (address, bits, is_ipv4) = match address {
            IpAddr::V4(_) if length > 32 => return Err(IpPrefixError::Length { most: 32 }),
            IpAddr::V4(address) => (
                MAPPED.0 | address.to_bits() as u128,
                MAPPED_BITS + length,
                true,
            ),
            IpAddr::V6(_) if length > 128 => return Err(IpPrefixError::Length { most: 128 }),
            IpAddr::V6(address) => (address.to_bits(), length, false),
        };
        let is_mapped = MAPPED.0 <= address && address <= MAPPED.1;
        let network = Self::of_bits(address, bits, is_ipv4);
        if !is_ipv4 && is_mapped && bits >= MAPPED_BITS {
            return Err(IpPrefixError::Mapped {
                ipv4: Self::of_bits(address, bits, true),
            });
        }
        if network.first.to_bits() != address {
            return Err(IpPrefixError::HostBits {
                network,
                host: Self::of_bits(address, 128, is_mapped),
            });
        }
        Ok(network)
    }

    /// Whether it holds IPv4 addresses; it holds IPv6 addresses otherwise.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.is_ipv4
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self.is_ipv4 {
            true => IpAddr::V4(Ipv4Addr::from_bits(self.first.to_bits() as u32)),
            false => IpAddr::V6(Ipv6Addr::from_bits(self.first.to_bits())),
        }
    }

    /// Its first address, as a key.
    #[must_use]
    pub const fn first(&self) -> Host {
        self.first
    }

    /// How many leading bits of [`Host::to_bits`] count: of IPv4 96 and its length.
    #[must_use]
    pub const fn key_bits(&self) -> u8 {
        self.bits
    }

    /// How many leading bits of its own version count.
    #[must_use]
    pub const fn length(&self) -> u8 {
        match self.is_ipv4 {
            true => self.bits - MAPPED_BITS,
            false => self.bits,
        }
    }

    /// Whether it holds one address only.
    #[must_use]
    pub const fn is_host(&self) -> bool {
        self.bits == 128
    }

    /// Whether it holds an address: never one of the other version.
    #[inline]
    #[must_use]
    pub const fn contains(&self, host: Host) -> bool {
        host.is_ipv4() == self.is_ipv4
            && (host.to_bits() ^ self.first.to_bits()) & mask(self.bits) == 0
    }

    /// Whether two prefixes share an address: one of them holds the other then.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        let common = mask(match self.bits < other.bits {
            true => self.bits,
            false => other.bits,
        });
        self.is_ipv4 == other.is_ipv4
            && (self.first.to_bits() ^ other.first.to_bits()) & common == 0
    }

    /// Its addresses as ranges in [`Host`]'s order, first and last included: one range, but two of an IPv6 prefix that surrounds
    /// the place where [`Host`] keeps IPv4.
    pub fn ranges(&self) -> impl Iterator<Item = (Host, Host)> + use<> {
        let (first, last) = (
            self.first.to_bits(),
            self.first.to_bits() | !mask(self.bits),
        );
        let surrounds = !self.is_ipv4 && first <= MAPPED.0 && MAPPED.1 <= last;
        let ranges = match surrounds {
            true => [Some((first, MAPPED.0 - 1)), Some((MAPPED.1 + 1, last))],
            false => [Some((first, last)), None],
        };
        let hosts = |(first, last)| (Host::from_bits(first), Host::from_bits(last));
        ranges.into_iter().flatten().map(hosts)
    }
}

impl core::str::FromStr for IpPrefix {
    type Err = IpPrefixError;
    /// An address, which is a prefix of its own, or an address with a length behind a slash.
    fn from_str(text: &str) -> Result<Self, IpPrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| IpPrefixError::Address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            // A sign, which Rust's numbers may have, is no part of a length.
            Some(length) if length.starts_with('+') => return Err(IpPrefixError::Length { most }),
            Some(length) => length.parse().map_err(|_| IpPrefixError::Length { most })?,
        };
        Self::new(address, length)
    }
}

impl core::fmt::Display for IpPrefix {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{}/{}", self.address(), self.length())
    }
}

impl core::fmt::Debug for IpPrefix {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, formatter)
    }
}

impl core::fmt::Display for IpPrefixError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Address => formatter.write_str(
                "this is no address; write an address or a prefix, such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32",
            ),
            Self::Length { most } => {
                write!(formatter, "this is no prefix length; write 0 to {most}")
            }
            Self::HostBits { network, host } => write!(
                formatter,
                "bits behind the prefix length are set; write {network} for the network, or {} for the address",
                host.address()
            ),
            Self::Mapped { ipv4 } => write!(
                formatter,
                "no packet has an IPv4 address in this form; write {ipv4}"
            ),
        }
    }
}

impl core::error::Error for IpPrefixError {}

/// Addresses of any number of prefixes, for looking up one address by halving.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IpPrefixSet {
    /// Disjoint, in order.
    ranges: Vec<(Host, Host)>,
}

impl IpPrefixSet {
    /// Whether the set holds no address.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether one of the prefixes holds an address. Does not allocate.
    #[inline]
    #[must_use]
    pub fn contains(&self, host: Host) -> bool {
        let behind = self.ranges.partition_point(|(first, _)| *first <= host);
        behind > 0 && host <= self.ranges[behind - 1].1
    }
}

impl FromIterator<IpPrefix> for IpPrefixSet {
    fn from_iter<I: IntoIterator<Item = IpPrefix>>(prefixes: I) -> Self {
        let mut ranges: Vec<_> = prefixes
            .into_iter()
            .flat_map(|prefix| prefix.ranges())
            .collect();
        ranges.sort_unstable();
        let mut disjoint: Vec<(Host, Host)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match disjoint.last_mut() {
                Some((_, end)) if first <= *end => *end = last.max(*end),
                _ => disjoint.push((first, last)),
            }
        }
        Self { ranges: disjoint }
    }
}

#[inline(always)]
const fn mask(bits: u8) -> u128 {
    match bits {
        0 => 0,
        _ => u128::MAX << (128 - bits as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> IpPrefix {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn host(text: &str) -> Host {
        text.parse::<IpAddr>().unwrap().into()
    }

    const ADDRESSES: [&str; 12] = [
        "0.0.0.0",
        "10.0.0.7",
        "10.255.255.255",
        "203.0.113.9",
        "255.255.255.255",
        "::",
        "::1",
        "::fffe:ffff:ffff",
        "::1:0:0:0",
        "2001:db8::1",
        "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ];

    #[test]
    fn a_prefix_holds_addresses_of_its_own_version_alone() {
        for (text, held) in [
            ("::/0", &ADDRESSES[5..]),
            ("0.0.0.0/0", &ADDRESSES[..5]),
            ("::/64", &ADDRESSES[5..9]),
            ("::/80", &ADDRESSES[5..8]),
            ("::/95", &ADDRESSES[5..7]),
            ("10.0.0.0/8", &ADDRESSES[1..3]),
            ("10.0.0.7", &ADDRESSES[1..2]),
            ("2001:db8::/32", &ADDRESSES[9..11]),
            ("::1", &ADDRESSES[6..7]),
        ] {
            let one = prefix(text);
            let set: IpPrefixSet = [one].into_iter().collect();
            for address in ADDRESSES {
                let is_held = held.contains(&address);
                assert_eq!(one.contains(host(address)), is_held, "{text} {address}");
                assert_eq!(set.contains(host(address)), is_held, "{text} {address}");
                let mut ranges = one.ranges();
                let in_range = ranges.any(|(first, last)| (first..=last).contains(&host(address)));
                assert_eq!(in_range, is_held, "{text} {address}");
            }
            assert!(!one.contains(host("10.0.0.7")) || one.is_ipv4());
            assert_eq!(prefix(&one.to_string()), one);
        }
        assert_eq!(
            (prefix("::/0"), prefix("0.0.0.0/0")),
            (IpPrefix::IPV6, IpPrefix::IPV4)
        );
    }

    #[test]
    fn prefixes_of_two_versions_do_not_overlap() {
        for (one, other, overlap) in [
            ("::/0", "0.0.0.0/0", false),
            ("::/0", "10.0.0.0/8", false),
            ("::/0", "2001:db8::/32", true),
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "11.0.0.0/8", false),
        ] {
            let (one, other) = (prefix(one), prefix(other));
            assert_eq!(one.overlaps(&other), overlap, "{one} {other}");
            assert_eq!(other.overlaps(&one), overlap, "{other} {one}");
        }
        let set: IpPrefixSet = ["10.0.0.0/8", "10.1.0.0/16", "9.0.0.0/8", "::/0"]
            .map(prefix)
            .into_iter()
            .collect();
        for (address, held) in [("10.1.2.3", true), ("9.1.1.1", true), ("8.8.8.8", false)] {
            assert_eq!(set.contains(host(address)), held, "{address}");
        }
        assert!(set.contains(host("::fffe:0:1")) && !IpPrefixSet::default().contains(host("::")));
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_what_to_write() {
        for (text, said) in [
            ("::ffff:10.0.0.0/104", "write 10.0.0.0/8"),
            ("::ffff:a00:7", "write 10.0.0.7/32"),
            ("::ffff:0:0/96", "write 0.0.0.0/0"),
            ("::ffff:10.0.0.1/104", "write 10.0.0.0/8"),
            (
                "::ffff:10.0.0.0/64",
                "write ::/64 for the network, or 10.0.0.0 for the address",
            ),
            (
                "10.0.0.1/8",
                "write 10.0.0.0/8 for the network, or 10.0.0.1",
            ),
            ("2001:db8::1/32", "write 2001:db8::/32"),
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("10.0.0.0/-1", "0 to 32"),
            ("2001:db8::/129", "0 to 128"),
            ("2001:db8::/300", "0 to 128"),
            ("office", "no address"),
            ("10.0.0.0/8/8", "0 to 32"),
            ("", "no address"),
        ] {
            let error = text.parse::<IpPrefix>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
