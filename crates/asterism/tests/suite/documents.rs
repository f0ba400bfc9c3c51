//! Every document of `--format json` is what its schema in `schemas/NAME.vN.json` says, with nothing else on standard output.
//!
//! The documents of a running host are validated where hosts run, in `run/`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::validator::{check, validate};
use asterism::command_line;
use serde_json::Value;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn document(arguments: &[&str]) -> Value {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let all = ["asterism", "--format", "json"]
        .into_iter()
        .chain(arguments.iter().copied());
    command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
    serde_json::from_slice(&stdout).unwrap_or_else(|error| {
        panic!(
            "{arguments:?}: {error}: {}",
            String::from_utf8_lossy(&stdout)
        )
    })
}

#[test]
fn every_document_is_as_its_schema_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let good = path("good.toml");
    fs::write(
        &good,
        "[cluster]\nmembers = [\"a\", \"b\"]\n[function.nat]\noutside = [\"203.0.113.1\"]\n",
    )
    .unwrap();
    let bad = here().join("tests/mistakes/types.toml");
    let capture = here().join("../rehearsal/data/trex-dns_0.pcap");
    let documents = [
        (document(&["check", &good]), "asterism.check"),
        (
            document(&["check", bad.to_str().unwrap()]),
            "asterism.check",
        ),
        (
            document(&["check", &path("absent.toml")]),
            "asterism.failure",
        ),
        (document(&["check", "--fields"]), "asterism.fields"),
        (document(&["keygen", &path("a.key")]), "asterism.keygen"),
        (document(&["keygen", &path("a.key")]), "asterism.failure"),
        (document(&["key", &path("a.key"), "--new"]), "asterism.key"),
        (
            document(&["key", &path("a.key"), "--drop", "1"]),
            "asterism.failure",
        ),
        (
            document(&["new", "my-function", "--into", &path("")]),
            "asterism.new",
        ),
        (
            document(&["replay", &good, "--in", capture.to_str().unwrap()]),
            "asterism.replay",
        ),
        (
            document(&["demo", "--conversations", "100"]),
            "asterism.demo",
        ),
    ];
    for (document, name) in &documents {
        assert_eq!(document["schema"]["name"], *name);
        validate(document);
    }
    assert_eq!(documents[0].0["accepted"], true);
    assert_eq!(documents[1].0["accepted"], false);
    assert_eq!(documents[1].0["diagnostics"][0]["line"], 2);
    assert_eq!(documents[1].0["diagnostics"][0]["column"], 8);
}

/// A laboratory says what it is, then stays: its document is read while it runs.
#[test]
fn a_laboratory_has_its_document() {
    if !asterism_lab::permitted() {
        println!("SKIPPED the document of a laboratory: network namespaces need root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("laboratory.toml");
    fs::write(&plan, "[[node]]\nname = \"alone\"\n").unwrap();
    let mut up = Command::new(env!("CARGO_BIN_EXE_asterism"))
        .args(["--format", "json", "lab", "up"])
        .arg(&plan)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    for line in BufReader::new(up.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        text.push_str(&line);
        if line == "}" {
            break;
        }
    }
    up.kill().unwrap();
    up.wait().unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["nodes"][0]["name"], "alone");
    validate(&document);
}

/// What the demonstration in a laboratory shows holds, on interfaces and with hosts that are processes.
#[test]
fn the_demonstration_in_a_laboratory_has_its_document_and_holds() {
    if !asterism_lab::permitted() {
        println!("SKIPPED the demonstration in a laboratory: network namespaces need root");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_asterism"))
        .args([
            "--format",
            "json",
            "lab",
            "demo",
            "--hosts",
            "3",
            "--delay",
            "10ms",
            "--downloads",
            "20",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!(document["schema"]["name"], "asterism.lab-demo");
    assert_eq!(document["holds"], true);
    let connect = |run: usize| document["runs"][run]["connect_ms"].as_f64().unwrap();
    assert!(
        connect(0) >= 1_000.0,
        "a dropped SYN-ACK comes again after a second: {document}"
    );
    assert!(connect(1) >= 10.0 && connect(1) < 1_000.0, "{document}");
}

#[test]
fn the_validator_finds_what_is_wrong() {
    let schema: Value = serde_json::from_str(
        r#"{"type":"object","required":["a"],"properties":{"a":{"type":"integer"},"b":{"type":"array","items":{"enum":["x"]}}},"additionalProperties":false}"#,
    )
    .unwrap();
    for (text, faults) in [
        (r#"{"a":1,"b":["x"]}"#, 0),
        (r#"{"b":["x"]}"#, 1),
        (r#"{"a":"1"}"#, 1),
        (r#"{"a":1,"b":["y"],"c":0}"#, 2),
        ("[]", 2),
    ] {
        let mut wrong = Vec::new();
        check(
            &schema,
            &serde_json::from_str(text).unwrap(),
            "x",
            &mut wrong,
        );
        assert_eq!(wrong.len(), faults, "{text}: {wrong:?}");
    }
}
