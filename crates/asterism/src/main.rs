//! The program `asterism`: [`asterism::Program`] with the functions of this crate alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    asterism::Program::new("asterism").run()
}
