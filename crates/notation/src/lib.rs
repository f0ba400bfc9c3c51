//! How values are written in a configuration, on a command line and in a scenario: each is read with an error that says what to write
//! instead, and shown as it would be written.
//!
//! It knows no field and no table: those are the configuration's. Read first: `value.rs`.

#![forbid(unsafe_code)]

pub mod network;
pub mod suggestion;
pub mod text;
pub mod value;
