//! Elasticity: when a cluster gets hosts, loses some, or moves buckets between them, as pure decisions.
//!
//! An operator writes a [`Policy`], [`Policies`] checks and joins them to the [`Rules`] of each cluster, and
//! [`Elasticity::decide`] turns samples and a moment into [`Decision`]s. Nothing here does I/O, reads a clock or waits: the
//! orchestrator's core calls, carries out, and stores the [`State`] for the next leader. The papers leave policies to examples
//! (Split/Merge §5.1 to §5.3, StatelessNF §4.5); the rules that keep these from flapping are in `docs/src/elasticity.md`.
//!
//! Read `policy.rs` (the input of the operator), `sample.rs` (the input of hosts and steering), `decision.rs` (the output), then
//! `decide.rs`, which calls `signals.rs`, `size.rs` and `moves.rs`. `explain.rs` is the dry run. [`usage`] meters what each tenant uses
//! of the hosts.

mod balance;
mod decide;
mod decision;
mod explain;
mod fleet;
mod moves;
pub mod mutant;
mod policy;
mod policy_error;
mod rules;
mod sample;
mod schedule;
mod signals;
mod size;
mod state;
mod time;
pub mod usage;

pub use decide::Elasticity;
pub use decision::{Action, Choice, Decision, Excess, Obstacle, Reason, Slack, Wanted};
pub use explain::{Explanation, Wait, WaitFor, Watch};
pub use fleet::Counts;
pub use policy::{
    BackOff, Consolidation, HostBounds, HotSpot, POLICIES_MAX, Policies, Policy, Thresholds,
};
pub use policy_error::{PoliciesError, PolicyError};
pub use rules::{HOSTS_MAX, Limits, Rules};
pub use sample::{
    BUCKETS_MAX, BucketLoad, CPU_PERMILLE_MAX, FLOWS_MAX, HostSample, LAG_US_MAX, LATENCY_US_MAX,
    Metric, NAME_BYTES_MAX, PACKETS_PER_SECOND_MAX, Reading, SAMPLES_MAX, Standing,
    rate_per_second, whole,
};
pub use schedule::{Day, DayTime, Offset, ScheduleError, WINDOWS_MAX, Window};
pub use state::{FAILURES_MAX, Ordered, State, TOO_FEW_FOR, TooFew};
pub use time::{Span, SpanError, UnixMs};
