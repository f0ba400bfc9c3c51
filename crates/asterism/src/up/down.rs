//! `asterism down`: ends a cluster of `asterism up`, or what a command that was killed left of one.
//!
//! `asterism up` holds a lock on a file in its folder for as long as it runs, and writes its process into it. So a number in a file
//! that is not locked is nobody's, and no other process is sent a signal.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::launch::LaunchError;
use asterism_output::{End, Output, Schema};
use asterism_placement::Time;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::cluster::{CLUSTER, TEMPORARY, UpError};
use super::hosts::Hosts;

/// The file with the lock.
const FILE: &str = "up.process";
/// How long the command may take to end: flows end, hosts save their state.
const END_MAX: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);

/// The schema of [`DownReport`].
pub const DOWN: Schema = Schema {
    name: "asterism.down",
    version: 1,
};

/// The arguments of `asterism down`.
#[derive(Args, Clone, Debug)]
pub struct DownArguments {
    /// The folder of the cluster; without it the one that `asterism up` made among the temporary files
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}

/// What was ended.
#[derive(Clone, Debug, Serialize)]
pub struct DownReport {
    /// The folder.
    pub folder: PathBuf,
    /// The process of the command that was asked to end; `None`: it had ended.
    pub command: Option<u32>,
    /// Hosts that ran without it, and were stopped.
    pub hosts_stopped: usize,
}

/// The lock of a command that runs.
#[derive(Debug)]
pub(super) struct RunningMark {
    _file: File,
}

impl RunningMark {
    /// Takes the lock of a folder.
    pub(super) fn new(folder: &Path) -> Result<RunningMark, UpError> {
        let path = folder.join(FILE);
        let failed = |error| UpError::Folder {
            path: path.clone(),
            error,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(UpError::Runs(folder.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(RunningMark { _file: file })
    }
}

/// Why a cluster was not ended. What it says nothing of runs as before.
#[derive(Debug, thiserror::Error)]
enum DownError {
    #[error("no cluster of `asterism up` is in {}: name its folder, by --folder", .0.display())]
    Nothing(PathBuf),
    #[error("there are several clusters: say which one, by --folder {}", .0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or "))]
    Several(Vec<PathBuf>),
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("process {pid} may not be sent a signal: {error}")]
    Signal { pid: u32, error: io::Error },
    #[error("process {0} has not ended within {END_MAX:?}: it was asked to, and goes on ending")]
    Late(u32),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// `asterism down`.
pub fn command(arguments: &DownArguments, output: &mut Output<'_>) -> End {
    match run(arguments) {
        Ok(report) => {
            if output.json() {
                output.document(DOWN, &report);
            } else {
                output.text(&text(&report));
            }
            output.end(End::Done)
        }
        Err(error) => output.fail(End::File, &error),
    }
}

fn text(report: &DownReport) -> String {
    let hosts = report.hosts_stopped;
    let folder = report.folder.display();
    match report.command {
        Some(process) => format!("process {process} and its hosts have ended ({folder})\n"),
        None => format!("{hosts} hosts that ran without `asterism up` have ended ({folder})\n"),
    }
}

fn run(arguments: &DownArguments) -> Result<DownReport, DownError> {
    let temporary = std::env::temp_dir();
    let (folder, is_temporary) = match &arguments.folder {
        Some(folder) => (folder.clone(), false),
        None => (only_folder(&temporary)?, true),
    };
    let failed = |error| DownError::File {
        path: folder.clone(),
        error,
    };
    let folder = folder.canonicalize().map_err(failed)?;
    if !folder.join(FILE).exists() {
        return Err(DownError::Nothing(folder));
    }
    let command = end_command(&folder)?;
    // The program is not needed to stop what runs.
    let hosts = match folder.join("launch").exists() {
        true => Hosts::new(CLUSTER, &folder, PathBuf::from("asterism"))?.end()?,
        false => 0,
    };
    if is_temporary {
        // What cannot be removed is in the system's folder of temporary files; the command has removed it in general.
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(DownReport {
        folder,
        command,
        hosts_stopped: hosts,
    })
}

/// The one folder that `asterism up` made among the temporary files.
fn only_folder(temporary: &Path) -> Result<PathBuf, DownError> {
    let failed = |error| DownError::File {
        path: temporary.to_owned(),
        error,
    };
    let entries = std::fs::read_dir(temporary).map_err(failed)?;
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(TEMPORARY)) && path.join(FILE).exists()
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = paths.filter(is_one).collect();
    folders.sort();
    match folders.len() {
        0 => Err(DownError::Nothing(temporary.to_owned())),
        1 => Ok(folders.remove(0)),
        _ => Err(DownError::Several(folders)),
    }
}

/// Asks the command to end, and waits until it has; its process, if it ran.
fn end_command(folder: &Path) -> Result<Option<u32>, DownError> {
    let path = folder.join(FILE);
    let failed = |error| DownError::File {
        path: path.clone(),
        error,
    };
    let mut file = File::open(&path).map_err(failed)?;
    let is_free = |file: &File| match file.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    };
    if is_free(&file)? {
        return Ok(None);
    }
    let mut text = String::new();
    file.rewind().map_err(failed)?;
    (&mut file)
        .take(32)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let no_number = || failed(io::Error::other("it names no process"));
    let pid: u32 = text.trim().parse().map_err(|_| no_number())?;
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.ok_or_else(no_number)?;
    kill_process(process, Signal::TERM).map_err(|error| DownError::Signal {
        pid,
        error: error.into(),
    })?;
    let clock = MonotonicClock::new();
    while !is_free(&file)? {
        if clock.now() >= Time::ZERO + END_MAX {
            return Err(DownError::Late(pid));
        }
        std::thread::park_timeout(LOOK);
    }
    Ok(Some(pid))
}
