//! Pages with shell blocks, run as they stand there: "Run two hosts" (namespaces, veth pairs, AF_PACKET, `ping`), and "Run a cluster in
//! five minutes", which needs no root.

use std::path::Path;
use std::process::Command;

/// The shell blocks of the page, in order.
fn blocks(page: &str) -> String {
    let mut script = String::from("set -eu\n");
    let mut inside = false;
    for line in page.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => script.push_str(&format!("{line}\n")),
            _ => {}
        }
    }
    script
}

#[test]
fn two_hosts_run_as_the_page_says() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED the page Run two hosts: network namespaces need root");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("../../docs/src/run-two-hosts.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let prefix = format!("ast{}", std::process::id());
    let binary = Path::new(env!("CARGO_BIN_EXE_asterism")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let run = |script: &str| {
        Command::new("bash")
            .args(["-c", script])
            .current_dir(folder.path())
            .env("P", &prefix)
            .env("PATH", &path)
            .output()
            .unwrap()
    };
    let limited = format!(
        "timeout 60 bash -c '{}'",
        blocks(&page).replace('\'', "'\\''")
    );
    let output = run(&limited);
    // Whatever happened, nothing of it stays.
    run(
        "for s in a b; do asterism stop --socket $s.sock; done; for n in switch client server a b; do ip netns delete $P-$n; done",
    );
    let said = format!(
        "{}\n{}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        std::fs::read_to_string(folder.path().join("a.log")).unwrap_or_default(),
        std::fs::read_to_string(folder.path().join("b.log")).unwrap_or_default(),
    );
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said.matches("5 packets transmitted, 5 received").count(),
        2,
        "{said}"
    );
    assert!(
        said.contains("event=state-restored") && said.contains("3 received"),
        "{said}"
    );
}

#[test]
fn stateless_functions_run_as_the_page_says() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED the page Stateless functions on Redis: network namespaces need root");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("../../docs/src/stateless-functions.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let prefix = format!("sto{}", std::process::id());
    let binary = Path::new(env!("CARGO_BIN_EXE_asterism")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let run = |script: &str| {
        Command::new("bash")
            .args(["-c", script])
            .current_dir(folder.path())
            .env("P", &prefix)
            .env("PATH", &path)
            .output()
            .unwrap()
    };
    // Processes that a failed script leaves hold no pipe that is waited for.
    let limited = format!(
        "timeout 90 bash -c 'exec > said 2>&1\n{}' > /dev/null 2>&1",
        blocks(&page).replace('\'', "'\\''")
    );
    let output = run(&limited);
    // Whatever happened, nothing of it stays.
    run(
        "ip netns pids $P-hosts | xargs -r kill -9; for n in client server hosts; do ip netns delete $P-$n; done",
    );
    let written = ["said", "store.log", "a.log", "b.log"]
        .map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default());
    let said = written.concat();
    assert!(output.status.success(), "{said}");
    let received = |count| format!("{count} packets transmitted, {count} received");
    assert_eq!(said.matches(&received(5)).count(), 2, "{said}");
    assert!(said.contains(&received(20)), "{said}");
    assert!(said.contains("3 packets transmitted, 0 received"), "{said}");
    assert!(
        said.contains("needs a look: the store 127.0.0.1:6379"),
        "{said}"
    );
}

#[test]
fn a_cluster_runs_as_the_page_says() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("../../docs/src/five-minutes.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_asterism")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    // A script that fails in the middle leaves the cluster running, which its shell ends.
    let script = format!(
        "trap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT\n{}",
        blocks(&page)
    );
    let output = Command::new("timeout")
        .args(["120", "bash", "-c", &script])
        .current_dir(folder.path())
        .env("PATH", &path)
        .output()
        .unwrap();
    let said = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    assert!(said.contains("b has ended with signal 9"), "{said}");
    assert!(said.contains("b begins incarnation 2"), "{said}");
    assert!(said.contains("Every flow kept its translation"), "{said}");
}
