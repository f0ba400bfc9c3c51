//! The dry run of the elasticity policies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the elasticity policies would do now, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// When this was decided, in milliseconds since 1970.
    pub at_ms: u64,
    /// Whether decisions are carried out. If not, the plan is all that policies do.
    pub is_carried_out: bool,
    /// Hosts that serve or start.
    pub hosts: u32,
    /// The fewest hosts at this moment.
    pub minimum: u32,
    /// The most hosts.
    pub maximum: u32,
    /// What would be done now.
    pub actions: Vec<PlannedAction>,
    /// What is waited for, the shortest wait first.
    pub waits: Vec<Wait>,
    /// All thresholds.
    pub thresholds: Vec<Threshold>,
}

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedAction {
    /// Its kind: `scale-out`, `scale-in`, `move-buckets` or `hold`.
    pub action: String,
    /// What would be done, in one sentence.
    pub sentence: String,
    /// Why, in one sentence.
    pub reason: String,
    /// The figures behind it, with units in their names.
    pub figures: BTreeMap<String, i64>,
}

/// Something that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Wait {
    /// What follows if nothing changes, in one sentence.
    pub sentence: String,
    /// How much longer, in milliseconds.
    pub remaining_ms: u64,
}

/// A threshold that is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Threshold {
    /// The threshold and its figure, in one sentence.
    pub sentence: String,
    /// How near the figure is, in thousandths: 1,000 and more are beyond it. Absent if the figure is not known.
    pub nearness_permille: Option<u64>,
}
