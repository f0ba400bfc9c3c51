//! Whose a packet is: tenants are lists of networks. Imports flows; knows no state.

use asterism_function::Host;
use core::net::IpAddr;

use asterism_function::objects::hash;

use crate::monitor::Flow;

/// Tenants at most.
pub const TENANTS_MAX: usize = 1 << 12;

/// A network of either IP version. An IPv4 network's length counts its own 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// An address in it.
    pub address: IpAddr,
    /// How many leading bits count; more than the address has are taken as all.
    pub length: u8,
}

/// There are more than [`TENANTS_MAX`] tenants; nothing was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyTenants;

/// Networks as 128 bits, IPv4 mapped (RFC 4291 §2.5.5.2), with their tenants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tenants {
    count: u32,
    /// For each length that occurs, the longest first: the networks, sorted.
    by_length: Vec<(u8, Vec<(u128, u16)>)>,
}

impl Tenants {
    /// Tenants by number, each with its networks. Of networks that hold one another the longest decides; of equal ones the first
    /// tenant.
    ///
    /// # Errors
    /// [`TooManyTenants`].
    pub fn new<'a>(
        tenants: impl IntoIterator<Item = &'a [Network]>,
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
            .sort_by_key(|(length, _)| core::cmp::Reverse(*length));
        Ok(made)
    }

    fn add(&mut self, network: Network, number: u16) {
        let length = match network.address {
            IpAddr::V4(_) => 96 + network.length.min(32),
            IpAddr::V6(_) => network.length.min(128),
        };
        let bits = bits(network.address.into()) & mask(length);
        let place = self.by_length.iter().position(|(of, _)| *of == length);
        let place = place.unwrap_or_else(|| {
            self.by_length.push((length, Vec::new()));
            self.by_length.len() - 1
        });
        let networks = &mut self.by_length[place].1;
        if let Err(at) = networks.binary_search_by_key(&bits, |(network, _)| *network) {
            networks.insert(at, (bits, number));
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
        let address = bits(host);
        self.by_length.iter().find_map(|(length, networks)| {
            let network = address & mask(*length);
            let at = networks.binary_search_by_key(&network, |(network, _)| *network);
            at.ok().map(|at| networks[at].1)
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
        let networks = self
            .by_length
            .iter()
            .flat_map(|(length, networks)| networks.iter().map(move |network| (*length, network)));
        networks.fold(self.count.into(), |sum, (length, (network, tenant))| {
            let high = hash::words((network >> 64) as u64, *network as u64, sum);
            hash::words(high, u64::from(*tenant) << 8 | u64::from(length), sum)
        })
    }
}

#[inline(always)]
fn bits(host: Host) -> u128 {
    let (high, low) = host.words();
    u128::from(high) << 64 | u128::from(low)
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

    fn network(text: &str) -> Network {
        let (address, length) = text.split_once('/').unwrap();
        Network {
            address: address.parse().unwrap(),
            length: length.parse().unwrap(),
        }
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
        assert_ne!(tenants.digest(), everybody.digest());
        let many = vec![Vec::new(); TENANTS_MAX + 1];
        assert_eq!(
            Tenants::new(many.iter().map(Vec::as_slice)),
            Err(TooManyTenants)
        );
    }
}
