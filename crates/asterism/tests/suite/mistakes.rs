//! Every kind of mistake in a configuration, with the messages that an operator sees. Each `mistakes/NAME.toml` has its messages
//! in `mistakes/NAME.txt`; `ASTERISM_BLESS=1` writes them again, to be read before they are committed.

use std::fs;
use std::path::Path;

use asterism::command_line;
use asterism_output::End;

fn check(arguments: &[&str]) -> (End, String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let all = ["asterism"]
        .into_iter()
        .chain(arguments.iter().copied())
        .map(Into::into);
    let end = command_line::run(all, &mut stdout, &mut stderr, false);
    (
        end,
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

#[test]
fn messages_are_as_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    files.sort();
    assert!(files.len() > 20);
    let mut wrong = Vec::new();
    for file in files {
        let (end, stdout, stderr) = check(&["check", file.to_str().unwrap()]);
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        assert_eq!(end, End::Configuration, "{name} is a mistake: {stderr}");
        assert_eq!(stdout, "", "{name}");
        let messages = stderr.replace(&format!("{}/", folder.display()), "");
        assert!(
            messages.contains(&format!("{name}.toml")),
            "{name} names its file"
        );
        assert!(!messages.contains("panicked"));
        let golden = file.with_extension("txt");
        if std::env::var_os("ASTERISM_BLESS").is_some() {
            fs::write(&golden, &messages).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != messages {
            wrong.push(format!("--- {name}\n{messages}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "these messages are not as written down:\n{}",
        wrong.join("\n")
    );
}

/// The examples that ship say what they mean.
#[test]
fn the_examples_are_good() {
    for (file, expected) in [
        ("firewall.toml", "4 rules of firewall.rules"),
        ("balancer.toml", "2 services with 5 backends"),
        ("monitor.toml", "exported to 192.0.2.9:4739"),
        ("carrier-nat.toml", "4 blocks of 512 ports a subscriber"),
        ("limiter.toml", "sources 2,000 packets a second"),
        ("cache-digests.toml", "queries to 2 web caches"),
    ] {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
        let (end, stdout, stderr) = check(&["check", examples.join(file).to_str().unwrap()]);
        assert_eq!(end, End::Done, "{stderr}");
        assert!(stdout.contains(expected), "{stdout}");
    }
}

/// A folder with files of an example of several hosts, whose key is not shipped: without one it is refused.
fn with_key(files: &[&str]) -> (tempfile::TempDir, String) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        std::fs::copy(examples.join(file), folder.path().join(file)).unwrap();
    }
    let path = folder.path().join(files[0]).to_str().unwrap().to_owned();
    let (end, _, stderr) = check(&["check", &path]);
    assert!(
        end != End::Done && stderr.contains("cluster.key"),
        "{stderr}"
    );
    asterism_config::key_file::write_new(&folder.path().join("cluster.key"), 1).unwrap();
    (folder, path)
}

/// No host reads what all of them have written otherwise; what a host has not written otherwise it reads.
#[test]
fn a_file_is_good_if_it_is_for_each_of_its_members() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("asterism.toml");
    let path = path.to_str().unwrap();
    asterism_config::key_file::write_new(&folder.path().join("cluster.key"), 1).unwrap();
    let file = |members: &str, rest: &str| {
        let text = format!(
            "[cluster]\nmembers = [{members}]\nkey = \"cluster.key\"\n[cluster.member]\n\
             a.address = \"192.0.2.1:7400\"\nb.address = \"192.0.2.2:7400\"\n[function.pass-through]\n\
             [port]\ninside.offloads = \"off\"\noutside.offloads = \"off\"\n{rest}"
        );
        fs::write(path, text).unwrap();
    };
    let own = |name: &str| {
        format!(
            "[on.{name}.port]\ninside.interface = \"{name}1\"\noutside.interface = \"{name}2\"\n"
        )
    };
    file("\"a\", \"b\"", &[own("b"), own("a")].concat());
    for member in [&[][..], &["--member", "a"], &["--member", "b"]] {
        let (end, stdout, stderr) = check(&[&["check", path], member].concat());
        assert_eq!(end, End::Done, "{stderr}");
        let name = member.last().unwrap_or(&"a");
        assert!(stdout.contains(&format!("inside: {name}1 ")), "{stdout}");
    }
    for of in ["a", "b"] {
        file("\"a\", \"b\"", &own(of));
        let (end, _, stderr) = check(&["check", path]);
        assert_eq!(end, End::Configuration);
        assert_eq!(
            stderr.matches("`interface` is missing").count(),
            2,
            "{stderr}"
        );
    }
    // Whose members cannot be read is read as it stands.
    file("7", &own("a"));
    assert_eq!(check(&["check", path]).0, End::Configuration);
}

#[test]
fn the_example_of_a_chain_is_good() {
    let (_folder, path) = with_key(&["chain.toml", "chain.rules"]);
    for member in ["a", "b"] {
        let (end, stdout, stderr) = check(&["check", &path, "--member", member]);
        assert_eq!(end, End::Done, "{stderr}");
        for expected in [
            "firewall: 3 rules of chain.rules",
            "then nat: ",
            "then port-scan: ",
            "bypassed when it is full, or late for 20ms",
        ] {
            assert!(stdout.contains(expected), "{expected} is not in {stdout}");
        }
    }
}

#[test]
fn the_example_of_an_intrusion_detection_is_good() {
    let (_folder, path) = with_key(&["idps.toml"]);
    for member in ["a", "b", "c"] {
        let (end, stdout, stderr) = check(&["check", &path, "--member", member]);
        assert_eq!(end, End::Done, "{stderr}");
        for expected in [
            "port-scan: a source with 7 unanswered ports or 5 refusing hosts",
            "a service with 2,000 handshakes begun within 5s and not completed is reported",
            "then signature: ",
            "alerts written to /var/log/asterism/eve.json",
        ] {
            assert!(stdout.contains(expected), "{expected} is not in {stdout}");
        }
    }
}
