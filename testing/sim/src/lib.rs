//! The deterministic simulator and its checkers.
//!
//! A seed decides a cluster, its bounds, its load and its faults ([`Scenario`]). A run links the shipped cores, codec and
//! sealing (no rule of a protocol exists twice) on virtual time, and an independent oracle judges them ([`oracle`],
//! [`witness`], [`checks`]). A safety phase with faults is followed by a heal phase that must end.
//!
//! Read first: `scenario.rs`, `world.rs`, `checks.rs`.

mod audits;
pub mod branches;
pub mod checks;
mod congestion;
pub mod entries;
mod estate;
pub mod exercise;
mod faults;
mod foreign;
pub mod functions;
pub mod groups;
mod healing;
mod inheritance;
mod load;
mod moved;
mod moves;
#[cfg(asterism_mutants)]
pub mod mutants;
pub mod oracle;
pub mod orchestrator;
pub mod ports;
mod rebirth;
pub mod recorded;
pub mod remote;
mod repairs;
mod report;
mod runs;
mod scenario;
mod sites;
pub mod soak;
pub mod spent;
pub mod stores;
mod stranger;
mod sums;
mod tail;
mod trace;
mod upgrade;
pub mod witness;
mod world;

pub use healing::LOOK;
pub use report::{Failure, Report};
pub use runs::{FailedSeed, Options, Summary, run_seed, run_seeds};
pub use scenario::{Bounds, Draws, Fault, Planned, Scenario, Stranger};
pub use trace::Trace;
pub use world::{FAULTS_LEAST, KINDS_LEAST, OPERATIONS_LEAST, World};
