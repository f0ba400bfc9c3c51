//! The shipped files, as the tests read them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(super) const FOLDER: &str = "packaging/prometheus";

pub(super) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

pub(super) fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// An alert rule.
#[derive(Debug, Default)]
pub(super) struct Rule {
    pub group: String,
    pub alert: String,
    pub expr: String,
    pub wait_s: u64,
    pub code: String,
    pub severity: String,
    pub summary: String,
    pub description: String,
    pub runbook_url: String,
}

/// The rules, in their order. They have one line a field.
pub(super) fn rules() -> Vec<Rule> {
    let (mut rules, mut group): (Vec<Rule>, _) = (Vec::new(), String::new());
    for line in text(&format!("{FOLDER}/alerts.yml")).lines() {
        let line = line.trim().trim_start_matches("- ");
        let Some((field, value)) = line.split_once(": ") else {
            continue;
        };
        let quoted = value
            .strip_prefix('\'')
            .and_then(|rest| rest.strip_suffix('\''));
        let value = quoted.map_or_else(|| value.to_owned(), |inside| inside.replace("''", "'"));
        match field {
            "name" => group = value,
            "alert" => rules.push(Rule {
                group: group.clone(),
                alert: value,
                ..Rule::default()
            }),
            field => {
                let Some(rule) = rules.last_mut() else {
                    continue;
                };
                match field {
                    "expr" => rule.expr = value,
                    "for" => rule.wait_s = seconds(&value),
                    "code" => rule.code = value,
                    "severity" => rule.severity = value,
                    "summary" => rule.summary = value,
                    "description" => rule.description = value,
                    "runbook_url" => rule.runbook_url = value,
                    _ => {}
                }
            }
        }
    }
    rules
}

fn seconds(time: &str) -> u64 {
    let (number, unit) = time.split_at(time.len() - 1);
    let unit = if unit == "m" { 60 } else { 1 };
    number.parse::<u64>().unwrap() * unit
}

/// A rule of inhibition: the codes of causes, and those of their symptoms.
#[derive(Debug)]
pub(super) struct Inhibition {
    pub causes: Vec<String>,
    pub symptoms: Vec<String>,
}

pub(super) fn inhibitions() -> Vec<Inhibition> {
    let text = text(&format!("{FOLDER}/alertmanager.yml"));
    let codes = |line: &str| -> Vec<String> {
        let (_, rest) = line.split_once("code=").expect("a matcher of codes");
        let rest = rest.trim_start_matches('~').trim_start_matches('"');
        let (codes, _) = rest.split_once('"').unwrap();
        codes.split('|').map(str::to_owned).collect()
    };
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("_matchers:"))
        .collect();
    let pairs = lines.chunks(2).map(|pair| {
        assert!(pair[0].contains("source_") && pair[1].contains("target_"));
        Inhibition {
            causes: codes(pair[0]),
            symptoms: codes(pair[1]),
        }
    });
    pairs.collect()
}

pub(super) fn dashboard() -> Value {
    serde_json::from_str(&text("packaging/grafana/asterism.json")).unwrap()
}

/// The panels' queries, each with the panel's title.
pub(super) fn panel_queries(dashboard: &Value) -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((
                title.to_owned(),
                target["expr"].as_str().unwrap().to_owned(),
            ));
        }
    }
    queries
}

/// The metrics that an expression names.
pub(super) fn metrics(expr: &str) -> BTreeSet<String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expr.split(|letter: char| !is_letter(letter));
    let named = words.filter(|word| word.starts_with("asterism_"));
    named.map(str::to_owned).collect()
}

/// The values of a label in an expression's selectors.
pub(super) fn values(expr: &str, label: &str) -> Vec<String> {
    let mut values = Vec::new();
    for operator in ["=\"", "=~\""] {
        let mut rest = expr;
        while let Some(at) = rest.find(&format!("{label}{operator}")) {
            rest = &rest[at + label.len() + operator.len()..];
            let (inside, _) = rest.split_once('"').unwrap();
            values.extend(inside.split('|').map(str::to_owned));
        }
    }
    values
}
