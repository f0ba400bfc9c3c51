//! The processes of the hosts, which the orchestrator starts and stops: how they are launched, who runs, and their end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asterism_elasticity::{
    BackOff, HostBounds, HotSpot, Policies, PoliciesError, Policy, Rules, Span, Thresholds,
};
use asterism_orchestrator::launch::{
    Found, FoundState, LaunchError, Launcher, ProcessConfig, ProcessLauncher, StopMode,
};
use asterism_orchestrator::run::{ElasticConfig, HostTemplate};

use super::Arguments;

/// How often the launcher is asked which hosts run.
const FIND_INTERVAL: Duration = Duration::from_millis(100);
/// How long a host may take to end in order; then it is killed.
const DRAIN_MAX: Duration = Duration::from_secs(20);

/// The hosts of a cluster, as processes of this machine.
pub(super) struct Hosts {
    launcher: Arc<ProcessLauncher>,
}

impl Hosts {
    /// The launcher of a cluster with records and logs in the folder. Starts nothing. A host that a killed command left running is
    /// found by it.
    pub(super) fn new(
        cluster: &str,
        folder: &Path,
        program: PathBuf,
    ) -> Result<Hosts, LaunchError> {
        let launcher = ProcessLauncher::new(ProcessConfig {
            program,
            ..ProcessConfig::new(cluster, folder.join("launch"))
        })?;
        Ok(Hosts {
            launcher: Arc::new(launcher),
        })
    }

    /// How the orchestrator launches hosts with this configuration, and how many.
    pub(super) fn elastic(
        &self,
        cluster: &str,
        configuration: PathBuf,
        arguments: &Arguments,
    ) -> Result<ElasticConfig, PoliciesError> {
        Ok(ElasticConfig {
            rules: rules(cluster, arguments)?,
            is_policy: arguments.hosts.min < arguments.hosts.max,
            launcher: Arc::<ProcessLauncher>::clone(&self.launcher),
            host: HostTemplate {
                configuration,
                ..HostTemplate::default()
            },
            find_interval: FIND_INTERVAL,
        })
    }

    /// Ends all hosts in order, all at once; those that do not end in time are killed. How many there were.
    pub(super) fn end(&self) -> Result<usize, LaunchError> {
        let (launcher, mode) = (&self.launcher, StopMode::Drain { within: DRAIN_MAX });
        let running: Vec<Found> = self.running()?;
        let results: Vec<Result<(), LaunchError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = running
                .iter()
                .map(|host| {
                    scope.spawn(move || {
                        let stop = |mode| launcher.stop(&host.name, host.incarnation, mode);
                        let ended = stop(mode).or_else(|_| stop(StopMode::Kill));
                        ended.map(|_evidence| ())
                    })
                })
                .collect();
            // A thread that panicked said so on standard error.
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .collect()
        });
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(running.len())
    }

    fn running(&self) -> Result<Vec<Found>, LaunchError> {
        let mut found = self.launcher.find()?;
        found.retain(|host| !matches!(host.state, FoundState::Ended(_)) && host.incarnation > 0);
        Ok(found)
    }

    /// The processes that run, by host.
    pub(super) fn processes(&self) -> Vec<(String, u32)> {
        let running = self.running().unwrap_or_default();
        running
            .into_iter()
            .filter_map(|host| Some((host.name, host.process?.pid)))
            .collect()
    }

    /// Processes that were started.
    pub(super) fn started(&self) -> u64 {
        self.launcher.counts().started
    }
}

/// A host is hot with a tenth more than its share, for as long as it takes to be sure.
const REBALANCE: HotSpot = HotSpot {
    factor_permille: 1_100,
    lasts: Span::seconds(2),
    buckets_max: 128,
    cool_down: Span::seconds(4),
    least_packets_per_second: 100,
};

/// Rules for a demonstration, which waits seconds where a network waits minutes.
fn rules(cluster: &str, arguments: &Arguments) -> Result<Rules, PoliciesError> {
    let hosts = arguments.hosts;
    let is_fixed = hosts.min == hosts.max;
    let out = arguments.scale_above;
    let policy = Policy {
        hosts: Some(HostBounds {
            min: Some(hosts.min.into()),
            max: Some(hosts.max.into()),
            step: Some(hosts.max.into()),
        }),
        packets_per_second: (!is_fixed).then_some(Thresholds {
            out,
            within: out / 2,
        }),
        out_for: Some(Span::seconds(2)),
        in_for: Some(Span::seconds(8)),
        cool_down: Some(Span::seconds(4)),
        drain: Some(Span::seconds(5)),
        stale_after: Some(Span::seconds(3)),
        back_off: Some(BackOff {
            first: Span::seconds(1),
            most: Span::seconds(30),
        }),
        hot_spot: arguments.rebalance.then_some(REBALANCE),
        ..Policy::default()
    };
    let policies = Policies::new(&[(cluster.to_owned(), policy)].into())?;
    let rules = policies.rules(cluster).cloned();
    rules.ok_or_else(|| PoliciesError(Vec::new()))
}
