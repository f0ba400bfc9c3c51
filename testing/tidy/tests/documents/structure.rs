//! Every page is in the book's summary, and every section of the architecture says what was refused.

use std::collections::BTreeSet;

use asterism_tidy::{must_be_empty, read, sources};

#[test]
fn the_summary_has_every_page_once() {
    let summary = read("docs/src/SUMMARY.md");
    let listed: Vec<&str> = summary
        .lines()
        .filter_map(|line| {
            line.split_once("](")?
                .1
                .split_once(')')
                .map(|(target, _)| target)
        })
        .collect();
    let names: BTreeSet<String> = listed
        .iter()
        .map(|target| format!("docs/src/{target}"))
        .collect();
    assert_eq!(names.len(), listed.len(), "a page is listed twice");
    let mut faults = Vec::new();
    for page in sources(&[".md"]) {
        if page.path.starts_with("docs/src/")
            && !page.path.ends_with("SUMMARY.md")
            && !names.contains(&page.path)
        {
            faults.push(format!("{}: not in SUMMARY.md", page.path));
        }
    }
    must_be_empty(&faults);
}

#[test]
fn chapters_of_the_architecture_say_what_was_refused() {
    let mut faults = Vec::new();
    let mut sections = 0;
    for page in sources(&[".md"]) {
        if !page.path.starts_with("docs/src/architecture/") {
            continue;
        }
        for section in page.text.split("\n## ").skip(1) {
            sections += 1;
            let title = section.lines().next().unwrap_or_default();
            if !section.contains("**Refused.**") {
                faults.push(format!("{}: `{title}` refuses nothing", page.path));
            }
        }
    }
    assert!(sections >= 50, "{sections} sections");
    must_be_empty(&faults);
}

#[test]
fn pages_begin_with_their_title() {
    let mut faults = Vec::new();
    for page in sources(&[".md"]) {
        let titles = page
            .text
            .lines()
            .filter(|line| line.starts_with("# "))
            .count();
        if !page.text.starts_with("# ")
            || (titles != 1 && !page.text.contains("```") && !page.path.ends_with("SUMMARY.md"))
        {
            faults.push(format!("{}: needs one title, on its first line", page.path));
        }
    }
    must_be_empty(&faults);
}

/// The last clause of the contract: every function has its section in the library's page and its line in the contract's tests.
#[test]
fn every_function_has_its_section_and_its_contract() {
    let page = read("docs/src/functions.md");
    let contracts = read("crates/functions/tests/suite/contract/mod.rs");
    let mut faults = Vec::new();
    for name in asterism_config::functions::Functions::default().names() {
        let words = name.replace('-', " ");
        let has_section = page.lines().any(|line| {
            let title = line.strip_prefix("## ").map(str::to_lowercase);
            title.is_some_and(|title| title.replace('-', " ").contains(&words))
        });
        if !has_section {
            faults.push(format!("docs/src/functions.md has no section on {name}"));
        }
        let line = format!("\n    {}: ", name.replace('-', "_"));
        if !contracts.contains(&line) {
            faults.push(format!(
                "crates/functions/tests/suite/contract has no {name}"
            ));
        }
    }
    must_be_empty(&faults);
}

/// The parts that the test command runs are those that have a budget.
#[test]
fn every_part_of_the_test_command_has_a_budget() {
    let script = read("test");
    let budget = read(".ci/budget");
    let parts: Vec<&str> = script
        .lines()
        .filter_map(|line| {
            line.strip_prefix("part_")?
                .split_once("()")
                .map(|(name, _)| name)
        })
        .collect();
    let rows: Vec<Vec<&str>> = budget
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(parts, rows.iter().map(|row| row[0]).collect::<Vec<_>>());
    let minutes: u32 = rows.iter().map(|row| row[1].parse::<u32>().unwrap()).sum();
    assert!(minutes <= 25, "{minutes} minutes are more than CI may take");
}
