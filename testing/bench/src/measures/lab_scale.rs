//! `lab.scale` and `lab.launch`: hosts are added and removed under load, in a cluster of `asterism up`. Clients begin flows all the time,
//! and count each request that is not answered.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use asterism_lab::pause;
use serde_json::Value;

use super::lab::product;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "lab.scale",
        make: scale,
    },
    Measure {
        name: "lab.launch",
        make: launch,
    },
];

/// UDP flows that begin in a second; each has 40 requests, and TCP connections are a fifth of them.
const FLOWS: &str = "40";
/// A load that no host has: the policy adds none by itself.
const NEVER: &str = "1000000000";
/// How long the cluster is left alone between two orders.
const REST: Duration = Duration::from_secs(3);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u32 = 1;
const ROUNDS_FULL: u32 = 10;
const LAUNCHES: u32 = 3;
const LAUNCHES_FULL: u32 = 20;

/// A cluster of `asterism up`, with one host to begin with.
struct Up<'a> {
    product: &'a Path,
    process: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    folder: tempfile::TempDir,
    api: String,
}

impl<'a> Up<'a> {
    fn start(product: &'a Path, hosts: &str) -> Result<Up<'a>, Failure> {
        let folder = tempfile::tempdir().map_err(absent)?;
        let mut process = Command::new(product)
            .args(["up", "--format", "json", "--flows", FLOWS])
            .args(["--hosts", hosts, "--scale-above", NEVER, "--folder"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(absent)?;
        let (sender, lines) = channel();
        if let Some(progress) = process.stderr.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(progress).lines().map_while(Result::ok) {
                    // Who reads them may have given up.
                    let _ = sender.send(line);
                }
            });
        }
        let mut up = Up {
            product,
            process,
            lines,
            said: Vec::new(),
            folder,
            api: String::new(),
        };
        let line = up.wait_for("asterism hosts --api ")?;
        up.api = line
            .split_whitespace()
            .nth(3)
            .unwrap_or_default()
            .to_owned();
        Ok(up)
    }

    /// Waits for a line with these words.
    fn wait_for(&mut self, words: &str) -> Result<String, Failure> {
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                let said = self.said.join("\n");
                return Err(Failure::Unsound(format!("no {words:?}: {said}")));
            };
            self.said.push(line.clone());
            if line.contains(words) {
                return Ok(line);
            }
        }
    }

    /// Orders so many hosts, and waits until there are.
    fn scale(&mut self, to: u32) -> Result<(), Failure> {
        let hosts = to.to_string();
        self.ask(&["scale", &hosts, "--api", &self.api])?;
        self.wait_for(&format!("there are {to} hosts, as ordered"))?;
        pause(REST);
        Ok(())
    }

    fn ask(&self, arguments: &[&str]) -> Result<(), Failure> {
        let output = Command::new(self.product).args(arguments).output();
        let output = output.map_err(absent)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::Unsound(format!("{arguments:?}: {said}")))
    }

    /// Ends it; its report.
    fn end(mut self) -> Result<Value, Failure> {
        let folder = self.folder.path().to_string_lossy().into_owned();
        self.ask(&["down", "--folder", &folder])?;
        let mut text = String::new();
        if let Some(mut stdout) = self.process.stdout.take() {
            stdout.read_to_string(&mut text).map_err(absent)?;
        }
        self.process.wait().map_err(absent)?;
        self.said.extend(self.lines.try_iter());
        let report: Value = serde_json::from_str(&text).unwrap_or_default();
        if number(&report, "generator_dropped") > 0.0 {
            return Err(Failure::Unsound(format!(
                "void: clients or servers did not send what was due: {report}"
            )));
        }
        match report["requests"].is_u64() {
            true => Ok(report),
            false => Err(Failure::Unsound(format!(
                "no report: {text}{}",
                self.said.join("\n")
            ))),
        }
    }
}

impl Drop for Up<'_> {
    /// After a failure; hosts are left to `asterism down`, which is tried once.
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let folder = self.folder.path().to_string_lossy().into_owned();
            if self.ask(&["down", "--folder", &folder]).is_err() {
                let _ = self.process.kill();
            }
            let _ = self.process.wait();
        }
    }
}

fn absent(error: impl std::fmt::Display) -> Failure {
    Failure::Absent(error.to_string())
}

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or(0.0)
}

fn scale(context: &Context) -> Result<Outcome, Failure> {
    let product = product()?;
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS };
    let mut up = Up::start(&product, "1..3")?;
    pause(REST);
    for round in 1..=rounds {
        up.scale(3)?;
        up.scale(1)?;
        context.say(&format!("round {round} of {rounds}: 1 to 3 to 1 hosts"));
    }
    let report = up.end()?;
    let sum = |fields: &[&str]| -> f64 { fields.iter().map(|field| number(&report, field)).sum() };
    let lost = sum(&["requests_lost", "packets_dropped_at_links", "packets_wrong"]);
    let broken = sum(&["flows_failed", "flows_broken"]);
    context.say(&format!("{report}"));
    Ok(Outcome::new(lost + broken, rounds)
        .variant("requests", number(&report, "requests"))
        .variant("requests-lost", number(&report, "requests_lost"))
        .variant(
            "dropped-at-links",
            number(&report, "packets_dropped_at_links"),
        )
        .variant("flows", number(&report, "flows_begun"))
        .variant("flows-broken", broken)
        .variant(
            "segments-sent-again",
            number(&report, "segments_sent_again"),
        ))
}

fn launch(context: &Context) -> Result<Outcome, Failure> {
    let product = product()?;
    let launches = if context.full {
        LAUNCHES_FULL
    } else {
        LAUNCHES
    };
    let mut up = Up::start(&product, "1..2")?;
    pause(REST);
    for number in 1..=launches {
        up.scale(2)?;
        if number < launches {
            up.scale(1)?;
        }
    }
    let report = up.end()?;
    let slowest = report["added_host_first_packet_s"].as_f64();
    let slowest =
        slowest.ok_or_else(|| Failure::Unsound(format!("no host was added: {report}")))?;
    Ok(Outcome::new(slowest, launches).variant("requests-lost", number(&report, "requests_lost")))
}
