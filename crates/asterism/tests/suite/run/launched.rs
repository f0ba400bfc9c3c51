//! Hosts that the orchestrator's launcher of processes starts: the real program, with its reports, its drain and its exits.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use asterism_orchestrator::launch::{
    Exit, FoundState, HostSpec, LaunchError, Launched, Launcher, ProcessConfig, ProcessLauncher,
    Readiness, Ready, StopMode,
};

use crate::run::epochs::{of_epochs, written};
use crate::run::host::Cluster;

const LONG: Duration = Duration::from_secs(60);

/// A launcher of a cluster's hosts, which ends them when it is dropped.
struct Launching<'a> {
    cluster: &'a Cluster,
    launcher: ProcessLauncher,
}

impl Launching<'_> {
    fn new(cluster: &Cluster) -> Launching<'_> {
        let config = ProcessConfig {
            program: env!("CARGO_BIN_EXE_asterism").into(),
            ..ProcessConfig::new("asterism", cluster.path("launch"))
        };
        let launcher = ProcessLauncher::new(config).unwrap();
        Launching { cluster, launcher }
    }

    fn launch(
        &self,
        name: &str,
        incarnation: u64,
        within: Duration,
    ) -> Result<Launched, LaunchError> {
        let mut spec = HostSpec::new(name, incarnation, self.cluster.path("asterism.toml"));
        spec.readiness = Readiness::Within(within);
        self.launcher.launch(&spec)
    }
}

impl Drop for Launching<'_> {
    fn drop(&mut self) {
        for found in self.launcher.find().unwrap_or_default() {
            let _ = self
                .launcher
                .stop(&found.name, found.incarnation, StopMode::Kill);
        }
    }
}

#[test]
fn launched_hosts_report_drain_and_end() {
    let cluster = Cluster::new(2, "");
    let launching = Launching::new(&cluster);
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let launching = &launching;
            scope.spawn(move || {
                let launched = launching.launch(name, 1, LONG).unwrap();
                assert_eq!(launched.ready, Ready::Reported);
                println!("{name} was ready after {:?}", launched.took);
            });
        }
    });
    let found = launching.launcher.find().unwrap();
    assert!(found.iter().all(|one| one.state == FoundState::Runs));
    let log = found[0].last_lines.join("\n");
    assert!(log.contains("event=running"), "{log}");
    let drain = StopMode::Drain { within: LONG };
    let evidence = launching.launcher.stop("a", 1, drain).unwrap();
    assert_eq!(evidence.exit(), Exit::Code(0));
    assert!(cluster.path("a.state").exists(), "it saved no state");
    let evidence = launching.launcher.stop("b", 1, StopMode::Kill).unwrap();
    assert_eq!(evidence.exit(), Exit::Signal(9));
}

#[test]
fn a_host_that_does_not_start_says_why_through_its_launcher() {
    let cluster = Cluster::new(1, "");
    let launching = Launching::new(&cluster);
    let key = cluster.path("cluster.key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let error = launching.launch("a", 1, LONG).unwrap_err().to_string();
    assert!(
        error.contains("nothing runs") && error.contains("cluster.key"),
        "{error}"
    );
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    launching.launch("a", 1, LONG).unwrap();
}

/// The epoch names an incarnation that was used: the host waits, and its launcher says for what.
#[test]
fn a_host_that_waits_for_an_epoch_is_not_ready() {
    let cluster = of_epochs(1);
    written(&cluster, &["--first"]);
    let launching = Launching::new(&cluster);
    launching.launch("a", 1, LONG).unwrap();
    launching.launcher.stop("a", 1, StopMode::Kill).unwrap();
    let error = launching
        .launch("a", 2, Duration::from_secs(4))
        .unwrap_err();
    let says = error.to_string();
    assert!(matches!(error, LaunchError::NotReady { .. }), "{says}");
    assert!(says.contains("epoch"), "{says}");
    written(&cluster, &["--founding"]);
    launching.launch("a", 2, LONG).unwrap();
}
