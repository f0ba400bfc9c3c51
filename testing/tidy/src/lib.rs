//! Tests of the tree itself, as TigerBeetle's: layers, bans, lengths of files, dependencies, documents and the code in them.
//!
//! This file only finds files for the tests. `book.rs` makes the chapter of the book that is in no file. `tests/tree` lints the sources, `tests/documents` the pages;
//! `tests/tutorial.rs`, `tests/tutorial_nat.rs`, `tests/objects` and `tests/readme.rs` are the code that the pages show, compiled and run.

pub mod book;
pub mod circles;
pub mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the tree.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path from the root, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl Source {
    /// Its lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(place, line)| (place + 1, line))
    }
}

/// All files of the tree whose names end in one of `endings`, in the order of their paths.
///
/// # Panics
/// When a file cannot be read as UTF-8.
#[must_use]
pub fn sources(endings: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    walk(&root(), &mut paths);
    paths.sort();
    let wanted = |path: &PathBuf| {
        let name = path.to_string_lossy();
        endings.iter().any(|ending| name.ends_with(ending))
    };
    let found = paths.into_iter().filter(wanted).map(|path| {
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path
            .strip_prefix(root())
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        Source { path, text }
    });
    found.collect()
}

/// One file of the tree.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name == "target" || name == ".git" || name == "book" {
            continue;
        }
        if path.is_dir() {
            walk(&path, paths);
        } else {
            paths.push(path);
        }
    }
}

/// Fails with every fault at once, one a line.
///
/// # Panics
/// When there is a fault.
pub fn must_be_empty(faults: &[String]) {
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
