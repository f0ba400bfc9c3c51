//! The measures: `list`, `measure NAME`, `report`.
//!
//! Read `registry` first: every measure that the project has promised, with its unit, bar and anchors. `contract` is the
//! document that a measure prints, `measures` has the making of each, one file a group; the rest are instruments:
//! `instructions` (single-stepping), `timing` (on-CPU time in interleaved pairs), `allocations`, `traffic`, `memory`, and
//! `floor`, the yardstick.
//!
//! May import every crate of the product; nothing imports it.

pub mod allocations;
pub mod command_line;
pub mod contract;
mod cores;
mod figures;
pub mod floor;
pub mod instructions;
pub mod machine;
pub mod measures;
pub mod memory;
mod plot;
pub mod registry;
pub mod timing;
pub mod traffic;
