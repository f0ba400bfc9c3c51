//! The processes that this command starts: one launcher for each role, who runs, and their end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asterism_orchestrator::launch::{
    Exit, Found, FoundState, LaunchError, Launcher, ProcessConfig, ProcessLauncher, Role, StopMode,
};

/// The roles, in the order in which they end. The orchestrators go first: they would leave out one host after the other, and the
/// next start would bring them back one by one. The directors go last: until then packets have a path.
pub(super) const ROLES: [Role; 3] = [Role::Orchestrator, Role::Host, Role::Director];

/// A role in a word.
pub(super) fn word(role: Role) -> &'static str {
    match role {
        Role::Host => "host",
        Role::Orchestrator => "orchestrator",
        Role::Director => "director",
    }
}

/// Where records and logs of a role are, in the folder of the command.
pub(super) fn folder_of(folder: &Path, role: Role) -> PathBuf {
    folder.join(match role {
        Role::Host => "launch",
        Role::Orchestrator => "launch-orchestrators",
        Role::Director => "launch-directors",
    })
}

/// The launcher of a role. Starts nothing. A process that a killed command left running is found by it.
pub(super) fn launcher(
    role: Role,
    cluster: &str,
    folder: &Path,
    program: PathBuf,
) -> Result<Arc<ProcessLauncher>, LaunchError> {
    let launcher = ProcessLauncher::new(ProcessConfig {
        program,
        role,
        ..ProcessConfig::new(cluster, folder_of(folder, role))
    })?;
    Ok(Arc::new(launcher))
}

/// How a process ended that ran until all were to end.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) role: Role,
    pub(super) name: String,
    pub(super) exit: Exit,
    /// Whether it ended by itself when it was asked to, and said that all was well.
    pub(super) in_order: bool,
}

/// Ends all processes of a launcher in order, all at once; those that do not end within this time are killed.
pub(super) fn stop_all(
    role: Role,
    launcher: &dyn Launcher,
    within: Duration,
) -> Result<Vec<Ended>, LaunchError> {
    let end = |host: &Found| {
        let stop = |mode| launcher.stop(&host.name, host.incarnation, mode);
        let (evidence, is_drained) = match stop(StopMode::Drain { within }) {
            Ok(evidence) => (evidence, true),
            Err(_) => (stop(StopMode::Kill)?, false),
        };
        let exit = evidence.exit();
        Ok(Ended {
            role,
            name: host.name.clone(),
            exit,
            // The exit of a process of another parent is not known.
            in_order: is_drained && matches!(exit, Exit::Code(0) | Exit::Unknown),
        })
    };
    let running = running(launcher)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = running
            .iter()
            .map(|host| scope.spawn(move || end(host)))
            .collect();
        // A thread that panicked said so on standard error.
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    })
}

/// The processes of a launcher that run.
pub(super) fn running(launcher: &dyn Launcher) -> Result<Vec<Found>, LaunchError> {
    let mut found = launcher.find()?;
    found.retain(|host| !matches!(host.state, FoundState::Ended(_)) && host.incarnation > 0);
    Ok(found)
}
