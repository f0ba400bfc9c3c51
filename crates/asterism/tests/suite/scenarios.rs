//! Scenario files: those of every function hold, and what does not hold, or is no scenario, is reported so that it can be mended. Each
//! `failing/NAME.scenario` has what is said of it in `failing/NAME.txt`; `ASTERISM_BLESS=1` writes these again, to be read before they
//! are committed.

use std::fs;
use std::path::{Path, PathBuf};

use asterism::command_line;
use asterism_output::End;

fn run(arguments: &[&str]) -> (End, String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let all = ["asterism"].into_iter().chain(arguments.iter().copied());
    let end = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
    (
        end,
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names
        .filter_map(|name| name.strip_suffix(".scenario").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// In two halves side by side: a scenario takes as long as its virtual time has events.
#[test]
fn every_scenario_holds() {
    let folder = folder();
    let names = names(&folder);
    let half = |odd: usize| {
        let names: Vec<_> = names.iter().skip(odd).step_by(2).collect();
        let file = |name: &&String| folder.join(format!("{name}.scenario"));
        let files: Vec<PathBuf> = names.iter().map(file).collect();
        let files = files.iter().map(|file| file.to_str().unwrap());
        let arguments: Vec<&str> = ["test"].into_iter().chain(files).collect();
        let (end, stdout, stderr) = run(&arguments);
        assert_eq!(stderr, "", "nothing but results is said");
        assert_eq!(end, End::Done, "{stdout}");
        for name in &names {
            assert!(
                stdout.contains(&format!("/{name}.scenario: ")),
                "{name}: {stdout}"
            );
        }
        let all = format!("{} passed, 0 failed\n", names.len());
        assert!(stdout.contains(&all), "{stdout}");
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        half(0);
        other.join().unwrap();
    });
}

/// A function that nobody wrote a scenario for is missed here.
#[test]
fn every_function_has_a_scenario() {
    let folder = folder();
    let text: String = names(&folder)
        .iter()
        .map(|name| fs::read_to_string(folder.join(format!("{name}.scenario"))).unwrap())
        .collect();
    for function in asterism_config::functions::Functions::default().names() {
        // Copies need a third port, which these hosts have not; what passes everything has nothing to expect.
        if !["span", "pass-through"].contains(&function) {
            assert!(
                text.contains(&format!("[function.{function}")),
                "{function}"
            );
        }
    }
}

#[test]
fn what_does_not_hold_is_reported_so_that_it_can_be_mended() {
    let folder = folder().join("failing");
    let mut wrong = Vec::new();
    let names = names(&folder);
    assert!(names.len() >= 8);
    for name in names {
        let file = folder.join(format!("{name}.scenario"));
        let (end, stdout, stderr) = run(&["test", file.to_str().unwrap()]);
        let expected = match name.starts_with("mistakes") {
            true => End::Configuration,
            false => End::DoesNotHold,
        };
        assert_eq!(end, expected, "{name}: {stdout}{stderr}");
        assert!(stderr.contains("error: "), "{name}: {stderr}");
        let said = format!("{stderr}{stdout}").replace(&format!("{}/", folder.display()), "");
        assert!(
            said.contains(&format!("{name}.scenario:")),
            "{name}: a line is reported: {said}"
        );
        let golden = file.with_extension("txt");
        if std::env::var_os("ASTERISM_BLESS").is_some() {
            fs::write(&golden, &said).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != said {
            wrong.push(format!("--- {name}\n{said}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "these messages are not as written down:\n{}",
        wrong.join("\n")
    );
}

/// A scenario that holds does so no more when any one of its demands is changed.
#[test]
fn demands_that_are_changed_do_not_hold() {
    let scenarios = folder();
    let text = fs::read_to_string(scenarios.join("nat.scenario")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.scenario");
    for (from, to) in [
        ("\"me\" on b", "\"you\" on b"),
        ("\"me\" on b", "\"me\" on c"),
        (
            "expect outside udp 203.0.113.1:$port > 198.51.100.1:53 \"who?\" on a",
            "expect inside udp 203.0.113.1:$port > 198.51.100.1:53",
        ),
        ("drop no-binding", "drop filtered"),
        ("drop no-binding", "expect nothing"),
        ("table sessions 1", "table sessions 2"),
        ("table sessions 3 on a", "table sessions 4 on a"),
        (
            "state sessions 10.0.0.8:4000",
            "state sessions 10.0.0.9:4000",
        ),
        (
            "state sessions 10.0.0.8:4000",
            "state sessions 10.0.0.8:4000 absent",
        ),
        ("return a\nwait 2s", "return a"),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let (end, stdout, stderr) = run(&["test", path.to_str().unwrap()]);
        assert_eq!(end, End::DoesNotHold, "{from} -> {to}: {stdout}{stderr}");
        assert!(stdout.starts_with("failed "), "{stdout}");
    }
}

#[test]
fn the_document_is_as_its_schema_says() {
    let folder = folder();
    let (good, bad) = (folder.join("nat.scenario"), folder.join("failing"));
    let arguments = [
        "--format",
        "json",
        "test",
        good.to_str().unwrap(),
        bad.to_str().unwrap(),
    ];
    let (end, stdout, _) = run(&arguments);
    assert_eq!(end, End::Configuration);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    crate::validator::validate(&document);
    assert_eq!(document["passed"], 1);
    assert_eq!(document["scenarios"][0]["end"], "passed");
    let (end, ..) = run(&["test", "/nonexistent/x.scenario"]);
    assert_eq!(end, End::File);
    let empty = tempfile::tempdir().unwrap();
    let (end, _, stderr) = run(&["test", empty.path().to_str().unwrap()]);
    assert_eq!(end, End::File);
    assert!(stderr.contains("names end in .scenario"), "{stderr}");
}

/// The hosts of a scenario are in one process: what the state channel between processes needs, they do not.
#[test]
fn a_configuration_with_ports_needs_no_key_here() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ports.scenario");
    let text = "[cluster]\nmembers = [\"a\", \"b\"]\n[port]\ninside.interface = \"eth1\"\noutside.interface = \"eth2\"\n\
                [function.pass-through]\n---\nsend a inside udp 10.0.0.7:5000 > 198.51.100.1:53\npass\n";
    fs::write(&path, text).unwrap();
    let (end, stdout, stderr) = run(&["test", path.to_str().unwrap()]);
    assert_eq!((end, stderr.as_str()), (End::Done, ""), "{stdout}");
}

/// What the page shows holds, and what it shows of a failure is what is said.
#[test]
fn the_scenario_of_the_page_is_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/scenarios.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks: Vec<_> = page.split("```text\n").skip(1).collect();
    let block = |begin: &str| {
        let block = blocks
            .iter()
            .find(|block| block.starts_with(begin))
            .unwrap();
        block.split_once("```").unwrap().0.to_owned()
    };
    let scenario = block("[cluster]");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nat.scenario");
    let run_as = |text: &str| {
        fs::write(&path, text).unwrap();
        let (end, stdout, stderr) = run(&["test", path.to_str().unwrap()]);
        let here = format!("{}/", folder.path().display());
        (end, stdout.replace(&here, ""), stderr.replace(&here, ""))
    };
    let (end, stdout, stderr) = run_as(&scenario);
    assert_eq!(end, End::Done, "{stderr}");
    let shown: String = stdout.lines().map(|line| format!("    {line}\n")).collect();
    assert!(page.contains(&shown), "the page shows {shown}");
    let wrong = scenario.replacen(
        "203.0.113.1:$port > 198.51.100.1:53",
        "203.0.113.2:$port > 198.51.100.1:53",
        1,
    );
    let (end, _, stderr) = run_as(&wrong);
    assert_eq!(end, End::DoesNotHold);
    assert_eq!(stderr.trim_end(), block("error: ").trim_end());

    // The same steps for a configuration in a file of its own.
    let (configuration, steps) = scenario.split_once("---\n").unwrap();
    fs::write(folder.path().join("edge.toml"), configuration).unwrap();
    let (end, _, stderr) = run_as(&format!("configuration = \"edge.toml\"\n---\n{steps}"));
    assert_eq!(end, End::Done, "{stderr}");
    let (end, _, stderr) = run_as(&format!("configuration = \"other.toml\"\n---\n{steps}"));
    assert_eq!(end, End::Configuration);
    assert!(stderr.contains("other.toml"), "{stderr}");
}
