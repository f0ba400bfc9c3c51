//! What is true of a process that was started, by its record, its lock and the kernel, and its certain end.

use std::time::Duration;

use rustix::process::Signal;

use super::KILL_WAIT_MAX;
use crate::clock;
use crate::identity::{Process, with_variable};
use crate::record::{Folder, Phase, Record};
use crate::{EndedBy, Exit, LaunchError};

/// The variable by which a host's process, and each process that it starts, is found.
pub(super) const MARK: &str = "ASTERISM_LAUNCH";
/// How long a lock may be held without a process that is known: one was forked and has not become the host's program yet, or the
/// orchestrator forks another host at that moment, which has a copy of the lock until it is that host's program.
const APPEARS_WITHIN: Duration = Duration::from_secs(1);
/// Time between two looks at what gives no notice.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The value of the variable: one for each incarnation of each host of each folder.
pub(super) fn mark(folder: &Folder, record: &Record) -> String {
    let path = folder.path().display();
    format!("{path}/{}#{}", record.name, record.incarnation)
}

/// Whether a value of the variable is that of any incarnation of a host.
pub(super) fn is_mark_of(folder: &Folder, name: &str, value: &[u8]) -> bool {
    let start = format!("{}/{name}#", folder.path().display());
    value.starts_with(start.as_bytes())
}

/// The processes of an incarnation, the host's own first.
fn marked(folder: &Folder, record: &Record) -> Vec<Process> {
    let mark = mark(folder, record);
    with_variable(MARK, |value| value == mark.as_bytes())
}

/// What is true of a host's process.
#[derive(Debug)]
pub(super) enum Seen {
    /// It runs.
    Runs(Process),
    /// It has ended, and no process that it started has its lock.
    Ended {
        exit: Exit,
        ended_by: EndedBy,
        /// The process, if the kernel keeps its exit for this one.
        process: Option<Process>,
    },
    /// A process has its lock that is not the host's, or that cannot be seen.
    Unclear(String),
}

/// Looks, and changes nothing. Some 10 µs; up to a second where a process has the lock that is not the recorded one.
pub(super) fn see(folder: &Folder, record: &Record) -> Seen {
    if record.boot != folder.boot() {
        return Seen::Ended {
            exit: record.exit.unwrap_or(Exit::Unknown),
            ended_by: EndedBy::MachineStart,
            process: None,
        };
    }
    let open = |id| Process::open(id).map_err(|error| Seen::Unclear(error.to_string()));
    let process = match record.process.map(open).transpose() {
        Ok(process) => process.flatten(),
        Err(unclear) => return unclear,
    };
    let process = match process {
        Some(process) if !process.ends_within(Duration::ZERO) => return Seen::Runs(process),
        process => process,
    };
    let began = clock::now();
    loop {
        match folder.is_run_lock_held(&record.name) {
            Ok(true) => {}
            Ok(false) => {
                let exit = process.as_ref().and_then(Process::exit);
                return Seen::Ended {
                    exit: record.exit.or(exit).unwrap_or(Exit::Unknown),
                    ended_by: EndedBy::Process,
                    process,
                };
            }
            Err(error) => return Seen::Unclear(error.to_string()),
        }
        // Its orchestrator died between its start and the record, or is just between them.
        if record.phase == Phase::Starting
            && let Some(process) = marked(folder, record).into_iter().next()
            && !process.ends_within(Duration::ZERO)
        {
            return Seen::Runs(process);
        }
        if began.elapsed() > APPEARS_WITHIN {
            let path = folder.file(&record.name, "run");
            return Seen::Unclear(if record.process.is_some() {
                format!(
                    "its process has ended, and one that it started still runs and holds {}: stop the host",
                    path.display()
                )
            } else {
                format!(
                    "a process holds {} and cannot be identified: run the orchestrator as the user of its hosts, or as root",
                    path.display()
                )
            });
        }
        clock::pause(LOOK_AGAIN);
    }
}

/// Kills the host's process and each that it started, and waits until the kernel has released all of them. Returns its exit.
pub(super) fn kill(
    folder: &Folder,
    record: &Record,
    process: Option<Process>,
) -> Result<Exit, LaunchError> {
    let began = clock::now();
    let left = || KILL_WAIT_MAX.saturating_sub(began.elapsed());
    let not_ended = |why: String| LaunchError::NotEnded {
        name: record.name.clone(),
        waited: began.elapsed(),
        why,
    };
    let kill_one = |process: &Process| {
        process
            .signal(Signal::KILL)
            .map_err(|error| not_ended(format!("SIGKILL was refused: {error}")))
    };
    let mut exit = record.exit.unwrap_or(Exit::Unknown);
    if let Some(process) = &process {
        kill_one(process)?;
        if !process.ends_within(left()) {
            return Err(not_ended("the kernel keeps its process".to_owned()));
        }
        exit = process.exit().unwrap_or(exit);
    }
    while folder.is_run_lock_held(&record.name)? {
        for other in marked(folder, record) {
            kill_one(&other)?;
        }
        if left().is_zero() {
            let path = folder.file(&record.name, "run");
            return Err(not_ended(format!("a process holds {}", path.display())));
        }
        clock::pause(LOOK_AGAIN);
    }
    Ok(exit)
}
