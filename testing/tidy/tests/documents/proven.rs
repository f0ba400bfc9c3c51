//! The page of rules names tests and planted bugs that exist.

use std::collections::BTreeSet;

use asterism_tidy::{must_be_empty, read, sources};

use crate::documented::items;

/// The names in the last columns of a page's tables that look like tests (`one_or_two_words`) or planted bugs (`TwoWords`).
fn named(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (place, line) in page.lines().enumerate() {
        let Some(cell) = line
            .strip_suffix(" |")
            .and_then(|row| row.rsplit(" | ").next())
        else {
            continue;
        };
        for name in cell.split('`').skip(1).step_by(2) {
            let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
            let is_test = name.contains('_') && !name.contains(char::is_uppercase);
            let is_bug = name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
            if name.chars().all(is_word) && (is_test || is_bug) {
                found.push((place + 1, name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn what_shows_it_is_there() {
    let planted: BTreeSet<String> = [
        "secure-channel",
        "placement",
        "block-assignment",
        "state-mutants",
        "engine",
        "remote-store",
        "tracking",
        "translation",
        "balancing",
        "detection",
        "functions",
    ]
    .iter()
    .flat_map(|name| {
        let path = format!("crates/{name}/src/mutant.rs");
        items(&path, "asterism_mutant::planted! {", "}")
    })
    .map(|bug| bug.name)
    .collect();
    let code = sources(&[".rs"]);
    let tests: BTreeSet<&str> = code
        .iter()
        .flat_map(|file| file.text.split("fn ").skip(1))
        .filter_map(|rest| Some(rest.split_once('(')?.0))
        .collect();
    let mut faults = Vec::new();
    let path = "docs/src/rules.md";
    let names = named(&read(path));
    assert!(names.len() > 20, "{path} names {}", names.len());
    for (place, name) in names {
        let is_there = planted.contains(&name) || tests.contains(name.as_str());
        if !is_there {
            faults.push(format!(
                "{path}:{place}: there is no test and no planted bug `{name}`"
            ));
        }
    }
    must_be_empty(&faults);
}

#[test]
fn names_are_taken_from_last_columns() {
    let page = "| a | `not_this` | `this_one`, `ThisToo` in `a/path.rs`; `asterism-sim seed 5` |\n`nor_this`\n";
    let found: Vec<_> = named(page).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found, ["this_one", "ThisToo"]);
}
