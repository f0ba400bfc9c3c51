//! `paper.lines` and `functions.lines`: how long functions are.
//!
//! Lines that are neither blank nor comment, without tests, of the sources that this program was built from. Constellation §6.7
//! compares NATs as they are written for it and for S6, whole. Ours is longer because it does more; so besides the whole there
//! is the part that those have too: a packet of a known session, and of a new one.
//!
//! The *packet path* of a function is the lines of those of its Rust functions that run when a packet is handled, operations
//! and keys of its state included. Not of it: declarations (imports, types, constants), set-up, configuration, what only the
//! control plane calls, and what it takes from a library (`function`, `forwarding`, `translation`, `tracking` and the others that
//! functions are made of), whose lines stand in the variants: there is nothing of one function in them.

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "paper.lines",
        make: paper_lines,
    },
    Measure {
        name: "functions.lines",
        make: functions_lines,
    },
];

/// What a source is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Packets of known sessions and quiet flows, and new ones: what the paper's functions do.
    Path,
    /// Packets that the paper's do not have: ICMP errors, fragments; policies beyond its own.
    Beyond,
    /// What an operator chooses, with its mistakes, and tables for readers.
    Configuration,
    /// What only the control plane calls.
    Control,
    /// Of a library, and nothing that the paper's functions have a counterpart of.
    Library,
}

use Part::{Beyond, Configuration, Control, Library, Path};

/// A source by its name in the function's folder.
#[derive(Clone, Copy)]
struct Source {
    name: &'static str,
    text: &'static str,
    part: Part,
    /// Rust functions of it that no packet runs: they build the function or its state, or answer the control plane.
    aside: &'static [&'static str],
}

macro_rules! source {
    ($folder:literal, $name:literal, $part:expr) => {
        source!($folder, $name, $part, [])
    };
    ($folder:literal, $name:literal, $part:expr, $aside:expr) => {
        Source {
            name: $name,
            text: include_str!(concat!("../../../../crates/", $folder, $name)),
            part: $part,
            aside: &$aside,
        }
    };
}

const NAT: &[Source] = &[
    source!("functions/src/nat/", "clauses.rs", Configuration),
    source!("functions/src/nat/", "export.rs", Control),
    source!(
        "functions/src/nat/",
        "mod.rs",
        Path,
        ["new", "config", "state", "addresses", "schema", "report"]
    ),
];

const BALANCER: &[Source] = &[
    source!("functions/src/balancer/", "config.rs", Configuration),
    source!("functions/src/balancer/", "query.rs", Control),
    source!("functions/src/balancer/", "metrics.rs", Control),
    source!(
        "functions/src/balancer/",
        "mod.rs",
        Path,
        [
            "new",
            "config",
            "usage_place",
            "state",
            "report",
            "metrics",
            "measure"
        ]
    ),
    source!("functions/src/balancer/", "open.rs", Path),
];

const FIREWALL: &[Source] = &[
    source!("functions/src/firewall/", "config.rs", Configuration),
    source!("functions/src/firewall/", "ends.rs", Control),
    source!("functions/src/firewall/", "hits.rs", Control),
    source!("functions/src/firewall/", "metrics.rs", Path, ["measure"]),
    source!(
        "functions/src/firewall/",
        "mod.rs",
        Path,
        [
            "blocked", "events", "new", "config", "state", "report", "metrics", "measure", "schema"
        ]
    ),
    source!("functions/src/firewall/", "note.rs", Path, ["notice"]),
    source!("functions/src/firewall/", "open.rs", Path),
    source!("functions/src/firewall/", "reject.rs", Path),
    source!(
        "functions/src/firewall/",
        "rules.rs",
        Path,
        [
            "fmt",
            "new",
            "bytes",
            "action_of",
            "rules",
            "default_action",
            "default",
            "eq"
        ]
    ),
];

const MONITOR: &[Source] = &[
    source!("functions/src/monitor/", "alarm.rs", Path),
    source!("functions/src/monitor/", "config.rs", Configuration),
    source!("functions/src/monitor/", "election.rs", Control),
    source!("functions/src/monitor/", "flow.rs", Path, ["fmt"]),
    source!("functions/src/monitor/", "ipfix.rs", Control),
    source!("functions/src/monitor/", "query.rs", Control),
    source!("functions/src/monitor/", "metrics.rs", Control),
    source!(
        "functions/src/monitor/",
        "mod.rs",
        Path,
        [
            "protocol_counts",
            "raised",
            "flows_at",
            "sizes_at",
            "new",
            "config",
            "state",
            "report",
            "metrics",
            "measure",
            "schema"
        ]
    ),
    source!("functions/src/monitor/", "sizes.rs", Control),
];

const PORT_SCAN: &[Source] = &[
    source!(
        "functions/src/port_scan/",
        "alert.rs",
        Path,
        [
            "kind",
            "notices",
            "blocks",
            "of_scan",
            "of_prefix",
            "of_volume",
            "of_flood"
        ]
    ),
    source!("functions/src/port_scan/", "config.rs", Configuration),
    source!("functions/src/port_scan/", "learn.rs", Path),
    source!("functions/src/port_scan/", "metrics.rs", Control),
    source!(
        "functions/src/port_scan/",
        "mod.rs",
        Path,
        [
            "alerts", "floods", "blocked", "new", "config", "state", "report", "events", "metrics",
            "measure", "schema"
        ]
    ),
];

const PASS_THROUGH: &[Source] = &[source!("functions/src/", "pass_through.rs", Path)];

/// What `asterism new` writes: a count of packets by source, with a limit. No packet runs what names and measures.
const FLOW_COUNTER: &[Source] = &[source!(
    "asterism/templates/new/src/",
    "lib.rs.in",
    Path,
    ["state", "reasons", "metrics", "measure"]
)];

/// Routers: what was the NAT's own until the balancer needed it too. The paper's NATs have the keys in themselves.
const FORWARDING: &[Source] = &[
    source!("forwarding/src/", "ahead.rs", Library),
    source!("forwarding/src/", "connection.rs", Path),
    source!("forwarding/src/", "ends.rs", Path),
    source!("forwarding/src/", "error.rs", Library),
    source!("forwarding/src/", "fault.rs", Library),
    source!("forwarding/src/", "fragment.rs", Library),
    source!("forwarding/src/", "interface.rs", Library),
    source!("forwarding/src/", "lib.rs", Library),
    source!("forwarding/src/", "link.rs", Library),
    source!("forwarding/src/", "neighbour.rs", Library),
    source!("forwarding/src/", "progress.rs", Path),
    source!("forwarding/src/", "report.rs", Library),
    source!("forwarding/src/", "router.rs", Library),
    source!("forwarding/src/", "state.rs", Library),
    source!("forwarding/src/", "tunnel.rs", Library),
];

/// What translators are made of.
const TRANSLATION: &[Source] = &[
    source!("translation/src/", "bindings.rs", Path),
    source!(
        "translation/src/",
        "accounting/accounts.rs",
        Beyond,
        ["new"]
    ),
    source!("translation/src/", "accounting/blocks.rs", Beyond, ["new"]),
    source!(
        "translation/src/",
        "accounting/events.rs",
        Beyond,
        ["new", "is_of_block", "encode", "decode", "take", "is_empty"]
    ),
    source!(
        "translation/src/",
        "accounting/mod.rs",
        Beyond,
        [
            "read_all",
            "read",
            "write",
            "fmt",
            "new",
            "report",
            "say_for_others"
        ]
    ),
    source!(
        "translation/src/",
        "config.rs",
        Configuration,
        [
            "new",
            "validate",
            "session_idle",
            "check_port_control",
            "check_interfaces",
            "check_addresses",
            "check_routes",
            "check_forwards",
            "check_limits"
        ]
    ),
    source!("translation/src/", "error.rs", Beyond),
    source!("translation/src/", "lib.rs", Library),
    source!(
        "translation/src/",
        "limits.rs",
        Configuration,
        [
            "mask",
            "is_counted",
            "counts_subscribers",
            "check_pools",
            "check_subscribers",
            "write"
        ]
    ),
    source!("translation/src/", "mutant.rs", Library),
    source!("translation/src/", "pcp/message.rs", Beyond),
    source!("translation/src/", "pcp/mod.rs", Beyond),
    source!("translation/src/", "pcp/asked.rs", Beyond),
    source!("translation/src/", "pcp/settings.rs", Beyond, ["idle"]),
    source!("translation/src/", "ports.rs", Path, ["new"]),
    source!("translation/src/", "session.rs", Path, ["fmt"]),
    source!("translation/src/", "state.rs", Library),
    source!(
        "translation/src/",
        "subscribers.rs",
        Beyond,
        ["new", "write"]
    ),
    source!(
        "translation/src/",
        "translator.rs",
        Path,
        ["new", "config", "addresses", "report", "schema", "tables"]
    ),
    source!("translation/src/", "exempt/mod.rs", Beyond),
    source!(
        "translation/src/",
        "exempt/destination.rs",
        Beyond,
        ["all", "check_exempt", "write"]
    ),
    source!("translation/src/", "flows.rs", Path),
    source!("translation/src/", "paths.rs", Path),
];

/// What firewalls are made of.
const TRACKING: &[Source] = &[
    source!("tracking/src/", "flow.rs", Library),
    source!("tracking/src/", "fragments.rs", Library),
    source!("tracking/src/", "half_open.rs", Library),
    source!("tracking/src/", "idle.rs", Library),
    source!("tracking/src/", "lib.rs", Library),
    source!("tracking/src/", "mutant.rs", Library),
    source!("tracking/src/", "opening.rs", Library),
    source!("tracking/src/", "segment.rs", Library),
    source!("tracking/src/", "state.rs", Library),
    source!("tracking/src/", "track.rs", Library),
    source!("tracking/src/", "track/reopening.rs", Library),
    source!("tracking/src/", "track/judge.rs", Library),
    source!("tracking/src/", "tracker.rs", Library),
];

/// What balancers are made of.
const BALANCING: &[Source] = &[
    source!("balancing/src/", "choose.rs", Library),
    source!("balancing/src/", "fate.rs", Library),
    source!("balancing/src/", "check_result.rs", Library),
    source!("balancing/src/", "flow.rs", Library),
    source!("balancing/src/", "affinity.rs", Library),
    source!("balancing/src/", "lib.rs", Library),
    source!("balancing/src/", "maglev.rs", Library),
    source!("balancing/src/", "mutant.rs", Library),
    source!("balancing/src/", "path.rs", Library),
    source!("balancing/src/", "pool.rs", Library),
    source!("balancing/src/", "role.rs", Library),
    source!("balancing/src/", "service.rs", Library),
    source!("balancing/src/", "state.rs", Library),
    source!("balancing/src/", "health_votes.rs", Library),
    source!("balancing/src/", "watch.rs", Library),
];

/// What detectors are made of. The paper's detector finds scans and volumes; floods are beyond it.
const DETECTION: &[Source] = &[
    source!("detection/src/", "bits.rs", Path),
    source!("detection/src/", "observation.rs", Path),
    source!("detection/src/", "evidence.rs", Path),
    source!("detection/src/", "flood.rs", Beyond),
    source!("detection/src/", "handshakes.rs", Beyond),
    source!("detection/src/", "lib.rs", Library),
    source!("detection/src/", "mutant.rs", Library),
    source!("detection/src/", "scan.rs", Path),
    source!("detection/src/", "sources.rs", Path),
    source!("detection/src/", "history.rs", Path),
    source!("detection/src/", "volume.rs", Path),
];

/// Who is blocked.
const BLOCKING: &[Source] = &[
    source!("blocking/src/", "blocked.rs", Library),
    source!("blocking/src/", "manual.rs", Library),
    source!("blocking/src/", "lib.rs", Library),
];

/// The libraries that functions are made of.
const LIBRARIES: [(&str, &[Source]); 6] = [
    ("forwarding", FORWARDING),
    ("translation", TRANSLATION),
    ("tracking", TRACKING),
    ("balancing", BALANCING),
    ("detection", DETECTION),
    ("blocking", BLOCKING),
];

/// The lines of a source that are neither blank nor comment, up to its tests, which come last in every file.
fn code(source: &str) -> impl Iterator<Item = &str> {
    let mut in_comment = false;
    source
        .lines()
        .take_while(|line| line.trim() != "#[cfg(test)]")
        .filter(move |line| {
            let line = line.trim();
            if in_comment || line.starts_with("/*") {
                in_comment = !line.contains("*/");
                return false;
            }
            !line.is_empty() && !line.starts_with("//")
        })
}

fn count(source: &str) -> usize {
    code(source).count()
}

/// The name of the Rust function that a line begins.
fn begins(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let qualifies = |word: &str| word == "const" || word.starts_with("pub");
    before.split_whitespace().all(qualifies).then(|| {
        let end = after.find(['(', '<']).unwrap_or(after.len());
        &after[..end]
    })
}

/// What the lines of a source are: of Rust functions that packets run, of those named in `aside`, and of neither. A function
/// that is a line of code ends there; a longer one at a brace as far in as its beginning, where the formatter puts it.
fn split(source: &str, aside: &[&str]) -> [usize; 3] {
    let mut lines = [0; 3];
    let mut inside: Option<(usize, usize)> = None;
    for line in code(source) {
        let margin = line.len() - line.trim_start().len();
        let (kind, goes_on) = match (inside, begins(line)) {
            (Some((kind, began)), _) => (kind, !(margin == began && line.trim() == "}")),
            (None, Some(name)) => {
                let kind = usize::from(aside.contains(&name));
                (kind, !line.ends_with(['}', ';']))
            }
            (None, None) => (2, false),
        };
        let began = inside.map_or(margin, |(_, began)| began);
        inside = goes_on.then_some((kind, began));
        lines[kind] += 1;
    }
    lines
}

fn paper_lines(context: &Context) -> Result<Outcome, Failure> {
    // The paper's functions have in themselves what of ours is in the libraries that they are made of.
    let functions: [(&str, &[&[Source]]); 3] = [
        ("nat", &[NAT, TRANSLATION, FORWARDING]),
        ("port-scan", &[PORT_SCAN, DETECTION]),
        ("pass-through", &[PASS_THROUGH]),
    ];
    let mut outcome = Outcome::default();
    for (name, sources) in functions {
        let of = |parts: &[Part]| -> usize {
            let sources = sources.iter().copied().flatten();
            let sources = sources.filter(|one| parts.contains(&one.part));
            sources.map(|one| count(one.text)).sum()
        };
        let whole = of(&[Path, Beyond, Configuration]);
        let path = of(&[Path]);
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
        let sources = sources.iter().copied().flatten();
        for one in sources.filter(|one| one.part != Library) {
            outcome = outcome.variant(format!("{name}/{}", one.name), count(one.text) as f64);
        }
    }
    Ok(outcome)
}

/// Functions whose packet path is judged.
const JUDGED: [(&str, &[Source]); 5] = [
    ("nat", NAT),
    ("balancer", BALANCER),
    ("firewall", FIREWALL),
    ("monitor", MONITOR),
    ("port-scan", PORT_SCAN),
];

/// The libraries that they are made of, beside routers, which the NAT shares with the balancer.
const MADE_OF: [(&str, &[Source]); 5] = [
    ("nat", TRANSLATION),
    ("balancer", BALANCING),
    ("firewall", TRACKING),
    ("monitor", &[]),
    ("port-scan", DETECTION),
];

fn functions_lines(context: &Context) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let mut largest = 0;
    for (name, sources) in JUDGED.into_iter().chain([("flow-counter", FLOW_COUNTER)]) {
        let mut lines = [0; 3];
        let mut elsewhere = 0;
        for one in sources {
            if !matches!(one.part, Path | Beyond) {
                elsewhere += count(one.text);
                continue;
            }
            let parts = split(one.text, one.aside);
            for (sum, part) in lines.iter_mut().zip(parts) {
                *sum += part;
            }
            if name != "flow-counter" {
                outcome = outcome.variant(format!("{name}/{}", one.name), parts[0] as f64);
            }
        }
        let [path, aside, declarations] = lines;
        if path == 0 {
            return Err(Failure::Unsound(format!("no packet path of {name}")));
        }
        context.say(&format!(
            "{name}: {path} lines that packets run, {declarations} of declarations, {aside} of set-up, {elsewhere} in sources of configuration and control"
        ));
        outcome = outcome
            .variant(name, path as f64)
            .variant(format!("{name}-declarations"), declarations as f64)
            .variant(format!("{name}-set-up"), (aside + elsewhere) as f64);
        if let Some((_, libraries)) = MADE_OF.iter().find(|(made, _)| *made == name) {
            let lines = libraries.iter().map(|one| split(one.text, one.aside)[0]);
            let both = path + lines.sum::<usize>();
            outcome = outcome.variant(format!("{name}-and-its-libraries"), both as f64);
            largest = largest.max(path);
        }
    }
    for (name, sources) in LIBRARIES {
        let lines: usize = sources.iter().map(|one| count(one.text)).sum();
        outcome = outcome.variant(format!("library-{name}"), lines as f64);
    }
    Ok(outcome.with_value(largest as f64, 1))
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

    #[test]
    fn packets_run_what_is_not_set_aside() {
        let source = "use a;\n\nimpl A {\n    pub(super) const fn new(\n        a: u8,\n    ) -> Self {\n        if a {\n        }\n    }\n\n    \
                      /// One.\n    fn one<T>(&self) {}\n    fn two(\n        &self,\n    ) {\n        // Why.\n        let f = |x| {\n            x\n        };\n    }\n}\n";
        assert_eq!(split(source, &["new"]), [8, 6, 3]);
        assert_eq!(split(source, &[]), [14, 0, 3]);
        let sum: usize = split(source, &["two"]).iter().sum();
        assert_eq!(sum, count(source));
    }

    #[test]
    fn lines_that_begin_a_function_are_known() {
        assert_eq!(begins("    pub(super) const fn one<T>(&self)"), Some("one"));
        assert_eq!(begins("fn of("), Some("of"));
        assert_eq!(begins("    write: impl FnOnce(&mut u8),"), None);
        assert_eq!(begins("    let fn_of = 1;"), None);
        assert_eq!(begins("    next: impl Fn(T) -> fn (u8),"), None);
    }

    #[test]
    fn what_is_set_aside_is_there() {
        let own = JUDGED.into_iter().chain([("flow-counter", FLOW_COUNTER)]);
        for (name, sources) in own.chain(LIBRARIES) {
            for one in sources {
                for aside in one.aside {
                    let found = code(one.text).any(|line| begins(line) == Some(aside));
                    assert!(found, "{name}/{}: no `{aside}`", one.name);
                }
            }
        }
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
        let functions = [
            ("functions/src/nat", NAT),
            ("functions/src/balancer", BALANCER),
            ("functions/src/firewall", FIREWALL),
            ("functions/src/monitor", MONITOR),
            ("functions/src/port_scan", PORT_SCAN),
        ];
        let functions = functions.map(|(folder, sources)| (folder.to_owned(), sources));
        let libraries = LIBRARIES.map(|(name, sources)| (format!("{name}/src"), sources));
        for (folder, sources) in functions.into_iter().chain(libraries) {
            let path = format!("{}/../../crates/{folder}", env!("CARGO_MANIFEST_DIR"));
            let there: BTreeSet<String> = files(path.as_ref())
                .into_iter()
                // The firewall's rule files.
                .filter(|name| !name.starts_with("text/"))
                .collect();
            let counted: BTreeSet<String> = sources.iter().map(|one| one.name.to_owned()).collect();
            assert_eq!(counted, there, "{folder}");
        }
    }

    #[test]
    fn tests_come_last_in_every_source() {
        let judged = JUDGED.iter().flat_map(|(_, sources)| sources.iter());
        let libraries = LIBRARIES.iter().flat_map(|(_, sources)| sources.iter());
        for Source { name, text, .. } in judged.chain(libraries).chain(PASS_THROUGH) {
            if let Some((_, tests)) = text.split_once("\n#[cfg(test)]\n") {
                assert!(tests.starts_with("mod "), "{name}");
                // The module's brace is the last at the margin.
                let at_the_margin = tests.lines().filter(|line| *line == "}").count();
                assert_eq!(at_the_margin, 1, "{name}");
            }
        }
    }
}
