//! `asterism-bench list | measure NAME [--full] [--format json] | report [NAME...]`.
//!
//! The document goes to standard output, progress to standard error. Exit codes: 0 measured, 1 unsound
//! (or out of time), 2 a command line that says nothing, 3 not yet built, 4 something needed is absent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use lexopt::prelude::*;
use serde::Serialize;

use crate::contract::{Document, Failure};
use crate::figures::{self, figure, in_words};
use crate::machine::{self, Machine};
use crate::measures::{self, Context};
use crate::{instructions, plot, registry};

const USAGE: &str = "\
The measures of Asterism: each is made again at every call.

Usage: asterism-bench list [--format json]
       asterism-bench measure NAME [--full] [--seed N] [--format json]
       asterism-bench report [NAME...] [--full] [--seed N] [--plots DIR] [--into PAGE] [--format json]

  list     every measure that is promised, with its bar; those not built say \"not yet\"
  measure  makes one and prints it; ends within 45 s (lab.*: 55 s) unless --full
  report   makes all that are built, or those named, and prints a table

  --full         the long form
  --seed N       the seed of the traffic (default 1)
  --plots DIR    write the pictures of those that have one there, as NAME.svg
  --into PAGE    write the values into the page's table of figures, in place of those of the same measures
  --format json  one JSON document on standard output

Exit: 0 measured, whether or not the bar is met; 1 unsound; 2 usage; 3 not yet built; 4 something needed is absent.
";

/// The default seed of the traffic.
const SEED: u64 = 1;
/// The version of the list's document.
const LIST_SCHEMA: &str = "asterism.measures/1";
/// The version of the report's document.
const REPORT_SCHEMA: &str = "asterism.report/1";

/// Does what the arguments (the program's name first) say.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let result = parse(arguments).and_then(|(request, options)| obey(request, options));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("asterism-bench: {}", failure.sentence());
            ExitCode::from(failure.exit_code())
        }
    }
}

enum Request {
    Help,
    List,
    Measure(String),
    /// All measures that are built, or these.
    Report(Vec<String>),
    /// Hidden: the instruction counter's child.
    RunWorkload(String, u32),
    /// Hidden: instructions per packet of a workload, for those who tune it.
    Instructions(String),
}

#[derive(Clone)]
struct Options {
    json: bool,
    plots: Option<PathBuf>,
    into: Option<PathBuf>,
    context: Context,
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Request, Options), Failure> {
    let mut parser = lexopt::Parser::from_iter(arguments);
    let mut words = Vec::new();
    let mut options = Options {
        json: false,
        plots: None,
        into: None,
        context: Context {
            full: false,
            seed: SEED,
        },
    };
    let wrong = |error: lexopt::Error| Failure::Usage(format!("{error}; `--help` says more"));
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Short('h') | Long("help") => return Ok((Request::Help, options)),
            Long("full") => options.context.full = true,
            Long("seed") => {
                options.context.seed = parser
                    .value()
                    .and_then(|value| value.parse())
                    .map_err(wrong)?
            }
            Long("into") => options.into = Some(parser.value().map_err(wrong)?.into()),
            Long("plots") => options.plots = Some(parser.value().map_err(wrong)?.into()),
            Long("format") => match parser
                .value()
                .and_then(|value| value.string())
                .map_err(wrong)?
                .as_str()
            {
                "json" => options.json = true,
                "text" => options.json = false,
                other => {
                    return Err(Failure::Usage(format!(
                        "--format is json or text, not {other}"
                    )));
                }
            },
            Value(word) => words.push(word.string().map_err(wrong)?),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let request = match words.as_slice() {
        ["list"] => Request::List,
        ["measure", name] => Request::Measure((*name).to_owned()),
        ["report", names @ ..] => {
            if let Some(name) = names.iter().find(|name| registry::find(name).is_none()) {
                return Err(Failure::Usage(format!(
                    "no measure is called {name}; `list` names them all"
                )));
            }
            Request::Report(names.iter().map(|name| (*name).to_owned()).collect())
        }
        ["instructions", name] => Request::Instructions((*name).to_owned()),
        [instructions::SUBCOMMAND, name, packets] => {
            let packets = packets
                .parse()
                .map_err(|_| Failure::Usage(format!("{packets} is no number of packets")))?;
            Request::RunWorkload((*name).to_owned(), packets)
        }
        ["measure"] => {
            return Err(Failure::Usage(
                "measure what? `list` names them all".to_owned(),
            ));
        }
        [] => {
            return Err(Failure::Usage(
                "say list, measure NAME or report; `--help` says more".to_owned(),
            ));
        }
        other => {
            return Err(Failure::Usage(format!(
                "`{}` is none of list, measure NAME, report",
                other.join(" ")
            )));
        }
    };
    Ok((request, options))
}

fn obey(request: Request, options: Options) -> Result<(), Failure> {
    match request {
        Request::Help => print(USAGE),
        Request::List => list(options.json),
        Request::Measure(name) => measure(&name, options),
        Request::Report(names) => report(&names, options),
        Request::RunWorkload(name, packets) => {
            instructions::run_workload(workload(&name)?, packets);
            Ok(())
        }
        Request::Instructions(name) => {
            let name = workload(&name)?.name;
            print(&format!("{:.3}\n", instructions::per_packet(name)?))
        }
    }
}

fn workload(name: &str) -> Result<&'static instructions::Workload, Failure> {
    measures::workload(name).ok_or_else(|| Failure::Usage(format!("no workload is called {name}")))
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    group: String,
    built: bool,
    unit: &'static str,
    bar: String,
    value: &'static str,
    anchor: Vec<String>,
    later: Option<String>,
}

fn list(json: bool) -> Result<(), Failure> {
    let listed = registry::rows().map(|row| Listed {
        name: row.name,
        group: row.group.to_string(),
        built: measures::find(row.name).is_some(),
        unit: row.unit,
        bar: row.bar_in_words(),
        value: row.value,
        anchor: row
            .anchors
            .iter()
            .map(|anchor| format!("{}: {} ({})", anchor.whose, anchor.figure, anchor.from))
            .collect(),
        later: row.later.map(|(group, what)| format!("{group}: {what}")),
    });
    if json {
        let measures: Vec<_> = listed.collect();
        return print_json(&serde_json::json!({ "schema": LIST_SCHEMA, "measures": measures }));
    }
    let mut text = String::new();
    let mut group = String::new();
    for row in listed {
        if row.group != group {
            group = row.group;
            text.push_str(&format!("\n{group}\n"));
        }
        let state = if row.built { "" } else { "not yet" };
        text.push_str(&format!(
            "  {:<32} {:<8} {:<40} {}\n",
            row.name,
            state,
            format!("{} {}", row.bar, row.unit),
            row.value
        ));
    }
    print(text.trim_start_matches('\n'))
}

fn measure(name: &str, options: Options) -> Result<(), Failure> {
    if let Some(row) = registry::find(name) {
        if !options.context.full {
            end_after(row.limit_seconds(), row.name);
        }
        if measures::find(name).is_some() {
            eprintln!("{name}: {}", row.value);
        }
    }
    let document = measures::make(name, &options.context)?;
    if options.json {
        return print_json(&document);
    }
    let mut text = format!("{}\n", line_of(&document));
    if let Some([first, third]) = document.quartiles {
        text.push_str(&format!(
            "  quartiles {} to {}, {} runs\n",
            figure(first),
            figure(third),
            document.runs
        ));
    }
    for (variant, number) in &document.variants {
        text.push_str(&format!("  {variant:<30} {}\n", figure(*number)));
    }
    for anchor in &document.anchor {
        text.push_str(&format!(
            "  anchor: {} {} ({})\n",
            anchor.whose, anchor.figure, anchor.from
        ));
    }
    let lost = document.lost_time;
    text.push_str(&format!(
        "  lost {:.1} % of {:.0} ms, worst gap {:.2} ms; {}; {}; commit {}\n",
        100.0 * lost.share(),
        lost.wall_ms,
        lost.worst_gap_ms,
        document.machine.processor,
        document.machine.kernel,
        document.commit
    ));
    print(&text)
}

fn cannot_use(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Absent(format!("{} cannot be used: {error}", path.display()))
}

/// The page of figures, found wrong before anything is measured.
fn read_page(path: &Path) -> Result<String, Failure> {
    let page = std::fs::read_to_string(path).map_err(|error| cannot_use(path, &error))?;
    figures::merge(&page, &BTreeMap::new(), std::iter::empty())?;
    Ok(page)
}

/// Each measure runs in a process of its own, so that none finds another's memory, caches or clock.
fn report(names: &[String], options: Options) -> Result<(), Failure> {
    let page = match &options.into {
        Some(path) => Some((path, read_page(path)?)),
        None => None,
    };
    let mut documents = Vec::new();
    let mut failed = Vec::new();
    let mut not_yet = Vec::new();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    for row in registry::rows().filter(|row| is_wanted(row.name)) {
        if measures::find(row.name).is_none() {
            not_yet.push(row.name);
            continue;
        }
        match measure_apart(row.name, options.context) {
            Ok(document) => {
                if let Some(folder) = &options.plots {
                    draw(&document, folder)?;
                }
                documents.push(document);
            }
            Err(sentence) => {
                eprintln!("asterism-bench: {sentence}");
                failed.push(serde_json::json!({ "name": row.name, "sentence": sentence }));
            }
        }
    }
    if let Some((path, page)) = page {
        let rows = documents
            .iter()
            .map(|one: &Document| (one.name.clone(), figures::row(one)));
        let page = figures::merge(&page, &rows.collect(), registry::rows().map(|row| row.name))?;
        std::fs::write(path, page).map_err(|error| cannot_use(path, &error))?;
    }
    if options.json {
        print_json(&serde_json::json!({
            "schema": REPORT_SCHEMA,
            "machine": Machine::describe(),
            "commit": machine::commit(),
            "measures": documents,
            "failed": failed,
            "not_yet": not_yet,
        }))?;
    } else {
        let machine = Machine::describe();
        let mut text = format!(
            "{}; {} cores; {}; {} build; commit {}\n\n| measure | value | unit | bar | met | anchors |\n|---|---|---|---|---|---|\n",
            machine.processor,
            machine.cores,
            machine.kernel,
            machine.profile,
            machine::commit()
        );
        for document in &documents {
            let anchors: Vec<String> = document
                .anchor
                .iter()
                .map(|anchor| format!("{} {}", anchor.whose, anchor.figure))
                .collect();
            text.push_str(&format!(
                "| `{}` | {} | {} | {} | {} | {} |\n",
                document.name,
                figure(document.value),
                document.unit,
                document.bar,
                in_words(document.met),
                anchors.join("; ")
            ));
        }
        for entry in &failed {
            text.push_str(&format!(
                "| `{}` | failed | | | | {} |\n",
                entry["name"].as_str().unwrap_or("?"),
                entry["sentence"].as_str().unwrap_or("?")
            ));
        }
        text.push_str(&format!(
            "\nnot yet built ({}): {}\n",
            not_yet.len(),
            not_yet.join(", ")
        ));
        print(&text)?;
    }
    match failed.len() {
        0 => Ok(()),
        count => Err(Failure::Unsound(format!(
            "{count} of {} measures failed",
            count + documents.len()
        ))),
    }
}

/// Writes a document's picture, if it has one.
fn draw(document: &Document, folder: &Path) -> Result<(), Failure> {
    let Some(picture) = plot::picture(document) else {
        return Ok(());
    };
    let path = folder.join(format!("{}.svg", document.name));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, picture))
        .map_err(|error| Failure::Absent(format!("{} is not written ({error})", path.display())))
}

fn measure_apart(name: &str, context: Context) -> Result<Document, String> {
    let program = std::env::current_exe()
        .map_err(|error| format!("{name}: this program's own file is unknown ({error})"))?;
    let mut command = Command::new(program);
    command.args([
        "measure",
        name,
        "--format",
        "json",
        "--seed",
        &context.seed.to_string(),
    ]);
    if context.full {
        command.arg("--full");
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{name}: no process to measure in ({error})"))?;
    if !output.status.success() {
        return Err(format!("{name} failed with {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{name} printed no document ({error})"))
}

/// Ends the process with a sentence once the time of the short form is over.
#[expect(
    clippy::disallowed_methods,
    reason = "the binary is where time is kept"
)]
fn end_after(seconds: u32, name: &'static str) {
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(u64::from(seconds)));
        eprintln!("asterism-bench: {name} did not end within {seconds} s");
        std::process::exit(1);
    });
}

fn line_of(document: &Document) -> String {
    format!(
        "{}: {} {} (bar {}: {})",
        document.name,
        figure(document.value),
        document.unit,
        document.bar,
        in_words(document.met)
    )
}

fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::Unsound(format!("a document that is no JSON ({error})")))?;
    text.push('\n');
    print(&text)
}

/// Writes to standard output; a reader that went away is an error with a sentence, not a panic.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::Absent(format!("standard output took nothing ({error})")))
}
