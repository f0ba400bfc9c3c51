//! The page "Write your first network function", its section of a program of its own, run as it stands there: `asterism new`, the
//! tests, the contract, configurations and captures.

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
            // Each is shown before what it says.
            line if inside => script.push_str(&format!("echo '+ {line}'\n{line}\n")),
            _ => {}
        }
    }
    script
}

/// Dependencies as the workspace builds them, so that most are there already; an author's are optimised, which takes two minutes.
const AS_HERE: &str = "\
[profile.dev.package.'*']
opt-level = 0
debug = false
[profile.dev.package.ring]
opt-level = 3
";

#[test]
fn a_new_function_does_what_the_tutorial_says() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = crate_folder.join("../..").canonicalize().unwrap();
    let page = std::fs::read_to_string(sources.join("docs/src/tutorial.md")).unwrap();
    let script = blocks(&page);
    for command in [
        "asterism new",
        "cargo test",
        "check three.toml",
        "replay three.toml",
    ] {
        assert!(script.contains(command), "the page has no `{command}`");
    }
    let folder = tempfile::tempdir().unwrap();
    // The page's `asterism new` takes the sources from the internet: here from this folder, with the versions that this workspace is
    // built with, so that nothing is fetched. Nothing else differs.
    let asterism = format!(
        "#!/bin/bash\nset -eu\n\"{}\" \"$@\" --asterism \"{}\"\ncp \"{}\" \"$2/\"\n",
        env!("CARGO_BIN_EXE_asterism"),
        sources.display(),
        sources.join("Cargo.lock").display(),
    );
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("asterism"), asterism).unwrap();
    std::fs::create_dir(folder.path().join(".cargo")).unwrap();
    std::fs::write(folder.path().join(".cargo/config.toml"), AS_HERE).unwrap();
    let capture = crate_folder.join("../rehearsal/data/trex-http_get_0.pcap");
    let began = asterism_io::clock::MonotonicClock::new();
    let output = Command::new("bash")
        .args(["-c", &format!("chmod +x bin/asterism\n{script}")])
        .current_dir(folder.path())
        .env(
            "PATH",
            format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()),
        )
        .env("CAPTURE", &capture)
        .env("CARGO_TARGET_DIR", target_folder())
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_BUILD_JOBS", "2")
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_INCREMENTAL", "0")
        .output()
        .unwrap();
    println!(
        "the commands of the page took {} s",
        began.now().as_micros() / 1_000_000
    );
    let said = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    // Two tests of the function, and one for each clause of the contract.
    assert_eq!(said.matches("13 passed").count(), 1, "{said}");
    // The compiler sums up its warnings so; that three hosts of one process have no key is a warning of the program.
    assert!(!said.contains(") generated "), "{said}");
    let after = |line: &str| {
        let (_, rest) = said
            .split_once(&format!("+ cargo run -- {line}\n"))
            .unwrap();
        rest.split("\n+ ").next().unwrap().to_owned()
    };
    let fields = after("check --fields");
    assert!(fields.contains("[function.rate-monitor]") && fields.contains("[function.nat]"));
    assert!(after("check one.toml").contains("each source may send 100 packets"));
    let one = after("replay one.toml --in $CAPTURE --out left.pcap");
    assert!(said.contains("44 packets of 1 flows"), "{one}");
    let made = folder.path().join("rate-monitor");
    assert_eq!(
        std::fs::read(made.join("left.pcap")).unwrap().len(),
        std::fs::read(&capture).unwrap().len()
    );
    assert!(after("check three.toml").contains("rate-monitor.packets"));
    assert!(said.contains("all hosts agree"), "{said}");

    // A mistake is shown at its line; a share that is used up is dropped by its own name.
    let program = target_folder().join("debug/rate-monitor");
    let config = made.join("one.toml");
    let run = |text: &str, arguments: &[&str]| {
        std::fs::write(&config, text).unwrap();
        let output = Command::new(&program)
            .args(arguments)
            .arg(&config)
            .args(
                ["--in", capture.to_str().unwrap()]
                    .iter()
                    .filter(|_| arguments == ["replay"]),
            )
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text) = run("[function.rate-monitor]\n\npacket_max = 3\n", &["check"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("one.toml:3:") && text.contains("did you mean `packets_max`?"),
        "{text}"
    );
    let (code, text) = run("[function.rate-monitor]\npackets_max = 3\n", &["replay"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("share-used-up"), "{text}");
}

/// The target folder of this very test, so that dependencies are not built again.
fn target_folder() -> std::path::PathBuf {
    let this = std::env::current_exe().unwrap();
    this.ancestors().nth(3).unwrap().to_owned()
}
