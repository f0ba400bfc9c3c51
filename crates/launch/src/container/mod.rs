//! Hosts as containers of this machine, by podman.
//!
//! A host has one container, named `asterism.CLUSTER.HOST`; podman gives a name once, so two orchestrators cannot start a host
//! twice even if they share no folder. Labels carry the cluster, the host and the incarnation. Containers have the network of
//! the machine. The record of a host (`record.rs`) says what was begun; podman says what is there. A host reports that it takes
//! packets on a socket in a folder that the container shares.
//!
//! A container counts as ended when podman says so and its process is not there, or when its process, with that start, is not
//! there: the kernel ends all processes of a container with its first.
//!
//! `podman.rs` has the calls, `seen.rs` what is true of a container and its certain end.

mod podman;
mod seen;

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;

pub use self::podman::CONTAINER_CALL_TIME_MAX;
use self::podman::{CLUSTER_LABEL, HOST_LABEL, INCARNATION_LABEL, Podman, Shown};
use self::seen::{END_SHOWN_WITHIN, Seen};
use super::identity::Process;
use super::notices::{First, Notices, SOCKET_PATH_BYTES_MAX};
use super::program::NoAnswer;
use super::record::{self, Folder, Phase, Record};
use super::{
    Abilities, Counters, EndedBy, Exit, FencingEvidence, Found, FoundState, HostSpec,
    KILL_WAIT_MAX, LOCK_WAIT_MAX, LOG_BYTES_MAX, LaunchCounts, LaunchError, Launched, Launcher,
    Readiness, Ready, Role, Step, StopMode,
};
use crate::clock;

/// The folder in a container that has the socket for its reports.
const NOTIFY_FOLDER: &str = "/run/asterism-launch";
/// What a container is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerSource {
    /// An image that this machine has; none is fetched.
    Image(String),
    /// A folder with a root file system, which all containers share.
    Rootfs(PathBuf),
}

/// Where and how hosts are started as containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The folder of records, locks and sockets, as [`super::ProcessConfig::folder`].
    pub folder: PathBuf,
    /// The program `podman`: a path, or a name that is looked for in `PATH`.
    pub podman: PathBuf,
    /// Options of podman before each command. Without systemd: `--cgroup-manager=cgroupfs`, `--runtime=runc`.
    pub podman_options: Vec<String>,
    /// Options of `podman create`: volumes with the configuration, the key and the state, capabilities, limits.
    pub create_options: Vec<String>,
    /// What containers are made of.
    pub source: ContainerSource,
    /// The host's program in the container, with its arguments before `run CONFIGURATION --member NAME`.
    pub program: Vec<String>,
}

/// The launcher of containers.
#[derive(Debug)]
pub struct ContainerLauncher {
    folder: Folder,
    podman: Podman,
    create_options: Vec<String>,
    source: ContainerSource,
    program: Vec<String>,
    on_step: fn(Step),
    counters: Counters,
}

impl ContainerLauncher {
    /// A launcher over a folder. Starts nothing; containers of the cluster that are there are found by it.
    ///
    /// # Errors
    /// The cluster's name is none, or the folder cannot be made.
    pub fn new(config: ContainerConfig) -> Result<ContainerLauncher, LaunchError> {
        Ok(ContainerLauncher {
            folder: Folder::open(&config.folder, &config.cluster)?,
            podman: Podman {
                turns: podman::Turns::default(),
                program: config.podman,
                options: config.podman_options,
            },
            create_options: config.create_options,
            source: config.source,
            program: config.program,
            on_step: |_| {},
            counters: Counters::default(),
        })
    }

    /// The same, which calls this after each step of a launch.
    #[must_use]
    pub fn observed_by(mut self, on_step: fn(Step)) -> ContainerLauncher {
        self.on_step = on_step;
        self
    }

    fn container(&self, host: &str) -> String {
        format!("asterism.{}.{host}", self.folder.cluster())
    }

    fn shown(&self, host: &str) -> Result<Option<Shown>, LaunchError> {
        let name = self.container(host);
        let list = self.podman.list(self.folder.cluster(), Some(&name))?;
        Ok(list.into_iter().next())
    }

    fn notify_folder(&self, name: &str) -> PathBuf {
        self.folder.file(name, "notify.d")
    }

    fn create_arguments(&self, spec: &HostSpec) -> Vec<String> {
        let mut arguments: Vec<String> = [
            "create",
            "--name",
            &self.container(&spec.name),
            "--label",
            &format!("{CLUSTER_LABEL}={}", self.folder.cluster()),
            "--label",
            &format!("{HOST_LABEL}={}", spec.name),
            "--label",
            &format!("{INCARNATION_LABEL}={}", spec.incarnation),
            "--network=host",
            "--pull=never",
            "--sdnotify=ignore",
            "--restart=no",
            "--log-driver=k8s-file",
            &format!("--log-opt=max-size={LOG_BYTES_MAX}"),
            &format!("--env=NOTIFY_SOCKET={NOTIFY_FOLDER}/notify"),
            &format!(
                "--volume={}:{NOTIFY_FOLDER}",
                self.notify_folder(&spec.name).display()
            ),
        ]
        .map(str::to_owned)
        .into();
        let variables = spec.environment.iter();
        arguments.extend(variables.map(|(name, value)| format!("--env={name}={value}")));
        arguments.extend(self.create_options.iter().cloned());
        match &self.source {
            ContainerSource::Image(image) => arguments.push(image.clone()),
            ContainerSource::Rootfs(folder) => {
                arguments.extend(["--rootfs".to_owned(), folder.display().to_string()]);
            }
        }
        arguments.extend(self.program.iter().cloned());
        arguments.extend(spec.command_arguments(Role::Host));
        arguments
    }

    fn launch_checked(&self, spec: &HostSpec) -> Result<Launched, LaunchError> {
        let began = clock::now();
        spec.check().map_err(|why| LaunchError::Spec {
            name: spec.name.clone(),
            why,
        })?;
        let socket = self.notify_folder(&spec.name).join("notify");
        if socket.as_os_str().len() >= SOCKET_PATH_BYTES_MAX {
            return Err(LaunchError::Spec {
                name: spec.name.clone(),
                why: "the launcher's folder has a path too long for the host's socket",
            });
        }
        let _lock = self.folder.lock(&spec.name)?;
        let record = self.folder.read(&spec.name)?;
        let shown = self.shown(&spec.name)?;
        if let Some(launched) =
            self.launched_before(spec, record.as_ref(), shown.as_ref(), began)?
        {
            return Ok(launched);
        }
        if let Some(shown) = &shown {
            self.remove(&spec.name, shown)?;
        }
        let command = self.create_arguments(spec);
        let mut next = Record::starting(
            &self.folder,
            &spec.name,
            spec.incarnation,
            command.join(" "),
            record.as_ref(),
        );
        let result = self.start(spec, &command, &mut next, &socket, began);
        if let Err(error) = &result
            && error.aftermath() != super::Aftermath::Unknown
            && next.phase != Phase::Failed
        {
            next.ended(Phase::Failed, Exit::Unknown);
            self.folder.write(&next)?;
        }
        result
    }

    /// What is there already makes of a launch: it runs, it must not run, or (none) it is started now.
    fn launched_before(
        &self,
        spec: &HostSpec,
        record: Option<&Record>,
        shown: Option<&Shown>,
        began: Instant,
    ) -> Result<Option<Launched>, LaunchError> {
        let name = || spec.name.clone();
        let recorded = record.map_or(0, |record| record.incarnation);
        let labelled = shown.and_then(|shown| shown.incarnation).unwrap_or(0);
        let known = recorded.max(labelled);
        if spec.incarnation < known {
            return Err(LaunchError::Stale {
                name: name(),
                offered: spec.incarnation,
                known,
            });
        }
        let runs = if shown.is_some() { labelled } else { recorded };
        match self.see(record, shown) {
            Seen::Runs(_) if runs != spec.incarnation => {
                Err(LaunchError::EarlierRuns { name: name(), runs })
            }
            Seen::Runs(process) => {
                let offered = self.create_arguments(spec).join(" ");
                let of_this = record.filter(|record| record.incarnation == spec.incarnation);
                if let Some(record) = of_this.filter(|record| record.command != offered) {
                    return Err(LaunchError::Differs {
                        name: name(),
                        incarnation: spec.incarnation,
                        runs: record.command.clone(),
                        offered,
                    });
                }
                if of_this.is_none_or(|record| record.process != Some(process.id())) {
                    let starting = || {
                        Record::starting(&self.folder, &spec.name, runs, offered.clone(), record)
                    };
                    let mut adopted = of_this.cloned().unwrap_or_else(starting);
                    adopted.phase = Phase::Started;
                    adopted.process = Some(process.id());
                    adopted.container = shown.map(|shown| shown.id.clone());
                    self.folder.write(&adopted)?;
                }
                Ok(Some(Launched {
                    name: name(),
                    incarnation: runs,
                    process: Some(process.id()),
                    container: shown.map(|shown| shown.id.clone()),
                    already: true,
                    ready: ready(of_this),
                    took: began.elapsed(),
                }))
            }
            Seen::Unclear(said) => Err(LaunchError::Uncertain {
                name: name(),
                doing: format!("the launch of incarnation {known}"),
                said,
            }),
            Seen::Created => self.refuse_fenced(spec, record, Exit::Unknown),
            Seen::Ended(exit) => {
                let is_failed = |record: &Record| {
                    record.incarnation == spec.incarnation
                        && matches!(record.phase, Phase::Starting | Phase::Failed)
                };
                if known == spec.incarnation && !record.is_some_and(is_failed) {
                    return Err(LaunchError::Ended {
                        name: name(),
                        incarnation: known,
                        exit,
                    });
                }
                self.refuse_fenced(spec, record, exit)
            }
        }
    }

    fn refuse_fenced(
        &self,
        spec: &HostSpec,
        record: Option<&Record>,
        exit: Exit,
    ) -> Result<Option<Launched>, LaunchError> {
        if record.is_some_and(|record| record.fenced >= spec.incarnation) {
            return Err(LaunchError::Ended {
                name: spec.name.clone(),
                incarnation: spec.incarnation,
                exit,
            });
        }
        Ok(None)
    }

    fn start(
        &self,
        spec: &HostSpec,
        command: &[String],
        record: &mut Record,
        socket: &std::path::Path,
        began: Instant,
    ) -> Result<Launched, LaunchError> {
        let folder = self.notify_folder(&spec.name);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| record::failed("making", &folder, error))?;
        let mut notices = Notices::bind(socket)?;
        self.folder.write(record)?;
        (self.on_step)(Step::Recorded);

        let container = self.container(&spec.name);
        let uncertain = |doing: &str, said: String| LaunchError::Uncertain {
            name: spec.name.clone(),
            doing: doing.to_owned(),
            said,
        };
        let refused = |doing: &str, said: String| LaunchError::Refused {
            doing: format!("{doing} of {}", spec.name),
            said,
        };
        match self.podman.call(command.iter().map(String::as_str)) {
            Ok(answer) if answer.success => {}
            Ok(answer) => return Err(refused("podman create", answer.errors)),
            Err(NoAnswer::NotStarted(error)) => return Err(error),
            Err(error) => return Err(uncertain("podman create", error.to_string())),
        }
        match self.podman.call(["start", &container]) {
            Ok(answer) if answer.success => {}
            Ok(answer) => {
                // Whatever it was that failed, nothing must run.
                let shown = self.shown(&spec.name)?;
                if let Seen::Runs(_) = self.see(Some(record), shown.as_ref()) {
                    return Err(uncertain("podman start", answer.errors));
                }
                return Err(refused("podman start", answer.errors));
            }
            Err(error) => return Err(uncertain("podman start", error.to_string())),
        }
        self.counters.started.fetch_add(1, Ordering::Relaxed);
        (self.on_step)(Step::Started);

        let shown = self
            .shown(&spec.name)
            .map_err(|error| uncertain("podman ps", error.to_string()))?;
        record.container = shown.as_ref().map(|shown| shown.id.clone());
        let process = match self.see(None, shown.as_ref()) {
            Seen::Runs(process) => process,
            Seen::Ended(_) | Seen::Created => {
                // A host that reports and ends at once was not ready for long.
                return Err(self.exited(record));
            }
            Seen::Unclear(said) => return Err(uncertain("podman start", said)),
        };
        record.process = Some(process.id());
        record.phase = Phase::Started;
        self.folder
            .write(record)
            .map_err(|error| uncertain("recording its process", error.to_string()))?;
        (self.on_step)(Step::Identified);

        let mut reported = Ready::Unknown;
        if let Readiness::Within(time) = spec.readiness {
            match notices.wait(&process, clock::now() + time) {
                First::Ready => {
                    record.phase = Phase::Ready;
                    // It runs and is ready, recorded or not.
                    let _ = self.folder.write(record);
                    reported = Ready::Reported;
                    (self.on_step)(Step::Ready);
                }
                First::Ended => return Err(self.exited(record)),
                First::Neither => {
                    let exit = self.kill(record)?;
                    record.ended(Phase::Failed, exit);
                    self.folder.write(record)?;
                    return Err(LaunchError::NotReady {
                        name: spec.name.clone(),
                        waited: time,
                        status: notices.status().to_owned(),
                        last_lines: self.podman.last_lines(&container),
                    });
                }
            }
        }
        Ok(Launched {
            name: spec.name.clone(),
            incarnation: spec.incarnation,
            process: Some(process.id()),
            container: record.container.clone(),
            already: false,
            ready: reported,
            took: began.elapsed(),
        })
    }

    /// The error of a host that has ended before it was ready, once podman shows its exit.
    fn exited(&self, record: &mut Record) -> LaunchError {
        let exit = match self.await_end(record, END_SHOWN_WITHIN) {
            Ok(Some(exit)) => exit,
            Ok(None) => Exit::Unknown,
            Err(error) => return error,
        };
        record.ended(Phase::Failed, exit);
        if let Err(error) = self.folder.write(record) {
            return error;
        }
        LaunchError::Exited {
            name: record.name.clone(),
            exit,
            last_lines: self.podman.last_lines(&self.container(&record.name)),
        }
    }

    /// A host's record, made from its container's labels if it was lost.
    fn record_of(&self, name: &str, shown: Option<&Shown>) -> Result<Option<Record>, LaunchError> {
        if let Some(record) = self.folder.read(name)? {
            return Ok(Some(record));
        }
        let incarnation = shown.and_then(|shown| shown.incarnation);
        Ok(incarnation.map(|incarnation| {
            let mut record = Record::starting(&self.folder, name, incarnation, String::new(), None);
            record.phase = Phase::Started;
            record.container = shown.map(|shown| shown.id.clone());
            record
        }))
    }

    fn found(&self, name: String, shown: Option<&Shown>) -> Found {
        let mut found = Found {
            name,
            incarnation: shown.and_then(|shown| shown.incarnation).unwrap_or(0),
            state: FoundState::Unknown("its container has no incarnation in its labels".to_owned()),
            ready: Ready::Unknown,
            process: None,
            container: shown.map(|shown| shown.id.clone()),
            last_lines: Vec::new(),
        };
        let record = match self.record_of(&found.name, shown) {
            Ok(Some(record)) => record,
            Ok(None) => return found,
            Err(error) => {
                found.state = FoundState::Unknown(error.to_string());
                return found;
            }
        };
        if shown.is_none() || found.incarnation == record.incarnation {
            found.process = record.process;
            found.ready = ready(Some(&record));
        }
        found.incarnation = found.incarnation.max(record.incarnation);
        found.state = match self.see(Some(&record), shown) {
            Seen::Runs(process) => {
                found.process = Some(process.id());
                FoundState::Runs
            }
            Seen::Unclear(why) => FoundState::Unknown(why),
            Seen::Created => FoundState::Ended(Exit::Unknown),
            Seen::Ended(exit) => {
                // After evidence of its end nobody asks why, and a call of podman takes some 50 ms.
                if shown.is_some() && record.fenced < found.incarnation {
                    found.last_lines = self.podman.last_lines(&self.container(&found.name));
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
        let shown = self.shown(name)?;
        let mut record = self.record_of(name, shown.as_ref())?.ok_or_else(not_here)?;
        let labelled = shown.as_ref().and_then(|shown| shown.incarnation);
        let known = labelled.unwrap_or(0).max(record.incarnation);
        if known > record.incarnation {
            // Another orchestrator launched a later one by another folder.
            record = Record::starting(&self.folder, name, known, String::new(), Some(&record));
            record.phase = Phase::Started;
            record.container = shown.as_ref().map(|shown| shown.id.clone());
        }
        if record.earlier.contains(&incarnation) {
            let later = EndedBy::LaterIncarnation(known);
            return Ok(FencingEvidence::new(
                name,
                incarnation,
                later,
                Exit::Unknown,
            ));
        }
        if incarnation != known {
            return Err(not_here());
        }
        let exit = match (self.see(Some(&record), shown.as_ref()), mode) {
            (Seen::Ended(exit), _) => exit,
            (Seen::Created, _) => {
                // Started by nobody from here on.
                if let Some(shown) = &shown {
                    self.remove(name, shown)?;
                }
                Exit::Unknown
            }
            (Seen::Runs(process), StopMode::Drain { within }) => {
                record.process = Some(process.id());
                self.drain(&mut record, &process, within)?
            }
            (Seen::Unclear(said), StopMode::Drain { .. }) => {
                return Err(LaunchError::Engine {
                    doing: format!("looking for {name}"),
                    said,
                });
            }
            (Seen::Runs(process), StopMode::Kill) => {
                record.process = Some(process.id());
                self.kill(&record)?
            }
            (Seen::Unclear(_), StopMode::Kill) => self.kill(&record)?,
        };
        // On the disk before anyone has the evidence.
        record.fenced = record.fenced.max(incarnation);
        record.ended(Phase::Ended, exit);
        self.folder.write(&record)?;
        Ok(FencingEvidence::new(
            name,
            incarnation,
            EndedBy::Container,
            exit,
        ))
    }

    /// Sends SIGTERM, unless an earlier call has, and waits for the end.
    fn drain(
        &self,
        record: &mut Record,
        process: &Process,
        within: Duration,
    ) -> Result<Exit, LaunchError> {
        if !record.draining {
            record.draining = true;
            self.folder.write(record)?;
            process
                .signal(Signal::TERM)
                .map_err(|error| LaunchError::NotPermitted {
                    doing: format!("sending SIGTERM to {}", record.name),
                    said: error.to_string(),
                    cure: "run the orchestrator as the user of its containers".to_owned(),
                })?;
        }
        let exit = if process.ends_within(within) {
            self.await_end(record, END_SHOWN_WITHIN)?
        } else {
            None
        };
        exit.ok_or(LaunchError::StillRuns {
            name: record.name.clone(),
            waited: within,
        })
    }
}

fn ready(record: Option<&Record>) -> Ready {
    if record.is_some_and(|record| record.phase == Phase::Ready) {
        Ready::Reported
    } else {
        Ready::Unknown
    }
}

impl Launcher for ContainerLauncher {
    fn abilities(&self) -> Abilities {
        Abilities {
            launches: true,
            keeps_exits: true,
            waits_max: 8 * CONTAINER_CALL_TIME_MAX
                + LOCK_WAIT_MAX
                + KILL_WAIT_MAX
                + END_SHOWN_WITHIN,
        }
    }

    fn launch(&self, host: &HostSpec) -> Result<Launched, LaunchError> {
        let result = self.launch_checked(host);
        self.counters.launch(&result);
        result
    }

    fn find(&self) -> Result<Vec<Found>, LaunchError> {
        let shown = self.podman.list(self.folder.cluster(), None)?;
        let mut names = self.folder.names()?;
        names.extend(shown.iter().map(|one| one.host.clone()));
        names.retain(|name| super::check_name(name).is_ok());
        names.sort_unstable();
        names.dedup();
        names.truncate(super::HOSTS_MAX);
        let found = |name: String| {
            let shown = shown.iter().find(|one| one.host == name);
            self.found(name, shown)
        };
        Ok(names.into_iter().map(found).collect())
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
        let source = match &self.source {
            ContainerSource::Image(image) => image.clone(),
            ContainerSource::Rootfs(folder) => folder.display().to_string(),
        };
        format!(
            "containers of {source} by {}, with records in {}",
            self.podman.program.display(),
            self.folder.path().display()
        )
    }

    fn counts(&self) -> LaunchCounts {
        self.counters.snapshot()
    }
}
