//! Hosts as processes of this machine.
//!
//! A host is started in a process group of its own: it survives the orchestrator, and the signals of the orchestrator's
//! terminal do not reach it. Its standard input is the lock of `record.rs`, which reads as an empty file. Its outputs go to a
//! bounded log, and it reports on a socket that it takes packets.
//!
//! The orchestrator may die at any step ([`Step`]). Before the fork, the lock is free and the record says `starting`: nothing
//! runs, and the next launch starts the host. After the fork the lock is held: the next launch starts nothing, and finds the
//! process by a variable of its environment if its number was not recorded. Sources: `pidfd_open(2)`, `flock(2)`,
//! `sd_notify(3)`.
//!
//! `started.rs` says what is true of a process that was started, and ends it. Beside this folder, `identity.rs` has processes as
//! the kernel knows them, `notices.rs` the reports and `log.rs` the log.

mod started;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::started::{MARK, Seen};
use super::identity::{self, Process};
use super::log::{self, LOG_BYTES_MAX};
use super::namespace::Network;
use super::notices::{First, Notices, SOCKET_PATH_BYTES_MAX};
use super::program;
use super::record::{self, Folder, Phase, Record};
use super::{
    Abilities, Counters, Exit, FencingEvidence, Found, FoundState, HostSpec, LOCK_WAIT_MAX,
    LaunchCounts, LaunchError, Launched, Launcher, Readiness, Ready, Role, StopMode,
};
use crate::clock;

/// How long a killed process may take to end.
pub const KILL_WAIT_MAX: Duration = Duration::from_secs(10);
/// Variables of a service manager that are the orchestrator's and not its hosts'.
const NOT_INHERITED: [&str; 7] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "INVOCATION_ID",
];

/// Where and how hosts are started as processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The folder of records, locks and logs, on a local disk; sane: `/var/lib/asterism/launch`. It is made if it is not
    /// there. The longest path in it, `FOLDER/CLUSTER/HOST.notify`, has at most 107 bytes.
    pub folder: PathBuf,
    /// The host's program: a path, or a name that is looked for in `PATH`.
    pub program: PathBuf,
    /// Its arguments before `run CONFIGURATION --member NAME`.
    pub arguments: Vec<String>,
    /// What its processes are: hosts. A cluster that runs on one machine has launchers of other roles beside, each with a folder of
    /// its own.
    pub role: Role,
}

impl ProcessConfig {
    /// The program `asterism` of `PATH`, for this cluster, with its records in this folder.
    #[must_use]
    pub fn new(cluster: &str, folder: impl Into<PathBuf>) -> ProcessConfig {
        ProcessConfig {
            cluster: cluster.to_owned(),
            folder: folder.into(),
            program: PathBuf::from("asterism"),
            arguments: Vec::new(),
            role: Role::Host,
        }
    }
}

/// A step of a launch, at the end of which the orchestrator might die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The record says that the host is about to be started.
    Recorded,
    /// The process was started; its number is in no record.
    Started,
    /// Its number is recorded.
    Identified,
    /// It has reported that it takes packets, and that is recorded.
    Ready,
}

/// The launcher of processes.
#[derive(Debug)]
pub struct ProcessLauncher {
    folder: Folder,
    program: PathBuf,
    arguments: Vec<String>,
    role: Role,
    network: Network,
    on_step: fn(Step),
    counters: Counters,
}

impl ProcessLauncher {
    /// A launcher over a folder. Starts nothing; what was launched over the same folder before is found by it.
    ///
    /// # Errors
    /// The cluster's name is none, or the folder cannot be made.
    pub fn new(config: ProcessConfig) -> Result<ProcessLauncher, LaunchError> {
        ProcessLauncher::within(config, Network::Here)
    }

    pub(super) fn within(
        config: ProcessConfig,
        network: Network,
    ) -> Result<ProcessLauncher, LaunchError> {
        Ok(ProcessLauncher {
            folder: Folder::open(&config.folder, &config.cluster)?,
            program: config.program,
            arguments: config.arguments,
            role: config.role,
            network,
            on_step: |_| {},
            counters: Counters::default(),
        })
    }

    /// The same, which calls this after each step of a launch, for tests of what a death of the orchestrator leaves.
    #[must_use]
    pub fn observed_by(mut self, on_step: fn(Step)) -> ProcessLauncher {
        self.on_step = on_step;
        self
    }

    /// The command that starts a host: the program first.
    fn command(&self, spec: &HostSpec) -> Result<Vec<String>, LaunchError> {
        let program = program::find(&self.program)?;
        let mut command = self.network.enter(&spec.name)?;
        command.push(program.to_string_lossy().into_owned());
        command.extend(self.arguments.iter().cloned());
        command.extend(spec.command_arguments(self.role));
        Ok(command)
    }

    fn launch_checked(&self, spec: &HostSpec) -> Result<Launched, LaunchError> {
        let began = clock::now();
        spec.check().map_err(|why| LaunchError::Spec {
            name: spec.name.clone(),
            why,
        })?;
        let socket = self.folder.file(&spec.name, "notify");
        if socket.as_os_str().len() >= SOCKET_PATH_BYTES_MAX {
            return Err(LaunchError::Spec {
                name: spec.name.clone(),
                why: "the launcher's folder has a path too long for the host's socket",
            });
        }
        let _lock = self.folder.lock(&spec.name)?;
        let before = self.folder.read(&spec.name)?;
        if let Some(record) = before.clone()
            && let Some(launched) = self.launched_before(spec, record, began)?
        {
            return Ok(launched);
        }
        if before.is_none() {
            self.refuse_unrecorded(&spec.name)?;
        }
        let command = self.command(spec)?;
        let record = Record::starting(
            &self.folder,
            &spec.name,
            spec.incarnation,
            command.join(" "),
            before.as_ref(),
        );
        self.start(spec, &command, record, began)
    }

    /// Refuses to start a host without a record whose process is there all the same: somebody removed its files.
    fn refuse_unrecorded(&self, name: &str) -> Result<(), LaunchError> {
        let unrecorded =
            identity::with_variable(MARK, |value| started::is_mark_of(&self.folder, name, value));
        match unrecorded.first() {
            None => Ok(()),
            Some(process) => Err(LaunchError::Uncertain {
                name: name.to_owned(),
                doing: "the launch".to_owned(),
                said: format!(
                    "its record is gone, and its {} is there: end it",
                    process.id()
                ),
            }),
        }
    }

    /// What the record of an earlier launch makes of this one: it runs already, it must not run, or (none) it is started now.
    fn launched_before(
        &self,
        spec: &HostSpec,
        mut record: Record,
        began: Instant,
    ) -> Result<Option<Launched>, LaunchError> {
        let name = || spec.name.clone();
        if spec.incarnation < record.incarnation {
            return Err(LaunchError::Stale {
                name: name(),
                offered: spec.incarnation,
                known: record.incarnation,
            });
        }
        let is_same = spec.incarnation == record.incarnation;
        match started::see(&self.folder, &record) {
            Seen::Runs(_) if !is_same => Err(LaunchError::EarlierRuns {
                name: name(),
                runs: record.incarnation,
            }),
            Seen::Runs(process) => {
                let offered = self.command(spec)?.join(" ");
                if offered != record.command {
                    return Err(LaunchError::Differs {
                        name: name(),
                        incarnation: record.incarnation,
                        runs: record.command,
                        offered,
                    });
                }
                if record.process.is_none() {
                    record.process = Some(process.id());
                    record.phase = Phase::Started;
                    self.folder.write(&record)?;
                }
                Ok(Some(Launched {
                    name: name(),
                    incarnation: record.incarnation,
                    process: Some(process.id()),
                    container: None,
                    already: true,
                    ready: ready(record.phase),
                    took: began.elapsed(),
                }))
            }
            Seen::Unclear(said) => Err(LaunchError::Uncertain {
                name: name(),
                doing: format!("the launch of incarnation {}", record.incarnation),
                said,
            }),
            Seen::Ended { exit, process, .. } => {
                let may_start = matches!(record.phase, Phase::Failed | Phase::Starting);
                self.note_end(&mut record, exit, process.as_ref())?;
                if is_same && (!may_start || record.fenced >= record.incarnation) {
                    return Err(LaunchError::Ended {
                        name: name(),
                        incarnation: record.incarnation,
                        exit,
                    });
                }
                Ok(None)
            }
        }
    }

    /// Records the end of a process, and lets the kernel forget it only then.
    fn note_end(
        &self,
        record: &mut Record,
        exit: Exit,
        process: Option<&Process>,
    ) -> Result<(), LaunchError> {
        if record.exit.is_none() {
            let phase = match record.phase {
                Phase::Starting | Phase::Failed => Phase::Failed,
                _ => Phase::Ended,
            };
            record.ended(phase, exit);
            self.folder.write(record)?;
        }
        if let Some(process) = process {
            process.reap();
        }
        Ok(())
    }

    fn start(
        &self,
        spec: &HostSpec,
        command: &[String],
        mut record: Record,
        began: Instant,
    ) -> Result<Launched, LaunchError> {
        let Some(run_lock) = self.folder.run_lock(&spec.name)? else {
            return Err(LaunchError::Uncertain {
                name: spec.name.clone(),
                doing: "the launch".to_owned(),
                said: format!(
                    "a process that is not recorded holds {}",
                    self.folder.file(&spec.name, "run").display()
                ),
            });
        };
        let log_path = self.folder.file(&spec.name, "log");
        let failed = |error| record::failed("opening the log", &log_path, error);
        let log = log::begin(&log_path).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let socket = self.folder.file(&spec.name, "notify");
        let mut notices = Notices::bind(&socket)?;
        self.folder.write(&record)?;
        (self.on_step)(Step::Recorded);

        let [program, arguments @ ..] = command else {
            return Err(LaunchError::Spec {
                name: spec.name.clone(),
                why: "its command is empty",
            });
        };
        let mut child = Command::new(program);
        child.args(arguments);
        for name in NOT_INHERITED {
            child.env_remove(name);
        }
        child
            .envs(&spec.environment)
            .env("NOTIFY_SOCKET", &socket)
            .env(MARK, started::mark(&self.folder, &record))
            .current_dir("/")
            .stdin(Stdio::from(run_lock))
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(errors));
        std::os::unix::process::CommandExt::process_group(&mut child, 0);
        let spawned = child.spawn();
        // The command has copies of the lock and the log.
        drop(child);
        let pid = match spawned {
            Ok(child) => child.id(),
            Err(error) => {
                record.ended(Phase::Failed, Exit::Unknown);
                self.folder.write(&record)?;
                return Err(program::not_started(program, &error));
            }
        };
        self.counters.started.fetch_add(1, Ordering::Relaxed);
        (self.on_step)(Step::Started);

        let identified = self.identify(pid, &mut record);
        let process = match identified {
            Ok(process) => process,
            Err(said) => {
                // Without its number in a record it would be found later, but not for certain.
                started::kill(
                    &self.folder,
                    &record,
                    Process::open_number(pid).ok().flatten(),
                )?;
                record.ended(Phase::Failed, Exit::Signal(Signal::KILL.as_raw()));
                let _ = self.folder.write(&record);
                return Err(LaunchError::Refused {
                    doing: format!("recording the process of {}", spec.name),
                    said: format!("{said}; it was killed again"),
                });
            }
        };
        (self.on_step)(Step::Identified);

        let mut is_ready = false;
        if let Readiness::Within(time) = spec.readiness {
            self.await_ready(&mut record, &process, &mut notices, time)?;
            is_ready = true;
            (self.on_step)(Step::Ready);
        }
        Ok(Launched {
            name: spec.name.clone(),
            incarnation: spec.incarnation,
            process: Some(process.id()),
            container: None,
            already: false,
            ready: if is_ready {
                Ready::Reported
            } else {
                Ready::Unknown
            },
            took: began.elapsed(),
        })
    }

    fn identify(&self, pid: u32, record: &mut Record) -> Result<Process, String> {
        // The child was not waited for: its number is its own until then.
        let process = Process::open_number(pid).map_err(|error| error.to_string())?;
        let process = process.ok_or("it is not to be seen in /proc")?;
        record.process = Some(process.id());
        record.phase = Phase::Started;
        self.folder
            .write(record)
            .map_err(|error| error.to_string())?;
        Ok(process)
    }

    fn await_ready(
        &self,
        record: &mut Record,
        process: &Process,
        notices: &mut Notices,
        time: Duration,
    ) -> Result<(), LaunchError> {
        let name = record.name.clone();
        let log = self.folder.file(&name, "log");
        match notices.wait(process, clock::now() + time) {
            First::Ready => {
                record.phase = Phase::Ready;
                // It runs and is ready, recorded or not.
                let _ = self.folder.write(record);
                Ok(())
            }
            First::Ended => {
                let exit = process.exit().unwrap_or(Exit::Unknown);
                started::kill(&self.folder, record, None)?;
                record.phase = Phase::Failed;
                self.fail(record, exit, process)?;
                Err(LaunchError::Exited {
                    name,
                    exit,
                    last_lines: log::last_lines(&log),
                })
            }
            First::Neither => {
                let exit = started::kill(
                    &self.folder,
                    record,
                    Process::open(process.id()).ok().flatten(),
                )?;
                self.fail(record, exit, process)?;
                Err(LaunchError::NotReady {
                    name,
                    waited: time,
                    status: notices.status().to_owned(),
                    last_lines: log::last_lines(&log),
                })
            }
        }
    }

    fn fail(&self, record: &mut Record, exit: Exit, process: &Process) -> Result<(), LaunchError> {
        record.ended(Phase::Failed, exit);
        self.folder.write(record)?;
        process.reap();
        Ok(())
    }

    fn found(&self, name: String) -> Found {
        let log = self.folder.file(&name, "log");
        // A log that cannot be cut now is cut later.
        let _ = log::bound(&log, LOG_BYTES_MAX);
        let mut found = Found {
            name,
            incarnation: 0,
            state: FoundState::Unknown("it was never launched here".to_owned()),
            ready: Ready::Unknown,
            process: None,
            container: None,
            last_lines: log::last_lines(&log),
        };
        let lock = self.folder.try_lock(&found.name);
        let mut record = match self.folder.read(&found.name) {
            Ok(Some(record)) => record,
            Ok(None) => return found,
            Err(error) => {
                found.state = FoundState::Unknown(error.to_string());
                return found;
            }
        };
        found.incarnation = record.incarnation;
        found.process = record.process;
        found.ready = ready(record.phase);
        found.state = match started::see(&self.folder, &record) {
            Seen::Runs(process) => {
                found.process = Some(process.id());
                FoundState::Runs
            }
            Seen::Unclear(why) => FoundState::Unknown(why),
            Seen::Ended { exit, process, .. } => {
                // If another call works with the host, or the disk is full, the end is noted by a later one.
                if lock.is_some() {
                    let _ = self.note_end(&mut record, exit, process.as_ref());
                }
                FoundState::Ended(exit)
            }
        };
        found
    }

    fn stop_checked(
        &self,
        name: &str,
        incarnation: u64,
        mode: StopMode,
    ) -> Result<FencingEvidence, LaunchError> {
        let not_here = || LaunchError::NotLaunchedHere {
            name: name.to_owned(),
            incarnation,
        };
        super::check_name(name).map_err(|_| not_here())?;
        let _lock = self.folder.lock(name)?;
        let mut record = self.folder.read(name)?.ok_or_else(not_here)?;
        if record.earlier.contains(&incarnation) {
            // The later one was started only when this one had ended.
            let later = super::EndedBy::LaterIncarnation(record.incarnation);
            return Ok(FencingEvidence::new(
                name,
                incarnation,
                later,
                Exit::Unknown,
            ));
        }
        if incarnation != record.incarnation {
            return Err(not_here());
        }
        let mut seen = started::see(&self.folder, &record);
        if let (Seen::Runs(process), StopMode::Drain { within }) = (&seen, mode) {
            self.drain(&mut record, process, within)?;
            seen = started::see(&self.folder, &record);
        }
        let (ended_by, exit, process) = match seen {
            Seen::Ended {
                ended_by,
                exit,
                process,
            } => (ended_by, exit, process),
            Seen::Unclear(_) | Seen::Runs(_) if matches!(mode, StopMode::Drain { .. }) => {
                let within = match mode {
                    StopMode::Drain { within } => within,
                    StopMode::Kill => Duration::ZERO,
                };
                return Err(LaunchError::StillRuns {
                    name: name.to_owned(),
                    waited: within,
                });
            }
            Seen::Runs(process) => {
                let id = process.id();
                let exit = started::kill(&self.folder, &record, Some(process))?;
                let process = Process::open(id).ok().flatten();
                (super::EndedBy::Process, exit, process)
            }
            Seen::Unclear(_) => {
                let exit = started::kill(&self.folder, &record, None)?;
                (super::EndedBy::Process, exit, None)
            }
        };
        // On the disk before anyone has the evidence.
        record.fenced = record.fenced.max(incarnation);
        if record.exit.is_none() {
            record.ended(Phase::Ended, exit);
        }
        self.folder.write(&record)?;
        if let Some(process) = process {
            process.reap();
        }
        Ok(FencingEvidence::new(name, incarnation, ended_by, exit))
    }

    /// Sends SIGTERM, unless an earlier call has: a host ends at once at the second. It is recorded before it is sent, so after a
    /// death of the orchestrator between the two the host is not asked at all, and is left to be killed.
    fn drain(
        &self,
        record: &mut Record,
        process: &Process,
        within: Duration,
    ) -> Result<(), LaunchError> {
        if !record.draining {
            record.draining = true;
            self.folder.write(record)?;
            process
                .signal(Signal::TERM)
                .map_err(|error| LaunchError::NotPermitted {
                    doing: format!("sending SIGTERM to {}", record.name),
                    said: error.to_string(),
                    cure: "run the orchestrator as the user of its hosts".to_owned(),
                })?;
        }
        process.ends_within(within);
        Ok(())
    }
}

/// Whether a host has reported, by its record.
fn ready(phase: Phase) -> Ready {
    if phase == Phase::Ready {
        Ready::Reported
    } else {
        Ready::Unknown
    }
}

impl Launcher for ProcessLauncher {
    fn abilities(&self) -> Abilities {
        Abilities {
            launches: true,
            keeps_exits: false,
            waits_max: 2 * LOCK_WAIT_MAX + KILL_WAIT_MAX,
        }
    }

    fn launch(&self, host: &HostSpec) -> Result<Launched, LaunchError> {
        let result = self.launch_checked(host);
        self.counters.launch(&result);
        result
    }

    fn find(&self) -> Result<Vec<Found>, LaunchError> {
        let names = self.folder.names()?;
        Ok(names.into_iter().map(|name| self.found(name)).collect())
    }

    fn stop(
        &self,
        name: &str,
        incarnation: u64,
        mode: StopMode,
    ) -> Result<FencingEvidence, LaunchError> {
        let result = self.stop_checked(name, incarnation, mode);
        self.counters.stop(&result);
        result
    }

    fn describe(&self) -> String {
        format!(
            "processes of {}{}, with records in {}",
            self.program.display(),
            self.network.describe(),
            self.folder.path().display()
        )
    }

    fn counts(&self) -> LaunchCounts {
        self.counters.snapshot()
    }
}
