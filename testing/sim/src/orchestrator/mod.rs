//! Orchestrators and hosts of one cluster on virtual time: two or three controllers of which one leads, a store with leases, the
//! steering, a launcher, and hosts that die, stand still, are cut off, move to another machine, or begin again and again.
//!
//! Heartbeats and epochs are sealed datagrams of the product's own links, over a network that loses, overtakes and repeats them.
//! Hosts here handle no packets. What must hold is who takes part and where packets go: never two lives in one place, never two
//! epochs of one number, never a port to two flows (an incarnation is declared ended only when it has), no command of a leader
//! whose term has ended, no host that is well left out; and, once faults have ended, a cluster of all living hosts that all get
//! packets, in which nothing changes any more.
//!
//! Read first: `plan.rs` (a seed's decisions), `world.rs` (a run), then `store.rs`, `orchestrators.rs`, `hosts.rs`, `network.rs` and `claims.rs` (what must hold).

mod claims;
mod hosts;
mod network;
mod operator;
mod orchestrators;
mod plan;
mod store;
mod world;

use std::ops::Range;

use crate::report::{Failure, Report};
use crate::runs::{Options, Summary, run_many, unless_it_panics};
use crate::trace::Trace;

pub use plan::{Fault, FaultKind, OrchestratorPlan};

/// Runs one seed. A panic of the product is a failure like any other.
///
/// # Errors
/// The first check that did not hold.
pub fn run_orchestrator_seed(seed: u64, trace: &mut Trace) -> Result<Report, Failure> {
    unless_it_panics(|| world::run(&OrchestratorPlan::from_seed(seed), trace))
}

/// Runs all seeds of a range and adds them up, as [`run_seeds`](crate::run_seeds) does.
#[must_use]
pub fn run_orchestrators(range: Range<u64>, options: Options) -> Summary {
    run_many(range, options, "orchestrator", run_orchestrator_seed)
}
