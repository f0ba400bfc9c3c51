//! Instances of several hosts whose objects live in one hostile store, on virtual time.
//!
//! Packets of any flow come to any host. The links to the store delay, lose, repeat and reorder; the store refuses some transactions
//! for no reason and is away for a while; hosts die with transactions that are not decided, and others begin in their places. The
//! output and the store's objects must be those of one sequential box in the order in which the store committed.
//!
//! Read first: `plan.rs` (a seed's decisions), `world.rs` (a run), `oracle.rs` (what must hold).

mod accounts;
mod network;
mod oracle;
mod plan;
mod streams;
mod world;

use std::ops::Range;

use accounts::Accounts;
use streams::Streams;

use crate::report::{Failure, Report};
use crate::runs::{Options, Summary, run_many, unless_it_panics};
use crate::trace::Trace;

pub(crate) use network::Outside;
pub use plan::{Death, Homes, StorePlan, Subject};

/// Runs one seed. A panic of the product is a failure like any other.
///
/// # Errors
/// The first check that did not hold.
pub fn run_store_seed(seed: u64, trace: &mut Trace) -> Result<Report, Failure> {
    unless_it_panics(|| {
        let plan = &StorePlan::from_seed(seed);
        match plan.subject {
            Subject::Accounts => world::run(plan, &mut Accounts::new(plan), trace),
            Subject::Signature => world::run(plan, &mut Streams::new(plan), trace),
        }
    })
}

/// Runs all seeds of a range and adds them up, as [`run_seeds`](crate::run_seeds) does.
#[must_use]
pub fn run_stores(range: Range<u64>, options: Options) -> Summary {
    run_many(range, options, "store", run_store_seed)
}
