//! The addresses of a local network: which station has which.
//!
//! ```text
//! clients 10.78.0.0/16 ── router 10.77.0.2 ── inside 10.77.0.0/24
//!                                              │ shared gateway 10.77.0.1 (director), hosts 10.77.0.10 and on
//! servers 198.18.0.0/16 ── router 198.51.100.2 ── outside 198.51.100.0/24
//!                                              │ shared gateway 198.51.100.1 (director), hosts 198.51.100.10 and on
//! the NAT's outside addresses: 203.0.113.1 and on
//! ```
//!
//! These are documentation, benchmark and private addresses (RFC 5737, RFC 2544, RFC 1918), so that no packet of them is one of
//! the machine's own networks; they are in no kernel's table anyway.

use core::net::Ipv4Addr;

use asterism_packet::MacAddress;

/// Hosts of a local network at most: a segment has a port for each, besides stations and directors.
pub const HOSTS_MAX: usize = 60;
/// Outside addresses of the NAT at most.
pub const OUTSIDE_ADDRESSES_MAX: u8 = 16;
/// The last byte of the first host's addresses.
const FIRST_HOST: u8 = 10;

/// A side of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkSide {
    /// Where the clients are.
    Inside,
    /// Where the servers are.
    Outside,
}

impl LinkSide {
    /// Both sides, in the order of the director's arms.
    pub const BOTH: [LinkSide; 2] = [LinkSide::Inside, LinkSide::Outside];

    /// The side as a word of configurations and file names.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            LinkSide::Inside => "inside",
            LinkSide::Outside => "outside",
        }
    }

    const fn station(self, last: u8) -> Ipv4Addr {
        match self {
            LinkSide::Inside => Ipv4Addr::new(10, 77, 0, last),
            LinkSide::Outside => Ipv4Addr::new(198, 51, 100, last),
        }
    }

    const fn mac(self, kind: u8, number: u8) -> MacAddress {
        MacAddress([0x02, 0xa5, self as u8, 0, kind, number])
    }

    /// The address shared by the directors: the gateway of clients, or of servers.
    #[must_use]
    pub const fn gateway(self) -> Ipv4Addr {
        self.station(1)
    }

    /// The router behind which clients, or servers, are.
    #[must_use]
    pub const fn router(self) -> Ipv4Addr {
        self.station(2)
    }

    /// The router's Ethernet address.
    #[must_use]
    pub const fn router_mac(self) -> MacAddress {
        self.mac(2, 0)
    }

    /// A director's own address.
    #[must_use]
    pub const fn director(self, number: u8) -> Ipv4Addr {
        self.station(3 + number % 2)
    }

    /// A director's Ethernet address.
    #[must_use]
    pub const fn director_mac(self, number: u8) -> MacAddress {
        self.mac(1, number)
    }

    /// The address of the host with this number, below [`HOSTS_MAX`].
    #[must_use]
    pub const fn host(self, number: u8) -> Ipv4Addr {
        self.station(FIRST_HOST + number % HOSTS_MAX as u8)
    }

    /// The Ethernet address of the host with this number.
    #[must_use]
    pub const fn host_mac(self, number: u8) -> MacAddress {
        self.mac(3, number)
    }
}

/// An outside address of the NAT, by its number below [`OUTSIDE_ADDRESSES_MAX`].
#[must_use]
pub const fn outside_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, 1 + number % OUTSIDE_ADDRESSES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_stations_have_one_address() {
        for side in LinkSide::BOTH {
            let mut addresses = BTreeSet::from([side.gateway(), side.router()]);
            let mut macs = BTreeSet::from([side.router_mac()]);
            for number in 0..2 {
                assert!(addresses.insert(side.director(number)));
                assert!(macs.insert(side.director_mac(number)));
            }
            for number in 0..HOSTS_MAX as u8 {
                assert!(addresses.insert(side.host(number)));
                assert!(macs.insert(side.host_mac(number)));
            }
        }
    }
}
