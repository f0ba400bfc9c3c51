//! `asterism epoch`: shows the file of epochs, or writes the next one into it.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::EpochFile;
use crate::check;
use crate::command_line::End;
use crate::config::Config;
use crate::output::{Output, Schema};

/// What `asterism epoch` is told.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration file; `epochs` in its cluster section names the file
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Write the first epoch: all members, in their first lives
    #[arg(long, conflicts_with_all = ["without", "again", "founding"])]
    pub first: bool,
    /// Write the next epoch, without this member: it has left, or is dead, or is to stop
    #[arg(long, value_name = "NAME")]
    pub without: Vec<String>,
    /// With --without: the processes of those members are known to have ended, so others may have their ports one idle time later
    #[arg(long, requires = "without")]
    pub fenced: bool,
    /// Write the next epoch, with a new life of this member: it was started anew, or comes back
    #[arg(long, value_name = "NAME")]
    pub again: Vec<String>,
    /// Write the next epoch, in which all start anew with nothing but what they saved
    #[arg(long)]
    pub founding: bool,
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
}

/// The schema of [`EpochDocument`].
pub const EPOCH: Schema = Schema {
    name: "asterism.epoch",
    version: 1,
};

/// `asterism epoch CONFIG`.
pub fn run(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let read =
        |member: Option<&str>| check::load_for(&arguments.config, member, output.functions());
    // What is said of the cluster is the same for every member; a file may say of no member alone what its ports are.
    let first = first_member(&arguments.config);
    let both = read(None).and_then(|(config, report)| match (config, &first) {
        (None, Some(first)) => read(Some(first)),
        (config, _) => Ok((config, report)),
    });
    let (config, report) = match both {
        Ok(read) => read,
        Err(error) => return output.fail(End::File, &error),
    };
    let Some(config) = config else {
        check::show(&report, output);
        return End::Configuration;
    };
    match next(arguments, &config) {
        Ok(document) => {
            if output.json() {
                output.document(EPOCH, &document);
            } else {
                output.text(&describe(&document));
            }
            output.end(End::Done)
        }
        Err(error) => output.fail(End::File, &error),
    }
}

/// The first member that the configuration lists, if that much of it can be read.
fn first_member(config: &Path) -> Option<String> {
    let text = std::fs::read_to_string(config).ok()?;
    let table: toml::Table = text.parse().ok()?;
    let members = table.get("cluster")?.get("members")?.as_array()?;
    Some(members.first()?.as_str()?.to_owned())
}

fn next(arguments: &Arguments, config: &Config) -> Result<EpochDocument, String> {
    let cluster = &config.cluster;
    let path = cluster.epochs.as_ref().ok_or(
        "[cluster] epochs names no file: add epochs = \"epoch.toml\", on all hosts, and members can come and go",
    )?;
    let path = check::key_path(&arguments.config, path);
    let changes =
        arguments.founding || !arguments.without.is_empty() || !arguments.again.is_empty();
    let epoch = if arguments.first {
        if path.exists() {
            return Err(format!(
                "{} exists and was left as it is: the first epoch comes once. See --founding",
                path.display()
            ));
        }
        EpochFile::first(cluster)
    } else {
        let now = EpochFile::read(&path, cluster)?;
        let gone = |name: &String| now.left.contains_key(name);
        if arguments.fenced && arguments.again.is_empty() && arguments.without.iter().all(gone) {
            // They have left already; that they are dead is what is new.
            now.next_fenced(cluster, &arguments.without)?
        } else if changes {
            let mut next = now.next(
                cluster,
                &arguments.without,
                &arguments.again,
                arguments.founding,
            )?;
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
        epoch,
    })
}

fn describe(document: &EpochDocument) -> String {
    let epoch = &document.epoch;
    let mut text = format!("Epoch {}", epoch.epoch);
    if epoch.is_founding() {
        text.push_str(", in which all start with nothing but what they saved");
    }
    text.push('\n');
    for (name, life) in &epoch.members {
        text.push_str(&format!("  {name:<12} life {life}\n"));
    }
    for (name, life) in &epoch.left {
        let known = match epoch.fenced.get(name) {
            Some(_) => ", which is known to have ended",
            None => "",
        };
        text.push_str(&format!(
            "  {name:<12} takes no part; its last life was {life}{known}\n"
        ));
    }
    for (name, held) in &epoch.ports {
        let mut holders: Vec<&str> = held.lots.iter().map(String::as_str).collect();
        holders.sort_unstable();
        holders.dedup();
        text.push_str(&format!(
            "  ports of {name} fall to {} since epoch {}\n",
            holders.join(", "),
            held.since
        ));
    }
    if document.written {
        text.push_str(&format!(
            "Written to {}. Copy it to every host: each puts it in force within a second.\n",
            document.file
        ));
        if epoch
            .left
            .keys()
            .any(|name| !epoch.fenced.contains_key(name))
        {
            text.push_str(
                "Ports of who left stay unused until it is known to be dead (--without NAME --fenced), or its lease has run out (port_lease).\n",
            );
        }
    }
    text
}
