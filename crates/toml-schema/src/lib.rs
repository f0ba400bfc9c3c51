//! The schema of a TOML file: each table and field is declared once, and the declaration serves the reader, the messages and the
//! reference.
//!
//! A program declares tables by the macros of `declared.rs`, each field with its kind, bounds, default and meaning. `section.rs` and
//! `kind.rs` read a table by its declaration and go on after a mistake; `diagnostic.rs` and `syntax.rs` collect the mistakes and show
//! them at their lines; `reference.rs` describes all fields to operators. `table.rs` and `differences.rs` work on parsed tables of any
//! schema.
//!
//! The crate knows no table and no field by name: those are the program's. It opens no file. Read first: [`section`].

#![forbid(unsafe_code)]

mod declared;
pub mod diagnostic;
pub mod differences;
pub mod kind;
pub mod reference;
mod schema;
pub mod section;
mod syntax;
pub mod table;

pub use schema::Schema;
