//! Why no scenario runs, and why an expectation of a step about hosts does not hold.

use std::io;
use std::path::PathBuf;

use super::step::Count;
use super::{EXTENSION, FILES_MAX};

/// Why the scenarios that were named do not run: none of them does.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesError {
    /// A folder could not be read.
    #[error("cannot read the folder {}: {error}", path.display())]
    Folder { path: PathBuf, error: io::Error },
    /// This folder has no scenario.
    #[error("{} has no scenario: their names end in .{EXTENSION}", .0.display())]
    NoScenario(PathBuf),
    /// This number of files is above the bound.
    #[error("{0} scenarios, of at most {FILES_MAX} at once")]
    TooMany(usize),
}

/// Why the state of an instance is not as a step expects.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpectationError {
    /// Another number of entries.
    #[error("`{object}` has {live}, not {count}")]
    Entries {
        object: String,
        live: u64,
        count: Count,
    },
    /// Another value of a metric.
    #[error("`{name}` is {value}, not {count}")]
    Metric {
        name: String,
        value: u64,
        count: Count,
    },
    /// No value of this metric.
    #[error("`{0}` was not measured")]
    NotMeasured(String),
    /// An entry where there must be none.
    #[error("there is {key}: {value}")]
    Present { key: String, value: String },
    /// No entry whose key has this word.
    #[error("`{object}` has nothing with {key:?} in its key")]
    Absent { object: String, key: String },
    /// An entry with this value instead.
    #[error("its value is {0}")]
    Value(String),
    /// No alert at all.
    #[error("there are no alerts")]
    NoAlerts,
    /// Other alerts, of which these are some.
    #[error("there is only {}", .0.join(" and "))]
    OtherAlerts(Vec<String>),
}
