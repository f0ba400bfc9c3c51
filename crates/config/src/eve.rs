//! The output of a host's alerts, the table `[host.eve]`.

use core::time::Duration;
use std::path::PathBuf;

use super::kind::{Kind, Word};
use super::section::{Default, Field, Section, Values};

/// What alerts are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eve {
    /// The file, as written; `-` is standard output.
    pub file: PathBuf,
    /// Which alerts.
    pub alerts: EveAlerts,
    /// Bytes of a file at most.
    pub size_max: u64,
    /// How often what the host counted is written.
    pub stats: Option<Duration>,
}

/// Which alerts a host writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EveAlerts {
    /// All of the cluster's, while no host before it in the list of members incarnations.
    Once,
    /// All of the cluster's.
    All,
}

/// The table `[host.eve]`.
pub(super) static EVE: Section = Section {
    path: "host.eve",
    meaning: "Alerts as lines of JSON, in the form of Suricata's `eve.json`.",
    fields: &[
        Field {
            name: "file",
            kind: Kind::File,
            default: Default::Required("\"eve.json\""),
            meaning: "The output: a file, which is appended to and reopened by `asterism reload`; a named pipe; a Unix socket with a listener; `-` is standard output.",
        },
        Field {
            name: "alerts",
            kind: Kind::Choice {
                allowed: &[
                    Word {
                        word: "once",
                        meaning: "The first living member in the order of `members` writes them.",
                    },
                    Word {
                        word: "all",
                        meaning: "Every host writes all alerts that it receives.",
                    },
                ],
                refused: &[],
            },
            default: Default::Is("\"once\""),
            meaning: "The alerts of the cluster that this host writes.",
        },
        Field {
            name: "size_max",
            kind: Kind::Size {
                least: 1 << 16,
                most: 1 << 40,
            },
            default: Default::Is("\"1GiB\""),
            meaning: "The largest size of a file; further lines are lost and counted until the file is reopened or truncated. Pipes and sockets have no bound.",
        },
        Field {
            name: "stats",
            kind: Kind::Duration {
                least: Duration::from_secs(1),
                most: Duration::from_secs(24 * 3600),
            },
            default: Default::Unset("no such line is written"),
            meaning: "How often a line with this host's counters is written.",
        },
    ],
};

/// Builds it; `None` if anything is wrong.
pub(super) fn eve(values: &Values) -> Option<Eve> {
    Some(Eve {
        file: values.text("file")?.into(),
        alerts: match values.choice("alerts")? {
            "all" => EveAlerts::All,
            _ => EveAlerts::Once,
        },
        size_max: values.size("size_max")?,
        stats: values.duration("stats"),
    })
}
