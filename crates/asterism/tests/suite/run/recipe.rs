//! Pages with shell blocks, run as they stand there: "Run two hosts" (namespaces, veth pairs, AF_PACKET, `ping`), and "Run a cluster in
//! five minutes", which needs no root.

use std::path::Path;
use std::process::{Command, Output};

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

/// A page of the documentation.
fn page(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// A root shell in an empty folder, as the page's reader has it; `P` begins the names of namespaces.
struct RootShell {
    folder: tempfile::TempDir,
    prefix: String,
}

impl RootShell {
    /// `None`, said loudly, without root.
    fn open(name: &str, prefix: &str) -> Option<RootShell> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED the page {name}: network namespaces need root");
            return None;
        }
        Some(RootShell {
            folder: tempfile::tempdir().unwrap(),
            prefix: format!("{prefix}{}", std::process::id()),
        })
    }

    fn run(&self, script: &str) -> Output {
        let binary = Path::new(env!("CARGO_BIN_EXE_asterism")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        Command::new("bash")
            .args(["-c", script])
            .current_dir(self.folder.path())
            .env("P", &self.prefix)
            .env("PATH", &path)
            .output()
            .unwrap()
    }

    /// What is in these files, as far as they are there.
    fn written<const N: usize>(&self, names: [&str; N]) -> String {
        let read = |name| std::fs::read_to_string(self.folder.path().join(name));
        names.map(|name| read(name).unwrap_or_default()).concat()
    }
}

#[test]
fn two_hosts_run_as_the_page_says() {
    let Some(shell) = RootShell::open("Run two hosts", "ast") else {
        return;
    };
    let page = page("run-two-hosts.md");
    let limited = format!(
        "timeout 60 bash -c '{}'",
        blocks(&page).replace('\'', "'\\''")
    );
    let output = shell.run(&limited);
    // Whatever happened, nothing of it stays.
    shell.run(
        "for s in a b; do asterism stop --socket $s.sock; done; for n in switch client server a b; do ip netns delete $P-$n; done",
    );
    let said = format!(
        "{}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        shell.written(["a.log", "b.log"]),
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
    let Some(shell) = RootShell::open("Stateless functions on Redis", "sto") else {
        return;
    };
    let page = page("stateless-functions.md");
    // Processes that a failed script leaves hold no pipe that is waited for.
    let limited = format!(
        "timeout 90 bash -c 'exec > said 2>&1\n{}' > /dev/null 2>&1",
        blocks(&page).replace('\'', "'\\''")
    );
    let output = shell.run(&limited);
    // Whatever happened, nothing of it stays.
    shell.run(
        "ip netns pids $P-hosts | xargs -r kill -9; for n in client server hosts; do ip netns delete $P-$n; done",
    );
    let said = shell.written(["said", "store.log", "a.log", "b.log"]);
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
    let page = page("five-minutes.md");
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
    let runs = said.matches("Every flow kept its translation").count();
    assert_eq!(runs, 3, "{said}");
}
