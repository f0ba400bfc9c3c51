//! `asterism check`: lists every mistake of a configuration, or describes the host and the cluster that it sets up.

use std::io::Read;
use std::path::{Path, PathBuf};

use asterism_functions::firewall::RULE_FILE_BYTES_MAX;
use serde::Serialize;

use crate::command_line::End;
use crate::config::diagnostic::{Diagnostic, DiagnosticDocument, Report};
use crate::config::fields::{self, SectionDocument};
use crate::config::functions::{Functions, ObjectKind};
use crate::config::kind::Absent;
use crate::config::value::{show_count, show_duration, show_size};
use crate::config::{
    self, Config, FILE_BYTES_MAX, ObjectChoice, Placement, Port, PortKind, Purpose, Settings,
};
use crate::key_file;
use crate::output::{Output, Schema};
use crate::run::reload::Copies;

/// What `asterism check` reports.
#[derive(Clone, Debug, Serialize)]
pub struct CheckDocument {
    /// The file.
    pub file: String,
    /// Whether the configuration is valid.
    pub accepted: bool,
    /// All mistakes and warnings, in the order of the file.
    pub diagnostics: Vec<DiagnosticDocument>,
    /// The meaning of the configuration; absent if it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationDocument>,
}

/// The meaning of a configuration.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigurationDocument {
    /// The cluster's name.
    pub cluster: String,
    /// All hosts.
    pub members: Vec<String>,
    /// This host.
    pub host: String,
    /// Its packet loops.
    pub instances: usize,
    /// Its ports; none if the configuration is not for `asterism run`.
    pub ports: Vec<PortDocument>,
    /// The network function.
    pub function: &'static str,
    /// The placements of its state.
    pub objects: Vec<ObjectDocument>,
}

/// A port of the host.
#[derive(Clone, Debug, Serialize)]
pub struct PortDocument {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its interface or file.
    pub place: String,
}

/// The placement of a state object.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectDocument {
    /// The object.
    pub name: &'static str,
    /// Its placement.
    pub placement: &'static str,
    /// The handling of an absent entry.
    pub absent: String,
    /// Maximum entries; 0: the function's suggestion.
    pub capacity: u32,
    /// The cost of an access.
    pub cost: String,
}

/// The schema of [`CheckDocument`].
pub const CHECK: Schema = Schema {
    name: "asterism.check",
    version: 1,
};

/// The schema of [`FieldsDocument`].
pub const FIELDS: Schema = Schema {
    name: "asterism.fields",
    version: 1,
};

/// What `asterism check --fields` reports.
#[derive(Clone, Debug, Serialize)]
pub struct FieldsDocument {
    /// All tables.
    pub tables: Vec<SectionDocument>,
}

/// `asterism check --fields`: the reference of all tables and fields.
pub fn fields(output: &mut Output<'_>) -> End {
    if output.json() {
        output.document(
            FIELDS,
            &FieldsDocument {
                tables: fields::reference(output.functions()),
            },
        );
    } else {
        output.text(&fields::reference_text(output.functions()));
    }
    output.end(End::Done)
}

/// `asterism check CONFIG`.
pub fn run(path: &Path, member: Option<&str>, output: &mut Output<'_>) -> End {
    let (config, mut report) = match load_for(path, member, output.functions()) {
        Ok(read) => read,
        Err(error) => return output.fail(End::File, &error),
    };
    let config = made(config, &mut report);
    show(&report, output);
    let end = if config.is_some() {
        End::Done
    } else {
        End::Configuration
    };
    if output.json() {
        output.document(
            CHECK,
            &CheckDocument {
                file: report.file.clone(),
                accepted: config.is_some(),
                diagnostics: report.documents(),
                configuration: config.as_ref().map(document),
            },
        );
    } else if let Some(config) = &config {
        output.text(&words(&report.file, config));
    }
    output.end(end)
}

/// Shows a report on standard error, with the number of mistakes.
pub fn show(report: &Report, output: &mut Output<'_>) {
    output.say(&report.render(output.coloured()));
    if report.errors() > 0 {
        let count = |count: usize, what: &str| {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        let warnings = match report.warnings() {
            0 => String::new(),
            warnings => format!(" ({})", count(warnings, "warning")),
        };
        output.say(&format!(
            "error: {} refused: {}{warnings}; nothing was started\n",
            report.file,
            count(report.errors(), "mistake")
        ));
    }
}

/// Reads a configuration file for the host of `member`, and checks the key file that it names.
///
/// # Errors
/// The reason why the file could not be read.
pub fn load_for(
    path: &Path,
    member: Option<&str>,
    functions: Functions,
) -> Result<(Option<Config>, Report), String> {
    load_as(path, Purpose::Host, member, functions)
}

/// As [`load_for`], for this purpose.
///
/// # Errors
/// The reason why the file could not be read.
pub fn load_as(
    path: &Path,
    purpose: Purpose,
    member: Option<&str>,
    functions: Functions,
) -> Result<(Option<Config>, Report), String> {
    let name = path.display().to_string();
    let text = text_of(path, "the configuration")?;
    let (mut config, mut report) = Config::read_as(&name, &text, purpose, member, functions);
    if let Some(key) = config
        .as_ref()
        .and_then(|config| config.cluster.key.as_deref())
        && let Err(error) = key_file::read(&key_path(path, key))
    {
        let start = text.find(key.to_string_lossy().as_ref()).unwrap_or(0);
        let end = start + key.to_string_lossy().len();
        report.add(Diagnostic::error("the cluster's key cannot be used", start..end).help(error));
        report.sort();
        config = None;
    }
    let config = with_files(config, path, &mut report);
    Ok((config, report))
}

/// The text of a file; the message of a failure calls the file `what`.
///
/// # Errors
/// The file could not be read, is longer than a configuration may be, or is not UTF-8.
pub fn text_of(path: &Path, what: &str) -> Result<String, String> {
    let name = path.display().to_string();
    let cannot = |error| format!("cannot read {what} {name}: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let bytes = bytes_of(file, FILE_BYTES_MAX).map_err(cannot)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!(
            "{name} has more than {FILE_BYTES_MAX} bytes: is this the right file?"
        ));
    }
    utf8(bytes, &name, what)
}

/// A file's content, at most one byte more than `most`, since the file may be an endless device.
fn bytes_of(file: std::fs::File, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file that was read, without a byte-order mark.
fn utf8(bytes: Vec<u8>, name: &str, what: &str) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        format!("{name}:{line}: byte {at} is not UTF-8, as {what} must be: save the file as UTF-8")
    })?;
    Ok(match without_mark(&text) {
        plain if plain.len() < text.len() => plain.to_owned(),
        _ => text,
    })
}

/// A text without the leading byte-order mark (U+FEFF) of some editors, which has no meaning in UTF-8.
#[must_use]
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Reads the files that a configuration names, relative to the folder of the file at `path`. `None` after a mistake, which is in
/// the report.
#[must_use]
pub fn with_files(config: Option<Config>, path: &Path, report: &mut Report) -> Option<Config> {
    let mut config = config?;
    let mistakes = report.errors();
    let settings = &mut config.function.settings;
    settings.read_files(&|file| read_file(&key_path(path, file)), report);
    if report.errors() > mistakes {
        report.sort();
        return None;
    }
    Some(config)
}

/// Makes the function of a configuration once, as a check. `None` if the function refuses its settings; the report says why, at the
/// function's table. Commands that run the function need no such check.
#[must_use]
pub fn made(config: Option<Config>, report: &mut Report) -> Option<Config> {
    let config = config?;
    let function = &config.function;
    let make = |settings: &Settings, objects: &[ObjectChoice]| settings.with(Copies(objects, 1));
    let stages = match &function.settings {
        Settings::Chain(chain) => &chain.stages[..],
        _ => &[],
    };
    let stages = stages
        .iter()
        .map(|stage| (stage.name, make(&stage.settings, &stage.objects)));
    let mut refused: Vec<(&str, String)> = stages
        .filter_map(|(name, made)| Some((name, made.err()?)))
        .collect();
    if refused.is_empty()
        && let Err(why) = make(&function.settings, &function.objects)
    {
        refused.push((function.name, why));
    }
    if refused.is_empty() {
        return Some(config);
    }
    for (name, why) in refused {
        let place = config::place_of_function(&report.text, name);
        report.add(Diagnostic::error(why, place).label("its settings contradict each other"));
    }
    report.sort();
    None
}

/// Name and text of a file that the configuration names. Reads no more bytes than a rule file may have.
fn read_file(path: &Path) -> Result<(String, String), String> {
    let name = path.display().to_string();
    let cannot = |error| format!("cannot read {name}: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let bytes = bytes_of(file, RULE_FILE_BYTES_MAX).map_err(cannot)?;
    if bytes.len() > RULE_FILE_BYTES_MAX {
        return Err(format!(
            "{name} has more than {RULE_FILE_BYTES_MAX} bytes, the most of such a file"
        ));
    }
    let text = utf8(bytes, &name, "the file")?;
    Ok((name, text))
}

/// A key file's path: from the configuration's folder, unless it is absolute.
#[must_use]
pub fn key_path(config: &Path, key: &Path) -> PathBuf {
    config.parent().unwrap_or(Path::new("")).join(key)
}

fn document(config: &Config) -> ConfigurationDocument {
    ConfigurationDocument {
        cluster: config.cluster.name.clone(),
        members: config.cluster.members.clone(),
        host: config.host.name.clone(),
        instances: config.host.instances,
        ports: config.ports.iter().map(port_document).collect(),
        function: config.function.name,
        objects: config
            .function
            .objects
            .iter()
            .map(|object| ObjectDocument {
                name: object.name,
                placement: object.placement.word(),
                absent: object.absent.to_string(),
                capacity: object.capacity,
                cost: cost(object, config),
            })
            .collect(),
    }
}

fn port_document(port: &Port) -> PortDocument {
    PortDocument {
        name: port.name,
        kind: port.kind.word(),
        place: match port.kind {
            PortKind::SharedMemory => port.path.display().to_string(),
            _ => port.interface.clone(),
        },
    }
}

/// Describes the host and the cluster that a configuration sets up.
#[must_use]
pub fn words(file: &str, config: &Config) -> String {
    let cluster = &config.cluster;
    let mut text = format!("{file} is good.\n\n");
    let hosts = match cluster.members.len() {
        1 => format!("one host, {}", cluster.members[0]),
        count => format!(
            "{count} hosts: {}; this one is {}",
            cluster.members.join(", "),
            config.host.name
        ),
    };
    text.push_str(&format!("Cluster   {}, {hosts}\n", cluster.name));
    let instances = match config.host.instances {
        1 => "one packet loop".to_owned(),
        count => format!("{count} packet loops, each on a core of its own"),
    };
    text.push_str(&format!("Host      {instances}\n"));
    for port in config.ports.iter().map(port_document) {
        text.push_str(&format!(
            "Port      {}: {} ({})\n",
            port.name, port.place, port.kind
        ));
    }
    if !config.ports.is_empty() {
        let host = &config.host;
        let file = |file: &Option<PathBuf>| {
            file.as_ref()
                .map_or("nowhere".to_owned(), |file| file.display().to_string())
        };
        let metrics = host
            .metrics
            .map_or("not served".to_owned(), |at| format!("http://{at}/metrics"));
        let alerts = host.eve.as_ref().map_or(String::new(), |eve| {
            format!("; alerts written to {}", eve.file.display())
        });
        text.push_str(&format!(
            "Service   metrics {metrics}; state saved {}{alerts}\n",
            file(&host.state)
        ));
    }
    text.push_str(&format!(
        "Function  {}: {}\n\nState\n",
        config.function.name,
        config.function.settings.words()
    ));
    let width = config
        .function
        .objects
        .iter()
        .map(|object| object.name.len())
        .max()
        .unwrap_or(0);
    for object in &config.function.objects {
        text.push_str(&format!(
            "  {:width$}  {:10}  {}\n",
            object.name,
            object.placement.word(),
            cost(object, config)
        ));
    }
    if cluster.members.len() > 1 {
        let channel = &cluster.channel;
        text.push_str(&format!(
            "\nState channel\n  sealed with {}; packets of at most {}; silence of at most {}; {} of updates kept until all members acknowledged them\n",
            cluster.key.as_ref().map_or("a key drawn for the run".to_owned(), |key| key.display().to_string()),
            show_size(channel.mtu as u64),
            show_duration(channel.keep_alive),
            show_size(channel.log_bytes_max as u64),
        ));
    }
    text
}

/// Describes the cost of an access to an object.
fn cost(object: &ObjectChoice, config: &Config) -> String {
    let shared = config.cluster.members.len() * config.host.instances > 1;
    let mut words = match object.placement {
        Placement::Local if shared => {
            "a memory access; each instance has its own copy, which no other instance sees"
                .to_owned()
        }
        Placement::Local => "a memory access".to_owned(),
        Placement::Replicated if shared => {
            "a memory access; updates reach the other instances asynchronously".to_owned()
        }
        Placement::Replicated => "a memory access; no other instance needs updates".to_owned(),
        Placement::Late(delay) => format!(
            "for tests: the packet waits {} for each read",
            show_duration(delay)
        ),
    };
    if let Absent::Wait(longest) = object.absent
        && shared
    {
        words.push_str(&format!(
            "; a read of an absent entry waits for updates in transit, {} at most",
            show_duration(longest)
        ));
    }
    if object.kind == ObjectKind::Pool && object.placement == Placement::Replicated && shared {
        words.push_str("; leased in blocks of 64, so no two instances grant the same item");
    }
    if object.capacity > 0 {
        words.push_str(&format!(
            "; at most {} entries",
            show_count(object.capacity.into())
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let refused = read_file(Path::new("/dev/zero")).unwrap_err();
        assert!(refused.contains("more than 4194304 bytes"), "{refused}");
        assert!(read_file(Path::new("/nonexistent/rules")).is_err());
    }
}
