//! The page of the API: its tables are the code's, and its examples run.

use std::process::Command;

use asterism_api::server::{CODES, Limits};
use asterism_api::tokens;

use crate::start::Started;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/api.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_problem_and_refusal_has_its_row() {
    let page = page();
    for code in CODES {
        let row = format!("| `{}` | {} |", code.code, code.status);
        assert!(page.contains(&row), "docs/src/api.md lacks the row {row}");
    }
    let started = Started::open(|_| ());
    let metrics = asterism_api::testing::Exchange::new("GET", "/metrics")
        .send(started.local())
        .unwrap();
    for line in metrics
        .body
        .lines()
        .filter(|line| line.contains("reason=\""))
    {
        let reason = line.split('"').nth(1).unwrap();
        assert!(
            page.contains(&format!("`{reason}`")),
            "docs/src/api.md lacks the reason {reason}"
        );
    }
}

#[test]
fn the_limits_of_the_page_are_the_codes() {
    let page = page();
    let limits = Limits::default();
    let seconds = |time: std::time::Duration| match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    };
    for (name, value) in [
        ("connections", limits.connections.to_string()),
        (
            "connections_of_address",
            limits.connections_of_address.to_string(),
        ),
        ("streams", limits.streams.to_string()),
        ("streams_of_caller", limits.streams_of_caller.to_string()),
        ("reads_at_once", limits.reads_at_once.to_string()),
        ("orders_at_once", limits.orders_at_once.to_string()),
        ("call_wait", seconds(limits.call_wait)),
        ("call", seconds(limits.call)),
        ("handshake", seconds(limits.handshake)),
        ("headers", seconds(limits.headers)),
        ("body", seconds(limits.body)),
        ("write", seconds(limits.write)),
        ("body_bytes", format!("{} KiB", limits.body_bytes / 1_024)),
        (
            "requests_per_second_of_address",
            limits.requests_per_second_of_address.to_string(),
        ),
        (
            "requests_per_second_of_caller",
            limits.requests_per_second_of_caller.to_string(),
        ),
        ("heartbeat", seconds(limits.heartbeat)),
        ("events", seconds(limits.events)),
        ("reread", seconds(limits.reread)),
        ("stop", seconds(limits.stop)),
    ] {
        let row = format!("| `{name}` | {value} |");
        assert!(page.contains(&row), "docs/src/api.md lacks the row {row}");
    }
}

#[test]
fn the_file_of_tokens_that_the_page_shows_is_accepted() {
    let page = page();
    let block = page
        .split("```text\n")
        .find(|block| block.starts_with("[[token]]"));
    let block = block.unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    std::fs::write(&path, block).unwrap();
    assert_eq!(tokens::read(&path).unwrap().all().len(), 2);
}

/// The blocks of the page that call `curl` are run against a server with tokens, and each must be answered.
#[test]
fn the_examples_of_the_page_run() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("SKIPPED the API's examples: curl is not installed: apt-get install curl");
        return;
    }
    let (started, secrets) = Started::guarded(|_| ());
    started.cluster.change(|snapshot| {
        for (host, name) in snapshot.hosts.iter_mut().zip(["alpha", "beta", "gamma"]) {
            host.name = name.to_owned();
        }
    });
    let token = started.folder.path().join("token");
    std::fs::write(
        &token,
        format!("Authorization: Bearer {}\n", secrets.operator),
    )
    .unwrap();
    let page = page();
    let mut run = 0;
    for block in page.split("```sh\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let joined = block.replace("\\\n", " ");
        for line in joined.lines().filter(|line| line.starts_with("curl ")) {
            let line = line
                .replace(
                    "https://api.example:8443",
                    &format!("http://{}", started.local()),
                )
                .replace("@token", &format!("@{}", token.display()))
                .replace("--cacert ca.pem", "--fail-with-body --max-time 2");
            assert!(!line.contains("example"), "{line}");
            let done = Command::new("sh").args(["-c", &line]).output().unwrap();
            let answer = String::from_utf8_lossy(&done.stdout);
            // A stream goes on until its reader has had enough: 28 is curl's status for that.
            let expected = if line.contains("/stream") {
                Some(28)
            } else {
                Some(0)
            };
            assert_eq!(done.status.code(), expected, "{line}\n{answer}");
            run += 1;
        }
    }
    assert!(run >= 8, "{run} examples");
    assert_eq!(started.cluster.orders().len(), 4);
}
