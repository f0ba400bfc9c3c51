//! One host of the cluster: its place in the membership, and its load.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The hosts that a caller may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hosts {
    /// When this was true, in milliseconds since 1970.
    pub at_ms: u64,
    /// In the order of their names.
    pub hosts: Vec<Host>,
}

/// One host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Its name, which is its place in the cluster.
    pub name: String,
    /// The tenant that it serves; absent if it serves all.
    pub tenant: Option<String>,
    /// How far it is.
    pub stage: Stage,
    /// Its incarnation; 0 if no epoch named one yet.
    pub incarnation: u64,
    /// The number of the epoch that it has in force.
    pub epoch: u64,
    /// Milliseconds since its last heartbeat; absent if none came yet.
    pub silent_for_ms: Option<u64>,
    /// Whether its silence keeps packets from it.
    pub is_suspect: bool,
    /// Whether most of the others do not receive it, which keeps packets from it too.
    pub is_isolated: bool,
    /// Whether packets go to it.
    pub takes: bool,
    /// Whether it keeps its flows and gets no new ones, by order.
    pub drains: bool,
    /// Whether the epoch in force leaves it out.
    pub is_out: bool,
    /// Its share of new flows, relative to the others' weights.
    pub weight: u32,
    /// Whether its auditor finds no difference to any member.
    pub digests_agree: bool,
    /// The loads of its last heartbeat; absent if none had any.
    pub loads: Option<Loads>,
}

/// How far a host is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// No heartbeat came yet.
    #[default]
    Unknown,
    /// It waits until an epoch names an incarnation for it.
    Awaiting,
    /// It takes over the others' state.
    Joining,
    /// It reads packets.
    Serving,
    /// It reads no more packets, and ends once the others have all that it wrote.
    Leaving,
    /// It sent its last message, or its process is known to have ended.
    Ended,
}

/// The load of one host, averaged over its last heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Loads {
    /// Packets read per second.
    pub packets_per_second: u64,
    /// Bits read per second.
    pub bits_per_second: u64,
    /// Processor time of the host over the time of its packet loops, in thousandths.
    pub cpu_permille: u32,
    /// Entries of its largest table: its flows, where the function follows flows.
    pub flows: u64,
    /// Lag behind the slowest peer, in microseconds.
    pub lag_us: u64,
    /// Packets that wait for state.
    pub parked: u64,
    /// Packets dropped since its start, by reason.
    pub drops: BTreeMap<String, u64>,
}
