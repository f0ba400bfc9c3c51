//! `asterism up`: a whole cluster on one machine, without root, through the death of a host.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use asterism_io::clock::MonotonicClock;
use asterism_placement::Time;

use crate::remote;
use crate::validator::validate;

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
/// How long a line may take to come, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// SIGTERM and SIGKILL.
const TERMINATE: i32 = 15;
pub(crate) const KILL: i32 = 9;

pub(crate) struct Up {
    process: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

/// A test that fails leaves no cluster behind: hosts outlive an `up` that is killed.
impl Drop for Up {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            signal(self.process.id(), TERMINATE);
            let _ = self.process.wait();
        }
    }
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
        let clock = MonotonicClock::new();
        loop {
            let left = PATIENCE.saturating_sub(clock.now().since(Time::ZERO));
            let line = self
                .lines
                .recv_timeout(left)
                .unwrap_or_else(|error| panic!("no {words:?}: {error}; {}", self.said.join("\n")));
            self.said.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// The processes that were started last, in the order of their names.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let started = self.said.iter().filter_map(|line| {
            let (host, pid) = line.trim_start().split_once(" is started as process ")?;
            Some((host.rsplit(' ').next()?.to_owned(), pid.parse().ok()?))
        });
        let by_host: std::collections::BTreeMap<String, u32> = started.collect();
        by_host.into_values().collect()
    }

    /// Ends it at once; what it started goes on.
    pub(crate) fn kill_alone(mut self) {
        signal(self.process.id(), KILL);
        self.process.wait().unwrap();
    }

    /// Ends it, whatever it has to say.
    pub(crate) fn kill(mut self) {
        signal(self.process.id(), TERMINATE);
        let _ = self.process.wait();
    }

    /// Ends it, and returns its report.
    pub(crate) fn end(self) -> serde_json::Value {
        signal(self.process.id(), TERMINATE);
        self.report()
    }

    /// The report of one that ends.
    pub(crate) fn report(mut self) -> serde_json::Value {
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

/// What `asterism down` ends in a folder.
pub(crate) fn down(folder: &str) -> serde_json::Value {
    let output = Command::new(ASTERISM)
        .args(["--format", "json", "down", "--folder", folder])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
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
    // A host that a busy machine does not run is suspected for a moment.
    asterism_lab::wait_until("all to be well", PATIENCE, || {
        let hosts = ask(&api, &["hosts"]);
        let items = ask(&api, &["doctor"])["items"].as_array().map(Vec::len);
        hosts["cluster"]["hosts_taking"] == 3
            && hosts["hosts"][1]["stage"] == "serving"
            && items == Some(0)
    })
    .unwrap();
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

#[test]
fn hosts_are_added_and_removed_under_load_and_no_flow_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // A load that no host has: the policy adds none, the orders do.
    let arguments = [
        "--folder",
        path,
        "--hosts",
        "1..3",
        "--scale-above",
        "1000000000",
    ];
    let mut up = Up::start(&arguments);
    up.wait_for("Packets are translated after");
    let line = up.wait_for("asterism hosts --api");
    let api = line.split_whitespace().nth(3).unwrap().to_owned();
    let plan = ask(&api, &["plan"]);
    assert_eq!(
        (&plan["hosts"], &plan["maximum"]),
        (&1.into(), &3.into()),
        "{plan}"
    );
    assert_eq!(plan["is_carried_out"], true, "{plan}");
    let refused = Command::new(ASTERISM)
        .args(["scale", "4", "--api", &api])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("4 hosts are out of bounds: 1 to 3 are allowed"),
        "{said}"
    );

    assert_eq!(ask(&api, &["scale", "3"])["changed"], true);
    up.wait_for("there are 3 hosts, as ordered");
    // Hosts that leave before the steering has them in force get no packet.
    up.wait_for("3 of 3 hosts take packets");
    // On a busy machine flows begin slowly, and `b` could be gone before it has one.
    asterism_lab::wait_until("a packet at b", PATIENCE, || {
        let status = ask(&api, &["status", "--host", "b"]);
        let mut ports = status["instances"][0]["ports"].as_array().unwrap().iter();
        ports.any(|port| port["received_packets"].as_u64() > Some(0))
    })
    .unwrap();
    let moved = ask(&api, &["move", "--bucket", "17", "--to", "b"]);
    assert_eq!(moved["detail"], "new flows of bucket 17 go to b");
    assert_eq!(
        ask(&api, &["scale", "1", "--reason", "a test"])["changed"],
        true
    );
    up.wait_for("there are 1 hosts, as ordered");
    asterism_lab::wait_until("both hosts to have left", PATIENCE, || {
        let events = ask(&api, &["events", "-n", "300"]);
        let of = |kind: &str| {
            let events = events["events"].as_array().unwrap().iter();
            events.filter(|event| event["kind"] == kind).count()
        };
        (of("scale-ordered"), of("host-stopped"), of("host-left-out")) == (2, 2, 2)
    })
    .unwrap();
    let pid = up.process.id();
    assert_eq!(down(path)["command"], pid);
    let report = up.report();
    assert_eq!(report["holds"], true, "{report}");
    assert_eq!(
        (&report["hosts_started"], &report["hosts_ended"]),
        (&3.into(), &0.into()),
        "{report}"
    );
    assert!(
        report["added_host_first_packet_s"].as_f64().unwrap() > 0.0,
        "{report}"
    );

    // The folder's record and states are of three hosts.
    let refused = Command::new(ASTERISM)
        .args(["up", "--folder", path, "--hosts", "2"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("--hosts 3 or MIN..3"), "{said}");
    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(
        foreign.path().join("asterism.toml"),
        "[cluster]\nhosts = 3\n",
    )
    .unwrap();
    let refused = Command::new(ASTERISM)
        .args(["up", "--folder", foreign.path().to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("is of another version, or was changed"),
        "{said}"
    );

    // One that is killed leaves its hosts; they are found and ended, once.
    let mut killed = Up::start(&["--folder", path, "--hosts", "2..3"]);
    killed.wait_for("Packets are translated after");
    killed.wait_for("2 of 3 hosts take packets");
    killed.kill_alone();
    let ended = down(path);
    assert_eq!(
        (&ended["command"], &ended["processes_stopped"]),
        (&serde_json::Value::Null, &2.into())
    );
    assert_eq!(down(path)["processes_stopped"], 0);
}
