//! What `status` says, as documents.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use asterism_placement::seal::Versions;
use serde::{Deserialize, Serialize};

use super::{HealthDocument, StageDocument};
use crate::control::audit::AuditDocument;
use crate::control::sites::SitesDocument;
use crate::lines::LinesDocument;
use crate::run::caches::CachesDocument;
use crate::run::exports::ExportsDocument;
use crate::run::port_log::PortsDocument;

/// A host as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusDocument {
    /// The cluster.
    pub cluster: String,
    /// The host.
    pub host: String,
    /// Its number.
    pub member: u16,
    /// This start of it.
    pub incarnation: String,
    /// What hosts must have alike of the function, its settings and its objects, as a number: hosts of two shapes refuse each other.
    pub shape: String,
    /// The version of the member list.
    pub epoch: u32,
    /// The program's version.
    pub version: String,
    /// The network function.
    pub function: String,
    /// What it does: `listening`, `running`, `draining` or `ended`.
    pub phase: String,
    /// Microseconds since it was started.
    pub uptime_us: u64,
    /// Its packet loops.
    pub instances: Vec<InstanceDocument>,
    /// Its state channel.
    pub channel: ChannelDocument,
    /// The cluster's time; absent of older builds.
    #[serde(default)]
    pub time: Option<TimeDocument>,
    /// The other members.
    pub peers: Vec<PeerDocument>,
    /// What needs a look.
    #[serde(default)]
    pub health: Vec<HealthDocument>,
    /// The sites, where members have some.
    pub sites: SitesDocument,
    /// Whether its state is that of the others.
    pub audit: AuditDocument,
    /// Whether it holds what the others hold.
    pub joined: bool,
    /// A later epoch that another member has in force; absent while there is none. Until this host has it too it grants no ports, and soon
    /// reads no packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later_epoch: Option<u32>,
    /// Incarnations of members that an epoch ended, and that not all members have alike yet.
    pub ended: Vec<EndedDocument>,
    /// Lines that its log left out because there were too many of their kind.
    pub log_lines_suppressed: u64,
    /// What it exported to a collector; absent where nothing is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exports: Option<ExportsDocument>,
    /// What is known of outside ports; absent where the function is no NAT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_ports: Option<PortsDocument>,
    /// Alerts that it wrote as lines of JSON; absent where none are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eve: Option<LinesDocument>,
    /// What it fetched from web caches and served; absent where the function knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<CachesDocument>,
}

/// An incarnation of a member that an epoch ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedDocument {
    /// Whose.
    pub name: String,
    /// Which.
    pub incarnation: String,
    /// Whether this host has all that anybody has of it.
    pub whole: bool,
    /// A member that has not said what it has.
    pub waits_for: Option<String>,
}

/// A packet loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceDocument {
    /// Its number.
    pub instance: usize,
    /// What it counted.
    pub counts: BTreeMap<String, u64>,
    /// Packets dropped, by reason; those that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Packets parked now.
    pub parked: u64,
    /// The most packets parked at any time.
    pub parked_most: u64,
    /// Incarnations of members that it distinguishes now, of 65,535.
    pub incarnations: u64,
    /// Frames in use.
    pub frames_in_use: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// How often it slept.
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
    /// What it is.
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
    /// Entries with those that ended and are not forgotten yet.
    pub held: u64,
    /// Entries at most; 0 if there is no such bound.
    pub capacity: u32,
    /// Of a pool, items of members that left which the epoch has dealt to this instance and which it may not grant yet.
    pub quarantined: u32,
    /// Of a pool, items of members that left which this instance may grant.
    pub reclaimed: u32,
    /// What it counted of losers and all else that was not taken as it was meant; what occurred.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// A digest of its content, if asked for: equal on hosts that hold the same.
    pub digest: Option<String>,
}

/// The state channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelDocument {
    /// Where it listens.
    pub address: String,
    /// The last group that this host wrote.
    pub head: u64,
    /// Whether all that was written is applied everywhere.
    pub is_quiet: bool,
    /// Groups that the log has room for.
    pub log_groups_free: u64,
    /// Bytes that the log has room for.
    pub log_bytes_free: u64,
    /// Bytes that wait for slow instances.
    pub backlog_bytes: u64,
    /// How long counters and sketches keep changes back at most now; 0 while no path is congested.
    pub coalescing_window_us: u64,
    /// Changes of their cells that were reported since the start.
    pub counter_changes: u64,
    /// Totals with which they were reported: the fewer, the more was coalesced.
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
    /// What the transport counted.
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
    /// Where it is.
    pub address: Option<SocketAddr>,
    /// Whether its session is admitted here.
    pub admitted: bool,
    /// Whether it admitted this host.
    pub welcomes: bool,
    /// Whether what is sent to it comes back.
    pub unreachable: bool,
    /// Whether it fell off the log.
    pub lagging: bool,
    /// For how long it has not been served from the log, since it fell off it.
    pub lags_us: Option<u64>,
    /// Whether it is a member of the epoch.
    pub takes_part: bool,
    /// When it was last heard.
    pub heard_us_ago: Option<u64>,
    /// How long ago this host sent the last message that it says it received.
    #[serde(default)]
    pub receives_us_ago: Option<u64>,
    /// The fault that there is with it; see [`StatusDocument::health`].
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
    /// For how long.
    pub behind_us: u64,
    /// Groups of this host that it has not acknowledged.
    pub unacknowledged_groups: u64,
    /// The number of the cluster key under which it was last heard.
    pub heard_with: Option<u8>,
    /// The numbers of the cluster keys that it says it accepts; absent if it does not say.
    pub accepts: Option<Vec<u8>>,
    /// The wire versions that it says it understands; absent if it has not said.
    pub understands: Option<VersionsDocument>,
    /// The numbers under which it accepts another key than this host.
    pub differing_keys: Vec<u8>,
    /// Settings that hosts must share and that it has otherwise, which is why it is not admitted: each with this host's value and its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing_settings: Vec<DifferingSetting>,
    /// What came in its name under keys that this host does not have; strangers can cause it too.
    pub missing_key: Option<MissingKeyDocument>,
}

/// Clocks of another member, against those here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockDocument {
    /// By how much its machine's date is ahead of the one here; negative if it is behind, absent if one of the two is not known.
    pub date_ahead_us: Option<i64>,
    /// By how much the cluster's time as it has it is ahead of the one here.
    pub cluster_ahead_us: i64,
    /// How exact these are: half of the shortest round trip.
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
    /// Whether this host goes back to no earlier time, since it serves or has the time of a host that does.
    pub settled: bool,
    /// The member whose time it took over; absent if it began with its own date.
    pub taken_from: Option<String>,
}

/// A setting that two hosts must share and have otherwise.
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
    pub(super) fn new(versions: Versions) -> Self {
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

/// Datagrams under a cluster key that a host does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingKeyDocument {
    /// The number that the last of them named.
    pub id: u8,
    /// How many came.
    pub datagrams: u64,
    /// When the last came.
    pub us_ago: u64,
}
