//! Usage: what each tenant used (packets, bytes, flows, instance-seconds), each unit metered exactly once (StatelessNF chapter 5
//! bills tenants by it).
//!
//! Hosts report cumulative counts, and reports may be late, lost, doubled or out of order; hosts restart, leave and die; leaders
//! change. [`Meter`] is a pure state machine: reports and lists of members in, totals out. Its caller receives reports and stores
//! the [`UsageState`]. Read `report.rs` (the input), `meter.rs` (the rules), then `export.rs` (the output).

mod export;
mod meter;
pub mod mutant;
mod report;

pub use export::{COUNTERS, Value, json_lines, prometheus};
pub use meter::{
    ACCOUNTS_MAX, Account, Meter, SETTLED_AFTER_MS, Taken, Usage, UsageError, UsageState,
};
pub use report::{
    Counts, INSTANCES_MAX, NAME_BYTES_MAX, PACKET_BYTES_MAX, PACKETS_PER_SECOND_MAX, Report,
    TENANTS_MAX,
};
