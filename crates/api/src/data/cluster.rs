//! The cluster as one consistent snapshot, and the part of it that is no host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{HealthItem, Host, TenantUsage};

/// All that an orchestrator knows of its cluster at one moment. The server shows parts of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSnapshot {
    /// The cluster without its hosts.
    pub cluster: ClusterSummary,
    /// Its hosts, those that wait for admission included, in the order of their names.
    pub hosts: Vec<Host>,
    /// What is wrong, the gravest first.
    pub health: Vec<HealthItem>,
    /// What tenants used since the cluster began.
    pub usage: Vec<TenantUsage>,
}

/// The cluster without its hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSummary {
    /// The cluster's name.
    pub name: String,
    /// When this was true, in milliseconds since 1970.
    pub at_ms: u64,
    /// The number of the epoch in force; 0 if there is none yet.
    pub epoch: u64,
    /// Who leads. Absent for tenants.
    pub leadership: Option<Leadership>,
    /// Whether the truth store answered last time. While it does not, hosts and steering go on as they are.
    pub is_store_reachable: bool,
    /// The steering. Absent for tenants.
    pub steering: Option<Steering>,
    /// How many hosts the caller may see.
    pub hosts: u32,
    /// How many of them take packets.
    pub hosts_taking: u32,
}

/// Who leads the orchestrators of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Leadership {
    /// The name of the orchestrator that leads; absent if none is known to.
    pub leader: Option<String>,
    /// The address of the leader's API, as a client connects to it; absent if it is not known.
    pub leader_address: Option<String>,
    /// The term, which the store counts up with each leader.
    pub term: u64,
    /// Whether the answering orchestrator leads.
    pub is_leading: bool,
}

/// The desired state of the steering, and whether packets go by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Steering {
    /// The number of the desired state.
    pub generation: u64,
    /// The number of the state in force. Packets go by this one.
    pub in_force: u64,
    /// Why the last attempt failed; absent if it did not.
    pub last_error: Option<String>,
    /// The directors on other machines, as each answered last.
    #[serde(default)]
    pub directors: Vec<Director>,
}

/// A director on another machine, as it answered last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Director {
    /// The name of its machine.
    pub name: String,
    /// Whether it answers. If not, all else is from before.
    pub answers: bool,
    /// Whether it has the shared addresses.
    pub is_active: bool,
    /// Whether it receives the heartbeats of the other director.
    pub hears_other: bool,
    /// The number of the desired state that it has in force; absent if it has none.
    pub generation: Option<u64>,
    /// How much of the flow space goes to no host, in thousandths.
    pub no_target_permille: u16,
    /// Packets handed to hosts since its start.
    pub forwarded: u64,
    /// Frames dropped since its start.
    pub dropped: u64,
}
