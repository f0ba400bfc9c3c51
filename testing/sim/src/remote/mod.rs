//! Hosts that use the shipped client of a store, over connections that fail, and the embedded store's engine behind them, on virtual time.
//!
//! The seeds of [stores](crate::stores) have an abstract store. Here each host has the client itself with all that it says by its connections:
//! how it logs in, reads, keeps what it read, commits, ends entries, and follows a primary. Connections end in the midst of a command or
//! a reply, or fall silent; hosts die in every stage, pause, and are cut off; the primary dies or is demoted, and what its replica did
//! not have is lost. Output and store must be those of one sequential box in the order in which the store made the transactions.
//!
//! In some seeds the store has two or three shards, each with a primary, a replica and failovers of its own, and a sequential box for its
//! own conversations.
//!
//! Read first: `plan.rs` (a seed's decisions), `ledger.rs` (what hosts run), `division.rs` (which shard has what), `network.rs` and `servers.rs`
//! (what is between them), `oracle.rs` and `waits.rs` (what must hold).

mod additions;
mod direction;
mod division;
mod ends;
mod hosts;
mod keys;
mod ledger;
mod links;
mod network;
mod oracle;
mod plan;
mod servers;
mod waits;
mod world;

use std::ops::Range;

use crate::report::{Failure, Report};
use crate::runs::{Options, Summary, run_many, unless_it_panics};
use crate::trace::Trace;

pub use plan::{Ack, Failover, Hiccup, HiccupPlan, HostDeath, Keeps, RemotePlan, ShardPlan, Stage};
pub use servers::Refusal;

/// Runs one seed. A panic of the product is a failure like any other.
///
/// # Errors
/// The first check that did not hold.
pub fn run_remote_seed(seed: u64, trace: &mut Trace) -> Result<Report, Failure> {
    unless_it_panics(|| world::run(&RemotePlan::from_seed(seed), trace))
}

/// The seeds whose store has several shards, in their order.
#[must_use]
pub fn nth_sharded_seed(number: u64) -> u64 {
    let mut seeds = (0..).filter(|&seed| RemotePlan::from_seed(seed).shards.len() > 1);
    seeds.nth(number as usize).unwrap_or_default()
}

/// Runs all seeds of a range and adds them up, as [`run_seeds`](crate::run_seeds) does.
#[must_use]
pub fn run_remotes(range: Range<u64>, options: Options) -> Summary {
    run_many(range, options, "remote", run_remote_seed)
}
