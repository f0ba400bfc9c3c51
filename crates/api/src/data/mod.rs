//! Plain data of the API: what an orchestrator reports and what its callers order. No behaviour, one file for each subject.
//!
//! All types are read from and written as JSON with names in `snake_case` and choices in `kebab-case`. Whole numbers carry their unit in
//! the name. Read `cluster.rs` first.

mod cluster;
mod event;
mod flow;
mod health;
mod host;
mod order;
mod plan;
mod problem;
mod state;
mod usage;

pub use cluster::{ClusterSnapshot, ClusterSummary, Director, Leadership, Steering};
pub use event::{Event, EventPage, Events};
pub use flow::{FLOWS_FOUND_MAX, FlowFound, FlowQuery, Flows, Protocol};
pub use health::{Health, HealthItem, Severity};
pub use host::{Host, Hosts, Loads, Stage};
pub use order::{
    BucketRange, Drain, Fence, Forget, Move, MoveWhat, NAME_BYTES_MAX, Order, OrderAccepted,
    REASON_CHARACTERS_MAX, Restore, Scale,
};
pub use plan::{Plan, PlannedAction, Threshold, Wait};
pub use problem::{PROBLEM_TYPE_PREFIX, Problem};
pub use state::{
    ObjectHeld, STATE_ENTRIES_MAX, STATE_WORD_BYTES_MAX, StateEntries, StateEntry, StateHolder,
    StateObject, StateObjects, StateQuery, StateWritten, Unanswered,
};
pub use usage::{TenantUsage, UsageTotals};
