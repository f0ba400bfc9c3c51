//! A host: its instances and its state channel, on one thread or taken apart for several.

use core::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use asterism_placement::replicated::audit::Auditor;
use asterism_placement::replicated::{Config as ReplicaConfig, FRAME_BYTES, Replicator};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::{
    ClusterKey, HEADER_BYTES, KeyRing, SecureChannel, SecureConfig, TAG_BYTES, Terms,
};
use asterism_state::{Identity, OBJECTS_MAX, OriginName, Sequencer, Tick};

use crate::channel::StateChannel;
use crate::exchange::Round;
use crate::holding::HoldSettings;
use crate::instance::{Exchange, InstanceParts, Reports};
use crate::mutant::{self, Mutant};
use asterism_io::ring::{Broadcast, ByteRing};

/// How a host takes part in a cluster. Fields say meaning, a sane value and the bound.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The cluster's name as a number. Mix what [`shape_of`](crate::shape_of) the function says into it, so that hosts whose states
    /// would disagree refuse each other.
    pub cluster: ClusterId,
    /// The version of the member list.
    pub epoch: Epoch,
    /// This host.
    pub member: MemberId,
    /// This start of it: from a store or a synced file, or random; never from a clock.
    pub incarnation: Incarnation,
    /// Whether other hosts may run already: then nothing is read or written before a
    /// [`Roster`](asterism_placement::membership::Roster) names this host and it has what they have.
    pub joins: bool,
    /// All who may ever be members, this host included, in the same order on every host: leases are dealt by it.
    pub members: Vec<MemberId>,
    /// The cluster's keys that are accepted, and the one that this host seals under. [`hash_seed`] of that one is the same
    /// at all hosts and for the cluster's lifetime.
    pub keys: KeyRing,
    /// 48 bytes from a secure source, drawn again at each start.
    pub secrets: [u8; 48],
    /// Instances of this host. Sane: one for each core left for them. Bound: 1 to 64.
    pub instances: u16,
    /// UDP payload bytes of a datagram. Sane: 1472 (MTU 1500, IPv4).
    pub datagram_bytes_max: usize,
    /// How often accumulators are flushed, in microseconds. Sane: 200. Bound: at least 1.
    pub flush_us: u64,
    /// Seconds since 1970 at time zero of the host's clock, by its date: the cluster's time, if this host is the first of all to
    /// begin. Else it takes over the time that the others have (`cluster_time.rs` in `asterism-placement`).
    pub tick_at_zero: Tick,
    /// Whether this host agrees on the cluster's time with the others. Without, it keeps `tick_at_zero`, and its driver sees to it that
    /// all hosts' clocks agree. The same on all hosts.
    pub shares_time: bool,
    /// Objects of an instance, all of which are audited: digests of their parts are compared with the other hosts'; 0: none
    /// is, and this host takes no part in that. The same on all hosts.
    pub audited_objects: usize,
    /// Objects that may be changed between local and replicated while the host runs, and where they are now.
    pub placements: Placed,
    /// How long this host grants from its pools though so few members answer it that the others may be a majority; one idle time
    /// later it handles no packets, and later still the others may have what it held. The same on all hosts. Sane: 1 h. Bound:
    /// at least 1 s; zero: it grants for ever, and only who is known to be dead is inherited from.
    pub port_lease: Duration,
    /// How packets are held back until others have what they depend on; `None`: they leave at once. The same on all hosts.
    pub hold: Option<HoldSettings>,
    /// Further settings that hosts must share; a host with others is not admitted. `None`: nothing is compared.
    pub terms: Option<Terms>,
    /// Bytes of the ring from each instance to the state channel. Sane: 1 MiB. Bound: at least 128 KiB; a chain reads no port while
    /// fewer than 72 KiB are free for each of its stages.
    pub up_ring_bytes: usize,
    /// Bytes of the ring from the state channel to the instances. Sane: 4 MiB. Bound: at least 128 KiB.
    pub down_ring_bytes: usize,
    /// What the placement is given besides names; see its fields.
    pub replica: ReplicaConfig,
}

impl HostConfig {
    /// A host with sane values for everything but names and secrets.
    pub fn new(
        cluster: ClusterId,
        member: MemberId,
        incarnation: Incarnation,
        members: Vec<MemberId>,
        keys: impl Into<KeyRing>,
        secrets: [u8; 48],
    ) -> Self {
        Self {
            cluster,
            epoch: Epoch(1),
            joins: false,
            member,
            incarnation,
            keys: keys.into(),
            secrets,
            instances: 1,
            datagram_bytes_max: 1_472,
            flush_us: 200,
            tick_at_zero: 1_000,
            shares_time: true,
            audited_objects: 0,
            placements: Placed::default(),
            port_lease: Duration::ZERO,
            hold: None,
            terms: None,
            up_ring_bytes: 1 << 20,
            down_ring_bytes: 4 << 20,
            replica: ReplicaConfig::new(cluster, Epoch(1), member, incarnation, members.clone()),
            members,
        }
    }
}

/// Where objects are that may be changed between local and replicated while a host runs: sets of them have a bit for each, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Those that may be changed: [`Shape::movable`](asterism_state::layout::Shape::movable). The same on all hosts.
    pub movable: u64,
    /// Those of them that are replicated by this host's configuration.
    pub replicated: u64,
}

/// The shortest time between two acknowledgements where packets are held for them.
const HELD_ACKNOWLEDGE_DELAY: Duration = Duration::from_micros(20);

/// Why a host could not be made.
#[derive(Debug)]
pub enum HostError {
    /// The configuration contradicts itself or is out of its bounds.
    Configuration(String),
    /// Memory for the rings could not be had.
    Memory(io::Error),
}

impl core::fmt::Display for HostError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Configuration(why) => write!(formatter, "the host was not started: {why}"),
            Self::Memory(why) => write!(
                formatter,
                "the host was not started: no memory for its rings: {why}"
            ),
        }
    }
}

impl std::error::Error for HostError {}

/// Makes a host's state channel and the parts of its instances, each to be moved to its thread.
///
/// # Errors
/// See [`HostError`]; nothing was started.
pub fn host(
    config: HostConfig,
    now: Time,
) -> Result<(StateChannel, Vec<InstanceParts>), HostError> {
    if config.instances == 0 || config.instances > 64 {
        return Err(HostError::Configuration("instances must be 1 to 64".into()));
    }
    if config.up_ring_bytes < 128 << 10 || config.down_ring_bytes < 128 << 10 {
        return Err(HostError::Configuration(
            "rings must have at least 128 KiB".into(),
        ));
    }
    if let Some(hold) = &config.hold
        && !((1..=63).contains(&hold.copies) && (1..=1 << 16).contains(&hold.packets_max))
    {
        let why = "held packets need 1 to 63 copies, and 1 to 65,536 of them may be held";
        return Err(HostError::Configuration(why.into()));
    }
    let payload_bytes_max = config
        .datagram_bytes_max
        .saturating_sub(HEADER_BYTES + TAG_BYTES)
        .saturating_sub(config.replica.sites.as_ref().map_or(0, |_| FRAME_BYTES));
    let replica = ReplicaConfig {
        cluster: config.cluster,
        epoch: config.epoch,
        joins: config.joins,
        member: config.member,
        incarnation: config.incarnation,
        members: config.members.clone(),
        payload_bytes_max,
        cluster_time_at_zero_us: config
            .shares_time
            .then_some(u64::from(config.tick_at_zero) * 1_000_000),
        acknowledge_delay: match config.hold {
            Some(_) => config.replica.acknowledge_delay.min(HELD_ACKNOWLEDGE_DELAY),
            None => config.replica.acknowledge_delay,
        },
        acknowledges_promptly: config.hold.is_some(),
        siblings: config.instances > 1 && !mutant::active(Mutant::SiblingsNotAwaited),
        ..config.replica
    };
    let replicator =
        Replicator::new(replica, now).map_err(|why| HostError::Configuration(why.to_string()))?;

    let mut salt = [0; 16];
    let mut seed = [0; 32];
    salt.copy_from_slice(&config.secrets[..16]);
    seed.copy_from_slice(&config.secrets[16..]);
    let hash_seed = hash_seed(config.keys.sending());
    let mut secure = SecureConfig::new(
        config.keys,
        config.cluster,
        config.member,
        config.incarnation,
        config.members.clone(),
    );
    secure.epoch = config.epoch;
    secure.terms = config.terms;
    secure.wire_version = config.replica.wire_newest;
    secure.silence = secure
        .silence
        .max(config.replica.keep_alive * 10)
        .max(Duration::from_millis(100));
    let secure = SecureChannel::new(secure, salt, seed)
        .map_err(|why| HostError::Configuration(why.to_string()))?;

    let (down, readers) = Broadcast::new(config.down_ring_bytes, usize::from(config.instances))
        .map_err(HostError::Memory)?;
    let mut ups = Vec::new();
    let mut parts = Vec::new();
    let shared = Arc::new(AtomicU64::new(0));
    let round = Arc::new(Round::default());
    for (lane, reader) in readers.into_iter().enumerate() {
        let (up, channel_end) = ByteRing::new(config.up_ring_bytes).map_err(HostError::Memory)?;
        ups.push(channel_end);
        parts.push(InstanceParts {
            identity: Identity {
                own: OriginName {
                    member: config.member.0,
                    incarnation: config.incarnation.0,
                },
                members: config.members.iter().map(|member| member.0).collect(),
                lane: (lane as u16, config.instances),
            },
            sequencer: if config.instances == 1 {
                Sequencer::Own(Cell::new(0))
            } else {
                Sequencer::Shared(shared.clone())
            },
            seed: hash_seed,
            tick_at_zero: config.tick_at_zero,
            flush_us: config.flush_us,
            exchange: Some(Exchange {
                up,
                down: reader,
                committed: shared.clone(),
                written: 0,
                round: round.clone(),
                reports: Reports::new(),
            }),
            joins: config.joins,
            port_lease_us: config.port_lease.as_micros() as u64,
            hold: config.hold.clone(),
            store: None,
        });
    }
    let objects = config.audited_objects.min(OBJECTS_MAX);
    let auditor = Auditor::new(&replicator, usize::from(config.instances), objects, now);
    let mut channel = StateChannel::new(secure, replicator, (ups, down), (shared, round), auditor);
    if let Some(hold) = &config.hold {
        channel.confirm_with(hold.copies);
    }
    channel.place(config.placements, now);
    Ok((channel, parts))
}

/// The seed of hashes and choices: the same on all instances of a cluster, known to no outsider. It comes of the cluster's
/// first key; the keys that follow name it, since what hosts hold and tell each other depends on it: places in sketches
/// and filters.
#[must_use]
pub fn hash_seed(key: &ClusterKey) -> u64 {
    key.hash_seed().unwrap_or_else(|| {
        let text = key.to_text();
        asterism_state::hash::bytes(text.as_bytes(), 0xC401_CE5E_ED00_0001)
    })
}
