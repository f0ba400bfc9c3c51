//! The configuration of a director, with its bounds.

use core::net::{IpAddr, Ipv4Addr};

use asterism_packet::MacAddress;

use crate::addresses::ADDRESSES_MAX;
use crate::exceptions::EXCEPTIONS_MAX;
use crate::flow::{FlowBy, Fragments, Side};
use crate::pair::{PairConfig, PairConfigError};
use crate::suspended::SuspendedBounds;
use crate::table::BucketSpace;

/// Arms of a director at most.
pub const ARMS_MAX: usize = 4;

/// A port of the director and what it does there.
#[derive(Clone, Debug)]
pub struct ArmConfig {
    /// The Ethernet address of the port, which the shared addresses are announced with.
    pub mac: MacAddress,
    /// An IPv4 address of the director's own, with which it asks for hosts; without one it asks as RFC 5227 probes do.
    pub own_address: Option<Ipv4Addr>,
    /// The cluster's addresses on this arm, at most [`ADDRESSES_MAX`].
    pub shared: Vec<IpAddr>,
    /// What of a packet decides its bucket.
    pub by: FlowBy,
    /// On which side of the cluster it is.
    pub side: Side,
    /// The arm by which packets that arrive here go on to hosts: this one (one-armed), another (two-armed), or none.
    pub sends_to: Option<usize>,
}

impl ArmConfig {
    /// The first arm of a one-armed director, which keeps both directions of flows together.
    #[must_use]
    pub fn one_armed(mac: MacAddress, shared: Vec<IpAddr>) -> ArmConfig {
        ArmConfig {
            mac,
            own_address: None,
            shared,
            by: FlowBy::BothWays,
            side: Side::Outside,
            sends_to: Some(0),
        }
    }
}

/// A director.
#[derive(Clone, Debug)]
pub struct DirectorConfig {
    /// Its ports, at most [`ARMS_MAX`].
    pub arms: Vec<ArmConfig>,
    /// How the flow space is divided; the same in both directors of a pair, and in their orchestrator.
    pub space: BucketSpace,
    /// Where fragments go.
    pub fragments: Fragments,
    /// Exceptions at most, some 100 bytes each. Sane: 4,096. Bound: [`EXCEPTIONS_MAX`].
    pub exceptions_max: usize,
    /// The bounds of what waits while it is suspended.
    pub suspended: SuspendedBounds,
    /// The other director, with the number of the arm over which the two exchange heartbeats. `None`: this one is active always.
    pub pair: Option<(usize, PairConfig)>,
}

impl DirectorConfig {
    /// A director of these arms, alone, with sane bounds.
    #[must_use]
    pub fn new(arms: Vec<ArmConfig>, space: BucketSpace) -> DirectorConfig {
        DirectorConfig {
            arms,
            space,
            fragments: Fragments::Together,
            exceptions_max: 4_096,
            suspended: SuspendedBounds::default(),
            pair: None,
        }
    }

    /// Refuses what cannot be, with so many ports and frames.
    pub(crate) fn check(&self, ports: usize, frames: usize) -> Result<(), DirectorConfigError> {
        let arms = self.arms.len();
        if arms == 0 || arms > ARMS_MAX {
            return Err(DirectorConfigError::Arms(arms));
        }
        if ports != arms {
            return Err(DirectorConfigError::Ports { arms, ports });
        }
        for (number, arm) in self.arms.iter().enumerate() {
            if arm.mac.is_multicast() || arm.mac == MacAddress::default() {
                return Err(DirectorConfigError::Mac(number));
            }
            if arm.shared.len() > ADDRESSES_MAX {
                return Err(DirectorConfigError::Addresses(number));
            }
            let is_one_host =
                |address: &IpAddr| !address.is_multicast() && !address.is_unspecified();
            if !arm.shared.iter().all(is_one_host) {
                return Err(DirectorConfigError::Address(number));
            }
            if arm.sends_to.is_some_and(|to| to >= arms) {
                return Err(DirectorConfigError::SendsTo(number));
            }
        }
        if self.exceptions_max == 0 || self.exceptions_max > EXCEPTIONS_MAX {
            return Err(DirectorConfigError::Exceptions(self.exceptions_max));
        }
        if self.suspended.packets_max as usize > frames / 2 {
            return Err(DirectorConfigError::SuspendedPackets {
                packets: self.suspended.packets_max,
                frames,
            });
        }
        if let Some((arm, pair)) = &self.pair {
            if *arm >= arms {
                return Err(DirectorConfigError::PairArm(*arm));
            }
            pair.check()?;
        }
        Ok(())
    }
}

/// Why a director cannot be made of its configuration. Nothing was opened or sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectorConfigError {
    /// No arms, or too many.
    #[error("a director has from 1 to {ARMS_MAX} arms, not {0}")]
    Arms(usize),
    /// Not one port for each arm.
    #[error("a director of {arms} arms was given {ports} ports: each arm has one")]
    Ports {
        /// Arms of the configuration.
        arms: usize,
        /// Ports that were given.
        ports: usize,
    },
    /// The Ethernet address of an arm is none of one station.
    #[error("arm {0} needs the Ethernet address of its port")]
    Mac(usize),
    /// Too many shared addresses.
    #[error("arm {0} has more than {ADDRESSES_MAX} shared addresses")]
    Addresses(usize),
    /// A shared address is none that a host can have.
    #[error("a shared address of arm {0} is a group's, or unspecified")]
    Address(usize),
    /// An arm sends by one that is not there.
    #[error("arm {0} sends by an arm that there is not")]
    SendsTo(usize),
    /// No room for exceptions, or too much.
    #[error("{0} exceptions: there are from 1 to {EXCEPTIONS_MAX}")]
    Exceptions(usize),
    /// Suspended packets could take more than half of the frames.
    #[error("{packets} suspended packets need a pool of twice as many frames, not {frames}")]
    SuspendedPackets {
        /// Packets that may wait.
        packets: u32,
        /// Frames of the pool.
        frames: usize,
    },
    /// Heartbeats go over an arm that is not there.
    #[error("heartbeats go over arm {0}, which there is not")]
    PairArm(usize),
    /// The pair's settings cannot be.
    #[error(transparent)]
    Pair(#[from] PairConfigError),
}
