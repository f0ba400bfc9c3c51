//! Alerts of captures as lines of JSON: each as the schema says, of the scanners that labels name, and read by `jq`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::validator::check;
use asterism::command_line;
use asterism_function::TcpFlags;
use asterism_function::build::{self, Header4, Segment};
use asterism_functions::events::{self, LIBRARY};
use asterism_output::End;
use serde_json::Value;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn schema() -> Value {
    serde_json::from_str(include_str!("../../schemas/asterism.eve.v1.json")).unwrap()
}

/// Replays a capture and reads what was written.
fn replay(folder: &Path, config: &str, capture: &Path, more: &[&str]) -> Vec<Value> {
    let (file, eve) = (folder.join("asterism.toml"), folder.join("eve.json"));
    fs::write(&file, config).unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let arguments = ["asterism", "--format", "json", "replay"].map(Into::into);
    let paths = [&file, Path::new("--in"), capture, Path::new("--eve"), &eve];
    let all = arguments
        .into_iter()
        .chain(paths.map(|path| path.as_os_str().to_owned()))
        .chain(more.iter().map(Into::into));
    let end = command_line::run(all, &mut stdout, &mut stderr, false);
    let text = String::from_utf8_lossy(&stderr);
    assert_eq!(end, End::Done, "{}: {text}", capture.display());
    let document: Value = serde_json::from_slice(&stdout).unwrap();
    crate::validator::validate(&document);
    let schema = schema();
    let text = fs::read_to_string(&eve).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let read = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        let mut wrong = Vec::new();
        check(&schema, &value, "eve", &mut wrong);
        assert!(wrong.is_empty(), "{line}: {wrong:?}");
        value
    };
    let lines: Vec<_> = text.lines().map(read).collect();
    assert_eq!(document["alerts_written"], lines.len());
    lines
}

/// Whether an address is among a label's targets: an address, or one with the end of a range; whatever else it says is of all.
fn is_target(targets: &str, address: IpAddr) -> bool {
    let word = targets.split_whitespace().next().unwrap_or_default();
    let (first, last) = word.split_once('-').unwrap_or((word, ""));
    let (Ok(first), IpAddr::V4(address)) = (first.parse::<Ipv4Addr>(), address) else {
        return true;
    };
    let mut end = first.octets();
    if let Ok(last) = last.parse() {
        end[3] = last;
    }
    (first..=Ipv4Addr::from(end)).contains(&address)
}

/// The identifier that a label's words mean.
fn id_of(kind: &str) -> u64 {
    let is_sweep = kind.contains("sweep") || kind.contains("horizontal");
    match () {
        () if kind.contains("ICMP") => 5,
        () if kind.contains("UDP") => 3,
        () if is_sweep => 2,
        () => 1,
    }
}

#[test]
fn labelled_captures_give_the_lines_that_their_labels_expect() {
    let traces = here().join("../../../shared/traces");
    if !traces.is_dir() {
        eprintln!(
            "SKIPPED (shared data absent): labelled_captures_give_the_lines_that_their_labels_expect"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let labels = fs::read_to_string(traces.join("scan-labels.csv")).unwrap();
    let mut scans = 0;
    for label in labels.lines().skip(1) {
        let fields: Vec<_> = label.split(',').collect();
        let (file, scanner, kind, targets) = (fields[0], fields[1], fields[2], fields[3]);
        for hosts in ["1", "3"] {
            let config = "[function.port-scan]\nresponse = \"detect\"\n";
            // Where nothing is to be found, packets come more densely than they came in a day: that finds no less.
            let gap_max = if scanner == "none" { "50ms" } else { "10s" };
            let more = ["--hosts", hosts, "--gap-max", gap_max];
            let lines = replay(folder.path(), config, &traces.join(file), &more);
            if scanner == "none" {
                assert_eq!(lines, Vec::<Value>::new(), "{file}");
                continue;
            }
            // Of a dozen packets within a lag each of three hosts sees some, and none comes after.
            let packets = fs::metadata(traces.join(file)).unwrap().len() / 100;
            if hosts == "3" && packets < 20 && lines.is_empty() {
                continue;
            }
            scans += 1;
            assert_eq!(lines.len(), 1, "{file} by {hosts}: {lines:?}");
            let line = &lines[0];
            assert_eq!(line["event_type"], "alert");
            assert_eq!(line["src_ip"], scanner, "{file}");
            assert_eq!(line["alert"]["gid"], LIBRARY);
            assert_eq!(line["alert"]["signature_id"], id_of(kind), "{file}");
            assert_eq!(line["alert"]["action"], "allowed");
            let target: IpAddr = line["dest_ip"].as_str().unwrap().parse().unwrap();
            assert!(is_target(targets, target), "{file}: {target} of {targets}");
        }
    }
    assert!(scans >= 28, "{scans} of 30");
}

/// A capture of SYNs to one service, two hundred a second, from as many sources as are given.
fn flood(sources: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 1u32] {
        bytes.extend(word.to_le_bytes());
    }
    for number in 0..3_000 {
        let source = Ipv4Addr::from_bits(0xcb00_7101 + number % sources);
        let port = 1_024 + (number / sources) as u16;
        let mut frame = vec![0; 128];
        let header = Header4::between(source, Ipv4Addr::new(192, 0, 2, 80));
        let syn = Segment::with_flags(TcpFlags::SYN);
        let length = build::tcp4(&header, port, 443, &syn, b"", &mut frame).unwrap();
        let time = [1_700_000_000 + number / 200, number % 200 * 5_000];
        for word in time.into_iter().chain([length as u32; 2]) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&frame[..length]);
    }
    bytes
}

#[test]
fn a_flood_is_one_line_that_names_its_service() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("flood.pcap");
    let config = "[function.port-scan]\nresponse = \"detect\"\n";
    for (sources, hosts) in [(1, "1"), (1, "3"), (3_000, "1"), (3_000, "3")] {
        fs::write(&capture, flood(sources)).unwrap();
        let lines = replay(folder.path(), config, &capture, &["--hosts", hosts]);
        let [line] = &lines[..] else {
            panic!("{sources} sources, {hosts} hosts: {lines:?}");
        };
        assert_eq!(line["alert"]["gid"], LIBRARY);
        assert_eq!(line["alert"]["signature_id"], 11);
        assert_eq!(line["alert"]["action"], "allowed");
        assert_eq!(
            (&line["dest_ip"], &line["dest_port"]),
            (&"192.0.2.80".into(), &443.into())
        );
        assert_eq!(line["proto"], "TCP");
        let source = line.get("src_ip").and_then(Value::as_str);
        assert_eq!(source, (sources == 1).then_some("203.0.113.1"));
        let detail = line["asterism"]["detail"].as_str().unwrap();
        assert!(
            detail.starts_with("handshakes not completed: about "),
            "{detail}"
        );
    }
    fs::write(&capture, flood(3_000)).unwrap();
    let config = format!("{config}flood = {{ handshakes = 0 }}\n");
    assert_eq!(
        replay(folder.path(), &config, &capture, &[]),
        Vec::<Value>::new()
    );
}

#[test]
fn a_chain_names_its_stages_and_jq_reads_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let capture = here().join("../rehearsal/data/trex-dns_0.pcap");
    // What every question of this capture has: one of the class IN, behind a name.
    let config = "chain = [\"look\", \"firewall\"]\n[stage.look]\nfunction = \"signature\"\n[function.look.signatures.question]\nid = 7_001\nbytes = \"|00 00 01 00 01|\"\nprotocol = \"udp\"\n[function.firewall]\nrules = \"a.rules\"\n";
    fs::write(
        folder.path().join("a.rules"),
        "allow udp log\ndefault drop\n",
    )
    .unwrap();
    let lines = replay(folder.path(), config, &capture, &[]);
    let of = |stage: &str| -> Vec<&Value> {
        let of_stage = |line: &&Value| line["asterism"]["stage"] == stage;
        lines.iter().filter(of_stage).collect()
    };
    let (signatures, flows) = (of("look"), of("firewall"));
    assert!(!signatures.is_empty() && !flows.is_empty(), "{lines:?}");
    assert_eq!(signatures.len() + flows.len(), lines.len());
    for line in &signatures {
        assert_eq!(line["alert"]["gid"], 1);
        assert_eq!(line["alert"]["signature_id"], 7_001);
        assert_eq!(line["alert"]["signature"], "question");
        assert!(line["flow_id"].as_u64().is_some() && line["dest_port"].as_u64().is_some());
    }
    for line in &flows {
        assert_eq!(line["alert"]["signature_id"], 40);
        assert_eq!(line["asterism"]["detail"], "rule of line 1");
    }
    let recipe = "select(.event_type == \"alert\") | [.src_ip, .alert.signature] | @tsv";
    let page = fs::read_to_string(here().join("../../docs/src/idps.md")).unwrap();
    assert!(
        page.contains(recipe),
        "the page has the recipe that is tried here"
    );
    let eve = folder.path().join("eve.json");
    let Ok(output) = Command::new("jq").args(["-r", recipe]).arg(&eve).output() else {
        eprintln!("SKIPPED (jq is not installed): the recipe of the page");
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), lines.len());
    assert!(
        text.lines().any(|line| line.ends_with("\tquestion")),
        "{text}"
    );
}

#[test]
fn the_page_has_every_identifier() {
    let page = fs::read_to_string(here().join("../../docs/src/idps.md")).unwrap();
    for kind in events::all() {
        let row = format!(
            "| {LIBRARY} | {} | {} | {} | {} |",
            kind.id, kind.text, kind.category, kind.severity
        );
        assert!(page.contains(&row), "{row}");
    }
}
