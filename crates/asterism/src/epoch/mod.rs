//! `asterism epoch`: shows the epoch file, writes the next epoch into it, and hands the epoch to hosts that run here.

mod hand;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use asterism_config::files;
use asterism_config::{Config, Purpose};
use asterism_epochs::{EpochFile, HostEntry, NextError, ReadError, RecordError};
use asterism_output::End;
use asterism_output::{Output, Schema};
use clap::Args;
use serde::Serialize;

use hand::HostDocument;

/// The arguments of `asterism epoch`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration file; `epochs` in its cluster section names the file
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Write the first epoch: all members, in their first incarnations
    #[arg(long, conflicts_with_all = ["without", "again", "founding"])]
    pub first: bool,
    /// Write the next epoch without this member, which has left, is dead, or shall stop
    #[arg(long, value_name = "NAME")]
    pub without: Vec<String>,
    /// With --without: the processes of those members are known to have ended, so others get their ports one idle time later
    #[arg(long, requires = "without")]
    pub fenced: bool,
    /// Write the next epoch with a new incarnation of this member, which was restarted or comes back
    #[arg(long, value_name = "NAME")]
    pub again: Vec<String>,
    /// Write the next epoch, in which all members restart with only their saved state
    #[arg(long)]
    pub founding: bool,
    /// Hand the epoch to the hosts of CONFIG that run on this machine, over their control sockets, and show the epoch in force at each
    #[arg(long)]
    pub hand: bool,
    /// With --hand: hand the epoch to this member's host only
    #[arg(long, value_name = "NAME", requires = "hand")]
    pub member: Option<String>,
    /// With --hand: hand the epoch in this file, or - for standard input, instead of the file that CONFIG names
    #[arg(long, value_name = "FILE", requires = "hand", conflicts_with_all = ["first", "without", "again", "founding"])]
    pub file: Option<PathBuf>,
}

/// What `asterism epoch` reports.
#[derive(Clone, Debug, Serialize)]
pub struct EpochDocument {
    /// The file.
    pub file: String,
    /// Whether it was written.
    pub written: bool,
    /// The epoch.
    #[serde(flatten)]
    pub epoch: EpochFile,
    /// The hosts that have registered, by name; absent where the configuration lists them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub registered: BTreeMap<String, HostEntry>,
    /// The hosts that received the epoch; absent if it was not handed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<HostDocument>>,
}

/// The schema of [`EpochDocument`].
pub const EPOCH: Schema = Schema {
    name: "asterism.epoch",
    version: 1,
};

/// Why there is no next epoch; the epoch file is as it was.
#[derive(Debug, thiserror::Error)]
enum EpochError {
    #[error(
        "[cluster] epochs names no file: add epochs = \"epoch.toml\" on all hosts, so that members can join and leave"
    )]
    NamesNoFile,
    #[error("{} exists and was not changed: a first epoch is written only once. See --founding", .0.display())]
    Exists(PathBuf),
    #[error(
        "hosts of this cluster register with its orchestrators, which make its epochs: see `asterism hosts`"
    )]
    Registered,
    #[error("{name} is not a member: [cluster] members lists {}", members.join(", "))]
    NotAMember { name: String, members: Vec<String> },
    /// An epoch was not read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The epoch that was read has no next one of this kind.
    #[error(transparent)]
    Next(#[from] NextError),
    /// The next epoch was not written.
    #[error(transparent)]
    Write(#[from] RecordError),
}

/// `asterism epoch CONFIG`.
pub fn run(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let (config, report) =
        match files::load(&arguments.config, Purpose::Host, None, output.functions()) {
            Ok(read) => read,
            Err(error) => return output.fail(End::File, &error),
        };
    let Some(config) = config else {
        output.report(&report);
        return End::Configuration;
    };
    let functions = output.functions();
    let handed = || -> Result<EpochDocument, EpochError> {
        // An unknown name is found before anything is written.
        let members = hand::members(arguments, &config)?;
        let document = next(arguments, &config)?;
        let hosts = arguments.hand.then(|| {
            let cluster = &config.cluster.name;
            hand::hand(arguments, &members, cluster, &document.epoch, functions)
        });
        Ok(EpochDocument { hosts, ..document })
    };
    match handed() {
        Ok(document) => {
            if output.json() {
                output.document(EPOCH, &document);
            } else {
                output.text(&describe(&document));
            }
            let end = document.hosts.as_deref().map_or(End::Done, hand::end);
            if end == End::File {
                output.say("error: no host of this configuration runs on this machine: the epoch was not handed to any host\n");
            }
            output.end(end)
        }
        Err(error) => output.fail(End::File, &error),
    }
}

fn next(arguments: &Arguments, config: &Config) -> Result<EpochDocument, EpochError> {
    let places = &config.cluster.members;
    let path = config
        .cluster
        .epochs
        .as_ref()
        .ok_or(EpochError::NamesNoFile)?;
    let path = files::key_path(&arguments.config, path);
    if let Some(file) = &arguments.file {
        let epoch = read(file, config)?;
        return Ok(EpochDocument {
            file: file.display().to_string(),
            written: false,
            registered: epoch.hosts.clone(),
            epoch,
            hosts: None,
        });
    }
    let changes =
        arguments.founding || !arguments.without.is_empty() || !arguments.again.is_empty();
    if config.cluster.is_open && (changes || arguments.first || arguments.fenced) {
        return Err(EpochError::Registered);
    }
    let epoch = if arguments.first {
        if path.exists() {
            return Err(EpochError::Exists(path));
        }
        EpochFile::first(places)
    } else {
        let now = EpochFile::read(&path, places)?;
        let gone = |name: &String| now.left.contains_key(name);
        let is_news = arguments.founding || !arguments.again.is_empty();
        if arguments.fenced && !is_news && arguments.without.iter().all(gone) {
            // The members have left already; their death is the new fact.
            now.next_fenced(places, &arguments.without)?
        } else if changes {
            let mut without = arguments.without.clone();
            // The death of members that left earlier may be noted together with other changes.
            without.retain(|name| !arguments.fenced || !gone(name));
            let next = now.next(places, &without, &arguments.again, arguments.founding);
            let mut next = next?;
            if arguments.fenced {
                next.fence(&arguments.without)?;
            }
            next
        } else {
            now
        }
    };
    let written = arguments.first || changes;
    if written {
        epoch.write(&path)?;
    }
    Ok(EpochDocument {
        file: path.display().to_string(),
        written,
        registered: epoch.hosts.clone(),
        epoch,
        hosts: None,
    })
}

/// The epoch in a file, or on standard input.
fn read(file: &Path, config: &Config) -> Result<EpochFile, ReadError> {
    let places = &config.cluster.members;
    match file == Path::new("-") {
        true => EpochFile::read_from(std::io::stdin(), "standard input", places),
        false => EpochFile::read(file, places),
    }
}

fn describe(document: &EpochDocument) -> String {
    let epoch = &document.epoch;
    let mut text = format!("Epoch {}", epoch.epoch);
    if epoch.is_founding() {
        text.push_str(", in which all start with only their saved state");
    }
    text.push('\n');
    for (place, incarnation) in &epoch.members {
        let name = epoch.host_at(place).unwrap_or(place);
        text.push_str(&format!("  {name:<12} incarnation {incarnation}\n"));
    }
    for (name, incarnation) in &epoch.left {
        let known = match epoch.fenced.get(name) {
            Some(_) => ", which is known to have ended",
            None => "",
        };
        text.push_str(&format!(
            "  {name:<12} takes no part; its last incarnation was {incarnation}{known}\n"
        ));
    }
    for (name, held) in &epoch.ports {
        let mut holders: Vec<&str> = held.partitions.iter().map(String::as_str).collect();
        holders.sort_unstable();
        holders.dedup();
        text.push_str(&format!(
            "  ports of {name} are held by {} since epoch {}\n",
            holders.join(", "),
            held.since
        ));
    }
    if document.written {
        let then = match document.hosts {
            Some(_) => {
                "Hosts elsewhere need this epoch too: copy the file, or hand the epoch to them there."
            }
            None => {
                "Copy the file to every host: each host puts the epoch in force within a second."
            }
        };
        text.push_str(&format!("Written to {}. {then}\n", document.file));
        if epoch
            .left
            .keys()
            .any(|name| !epoch.fenced.contains_key(name))
        {
            text.push_str(
                "Ports of a member that left stay unused until the member is known to be dead (--without NAME --fenced), or its lease has run out (port_lease).\n",
            );
        }
    }
    for host in document.hosts.iter().flatten() {
        text.push_str(&host.to_string());
    }
    text
}
