//! Network functions on whole hosts: the shipped packet loop and state channel, each function with its configuration, and
//! traffic around them on any path, while a host dies and its next incarnation joins.
//!
//! The output is judged against one box: the bindings of flows, passed packets, counts, findings. A cluster may differ only
//! by updates that an instance could not know yet, or that only the dead host knew; each check decides which.
//!
//! Read first: `plan.rs` (a seed's decisions), `drive.rs` (a run), `bindings.rs` (the differences that lag allows).

mod asked;
mod bindings;
mod caches;
mod carrier;
mod chained;
mod counts;
mod detectors;
mod drive;
mod granted;
mod hosts;
mod limits;
mod plan;
mod run;
mod services;
mod talks;
mod watched;

pub use plan::{Death, Plan};
pub use run::{FUNCTIONS, Subject, nth_holding_seed, run_functions, run_functions_seed};
pub(crate) use talks::frame;
