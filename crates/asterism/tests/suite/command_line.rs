//! The commands as they are called: exit codes, what goes where, key files, captures that cannot be read or written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
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

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../rehearsal/data")
        .join(name)
}

/// A folder with a configuration in it.
fn with_config(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("asterism.toml");
    fs::write(&path, text).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

const PASS: &str = "[cluster]\nmembers = [\"a\", \"b\", \"c\"]\n[function.pass-through]\n";
const NAT: &str = "[cluster]\nmembers = [\"a\", \"b\", \"c\"]\n[function.nat]\noutside = [\"203.0.113.1\"]\ninside = [\"21.0.0.0/8\"]\n";

#[test]
fn help_and_mistakes_of_the_command_line() {
    let (end, stdout, stderr) = run(&["--help"]);
    assert_eq!((end, stderr.as_str()), (End::Done, ""));
    for word in [
        "demo",
        "check",
        "replay",
        "new",
        "keygen",
        "completions",
        "Exit codes:",
    ] {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
    for bad in [
        &["chekc"][..],
        &["check"],
        &["replay", "x"],
        &["check", "a", "--fields"],
        &["demo", "--seed", "x"],
        &["epoch"],
        &["epoch", "x", "--member", "a"],
        &["epoch", "x", "--file", "y"],
        &["epoch", "x", "--hand", "--file", "y", "--first"],
        &["epoch", "x", "--hand", "--file", "y", "--without", "a"],
        &[],
    ] {
        let (end, stdout, stderr) = run(bad);
        assert_eq!((end, stdout.as_str()), (End::CommandLine, ""), "{bad:?}");
        assert!(!stderr.is_empty());
    }
    assert!(
        run(&["chekc"]).2.contains("'check'"),
        "a similar command is named"
    );
}

#[test]
fn completions_are_for_this_command_line() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (end, stdout, _) = run(&["completions", shell]);
        assert_eq!(end, End::Done);
        assert!(
            stdout.contains("keygen") && stdout.contains("replay"),
            "{shell}"
        );
    }
}

#[test]
fn keygen_then_check() {
    let (folder, config) = with_config(
        "[cluster]\nmembers = [\"a\", \"b\"]\nkey = \"cluster.key\"\n[function.pass-through]\n",
    );
    let key = folder.path().join("cluster.key");
    let key_name = key.to_str().unwrap();
    let (end, _, stderr) = run(&["check", &config]);
    assert_eq!(end, End::Configuration);
    assert!(
        stderr.contains("asterism keygen") && stderr.contains(":3:8"),
        "{stderr}"
    );

    let (end, stdout, _) = run(&["keygen", key_name]);
    assert_eq!(end, End::Done);
    let secret = fs::read_to_string(&key).unwrap();
    assert!(!stdout.contains(secret.trim()), "the key is not shown");
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        run(&["keygen", key_name]).0,
        End::File,
        "a key is never overwritten"
    );
    assert_eq!(fs::read_to_string(&key).unwrap(), secret);

    let (end, stdout, stderr) = run(&["check", &config]);
    assert_eq!((end, stderr.as_str()), (End::Done, ""));
    assert!(stdout.contains("sealed with cluster.key"), "{stdout}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (end, _, stderr) = run(&["check", &config]);
    assert_eq!(end, End::Configuration);
    assert!(
        stderr.contains("0644") && stderr.contains("chmod 600"),
        "{stderr}"
    );
}

#[test]
fn files_that_cannot_be_read_as_a_configuration() {
    let (folder, config) = with_config("");
    let (end, _, stderr) = run(&["check", &format!("{config}.absent")]);
    assert_eq!(end, End::File);
    assert!(stderr.contains("cannot read the configuration"), "{stderr}");
    assert_eq!(
        run(&["check", folder.path().to_str().unwrap()]).0,
        End::File
    );
    fs::write(&config, b"[cluster]\nname = \"\xFF\"\n").unwrap();
    let (end, _, stderr) = run(&["check", &config]);
    assert_eq!(end, End::File);
    assert!(
        stderr.contains(":2:") && stderr.contains("UTF-8"),
        "{stderr}"
    );
    fs::write(&config, vec![b'#'; 2 << 20]).unwrap();
    assert!(
        run(&["check", &config])
            .2
            .contains("is this the right file?")
    );
}

#[test]
fn a_replay_through_three_hosts_loses_nothing() {
    let (folder, config) = with_config(PASS);
    let left = folder.path().join("left.pcap");
    let capture = data("trex-exchange_0.pcap");
    let (end, stdout, stderr) = run(&[
        "replay",
        &config,
        "--in",
        capture.to_str().unwrap(),
        "--out",
        left.to_str().unwrap(),
    ]);
    assert_eq!(end, End::Done, "{stderr}");
    assert!(
        stdout.contains("43 packets of 1 flows") && stdout.contains("all hosts agree"),
        "{stdout}"
    );
    assert_eq!(
        fs::metadata(&left).unwrap().len(),
        fs::metadata(&capture).unwrap().len()
    );
}

#[test]
fn answers_in_a_nat_replay_reach_the_inside_again() {
    let (_folder, config) = with_config(NAT);
    let capture = data("trex-http_get_0.pcap");
    for hosts in ["1", "3"] {
        let (end, stdout, _) = run(&[
            "--format",
            "json",
            "replay",
            &config,
            "--hosts",
            hosts,
            "--in",
            capture.to_str().unwrap(),
        ]);
        assert_eq!(end, End::Done, "{stdout}");
        let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(
            document["skipped"].as_object().unwrap().len(),
            0,
            "{stdout}"
        );
        assert_eq!(document["packets_left"], 44, "{stdout}");
        assert_eq!(
            document["hosts"].as_array().unwrap().len().to_string(),
            hosts
        );
    }
}

/// IPv6 packets with IPv4-mapped addresses pass by no rule of IPv4, and answer no connection of IPv4: they are dropped when parsed.
#[test]
fn mapped_addresses_on_the_wire_are_dropped_in_a_replay() {
    let (folder, config) =
        with_config("[cluster]\nmembers = [\"a\"]\n[function.firewall]\nrules = \"fw.rules\"\n");
    let rules = "allow tcp on inside\nallow tcp on outside from 10.66.0.0/16\ndefault drop\n";
    fs::write(folder.path().join("fw.rules"), rules).unwrap();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let inside = captures.join("mapped-inside.pcap");
    let outside = captures.join("mapped-outside.pcap");
    let (end, stdout, stderr) = run(&[
        "--format",
        "json",
        "replay",
        &config,
        "--in",
        inside.to_str().unwrap(),
        "--in-outside",
        outside.to_str().unwrap(),
    ]);
    assert_eq!(end, End::Done, "{stdout}{stderr}");
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let dropped = &document["hosts"][0]["dropped"];
    assert_eq!(dropped["mapped-address"], 2, "{stdout}");
    assert_eq!(dropped["denied"], 1, "a SYN of plain IPv6: {stdout}");
    assert_eq!(
        document["packets_left"], 2,
        "the SYN and its answer in IPv4: {stdout}"
    );
}

/// Editors on Windows write a byte-order mark in front of a file: it says nothing, wherever text is read.
#[test]
fn a_byte_order_mark_in_front_of_a_file_says_nothing() {
    let marked = |text: &str| format!("\u{feff}{text}");
    let (folder, config) = with_config(&marked(
        "[cluster]\r\nmembers = [\"a\"]\r\n[function.firewall]\r\nrules = \"fw.rules\"\r\n",
    ));
    let rules = folder.path().join("fw.rules");
    fs::write(&rules, marked("allow tcp on inside\r\ndefault drop\r\n")).unwrap();
    let (end, stdout, stderr) = run(&["check", &config]);
    assert_eq!(end, End::Done, "{stdout}{stderr}");
    let scenario = folder.path().join("marked.scenario");
    let steps = "configuration = \"asterism.toml\"\n---\n\
                 at 0s send a inside tcp 10.0.0.7:4000 > 198.51.100.9:443 S\npass\n";
    fs::write(&scenario, marked(steps)).unwrap();
    let (end, stdout, stderr) = run(&["test", scenario.to_str().unwrap()]);
    assert_eq!(end, End::Done, "{stdout}{stderr}");
    // Places in a marked file stay right.
    fs::write(&rules, marked("alow tcp on inside\n")).unwrap();
    let (end, _, stderr) = run(&["check", &config]);
    assert_eq!(end, End::Configuration);
    assert!(
        stderr.contains("fw.rules:1:1") && stderr.contains("did you mean `allow`?"),
        "{stderr}"
    );
}

/// What a configuration or a rule file stands for is bounded before it is read further, and so is what is said of it.
#[test]
fn files_that_multiply_are_refused_within_a_bound() {
    let doubled: String = (1..40)
        .map(|number| format!("set a{number} = @a{0}, @a{0}\n", number - 1))
        .collect();
    let doubled = format!("set a0 = 10.0.0.0/8\n{doubled}drop tcp from @a39\n");
    let firewall = "[cluster]\nmembers = [\"a\"]\n[function.firewall]\nrules = \"fw.rules\"\n";
    for rules in [
        doubled,
        "drop tcp from 10.0.0.0/8\n".repeat(100_000),
        format!("set a = {}\n", ["x"; 500_000].join(", ")),
    ] {
        let (folder, config) = with_config(firewall);
        fs::write(folder.path().join("fw.rules"), rules).unwrap();
        let (end, _, stderr) = run(&["check", &config]);
        assert_eq!(end, End::Configuration);
        assert!(stderr.len() < 100_000, "{} bytes are said", stderr.len());
    }
    let hosts = |count: usize| -> String {
        (0..count)
            .map(|number| format!("[on.h{number}.host]\n"))
            .collect()
    };
    for text in [
        "x\n".repeat(400_000),
        "a=1\n".repeat(200_000),
        format!("{PASS}{}", hosts(20_000)),
        format!("[function.pass-through]\n{}", hosts(20_000)),
        format!("{PASS}{} = 1\n", "k".repeat(900_000)),
        format!("a = {}{}", "[".repeat(400_000), "]".repeat(400_000)),
    ] {
        let (_folder, config) = with_config(&text);
        let (end, _, stderr) = run(&["check", &config]);
        assert_eq!(end, End::Configuration, "{}", &text[..40]);
        assert!(stderr.len() < 2_000_000, "{} bytes are said", stderr.len());
    }
    // A device never ends.
    let (end, _, stderr) = run(&["check", "/dev/zero"]);
    assert_eq!(end, End::File, "{stderr}");
}

/// As it is written for real interfaces: nobody answers ARP in a capture, and frames have the addresses that they have.
#[test]
fn a_configuration_with_ports_and_sites_replays_as_one_without() {
    let ports = "[port]\ninside.interface = \"eth1\"\noutside.interface = \"eth2\"\n";
    let member = |name: &str, site: &str| {
        format!(
            "[cluster.member.{name}]\naddress = \"192.0.2.{}:7400\"\nsite = \"{site}\"\n",
            name.as_bytes()[0]
        )
    };
    let members = [
        member("a", "east"),
        member("b", "east"),
        member("c", "west"),
    ]
    .concat();
    let (_folder, config) = with_config(&[NAT, &members, ports].concat());
    let capture = data("trex-http_get_0.pcap");
    for hosts in [&[][..], &["--hosts", "5"]] {
        let replay = ["--format", "json", "replay", &config, "--in"];
        let (end, stdout, stderr) =
            run(&[&replay[..], &[capture.to_str().unwrap()], hosts].concat());
        assert_eq!(end, End::Done, "{stdout}{stderr}");
        let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(document["packets_left"], 44, "{stdout}");
    }
}

#[test]
fn captures_that_cannot_be_read_or_written() {
    let (folder, config) = with_config(PASS);
    let capture = data("trex-dns_0.pcap");
    let capture = capture.to_str().unwrap();
    let replay =
        |input: &str, output: &str| run(&["replay", &config, "--in", input, "--out", output]);
    let out = folder.path().join("out.pcap");
    let out = out.to_str().unwrap();

    let (end, _, stderr) = replay("/absent.pcap", out);
    assert_eq!(end, End::File);
    assert!(stderr.contains("/absent.pcap"), "{stderr}");
    let (end, _, stderr) = replay(&config, out);
    assert_eq!(end, End::File);
    assert!(stderr.contains("is not a capture"), "{stderr}");

    let bytes = fs::read(capture).unwrap();
    let cut = folder.path().join("cut.pcap");
    fs::write(&cut, &bytes[..bytes.len() - 3]).unwrap();
    let (end, stdout, stderr) = replay(cut.to_str().unwrap(), out);
    assert_eq!(end, End::File);
    assert!(stderr.contains("ends inside"), "{stderr}");
    assert!(
        stdout.starts_with("1 packets"),
        "what was read before it is reported: {stdout}"
    );

    let (end, _, stderr) = replay(cut.to_str().unwrap(), cut.to_str().unwrap());
    assert_eq!(end, End::File);
    assert!(
        stderr.contains("name another file"),
        "the input is not overwritten: {stderr}"
    );
    assert_eq!(fs::read(&cut).unwrap().len(), bytes.len() - 3);

    let (end, _, stderr) = replay(capture, "/dev/full");
    assert_eq!(end, End::File, "a full disk");
    assert!(stderr.contains("free space"), "{stderr}");
}

#[test]
fn a_refused_configuration_replays_nothing() {
    // The last of them is refused by the function itself.
    let itself = format!(
        "{NAT}forwards = [{{ outside = \"203.0.113.1:80\", inside = \"21.0.0.254:80\" }}]\n[function.nat.inside_link]\n\
         address = \"21.0.0.254/8\"\nnext_hop = \"21.0.0.2\"\n"
    );
    for text in ["[function.nat]\n", &itself] {
        let (folder, config) = with_config(text);
        let out = folder.path().join("out.pcap");
        let capture = data("trex-dns_0.pcap");
        let (end, stdout, stderr) = run(&[
            "replay",
            &config,
            "--in",
            capture.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ]);
        assert_eq!((end, stdout.as_str()), (End::Configuration, ""), "{stderr}");
        assert!(!out.exists());
    }
}

/// A capture of a datagram each 200 ms from one source, whose clock shows `stamp_ms`.
fn paced_capture(path: &Path, stamp_ms: impl Fn(u64) -> u64) {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([
        0x45, 0, 0, 29, 0, 1, 0, 0, 64, 17, 0xae, 0xbf, 10, 0, 0, 7, 192, 0, 2, 9,
    ]);
    frame.extend([0x13, 0x88, 0, 53, 0, 9, 0, 0, 0x78]);
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for number in 0..600 {
        let stamp = stamp_ms(number);
        let lengths = [frame.len() as u32; 2];
        for word in [(stamp / 1_000) as u32, (stamp % 1_000) as u32 * 1_000]
            .into_iter()
            .chain(lengths)
        {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&frame);
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_clock_that_is_set_back_in_a_capture_stops_no_time() {
    let limiter = "[cluster]\nmembers = [\"a\"]\n[function.limiter]\nfrom = \"inside\"\n\
                   sources = { unit = \"packets\", rate = 10, burst = 20 }\n";
    let (folder, config) = with_config(limiter);
    let capture = folder.path().join("steps.pcap");
    let start = 1_700_000_000_000;
    let hour = 3_600_000;
    type Stamp = fn(u64, u64, u64) -> u64;
    let cases: [(&str, Stamp, u64); 4] = [
        ("in order", |start, _, number| start + number * 200, 0),
        (
            "set back by an hour",
            |start, hour, number| start + number * 200 - if number < 300 { 0 } else { hour },
            1,
        ),
        (
            "the first stamp is late",
            |start, hour, number| start + number * 200 + if number == 0 { hour } else { 0 },
            1,
        ),
        (
            "two clocks that alternate",
            |start, hour, number| start + number * 200 - number % 2 * hour,
            1,
        ),
    ];
    for (case, stamp, steps) in cases {
        paced_capture(&capture, |number| stamp(start, hour, number));
        let input = capture.to_str().unwrap();
        let (end, stdout, stderr) = run(&["replay", &config, "--in", input]);
        assert_eq!(end, End::Done, "{case}: {stderr}");
        assert!(stdout.contains("600 left"), "{case}: {stdout}");
        let says = stdout.contains("the capture's clock stepped back once, by 3");
        assert_eq!(says, steps > 0, "{case}: {stdout}");
        let json = ["--format", "json", "replay", &config, "--in", input];
        let (_, stdout, _) = run(&json);
        let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(document["packets_left"], 600, "{case}");
        assert_eq!(document["clock_steps_back"], steps, "{case}");
        let seconds = document["seconds"].as_f64().unwrap();
        assert!((118.0..140.0).contains(&seconds), "{case}: {seconds} s");
    }
}

#[test]
fn a_replay_is_the_same_each_time() {
    let (_folder, config) = with_config(PASS);
    let capture = data("trex-exchange_0.pcap");
    let once = || {
        run(&[
            "replay",
            &config,
            "--in",
            capture.to_str().unwrap(),
            "--delay",
            "40ms",
        ])
        .1
    };
    assert_eq!(once(), once());
}
