//! Network functions on whole hosts: the shipped packet loop and state channel, each function with its configuration, and traffic
//! around them that takes any way it likes, while a host dies and its next incarnation joins.
//!
//! What comes out is judged against one box: what it gave to a flow, what may pass, what it counted, what it found. A cluster may
//! differ from that only by what an instance could not know yet, or what only the dead host knew; each check says how it tells.
//!
//! Read first: `plan.rs` (what a seed decides), `drive.rs` (a run), `bindings.rs` (what lag allows).

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
pub use run::{FUNCTIONS, Subject, run_functions, run_functions_seed};
