//! A cluster with an orchestrator in network namespaces: hosts are admitted without an epoch from the operator, a paused host loses
//! nothing, a killed one is steered around and returns, and packets go on while the orchestrator is down. Needs root and `ip`; says
//! `SKIPPED` without.

use std::path::Path;
use std::time::Duration;

use asterism_lab::nat::{HostOptions, NatLabConfig, OrchestratedLab};
use asterism_lab::{Probe, Sent, pause};

const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);
/// Flows of the probe: each host has some, both ways.
const FLOWS: usize = 24;
/// Packets may be lost so long after a kill. The measure `lab.failover` has the bound that counts; tests run beside other work.
const FAILOVER_MAX: Duration = Duration::from_secs(3);
/// An answer that overtakes the news of its flow waits this long: beside other tests, hosts may stand still for a while.
const ABSENT_WAIT: &str = "wait 1s";
/// SIGSTOP and SIGCONT.
const STOP: i32 = 19;
const CONTINUE: i32 = 18;

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
    let asterism = Path::new(env!("CARGO_BIN_EXE_asterism"));
    let config = NatLabConfig::new(3, MS * 2).orchestrators(1);
    let options = HostOptions::default().absent(ABSENT_WAIT);
    let mut cluster = OrchestratedLab::start(asterism, &config, options).unwrap();
    let probe = |cluster: &OrchestratedLab| cluster.probe(FLOWS, MS * 2).unwrap();

    // A pause costs nothing but time: packets wait in the host's rings, and move to the others when it is suspected.
    let running = probe(&cluster);
    pause(MS * 300);
    let paused = cluster.hosts[0].as_ref().unwrap();
    paused.signal(STOP);
    pause(MS * 300);
    paused.signal(CONTINUE);
    cluster.wait_for("nat-1 takes packets", 2).unwrap();
    pause(MS * 300);
    let sent = running.end();
    assert_eq!(lost(&sent), [], "of {}: {}", sent.len(), cluster.log());
    assert_eq!(cluster.count("host-left-out"), 0, "{}", cluster.log());

    // A kill loses packets until the routes lead elsewhere, and no longer. The host is started again, as by a service manager.
    let [silent, takes] = ["nat-2 was silent for", "nat-2 takes packets"];
    let (silences, takings) = (cluster.count(silent), cluster.count(takes));
    let running = probe(&cluster);
    pause(MS * 300);
    let killed = Probe::now();
    cluster.kill_host(1);
    cluster.wait_for(silent, silences + 1).unwrap();
    cluster.start_host(1).unwrap();
    for line in [
        "incarnation 1 of nat-2 is left out; its process has ended",
        "nat-2 begins incarnation 2",
    ] {
        cluster.wait_for(line, 1).unwrap();
    }
    cluster.wait_for(takes, takings + 1).unwrap();
    cluster.wait_until_steered().unwrap();
    pause(MS * 300);
    let lost_of_kill = lost(&running.end());
    let of_kill = killed.saturating_sub(MS * 20)..killed + FAILOVER_MAX;
    let others = lost_of_kill.iter().filter(|at| !of_kill.contains(at));
    assert_eq!(others.count(), 0, "killed at {killed:?}: {lost_of_kill:?}");
    assert!(!lost_of_kill.is_empty(), "the killed host had no flow");

    // Without an orchestrator all goes on, new flows included. One that begins decides nothing that is decided.
    cluster.kill_orchestrator(0);
    let running = probe(&cluster);
    pause(MS * 1_000);
    cluster.start_orchestrator(0).unwrap();
    for name in ["nat-1", "nat-2", "nat-3"] {
        let line = format!("{name} takes packets");
        cluster.wait_for(&line, 1).unwrap();
    }
    cluster.wait_until_steered().unwrap();
    pause(MS * 500);
    assert_eq!(lost(&running.end()), [], "{}", cluster.log());
    assert_eq!(cluster.count("level=warning"), 0, "{}", cluster.log());

    // Everything ends in order: each host says so.
    for host in cluster.hosts.drain(..).flatten() {
        host.terminate(PATIENCE).unwrap().successful().unwrap();
    }
    cluster.wait_for("host-left-out", 2).unwrap();
    let orchestrator = cluster.orchestrators[0].take().unwrap();
    orchestrator
        .terminate(PATIENCE)
        .unwrap()
        .successful()
        .unwrap();
}
