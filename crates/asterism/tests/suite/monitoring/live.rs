//! A real Prometheus and a real Alertmanager watch a cluster of `asterism up`: each panel and each rule finds its metrics, nothing
//! fires while all is well, and alerts of hosts that stand still arrive, without those that are symptoms.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use asterism_io::clock::MonotonicClock;
use asterism_placement::Time;
use serde_json::Value;

use super::files::{self, FOLDER, dashboard, panel_queries, rules, text};
use super::has;
use super::tools::accepts;
use crate::run::host::own_loopback_socket;
use crate::up::{KILL, Up, signal};

/// How long anything may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// SIGSTOP.
const STOP: i32 = 19;
/// Rules wait a fifteenth of what they say, as the scrapes are.
const FASTER: u64 = 15;
/// Metrics of what `asterism up` does not configure: exports, the log of ports, alerts of scans, and items of a sick cluster.
/// They are in the page that a test of the hosts' exposition compares.
const NOT_CONFIGURED: &str = "crates/host-metrics/src/exposition/tests/page.txt";

/// A program of the test, ended with it.
struct Program(Child);

impl Program {
    fn start(program: &str, arguments: &[String], folder: &Path) -> Program {
        let log = std::fs::File::create(folder.join(format!("{program}.log"))).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Program(child.unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An answer's body; `None` if nobody answers.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // HTTP/1.0, so that the answer comes in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

fn query_string(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    escaped.collect()
}

struct Prometheus {
    address: String,
    _program: Program,
}

impl Prometheus {
    fn json(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&get(&self.address, path)?).ok()
    }

    /// The result of a query now.
    fn query(&self, expr: &str) -> Result<Vec<Value>, String> {
        let path = format!("/api/v1/query?query={}", query_string(expr));
        let answer = self.json(&path).ok_or("no answer")?;
        match answer["status"] == "success" {
            true => Ok(answer["data"]["result"].as_array().unwrap().clone()),
            false => Err(answer["error"].to_string()),
        }
    }

    /// The codes and subjects of the alerts that fire.
    fn firing(&self) -> BTreeSet<(String, String)> {
        let alerts = self
            .query("ALERTS{alertstate=\"firing\"}")
            .unwrap_or_default();
        let label =
            |alert: &Value, label: &str| alert["metric"][label].as_str().unwrap_or("").to_owned();
        let fires = alerts
            .iter()
            .map(|alert| (label(alert, "code"), label(alert, "subject")));
        fires.collect()
    }
}

/// What Alertmanager posts: receiver, status, code and subject of each alert.
type Posted = (String, String, String, String);

/// Takes notifications, as a pager would.
fn pager() -> (String, Receiver<Posted>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, posted) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) <= 2 {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            let _ = reader
                .get_mut()
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let notice: Value = serde_json::from_slice(&body).unwrap();
            for alert in notice["alerts"].as_array().unwrap() {
                let word = |value: &Value| value.as_str().unwrap_or("").to_owned();
                let labels = &alert["labels"];
                let posted = (
                    word(&notice["receiver"]),
                    word(&alert["status"]),
                    word(&labels["code"]),
                    word(&labels["subject"]),
                );
                if sender.send(posted).is_err() {
                    return;
                }
            }
        }
    });
    (address, posted)
}

fn until<T>(what: &str, mut query: impl FnMut() -> Option<T>) -> T {
    let clock = MonotonicClock::new();
    loop {
        if let Some(found) = query() {
            return found;
        }
        assert!(clock.now() < Time::ZERO + PATIENCE, "{what} took too long");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

/// The shipped rules with shorter times.
fn faster_rules() -> String {
    let mut text = text(&format!("{FOLDER}/alerts.yml"));
    for rule in rules() {
        let faster = format!("        for: {}000ms\n", rule.wait_s / FASTER);
        text = text.replace(&format!("        for: {}s\n", rule.wait_s), &faster);
        if rule.wait_s % 60 == 0 {
            text = text.replace(&format!("        for: {}m\n", rule.wait_s / 60), &faster);
        }
    }
    assert!(
        !text.contains("for: 30s") && text.contains("for: 2000ms"),
        "{text}"
    );
    text
}

fn start_prometheus(folder: &Path, alertmanager: &str) -> Prometheus {
    accepts("promtool", &["check", "config", "prometheus.yml"], folder);
    let config = std::fs::read_to_string(folder.join("prometheus.yml")).unwrap();
    let shipped = std::fs::read_to_string(folder.join("alerts.yml")).unwrap();
    assert_eq!(shipped, text(&format!("{FOLDER}/alerts.yml")));
    let config = config.replace("interval: 5s", "interval: 1s")
        + &format!(
            "alerting:\n  alertmanagers:\n    - static_configs:\n        - targets: ['{alertmanager}']\n"
        );
    std::fs::write(folder.join("fast.yml"), config).unwrap();
    std::fs::write(folder.join("alerts.yml"), faster_rules()).unwrap();
    let address = own_loopback_socket().to_string();
    let arguments = [
        "--config.file=fast.yml".to_owned(),
        "--storage.tsdb.path=prometheus-data".to_owned(),
        format!("--web.listen-address={address}"),
    ];
    let program = Program::start("prometheus", &arguments, folder);
    Prometheus {
        address,
        _program: program,
    }
}

/// Starts Alertmanager with the shipped routes and inhibitions, which post to the pager at once.
fn start_alertmanager(folder: &Path, pager: &str) -> (String, Program) {
    let config = text(&format!("{FOLDER}/alertmanager.yml"))
        .replace("127.0.0.1:9095", pager)
        .replace("group_wait: 10s", "group_wait: 1s")
        .replace("group_interval: 1m", "group_interval: 1s");
    std::fs::write(folder.join("alertmanager.yml"), config).unwrap();
    let address = own_loopback_socket().to_string();
    let arguments = [
        "--config.file=alertmanager.yml".to_owned(),
        "--storage.path=alertmanager-data".to_owned(),
        format!("--web.listen-address={address}"),
        "--cluster.listen-address=".to_owned(),
    ];
    let program = Program::start("prometheus-alertmanager", &arguments, folder);
    (address, program)
}

#[test]
fn a_real_prometheus_and_alertmanager_watch_a_cluster() {
    if !has(&["prometheus", "promtool", "prometheus-alertmanager"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut up = Up::start(&["--flows", "20", "--folder", at.to_str().unwrap()]);
    let (pager, posted) = pager();
    let (alertmanager, _alertmanager) = start_alertmanager(at, &pager);
    up.wait_for("asterism hosts --api");
    up.wait_for("3 of 3 hosts take packets");
    let prometheus = start_prometheus(at, &alertmanager);
    until("four targets that are scraped for six seconds", || {
        let found = prometheus
            .query("count(count_over_time(up[10s]) >= 6) == 4")
            .ok()?;
        (!found.is_empty()).then_some(())
    });

    every_metric_is_there(&prometheus, at);
    every_query_finds_data(&prometheus);
    // A machine that is busy may scrape late; what is well stays so.
    until("a time without alerts", || {
        prometheus.firing().is_empty().then_some(())
    });
    while posted.try_recv().is_ok() {}

    // One host stands still: its own alert arrives. Then all do: no epoch leaves them out, so the orchestrator reports them as silent,
    // and that symptom is inhibited.
    let pids = up.processes();
    signal(pids[1], STOP);
    expect(&posted, "operators", "firing", "HOST-DOWN", "b");
    signal(pids[0], STOP);
    signal(pids[2], STOP);
    expect(&posted, "operators", "firing", "HOST-DOWN", "a");
    until("a symptom that fires", || {
        let symptom = ("HOST-SILENT".to_owned(), "a".to_owned());
        prometheus.firing().contains(&symptom).then_some(())
    });
    until("a symptom that is inhibited", || {
        let alerts: Value = serde_json::from_str(&get(&alertmanager, "/api/v2/alerts")?).ok()?;
        let is_inhibited = |alert: &&Value| {
            let labels = &alert["labels"];
            labels["code"] == "HOST-SILENT"
                && labels["subject"] == "a"
                && alert["status"]["inhibitedBy"]
                    .as_array()
                    .is_some_and(|by| !by.is_empty())
        };
        alerts.as_array()?.iter().find(is_inhibited).map(|_| ())
    });

    // Killed, they are started again, and the alerts end.
    for pid in pids {
        signal(pid, KILL);
    }
    let said = expect(&posted, "operators", "resolved", "HOST-DOWN", "a");
    // Of another host a busy machine may say so for a moment.
    let of_it = said
        .iter()
        .filter(|one| one.2 == "HOST-SILENT" && one.3 == "a");
    let symptoms: Vec<_> = of_it.collect();
    assert!(symptoms.is_empty(), "{symptoms:?}");
    up.kill();
}

/// Waits for a notification; all that came until then.
fn expect(
    posted: &Receiver<Posted>,
    receiver: &str,
    status: &str,
    code: &str,
    subject: &str,
) -> Vec<Posted> {
    let wanted = [receiver, status, code, subject].map(str::to_owned);
    let mut came = Vec::new();
    loop {
        let Ok(one) = posted.recv_timeout(PATIENCE) else {
            panic!("{wanted:?} did not come, but {came:?}");
        };
        let (receiver, status, code, subject) = one.clone();
        came.push(one);
        if [receiver, status, code, subject] == wanted {
            return came;
        }
    }
}

fn every_metric_is_there(prometheus: &Prometheus, folder: &Path) {
    let config = std::fs::read_to_string(folder.join("fast.yml")).unwrap();
    let targets = config.lines().filter_map(|line| {
        let (_, rest) = line.split_once("targets: ['")?;
        Some(rest.split_once('\'')?.0.to_owned())
    });
    let mut known = BTreeSet::new();
    for target in targets {
        let page = until("a page of metrics", || get(&target, "/metrics"));
        let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        known.extend(families.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())));
    }
    assert!(known.len() > 200, "{known:?}");
    let other = text(NOT_CONFIGURED);
    let dashboard = dashboard();
    let panels = panel_queries(&dashboard)
        .into_iter()
        .map(|(_, query)| query);
    let exprs = rules().into_iter().map(|rule| rule.expr).chain(panels);
    for expr in exprs {
        for metric in files::metrics(&expr) {
            let is_known = known.contains(&metric) || other.contains(&format!("# TYPE {metric} "));
            assert!(is_known, "{expr}: no host or orchestrator has {metric}");
        }
    }
    // One that was not looked at yet has no health.
    let healths = until("the rules to be looked at", || {
        let there = prometheus.json("/api/v1/rules")?;
        let groups = there["data"]["groups"].as_array()?.iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
        let healths: Vec<Value> = rules.collect();
        let mut looked_at = healths.iter().map(|rule| rule["health"] != "unknown");
        looked_at.all(|is_so| is_so).then_some(healths)
    });
    for rule in &healths {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    assert_eq!(healths.len(), rules().len());
}

fn every_query_finds_data(prometheus: &Prometheus) {
    let dashboard = dashboard();
    for (title, query) in panel_queries(&dashboard) {
        let query = query
            .replace("$cluster", "up")
            .replace("$host", ".*")
            .replace("$__rate_interval", "10s");
        // Rates need two scrapes of ten seconds, which a busy machine may leave out.
        until(
            &format!("{title}: something to be found by {query}"),
            || match prometheus.query(&query) {
                Ok(found) => (!found.is_empty()).then_some(()),
                Err(why) => panic!("{title}: {query}: {why}"),
            },
        );
    }
    // The pickers of cluster and host.
    let found = prometheus.query("count by (cluster, host) (asterism_build_info{cluster=~\"up\"})");
    assert_eq!(found.unwrap().len(), 3);
}
