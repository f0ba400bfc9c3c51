//! `paper.lines`: how long the functions are that the paper has too.
//!
//! Lines that are neither blank nor comment, without tests, of the sources that this program was built from. Constellation §6.7
//! compares NATs as they are written for it and for S6, whole. Ours is longer because it does more; so besides the whole there
//! is the part that those have too: a packet of a known session, and of a new one.

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "paper.lines",
    make: lines,
}];

/// What a source is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Packets of known sessions and quiet flows, and new ones: what the paper's functions do.
    Path,
    /// Packets that the paper's do not have: ICMP errors, fragments, ARP; policies beyond its own.
    Beyond,
    /// What an operator chooses, with its mistakes, and tables for readers.
    Configuration,
}

use Part::{Beyond, Configuration, Path};

/// A source by its name in the function's folder.
type Source = (&'static str, &'static str, Part);

macro_rules! source {
    ($folder:literal, $name:literal, $part:expr) => {
        (
            $name,
            include_str!(concat!("../../../functions/src/", $folder, $name)),
            $part,
        )
    };
}

const NAT: &[Source] = &[
    source!("nat/", "census/accounts.rs", Beyond),
    source!("nat/", "census/blocks.rs", Beyond),
    source!("nat/", "census/events.rs", Beyond),
    source!("nat/", "census/mod.rs", Beyond),
    source!("nat/", "clauses.rs", Configuration),
    source!("nat/", "config.rs", Configuration),
    source!("nat/", "connection.rs", Path),
    source!("nat/", "error.rs", Beyond),
    source!("nat/", "export.rs", Beyond),
    source!("nat/", "fragment.rs", Beyond),
    source!("nat/", "limits.rs", Configuration),
    source!("nat/", "mod.rs", Path),
    source!("nat/", "neighbour.rs", Beyond),
    source!("nat/", "open.rs", Path),
    source!("nat/", "ports.rs", Path),
    source!("nat/", "report.rs", Beyond),
    source!("nat/", "route.rs", Beyond),
    source!("nat/", "session.rs", Path),
    source!("nat/", "subscribers.rs", Beyond),
];

const PORT_SCAN: &[Source] = &[
    source!("port_scan/", "alert.rs", Path),
    source!("port_scan/", "clue.rs", Path),
    source!("port_scan/", "config.rs", Configuration),
    source!("port_scan/", "learn.rs", Path),
    source!("port_scan/", "mod.rs", Path),
    source!("port_scan/", "trail.rs", Path),
    source!("port_scan/", "volume.rs", Path),
];

const PASS_THROUGH: &[Source] = &[source!("", "pass_through.rs", Path)];

/// Lines of a source that are neither blank nor comment, up to its tests, which come last in every file.
fn count(source: &str) -> usize {
    let mut in_comment = false;
    let mut lines = 0;
    for line in source.lines().map(str::trim) {
        if line == "#[cfg(test)]" {
            break;
        }
        if in_comment || line.starts_with("/*") {
            in_comment = !line.contains("*/");
            continue;
        }
        lines += usize::from(!line.is_empty() && !line.starts_with("//"));
    }
    lines
}

fn lines(context: &Context) -> Result<Outcome, Failure> {
    let functions = [
        ("nat", NAT),
        ("port-scan", PORT_SCAN),
        ("pass-through", PASS_THROUGH),
    ];
    let mut outcome = Outcome::default();
    for (name, sources) in functions {
        let of = |parts: &[Part]| -> usize {
            let sources = sources.iter().filter(|(_, _, part)| parts.contains(part));
            sources.map(|(_, source, _)| count(source)).sum()
        };
        let (whole, path) = (of(&[Path, Beyond, Configuration]), of(&[Path]));
        if path == 0 {
            return Err(Failure::Unsound(format!("no lines of {name}")));
        }
        context.say(&format!(
            "{name}: {whole} lines, {path} of them on the paper's path"
        ));
        outcome = outcome
            .variant(format!("{name}-whole"), whole as f64)
            .variant(format!("{name}-path"), path as f64)
            .variant(format!("{name}-beyond-the-paper"), of(&[Beyond]) as f64)
            .variant(format!("{name}-configuration"), of(&[Configuration]) as f64);
        if name == "nat" {
            outcome = outcome.with_value(path as f64, 1);
        }
        for (file, source, _) in sources {
            outcome = outcome.variant(format!("{name}/{file}"), count(source) as f64);
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn only_code_counts() {
        let source = "//! What it is.\n\nuse core::fmt;\n\n/// A thing.\npub struct Thing; // said\n/* a\n b */\n\
                      fn of() {\n    // Why.\n    go()\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
        assert_eq!(count(source), 5);
        assert_eq!(count(""), 0);
    }

    /// The files of a folder and of those in it.
    fn files(folder: &std::path::Path) -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).expect("the function's folder");
        let mut found = BTreeSet::new();
        for entry in entries.map(|entry| entry.expect("its entries")) {
            let name = entry.file_name().into_string().expect("a name");
            if entry.path().is_dir() {
                let inner = files(&entry.path());
                found.extend(inner.into_iter().map(|file| format!("{name}/{file}")));
            } else {
                found.insert(name);
            }
        }
        found
    }

    #[test]
    fn every_source_of_a_function_is_counted() {
        for (folder, sources) in [("nat", NAT), ("port_scan", PORT_SCAN)] {
            let path = format!("{}/../functions/src/{folder}", env!("CARGO_MANIFEST_DIR"));
            let there = files(path.as_ref());
            let counted: BTreeSet<String> = sources
                .iter()
                .map(|(file, _, _)| (*file).to_owned())
                .collect();
            assert_eq!(counted, there, "{folder}");
        }
    }

    #[test]
    fn tests_come_last_in_every_source() {
        for (file, source, _) in [NAT, PORT_SCAN, PASS_THROUGH].concat() {
            if let Some((_, tests)) = source.split_once("\n#[cfg(test)]\n") {
                assert!(tests.starts_with("mod "), "{file}");
                // The module's brace is the last at the margin.
                let at_the_margin = tests.lines().filter(|line| *line == "}").count();
                assert_eq!(at_the_margin, 1, "{file}");
            }
        }
    }
}
