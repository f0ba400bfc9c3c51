//! `lab.up`: how long `asterism up` takes until the first packet is translated.

use std::process::Command;

use super::lab::product;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "lab.up",
    make: up,
}];

/// Runs, of which the worst counts.
const RUNS: u32 = 5;
const RUNS_FULL: u32 = 20;

fn up(context: &Context) -> Result<Outcome, Failure> {
    let product = product()?;
    let runs = if context.full { RUNS_FULL } else { RUNS };
    let mut figures = Vec::new();
    for run in 1..=runs {
        let output = Command::new(&product)
            .args(["up", "--for", "4", "--format", "json"])
            .output()
            .map_err(|error| Failure::Absent(format!("{}: {error}", product.display())))?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let first = report["first_translated_s"].as_f64();
        let (Some(first), true) = (first, report["holds"] == true) else {
            return Err(Failure::Unsound(format!(
                "run {run}: {report}: {}",
                String::from_utf8_lossy(&output.stderr)
            )));
        };
        context.say(&format!("run {run}: {first:.2} s"));
        figures.push(first);
    }
    figures.sort_by(f64::total_cmp);
    let worst = figures[figures.len() - 1];
    Ok(Outcome::new(worst, runs).variant("median", figures[figures.len() / 2]))
}
