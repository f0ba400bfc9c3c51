//! Hosts that use the shipped client of a store, over connections that fail, and the embedded store's engine behind them, on virtual time.
//!
//! The seeds of [stores](crate::stores) have an abstract store. Here each host has the client itself with all that it says by its connections:
//! how it logs in, reads, keeps what it read, commits, ends entries, and follows a primary. Connections end in the midst of a command or
//! a reply, or fall silent; hosts die in every stage, pause, and are cut off; the primary dies or is demoted, and what its replica did
//! not have is lost. Output and store must be those of one sequential box in the order in which the store made the transactions.
//!
//! Read first: `plan.rs` (a seed's decisions), `ledger.rs` (what hosts run), `network.rs` and `servers.rs` (what is between them),
//! `oracle.rs` (what must hold).

mod hosts;
mod ledger;
mod network;
mod oracle;
mod plan;
mod servers;
mod world;

use std::ops::Range;

use crate::report::{Failure, Report};
use crate::runs::{Options, Summary, run_many, unless_it_panics};
use crate::trace::Trace;

pub use plan::{Ack, Failover, Hiccup, HostDeath, Keeps, RemotePlan, Stage};

/// Runs one seed. A panic of the product is a failure like any other.
///
/// # Errors
/// The first check that did not hold.
pub fn run_remote_seed(seed: u64, trace: &mut Trace) -> Result<Report, Failure> {
    unless_it_panics(|| world::run(&RemotePlan::from_seed(seed), trace))
}

/// Runs all seeds of a range and adds them up, as [`run_seeds`](crate::run_seeds) does.
#[must_use]
pub fn run_remotes(range: Range<u64>, options: Options) -> Summary {
    run_many(range, options, "remote", run_remote_seed)
}
