//! Hosts as processes in network namespaces of this machine, for laboratories: as `process/`, started by `ip netns exec`.

use std::path::Path;

use rustix::fs::statfs;

use super::program;
use super::{
    Abilities, FencingEvidence, Found, HostSpec, LaunchCounts, LaunchError, Launched, Launcher,
    ProcessConfig, ProcessLauncher, Step, StopMode,
};

/// The file system of namespaces (`NSFS_MAGIC` of Linux).
const NSFS_MAGIC: i64 = 0x6e73_6673;
/// The place of a host's name in the name of its namespace.
const HOST: &str = "{host}";

/// The network in which a process starts.
#[derive(Clone, Debug)]
pub(super) enum Network {
    /// The launcher's.
    Here,
    /// A namespace of `ip netns`, with `{host}` for the host's name.
    Namespace(String),
}

impl Network {
    /// The beginning of a command that goes there.
    pub(super) fn enter(&self, host: &str) -> Result<Vec<String>, LaunchError> {
        let Network::Namespace(pattern) = self else {
            return Ok(Vec::new());
        };
        let namespace = pattern.replace(HOST, host);
        let is_name =
            !namespace.is_empty() && !namespace.contains('/') && !namespace.starts_with('.');
        // A file alone is left of a namespace whose mount was removed.
        let file = Path::new("/run/netns").join(&namespace);
        let is_there = is_name && statfs(&file).is_ok_and(|it| it.f_type == NSFS_MAGIC);
        if !is_there {
            return Err(LaunchError::NoNamespace { namespace });
        }
        let ip = program::find(Path::new("ip")).map_err(|_| LaunchError::Absent {
            program: "ip".to_owned(),
            cure: "install iproute2".to_owned(),
        })?;
        let ip = ip.to_string_lossy().into_owned();
        Ok(["netns", "exec", &namespace]
            .into_iter()
            .fold(vec![ip], |mut command, word| {
                command.push(word.to_owned());
                command
            }))
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Network::Here => String::new(),
            Network::Namespace(pattern) => format!(" in the network namespace {pattern}"),
        }
    }
}

/// The launcher of processes in network namespaces. Needs root and `ip`.
#[derive(Debug)]
pub struct NamespaceLauncher {
    processes: ProcessLauncher,
}

impl NamespaceLauncher {
    /// A launcher as [`ProcessLauncher`], each of whose hosts starts in the network namespace of this name (`ip netns`), in
    /// which `{host}` stands for the host's name: `lab-{host}`. A namespace is looked for at each launch.
    ///
    /// # Errors
    /// The cluster's name is none, or the folder cannot be made.
    pub fn new(
        config: ProcessConfig,
        namespace: impl Into<String>,
    ) -> Result<NamespaceLauncher, LaunchError> {
        let network = Network::Namespace(namespace.into());
        let processes = ProcessLauncher::within(config, network)?;
        Ok(NamespaceLauncher { processes })
    }

    /// The same, which calls this after each step of a launch.
    #[must_use]
    pub fn observed_by(self, on_step: fn(Step)) -> NamespaceLauncher {
        let processes = self.processes.observed_by(on_step);
        NamespaceLauncher { processes }
    }
}

impl Launcher for NamespaceLauncher {
    fn abilities(&self) -> Abilities {
        self.processes.abilities()
    }

    fn launch(&self, host: &HostSpec) -> Result<Launched, LaunchError> {
        self.processes.launch(host)
    }

    fn find(&self) -> Result<Vec<Found>, LaunchError> {
        self.processes.find()
    }

    fn stop(
        &self,
        name: &str,
        incarnation: u64,
        mode: StopMode,
    ) -> Result<FencingEvidence, LaunchError> {
        self.processes.stop(name, incarnation, mode)
    }

    fn describe(&self) -> String {
        self.processes.describe()
    }

    fn counts(&self) -> LaunchCounts {
        self.processes.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_that_are_none_are_refused() {
        let left = "{host}-that-is-nowhere";
        for pattern in ["", ".", "..", "../{host}", left] {
            let error = Network::Namespace(pattern.to_owned())
                .enter("a")
                .unwrap_err();
            assert!(matches!(error, LaunchError::NoNamespace { .. }), "{error}");
        }
        let here = Network::Here.enter("a").unwrap();
        assert!(here.is_empty());
    }
}
