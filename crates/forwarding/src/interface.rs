//! The settings of the links that a function stands between.
//!
//! Plain values: the binary reads them from a file.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use asterism_function::{MacAddress, PortNumber};

/// Routes at most: they are searched one after the other.
pub const ROUTES_MAX: usize = 64;

/// An IPv4 prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    /// An address in it.
    pub address: Ipv4Addr,
    /// Leading bits that all its addresses share, 0 to 32.
    pub length: u8,
}

impl Prefix {
    /// Everything: the prefix of a default route.
    pub const ALL: Self = Self::new(Ipv4Addr::UNSPECIFIED, 0);

    /// The prefix of `length` bits around an address.
    pub const fn new(address: Ipv4Addr, length: u8) -> Self {
        Self { address, length }
    }
    /// The mask; of a length above 32 that of 32.
    pub const fn mask(&self) -> u32 {
        match self.length {
            0 => 0,
            length @ 1..=31 => u32::MAX << (32 - length),
            _ => u32::MAX,
        }
    }
    /// Whether an address is in it.
    pub const fn contains(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) & self.mask() == 0
    }
    /// The address to which a datagram goes to all hosts of the link; none of links of one or two hosts (RFC 3021).
    pub const fn broadcast(&self) -> Option<Ipv4Addr> {
        if self.length >= 31 {
            None
        } else {
            Some(Ipv4Addr::from_bits(self.address.to_bits() | !self.mask()))
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let length = length.parse().map_err(|_| ())?;
        (length <= 32).then_some(()).ok_or(())?;
        Ok(Self::new(address.parse().map_err(|_| ())?, length))
    }
}

/// A port with an address on the link behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The port.
    pub port: PortNumber,
    /// The function's own address on the link.
    pub address: Ipv4Addr,
    /// Bits of the link's prefix: hosts in it are reached without a next hop.
    pub prefix_length: u8,
    /// The Ethernet address, shared by all hosts of a cluster.
    pub mac: MacAddress,
    /// Bytes of the largest IP packet that leaves here; 0: not checked, for ports whose frames are segmented later.
    pub mtu: u16,
    /// Frames to other Ethernet addresses are taken too, as a replayed capture needs.
    pub promiscuous: bool,
}

impl Interface {
    /// An interface with an MTU of 1,500 that takes only frames for it.
    pub const fn new(
        port: PortNumber,
        address: Ipv4Addr,
        prefix_length: u8,
        mac: MacAddress,
    ) -> Self {
        Self {
            port,
            address,
            prefix_length,
            mac,
            mtu: 1_500,
            promiscuous: false,
        }
    }
    /// The link's prefix.
    pub const fn prefix(&self) -> Prefix {
        Prefix::new(self.address, self.prefix_length)
    }
}

/// Which side a route leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// Inside, whatever that is for the function: a NAT's inside hosts, a balancer's backends.
    Inside,
    /// The rest of the world.
    Outside,
}

/// Where packets to a prefix go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The destinations. Of several routes the one with the longest prefix counts.
    pub prefix: Prefix,
    /// The interface that they leave by.
    pub side: Side,
    /// The router on that link to hand them to; `None`: the destination is on the link itself.
    pub next_hop: Option<Ipv4Addr>,
}

/// Whether an address can be one host's: neither of this network or this host (RFC 1122 §3.2.1.3), nor multicast, nor
/// reserved.
#[must_use]
pub fn is_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_contain_their_addresses_and_have_a_broadcast() {
        let prefix: Prefix = "192.0.2.77/26".parse().unwrap();
        assert!(
            prefix.contains([192, 0, 2, 64].into()) && prefix.contains([192, 0, 2, 127].into())
        );
        assert!(
            !prefix.contains([192, 0, 2, 63].into()) && !prefix.contains([192, 0, 2, 128].into())
        );
        assert_eq!(prefix.broadcast(), Some([192, 0, 2, 127].into()));
        assert_eq!(prefix.to_string(), "192.0.2.77/26");
        assert_eq!(Prefix::new([192, 0, 2, 1].into(), 31).broadcast(), None);
        assert!(Prefix::ALL.contains([8, 8, 8, 8].into()));
        for wrong in ["192.0.2.0/33", "192.0.2/24", "192.0.2.0/", "x"] {
            assert_eq!(wrong.parse::<Prefix>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn hosts_are_reported_from_what_no_host_has() {
        for (text, expected) in [
            ("1.0.0.1", true),
            ("223.255.255.255", true),
            ("0.0.0.0", false),
            ("127.0.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(is_host(text.parse().unwrap()), expected, "{text}");
        }
    }
}
