//! Which backend a new flow gets, and which backends live.
//!
//! Layer 3c, above `forwarding`; imports it and `asterism_function` alone.

mod choose;
mod finding;
mod flow;
mod kept;
mod maglev;
pub mod mutant;
mod path;
mod pool;
mod service;
mod state;
mod votes;
mod watch;

pub use choose::{Chosen, Known};
pub use finding::Finding;
pub use flow::{Flow, Flows, opens};
pub use kept::{ClientKey, Clients, Keeping, Kept};
pub use maglev::{Maglev, PLACES};
pub use path::{Led, Path};
pub use pool::{BACKENDS_MOST, Pool, Pools};
pub use service::{Backend, Choice, Mode, PASSIVE_MAX, Service, WEIGHT_MAX};
pub use state::{Sizes, tables};
pub use votes::{FAILURES, SILENCE_SECONDS, VOTE_SECONDS, VOTERS, Votes};
pub use watch::{Health, Heeded, Said, health};
