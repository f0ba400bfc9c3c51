//! What a host says of itself stands in `docs/src/operating.md`: each kind of event that the code can log, and each metric that
//! it can show. A new one that is not on the page is a fault, and so is a row of what nobody says.

use std::collections::BTreeSet;

use asterism_host_view::statistics::COUNTS;
use asterism_tidy::{Source, must_be_empty, read, sources};

const PAGE: &str = "docs/src/operating.md";
/// Words that begin as metrics do and are none.
const NO_METRICS: &[&str] = &["asterism_mutants"];

/// The code below a folder, without its unit tests.
fn code(folder: &str) -> Vec<Source> {
    let mut files = sources(&[".rs"]);
    files.retain(|file| file.path.starts_with(folder));
    assert!(!files.is_empty(), "{folder} has no code");
    for file in &mut files {
        let end = file.text.find("#[cfg(test)]").unwrap_or(file.text.len());
        file.text.truncate(end);
    }
    files
}

/// The names in a section's tables, of the first column, without labels.
fn listed(page: &str, section: &str) -> BTreeSet<String> {
    let lines = page.lines().skip_while(|line| *line != section).skip(1);
    let rows = lines
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `"));
    let first = rows.map(|row| row.split(" | ").next().unwrap_or(row));
    let names: BTreeSet<String> = first
        .flat_map(|cell| cell.split('`').step_by(2))
        .map(|name| name.split('{').next().unwrap_or(name).to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(!names.is_empty(), "{section} lists nothing");
    names
}

/// What stands in quotes after each `mark`; white space between is passed over. Where something else follows, what it is.
fn quoted<'a>(text: &'a str, mark: &str) -> Vec<Result<&'a str, &'a str>> {
    let places = text.match_indices(mark);
    let after = places.map(|(place, _)| text[place + mark.len()..].trim_start());
    let found = after.map(|rest| match rest.strip_prefix('"') {
        Some(rest) => rest.split('"').next().ok_or(rest),
        None => Err(rest.lines().next().unwrap_or(rest)),
    });
    found.collect()
}

#[test]
fn every_event_of_the_log_is_on_the_page() {
    let mut said = BTreeSet::new();
    let mut faults = Vec::new();
    for file in code("crates/host/src/") {
        for mark in ["Event::info(", "Event::warning(", "Event::error("] {
            for kind in quoted(&file.text, mark) {
                match kind {
                    Ok(kind) => {
                        said.insert(kind.to_owned());
                    }
                    Err(rest) => faults.push(format!(
                        "{}: `{mark}{rest}`: an event's kind is written out, so that it can be found",
                        file.path
                    )),
                }
            }
        }
    }
    let page = listed(&read(PAGE), "## The log");
    let missing = said.difference(&page);
    faults.extend(missing.map(|kind| format!("{PAGE} has no `{kind}` below \"The log\"")));
    let made_up = page.difference(&said);
    faults.extend(made_up.map(|kind| format!("{PAGE} has `{kind}`, which nothing logs")));
    must_be_empty(&faults);
}

/// Whether a name is what a pattern with `*` says.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((begin, end)) => name.strip_prefix(begin).is_some_and(|rest| {
            let cuts = rest.char_indices().map(|(cut, _)| cut).chain([rest.len()]);
            cuts.skip(1).any(|cut| fits(end, &rest[cut..]))
        }),
    }
}

/// The names of all metrics; what a counter or a function names itself stands as `NAME`.
fn metrics() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in code("crates/host-metrics/src/") {
        for (place, mark) in file.text.match_indices("\"asterism_") {
            let name = file.text[place + 1..].split('"').next().unwrap_or("");
            let rest = &name[mark.len() - 1..];
            let (begin, end) = name.split_once('{').unwrap_or((name, ""));
            if rest == "{}_total" {
                let counts = COUNTS.iter();
                names.extend(counts.map(|count| format!("asterism_{}_total", count.name)));
            } else if let Some((_, end)) = end.split_once('}') {
                names.insert(format!("{begin}NAME{end}"));
            } else if rest.ends_with('_') {
                names.insert(format!("{name}NAME"));
            } else {
                names.insert(name.to_owned());
            }
        }
    }
    assert!(names.len() > 100, "{}", names.len());
    names
}

/// The names of metrics that a file writes out.
fn metrics_of(path: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in code(path) {
        for (place, _) in file.text.match_indices("\"asterism_") {
            let name = file.text[place + 1..].split('"').next().unwrap_or("");
            if name
                .chars()
                .all(|sign| sign.is_ascii_lowercase() || sign == '_')
            {
                names.insert(name.to_owned());
            }
        }
    }
    assert!(!names.is_empty());
    names
}

/// An orchestrator's metrics are on the page of alerts.
#[test]
fn every_metric_of_an_orchestrator_is_on_its_page() {
    let page = listed(&read("docs/src/alerts.md"), "## What an orchestrator shows");
    let metrics = metrics_of("crates/asterism/src/orchestrate/metrics.rs");
    assert!(metrics.len() > 25, "{metrics:?}");
    let is_shown = |name: &&String| page.iter().any(|pattern| fits(pattern, name));
    let missing = metrics.iter().filter(|name| !is_shown(name));
    let faults: Vec<String> = missing
        .map(|name| format!("docs/src/alerts.md has no `{name}`"))
        .collect();
    must_be_empty(&faults);
}

/// Whether what a page calls a metric is one. Both may have a place for any name.
fn is_metric(metrics: &BTreeSet<String>, word: &str) -> bool {
    let pattern = word.replace("NAME", "*");
    metrics.iter().any(|name| {
        fits(&pattern, name) || fits(&name.replace("NAME", "*"), &word.replace('*', "x"))
    })
}

#[test]
fn every_metric_is_on_the_page() {
    let metrics = metrics();
    let page = listed(&read(PAGE), "## Metrics");
    let mut faults = Vec::new();
    for pattern in &page {
        let subject = pattern.split('*').next().unwrap_or(pattern);
        if subject.len() <= "asterism_".len() {
            faults.push(format!("{PAGE}: `{pattern}` says nothing"));
        }
        if !is_metric(&metrics, pattern) {
            faults.push(format!("{PAGE} has `{pattern}`, which is no metric"));
        }
    }
    let missing = metrics
        .iter()
        .filter(|name| !page.iter().any(|pattern| fits(pattern, name)));
    faults.extend(missing.map(|name| format!("{PAGE} has no `{name}` below \"Metrics\"")));
    must_be_empty(&faults);
}

/// Wherever a page names a metric, there is one.
#[test]
fn metrics_that_pages_name_are_shown() {
    let mut metrics = metrics();
    // The pages of the HTTP API and of alerts have these.
    metrics.extend(metrics_of("crates/api/src/server/counts.rs"));
    metrics.extend(metrics_of("crates/asterism/src/orchestrate/metrics.rs"));
    let is_crate = |word: &str| {
        let folder = word.trim_start_matches("asterism_").replace('_', "-");
        let root = asterism_tidy::root();
        ["crates", "testing"]
            .iter()
            .any(|above| root.join(above).join(&folder).is_dir())
    };
    let mut faults = Vec::new();
    let mut named = 0;
    for page in sources(&[".md"]) {
        for (number, line) in page.lines() {
            for (place, _) in line.match_indices("asterism_") {
                let rest = &line[place..];
                let sign = |sign: char| sign.is_ascii_alphanumeric() || "_*".contains(sign);
                let end = rest.find(|other| !sign(other)).unwrap_or(rest.len());
                let word = &rest[..end];
                let is_none = rest[end..].starts_with("::") || NO_METRICS.contains(&word);
                if is_none || is_crate(word) {
                    continue;
                }
                named += 1;
                if !is_metric(&metrics, word) {
                    faults.push(format!("{}:{number}: `{word}` is no metric", page.path));
                }
            }
        }
    }
    assert!(named > 50, "{named}");
    must_be_empty(&faults);
}

#[test]
fn names_are_found_and_patterns_fit() {
    let page = "## Other\n| `x` | y |\n## The log\n| event | means |\n|---|---|\n| `a`, `b{c}` | `d` |\ntext `e`\n## Next\n| `f` | |\n";
    let found: Vec<_> = listed(page, "## The log").into_iter().collect();
    assert_eq!(found, ["a", "b"]);
    assert_eq!(quoted("f(\n  \"a\") f(b)", "f("), [Ok("a"), Err("b)")]);
    assert!(fits("a_*_total", "a_b_c_total") && !fits("a_*_total", "a__total"));
    assert!(fits("a_*", "a_b") && !fits("a_*", "a_") && !fits("a_*", "b_a_c") && fits("a", "a"));
}
