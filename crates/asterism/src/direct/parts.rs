//! From the configuration to a director with its ports, and to the hosts behind it.

use std::net::Ipv4Addr;

use asterism_config::{
    Cluster, Director as Configured, DirectorArm, DirectorBy, DirectorFragments, DirectorPort,
    DirectorSide, PortKind,
};
use asterism_director::pair::PairConfig;
use asterism_director::table::BucketSpace;
use asterism_director::{
    ArmConfig, Control, Director, DirectorConfig, DirectorConfigError, FlowBy, Fragments, Host,
    HostLink, MacAddress, Side,
};
use asterism_io::frame::FramePool;
use asterism_io::port::{
    AfPacketConfig, AfPacketPort, AfXdpConfig, AfXdpPort, Port, PortError, ethernet_address,
};
use asterism_placement::Time;
use asterism_secure_channel::KeyRing;

/// Frames of a director, 2 KiB each: what its rings hand over, and what waits while it is suspended.
const POOL_FRAMES: usize = 16_384;
/// What the key of a pair's heartbeats is derived for.
const PAIR_PURPOSE: &str = "heartbeats of directors";

/// Why there is no director. Nothing stays open.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartsError {
    #[error("no memory for {POOL_FRAMES} frames: {0}")]
    NoFrames(std::io::Error),
    #[error("the interface {0} has no Ethernet address: {1}")]
    NoAddress(String, std::io::Error),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("[orchestrator.director.{0}]: {1}")]
    Config(String, DirectorConfigError),
    #[error("[orchestrator.director.{0}]: {1} buckets are no power of two from 256 to 65,536")]
    Buckets(String, u32),
}

/// A director that does not turn yet.
pub(super) struct Made {
    pub(super) director: Director,
    pub(super) control: Control,
    pub(super) space: BucketSpace,
}

/// How a director divides the flow space, as its orchestrators must know; `None` if the buckets are no power of two that may be.
pub(crate) fn space(cluster: &Cluster, configured: &Configured) -> Option<BucketSpace> {
    // Clusters on one segment spread differently, without a setting.
    let seed = configured.seed ^ u64::from(cluster.id().0) << 32;
    BucketSpace::new(configured.buckets, seed)
}

/// Opens the ports of the machine at this place, and makes its director.
pub(super) fn make(
    cluster: &Cluster,
    configured: &Configured,
    place: usize,
    (keys, incarnation): (&KeyRing, u64),
    now: Time,
) -> Result<Made, PartsError> {
    let name = || configured.name.clone();
    let machine = &configured.machines[place];
    let (mut ports, mut arms): (Vec<Box<dyn Port>>, _) = (Vec::new(), Vec::new());
    for (arm, plug) in configured.arms.iter().zip(&machine.plugs) {
        let mac = ethernet_address(&plug.interface)
            .map_err(|error| PartsError::NoAddress(plug.interface.clone(), error))?;
        ports.push(open(plug)?);
        arms.push(arm_config(arm, MacAddress(mac), plug.address));
    }
    let space = space(cluster, configured)
        .ok_or_else(|| PartsError::Buckets(name(), configured.buckets))?;
    let mut config = DirectorConfig::new(arms, space);
    config.fragments = match configured.fragments {
        DirectorFragments::Together => Fragments::Together,
        DirectorFragments::WithFirst => Fragments::WithFirst,
    };
    if configured.machines.len() > 1 {
        config.pair = Some((0, pair(cluster, configured, place, keys, incarnation)));
    }
    let pool = FramePool::new(POOL_FRAMES).map_err(PartsError::NoFrames)?;
    let (director, control) = Director::new(config, ports, pool, now)
        .map_err(|error| PartsError::Config(name(), error))?;
    Ok(Made {
        director,
        control,
        space,
    })
}

fn pair(
    cluster: &Cluster,
    configured: &Configured,
    place: usize,
    keys: &KeyRing,
    incarnation: u64,
) -> PairConfig {
    // The oldest key: during a change of keys both directors begin with the same one until it is dropped.
    let key = keys.keys().first().unwrap_or(keys.sending());
    let name = configured.name.as_bytes().iter();
    let number = name.fold(u64::from(cluster.id().0), |number, byte| {
        number.rotate_left(8) ^ u64::from(*byte)
    });
    PairConfig {
        interval: configured.heartbeat,
        takeover_after: configured.takeover_after,
        // The first one is active if both begin together.
        ..PairConfig::new(
            number,
            key.purpose_key(PAIR_PURPOSE, cluster.id()),
            incarnation,
            if place == 0 { 2 } else { 1 },
        )
    }
}

fn open(plug: &DirectorPort) -> Result<Box<dyn Port>, PortError> {
    let interface = &plug.interface;
    Ok(match plug.kind {
        PortKind::AfXdp => Box::new(AfXdpPort::open(&AfXdpConfig {
            chunks: plug.ring_frames as u32,
            ..AfXdpConfig::new(interface, interface)
        })?),
        // The configuration lets no other kind through.
        _ => Box::new(AfPacketPort::open(&AfPacketConfig {
            ring_slots: plug.ring_frames as u32,
            exclusive: plug.exclusive,
            ..AfPacketConfig::new(interface, interface)
        })?),
    })
}

fn arm_config(arm: &DirectorArm, mac: MacAddress, own_address: Option<Ipv4Addr>) -> ArmConfig {
    ArmConfig {
        mac,
        own_address,
        shared: arm.shared.clone(),
        by: match arm.by {
            DirectorBy::FiveTuple => FlowBy::FiveTuple,
            DirectorBy::BothWays => FlowBy::BothWays,
            DirectorBy::Conversation => FlowBy::Conversation,
            DirectorBy::Source => FlowBy::Source,
            DirectorBy::Destination => FlowBy::Destination,
            DirectorBy::OutsideEndpoint => FlowBy::OutsideEndpoint,
        },
        side: match arm.side {
            DirectorSide::Inside => Side::Inside,
            DirectorSide::Outside => Side::Outside,
        },
        sends_to: Some(arm.sends_to),
    }
}

/// The hosts, and how each is reached on each arm.
pub(super) fn hosts(configured: &Configured, targets: &[String]) -> Vec<(String, Host)> {
    let host = |name: &String| {
        let mut host = Host::default();
        for (arm, link) in configured.arms.iter().zip(&mut host.links) {
            if let Some((_, mac, address)) = arm.hops.iter().find(|hop| hop.0 == *name) {
                *link = HostLink {
                    mac: mac.map(MacAddress),
                    address: *address,
                };
            }
        }
        (name.clone(), host)
    };
    targets.iter().map(host).collect()
}
