//! Whose an address is.

use std::net::IpAddr;

/// Ranges of addresses with the number of the tenant whose they are; any other address is nobody's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantMap {
    ipv4: Ranges<u32>,
    ipv6: Ranges<u128>,
}

/// Disjoint ranges in order, looked up by halving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges<A> {
    /// The first address of each.
    firsts: Vec<A>,
    /// The last address of each, and the tenant.
    rest: Vec<(A, u16)>,
}

impl<A: Copy + Ord> Ranges<A> {
    fn add(&mut self, first: A, last: A, tenant: u16) {
        let place = self.firsts.partition_point(|other| *other <= first);
        self.firsts.insert(place, first);
        self.rest.insert(place, (last, tenant));
    }

    #[inline(always)]
    fn of(&self, address: A) -> Option<usize> {
        let behind = self.firsts.partition_point(|first| *first <= address);
        let (last, tenant) = self.rest.get(behind.wrapping_sub(1))?;
        (address <= *last).then_some(usize::from(*tenant))
    }
}

impl TenantMap {
    /// Of networks, each as its first address and prefix length, with their tenants. No two networks share an address; of those
    /// that do the later ones are left out. A length beyond the address counts as the address alone.
    #[must_use]
    pub fn new(networks: impl IntoIterator<Item = (IpAddr, u8, u16)>) -> TenantMap {
        let mut map = TenantMap::default();
        for (address, length, tenant) in networks {
            match address {
                IpAddr::V4(first) => {
                    let first = first.to_bits();
                    let rest = u32::MAX.checked_shr(length.into()).unwrap_or(0);
                    if map.ipv4.is_free(first, first | rest) {
                        map.ipv4.add(first, first | rest, tenant);
                    }
                }
                IpAddr::V6(first) => {
                    let first = first.to_bits();
                    let rest = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                    if map.ipv6.is_free(first, first | rest) {
                        map.ipv6.add(first, first | rest, tenant);
                    }
                }
            }
        }
        map
    }

    /// The tenant of an IPv4 address.
    #[inline(always)]
    #[must_use]
    pub fn of_ipv4(&self, address: u32) -> Option<usize> {
        self.ipv4.of(address)
    }

    /// The tenant of an IPv6 address.
    #[inline]
    #[must_use]
    pub fn of_ipv6(&self, address: u128) -> Option<usize> {
        self.ipv6.of(address)
    }
}

impl<A: Copy + Ord> Ranges<A> {
    fn is_free(&self, first: A, last: A) -> bool {
        let mut all = self.firsts.iter().zip(&self.rest);
        !all.any(|(other, (other_last, _))| *other <= last && first <= *other_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(networks: &[(&str, u8, u16)]) -> TenantMap {
        TenantMap::new(
            networks
                .iter()
                .map(|(address, length, tenant)| (address.parse().unwrap(), *length, *tenant)),
        )
    }

    fn of(map: &TenantMap, address: &str) -> Option<usize> {
        match address.parse().unwrap() {
            IpAddr::V4(address) => map.of_ipv4(address.to_bits()),
            IpAddr::V6(address) => map.of_ipv6(address.to_bits()),
        }
    }

    #[test]
    fn an_address_is_of_the_tenant_whose_network_holds_it() {
        let tenants = map(&[
            ("10.2.0.0", 16, 1),
            ("10.1.0.0", 16, 0),
            ("192.0.2.7", 32, 1),
            ("2001:db8:1::", 48, 0),
            ("2001:db8:2::", 48, 2),
        ]);
        for (address, tenant) in [
            ("10.1.0.0", Some(0)),
            ("10.1.255.255", Some(0)),
            ("10.2.0.0", Some(1)),
            ("10.0.255.255", None),
            ("10.3.0.0", None),
            ("192.0.2.6", None),
            ("192.0.2.7", Some(1)),
            ("192.0.2.8", None),
            ("2001:db8:1:ffff::1", Some(0)),
            ("2001:db8:2::", Some(2)),
            ("2001:db8:3::", None),
            ("::ffff:10.1.0.1", None),
        ] {
            assert_eq!(of(&tenants, address), tenant, "{address}");
        }
        let everybody = map(&[("0.0.0.0", 0, 3), ("10.0.0.0", 8, 1)]);
        assert_eq!(of(&everybody, "255.255.255.255"), Some(3));
        assert_eq!(
            of(&everybody, "10.1.1.1"),
            Some(3),
            "the later one is left out"
        );
        assert_eq!(of(&everybody, "::1"), None);
        assert_eq!(of(&map(&[]), "10.1.1.1"), None);
    }
}
