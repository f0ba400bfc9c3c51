//! What came of scenarios, as text and as a document.

use std::time::Duration;

use asterism_config::diagnostic::{DiagnosticDocument, Report};
use asterism_config::value::{show_count, show_duration};
use asterism_output::End;
use asterism_output::Schema;
use serde::Serialize;

/// The schema of [`TestReport`].
pub const TEST: Schema = Schema {
    name: "asterism.test",
    version: 1,
};

/// How far a scenario came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Whether its hosts were started: else it is refused.
    pub is_run: bool,
    /// Whether all its steps held.
    pub holds: bool,
    /// Its steps.
    pub steps: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// How long it lasted on its own clock.
    pub elapsed: Duration,
}

/// What came of scenarios.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TestReport {
    /// Each, in order.
    pub scenarios: Vec<ScenarioReport>,
    /// Those of which every step held.
    pub passed: u64,
    /// Those of which a step did not hold, or that are refused.
    pub failed: u64,
}

/// What came of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioReport {
    /// The file.
    pub file: String,
    /// `passed`, `failed`, or `refused`: it has mistakes, and did not run.
    pub end: &'static str,
    /// Its steps.
    pub steps: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Microseconds that passed on its clock.
    pub elapsed_us: u64,
    /// Warnings, mistakes, and the step that did not hold.
    pub diagnostics: Vec<DiagnosticDocument>,
}

impl ScenarioReport {
    pub(super) fn new(ran: Ran, report: &Report) -> ScenarioReport {
        ScenarioReport {
            file: report.file.clone(),
            end: match (ran.is_run, ran.holds) {
                (false, _) => "refused",
                (true, true) => "passed",
                (true, false) => "failed",
            },
            steps: ran.steps,
            packets: ran.packets,
            elapsed_us: ran.elapsed.as_micros() as u64,
            diagnostics: report.documents(),
        }
    }

    pub(super) fn line(&self) -> String {
        let elapsed = Duration::from_millis(self.elapsed_us / 1_000);
        match self.end {
            "refused" => format!("refused  {}\n", self.file),
            end => format!(
                "{end:7}  {}: {}, {}, {}\n",
                self.file,
                counted(self.steps, "step"),
                counted(self.packets, "packet"),
                show_duration(elapsed)
            ),
        }
    }
}

fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", show_count(count))
}

impl TestReport {
    pub(super) fn add(&mut self, one: ScenarioReport) {
        match one.end {
            "passed" => self.passed += 1,
            _ => self.failed += 1,
        }
        self.scenarios.push(one);
    }

    /// A refused scenario is worse than one that fails.
    pub(super) fn end(&self) -> End {
        if self.scenarios.iter().any(|one| one.end == "refused") {
            End::Configuration
        } else if self.failed > 0 {
            End::DoesNotHold
        } else {
            End::Done
        }
    }

    pub(super) fn line(&self) -> String {
        let (passed, failed) = (show_count(self.passed), show_count(self.failed));
        format!("{passed} passed, {failed} failed\n")
    }
}
