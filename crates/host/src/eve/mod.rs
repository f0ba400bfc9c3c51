//! Alerts as lines of JSON in the form of Suricata's `eve.json`, which log shippers and search systems read.
//!
//! `line.rs` makes a line of a notice (read it first), `ledger.rs` knows the lines already written, `asterism_lines` writes
//! lines from a thread of its own, so that a slow disk or reader delays nothing else. `run/eve.rs` does this for a running
//! host, the crate of rehearsals for a capture.

pub mod ledger;
pub mod line;
