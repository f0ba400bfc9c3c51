//! Rules that a reader of any source file may rely on.

use asterism_tidy::{Source, must_be_empty, sources};

/// Lines past which a file surely has a second subject.
const LINES_MAX: usize = 700;
/// Files that are longer, with the lines that they may have until they are split. May only shrink.
const LONGER: &[(&str, usize)] = &[];

/// Files that may say `unsafe`: views of raw memory, rings between threads, kernel interfaces.
const UNSAFE: &[&str] = &[
    "testing/bench/src/",
    "testing/bench/tests/",
    "crates/io/src/frame.rs",
    "crates/io/src/pages.rs",
    "crates/io/src/port/system/",
    "crates/io/src/ring/record.rs",
    "crates/engine/src/transport/kernel/",
    "crates/engine/tests/",
    "crates/function/src/testkit/allocations.rs",
    "crates/io/tests/",
    "crates/lab/src/clock.rs",
    "crates/lab/src/interface.rs",
    "crates/lab/src/namespace.rs",
    "crates/lab/src/wire/socket.rs",
    "crates/memory/src/index.rs",
    "crates/memory/src/region.rs",
    "crates/memory/src/region/ahead.rs",
    "testing/oracle/src/live/socket.rs",
    "crates/placement/tests/replicated_allocations.rs",
    "crates/state/src/accumulator/writer_counters.rs",
    "crates/state/src/table/mod.rs",
    "crates/state/src/table/record.rs",
    "crates/state/tests/",
];

fn rust() -> Vec<Source> {
    let all = sources(&[".rs"]).into_iter();
    all.filter(|source| !source.path.starts_with("testing/tidy/tests/tree/"))
        .collect()
}

#[test]
fn files_have_one_subject() {
    let mut faults = Vec::new();
    for source in rust() {
        let most = LONGER
            .iter()
            .find(|(path, _)| *path == source.path)
            .map_or(LINES_MAX, |(_, lines)| *lines);
        let lines = source.text.lines().count();
        if lines > most {
            faults.push(format!(
                "{}: {lines} lines, at most {most}: look for the second subject",
                source.path
            ));
        }
    }
    for (path, _) in LONGER {
        if !rust()
            .iter()
            .any(|source| source.path == *path && source.text.lines().count() > LINES_MAX)
        {
            faults.push(format!("{path}: no longer in need of an exception"));
        }
    }
    must_be_empty(&faults);
}

#[test]
fn nothing_is_left_to_do_or_skipped() {
    let banned = [
        ("todo!(", "finish it"),
        ("unimplemented!(", "finish it"),
        ("#[ignore", "a test that does not run is no test"),
        (
            "TODO",
            "say what is missing in the documents or make an issue",
        ),
        (
            "FIXME",
            "say what is missing in the documents or make an issue",
        ),
        (
            "XXX",
            "say what is missing in the documents or make an issue",
        ),
    ];
    let mut faults = Vec::new();
    for source in rust() {
        for (number, line) in source.lines() {
            for (word, cure) in banned {
                if line.contains(word) {
                    faults.push(format!("{}:{number}: `{word}`: {cure}", source.path));
                }
            }
        }
    }
    must_be_empty(&faults);
}

#[test]
fn names_say_what_is_inside() {
    let banned = [
        "util", "utils", "common", "helper", "helpers", "manager", "misc",
    ];
    let mut faults = Vec::new();
    for source in rust() {
        let parts = source.path.trim_end_matches(".rs").split('/');
        if parts.into_iter().any(|part| banned.contains(&part)) {
            faults.push(format!("{}: name it after what it holds", source.path));
        }
    }
    must_be_empty(&faults);
}

#[test]
fn unsafe_code_is_where_it_is_expected() {
    let mut faults = Vec::new();
    for source in rust() {
        let allowed = UNSAFE.iter().any(|path| source.path.starts_with(path));
        for (number, line) in source.lines() {
            let code = line.split("//").next().unwrap_or(line);
            let says = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
                .iter()
                .any(|word| code.contains(word));
            if says && !allowed {
                faults.push(format!(
                    "{}:{number}: `unsafe` outside the files listed in this test",
                    source.path
                ));
            }
        }
    }
    must_be_empty(&faults);
}

/// The first line that a reader sees says what the module is.
#[test]
fn every_module_of_the_product_opens_with_its_documentation() {
    let mut faults = Vec::new();
    for source in rust() {
        if source.path.starts_with("crates/")
            && source.path.contains("/src/")
            && !source.text.starts_with("//!")
        {
            faults.push(format!("{}: must begin with `//!`", source.path));
        }
    }
    must_be_empty(&faults);
}

/// Clocks and locks are handed in; a file that reads or takes one itself must say why beside the permission.
#[test]
fn permissions_to_be_ambient_have_a_reason() {
    let mut faults = Vec::new();
    for source in rust() {
        let flat: String = source.text.split_whitespace().collect::<Vec<_>>().join(" ");
        for permission in ["clippy::disallowed_methods", "clippy::disallowed_types"] {
            for (place, _) in flat.match_indices(permission) {
                let attribute = &flat[place..];
                let attribute = attribute.split(")]").next().unwrap_or(attribute);
                if !attribute.contains("reason =") {
                    faults.push(format!(
                        "{}: `{permission}` is allowed without a reason",
                        source.path
                    ));
                }
            }
        }
    }
    must_be_empty(&faults);
}

/// What is written here must mean something to anyone who clones it.
#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let mut faults = Vec::new();
    for source in sources(&[".rs", ".md", ".toml", ".yml", "test", "run"]) {
        if source.path.starts_with("testing/tidy/tests/tree/") || source.path.contains("/corpus/") {
            continue;
        }
        for (number, line) in source.lines() {
            if ["/work/", "/root/", "/home/"]
                .iter()
                .any(|path| line.contains(path))
            {
                faults.push(format!("{}:{number}: a path of one machine", source.path));
            }
        }
    }
    must_be_empty(&faults);
}
