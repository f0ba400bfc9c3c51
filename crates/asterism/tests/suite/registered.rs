//! A cluster whose configuration lists no hosts: a fourth host joins three with nothing but a configuration of its own, takes traffic and
//! grants ports, leaves for good, and the others use its ports. Needs root and `ip`; says `SKIPPED` without.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use asterism_lab::nat::{HostOptions, NatLabConfig, OrchestratedLab};
use asterism_lab::{Sent, pause};
use serde_json::Value;

const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);
/// Flows of a probe: each host has some, both ways.
const FLOWS: usize = 24;
const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
/// So long after a host has left its ports are in quarantine: 5/4 of the longest idle time, and a second; and time to be seen.
const QUARANTINE_MAX: Duration = Duration::from_secs(30);
/// An answer that overtakes the news of its flow waits this long: beside other tests, hosts may stand still for a while.
const ABSENT_WAIT: &str = "wait 1s";

fn lost(sent: &[Sent]) -> Vec<Duration> {
    let lost = sent.iter().filter(|one| !one.came_back);
    lost.map(|one| one.at).collect()
}

fn status(cluster: &OrchestratedLab, place: usize) -> Value {
    let output = Command::new(ASTERISM)
        .args(["status", "--format", "json", "--socket"])
        .arg(cluster.lab.control_socket(place))
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Items of others' places that a host may grant, and those in quarantine.
fn ports(cluster: &OrchestratedLab, place: usize) -> (u64, u64) {
    let status = status(cluster, place);
    let objects = status["instances"][0]["objects"].as_array();
    let pool = objects.and_then(|all| all.iter().find(|one| one["name"] == "ports"));
    let figure = |name: &str| {
        pool.and_then(|pool| pool[name].as_u64())
            .unwrap_or_default()
    };
    (figure("reclaimed"), figure("quarantined"))
}

/// Packets of the only tenant.
fn usage(cluster: &OrchestratedLab) -> u64 {
    let node = &cluster.lab.orchestrators[0];
    let asked = node.program(ASTERISM).args(["usage", "--format", "json"]);
    let said = asked.run().map(|finished| finished.stdout);
    let document: Value = serde_json::from_slice(&said.unwrap_or_default()).unwrap_or_default();
    document["tenants"][0]["packets"]
        .as_u64()
        .unwrap_or_default()
}

fn wait_until(what: &str, cluster: &OrchestratedLab, within: Duration, is: impl Fn() -> bool) {
    for _ in 0..within.as_millis() / 50 {
        if is() {
            return;
        }
        pause(MS * 50);
    }
    panic!("waited in vain for {what}: {}", cluster.log());
}

#[test]
fn a_host_joins_with_its_own_file_alone_and_leaves_for_good() {
    if let Err(why) = asterism_lab::needs(&["ip"]) {
        println!("SKIPPED a cluster of hosts that register: {why}");
        return;
    }
    let config = NatLabConfig::new(4, MS * 2).orchestrators(1);
    let idle = "idle = { tcp_transitory = \"2s\", tcp_established = \"2s\", tcp_closing = \"2s\", udp = \"4s\", udp_dns = \"2s\", icmp_query = \"2s\" }";
    let options = HostOptions {
        places: Some(6),
        nat_lines: format!("short_idle = true\n{idle}"),
        orchestrator_lines: "api = { listen = \"127.0.0.1:7580\" }\n".to_owned(),
        more: "[tenants.all]\nnetworks = [\"10.77.0.0/24\"]\n".to_owned(),
        ..HostOptions::default().absent(ABSENT_WAIT)
    };
    let mut cluster =
        OrchestratedLab::start_first(Path::new(ASTERISM), &config, options, 3).unwrap();
    for (place, name) in ["nat-1", "nat-2", "nat-3"].iter().enumerate() {
        cluster.wait_for(&format!("{name} has place-"), 1).unwrap();
        // From the places that nobody has; and it waits for nobody.
        wait_until(&format!("{name} to grant"), &cluster, PATIENCE, || {
            let (granted, quarantined) = ports(&cluster, place);
            granted > 0 && quarantined == 0
        });
    }
    wait_until("hosts, and no empty places", &cluster, PATIENCE, || {
        let peers = status(&cluster, 0)["peers"].clone();
        let peers = peers.as_array().into_iter().flatten();
        let mut names: Vec<&str> = peers.filter_map(|one| one["name"].as_str()).collect();
        names.sort_unstable();
        names == ["nat-2", "nat-3"]
    });

    // A fourth host, of which no other host and no orchestrator has read.
    let running = cluster.probe(FLOWS, MS * 2).unwrap();
    pause(MS * 300);
    cluster.add_host(3).unwrap();
    cluster.wait_for("nat-4 takes packets", 1).unwrap();
    cluster.wait_until_steered().unwrap();
    pause(MS * 500);
    assert_eq!(lost(&running.end()), [], "{}", cluster.log());
    wait_until("nat-4 to grant its part", &cluster, PATIENCE, || {
        let (granted, quarantined) = ports(&cluster, 3);
        granted > 0 && quarantined == 0
    });
    // New flows, of which some are its own to grant a port to.
    let running = cluster.probe(FLOWS, MS * 2).unwrap();
    pause(MS * 500);
    assert_eq!(lost(&running.end()), [], "{}", cluster.log());
    // What hosts do for a tenant counts by place.
    wait_until("the tenant's usage", &cluster, PATIENCE, || {
        usage(&cluster) > 0
    });
    let text = status(&cluster, 3).to_string();
    assert!(
        text.contains("\"host\":\"nat-4\"") && text.contains("\"name\":\"nat-1\""),
        "{text}"
    );

    // It is gone for good: the others get its ports, and its place is another's.
    let forget = |cluster: &OrchestratedLab| {
        let node = &cluster.lab.orchestrators[0];
        node.program(ASTERISM)
            .args(["hosts", "forget", "nat-4"])
            .run()
    };
    let refused = forget(&cluster).unwrap_err().to_string();
    assert!(refused.contains("it takes part"), "{refused}");
    let before: Vec<(u64, u64)> = (0..3).map(|place| ports(&cluster, place)).collect();
    let host = cluster.hosts[3].take().unwrap();
    host.terminate(PATIENCE).unwrap().successful().unwrap();
    let line = "incarnation 1 of nat-4 is left out; its process has ended";
    cluster.wait_for(line, 1).unwrap();
    forget(&cluster).unwrap();
    cluster.wait_for("nat-4 has no place any more", 1).unwrap();
    wait_until(
        "its ports to be the others'",
        &cluster,
        QUARANTINE_MAX,
        || {
            (0..3).all(|place| {
                let (granted, quarantined) = ports(&cluster, place);
                granted > before[place].0 && quarantined == 0
            })
        },
    );
    cluster.add_host(3).unwrap();
    cluster.wait_for("nat-4 begins incarnation 2", 1).unwrap();
    cluster.wait_for("nat-4 takes packets", 2).unwrap();
}
