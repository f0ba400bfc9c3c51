//! The settings of a driver of Open vSwitch, and their bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::openflow::{MacAddress, Network, Selection};
use crate::TARGETS_MAX;

/// Directions of one driver at most.
pub const DIRECTIONS_MAX: usize = 4;
/// Ports by which packets of one direction come in, at most.
pub const INGRESS_PORTS_MAX: usize = 16;
/// Networks of one direction at most. A direction has a flow for each ingress port and network.
pub const NETWORKS_MAX: usize = 16;
/// Slots of a group at most: so many different hashes has the switch's own method.
pub const SLOTS_MAX: u16 = 64;
/// How many slots are sane: a power of two, which the switch's own methods need for equal slots.
pub const SLOTS_SANE: u16 = 64;
/// The cookie of the driver's flows unless configured otherwise: "ASTERISM" in ASCII.
pub const COOKIE: u64 = 0x4153_5445_5249_534d;
/// The number of the driver's first group unless configured otherwise: "AS" in ASCII, then zeros.
pub const FIRST_GROUP: u32 = 0x4153_0000;
/// The priority of the driver's flows unless configured otherwise.
pub const PRIORITY: u16 = 20_000;
/// How long a call may wait for the switch unless configured otherwise.
pub const CALL_TIME_SANE: Duration = Duration::from_secs(5);
/// The least and the most that this may be configured to.
pub const CALL_TIMES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(60)];

/// Where a listener is: a Unix socket or an address of TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OvsAddress {
    /// A Unix socket. Its permissions are all that protects it: only root may use those that Open vSwitch makes.
    Unix(PathBuf),
    /// An address of TCP. Nothing protects what is sent: for a loopback or a management network alone.
    Tcp(SocketAddr),
}

impl std::fmt::Display for OvsAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OvsAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            OvsAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Where the driver reads the settings of its bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OvsDatabase {
    /// The listener of `ovsdb-server`, mostly `/run/openvswitch/db.sock`.
    pub address: OvsAddress,
    /// The bridge's name.
    pub bridge: String,
}

/// A driver of one bridge.
#[derive(Clone, Debug)]
pub struct OvsConfig {
    /// The bridge's listener for controllers: `ptcp:` or `punix:` (`ovs-vsctl set-controller`), or the one that it always has
    /// (`/run/openvswitch/BRIDGE.mgmt`).
    pub switch: OvsAddress,
    /// Where `fail_mode=secure` is checked at each connection; none: it is not checked, and the operator's to set.
    pub database: Option<OvsDatabase>,
    /// What is steered: 1 to [`DIRECTIONS_MAX`]. They change together, and a target has the same slots in all of them. So
    /// packets of a flow in both directions reach one target if the hashes agree, as [`Selection::Source`] of one
    /// direction and [`Selection::Destination`] of the other do.
    pub directions: Vec<OvsDirection>,
    /// Slots of the flow space: 1 to [`SLOTS_MAX`], at least as many as targets take packets. Weights are rounded to whole slots.
    pub slots: u16,
    /// The table of the flows. Packets begin in table 0.
    pub table: u8,
    /// The priority of the flows, at least 1.
    pub priority: u16,
    /// The cookie of the flows, by which the driver knows its own: not 0. No other program may use it on this bridge.
    pub cookie: u64,
    /// The number of the first group. A direction has two numbers; no other program may use them on this bridge.
    pub first_group: u32,
    /// How long a call may wait for the switch, within [`CALL_TIMES`].
    pub time_max: Duration,
}

impl OvsConfig {
    /// A configuration with what is not given as it is sane.
    #[must_use]
    pub fn new(switch: OvsAddress, directions: Vec<OvsDirection>) -> OvsConfig {
        OvsConfig {
            switch,
            database: None,
            directions,
            slots: SLOTS_SANE,
            table: 0,
            priority: PRIORITY,
            cookie: COOKIE,
            first_group: FIRST_GROUP,
            time_max: CALL_TIME_SANE,
        }
    }
}

/// Packets that are steered alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OvsDirection {
    /// Ports, by name, by which they come in: 1 to [`INGRESS_PORTS_MAX`].
    pub ingress: Vec<String>,
    /// Networks that they are for: 1 to [`NETWORKS_MAX`].
    pub destinations: Vec<Network>,
    /// By what a packet's slot is computed. In OpenFlow 1.3 it is always as [`Selection::Unnamed`].
    pub hash: Selection,
    /// The path to each target: 1 to [`TARGETS_MAX`]. All directions have the same targets.
    pub hops: Vec<OvsHop>,
}

/// The path to a target: a port of the bridge, and an Ethernet address behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OvsHop {
    /// The target's name.
    pub target: String,
    /// The port's name.
    pub port: String,
    /// The Ethernet destination that packets get.
    pub address: MacAddress,
}

impl OvsConfig {
    /// Whether there can be a driver of it.
    pub(super) fn check(&self) -> Result<(), OvsConfigError> {
        let within = |count: usize, most: usize, what: &'static str| {
            if (1..=most).contains(&count) {
                Ok(())
            } else {
                Err(OvsConfigError::Count { what, count, most })
            }
        };
        within(self.directions.len(), DIRECTIONS_MAX, "directions")?;
        within(self.slots.into(), SLOTS_MAX.into(), "slots")?;
        let [least, most] = CALL_TIMES;
        if !(least..=most).contains(&self.time_max) {
            return Err(OvsConfigError::Time(self.time_max));
        }
        if self.cookie == 0 || self.priority == 0 || self.table == u8::MAX {
            return Err(OvsConfigError::Reserved);
        }
        let numbers = 2 * self.directions.len() as u32;
        let last = self.first_group.checked_add(numbers);
        if last.is_none_or(|last| last > super::openflow::PORT_NUMBER_MAX) {
            return Err(OvsConfigError::Group(self.first_group));
        }
        let mut flows = BTreeSet::new();
        let mut targets: Option<BTreeSet<&str>> = None;
        for direction in &self.directions {
            within(direction.ingress.len(), INGRESS_PORTS_MAX, "ingress ports")?;
            within(direction.destinations.len(), NETWORKS_MAX, "networks")?;
            within(direction.hops.len(), TARGETS_MAX, "targets")?;
            if direction.hash == Selection::Other
                || (direction.hash.wants_power_of_two() && !self.slots.is_power_of_two())
            {
                return Err(OvsConfigError::Hash(self.slots));
            }
            direction.check()?;
            for port in &direction.ingress {
                for network in &direction.destinations {
                    if !flows.insert((port, network)) {
                        return Err(OvsConfigError::FlowTwice(port.clone(), *network));
                    }
                }
            }
            let here = direction
                .hops
                .iter()
                .map(|hop| hop.target.as_str())
                .collect();
            if targets.as_ref().is_some_and(|targets| *targets != here) {
                return Err(OvsConfigError::OtherTargets);
            }
            targets = Some(here);
        }
        Ok(())
    }
}

impl OvsDirection {
    fn check(&self) -> Result<(), OvsConfigError> {
        if let Some(wrong) = self.destinations.iter().find(|one| !one.is_network()) {
            return Err(OvsConfigError::NoNetwork(*wrong));
        }
        let mut targets = BTreeSet::new();
        let mut ways = BTreeMap::new();
        for name in self
            .ingress
            .iter()
            .chain(self.hops.iter().map(|hop| &hop.port))
        {
            if !(1..=15).contains(&name.len()) || name.contains(char::is_control) {
                return Err(OvsConfigError::PortName(name.clone()));
            }
        }
        for hop in &self.hops {
            if !targets.insert(&hop.target) {
                return Err(OvsConfigError::TargetTwice(hop.target.clone()));
            }
            if self.ingress.contains(&hop.port) {
                return Err(OvsConfigError::BackWhereItCame(hop.port.clone()));
            }
            if hop.address[0] & 1 != 0 || hop.address == [0; 6] {
                return Err(OvsConfigError::Address(hop.target.clone()));
            }
            if let Some(other) = ways.insert((&hop.port, hop.address), &hop.target) {
                return Err(OvsConfigError::SameHop(other.clone(), hop.target.clone()));
            }
        }
        Ok(())
    }
}

/// Why there can be no driver with a configuration. Nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OvsConfigError {
    /// There are none of these, or too many.
    #[error("{count} {what}: there are 1 to {most}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// No call may take so long, or so short.
    #[error("{0:?} for a call: it is {:?} to {:?}", CALL_TIMES[0], CALL_TIMES[1])]
    Time(Duration),
    /// A number that has a meaning of its own.
    #[error("the cookie 0, the priority 0 and the table 255 have other meanings: choose others")]
    Reserved,
    /// The groups would have numbers that have a meaning of their own.
    #[error("groups from {0:#x} on would have numbers that OpenFlow reserves")]
    Group(u32),
    /// The method of selection does not go with the number of slots.
    #[error(
        "by the switch's own methods {0} slots would not be equal: take a power of two, or another hash"
    )]
    Hash(u16),
    /// An address has bits behind its prefix, or the prefix is longer than an address.
    #[error("{0} is no network: its prefix is too long, or the address has bits behind it")]
    NoNetwork(Network),
    /// Two flows would be the same.
    #[error("packets from {0} for {1} are steered twice")]
    FlowTwice(String, Network),
    /// A port cannot have this name.
    #[error("{0:?} is no port's name: one has 1 to 15 bytes")]
    PortName(String),
    /// A direction names a target twice.
    #[error("the target {0} is there twice in a direction")]
    TargetTwice(String),
    /// Directions have different targets.
    #[error("all directions must have the same targets")]
    OtherTargets,
    /// A switch sends no packet out of the port by which it came.
    #[error("packets that come in by {0} cannot be sent out there")]
    BackWhereItCame(String),
    /// A target's address is none of a single interface.
    #[error("the Ethernet address of {0} is zero or that of a group")]
    Address(String),
    /// Two targets have one port and address.
    #[error("{0} and {1} have one port and address: nobody could tell them apart")]
    SameHop(String, String),
}
