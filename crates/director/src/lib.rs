//! The director: an ingress stage that the network sends a cluster's packets to, and that hands each on to the host which has
//! its flow.
//!
//! A frame keeps its IP packet; only its Ethernet addresses change: the host's as destination, the director's as source. Hosts
//! answer the network themselves (direct return), so the director sees one direction of each arm. It is no hop: the time to live stays.
//! Two directors with one desired state spread alike without exchanging it, and one of them has the shared addresses.
//!
//! Read first: `table/mod.rs` (the flow space in buckets) and `flow.rs` (which packets go together), both without I/O. Then
//! `exceptions.rs` (single flows that go elsewhere), `suspended.rs` (packets that wait), `addresses.rs` and `hosts.rs` (ARP and
//! neighbour discovery), `pair/` (which of two directors is active), and `director.rs`, the loop. `control.rs` carries
//! commands from another thread, `statistics.rs` carries counts to it.
//!
//! On a packet's path nothing allocates, locks, logs or formats.
#![forbid(unsafe_code)]

mod addresses;
mod bounded;
mod config;
mod control;
mod director;
mod drop;
mod exceptions;
mod flow;
pub mod fuzz;
mod hosts;
pub mod pair;
mod run;
mod statistics;
mod suspended;
pub mod table;

pub use addresses::{ADDRESSES_MAX, ANNOUNCE_INTERVAL, ANNOUNCEMENTS};
pub use config::{ARMS_MAX, ArmConfig, DirectorConfig, DirectorConfigError};
pub use control::{
    ANSWERS_MAX, Answer, COMMANDS_MAX, Command, CommandError, Control, ControlError, Done,
};
pub use director::{Director, RESUMED_PER_TURN};
pub use drop::DirectorDrop;
pub use exceptions::{EXCEPTIONS_MAX, IDLE_MAX};
pub use flow::{FRAGMENTS_MAX, FRAGMENTS_TIME, FlowBy, Fragments, Side};
pub use hosts::{Host, HostLink, PROBE_INTERVAL, REFRESH_INTERVAL};
pub use run::run;
pub use statistics::{DirectorStatistics, PUBLISH_INTERVAL, TargetCount};
pub use suspended::{SUSPENSIONS_MAX, Suspend, SuspendedBounds};

pub use asterism_packet::{FlowKey, MacAddress};
