//! What a launcher is asked to start, and what it reports of hosts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Arguments and variables of a host at most, each.
pub const ARGUMENTS_MAX: usize = 64;
/// Bytes of a name of a host or cluster at most, as in the configuration.
const NAME_BYTES_MAX: usize = 63;

/// What the processes of a launcher are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Hosts: `run CONFIGURATION --member NAME`.
    Host,
    /// Orchestrators: `orchestrate CONFIGURATION`. The arguments say which one, if there are several.
    Orchestrator,
    /// Directors: `direct CONFIGURATION --machine NAME`.
    Director,
}

/// A host to be started: which, in which incarnation, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// The member's name: 1 to 63 of a to z, 0 to 9 and hyphens.
    pub name: String,
    /// The incarnation that the epoch names or will name, from 1 on. One incarnation is one process.
    pub incarnation: u64,
    /// The host's configuration, as the host finds it: an absolute path.
    pub configuration: PathBuf,
    /// Further arguments of `asterism run`, such as `--log json`. At most [`ARGUMENTS_MAX`].
    pub arguments: Vec<String>,
    /// Variables of its environment, beside those that it inherits. At most [`ARGUMENTS_MAX`].
    pub environment: BTreeMap<String, String>,
    /// When [`super::Launcher::launch`] returns.
    pub readiness: Readiness,
}

impl HostSpec {
    /// A host with this configuration that is to be ready within a minute.
    #[must_use]
    pub fn new(name: &str, incarnation: u64, configuration: impl Into<PathBuf>) -> HostSpec {
        HostSpec {
            name: name.to_owned(),
            incarnation,
            configuration: configuration.into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            readiness: Readiness::Within(Duration::from_secs(60)),
        }
    }

    /// The arguments of the program in this role: `run CONFIGURATION --member NAME ...` of a host.
    pub(super) fn command_arguments(&self, role: Role) -> Vec<String> {
        let (command, name) = match role {
            Role::Host => ("run", Some("--member")),
            Role::Orchestrator => ("orchestrate", None),
            Role::Director => ("direct", Some("--machine")),
        };
        let configuration = self.configuration.to_string_lossy().into_owned();
        let mut arguments = vec![command.to_owned(), configuration];
        if let Some(name) = name {
            arguments.extend([name.to_owned(), self.name.clone()]);
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }

    /// Whether a process can be started by it.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        check_name(&self.name).map_err(|_| "its name is none of a host")?;
        let texts = self.arguments.iter().chain(self.environment.values());
        if self.incarnation == 0 {
            return Err("incarnations count from 1");
        }
        if !self.configuration.is_absolute() {
            return Err("its configuration must be an absolute path");
        }
        if self.configuration.to_str().is_none() {
            return Err("its configuration's path is not UTF-8");
        }
        if self.arguments.len() > ARGUMENTS_MAX || self.environment.len() > ARGUMENTS_MAX {
            return Err("it has more than 64 arguments or variables");
        }
        let is_variable = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        if !self.environment.keys().all(is_variable) {
            return Err("a variable's name is empty or has an equals sign");
        }
        if texts.into_iter().any(|text| text.contains('\0')) {
            return Err("an argument or a variable has a zero byte");
        }
        Ok(())
    }
}

/// When a launch counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// When the host reports that it takes packets (`READY=1` of `sd_notify(3)`), within this time; else it is killed. A host
    /// waits for an epoch that names it, and for the state of the others, before it reports that.
    Within(Duration),
    /// When its process runs. Its heartbeats tell the rest.
    Unawaited,
}

/// A process, as nothing else can be it: the number with the time of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number on this machine.
    pub pid: u32,
    /// Its start, in ticks of the kernel since the machine's start (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}

/// Whether a host has reported that it takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It has.
    Reported,
    /// Nobody waited for the report, or the orchestrator that waited has ended.
    Unknown,
}

/// A host that runs after a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The host.
    pub name: String,
    /// Its incarnation.
    pub incarnation: u64,
    /// Its process; none if the engine did not report it.
    pub process: Option<ProcessId>,
    /// Its container, by number.
    pub container: Option<String>,
    /// Whether it ran before the call: nothing was started.
    pub already: bool,
    /// Whether it has reported that it takes packets.
    pub ready: Ready,
    /// The time from the call to the return.
    pub took: Duration,
}

/// How a process ended. A container's end by a signal is the code 128 and the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It ended while no orchestrator was there to receive its exit.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal}"),
            Exit::Unknown => f.write_str("an unknown exit"),
        }
    }
}

/// A host that a launcher's engine knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The host.
    pub name: String,
    /// Its latest incarnation; 0 if that is not known.
    pub incarnation: u64,
    /// Whether it runs.
    pub state: FoundState,
    /// Whether it has reported that it takes packets.
    pub ready: Ready,
    /// Its process, if one was seen.
    pub process: Option<ProcessId>,
    /// Its container, by number.
    pub container: Option<String>,
    /// The last lines of its log, at most [`super::LAST_LINES_MAX`]. Of a container only once it has ended, and until there is
    /// evidence of that.
    pub last_lines: Vec<String>,
}

/// What is true of a host's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundState {
    /// It runs.
    Runs,
    /// It has ended.
    Ended(Exit),
    /// It cannot be known; the sentence says why and what to do. It may run.
    Unknown(String),
}

/// How a host is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// SIGTERM, once: the host drains, saves its state and ends. If it does not end within this time it goes on draining, and
    /// nothing is killed.
    Drain {
        /// How long to wait for its end. The host's own bound is `drain_max`.
        within: Duration,
    },
    /// SIGKILL: what it wrote last may be lost.
    Kill,
}

/// Checks a name of a host or cluster: 1 to 63 of a to z, 0 to 9 and hyphens, with no hyphen at either end, as the
/// configuration does.
///
/// # Errors
/// It is none.
pub fn check_name(name: &str) -> Result<(), LaunchNameError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| good(byte) || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if is_name {
        Ok(())
    } else {
        Err(LaunchNameError(name.to_owned()))
    }
}

/// A text that is no name of a host or cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name: names have 1 to 63 of a-z, 0-9 and hyphens, with no hyphen at either end"
)]
pub struct LaunchNameError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_that_cannot_be_started_are_refused() {
        let sound = HostSpec::new("a", 1, "/etc/asterism/asterism.toml");
        assert_eq!(sound.check(), Ok(()));
        assert_eq!(
            sound.command_arguments(Role::Host),
            ["run", "/etc/asterism/asterism.toml", "--member", "a"]
        );
        assert_eq!(
            sound.command_arguments(Role::Director),
            ["direct", "/etc/asterism/asterism.toml", "--machine", "a"]
        );
        assert_eq!(
            sound.command_arguments(Role::Orchestrator),
            ["orchestrate", "/etc/asterism/asterism.toml"]
        );
        let with = |change: fn(&mut HostSpec)| {
            let mut spec = sound.clone();
            change(&mut spec);
            spec.check()
        };
        for change in [
            (|spec| spec.name = "A".to_owned()) as fn(&mut HostSpec),
            |spec| spec.name = "../a".to_owned(),
            |spec| spec.name = String::new(),
            |spec| spec.name = "-a".to_owned(),
            |spec| spec.incarnation = 0,
            |spec| spec.configuration = "asterism.toml".into(),
            |spec| spec.arguments = vec![String::new(); ARGUMENTS_MAX + 1],
            |spec| spec.arguments = vec!["a\0b".to_owned()],
            |spec| spec.environment = [("A=B".to_owned(), String::new())].into(),
        ] {
            assert!(with(change).is_err());
        }
    }
}
