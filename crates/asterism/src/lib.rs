//! The one binary: command line, configuration, wiring.
//!
//! `main.rs` only calls [`command_line::run`]; the code is a library so that tests reach it, and so that programs around functions of
//! other crates (`program.rs`) have the same command line. Read first: `command_line.rs`, then `run/mod.rs`.

pub mod check;
pub mod command_line;
mod connections;
pub mod control;
pub mod decrypt;
pub mod demo;
pub mod epochs;
pub mod eve;
pub mod fleet;
pub mod keygen;
pub mod keys;
pub mod lab;
pub mod lines;
pub mod metrics;
pub mod outside;
pub mod program;
pub mod replay;
pub mod run;
pub mod scaffold;
pub mod scenario;
mod stations;
pub mod view;

pub use asterism_config as config;
pub use program::Program;
