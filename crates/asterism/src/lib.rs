//! The one binary: the command line, and the commands that ask running hosts (`commands/`).
//!
//! `main.rs` only calls [`command_line::run`]; the code is a library so that tests reach it, and so that programs around functions of
//! other crates (`program.rs`) have the same command line. Read first: `command_line.rs`, then
//! the crates `host` (`asterism run`) and `rehearsal` (`replay`, `test`, `demo`).

pub mod check;
pub mod command_line;
pub mod commands;
pub mod decrypt;
pub mod direct;
pub mod epoch;
pub mod keygen;
pub mod keys;
pub mod lab;
pub mod orchestrate;
pub mod outside;
pub mod program;
pub mod scaffold;
pub mod store;
pub mod up;

pub use program::Program;
