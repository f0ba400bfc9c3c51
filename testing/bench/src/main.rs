//! The binary: hands its arguments to the library.

fn main() -> std::process::ExitCode {
    asterism_bench::command_line::run(std::env::args_os())
}
