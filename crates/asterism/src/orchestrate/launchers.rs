//! The launcher and the rules that the configuration asks for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asterism_config::{Config, ContainerFrom, Launch, LaunchWith, Orchestrator, files};
use asterism_elasticity::{HostBounds, Policies, PoliciesError, Policy, Rules};
use asterism_orchestrator::launch::{
    ContainerConfig, ContainerLauncher, ContainerSource, LaunchError, LaunchNameError, Launcher,
    MANUAL_UNIT, ManualLauncher, NamespaceLauncher, ProcessConfig, ProcessLauncher,
};
use asterism_orchestrator::run::{ElasticConfig, HostTemplate};

/// Without a launcher it is asked seldom which hosts run: their heartbeats tell.
const MANUAL_INTERVAL: Duration = Duration::from_secs(1);

/// Why hosts cannot be launched as configured. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LauncherError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Name(#[from] LaunchNameError),
    #[error(transparent)]
    Policy(#[from] PoliciesError),
    #[error("the configuration's path cannot be found out: {0}")]
    Path(#[from] std::io::Error),
}

/// How hosts are launched, and how many; `None` if the configuration says neither.
pub(super) fn elastic(
    file: &Path,
    config: &Config,
    orchestrator: &Orchestrator,
) -> Result<Option<ElasticConfig>, LauncherError> {
    let cluster = &config.cluster;
    if orchestrator.launch.is_none() && config.policy.is_none() {
        return Ok(None);
    }
    let rules = match &config.policy {
        Some(rules) => rules.clone(),
        None => all_places(&cluster.name, cluster.members.len())?,
    };
    let (launcher, host, find_interval): (Arc<dyn Launcher>, _, _) = match &orchestrator.launch {
        None => (
            Arc::new(ManualLauncher::new(&cluster.name, MANUAL_UNIT)?),
            HostTemplate::default(),
            MANUAL_INTERVAL,
        ),
        Some(launch) => {
            let configuration = match &launch.configuration {
                Some(path) => path.clone(),
                None => file.canonicalize()?,
            };
            let host = HostTemplate {
                configuration,
                arguments: launch.arguments.clone(),
                ..HostTemplate::default()
            };
            let launcher = launcher(file, &cluster.name, orchestrator, launch)?;
            (launcher, host, launch.interval)
        }
    };
    Ok(Some(ElasticConfig {
        rules,
        is_policy: config.policy.is_some(),
        launcher,
        host,
        find_interval,
    }))
}

/// As many hosts as places.
pub(crate) fn all_places(cluster: &str, places: usize) -> Result<Rules, PoliciesError> {
    let places = u32::try_from(places).unwrap_or(u32::MAX);
    let policy = Policy {
        hosts: Some(HostBounds {
            min: Some(places),
            max: Some(places),
            step: Some(places),
        }),
        ..Policy::default()
    };
    let policies = Policies::new(&[(cluster.to_owned(), policy)].into())?;
    let rules = policies.rules(cluster).cloned();
    rules.ok_or_else(|| PoliciesError(Vec::new()))
}

/// The launcher by which an orchestrator with this configuration starts hosts, if it does. Starts nothing.
pub(crate) fn of(file: &Path, config: &Config) -> Result<Option<Arc<dyn Launcher>>, LaunchError> {
    let Some(orchestrator) = &config.orchestrator else {
        return Ok(None);
    };
    let launch = orchestrator.launch.as_ref();
    launch
        .map(|launch| launcher(file, &config.cluster.name, orchestrator, launch))
        .transpose()
}

fn launcher(
    file: &Path,
    cluster: &str,
    orchestrator: &Orchestrator,
    launch: &Launch,
) -> Result<Arc<dyn Launcher>, LaunchError> {
    let path = |path: &Path| files::key_path(file, path);
    let folder = match &launch.folder {
        Some(folder) => path(folder),
        None => path(&orchestrator.folder).join("launch"),
    };
    // Launched processes begin in another folder.
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let processes = || ProcessConfig {
        program: program(file, &launch.program),
        ..ProcessConfig::new(cluster, &folder)
    };
    Ok(match &launch.with {
        LaunchWith::Processes => Arc::new(ProcessLauncher::new(processes())?),
        LaunchWith::Namespaces(pattern) => Arc::new(NamespaceLauncher::new(processes(), pattern)?),
        LaunchWith::Containers {
            from,
            podman,
            podman_options,
            create_options,
        } => Arc::new(ContainerLauncher::new(ContainerConfig {
            cluster: cluster.to_owned(),
            folder: folder.clone(),
            podman: program(file, podman),
            podman_options: podman_options.clone(),
            create_options: create_options.clone(),
            source: match from {
                ContainerFrom::Image(image) => ContainerSource::Image(image.clone()),
                ContainerFrom::Folder(root) => ContainerSource::Rootfs(path(root)),
            },
            program: vec![launch.program.to_string_lossy().into_owned()],
        })?),
    })
}

/// A program: a name is looked for in PATH, a path counts from the configuration's folder.
fn program(file: &Path, program: &Path) -> PathBuf {
    match program.components().count() {
        0 | 1 => program.to_owned(),
        _ => files::key_path(file, program),
    }
}
