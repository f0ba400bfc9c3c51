//! Why a replay has no result, or not all of it.

use std::io;
use std::path::PathBuf;

use asterism_config::functions::FunctionError;
use asterism_io::port::CaptureError;

use super::ReplayReport;
use crate::fleet::FleetError;

/// Why a replay did not end as planned.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A capture could not be read or written to its end; the report says what was done until then.
    #[error("{0}")]
    Capture(CaptureError, Box<ReplayReport>),
    /// Alerts could not be written; the report says what was done.
    #[error("alerts were lost: {0}")]
    Alerts(io::Error, Box<ReplayReport>),
    /// No packet was replayed.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Why a replay did not start. Files that were named for the results may be empty now.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The function was not made.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// A capture could not be opened or created.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A file for results is one of the captures that are read; nothing was written to it.
    #[error("{} is read: name another file for {results}", path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
        /// The results that were to be written to it.
        results: &'static str,
    },
    /// The file for alerts could not be created.
    #[error("{} cannot be written: {error}", path.display())]
    AlertsFile {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A host was not started.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}
