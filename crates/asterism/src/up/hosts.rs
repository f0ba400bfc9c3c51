//! The processes of the hosts: started, found ended, and started again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_orchestrator::launch::{
    FoundState, HostSpec, LaunchError, Launcher, ProcessConfig, ProcessLauncher, Readiness,
    StopMode,
};
use asterism_orchestrator::run::{Asking, ClusterView};
use asterism_placement::Time;

/// How often the launcher is asked what has ended.
const FIND_INTERVAL: Duration = Duration::from_millis(100);
/// A host that ended is started again after this time, which doubles each time.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A host that ran for so long begins again with the shortest pause.
const STEADY: Duration = Duration::from_secs(30);
/// How long a host may take to end in order; then it is killed.
const DRAIN_MAX: Duration = Duration::from_secs(20);

/// The hosts of a cluster, as processes of this machine.
pub(super) struct Hosts {
    launcher: ProcessLauncher,
    configuration: PathBuf,
    hosts: BTreeMap<String, Supervised>,
    find_at: Time,
    started: u64,
    ended: u64,
}

/// One of them.
struct Supervised {
    /// The number of its last launch.
    launch: u64,
    pid: u32,
    runs: bool,
    started_at: Time,
    start_at: Time,
    pause: Duration,
}

impl Hosts {
    /// The launcher of a cluster with records and logs in the folder. Starts nothing. A host that a killed command left running is
    /// found, and supervised.
    pub(super) fn new(
        cluster: &str,
        folder: &Path,
        program: PathBuf,
        configuration: PathBuf,
        names: &[String],
    ) -> Result<Hosts, LaunchError> {
        let launcher = ProcessLauncher::new(ProcessConfig {
            program,
            ..ProcessConfig::new(cluster, folder.join("launch"))
        })?;
        let found = launcher.find()?;
        let host = |name: &String| {
            let found = found.iter().find(|found| found.name == *name);
            let supervised = Supervised {
                launch: found.map_or(0, |found| found.incarnation),
                pid: found
                    .and_then(|found| found.process)
                    .map_or(0, |process| process.pid),
                runs: found.is_some_and(|found| found.state == FoundState::Runs),
                started_at: Time::ZERO,
                start_at: Time::ZERO,
                pause: PAUSE,
            };
            (name.clone(), supervised)
        };
        Ok(Hosts {
            hosts: names.iter().map(host).collect(),
            launcher,
            configuration,
            find_at: Time::ZERO,
            started: 0,
            ended: 0,
        })
    }

    /// Starts what is due, and reports what has ended to the orchestrator. What is worth a line.
    pub(super) fn turn(
        &mut self,
        now: Time,
        asking: &Asking,
        view: &ClusterView,
    ) -> Result<Vec<String>, LaunchError> {
        let mut lines = Vec::new();
        if now >= self.find_at {
            self.find_at = now + FIND_INTERVAL;
            self.find(now, asking, view, &mut lines)?;
        }
        for (name, host) in &mut self.hosts {
            if host.runs || now < host.start_at {
                continue;
            }
            host.launch += 1;
            let spec = HostSpec {
                readiness: Readiness::Unawaited,
                ..HostSpec::new(name, host.launch, &self.configuration)
            };
            let launched = self.launcher.launch(&spec)?;
            host.pid = launched.process.map_or(0, |process| process.pid);
            (host.runs, host.started_at) = (true, now);
            self.started += 1;
            lines.push(format!("{name} is started as process {}", host.pid));
        }
        Ok(lines)
    }

    fn find(
        &mut self,
        now: Time,
        asking: &Asking,
        view: &ClusterView,
        lines: &mut Vec<String>,
    ) -> Result<(), LaunchError> {
        for found in self.launcher.find()? {
            let Some(host) = self.hosts.get_mut(&found.name) else {
                continue;
            };
            let FoundState::Ended(exit) = found.state else {
                continue;
            };
            if !host.runs || found.incarnation != host.launch {
                continue;
            }
            let seen = view.hosts.iter().find(|seen| seen.name == found.name);
            if let Some(seen) = seen.filter(|seen| seen.launch == host.launch) {
                // The orchestrator notices by itself, only later.
                let _ = asking.ended(&found.name, seen.process);
            }
            self.ended += 1;
            host.runs = false;
            if now.since(host.started_at) >= STEADY {
                host.pause = PAUSE;
            }
            host.start_at = now + host.pause;
            host.pause = (host.pause * 2).min(PAUSE_MAX);
            let last = found.last_lines.last().map_or("", String::as_str);
            lines.push(format!(
                "{} has ended with {exit}; its last line: {last}",
                found.name
            ));
        }
        Ok(())
    }

    /// Ends all hosts in order, all at once; those that do not end in time are killed.
    pub(super) fn end(&self) -> Result<(), LaunchError> {
        let (launcher, mode) = (&self.launcher, StopMode::Drain { within: DRAIN_MAX });
        let results: Vec<Result<(), LaunchError>> = std::thread::scope(|scope| {
            let running = self.hosts.iter().filter(|(_, host)| host.runs);
            let threads: Vec<_> = running
                .map(|(name, host)| {
                    scope.spawn(move || {
                        let drained = launcher.stop(name, host.launch, mode);
                        let ended =
                            drained.or_else(|_| launcher.stop(name, host.launch, StopMode::Kill));
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
        results.into_iter().collect()
    }

    /// The processes that run, by host.
    pub(super) fn processes(&self) -> Vec<(String, u32)> {
        let running = self.hosts.iter().filter(|(_, host)| host.runs);
        running
            .map(|(name, host)| (name.clone(), host.pid))
            .collect()
    }

    /// Processes that were started, and those that have ended meanwhile.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.started, self.ended)
    }
}
