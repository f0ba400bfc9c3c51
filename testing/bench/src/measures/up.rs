//! A cluster of `asterism up` that a measure runs: its lines, orders to it, and its report.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use asterism_lab::pause;
use serde_json::Value;

use crate::contract::Failure;

/// A load that no host has: the policy adds none by itself.
const NEVER: &str = "1000000000";
/// How long the cluster is left alone between two orders.
pub(super) const REST: Duration = Duration::from_secs(3);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster of `asterism up`.
pub(super) struct Up<'a> {
    product: &'a Path,
    process: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    folder: tempfile::TempDir,
    api: String,
}

impl<'a> Up<'a> {
    /// With further arguments.
    pub(super) fn start(product: &'a Path, arguments: &[&str]) -> Result<Up<'a>, Failure> {
        let folder = tempfile::tempdir().map_err(absent)?;
        let mut process = Command::new(product)
            .args(["up", "--format", "json", "--scale-above", NEVER])
            .args(arguments)
            .arg("--folder")
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

    /// The lines so far.
    pub(super) fn said(&self) -> &[String] {
        &self.said
    }

    /// Waits for a line with these words.
    pub(super) fn wait_for(&mut self, words: &str) -> Result<String, Failure> {
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
    pub(super) fn scale(&mut self, to: u32) -> Result<(), Failure> {
        let hosts = to.to_string();
        self.order(&["scale", &hosts])?;
        self.wait_for(&format!("there are {to} hosts, as ordered"))?;
        pause(REST);
        Ok(())
    }

    /// Gives an order by the API.
    pub(super) fn order(&self, order: &[&str]) -> Result<(), Failure> {
        self.ask(&[order, &["--api", &self.api]].concat())
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
    pub(super) fn end(mut self) -> Result<Value, Failure> {
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

pub(super) fn absent(error: impl std::fmt::Display) -> Failure {
    Failure::Absent(error.to_string())
}

pub(super) fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or(0.0)
}
