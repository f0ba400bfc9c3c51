//! A program that runs network functions of other crates: the whole command line of `asterism`, whose configuration may name
//! these functions beside those of this crate, alone or as stages of a chain. What `asterism new` writes makes one.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::marker::PhantomData;
use std::process::ExitCode;

use asterism_config::fields;
use asterism_config::functions::{Described, Functions, Jobs, OutsideFunction};
use asterism_function::{NetworkFunction, State};
use asterism_host::run::RunJob;
use asterism_host::run::reload::CopiesJob;
use asterism_output::End;
use asterism_rehearsal::replay::ReplayJob;
use asterism_rehearsal::scenario::ScenarioJob;
use asterism_toml_schema::section::Default;

use crate::command_line;

/// A program around network functions. See the module.
#[derive(Clone, Debug)]
pub struct Program {
    name: &'static str,
    functions: Vec<Described>,
    /// What each function's state has, in order.
    objects: Vec<&'static [&'static str]>,
}

impl Program {
    /// A program of this name, as its help and completions call it, with the functions of this crate.
    #[must_use]
    pub const fn new(name: &'static str) -> Program {
        Program {
            name,
            functions: Vec::new(),
            objects: Vec::new(),
        }
    }

    /// The same with one function more, reported by its settings.
    #[must_use]
    pub fn with<S: OutsideFunction>(mut self) -> Program {
        self.functions
            .push(Described::outside::<S>(JobsOf::<S>::ALL));
        self.objects
            .push(<S::Function as NetworkFunction>::State::OBJECTS);
        self
    }

    /// Whether the functions are described as they must be: names that nobody else has, sections where they belong, defaults that can
    /// be read, and the objects that the state has. A program says so at its start; a test that asks says so earlier.
    ///
    /// # Errors
    /// The first thing that is not, and how it should be.
    pub fn check(&self) -> Result<(), ProgramError> {
        for (place, function) in self.functions.iter().enumerate() {
            let before = self.functions[..place].iter().map(|other| other.name);
            if let Some(name) = before
                .chain(Functions::default().names())
                .find(|name| *name == function.name)
            {
                return Err(ProgramError::SameName(name));
            }
            check_described(function, self.objects[place]).map_err(|error| {
                ProgramError::Described {
                    name: function.name,
                    error,
                }
            })?;
        }
        Ok(())
    }

    /// The `main` of the program.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let mut stdout = anstream::AutoStream::auto(std::io::stdout());
        let mut stderr = anstream::AutoStream::auto(std::io::stderr());
        let coloured = std::io::stderr().is_terminal()
            && stderr.current_choice() != anstream::ColorChoice::Never;
        self.run_with(std::env::args_os(), &mut stdout, &mut stderr, coloured)
            .into()
    }

    /// Runs a command line of the program. What it says goes to `stdout` and `stderr`; nothing else does. The functions' descriptions
    /// stay in memory until the process ends.
    pub fn run_with(
        self,
        arguments: impl IntoIterator<Item = OsString>,
        stdout: &mut dyn Write,
        stderr: &mut dyn Write,
        coloured: bool,
    ) -> End {
        if let Err(error) = self.check() {
            // Nobody is left to tell when writing fails.
            let _ = writeln!(stderr, "error: {error}");
            return End::CommandLine;
        }
        let functions = Functions::with(self.functions.leak());
        command_line::run_with((self.name, functions), arguments, stdout, stderr, coloured)
    }
}

/// How a function of a program is described wrongly: the first thing that is, and how it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// A function has the name of another one.
    #[error("two functions are called {0:?}: give yours another name")]
    SameName(&'static str),
    /// A function is described wrongly in itself.
    #[error("the function {name:?}: {error}")]
    Described {
        /// Its name.
        name: &'static str,
        /// How.
        error: DescribedError,
    },
}

/// How one function is described wrongly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum DescribedError {
    #[error("its name is to be words of a-z and 0-9 joined by hyphens")]
    Name,
    #[error("its section is called {found:?}, not {wanted:?}")]
    Section { found: &'static str, wanted: String },
    #[error("it describes the objects {described:?}, and its state has {of_state:?}")]
    Objects {
        described: Vec<&'static str>,
        of_state: Vec<String>,
    },
    #[error("an object's section is called {found:?}, not {wanted:?}")]
    ObjectSection { found: &'static str, wanted: String },
    #[error("the section {section:?} has no field `{field}`")]
    Lacks {
        section: String,
        field: &'static str,
    },
    #[error("[{section}] has two fields `{field}`")]
    Twice {
        section: &'static str,
        field: &'static str,
    },
    #[error("[{0}] has a field `state`, where its objects are placed")]
    State(&'static str),
    #[error("the default or example of `{field}` in [{section}] is not good:\n{report}")]
    Default {
        section: &'static str,
        field: &'static str,
        report: String,
    },
}

/// What the crates of this program do with an outside function, compiled for its type.
struct JobsOf<S>(PhantomData<S>);

impl<S: OutsideFunction> JobsOf<S> {
    const ALL: Jobs = &[
        &RunJob::new::<S>(),
        &CopiesJob::new::<S>(),
        &ReplayJob::new::<S>(),
        &ScenarioJob::new::<S>(),
    ];
}

/// Whether a function is described as it must be, given the objects of its state.
fn check_described(function: &Described, objects: &[&str]) -> Result<(), DescribedError> {
    let words = function.name.split('-');
    let mut letters = words.clone().flat_map(str::bytes);
    if !function
        .name
        .starts_with(|letter: char| letter.is_ascii_lowercase())
        || words.clone().any(str::is_empty)
        || !letters.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    {
        return Err(DescribedError::Name);
    }
    let path = format!("function.{}", function.name);
    if function.settings.path != path {
        let found = function.settings.path;
        return Err(DescribedError::Section {
            found,
            wanted: path,
        });
    }
    let described: Vec<_> = function.objects.iter().map(|object| object.name).collect();
    if described != objects {
        let of_state = objects.iter().map(|name| (*name).to_owned()).collect();
        return Err(DescribedError::Objects {
            described,
            of_state,
        });
    }
    for object in function.objects {
        let path = format!("function.{}.state.{}", function.name, object.name);
        let section = object.section;
        if section.path != path {
            let found = section.path;
            return Err(DescribedError::ObjectSection {
                found,
                wanted: path,
            });
        }
        for needed in ["placement", "delay"] {
            if !section.fields.iter().any(|field| field.name == needed) {
                return Err(DescribedError::Lacks {
                    section: path,
                    field: needed,
                });
            }
        }
    }
    for section in fields::of_function(function) {
        for (place, field) in section.fields.iter().enumerate() {
            let (path, name) = (section.path, field.name);
            if section.fields[..place]
                .iter()
                .any(|other| other.name == name)
            {
                return Err(DescribedError::Twice {
                    section: path,
                    field: name,
                });
            }
            if name == "state" && section.path == function.settings.path {
                return Err(DescribedError::State(path));
            }
            let (Default::Is(text) | Default::Required(text)) = field.default else {
                continue;
            };
            if let Err(report) = field.read_default(text) {
                return Err(DescribedError::Default {
                    section: path,
                    field: name,
                    report: report.render(false),
                });
            }
        }
    }
    Ok(())
}
