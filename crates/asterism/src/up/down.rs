//! `asterism down`: ends a cluster of `asterism up`, or what a command that was killed left of one.
//!
//! `asterism up` holds a lock on a file in its folder for as long as it runs, and writes its process and the configuration into it. So
//! a number in a file that is not locked is nobody's, and no other process is sent a signal.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_config::{Purpose, files};
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::launch::{LaunchError, Role};
use asterism_output::{End, Output, Schema};
use asterism_placement::Time;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::error::UpError;
use super::launched::{ROLES, folder_of, launcher, stop_all};
use super::plan::TEMPORARY;
use crate::orchestrate::launchers;

/// The file with the lock.
const FILE: &str = "up.process";
/// How long the command may take to end: flows end, hosts save their state.
const END_MAX: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);
/// How long a process that a killed command left may take to end in order.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// Bytes of the file that are read.
const FILE_BYTES_MAX: u64 = 8_192;

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
    /// Processes that ran without it, and were stopped.
    pub processes_stopped: usize,
}

/// The lock of a command that runs.
#[derive(Debug)]
pub(super) struct RunningMark {
    path: PathBuf,
    file: File,
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
        Ok(RunningMark { path, file })
    }

    /// Notes which configuration is run.
    pub(super) fn name(&mut self, configuration: &Path) -> Result<(), UpError> {
        let written = writeln!(self.file, "{}", configuration.display());
        written.map_err(|error| UpError::Folder {
            path: self.path.clone(),
            error,
        })
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
    match run(arguments, output) {
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
    let stopped = report.processes_stopped;
    let folder = report.folder.display();
    match report.command {
        Some(process) => format!("process {process} and its cluster have ended ({folder})\n"),
        None => {
            format!("{stopped} processes that ran without `asterism up` have ended ({folder})\n")
        }
    }
}

fn run(arguments: &DownArguments, output: &mut Output<'_>) -> Result<DownReport, DownError> {
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
    let stopped = stop_left(&folder, output)?;
    if is_temporary {
        // What cannot be removed is in the system's folder of temporary files; the command has removed it in general.
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(DownReport {
        folder,
        command,
        processes_stopped: stopped,
    })
}

/// Ends the processes that a killed command left, in the order of its own end; how many there were.
fn stop_left(folder: &Path, output: &mut Output<'_>) -> Result<usize, DownError> {
    let mut stopped = 0;
    for role in ROLES {
        for cluster in names_in(&folder_of(folder, role))? {
            // The program is not needed to stop what runs.
            let own = launcher(role, &cluster, folder, PathBuf::from("asterism"))?;
            stopped += stop_all(role, &*own, DRAIN_MAX)?.len();
        }
        if role == Role::Host
            && let Some(configuration) = configuration(folder)?
        {
            stopped += stop_launched(&configuration, output)?;
        }
    }
    Ok(stopped)
}

/// The names of what is in a folder; none if it is not there.
fn names_in(path: &Path) -> Result<Vec<String>, DownError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let path = path.to_owned();
            return Err(DownError::File { path, error });
        }
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.into_string().ok()).collect())
}

/// The configuration that a command noted; `None`: it ended before, or has removed the folder.
fn configuration(folder: &Path) -> Result<Option<PathBuf>, DownError> {
    let path = folder.join(FILE);
    match File::open(&path).and_then(text_of) {
        Ok(text) => Ok(text.lines().nth(1).map(PathBuf::from)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DownError::File { path, error }),
    }
}

fn text_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Ends the hosts that the orchestrator of this configuration launched.
fn stop_launched(file: &Path, output: &mut Output<'_>) -> Result<usize, DownError> {
    let read = files::load(file, Purpose::Host, None, output.functions());
    let Ok((Some(config), _)) = read else {
        output.say(&format!(
            "{} cannot be read: hosts that its orchestrator launched may run\n",
            file.display()
        ));
        return Ok(0);
    };
    match launchers::of(file, &config)? {
        None => Ok(0),
        Some(launcher) => Ok(stop_all(Role::Host, &*launcher, DRAIN_MAX)?.len()),
    }
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
    let file = File::open(&path).map_err(failed)?;
    let is_free = |file: &File| match file.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    };
    if is_free(&file)? {
        return Ok(None);
    }
    let text = File::open(&path).and_then(text_of).map_err(failed)?;
    let no_number = || failed(io::Error::other("it names no process"));
    let pid = text.lines().next().and_then(|pid| pid.parse().ok());
    let pid: u32 = pid.ok_or_else(no_number)?;
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
