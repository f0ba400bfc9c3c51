//! The command that `docs/book.toml` names as a preprocessor: see `book.rs`. `supports RENDERER` asks whether it serves a renderer, which
//! it does for every one; without arguments it reads a book from standard input and writes it to standard output.

use std::io::{Read, Write};
use std::process::ExitCode;

use asterism_tidy::book;

fn main() -> ExitCode {
    if std::env::args()
        .nth(1)
        .is_some_and(|word| word == "supports")
    {
        return ExitCode::SUCCESS;
    }
    match completed() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mdbook-asterism: {error}");
            ExitCode::FAILURE
        }
    }
}

fn completed() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    let book = book::preprocessed(&input)?;
    std::io::stdout().write_all(book.as_bytes())?;
    Ok(())
}
