//! Which addresses count as one source, and which sources leave no evidence.

use core::net::Ipv6Addr;

use asterism_function::{Host, IpPrefix, IpPrefixSet};

/// Bits of an IPv6 address that are one source's by default: a link's prefix, within which a host chooses its addresses (RFC 4291
/// §2.5.1, RFC 8981).
pub const IPV6_PREFIX: u8 = 64;

/// What sources are one, and which of them leave no evidence: a set of prefixes.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Bits of an IPv6 address that tell sources apart.
    ipv6_mask: u128,
    ipv6_prefix: u8,
    exempt: IpPrefixSet,
}

impl Default for Sources {
    fn default() -> Self {
        Self::new(IPV6_PREFIX, [])
    }
}

impl Sources {
    /// IPv6 addresses that begin with the same `ipv6_prefix` bits are one source: 128 tells all of them apart. Of IPv4 each address is one.
    #[must_use]
    pub fn new(ipv6_prefix: u8, exempt: impl IntoIterator<Item = IpPrefix>) -> Self {
        let ipv6_prefix = ipv6_prefix.min(128);
        Self {
            ipv6_mask: !u128::MAX.checked_shr(ipv6_prefix.into()).unwrap_or(0),
            ipv6_prefix,
            exempt: exempt.into_iter().collect(),
        }
    }

    /// Bits of an IPv6 address that tell sources apart.
    #[must_use]
    pub const fn ipv6_prefix(&self) -> u8 {
        self.ipv6_prefix
    }

    /// What stands for all addresses of an address's source: itself, or the first of its prefix.
    #[inline(always)]
    #[must_use]
    pub fn one(&self, address: Host) -> Host {
        // IPv4 among others: no IPv6 host has such an address.
        if address.words().0 == 0 {
            return address;
        }
        Ipv6Addr::from_bits(address.to_bits() & self.ipv6_mask).into()
    }

    /// Whether an address leaves no evidence.
    #[must_use]
    pub fn is_exempt(&self, address: Host) -> bool {
        !self.exempt.is_empty() && self.exempt.contains(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    fn host(text: &str) -> Host {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn prefix(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_a_prefix_are_one_source_and_ipv4_addresses_never() {
        let sources = Sources::default();
        assert_eq!(
            sources.one(host("2001:db8:0:7:1:2:3:4")),
            host("2001:db8:0:7::")
        );
        assert_ne!(
            sources.one(host("2001:db8:0:7::1")),
            sources.one(host("2001:db8:0:8::1"))
        );
        for prefix in [0, 48, 64, 128] {
            let sources = Sources::new(prefix, []);
            for address in ["192.0.2.1", "255.255.255.255", "0.0.0.0"] {
                assert_eq!(sources.one(host(address)), host(address));
            }
        }
        let whole = Sources::new(128, []);
        assert_eq!(whole.one(host("2001:db8::9")), host("2001:db8::9"));
        let site = Sources::new(48, []);
        assert_eq!(site.one(host("2001:db8:1:2::9")), host("2001:db8:1::"));
    }

    #[test]
    fn prefixes_of_both_versions_are_exempt_and_never_meet() {
        let sources = Sources::new(
            64,
            [
                "192.0.2.0/24",
                "192.0.2.7/32",
                "10.0.0.0/8",
                "10.9.0.0/16",
                "2001:db8::/32",
            ]
            .map(prefix),
        );
        for exempt in ["192.0.2.0", "192.0.2.255", "10.255.0.1", "2001:db8:ffff::1"] {
            assert!(sources.is_exempt(host(exempt)), "{exempt}");
        }
        for other in [
            "192.0.3.0",
            "192.0.1.255",
            "11.0.0.0",
            "9.9.9.9",
            "2001:db9::",
            "::1",
        ] {
            assert!(!sources.is_exempt(host(other)), "{other}");
        }
        let all6 = Sources::new(64, [prefix("::/0")]);
        assert!(all6.is_exempt(host("2001:db8::1")) && all6.is_exempt(host("::1")));
        assert!(
            !all6.is_exempt(host("192.0.2.1")),
            "no IPv4 address is in ::/0"
        );
        let all4 = Sources::new(64, [prefix("0.0.0.0/0")]);
        assert!(all4.is_exempt(host("192.0.2.1")) && !all4.is_exempt(host("2001:db8::1")));
        let both = Sources::new(64, [prefix("::/0"), prefix("0.0.0.0/0")]);
        assert!(both.is_exempt(host("192.0.2.1")) && both.is_exempt(host("2001:db8::1")));
        assert!(!Sources::default().is_exempt(host("192.0.2.1")));
    }
}
