//! `asterism bugreport`: what a report of a fault needs, in one file.
//!
//! It asks the orchestrator by its API, and the hosts of this machine at their control sockets. What does not answer is named in the
//! report: a report is wanted most when something does not answer. Secrets are taken out by `redact.rs`; a report has no entries of the state.

mod redact;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use asterism_api::client::Client;
use asterism_host::control::Ask;
use asterism_host::control::place::FOLDER;
use asterism_host::run::event_log::date;
use asterism_io::clock::MonotonicClock;
use asterism_output::{End, Output, Schema};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::WITHIN;
use super::client::ask;
use super::cluster::{ClusterError, Where, client, newest_events, read_token};
use redact::Redactor;

/// Events of a report.
const EVENTS_MAX: usize = 4_096;
/// Bytes of a configuration or an epoch.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The arguments of `asterism bugreport`.
#[derive(Args, Clone, Debug)]
pub struct BugreportArguments {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// The file to write; it must not exist. Without this option asterism-bugreport-DATE.tar.gz in this folder
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// With this configuration, without comments and secrets, and with the epoch file that it names
    #[arg(long, value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// With the status of the host at this control socket; without this option, of all hosts with a socket in /run/asterism
    #[arg(long = "socket", value_name = "SOCKET")]
    pub sockets: Vec<PathBuf>,
}

/// The schema of `asterism bugreport`.
pub const BUGREPORT: Schema = Schema {
    name: "asterism.bugreport",
    version: 1,
};

/// What a report contains.
#[derive(Clone, Debug, Serialize)]
pub struct BugreportDocument {
    /// The file.
    pub file: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// The files in it, with their bytes.
    pub contents: BTreeMap<String, u64>,
    /// What is not in it, and why.
    pub missing: BTreeMap<String, String>,
    /// Secrets that were taken out.
    pub secrets_removed: u64,
}

/// Why there is no report. A file that was begun is removed.
#[derive(Debug, thiserror::Error)]
enum BugreportError {
    #[error("{file} cannot be written: {error}", file = .0.display(), error = .1)]
    File(PathBuf, io::Error),
    #[error("nothing was collected, so nothing is written: {0}")]
    Nothing(String),
}

/// The texts of a report.
#[derive(Default)]
struct Report {
    redactor: Redactor,
    files: BTreeMap<String, String>,
    missing: BTreeMap<String, String>,
}

impl Report {
    fn text(&mut self, name: &str, text: &str) {
        let text = self.redactor.text(text);
        self.files.insert(name.to_owned(), text);
    }

    fn collect<T: Serialize, E: core::fmt::Display>(&mut self, name: &str, got: Result<T, E>) {
        let text = got.map_err(|error| error.to_string()).and_then(|value| {
            serde_json::to_string_pretty(&value).map_err(|error| error.to_string())
        });
        match text {
            Ok(text) => self.text(name, &text),
            Err(why) => self.miss(name, &why),
        }
    }

    fn miss(&mut self, name: &str, why: &str) {
        let why = self.redactor.text(why);
        self.missing.insert(name.to_owned(), why);
    }
}

/// `asterism bugreport`.
pub fn bugreport(arguments: &BugreportArguments, output: &mut Output<'_>) -> End {
    match write(arguments) {
        Ok(document) if output.json() => output.document(BUGREPORT, &document),
        Ok(document) => output.text(&text_of(&document)),
        Err(error) => return output.fail(End::File, &error),
    }
    output.end(End::Done)
}

fn write(arguments: &BugreportArguments) -> Result<BugreportDocument, BugreportError> {
    let clock = MonotonicClock::new();
    let now_s = clock.wall() / 1_000_000;
    let token = arguments.at.token.as_deref();
    let token = token.and_then(|path| read_token(path).ok());
    let mut report = Report {
        redactor: Redactor::new(token.into_iter().collect()),
        ..Report::default()
    };
    by_api(&arguments.at, &mut report);
    at_sockets(&arguments.sockets, &mut report);
    if report.files.is_empty() {
        let why = report.missing.iter().next();
        let why = why.map_or_else(String::new, |(name, why)| format!("{name}: {why}"));
        return Err(BugreportError::Nothing(why));
    }
    if let Some(config) = &arguments.config {
        configuration(config, &mut report);
    }
    report.collect("version.json", Ok::<_, String>(version(now_s)));
    let readme = readme(&report, now_s);
    report.text("README.txt", &readme);
    let file = arguments.output.clone().unwrap_or_else(|| {
        let stamp = date(now_s).replace([':', '-'], "");
        PathBuf::from(format!("asterism-bugreport-{stamp}.tar.gz"))
    });
    let bytes = archive(&file, &report.files, now_s)
        .map_err(|error| BugreportError::File(file.clone(), error))?;
    let length = |(name, text): (&String, &String)| (name.clone(), text.len() as u64);
    Ok(BugreportDocument {
        bytes,
        contents: report.files.iter().map(length).collect(),
        secrets_removed: report.redactor.removed(),
        missing: report.missing,
        file,
    })
}

/// What an orchestrator knows, and the status of all hosts by it.
fn by_api(at: &Where, report: &mut Report) {
    let client: Client = match client(at) {
        Ok(client) => client,
        Err(error) => return report.miss("cluster.json", &error.to_string()),
    };
    let cluster = client.cluster();
    let is_there = cluster.is_ok();
    report.collect("cluster.json", cluster);
    if !is_there {
        return;
    }
    let hosts = client.hosts();
    let names: Vec<String> = match &hosts {
        Ok(hosts) => hosts.hosts.iter().map(|host| host.name.clone()).collect(),
        Err(_) => Vec::new(),
    };
    report.collect("hosts.json", hosts);
    report.collect("health.json", client.health());
    report.collect("plan.json", client.plan());
    report.collect("events.json", newest_events(&client, EVENTS_MAX));
    match client.metrics() {
        Ok(metrics) => report.text("metrics.txt", &metrics),
        Err(error) => report.miss("metrics.txt", &error.to_string()),
    }
    for name in names {
        let status = client.host_status::<serde_json::Value>(&name);
        report.collect(
            &format!("status/{}.json", file_name(&name)),
            status.map_err(ClusterError::from),
        );
    }
}

/// The status of hosts of this machine.
fn at_sockets(named: &[PathBuf], report: &mut Report) {
    let mut sockets = named.to_vec();
    if sockets.is_empty() {
        let listed = std::fs::read_dir(FOLDER).into_iter().flatten();
        let paths = listed.filter_map(|entry| Some(entry.ok()?.path()));
        sockets.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "sock")));
        sockets.sort();
    }
    for socket in sockets {
        let name = socket.file_stem().unwrap_or_default().to_string_lossy();
        let status: Result<serde_json::Value, _> =
            ask(&socket, &Ask::Status { digests: false }, WITHIN);
        report.collect(&format!("sockets/{}.json", file_name(&name)), status);
    }
}

/// A name as a part of a path in an archive.
fn file_name(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let plain = name
        .chars()
        .map(|letter| if is_plain(letter) { letter } else { '_' });
    plain.take(64).collect()
}

fn configuration(path: &Path, report: &mut Report) {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => return report.miss("configuration.json", &error.to_string()),
    };
    match report.redactor.configuration(&text) {
        Some(json) => report.text("configuration.json", &json),
        // What is no TOML might show anything.
        None => report.miss("configuration.json", "it is no TOML; see `asterism check`"),
    }
    let table: Option<toml::Table> = toml::from_str(&text).ok();
    let epochs = table
        .as_ref()
        .and_then(|table| table.get("cluster")?.get("epochs")?.as_str());
    if let Some(epochs) = epochs {
        let epochs = asterism_config::files::key_path(path, Path::new(epochs));
        match read(&epochs).map(|text| report.redactor.configuration(&text)) {
            Ok(Some(json)) => report.text("epoch.json", &json),
            Ok(None) => report.miss("epoch.json", "it is no TOML; see `asterism epoch`"),
            Err(error) => report.miss("epoch.json", &error.to_string()),
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn version(now_s: u64) -> serde_json::Value {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    serde_json::json!({
        "asterism": env!("CARGO_PKG_VERSION"),
        "architecture": std::env::consts::ARCH,
        "kernel": kernel.trim(),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "made": date(now_s),
    })
}

fn readme(report: &Report, now_s: u64) -> String {
    let mut text = format!(
        "A report of an Asterism cluster, made {} by version {}.\n\n\
         It has the addresses of hosts, ports, peers and backends, the names of hosts, and counts of packets. It has no entries of the\n\
         state, so no addresses of flows, and no keys, tokens and passwords: {} that were recognised were taken out. Read it before you\n\
         pass it on.\n\nContents:\n",
        date(now_s),
        env!("CARGO_PKG_VERSION"),
        report.redactor.removed(),
    );
    for (name, about) in [
        ("cluster.json", "the cluster, as its orchestrator sees it"),
        ("hosts.json", "its hosts"),
        ("health.json", "what is wrong"),
        ("plan.json", "what the elasticity policies would do"),
        ("events.json", "the newest events"),
        ("metrics.txt", "the orchestrator's metrics"),
        ("status/", "the status of each host, by the orchestrator"),
        (
            "sockets/",
            "the status of hosts of this machine, from their control sockets",
        ),
        (
            "configuration.json",
            "the configuration, without comments and secrets",
        ),
        ("epoch.json", "the epoch file of this machine"),
        ("version.json", "program and machine"),
    ] {
        let is_there = report.files.keys().any(|file| file.starts_with(name));
        if is_there {
            text += &format!("  {name:<20} {about}\n");
        }
    }
    if !report.missing.is_empty() {
        text += "\nMissing:\n";
    }
    for (name, why) in &report.missing {
        text += &format!("  {name:<20} {why}\n");
    }
    text
}

/// Writes the archive for its owner alone; a file that cannot be written whole is removed.
fn archive(file: &Path, files: &BTreeMap<String, String>, now_s: u64) -> io::Result<u64> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let opened = options.open(file)?;
    let written = || -> io::Result<u64> {
        let mut archive = tar::Builder::new(GzEncoder::new(&opened, Compression::default()));
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(now_s);
            archive.append_data(
                &mut header,
                format!("asterism-bugreport/{name}"),
                text.as_bytes(),
            )?;
        }
        archive.into_inner()?.finish()?.flush()?;
        Ok(opened.metadata()?.len())
    };
    written().inspect_err(|_| {
        // What cannot be removed cannot be written either.
        let _ = std::fs::remove_file(file);
    })
}

fn text_of(document: &BugreportDocument) -> String {
    let mut text = format!(
        "{} ({} bytes) has:\n",
        document.file.display(),
        document.bytes
    );
    for (name, bytes) in &document.contents {
        text += &format!("  {name} ({bytes} bytes)\n");
    }
    for (name, why) in &document.missing {
        text += &format!("  not {name}: {why}\n");
    }
    text + &format!(
        "{} secrets were taken out. Entries of the state, keys and tokens are not in it. Read it before you pass it on.\n",
        document.secrets_removed
    )
}
