//! `asterism test`: scenario files, each a configuration, packets and expected results, on virtual time and without root.
//!
//! A file is TOML, as the program reads it, a line `---`, and steps, one a line. `step.rs` reads the steps, `words.rs` their
//! words, `pattern.rs`, `part.rs` and `frame.rs` packets; `world.rs` and `hosts.rs` carry out the steps on the hosts that
//! `replay` and `demo` use, too; `report.rs` shows the results. Read first: [`STEPS`].

#![allow(
    clippy::result_large_err,
    reason = "an error is a mistake with its words, which ends a scenario or the reading of a line: there are few, once"
)]

mod error;
mod frame;
mod hosts;
mod part;
mod pattern;
mod report;
mod step;
mod words;
mod world;

use core::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asterism_config::diagnostic::{Diagnostic, Report};
use asterism_config::files;
use asterism_config::functions::{
    Check, FunctionSettings, Functions, Outside, OutsideFunction, WithFunction,
};
use asterism_config::{Config, Purpose, Settings};
use asterism_function::{
    Endpoint, NetworkFunction, Protocol, Reason, metrics_of, objects_of, reasons_of,
};
use asterism_io::link::LinkConditions;
use asterism_output::End;
use asterism_output::Output;

use crate::fleet::{Fleet, FleetConfig};

use error::FilesError;
pub use report::{Ran, ScenarioReport, TEST, TestReport};
pub use step::STEPS;
use step::Vocabulary;
pub use world::UNEXPECTED_MAX;
use world::World;

/// Files of one call at most.
pub const FILES_MAX: usize = 1_000;
/// Steps of a scenario at most.
pub const STEPS_MAX: usize = 10_000;
/// Packets that a scenario sends at most.
pub const PACKETS_MAX: u64 = 100_000;
/// How long a scenario lasts at most, on its own clock.
pub const SPAN_MAX: Duration = Duration::from_secs(3_600);
/// How long a step waits at most for what it expects, on the scenario's clock.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How names of scenario files end, in a folder.
const EXTENSION: &str = "scenario";
/// The line between the configuration and the steps.
const RULE: &str = "---";
/// The delay between hosts, one way, unless a step says otherwise.
const DELAY: Duration = Duration::from_micros(100);

/// The arguments of `asterism test`.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Scenario files, and folders whose files NAME.scenario are all run
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Repeat the run of this number
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `asterism test`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let files = match files(&arguments.files) {
        Ok(files) => files,
        Err(error) => return output.fail(End::File, &error),
    };
    let mut all = TestReport::default();
    for path in &files {
        let text = match files::text_of(path, "the scenario") {
            Ok(text) => text,
            Err(error) => return output.fail(End::File, &error),
        };
        let (ran, report) = run(path, &text, arguments.seed, output.functions());
        let shown = report.render(output.coloured());
        output.say(&shown);
        let one = ScenarioReport::new(ran, &report);
        if !output.json() {
            output.text(&one.line());
        }
        all.add(one);
    }
    let end = all.end();
    if output.json() {
        output.document(TEST, &all);
    } else {
        output.text(&all.line());
    }
    output.end(end)
}

/// The files that are named, and those of folders by their names.
fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, FilesError> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let cannot = |error| FilesError::Folder {
            path: path.clone(),
            error,
        };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(cannot)? {
            let file = entry.map_err(cannot)?.path();
            if file.extension().is_some_and(|one| one == EXTENSION) {
                found.push(file);
            }
        }
        if found.is_empty() {
            return Err(FilesError::NoScenario(path.clone()));
        }
        found.sort();
        files.extend(found);
    }
    match files.len() > FILES_MAX {
        true => Err(FilesError::TooMany(files.len())),
        false => Ok(files),
    }
}

/// Runs a scenario of this text. Warnings, mistakes, and the step that did not hold are in the report.
#[must_use]
pub fn run(path: &Path, text: &str, seed: u64, functions: Functions) -> (Ran, Report) {
    let name = path.display().to_string();
    let Some(rule) = rule(text) else {
        let mut report = Report::new(&name, text);
        report.add(
            Diagnostic::error("this scenario has no steps", text.len()..text.len())
                .help("write a line `---` behind the configuration, and steps behind it"),
        );
        return (Ran::default(), report);
    };
    let toml = &text[..rule.start];
    let (source, elsewhere) = match named_configuration(toml) {
        Some(file) => {
            let path = files::key_path(path, Path::new(&file));
            match files::text_of(&path, "the configuration") {
                Ok(text) => (path, Some(text)),
                Err(error) => {
                    let mut report = Report::new(&name, text);
                    let start = toml.find(&file).unwrap_or(0);
                    report.add(
                        Diagnostic::error(error.to_string(), start..start + file.len())
                            .help("`configuration` names a file beside the scenario"),
                    );
                    return (Ran::default(), report);
                }
            }
        }
        None => (path.to_owned(), None),
    };
    let toml = elsewhere.as_deref().unwrap_or(toml);
    let source_name = source.display().to_string();
    let (config, mut read) =
        Config::read_as(&source_name, toml, Purpose::Scenario, None, functions);
    let config = files::with_files(config, &source, &mut read);
    let mut report = Report::new(&name, text);
    if elsewhere.is_some() {
        report.others.push(read);
    } else {
        report.diagnostics = read.diagnostics;
        report.others = read.others;
    }
    let Some(config) = config else {
        return (Ran::default(), report);
    };
    let ran = config.function.settings.with(Tested {
        config: &config,
        text: toml,
        path,
        seed,
        functions,
        start: rule.end,
        report: &mut report,
    });
    (ran, report)
}

/// The line `---`.
fn rule(text: &str) -> Option<Range<usize>> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == RULE {
            return Some(at..at + line.len());
        }
        at += line.len();
    }
    None
}

/// The file that a configuration of nothing but `configuration = "FILE"` names.
fn named_configuration(toml: &str) -> Option<String> {
    let table: toml::Table = toml.parse().ok()?;
    let name = table.get("configuration")?.as_str()?;
    (table.len() == 1).then(|| name.to_owned())
}

/// Runs a scenario of the function that is configured.
pub(crate) struct Tested<'a> {
    config: &'a Config,
    text: &'a str,
    path: &'a Path,
    seed: u64,
    functions: Functions,
    /// Where the steps begin.
    start: usize,
    report: &'a mut Report,
}

impl WithFunction for Tested<'_> {
    type Output = Ran;

    fn with<S: FunctionSettings>(self, settings: &S) -> Ran {
        let chosen = self.config.function.clone();
        let function = match settings.function(&chosen.objects) {
            Ok(function) => Arc::new(function),
            Err(error) => return self.refuse(&error),
        };
        let known = vocabulary(self.config, &*function);
        let steps = step::read(self.start, &known, self.report);
        if self.report.errors() > 0 {
            return Ran::default();
        }
        if steps.is_empty() {
            return self.refuse("this scenario has no steps");
        }
        let fleet = FleetConfig {
            cluster: self.config.cluster.clone(),
            instances: self.config.host.instances,
            link: LinkConditions::with_delay(DELAY),
            seed: self.seed,
            jumbo: false,
            counted_incarnations: true,
        };
        let objects = move |name: &str| chosen.object_settings(name);
        let fleet = match Fleet::start(&fleet, &function, objects) {
            Ok(fleet) => fleet,
            Err(error) => return self.refuse(&error),
        };
        let mut world = World::new(fleet, self.config, self.text, self.path, self.functions);
        let failure = world.run(&steps).err();
        let ran = Ran {
            is_run: true,
            holds: failure.is_none(),
            steps: steps.len() as u64,
            packets: world.packets,
            elapsed: world.elapsed(),
        };
        self.report.diagnostics.extend(failure);
        ran
    }

    fn with_outside(self, settings: &Outside) -> Ran {
        (settings.job::<ScenarioJob>().0)(settings, self)
    }
}

/// `asterism test` for an outside function, compiled for its type.
pub struct ScenarioJob(for<'a> fn(&Outside, Tested<'a>) -> Ran);

impl ScenarioJob {
    /// The job of the function with these settings.
    #[must_use]
    pub const fn new<S: OutsideFunction>() -> ScenarioJob {
        ScenarioJob(|settings, test| test.with(settings.settings::<S>()))
    }
}

impl Tested<'_> {
    fn refuse(self, error: &(impl core::fmt::Display + ?Sized)) -> Ran {
        let end = self.report.text.len();
        self.report
            .add(Diagnostic::error(error.to_string(), end..end));
        Ran::default()
    }
}

/// What steps can name.
fn vocabulary<F: NetworkFunction>(config: &Config, function: &F) -> Vocabulary {
    let own = reasons_of(function);
    let reasons = Reason::ALL
        .iter()
        .filter_map(|reason| reason.label_among(own));
    Vocabulary {
        hosts: config.cluster.members.clone(),
        objects: objects_of(function).to_vec(),
        reasons: reasons.collect(),
        metrics: metrics_of(function)
            .iter()
            .map(|metric| metric.name)
            .collect(),
        backends: checked(config),
    }
}

/// What hosts of this configuration check: as in a host that runs, a backend is known by the protocol of its service, whatever it is
/// checked by.
fn checked(config: &Config) -> Vec<Endpoint> {
    let mut backends: Vec<Endpoint> = Vec::new();
    if let Settings::Balancer(balancer) = &config.function.settings {
        let services = balancer.services.iter();
        for service in services.filter(|one| one.check != Check::None) {
            let protocol = match service.tcp {
                true => Protocol::TCP,
                false => Protocol::UDP,
            };
            for backend in &service.backends {
                let port = backend.port.unwrap_or(service.address.port());
                let backend = Endpoint::new(backend.address, port, protocol);
                if !backends.contains(&backend) {
                    backends.push(backend);
                }
            }
        }
    }
    backends
}
