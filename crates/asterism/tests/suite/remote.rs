//! Commands that ask a cluster from another machine, by the API of its orchestrator alone; `up.rs` runs the cluster.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::up::ask;
use crate::validator::validate;

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
/// How long anything may take that should take a moment.
const PATIENCE: Duration = Duration::from_secs(60);
/// Looks until something holds, with a pause between two.
const LOOKS_MAX: usize = 300;
const PAUSE: Duration = Duration::from_millis(100);
/// What no report may show.
const PASSWORD: &str = "hunter2-in-the-configuration";
const TOKEN: &str =
    "asterism-token-1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Every command, against a cluster with the hosts `a`, `b` and `c`, which translates flows.
pub(crate) fn commands_work_from_another_machine(api: &str, folder: &Path) {
    let cluster = ask(api, &["status"]);
    assert_eq!(cluster["cluster"]["name"], "up");
    let status = ask(api, &["status", "--host", "b"]);
    assert_eq!(status["schema"]["name"], "asterism.status");
    assert_eq!(
        (&status["host"], &status["phase"]),
        (&"b".into(), &"running".into())
    );
    rates(api);
    let (inside, outside) = flows(api);
    state(api, &inside);
    for (command, end, words) in [
        (&["status", "--host", "z"][..], 4, "named z"),
        (
            &["state", "where", "x", "--object", "session"],
            4,
            "objects are",
        ),
        (&["state", "where", "10.9.9.9:1"], 1, "no host has an entry"),
        (&["state", "get", "10.9.9.9:1"], 1, "no entry with the key"),
        (&["flows", "find", "10.9.9.9"], 1, "no host that answered"),
        (&["flows", "find", "10.9.9"], 2, "[2001:db8::1]:53"),
        (&["status", "--digests"], 2, "cannot be used with"),
    ] {
        refused(api, command, end, words);
    }
    // The same flow at a host's own socket.
    let socket = folder.join("c.control.sock");
    assert!(socket.exists());
    {
        let found = document(&[
            "flows",
            "find",
            &outside,
            "--socket",
            socket.to_str().unwrap(),
        ]);
        assert!(!found["flows"].as_array().unwrap().is_empty(), "{found}");
    }
    report(api, folder);
}

fn document(command: &[&str]) -> Value {
    let output = Command::new(ASTERISM)
        .args(["--format", "json"])
        .args(command)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    let document = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    document
}

fn refused(api: &str, command: &[&str], end: i32, words: &str) {
    let output = Command::new(ASTERISM)
        .args(command)
        .args(["--api", api])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(end), "{command:?}: {said}");
    assert!(said.contains(words), "{command:?}: {said}");
}

fn rates(api: &str) {
    // On a busy machine a second may pass without a packet.
    asterism_lab::wait_until("packets", PATIENCE, || {
        let top = ask(api, &["top", "--once", "--sort", "name"]);
        let hosts = top["hosts"].as_array().unwrap();
        let names: Vec<_> = hosts
            .iter()
            .map(|host| host["host"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(top["interval_ms"].as_u64().unwrap() >= 900, "{top}");
        let packets: u64 = hosts
            .iter()
            .filter_map(|host| host["packets_per_s"].as_u64())
            .sum();
        packets > 0
    })
    .unwrap();
    let top = ask(api, &["top", "--host", "a", "--once"]);
    assert_eq!(
        (&top["schema"]["name"], &top["host"]),
        (&"asterism.top".into(), &"a".into())
    );
    // Where there is no terminal, there are no codes for one.
    asterism_lab::wait_until("three hosts", PATIENCE, || {
        let output = Command::new(ASTERISM)
            .args(["top", "--once", "--api", api])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains('\x1b'), "{text}");
        // A host that a busy machine does not run is suspected for a moment.
        text.contains("3 of 3 hosts take packets")
    })
    .unwrap();
}

/// Finds a flow by each of its ends; returns its ends inside and outside.
fn flows(api: &str) -> (String, String) {
    let all = ask(api, &["flows", "find", "--protocol", "udp"]);
    let flow = &all["flows"][0];
    let end = |text: &Value| text.as_str().unwrap().split(' ').nth(1).unwrap().to_owned();
    let (inside, outside) = (end(&flow["flow"]), end(&flow["translated"]));
    assert!(
        inside.starts_with("10.78.") && outside.starts_with("203.0.113."),
        "{flow}"
    );
    for place in [&inside, &outside] {
        let find = ["flows", "find", place, "--protocol", "udp"];
        let found = ask(api, &find);
        let found = found["flows"].as_array().unwrap();
        assert!(!found.is_empty(), "{place}");
        for one in found {
            let ends = (end(&one["flow"]), end(&one["translated"]));
            assert_eq!(ends, (inside.clone(), outside.clone()), "of {place}: {one}");
        }
        let writer = found[0]["host"].as_str().unwrap();
        let of_host = ask(api, &[&find[..], &["--host", writer]].concat());
        let held_by = &of_host["flows"][0]["held_by"];
        assert_eq!(*held_by, serde_json::json!([writer]), "{of_host}");
    }
    // The address alone finds at least as many.
    let address = inside.split(':').next().unwrap();
    assert!(
        !ask(api, &["flows", "find", address])["flows"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    (inside, outside)
}

fn state(api: &str, inside: &str) {
    let objects = ask(api, &["state", "ls"]);
    let objects = objects["objects"].as_array().unwrap();
    let sessions = objects
        .iter()
        .find(|object| object["name"] == "sessions")
        .unwrap();
    let held = sessions["held"].as_array().unwrap();
    let mut hosts: Vec<_> = held
        .iter()
        .map(|one| one["host"].as_str().unwrap())
        .collect();
    hosts.dedup();
    assert_eq!(hosts, ["a", "b", "c"]);
    assert!(
        held.iter().all(|one| one["live"].as_u64().unwrap() > 0),
        "{sessions}"
    );
    // All have the session, and alike as soon as no update is on its way.
    let mut last = Value::Null;
    for _ in 0..LOOKS_MAX {
        last = ask(api, &["state", "where", inside, "--object", "sessions"]);
        let entry = &last["objects"][0]["entries"][0];
        let holders = entry["holders"].as_array().map_or(0, Vec::len);
        if entry["agree"] == true && holders == 3 {
            let got = ask(api, &["state", "get", inside]);
            let key = entry["key"].as_str().unwrap();
            assert!(key.contains(inside), "{key}");
            let entries = got["entries"].as_array().unwrap();
            assert!(entries.iter().any(|entry| entry["key"] == key), "{got}");
            return;
        }
        std::thread::park_timeout(PAUSE);
    }
    panic!("hosts do not agree on a session: {last}");
}

fn report(api: &str, folder: &Path) {
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let configuration = fs::read_to_string(folder.join("asterism.toml")).unwrap();
    let key = fs::read_to_string(folder.join("cluster.key")).unwrap();
    let key = key
        .lines()
        .find(|line| line.starts_with("asterism-key"))
        .unwrap();
    let secret = key.split(':').nth(2).unwrap();
    assert!(secret.len() >= 64);
    let planted = format!(
        "# {PASSWORD}\n{configuration}\n[planted]\npassword = \"{PASSWORD}\"\nnote = \"{key}\"\nmore = \"{TOKEN}\"\naddress = \"http://u:{PASSWORD}@h\"\n"
    );
    fs::write(path("planted.toml"), planted).unwrap();
    fs::write(path("token"), TOKEN).unwrap();
    let archive = path("report.tar.gz");
    let arguments = [
        "bugreport",
        "--output",
        &archive,
        "--config",
        &path("planted.toml"),
        "--token",
        &path("token"),
    ];
    let document = ask(api, &arguments);
    assert!(
        document["secrets_removed"].as_u64().unwrap() >= 4,
        "{document}"
    );
    let mut files = tar::Archive::new(GzDecoder::new(fs::File::open(&archive).unwrap()));
    let mut names = Vec::new();
    for file in files.entries().unwrap() {
        let mut file = file.unwrap();
        let name = file.path().unwrap().display().to_string();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        for found in [PASSWORD, TOKEN, &TOKEN[20..], key, secret] {
            assert!(!text.contains(found), "{name} shows a secret");
        }
        if name.ends_with("status/b.json") {
            let status: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(status["host"], "b");
        }
        if name.ends_with("configuration.json") {
            let configuration: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(configuration["planted"]["password"], "(removed)");
        }
        names.push(name.trim_start_matches("asterism-bugreport/").to_owned());
    }
    for wanted in [
        "README.txt",
        "cluster.json",
        "configuration.json",
        "events.json",
        "health.json",
        "hosts.json",
        "metrics.txt",
        "status/a.json",
        "status/b.json",
        "status/c.json",
        "version.json",
    ] {
        assert!(
            names.iter().any(|name| name == wanted),
            "{wanted} is not in {names:?}"
        );
    }
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(&archive).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // It does not write over a file, and without an orchestrator and hosts there is nothing to write.
    refused(api, &["bugreport", "--output", &archive], 4, "exists");
    let nowhere = [
        "bugreport",
        "--output",
        &path("none"),
        "--socket",
        &path("no.sock"),
    ];
    refused("http://127.0.0.1:1", &nowhere, 4, "nothing was collected");
    assert!(!here.path().join("none").exists());
}
