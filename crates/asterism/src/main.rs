//! The program `asterism`: standard streams, then [`asterism::command_line::run`].

use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut stdout = anstream::AutoStream::auto(std::io::stdout());
    let mut stderr = anstream::AutoStream::auto(std::io::stderr());
    let coloured =
        std::io::stderr().is_terminal() && stderr.current_choice() != anstream::ColorChoice::Never;
    asterism::command_line::run(std::env::args_os(), &mut stdout, &mut stderr, coloured).into()
}
