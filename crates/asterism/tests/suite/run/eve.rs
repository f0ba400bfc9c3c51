//! Alerts as lines of JSON, blocks that all hosts keep for their time, and a file that is moved away.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use asterism_packet::Flow4;
use serde_json::Value;

use crate::run::epochs::written;
use crate::run::host::{Cluster, Host, PortEnd, outbound, wait};
use crate::validator::check;

/// A detector of port scans on three hosts; its evidence is kept for longer than a busy host may stand still within a scan, and is
/// forgotten within ten seconds, so that a block is not made again.
fn cluster() -> Cluster {
    let cluster = Cluster::new(3, "");
    let path = cluster.path("asterism.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let nat = text.find("[function.nat]").unwrap();
    let function = "[function.port-scan]\nwindow = \"5s\"\nblock = \"15s\"\n";
    let mut text = format!("{}{function}", &text[..nat]);
    for name in ["a", "b", "c"] {
        let state = format!("state = \"{name}.state\"");
        let eve = format!("{state}, eve = {{ file = \"{name}.json\", stats = \"1s\" }}");
        text = text.replace(&state, &eve);
    }
    std::fs::write(&path, text).unwrap();
    cluster
}

/// The lines of a file, each as the schema says.
fn lines(path: &Path) -> Vec<Value> {
    // A line that is just being written may be seen by halves, where a page of the file ends. None stays so.
    let text = wait("whole lines", || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        (text.is_empty() || text.ends_with('\n')).then_some(text)
    });
    let schema = include_str!("../../../schemas/asterism.eve.v1.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let read = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        let mut wrong = Vec::new();
        check(&schema, &value, "eve", &mut wrong);
        assert!(wrong.is_empty(), "{line}: {wrong:?}");
        value
    };
    text.lines().map(read).collect()
}

fn of_kind(path: &Path, kind: &str) -> Vec<Value> {
    let mut all = lines(path);
    all.retain(|line| line["event_type"] == kind);
    all
}

fn flow(source: u8, port: u16) -> Flow4 {
    Flow4 {
        source: Ipv4Addr::new(10, 0, 0, source),
        destination_port: port,
        ..outbound(4_000)
    }
}

/// Ports of a host that keeps silent: twenty are too many.
fn scan(end: &mut PortEnd, source: u8) {
    for port in 1_000..1_030 {
        end.send(&flow(source, port));
    }
}

fn dropped(host: &Host) -> u64 {
    let status = host.ask(&["status"]);
    status["instances"][0]["dropped"]["blocked"]
        .as_u64()
        .unwrap_or(0)
}

/// Others wrote what was found while it waited, as it is the first of the list.
#[test]
fn who_waited_to_be_named_does_not_write_what_others_wrote_meanwhile() {
    let cluster = cluster();
    cluster.edit("[cluster]\n", "[cluster]\nepochs = \"epoch.toml\"\n");
    written(&cluster, &["--first"]);
    let mut hosts: Vec<_> = (0..3).map(|place| cluster.begin(place, &[])).collect();
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    hosts[0].child.kill().unwrap();
    hosts[0].child.wait().unwrap();
    let mut again = cluster.begin(0, &[]);
    wait("the host to wait", || {
        again.log().contains("awaiting-epoch").then_some(())
    });
    let file = |name: &str| cluster.path(&format!("{name}.json"));
    let mut inside = cluster.end("b", "inside");
    wait("an alert that b writes", || {
        std::thread::park_timeout(Duration::from_millis(500));
        scan(&mut inside, 2);
        (!of_kind(&file("b"), "alert").is_empty()).then_some(())
    });
    // For longer than what may not have been written by who began to write.
    std::thread::park_timeout(Duration::from_secs(6));
    written(&cluster, &["--again", "a"]);
    again.wait_for("READY=1");
    wait("all of its alerts to have been looked at", || {
        (of_kind(&file("a"), "stats").len() >= 3 && again.live("alerts") >= 1).then_some(())
    });
    assert_eq!(of_kind(&file("a"), "alert"), Vec::<Value>::new());
}

#[test]
fn an_alert_is_written_once_blocks_everywhere_for_its_time_and_outlives_its_writer() {
    let cluster = cluster();
    let mut hosts: Vec<_> = (0..3).map(|place| cluster.begin(place, &[])).collect();
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let file = |name: &str| cluster.path(&format!("{name}.json"));
    let (mut b_inside, mut b_outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    let (mut c_inside, mut c_outside) = (cluster.end("c", "inside"), cluster.end("c", "outside"));
    wait("counts of each host", || {
        ["a", "b", "c"]
            .iter()
            .all(|name| !of_kind(&file(name), "stats").is_empty())
            .then_some(())
    });

    // Found by b, written by a, and what c gets of the source is dropped.
    scan(&mut b_inside, 2);
    let alerts = wait("the alert", || {
        let alerts = of_kind(&file("a"), "alert");
        (!alerts.is_empty()).then_some(alerts)
    });
    assert_eq!(alerts.len(), 1);
    let alert = &alerts[0];
    assert_eq!(alert["src_ip"], "10.0.0.2");
    assert_eq!(alert["dest_ip"], "198.51.100.2");
    assert_eq!(alert["proto"], "UDP");
    assert_eq!(alert["host"], "a");
    assert_eq!(alert["asterism"]["member"], "b");
    assert_eq!(alert["alert"]["gid"], 900);
    assert_eq!(alert["alert"]["signature_id"], 3);
    assert_eq!(alert["alert"]["action"], "blocked");
    for host in &hosts {
        wait("the block", || (host.live("blocked") == 1).then_some(()));
    }
    let before = dropped(&hosts[2]);
    c_inside.send(&flow(2, 7));
    c_inside.send(&flow(3, 7));
    assert_eq!(c_outside.next().source, Ipv4Addr::new(10, 0, 0, 3));
    assert!(c_outside.take().is_empty());
    wait("the count", || {
        (dropped(&hosts[2]) == before + 1).then_some(())
    });
    wait("the block's end", || {
        std::thread::park_timeout(Duration::from_millis(300));
        c_inside.send(&flow(2, 7));
        let came = c_outside.take();
        came.iter()
            .any(|flow| flow.source == Ipv4Addr::new(10, 0, 0, 2))
            .then_some(())
    });
    b_outside.take();

    // As logrotate does it.
    std::fs::rename(file("a"), file("moved")).unwrap();
    assert_eq!(hosts[0].ask(&["reload"])["done"], "nothing");
    scan(&mut c_inside, 4);
    wait("the alert in the new file", || {
        let alerts = of_kind(&file("a"), "alert");
        alerts
            .iter()
            .any(|one| one["src_ip"] == "10.0.0.4")
            .then_some(())
    });
    assert_eq!(of_kind(&file("moved"), "alert").len(), 1);

    // The first host dies: the next one writes.
    hosts[0].child.kill().unwrap();
    hosts[0].ended();
    scan(&mut b_inside, 5);
    wait("the alert of the next host", || {
        let alerts = of_kind(&file("b"), "alert");
        alerts
            .iter()
            .any(|one| one["src_ip"] == "10.0.0.5")
            .then_some(())
    });
    let status = hosts[1].ask(&["status"]);
    let written = status["eve"]["lines"].as_u64().unwrap();
    assert!(written >= 2, "{status}");
    assert_eq!(status["eve"]["lines_lost"], 0);
    assert!(hosts[1].command(&["status"]).1.contains("alerts written: "));
    assert_eq!(of_kind(&file("c"), "alert"), Vec::<Value>::new());
    let stats = of_kind(&file("c"), "stats");
    let last = stats.last().unwrap();
    assert!(
        last["stats"]["packets"]["reasons"]["blocked"].as_u64() >= Some(1),
        "{last}"
    );

    // What was found just before a graceful stop is written.
    scan(&mut b_inside, 6);
    wait("the alert's state", || {
        (hosts[1].live("alerts") >= 4).then_some(())
    });
    hosts[1].stop();
    let alerts = of_kind(&file("b"), "alert");
    assert!(alerts.iter().any(|one| one["src_ip"] == "10.0.0.6"));
}

#[test]
fn what_was_found_right_before_a_stop_is_written_without_time_to_drain() {
    let cluster = Cluster::of(1, "", "[function.port-scan]\n");
    let settings = "eve = { file = \"a.json\" }\ndrain_max = \"10ms\"\njoin_wait";
    cluster.edit("join_wait", settings);
    let mut a = cluster.start(0);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    scan(&mut inside, 2);
    // Behind it: once this has left, the scan is found.
    inside.send(&flow(3, 7));
    wait("the last packet", || {
        let last = |flow: &Flow4| flow.source == Ipv4Addr::new(10, 0, 0, 3);
        outside.take().iter().any(last).then_some(())
    });
    a.stop();
    let alerts = of_kind(&cluster.path("a.json"), "alert");
    assert_eq!(alerts.len(), 1, "{}", a.log());
    assert_eq!(alerts[0]["src_ip"], "10.0.0.2");
    assert!(!a.log().contains("alerts-not-written"), "{}", a.log());
}

#[test]
fn a_file_that_cannot_be_written_refuses_the_start_and_the_reload() {
    let cluster = Cluster::new(1, "");
    cluster.edit(
        "join_wait",
        "eve = { file = \"absent/eve.json\" }\njoin_wait",
    );
    let mut refused = cluster.begin(0, &[]);
    assert_eq!(refused.ended(), Some(1));
    assert!(
        refused.log().contains("absent/eve.json cannot be written"),
        "{}",
        refused.log()
    );
    cluster.edit("absent/eve.json", "eve.json");
    let mut host = cluster.start(0);
    assert!(cluster.path("eve.json").exists());
    cluster.edit("\"eve.json\"", "\"absent/eve.json\"");
    let (_, text) = host.command(&["reload"]);
    assert!(text.contains("cannot be written"), "{text}");
    cluster.edit("\"absent/eve.json\"", "\"other.json\", alerts = \"all\"");
    assert_eq!(host.ask(&["reload"])["done"], "[host] eve");
    wait("the other file", || {
        cluster.path("other.json").exists().then_some(())
    });
    cluster.edit("eve = { file = \"other.json\", alerts = \"all\" }\n", "");
    assert_eq!(host.ask(&["reload"])["done"], "[host] eve");
    assert!(host.ask(&["status"]).get("eve").is_none());
    host.stop();
}

/// Flows that are noted: more than are reported within one look.
const NOTED: u16 = 12_000;

/// Who saves the state is who asks for alerts, and takes none of them meanwhile.
#[test]
fn a_host_with_many_alerts_saves_its_state() {
    let firewall = "[function.firewall]\nrules = \"some.rules\"\n[function.firewall.state]\nevents = { capacity = 65_536 }\n";
    let cluster = Cluster::of(1, "", firewall);
    cluster.edit("join_wait", "eve = { file = \"eve.json\" }\njoin_wait");
    let rules = "allow any on inside log\ndefault drop\n";
    std::fs::write(cluster.path("some.rules"), rules).unwrap();
    let mut host = cluster.start(0);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    let mut left = 0;
    for number in 0..NOTED {
        let source = Ipv4Addr::new(10, 1, (number >> 8) as u8, number as u8);
        inside.send(&Flow4 {
            source,
            ..outbound(4_000)
        });
        if number % 200 == 199 {
            wait("the flows", || {
                left += outside.take().len();
                (left > usize::from(number)).then_some(())
            });
        }
    }
    host.stop();
    assert!(host.log().contains("event=state-saved"), "{}", host.log());
}
