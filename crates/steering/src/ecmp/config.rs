//! The routes, next hops and slots of a driver, and their bounds.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use crate::TARGETS_MAX;

/// Routes of one driver at most.
pub const ROUTES_MAX: usize = 16;
/// Slots of a route at most: `ip` reads lines of at most 512 words, a slot is 6 of them.
pub const SLOTS_MAX: u16 = 64;
/// How many slots are sane: shares are equal among 2, 3, 4, 6, 8 or 12 targets.
pub const SLOTS_SANE: u16 = 24;
/// How long one run of `ip` may take. A call makes two.
pub const IP_TIME_MAX: Duration = Duration::from_secs(5);
/// The protocol number of the driver's routes (`ip route show proto 77`), so that people see who wrote them.
pub const ROUTE_PROTOCOL: u8 = 77;
/// The kernel's main table.
pub const MAIN_TABLE: u32 = 254;

/// The routes of one router.
#[derive(Clone, Debug)]
pub struct EcmpConfig {
    /// The network namespace that they are in, as a file (`/run/netns/NAME`, `/proc/PID/ns/net`); none: where this process is.
    pub network: Option<PathBuf>,
    /// Destinations that are reached through the targets: 1 to [`ROUTES_MAX`].
    pub routes: Vec<EcmpRoute>,
    /// The way to each target: 1 to [`TARGETS_MAX`].
    pub hops: Vec<EcmpHop>,
    /// How the flow space is shared out.
    pub spread: Spread,
}

/// A destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EcmpRoute {
    /// Its network address.
    pub address: Ipv4Addr,
    /// Bits of its prefix; 0 with the address 0.0.0.0 is the default route.
    pub prefix_bits: u8,
    /// The source address of what the router sends there itself; none: the kernel chooses.
    pub source: Option<Ipv4Addr>,
    /// The routing table.
    pub table: u32,
    /// The metric. Routes of other metrics to the same destination are left alone.
    pub metric: u32,
}

impl EcmpRoute {
    /// A route in the main table, with the metric 0.
    #[must_use]
    pub fn new(address: Ipv4Addr, prefix_bits: u8) -> EcmpRoute {
        EcmpRoute {
            address,
            prefix_bits,
            source: None,
            table: MAIN_TABLE,
            metric: 0,
        }
    }

    /// The same, from this address.
    #[must_use]
    pub fn from(mut self, source: Ipv4Addr) -> EcmpRoute {
        self.source = Some(source);
        self
    }
}

impl fmt::Display for EcmpRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// The way to a target: an address on an interface. All hosts of a cluster may have one address, behind interfaces of
/// their own; it need not be in a network of the interface (`onlink`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EcmpHop {
    /// The target's name.
    pub target: String,
    /// The next hop.
    pub gateway: Ipv4Addr,
    /// The router's interface.
    pub interface: String,
}

/// How the flow space is shared out among those that take packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// In so many equal slots, each of which leads to one target; a change moves as few slots as it can, so that flows of
    /// targets that stay do not move. At least as many slots as targets, at most [`SLOTS_MAX`]; the kernel goes through them
    /// for each packet. Weights are rounded to whole slots, at least one.
    Slots(u16),
    /// One next hop for each target, with its weight. Exact, and the fewest next hops; but the kernel gives each a stretch of
    /// the flow space by its place in the list, so a change moves flows of targets that stay, too: when the first or the last
    /// of three leaves, a sixth of all flows.
    Weights,
}

impl EcmpConfig {
    /// Whether there can be a driver of it.
    pub(super) fn check(&self) -> Result<(), EcmpConfigError> {
        let (routes, hops) = (self.routes.len(), self.hops.len());
        if !(1..=ROUTES_MAX).contains(&routes) {
            return Err(EcmpConfigError::Routes(routes));
        }
        if !(1..=TARGETS_MAX).contains(&hops) {
            return Err(EcmpConfigError::Hops(hops));
        }
        if let Spread::Slots(slots) = self.spread
            && !(1..=SLOTS_MAX).contains(&slots)
        {
            return Err(EcmpConfigError::Slots(slots));
        }
        check_routes(&self.routes)?;
        check_hops(&self.hops)
    }
}

fn check_routes(routes: &[EcmpRoute]) -> Result<(), EcmpConfigError> {
    let mut seen = BTreeSet::new();
    for route in routes {
        if route.prefix_bits > 32 {
            return Err(EcmpConfigError::PrefixBits(route.clone()));
        }
        let host = u32::MAX
            .checked_shr(route.prefix_bits.into())
            .unwrap_or_default();
        if route.address.to_bits() & host != 0 {
            return Err(EcmpConfigError::HostBits(route.clone()));
        }
        if !seen.insert((route.address, route.prefix_bits, route.table, route.metric)) {
            return Err(EcmpConfigError::RouteTwice(route.clone()));
        }
    }
    Ok(())
}

fn check_hops(hops: &[EcmpHop]) -> Result<(), EcmpConfigError> {
    let (mut names, mut ways) = (BTreeSet::new(), BTreeSet::new());
    for EcmpHop {
        target,
        gateway,
        interface,
    } in hops
    {
        let is_name = (1..=15).contains(&interface.len())
            && !interface.contains(|letter: char| {
                letter.is_whitespace() || letter.is_control() || "/\"'\\#".contains(letter)
            });
        if !is_name {
            return Err(EcmpConfigError::InterfaceName(interface.clone()));
        }
        if !names.insert(target) {
            return Err(EcmpConfigError::TargetTwice(target.clone()));
        }
        if !ways.insert((gateway, interface)) {
            return Err(EcmpConfigError::SameHop {
                gateway: *gateway,
                interface: interface.clone(),
            });
        }
    }
    Ok(())
}

/// Why there can be no driver with a configuration. Nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EcmpConfigError {
    /// There is no route, or there are so many.
    #[error("{0} routes: a driver writes 1 to {ROUTES_MAX}")]
    Routes(usize),
    /// There is no next hop, or there are so many.
    #[error("{0} next hops: there are 1 to {TARGETS_MAX}")]
    Hops(usize),
    /// There is no slot, or there are so many.
    #[error("{0} slots: there are 1 to {SLOTS_MAX}")]
    Slots(u16),
    /// The route's prefix is longer than an address.
    #[error("{0}: a prefix has at most 32 bits")]
    PrefixBits(EcmpRoute),
    /// The route's address is not that of its network.
    #[error("{0}: the address has bits behind its prefix, which would be another route")]
    HostBits(EcmpRoute),
    /// Two routes have this destination, in one table with one metric.
    #[error("{0} is there twice")]
    RouteTwice(EcmpRoute),
    /// The kernel gives no interface this name.
    #[error("{0:?} is no interface's name: one has 1 to 15 bytes, no space and no slash")]
    InterfaceName(String),
    /// Two next hops are those of this target.
    #[error("the target {0} is there twice")]
    TargetTwice(String),
    /// Two targets have one next hop.
    #[error("{gateway} on {interface} leads to two targets: nobody could tell them apart")]
    SameHop {
        /// The address of both.
        gateway: Ipv4Addr,
        /// The interface of both.
        interface: String,
    },
}
