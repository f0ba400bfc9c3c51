//! Networks that a driver of the orchestrator steers: a router with routes (`routes.rs`), and a switch (`switch.rs`). Each has
//! three hosts, [`TARGETS`], behind ports of their own.

mod routes;
mod switch;

pub use routes::RouterLab;
pub use switch::{BRIDGE, CLIENT_COUNT, SwitchLab};

/// The hosts of both networks.
pub const TARGETS: [&str; 3] = ["a", "b", "c"];
