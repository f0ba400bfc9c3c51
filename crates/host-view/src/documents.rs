//! The documents of `asterism status`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use asterism_secure_channel::Versions;
use serde::{Deserialize, Serialize};

use crate::audit::AuditDocument;
use crate::caches::CachesDocument;
use crate::exports::ExportsDocument;
use crate::health::HealthDocument;
use crate::placements::PlacementDocument;
use crate::ports::PortsDocument;
use crate::sites::SitesDocument;
use crate::stages::StageDocument;
use crate::store::StoreDocument;
use asterism_lines::LinesDocument;

/// A host as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusDocument {
    /// The cluster.
    pub cluster: String,
    /// The host.
    pub host: String,
    /// Its number.
    pub member: u16,
    /// Its incarnation.
    pub incarnation: String,
    /// The shape: a number for the function, settings and objects that all hosts must share. Hosts of two shapes refuse each other.
    pub shape: String,
    /// The version of the member list.
    pub epoch: u32,
    /// The program's version.
    pub version: String,
    /// The network function.
    pub function: String,
    /// Its phase: `listening`, `running`, `draining` or `ended`.
    pub phase: String,
    /// Microseconds since it was started.
    pub uptime_us: u64,
    /// Its packet loops.
    pub instances: Vec<InstanceDocument>,
    /// Its state channel.
    pub channel: ChannelDocument,
    /// The cluster's time; absent from older builds.
    #[serde(default)]
    pub time: Option<TimeDocument>,
    /// The other members.
    pub peers: Vec<PeerDocument>,
    /// Faults that need the operator's attention.
    #[serde(default)]
    pub health: Vec<HealthDocument>,
    /// The sites, where members have some.
    pub sites: SitesDocument,
    /// Whether its state equals that of the others.
    pub audit: AuditDocument,
    /// Whether it has joined: it holds the state of the others.
    pub joined: bool,
    /// A later epoch that another member has in force; absent while there is none. Until this host has that epoch too, the host grants
    /// no ports, and soon reads no packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later_epoch: Option<u32>,
    /// State objects that hosts have in different placements, or whose change is not complete; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<PlacementDocument>,
    /// Incarnations that an epoch ended and whose updates not all members hold yet.
    pub ended: Vec<EndedDocument>,
    /// Lines that its log left out because there were too many of their kind.
    pub log_lines_suppressed: u64,
    /// Counts of exports to a collector; absent where nothing is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exports: Option<ExportsDocument>,
    /// The accounting of outside ports; absent where the function is no NAT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_ports: Option<PortsDocument>,
    /// Alerts that it wrote as lines of JSON; absent where none are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eve: Option<LinesDocument>,
    /// Counts of web-cache digests fetched and served; absent where the function knows no caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<CachesDocument>,
    /// The store of remote objects; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreDocument>,
}

/// An incarnation of a member that an epoch ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedDocument {
    /// The member.
    pub name: String,
    /// The incarnation.
    pub incarnation: String,
    /// Whether this host holds every update of the incarnation that any member holds.
    pub whole: bool,
    /// A member that has not reported which updates it holds.
    pub waits_for: Option<String>,
}

/// A packet loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceDocument {
    /// Its number.
    pub instance: usize,
    /// Its counters.
    pub counts: BTreeMap<String, u64>,
    /// Packets dropped, by reason; those that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Packets parked now.
    pub parked: u64,
    /// The most packets parked at any time.
    pub parked_most: u64,
    /// Packets held back now until other hosts have what they depend on.
    pub held: u64,
    /// Bytes of these packets.
    pub held_bytes: u64,
    /// The most packets held back at any time.
    pub held_most: u64,
    /// Incarnations of members that it distinguishes now, of 65,535.
    pub incarnations: u64,
    /// Frames in use.
    pub frames_in_use: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Number of sleeps.
    pub sleeps: u64,
    /// Its ports.
    pub ports: Vec<PortDocument>,
    /// The stages of a chain, in order; absent of other functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageDocument>,
    /// Values of the function's own metrics; absent of functions without.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<String, u64>,
    /// Its state objects.
    pub objects: Vec<ObjectDocument>,
}

/// A port of a packet loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "counts named as in the engine's statistics")]
pub struct PortDocument {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its interface or file.
    pub place: String,
    /// Whether packets can pass.
    pub is_up: bool,
    pub received_packets: u64,
    pub received_bytes: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub link_downs: u64,
    /// Packets dropped, by reason; those that occurred.
    pub dropped: BTreeMap<String, u64>,
}

/// A state object of a packet loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDocument {
    /// Its name.
    pub name: String,
    /// Entries that can be found.
    pub live: u64,
    /// Entries including tombstones.
    pub held: u64,
    /// Entries at most; 0 if there is no such bound.
    pub capacity: u32,
    /// Of a pool, items of members that left, assigned to this instance by the epoch and still in quarantine.
    pub quarantined: u32,
    /// Of a pool, items of members that left which this instance may grant.
    pub reclaimed: u32,
    /// Counters of shadowed writes and other exceptions, without zero counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// A digest of its content, on request: equal on hosts with equal content.
    pub digest: Option<String>,
}

/// The state channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelDocument {
    /// Its local address.
    pub address: String,
    /// The last group that this host wrote.
    pub head: u64,
    /// Whether all members have applied all writes of this host.
    pub is_quiet: bool,
    /// Groups that the log has room for.
    pub log_groups_free: u64,
    /// Bytes that the log has room for.
    pub log_bytes_free: u64,
    /// Bytes that wait for slow instances.
    pub backlog_bytes: u64,
    /// Present maximum delay of counter and sketch updates; 0 while no path is congested.
    pub coalescing_window_us: u64,
    /// Changes of their cells that were reported since the start.
    pub counter_changes: u64,
    /// Totals that reported those changes: fewer totals mean more coalescing.
    pub counters_reported: u64,
    /// The narrowest path's MTU; 0 while none is known.
    pub path_mtu: u64,
    /// Whether the kernel cuts messages.
    pub segmentation: bool,
    /// Whether the kernel joins arrivals.
    pub receive_offload: bool,
    /// The number of the cluster key that it sends with.
    pub sends_with: u8,
    /// The numbers of the cluster keys that it accepts.
    pub accepts: Vec<u8>,
    /// The wire version that it speaks: the newest that all members of the epoch understand.
    pub speaks: u8,
    /// The wire versions that it understands.
    pub understands: VersionsDocument,
    /// The transport's counters.
    pub transport: BTreeMap<String, u64>,
    /// Datagrams refused while sealed, by reason; those that occurred.
    pub refused: BTreeMap<String, u64>,
}

/// Another member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerDocument {
    /// Its name.
    pub name: String,
    /// Its number.
    pub member: u16,
    /// Its address.
    pub address: Option<SocketAddr>,
    /// Whether its session is admitted here.
    pub admitted: bool,
    /// Whether it admitted this host.
    pub welcomes: bool,
    /// Whether datagrams to it are returned as undeliverable.
    pub unreachable: bool,
    /// Whether it fell off the log.
    pub lagging: bool,
    /// For how long it has not been served from the log, since it fell off it.
    pub lags_us: Option<u64>,
    /// Whether it is a member of the epoch.
    pub takes_part: bool,
    /// Time since the last datagram received from it.
    pub heard_us_ago: Option<u64>,
    /// Age of the last message of this host that it reports as received.
    #[serde(default)]
    pub receives_us_ago: Option<u64>,
    /// Its present fault; see [`StatusDocument::health`].
    #[serde(default)]
    pub fault: Option<String>,
    /// Its clocks; absent if it has not advertised them.
    #[serde(default)]
    pub clock: Option<ClockDocument>,
    /// The average round trip to it.
    pub round_trip_us: Option<u64>,
    /// Whether the path to it is congested, by its round trips.
    pub congested: bool,
    /// Groups of it that are not applied here.
    pub behind_groups: u64,
    /// How long this host has been behind.
    pub behind_us: u64,
    /// Groups of this host that it has not acknowledged.
    pub unacknowledged_groups: u64,
    /// The number of the cluster key of the last datagram received from it.
    pub heard_with: Option<u8>,
    /// The numbers of the cluster keys that it advertises as accepted; absent if it advertises none.
    pub accepts: Option<Vec<u8>>,
    /// The wire versions that it advertises as understood; absent before it does.
    pub understands: Option<VersionsDocument>,
    /// The numbers under which its key differs from this host's.
    pub differing_keys: Vec<u8>,
    /// Settings that hosts must share and that differ, so that it is not admitted: each with this host's value and its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing_settings: Vec<DifferingSetting>,
    /// Datagrams in its name under keys that this host lacks; outsiders can cause them too.
    pub missing_key: Option<MissingKeyDocument>,
}

/// Clocks of another member, against those here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockDocument {
    /// Lead of its machine's date over the date here; negative if it is behind, absent if either date is unknown.
    pub date_ahead_us: Option<i64>,
    /// Lead of its cluster time over the cluster time here.
    pub cluster_ahead_us: i64,
    /// The error of both values: half of the shortest round trip.
    pub within_us: u64,
    /// Whether its messages are refused because the two times are too far apart.
    pub refused: bool,
}

/// The cluster's time, by which entries idle out, and this machine's date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeDocument {
    /// Microseconds of the cluster's time since 1970.
    pub cluster_us: u64,
    /// Microseconds of this machine's date since 1970.
    pub date_us: u64,
    /// Whether this host's time is final: the host serves, or has the time of a host that serves.
    pub settled: bool,
    /// The member whose time this host took over; absent if it began with its own date.
    pub taken_from: Option<String>,
}

/// A setting that two hosts must share but have with different values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingSetting {
    /// Its name.
    pub name: String,
    /// This host's value.
    pub ours: String,
    /// The other's.
    pub theirs: String,
}

/// The wire versions that a host understands: all from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsDocument {
    /// The oldest.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl VersionsDocument {
    pub(crate) fn new(versions: Versions) -> Self {
        let Versions { oldest, newest } = versions;
        Self { oldest, newest }
    }
}

impl std::fmt::Display for VersionsDocument {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.oldest == self.newest {
            true => write!(out, "{}", self.newest),
            false => write!(out, "{} to {}", self.oldest, self.newest),
        }
    }
}

/// Datagrams under a cluster key that a host lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingKeyDocument {
    /// The number that the last of them named.
    pub id: u8,
    /// Their number.
    pub datagrams: u64,
    /// Time since the last of them.
    pub us_ago: u64,
}
