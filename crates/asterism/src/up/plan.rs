//! The configuration that is run, read for every role before anything is started; and the folder in which the command works.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_config::functions::Functions;
use asterism_config::{Api, Config, DirectorMachine, PortKind, Purpose, files};
use asterism_output::Output;

use super::Arguments;
use super::down::RunningMark;
use super::error::UpError;

/// What the names of temporary folders begin with.
pub(super) const TEMPORARY: &str = "asterism-up-";

/// A process that ends in order takes so much longer than a host takes for its state at most.
const DRAIN_MORE: Duration = Duration::from_secs(10);

/// The folder of records, logs and what else belongs to this command, which no other `asterism up` has.
pub(super) struct Ground {
    pub(super) folder: PathBuf,
    is_temporary: bool,
    pub(super) mark: RunningMark,
}

impl Ground {
    /// Makes the folder if it is not there, and takes it: the one that is named, the configuration's, or a temporary one.
    pub(super) fn take(arguments: &Arguments) -> Result<Ground, UpError> {
        let beside = arguments.config.as_deref().and_then(Path::parent);
        let (path, is_temporary) = match (&arguments.folder, beside) {
            (Some(folder), _) => (folder.clone(), false),
            (None, Some(beside)) => (Path::new(".").join(beside), false),
            (None, None) => {
                let name = format!("{TEMPORARY}{}", std::process::id());
                (std::env::temp_dir().join(name), true)
            }
        };
        make(&path)?;
        let folder = path
            .canonicalize()
            .map_err(|error| UpError::Folder { path, error })?;
        Ok(Ground {
            mark: RunningMark::new(&folder)?,
            folder,
            is_temporary,
        })
    }

    /// Gives the folder back, which is removed if it was a temporary one and all has ended.
    pub(super) fn leave(self, all_ended: bool) {
        if self.is_temporary && all_ended {
            // What cannot be removed is in the system's folder of temporary files.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn make(path: &Path) -> Result<(), UpError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| {
        let path = path.to_owned();
        UpError::Folder { path, error }
    })
}

/// A configuration without mistakes, as every role of it reads it.
pub(super) struct Plan {
    /// The file, by an absolute path.
    pub(super) file: PathBuf,
    /// As the first host reads it.
    pub(super) config: Config,
    /// As each host reads it, in their order. None where hosts register and the file describes no host.
    pub(super) hosts: Vec<Config>,
}

impl Plan {
    /// Reads and checks the file as `asterism check` does, for all hosts. Warnings are shown.
    pub(super) fn load(file: &Path, output: &mut Output<'_>) -> Result<Plan, UpError> {
        let config = read(file, None, output.functions(), |report| {
            output.report(report);
        })?;
        let mut hosts = Vec::new();
        if !config.cluster.is_open {
            for name in &config.cluster.members {
                hosts.push(read(file, Some(name), output.functions(), |_| {})?);
            }
        } else if !config.host.name.is_empty() {
            hosts.push(config.clone());
        }
        let path = file.to_owned();
        if config.ports.is_empty() {
            return Err(UpError::NoPorts(path));
        }
        // A symbolic link stays one: the files that it names count from its own folder.
        let file = std::path::absolute(file).map_err(|error| UpError::Folder { path, error })?;
        let plan = Plan {
            file,
            config,
            hosts,
        };
        match plan.hosts.is_empty() && !plan.launches() {
            true => Err(UpError::NoHosts(plan.file)),
            false => Ok(plan),
        }
    }

    /// Whether the orchestrator launches the hosts.
    pub(super) fn launches(&self) -> bool {
        let orchestrator = self.config.orchestrator.as_ref();
        orchestrator.is_some_and(|orchestrator| orchestrator.launch.is_some())
    }

    /// The machines with directors.
    pub(super) fn machines(&self) -> impl Iterator<Item = &DirectorMachine> {
        let orchestrator = self.config.orchestrator.iter();
        let directors = orchestrator.flat_map(|orchestrator| &orchestrator.director);
        directors.flat_map(|director| &director.machines)
    }

    /// The HTTP API of the orchestrator.
    pub(super) fn api(&self) -> Option<&Api> {
        self.config.orchestrator.as_ref()?.api.as_ref()
    }

    /// The API that listens at this address, as this machine reaches it.
    pub(super) fn url(&self, listens: SocketAddr) -> String {
        let ip = match listens.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let scheme = match self.api() {
            Some(api) if api.certificate.is_some() => "https",
            _ => "http",
        };
        format!("{scheme}://{}", SocketAddr::new(ip, listens.port()))
    }

    /// How long a process may take to end in order; then it is killed.
    pub(super) fn drain(&self) -> Duration {
        let hosts = self.hosts.iter().map(|host| host.host.drain_max);
        hosts.max().unwrap_or(self.config.host.drain_max) + DRAIN_MORE
    }

    /// Whether the hosts' ports wait for the local network: they connect by shared memory.
    pub(super) fn is_local(&self) -> bool {
        let mut ports = self.hosts.iter().flat_map(|host| &host.ports);
        !self.hosts.is_empty()
            && ports.all(|port| port.kind == PortKind::SharedMemory && !port.listens)
    }
}

fn read(
    file: &Path,
    member: Option<&str>,
    functions: Functions,
    show: impl FnOnce(&asterism_config::diagnostic::Report),
) -> Result<Config, UpError> {
    let (config, mut report) = files::load(file, Purpose::Host, member, functions)?;
    match files::made(config, &mut report) {
        Some(config) => {
            show(&report);
            Ok(config)
        }
        None => Err(UpError::Refused(Box::new(report))),
    }
}
