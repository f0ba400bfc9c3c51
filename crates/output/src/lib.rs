//! What a command says: its result on standard output, as text or as one JSON document; everything else on standard error.
//!
//! All commands end by an [`End`], whose exit codes scripts rely on. `page.rs` is what programs say to Prometheus. Read first: [`Output`].

mod end;
pub mod page;
mod table;

use std::io::Write;

use asterism_config::diagnostic::Report;
use asterism_config::functions::Functions;
use clap::ValueEnum;
use serde::Serialize;

pub use end::{EXIT_CODES, End};
pub use table::Table;

/// The format of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text to read.
    Text,
    /// One JSON document; its `schema` says which kind and version.
    Json,
}

/// Where a command's words go, and the functions that they may be about.
pub struct Output<'a> {
    functions: Functions,
    format: Format,
    stdout: &'a mut dyn Write,
    stderr: &'a mut dyn Write,
    coloured: bool,
    broken: bool,
}

impl core::fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Output({:?})", self.format)
    }
}

/// Which kind of document it is; the first field of every document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Schema {
    /// The kind, such as `asterism.check`.
    pub name: &'static str,
    /// Grows when a field changes its meaning or goes; a new field alone does not change it.
    pub version: u32,
}

/// A document with its schema in front.
#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema: Schema,
    #[serde(flatten)]
    content: &'a T,
}

/// The document of a command that failed before it had a result.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// What failed, and what to do.
    pub error: String,
}

/// The schema of [`Failure`].
pub const FAILURE: Schema = Schema {
    name: "asterism.failure",
    version: 1,
};

impl<'a> Output<'a> {
    /// An output to two streams.
    pub fn new(
        format: Format,
        stdout: &'a mut dyn Write,
        stderr: &'a mut dyn Write,
        coloured: bool,
    ) -> Output<'a> {
        Output {
            functions: Functions::default(),
            format,
            stdout,
            stderr,
            coloured,
            broken: false,
        }
    }

    /// The same for a program that brings functions along.
    #[must_use]
    pub fn for_functions(self, functions: Functions) -> Output<'a> {
        Output { functions, ..self }
    }

    /// The functions that a configuration may name.
    #[must_use]
    pub fn functions(&self) -> Functions {
        self.functions
    }

    /// Whether a JSON document is wanted.
    #[must_use]
    pub fn json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether standard error takes colours.
    #[must_use]
    pub fn coloured(&self) -> bool {
        self.coloured
    }

    /// Writes the result as text.
    pub fn text(&mut self, text: &str) {
        self.broken |= self.stdout.write_all(text.as_bytes()).is_err();
    }

    /// Writes the result as a document.
    pub fn document(&mut self, schema: Schema, content: &impl Serialize) {
        let document = Document { schema, content };
        match serde_json::to_string_pretty(&document) {
            Ok(text) => self.text(&(text + "\n")),
            Err(error) => self.say(&format!(
                "error: the result cannot be written as JSON: {error}\n"
            )),
        }
    }

    /// Says something beside the result.
    pub fn say(&mut self, text: &str) {
        // Nobody is left to tell when standard error cannot be written.
        let _ = self.stderr.write_all(text.as_bytes());
        let _ = self.stderr.flush();
    }

    /// Shows a report on standard error, with the number of mistakes.
    pub fn report(&mut self, report: &Report) {
        self.say(&report.render(self.coloured()));
        if report.errors() > 0 {
            let count = |count: usize, what: &str| {
                format!("{count} {what}{}", if count == 1 { "" } else { "s" })
            };
            let warnings = match report.warnings() {
                0 => String::new(),
                warnings => format!(" ({})", count(warnings, "warning")),
            };
            self.say(&format!(
                "error: {} refused: {}{warnings}; nothing was started\n",
                report.file,
                count(report.errors(), "mistake")
            ));
        }
    }

    /// Where progress goes, to write lines to.
    pub fn progress(&mut self) -> &mut dyn Write {
        self.stderr
    }

    /// Lets a reader see the result while the command goes on.
    pub fn flush(&mut self) {
        self.broken |= self.stdout.flush().is_err();
    }

    /// Ends with a failure: in words, and as a document if one is wanted.
    pub fn fail(&mut self, end: End, error: &(impl core::fmt::Display + ?Sized)) -> End {
        self.say(&format!("error: {error}\n"));
        if self.json() {
            self.document(
                FAILURE,
                &Failure {
                    error: error.to_string(),
                },
            );
        }
        self.end(end)
    }

    /// Ends: a result that could not be written is a failure.
    pub fn end(&mut self, end: End) -> End {
        self.broken |= self.stdout.flush().is_err();
        if self.broken && end == End::Done {
            self.say("error: standard output could not be written\n");
            return End::File;
        }
        end
    }
}
