//! Every document of `--format json` is what its schema in `schemas/NAME.vN.json` says, with nothing else on standard output.
//!
//! The validator knows the few words of JSON Schema that the schemas use, and refuses a schema with any other.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// What is wrong with a value, by the schema.
fn check(schema: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    for (word, said) in schema.as_object().expect("a schema is an object") {
        let good = match word.as_str() {
            "$schema" | "title" | "description" => true,
            "const" => value == said,
            "enum" => said.as_array().unwrap().contains(value),
            "type" => match said.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_u64() || value.is_i64(),
                "number" => value.is_number(),
                other => panic!("unknown type {other}"),
            },
            "required" => said
                .as_array()
                .unwrap()
                .iter()
                .all(|name| value.get(name.as_str().unwrap()).is_some()),
            "properties" => {
                for (name, inner) in said.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        check(inner, value, &format!("{place}.{name}"), wrong);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, value) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(name)) {
                        continue;
                    }
                    match said {
                        Value::Bool(false) => {
                            wrong.push(format!("{place}.{name} is not in the schema"))
                        }
                        inner => check(inner, value, &format!("{place}.{name}"), wrong),
                    }
                }
                true
            }
            "items" => {
                for (number, value) in value.as_array().into_iter().flatten().enumerate() {
                    check(said, value, &format!("{place}[{number}]"), wrong);
                }
                true
            }
            other => panic!("the validator does not know `{other}`"),
        };
        if !good {
            wrong.push(format!("{place}: {value} against {word} {said}"));
        }
    }
}

fn validate(document: &Value) {
    let schema = &document["schema"];
    let name = schema["name"]
        .as_str()
        .expect("a document names its schema");
    let version = schema["version"]
        .as_u64()
        .expect("a document has a version");
    let path = here().join(format!("schemas/{name}.v{version}.json"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut wrong = Vec::new();
    check(
        &serde_json::from_str(&text).unwrap(),
        document,
        name,
        &mut wrong,
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
    let capture = here().join("data/trex-dns_0.pcap");
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
