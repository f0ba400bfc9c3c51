//! What `asterism new` writes builds, passes its tests, and runs a capture on one host and on three.

use std::path::Path;
use std::process::Command;

use asterism::command_line::{self, End};

#[test]
fn a_new_function_builds_is_tested_and_runs() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = crate_folder.join("../..");
    let into = tempfile::tempdir().unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let arguments = [
        "asterism",
        "new",
        "rate-monitor",
        "--into",
        into.path().to_str().unwrap(),
        "--asterism",
        sources.to_str().unwrap(),
    ];
    let end = command_line::run(arguments.map(Into::into), &mut stdout, &mut stderr, false);
    assert_eq!(end, End::Done, "{}", String::from_utf8_lossy(&stderr));

    let folder = into.path().join("rate-monitor");
    // The versions that this workspace is built with: nothing is fetched.
    std::fs::copy(sources.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let cargo = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", target_folder())
            // As the workspace builds its dependencies; what an author builds for the first time needs no more.
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .env("CARGO_INCREMENTAL", "0")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo {arguments:?}:\n{text}");
        text
    };
    let tested = cargo(&["test", "--offline", "-j2"]);
    assert_eq!(tested.matches("2 passed").count(), 1, "{tested}");
    assert!(!tested.contains("warning:"), "{tested}");

    let program = target_folder().join("debug/rate-monitor");
    let run = |arguments: &[&str]| {
        let output = Command::new(&program).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let capture = crate_folder.join("data/trex-http_get_0.pcap");
    let capture = capture.to_str().unwrap();
    let left = folder.join("left.pcap");
    let one = run(&["--in", capture, "--out", left.to_str().unwrap()]);
    assert!(one.starts_with("44 packets of 1 flows"), "{one}");
    assert_eq!(
        std::fs::read(&left).unwrap().len(),
        std::fs::read(capture).unwrap().len()
    );
    let three = run(&["--in", capture, "--hosts", "3"]);
    assert!(three.contains("all hosts agree"), "{three}");
}

/// The target folder of this very test, so that dependencies are not built again.
fn target_folder() -> std::path::PathBuf {
    let this = std::env::current_exe().unwrap();
    this.ancestors().nth(3).unwrap().to_owned()
}
