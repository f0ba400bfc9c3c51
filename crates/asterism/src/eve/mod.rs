//! Alerts as lines of JSON in the form of Suricata's `eve.json`, which log shippers and search systems read.
//!
//! `line.rs` makes a line of what a function found, `ledger.rs` knows what was written already, `crate::lines` writes lines from
//! a thread of its own, so that a disk or a reader that is slow holds up nobody else. `run/eve.rs` has it done for a running host,
//! `replay/eve.rs` for a capture. Read first: `line.rs`.

pub mod ledger;
pub mod line;
