//! The chain of `packaging/examples/chain.toml` on two hosts, on interfaces of network namespaces, with real TCP: requests through
//! one host and replies through the other, a host killed (`kill -9`) in the middle, rules that change. Needs root and `ip`; says
//! `SKIPPED` without.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use asterism_lab::http::{DocumentServer, Downloads, Progress, document};
use asterism_lab::nat::{NatLab, NatLabConfig, SERVER};
use asterism_lab::{Program, wait_until};
use serde_json::Value;

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);
const DOWNLOADS: usize = 20;
const DOCUMENT_BYTES: usize = 2_400_000;
/// Eight seconds for a document: the middle lasts longer than what is looked at in it, on a busy machine too.
const BYTES_PER_SECOND: u64 = 300_000;
const STAGES: [&str; 4] = ["firewall", "nat", "port-scan", "monitor"];
/// The example's names of the hosts, and the laboratory's.
const NAMES: [(&str, &str); 2] = [("a", "nat-1"), ("b", "nat-2")];

/// The example as it ships, with the laboratory's names of hosts and interfaces.
fn write_configuration(lab: &NatLab) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
    let read = |name: &str| std::fs::read_to_string(examples.join(name)).unwrap();
    let mut text = read("chain.toml");
    let mut put = |from: &str, to: &str| {
        assert!(text.contains(from), "the example has no {from}");
        text = text.replace(from, to);
    };
    put("\"eth0\"", "\"in\"");
    put("\"eth1\"", "\"out\"");
    put("[\"a\", \"b\"]", "[\"nat-1\", \"nat-2\"]");
    for (example, own) in NAMES {
        put(
            &format!("[cluster.member.{example}]"),
            &format!("[cluster.member.{own}]"),
        );
    }
    for (place, (_, own)) in NAMES.iter().enumerate() {
        let socket = lab.control_socket(place);
        text.push_str(&format!(
            "\n[on.{own}.host]\ncontrol = \"{}\"\n",
            socket.display()
        ));
    }
    lab.lab.file("chain.rules", read("chain.rules")).unwrap();
    lab.lab.file("chain.toml", text).unwrap()
}

fn reported(lab: &NatLab, place: usize, arguments: &[&str]) -> Output {
    std::process::Command::new(ASTERISM)
        .args(arguments)
        .arg("--socket")
        .arg(lab.control_socket(place))
        .output()
        .unwrap()
}

fn ask(lab: &NatLab, place: usize, arguments: &[&str]) -> Value {
    let reported = reported(lab, place, &[arguments, &["--format", "json"]].concat());
    serde_json::from_slice(&reported.stdout).unwrap_or_default()
}

/// What each stage of a host counted: its calls, and what it dropped.
fn stages(lab: &NatLab, place: usize) -> Vec<(String, u64, Value)> {
    let status = ask(lab, place, &["status"]);
    let stages = status["instances"][0]["stages"].as_array();
    let of = |stage: &Value| {
        (
            stage["name"].as_str().unwrap().to_owned(),
            stage["asked"].as_u64().unwrap(),
            stage["dropped"].clone(),
        )
    };
    stages.into_iter().flatten().map(of).collect()
}

/// The steps of a traced packet that one stage did.
fn steps_of<'p>(packet: &'p Value, stage: &str) -> Vec<&'p str> {
    let steps = packet["steps"].as_array().unwrap().iter();
    let begin = format!("stage {stage}, ");
    let end = format!("stage {stage}: ");
    let steps = steps.map(|step| step.as_str().unwrap());
    let mut own: Vec<_> = steps.skip_while(|step| !step.starts_with(&begin)).collect();
    let length = own.iter().position(|step| step.starts_with(&end));
    own.truncate(length.map_or(0, |last| last + 1));
    own
}

/// Every stage shows in a trace what it asked, that it acted, its verdict and its cost.
fn trace_shows_all_stages(lab: &NatLab, place: usize) {
    let trace = ask(lab, place, &["trace", "-n", "10"]);
    let packets = trace["packets"].as_array().unwrap();
    assert_eq!(packets.len(), 10, "{trace}");
    let through = packets
        .iter()
        .filter(|packet| packet["end"].as_str().unwrap().starts_with("forwarded"));
    let mut seen = 0;
    for packet in through {
        seen += 1;
        let mut calls = 0;
        for stage in STAGES {
            let steps = steps_of(packet, stage);
            let last = steps.last().unwrap_or(&"");
            assert!(
                last.contains(": forward by its port ") && last.ends_with(" ns"),
                "{stage}: {packet}"
            );
            let cost = last.rsplit(", ").next().unwrap();
            let cost: u64 = cost.trim_end_matches(" ns").parse().unwrap();
            calls += cost;
            // All ask for what they know of a flow; those with connections write what they saw.
            let asks = format!("ask {stage}.");
            let has_asked = steps.iter().any(|step| step.starts_with(&asks));
            let has_acted = steps.contains(&"act");
            assert!(has_asked, "{stage}: {packet}");
            assert!(has_acted || stage == "port-scan", "{stage}: {packet}");
        }
        let whole = packet["cost_ns"].as_u64().unwrap();
        assert!(0 < calls && calls <= whole, "{calls} of {whole}: {packet}");
    }
    assert!(seen > 0, "{trace}");
}

#[test]
fn connections_through_a_chain_live_on_when_a_host_is_killed() {
    if let Err(why) = asterism_lab::needs(&["ip"]) {
        println!("SKIPPED a chain on real interfaces: {why}");
        return;
    }
    let lab = NatLab::new(&NatLabConfig::new(2, MS * 5)).unwrap();
    asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
    let configuration = write_configuration(&lab);
    let mut hosts: Vec<Program> = lab
        .start_hosts(Path::new(ASTERISM), &configuration)
        .unwrap();
    lab.requests_through(&[0]).unwrap();
    lab.replies_through(&[1]).unwrap();

    let _server =
        DocumentServer::start(&lab.server, (SERVER, 80).into(), BYTES_PER_SECOND).unwrap();
    let right = document(DOCUMENT_BYTES);
    let downloads = |count, bytes| Downloads {
        server: (SERVER, 80).into(),
        path: format!("/{bytes}"),
        document: &right[..bytes],
        count,
        at_once: DOWNLOADS,
        patience: PATIENCE,
    };
    let progress = Progress::default();
    let under_way = downloads(DOWNLOADS, DOCUMENT_BYTES);
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| under_way.run_watched(&lab.client, &progress).unwrap());
        let all = DOWNLOADS * DOCUMENT_BYTES;
        let middle = wait_until("the middle of the downloads", PATIENCE, || {
            progress.under_way() == DOWNLOADS && progress.bytes_left() < 3 * all / 4
        });
        let said = || hosts.iter().map(Program::stderr).collect::<String>();
        assert!(middle.is_ok(), "{}", said());

        // Each host has one direction only, and all stages of both took part.
        for place in [0, 1] {
            let frames = |port: &str| lab.counts(port).unwrap()[place].received;
            let (requests, replies) = (frames("in"), frames("out"));
            assert!(
                if place == 0 {
                    requests > 200 && replies < 40
                } else {
                    replies > 200 && requests < 40
                },
                "{place}: {requests} {replies}"
            );
            let counted = stages(&lab, place);
            let names: Vec<_> = counted.iter().map(|(name, ..)| name.as_str()).collect();
            assert_eq!(names, STAGES);
            assert!(
                counted.iter().all(|(_, asked, _)| *asked > 200),
                "{counted:?}"
            );
            trace_shows_all_stages(&lab, place);
        }
        assert!(progress.under_way() == DOWNLOADS && progress.bytes_left() > all / 4);
        hosts.remove(0).kill();
        lab.requests_through(&[1]).unwrap();
        running.join().unwrap()
    });
    let said = || hosts.iter().map(Program::stderr).collect::<String>();
    assert_eq!(
        report.complete(),
        DOWNLOADS,
        "{}\n{}",
        report.faults(),
        said()
    );
    let stall = report.downloads.iter().map(|one| one.stall.lasted).max();
    println!("the longest time without news of a download: {stall:?}");

    // New connections too, through the one that is left; until the rules say otherwise.
    let few = downloads(3, 20_000);
    let report = few.run(&lab.client).unwrap();
    assert_eq!(report.complete(), 3, "{}\n{}", report.faults(), said());
    let rules = lab.lab.folder().join("chain.rules");
    let allowed = std::fs::read_to_string(&rules).unwrap();
    let progress = Progress::default();
    let under_way = downloads(1, DOCUMENT_BYTES);
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| under_way.run_watched(&lab.client, &progress).unwrap());
        let began = wait_until("a download under way", PATIENCE, || {
            progress.under_way() == 1 && progress.bytes_left() < DOCUMENT_BYTES - 100_000
        });
        assert!(began.is_ok(), "{}", said());
        std::fs::write(
            &rules,
            format!("drop tcp on inside to any port 80\n{allowed}"),
        )
        .unwrap();
        let reported = reported(&lab, 1, &["reload"]);
        assert!(
            reported.status.success(),
            "{}",
            String::from_utf8_lossy(&reported.stderr)
        );
        let refused = Downloads {
            patience: MS * 1_500,
            ..downloads(1, 1_000)
        };
        assert_eq!(refused.run(&lab.client).unwrap().complete(), 0);
        running.join().unwrap()
    });
    assert_eq!(report.complete(), 1, "{}\n{}", report.faults(), said());
    let counted = stages(&lab, 1);
    assert!(counted[0].2["denied"].as_u64() > Some(0), "{counted:?}");
    for host in hosts {
        host.terminate(PATIENCE).unwrap().successful().unwrap();
    }
}
