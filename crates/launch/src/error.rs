//! Errors of launchers, each with what is true afterwards and why.

use std::path::PathBuf;
use std::time::Duration;

use super::Exit;

/// What is true of the host after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// Nothing was started and nothing was ended by the call: what ran before runs.
    NothingDone,
    /// The host's process was started by the call, and has ended.
    NothingRuns,
    /// The host's process runs.
    Runs,
    /// It cannot be known: find or launch again.
    Unknown,
}

/// Why a launcher did not do as it was asked. Each says what is true afterwards.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The specification cannot be that of a host. Nothing was started.
    #[error("the host {name:?} cannot be started: {why}; nothing was started")]
    Spec {
        /// The name in it.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A later incarnation was launched before. Nothing was started.
    #[error(
        "incarnation {offered} of {name} is older than {known}, which was launched before: nothing was started; the author of this decision was replaced"
    )]
    Stale {
        /// The host.
        name: String,
        /// The incarnation that was to be started.
        offered: u64,
        /// The one that is known.
        known: u64,
    },
    /// The incarnation's process has ended, and an incarnation is one process. Nothing was started.
    #[error(
        "incarnation {incarnation} of {name} has ended with {exit}: nothing was started; launch the next incarnation"
    )]
    Ended {
        /// The host.
        name: String,
        /// Its incarnation.
        incarnation: u64,
        /// Its exit.
        exit: Exit,
    },
    /// An earlier incarnation of the host still runs. Nothing was started.
    #[error("incarnation {runs} of {name} still runs: nothing was started; stop it first")]
    EarlierRuns {
        /// The host.
        name: String,
        /// The incarnation that runs.
        runs: u64,
    },
    /// The incarnation runs by another specification. Nothing was changed.
    #[error(
        "incarnation {incarnation} of {name} already runs as `{runs}`, not as `{offered}`: nothing was changed; stop it, and launch the next incarnation"
    )]
    Differs {
        /// The host.
        name: String,
        /// Its incarnation.
        incarnation: u64,
        /// The command that runs.
        runs: String,
        /// The command that was to run.
        offered: String,
    },
    /// Another call or another orchestrator is at work with the host. Nothing was done.
    #[error(
        "another call, or another orchestrator of this machine, has been at work with {name} for {waited:?}: nothing was done; try again"
    )]
    Busy {
        /// The host.
        name: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The launcher starts nothing: an operator does. Nothing was done.
    #[error("{name} is started and stopped by its operator: nothing was done; {cure}")]
    Manual {
        /// The host.
        name: String,
        /// The command for the operator.
        cure: String,
    },
    /// A program is not where it was looked for. Nothing was started.
    #[error("there is no program {program}: nothing was started; {cure}")]
    Absent {
        /// The program.
        program: String,
        /// How to get it.
        cure: String,
    },
    /// The kernel does not permit it. Nothing was started.
    #[error("{doing} is not permitted ({said}): nothing was started; {cure}")]
    NotPermitted {
        /// What was tried.
        doing: String,
        /// The kernel's answer.
        said: String,
        /// What would help.
        cure: String,
    },
    /// There is no network namespace of this name. Nothing was started.
    #[error(
        "there is no network namespace {namespace}: nothing was started; make it (`ip netns add {namespace}`) or name another"
    )]
    NoNamespace {
        /// The namespace.
        namespace: String,
    },
    /// The kernel or the engine refused it. Nothing was started.
    #[error("{doing} was refused ({said}): nothing was started")]
    Refused {
        /// What was tried.
        doing: String,
        /// The answer.
        said: String,
    },
    /// The engine could not be asked, or its answer is not understood. Nothing was done.
    #[error("{doing} gave no answer that is understood ({said}): nothing was done")]
    Engine {
        /// What was asked.
        doing: String,
        /// What is wrong with the answer.
        said: String,
    },
    /// The launcher's folder cannot be read or written. Nothing was started.
    #[error("{doing} {} failed ({error}): nothing was started", path.display())]
    Folder {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// The record of the host is damaged, or of another cluster. Nothing was done, since its process may run.
    #[error(
        "the record {} is not understood ({why}): nothing was done, since {name} may run; once it is known to have ended, remove the file", path.display()
    )]
    Record {
        /// The host.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The process was started and ended before it was ready. Nothing runs.
    #[error(
        "{name} ended with {exit} before it was ready: nothing runs{}",
        shown(last_lines)
    )]
    Exited {
        /// The host.
        name: String,
        /// Its exit.
        exit: Exit,
        /// The last lines of its log.
        last_lines: Vec<String>,
    },
    /// The process was started, was not ready in time and was killed. Nothing runs.
    #[error(
        "{name} was not ready within {waited:?} and was killed: nothing runs; its last status: {status}{}",
        shown(last_lines)
    )]
    NotReady {
        /// The host.
        name: String,
        /// How long it was waited for.
        waited: Duration,
        /// The last status that it reported.
        status: String,
        /// The last lines of its log.
        last_lines: Vec<String>,
    },
    /// The host was asked to drain and has not ended yet. It runs, and drains.
    #[error("{name} has not ended within {waited:?}: it runs and drains; wait longer, or kill it")]
    StillRuns {
        /// The host.
        name: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The process was killed and its end was not seen. There is no evidence, and it may run.
    #[error(
        "{name} was killed, and its end was not seen within {waited:?} ({why}): it may run; stop it again"
    )]
    NotEnded {
        /// The host.
        name: String,
        /// How long it was waited for.
        waited: Duration,
        /// What holds it.
        why: String,
    },
    /// This launcher has never launched the incarnation. There is no evidence of its end.
    #[error(
        "incarnation {incarnation} of {name} was not launched here: there is no evidence of its end"
    )]
    NotLaunchedHere {
        /// The host.
        name: String,
        /// The incarnation.
        incarnation: u64,
    },
    /// The engine did not answer in time, or only half was done. The host may run or not: launch or find again.
    #[error("{doing} has an unknown outcome ({said}): {name} may run; launch it again")]
    Uncertain {
        /// The host.
        name: String,
        /// What was tried.
        doing: String,
        /// What is known.
        said: String,
    },
}

impl LaunchError {
    /// What is true of the host afterwards.
    #[must_use]
    pub fn aftermath(&self) -> Aftermath {
        match self {
            LaunchError::Exited { .. } | LaunchError::NotReady { .. } => Aftermath::NothingRuns,
            LaunchError::StillRuns { .. } => Aftermath::Runs,
            LaunchError::NotEnded { .. } | LaunchError::Uncertain { .. } => Aftermath::Unknown,
            _ => Aftermath::NothingDone,
        }
    }
}

/// The last lines of a log, behind a sentence.
fn shown(lines: &[String]) -> String {
    if lines.is_empty() {
        return "; its log is empty".to_owned();
    }
    format!("; the end of its log:\n  {}", lines.join("\n  "))
}
