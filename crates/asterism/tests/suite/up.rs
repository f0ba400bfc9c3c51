//! `asterism up`: a whole cluster on one machine, without root, through the death of a host.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::remote;
use crate::validator::validate;

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
/// How long any line may take to come, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// SIGTERM and SIGKILL.
const TERMINATE: i32 = 15;
pub(crate) const KILL: i32 = 9;

pub(crate) struct Up {
    process: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Up {
    pub(crate) fn start(arguments: &[&str]) -> Up {
        let mut process = Command::new(ASTERISM)
            .args(["up", "--format", "json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let progress = BufReader::new(process.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in progress.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let said = Vec::new();
        Up {
            process,
            lines,
            said,
        }
    }

    /// Waits for a line with these words.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                let _ = self.process.kill();
                panic!("no {words:?}: {error}; {}", self.said.join("\n"))
            });
            self.said.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// The processes of the hosts that were started first, in the hosts' order.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let started = self.said.iter().filter_map(|line| {
            let (host, pid) = line.trim_start().split_once(" is started as process ")?;
            Some((host.rsplit(' ').next()?.to_owned(), pid.parse().ok()?))
        });
        let by_host: std::collections::BTreeMap<String, u32> = started.collect();
        by_host.into_values().collect()
    }

    /// Ends it, whatever it has to say.
    pub(crate) fn kill(mut self) {
        signal(self.process.id(), TERMINATE);
        let _ = self.process.wait();
    }

    /// Ends it, and returns its report.
    fn end(mut self) -> serde_json::Value {
        signal(self.process.id(), TERMINATE);
        let mut text = String::new();
        let mut stdout = self.process.stdout.take().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        let status = self.process.wait().unwrap();
        self.said.extend(self.lines.try_iter());
        let said = self.said.join("\n");
        assert!(status.success(), "{status}: {text}{said}");
        let report =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{said}"));
        validate(&report);
        report
    }
}

/// The document with which a command answers that asks the orchestrator.
pub(crate) fn ask(api: &str, command: &[&str]) -> serde_json::Value {
    let output = Command::new(ASTERISM)
        .args(["--format", "json"])
        .args(command)
        .args(["--api", api])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    let document = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    document
}

pub(crate) fn signal(pid: u32, signal: i32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_whole_cluster_runs_without_root_and_a_killed_host_breaks_no_flow() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = Up::start(&["--folder", folder.path().to_str().unwrap()]);
    let line = up.wait_for("b is started as process");
    let pid: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
    up.wait_for("Packets are translated after");
    let line = up.wait_for("asterism hosts --api");
    let api = line.split_whitespace().nth(3).unwrap().to_owned();
    for host in ["a", "b", "c"] {
        if !up
            .said
            .iter()
            .any(|line| line.ends_with(&format!("{host} takes packets")))
        {
            up.wait_for(&format!("{host} takes packets"));
        }
    }
    up.wait_for("3 of 3 hosts take packets");
    let hosts = ask(&api, &["hosts"]);
    assert_eq!(hosts["cluster"]["hosts_taking"], 3, "{hosts}");
    assert_eq!(hosts["hosts"][1]["stage"], "serving", "{hosts}");
    assert_eq!(
        ask(&api, &["doctor"])["items"].as_array().map(Vec::len),
        Some(0)
    );
    remote::commands_work_from_another_machine(&api, folder.path());
    let drained = ask(&api, &["hosts", "drain", "c", "--reason", "a test"]);
    assert_eq!(drained["changed"], true, "{drained}");
    signal(pid, KILL);
    up.wait_for("b has ended with signal 9");
    up.wait_for("b begins incarnation 2");
    up.wait_for("b takes packets");
    let events = ask(&api, &["events", "-n", "200"]);
    let kinds = events["events"].as_array().unwrap().iter();
    let of_b = kinds.filter(|event| event["subject"] == "b");
    let kinds: Vec<_> = of_b.map(|event| event["kind"].as_str().unwrap()).collect();
    assert!(
        kinds.contains(&"host-left-out") && kinds.contains(&"host-takes"),
        "{events}"
    );
    let hosts = ask(&api, &["hosts"]);
    assert_eq!(hosts["hosts"][2]["drains"], true, "{hosts}");
    assert_eq!(ask(&api, &["hosts", "restore", "c"])["changed"], true);
    let report = up.end();
    assert_eq!(report["holds"], true, "{report}");
    assert_eq!(
        (&report["hosts_started"], &report["hosts_ended"]),
        (&4.into(), &1.into())
    );
    assert!(report["flows_done"].as_u64().unwrap() > 20, "{report}");

    // What is there is taken up: the key, the record of the cluster and the hosts' saved states.
    let mut again = Up::start(&["--folder", folder.path().to_str().unwrap()]);
    again.wait_for("Packets are translated after");
    let report = again.end();
    assert_eq!(report["hosts_started"], 3, "{report}");
}
