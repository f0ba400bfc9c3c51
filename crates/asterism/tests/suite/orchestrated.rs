//! A cluster with an orchestrator in network namespaces: hosts are admitted without an epoch from the operator, a paused host loses
//! nothing, a killed one is steered around and returns, and packets go on while the orchestrator is down. Needs root and `ip`; says
//! `SKIPPED` without.

use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_lab::nat::{HostOptions, NatLab, NatLabConfig, SERVER};
use asterism_lab::{Probe, Program, Sent, pause, wait_until};

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);
/// Flows of the probe: each host has some, both ways.
const FLOWS: usize = 24;
/// Packets may be lost so long after a kill. The measure `lab.failover` has the bound that counts; tests run beside other work.
const FAILOVER_MAX: Duration = Duration::from_secs(3);
/// SIGSTOP and SIGCONT.
const STOP: i32 = 19;
const CONTINUE: i32 = 18;

struct Cluster {
    lab: NatLab,
    configuration: PathBuf,
    orchestrator: Option<Program>,
    hosts: Vec<Option<Program>>,
}

impl Cluster {
    fn start() -> Cluster {
        let lab = NatLab::new(&NatLabConfig::new(3, MS * 2).orchestrators(1)).unwrap();
        asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
        let options = HostOptions::default().absent("wait 20ms");
        let configuration = lab.write_configuration(&options).unwrap();
        let mut cluster = Cluster {
            lab,
            configuration,
            orchestrator: None,
            hosts: Vec::new(),
        };
        cluster.start_orchestrator();
        let hosts = cluster
            .lab
            .start_hosts(Path::new(ASTERISM), &cluster.configuration);
        cluster.hosts = hosts.unwrap().into_iter().map(Some).collect();
        for name in ["nat-1", "nat-2", "nat-3"] {
            cluster.wait_for(&format!("{name} takes packets"), 1);
        }
        cluster.wait_until_steered();
        cluster
    }

    fn start_orchestrator(&mut self) {
        let started = self
            .lab
            .start_orchestrator(Path::new(ASTERISM), &self.configuration, 0);
        self.orchestrator = Some(started.unwrap());
    }

    fn log(&self) -> String {
        self.orchestrator
            .as_ref()
            .map_or_else(String::new, Program::stderr)
    }

    /// Waits until the orchestrator's log has a line so many times.
    fn wait_for(&self, what: &str, times: usize) {
        let waited = wait_until(what, PATIENCE, || self.log().matches(what).count() >= times);
        waited.unwrap_or_else(|error| panic!("{error}: {}", self.log()));
    }

    /// Waits until the last decision of the controller is in force.
    fn wait_until_steered(&self) {
        let waited = wait_until("the steering", PATIENCE, || {
            let log = self.log();
            let last = |event: &str| log.rfind(event).unwrap_or(0);
            last("event=steered") > last("event=host-takes")
        });
        waited.unwrap_or_else(|error| panic!("{error}: {}", self.log()));
    }

    fn probe(&self) -> Probe {
        let (client, server) = (&self.lab.client, &self.lab.server);
        Probe::start(client, server, (SERVER, 7_777).into(), FLOWS, MS * 2).unwrap()
    }
}

/// The datagrams that did not come back.
fn lost(sent: &[Sent]) -> Vec<Duration> {
    let lost = sent.iter().filter(|one| !one.came_back);
    lost.map(|one| one.at).collect()
}

#[test]
fn hosts_come_and_go_by_the_orchestrator_alone() {
    if let Err(why) = asterism_lab::needs(&["ip"]) {
        println!("SKIPPED a cluster with an orchestrator: {why}");
        return;
    }
    let mut cluster = Cluster::start();

    // A pause costs nothing but time: packets wait in the host's rings, and move to the others when it is suspected.
    let probe = cluster.probe();
    pause(MS * 300);
    let paused = cluster.hosts[0].as_ref().unwrap();
    paused.signal(STOP);
    pause(MS * 300);
    paused.signal(CONTINUE);
    cluster.wait_for("nat-1 takes packets", 2);
    pause(MS * 300);
    let sent = probe.end();
    assert_eq!(lost(&sent), [], "of {}: {}", sent.len(), cluster.log());
    assert!(
        !cluster.log().contains("host-left-out"),
        "{}",
        cluster.log()
    );

    // A kill loses packets until the routes lead elsewhere, and no longer. The host is started again, as by a service manager.
    let probe = cluster.probe();
    pause(MS * 300);
    let killed = Probe::now();
    cluster.hosts[1].take().unwrap().kill();
    cluster.wait_for("nat-2 was silent for", 1);
    let returned = cluster
        .lab
        .start_host(Path::new(ASTERISM), &cluster.configuration, 1);
    cluster.hosts[1] = Some(returned.unwrap());
    cluster.wait_for(
        "incarnation 1 of nat-2 is left out; its process has ended",
        1,
    );
    cluster.wait_for("nat-2 begins incarnation 2", 1);
    cluster.wait_for("nat-2 takes packets", 2);
    cluster.wait_until_steered();
    pause(MS * 300);
    let sent = probe.end();
    let outside: Vec<_> = lost(&sent)
        .into_iter()
        .filter(|at| *at + MS * 20 < killed || *at > killed + FAILOVER_MAX)
        .collect();
    assert_eq!(outside, [], "killed at {killed:?}: {}", cluster.log());
    assert!(!lost(&sent).is_empty(), "the killed host had no flow");

    // Without an orchestrator all goes on, new flows included. One that begins decides nothing that is decided.
    cluster.orchestrator.take().unwrap().kill();
    let probe = cluster.probe();
    pause(MS * 1_000);
    cluster.start_orchestrator();
    for name in ["nat-1", "nat-2", "nat-3"] {
        cluster.wait_for(&format!("{name} takes packets"), 1);
    }
    cluster.wait_until_steered();
    pause(MS * 500);
    assert_eq!(lost(&probe.end()), [], "{}", cluster.log());
    assert!(
        !cluster.log().contains("level=warning"),
        "{}",
        cluster.log()
    );

    // Everything ends in order: each host says so.
    for host in cluster.hosts.drain(..).flatten() {
        host.terminate(PATIENCE).unwrap().successful().unwrap();
    }
    cluster.wait_for("host-left-out", 2);
    let orchestrator = cluster.orchestrator.take().unwrap();
    orchestrator
        .terminate(PATIENCE)
        .unwrap()
        .successful()
        .unwrap();
}
