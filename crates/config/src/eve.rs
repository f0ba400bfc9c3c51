//! The output of a host's alerts, the table `[host.eve]`.

use core::time::Duration;
use std::path::PathBuf;

use asterism_toml_schema::kind::Kind;
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{Default, Setting, Values, section};

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

choices! {
    /// Which alerts a host writes.
    pub enum EveAlerts {
        Once = "once", "The first living member in the order of `members` writes them.";
        All = "all", "Every host writes all alerts that it receives.";
    }
}

section! {
    /// The table `[host.eve]`.
    pub(super) static EVE: EveKeys = {
        path: "host.eve",
        meaning: "Alerts as lines of JSON, in the form of Suricata's `eve.json`.",
        fields: {
            file: String = Setting {
                kind: Kind::File,
                default: Default::Required("\"eve.json\""),
                meaning: "The output: a file, which is appended to and reopened by `asterism reload`; a named pipe; a Unix socket with a listener; `-` is standard output.",
            },
            alerts: EveAlerts = Setting {
                kind: Kind::Choice {
                    allowed: EveAlerts::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"once\""),
                meaning: "The alerts of the cluster that this host writes.",
            },
            size_max: u64 = Setting {
                kind: Kind::Size {
                    least: 1 << 16,
                    most: 1 << 40,
                },
                default: Default::Is("\"1GiB\""),
                meaning: "The largest size of a file; further lines are lost and counted until the file is reopened or truncated. Pipes and sockets have no bound.",
            },
            stats: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_secs(1),
                    most: Duration::from_secs(24 * 3600),
                },
                default: Default::Unset("no such line is written"),
                meaning: "How often a line with this host's counters is written.",
            },
        },
    };
}

/// Builds it; `None` if anything is wrong.
pub(super) fn eve(values: &Values) -> Option<Eve> {
    Some(Eve {
        file: values.get(EVE.file)?.into(),
        alerts: values.get(EVE.alerts)?,
        size_max: values.get(EVE.size_max)?,
        stats: values.get(EVE.stats),
    })
}
