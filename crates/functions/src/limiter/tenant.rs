//! Whose a packet is: tenants are lists of networks. Knows no state.

use asterism_function::objects::hash;
use asterism_function::{Host, IpPrefix};

use crate::monitor::Flow;

/// Tenants at most.
pub const TENANTS_MAX: usize = 1 << 12;

/// There are more than [`TENANTS_MAX`] tenants; nothing was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyTenants;

/// Networks with their tenants. A network holds addresses of its own IP version alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tenants {
    count: u32,
    /// The longest networks first.
    by_length: Vec<Networks>,
}

/// The networks of one IP version and length.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Networks {
    is_ipv4: bool,
    /// Leading bits of [`Host::to_bits`] that count.
    bits: u8,
    /// First addresses with their tenants, sorted.
    tenants: Vec<(u128, u16)>,
}

impl Tenants {
    /// Tenants by number, each with its networks. Of networks that hold one another the longest decides; of equal ones the first
    /// tenant.
    ///
    /// # Errors
    /// [`TooManyTenants`].
    pub fn new<'a>(
        tenants: impl IntoIterator<Item = &'a [IpPrefix]>,
    ) -> Result<Self, TooManyTenants> {
        let mut made = Self::default();
        for networks in tenants {
            if made.count as usize >= TENANTS_MAX {
                return Err(TooManyTenants);
            }
            let number = made.count as u16;
            made.count += 1;
            for network in networks {
                made.add(*network, number);
            }
        }
        made.by_length
            .sort_by_key(|networks| core::cmp::Reverse(networks.bits));
        Ok(made)
    }

    fn add(&mut self, network: IpPrefix, number: u16) {
        let of = (network.is_ipv4(), network.key_bits());
        let place = self
            .by_length
            .iter()
            .position(|networks| (networks.is_ipv4, networks.bits) == of);
        let place = place.unwrap_or_else(|| {
            self.by_length.push(Networks {
                is_ipv4: of.0,
                bits: of.1,
                tenants: Vec::new(),
            });
            self.by_length.len() - 1
        });
        let first = network.first().to_bits();
        let tenants = &mut self.by_length[place].tenants;
        if let Err(at) = tenants.binary_search_by_key(&first, |(network, _)| *network) {
            tenants.insert(at, (first, number));
        }
    }

    /// How many tenants there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The tenant of an address. Costs a binary search for each length that occurs.
    #[inline]
    #[must_use]
    pub fn of_host(&self, host: Host) -> Option<u16> {
        let address = host.to_bits();
        self.by_length.iter().find_map(|networks| {
            if networks.is_ipv4 != host.is_ipv4() {
                return None;
            }
            let network = address & mask(networks.bits);
            let tenants = &networks.tenants;
            let at = tenants.binary_search_by_key(&network, |(network, _)| *network);
            at.ok().map(|at| tenants[at].1)
        })
    }

    /// The tenant that a packet of a flow is counted for: the sender's, or else the receiver's.
    #[inline]
    #[must_use]
    pub fn of(&self, flow: &Flow) -> Option<u16> {
        self.of_host(flow.source)
            .or_else(|| self.of_host(flow.destination))
    }

    /// A number that differs when the tenants do.
    pub(super) fn digest(&self) -> u64 {
        let networks = self.by_length.iter().flat_map(|networks| {
            let tenants = networks.tenants.iter();
            tenants.map(|tenant| (networks.bits, tenant))
        });
        networks.fold(self.count.into(), |sum, (bits, (network, tenant))| {
            let high = hash::words((network >> 64) as u64, *network as u64, sum);
            hash::words(high, u64::from(*tenant) << 8 | u64::from(bits), sum)
        })
    }
}

#[inline(always)]
const fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        _ => u128::MAX << (128 - length as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    fn network(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_network_decides() {
        let tenants = [
            vec![network("10.0.0.0/8"), network("2001:db8::/32")],
            vec![network("10.1.0.0/16"), network("10.0.0.0/8")],
            vec![network("10.1.2.3/32")],
            vec![],
        ];
        let tenants = Tenants::new(tenants.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(tenants.count(), 4);
        for (address, tenant) in [
            ("10.9.9.9", Some(0)),
            ("10.1.9.9", Some(1)),
            ("10.1.2.3", Some(2)),
            ("11.0.0.1", None),
            ("2001:db8:7::1", Some(0)),
            ("2001:db9::1", None),
        ] {
            let host = address.parse::<IpAddr>().unwrap().into();
            assert_eq!(tenants.of_host(host), tenant, "{address}");
        }
        let everybody = [vec![network("0.0.0.0/0")]];
        let everybody = Tenants::new(everybody.iter().map(Vec::as_slice)).unwrap();
        let of = |address: &str| everybody.of_host(address.parse::<IpAddr>().unwrap().into());
        assert_eq!((of("1.2.3.4"), of("::1")), (Some(0), None), "IPv4 alone");
        let everybody6 = [vec![network("::/0")]];
        let everybody6 = Tenants::new(everybody6.iter().map(Vec::as_slice)).unwrap();
        let of = |address: &str| everybody6.of_host(address.parse::<IpAddr>().unwrap().into());
        assert_eq!((of("1.2.3.4"), of("::1")), (None, Some(0)), "IPv6 alone");
        assert_ne!(tenants.digest(), everybody.digest());
        let many = vec![Vec::new(); TENANTS_MAX + 1];
        assert_eq!(
            Tenants::new(many.iter().map(Vec::as_slice)),
            Err(TooManyTenants)
        );
    }
}
