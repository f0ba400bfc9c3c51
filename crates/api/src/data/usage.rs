//! Usage of tenants, each unit counted once since the cluster began.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The usage of the tenants that a caller may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageTotals {
    /// When this was true, in milliseconds since 1970.
    pub at_ms: u64,
    /// In the order of their names.
    pub tenants: Vec<TenantUsage>,
}

/// The usage of one tenant since the cluster began. Counts that would pass 2^64 − 1 stay there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantUsage {
    /// The tenant.
    pub tenant: String,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Flows.
    pub flows: u64,
    /// Time of its instances, in milliseconds.
    pub instance_ms: u64,
}
