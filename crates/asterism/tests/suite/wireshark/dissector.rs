//! Wireshark's dissector: every field of every vector is shown, by tshark, as the vector says it.
//!
//! Fields are named after those of the vectors: `ahead` of `[acknowledge]` is `asterism.acknowledge.ahead`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use asterism_output::End;

use crate::wireshark::frames::{Folder, Golden, PORT, seal, udp4, udp6};
use crate::wireshark::vectors::{Vector, hex, named, part, runs};

/// Values of each field, in the order in which they stand in the packet.
pub(crate) type Shown = BTreeMap<String, Vec<String>>;

/// What every packet is asked for beside the fields of its vector.
const ALWAYS: [&str; 7] = [
    "asterism.malformed",
    "asterism.future",
    "asterism.joined",
    "asterism.opened",
    "asterism.sealed",
    "asterism.tag",
    "_ws.col.Info",
];

pub(crate) fn is_installed() -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok();
    if !found {
        println!("SKIPPED the Wireshark dissector: tshark is not installed");
    }
    found
}

/// Runs tshark with the dissector on a capture.
pub(crate) fn tshark(folder: &Folder, capture: &str, arguments: &[String]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/wireshark/asterism.lua");
    let output = Command::new("tshark")
        // Neither plugins nor preferences of anyone who runs the test.
        .env("HOME", folder.path(""))
        .env("XDG_CONFIG_HOME", folder.path(""))
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .args(["-n", "-r", capture])
        .args(arguments)
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    let failed = !output.status.success() || stderr.contains("Lua") || stdout.contains("Lua Error");
    assert!(!failed, "{stderr}\n{stdout}");
    stdout
}

/// The fields of each packet of a capture.
pub(crate) fn shown(
    folder: &Folder,
    capture: &str,
    fields: &BTreeSet<String>,
    more: &[&str],
) -> Vec<Shown> {
    let mut arguments: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
    for word in ["-T", "fields", "-E", "separator=;", "-E", "occurrence=a"] {
        arguments.push(word.to_owned());
    }
    for field in fields {
        arguments.extend(["-e".to_owned(), field.clone()]);
    }
    let lines = tshark(folder, capture, &arguments);
    lines
        .lines()
        .map(|line| {
            let values: Vec<&str> = line.split(';').collect();
            assert_eq!(values.len(), fields.len(), "{line}");
            let present = fields.iter().zip(values).filter(|(_, all)| !all.is_empty());
            present
                .map(|(field, all)| {
                    let values = if field == "_ws.col.Info" {
                        vec![all.to_owned()]
                    } else {
                        all.split(',').map(plain).collect()
                    };
                    (field.clone(), values)
                })
                .collect()
        })
        .collect()
}

/// A value as the vectors write it: decimal.
fn plain(value: &str) -> String {
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap().to_string(),
        None => value.to_owned(),
    }
}

fn add(shown: &mut Shown, field: String, value: &str) {
    shown.entry(field).or_default().push(value.to_owned());
}

/// The fields of a vector under the names that the dissector gives them.
fn expect(shown: &mut Shown, prefix: &str, vector: &Vector) {
    for (name, value) in &vector.fields {
        let prefix = match name.as_str() {
            "echo" => "echo",
            _ => prefix,
        };
        let place = |name: &str| format!("asterism.{prefix}.{}", name.replace('-', "_"));
        if value.contains('=') {
            for (name, value) in value.split(' ').filter_map(|part| part.split_once('=')) {
                if name == "of" {
                    let members: Vec<&str> =
                        value.split(',').filter(|one| *one != "none").collect();
                    add(shown, place("members"), &members.len().to_string());
                    for member in members {
                        add(shown, place("of"), member);
                    }
                    continue;
                }
                if name == "flags" {
                    let flags: u8 = value.parse().unwrap();
                    add(shown, place("loose"), &(flags & 1).to_string());
                    add(shown, place("settled"), &(flags >> 1).to_string());
                }
                if name != "runs" {
                    add(shown, place(name), value);
                    continue;
                }
                let runs = runs(value);
                add(shown, place("runs"), &runs.len().to_string());
                for (first, last) in runs {
                    add(shown, place("first"), &first.to_string());
                    add(shown, place("last"), &last.to_string());
                }
            }
        } else {
            let is_bytes = ["group", "chunk", "nonce"].contains(&name.as_str());
            let value = if is_bytes {
                value.replace(' ', "")
            } else {
                value.clone()
            };
            add(shown, place(name), &value);
        }
    }
}

/// The fields of a frame's vector.
fn expect_frame(shown: &mut Shown, vector: &Vector) {
    let mut vector = vector.clone();
    let kind = vector.text("kind").to_owned();
    add(shown, "asterism.frame.kind".into(), &kind);
    vector
        .fields
        .retain(|(name, _)| name != "kind" && name != "length");
    let prefix = vector.kind().replace('-', "_");
    expect(shown, &prefix, &vector);
    // What the dissector works out beside: sequences, and the tag of the first operation.
    if prefix == "records" {
        let first: u64 = vector.number("first");
        let groups: Vec<Vec<u8>> = vector.all("group").map(hex).collect();
        let last = first + groups.len() as u64 - 1;
        add(shown, "asterism.records.last".into(), &last.to_string());
        for (sequence, group) in (first..).zip(groups) {
            // From the sixteenth object on the tag has a second byte.
            let high = group.get(1).filter(|_| group[0] & 0x80 != 0);
            let tag = u64::from(group[0] & 0x7f) | high.map_or(0, |high| u64::from(*high) << 7);
            for (name, value) in [
                ("sequence", sequence),
                ("length", group.len() as u64),
                ("object", tag >> 3),
                ("flags", tag & 7),
            ] {
                add(
                    shown,
                    format!("asterism.records.{name}"),
                    &value.to_string(),
                );
            }
        }
    }
    if prefix == "snapshot_acknowledge" {
        let flags: u8 = vector.number("flags");
        for (name, value) in [("end", flags & 1), ("joined", flags >> 1)] {
            add(
                shown,
                format!("asterism.snapshot_acknowledge.{name}"),
                &value.to_string(),
            );
        }
    }
    if prefix == "acknowledge" {
        for entry in vector.all("entry") {
            let [applied, ahead] = ["applied", "ahead"].map(|name| part(entry, name));
            let received = applied.parse::<u64>().unwrap() + ahead.parse::<u64>().unwrap();
            let field = "asterism.acknowledge.received".into();
            add(shown, field, &received.to_string());
        }
    }
}

/// The fields of a message's vector, with those of its frames.
fn expect_message(shown: &mut Shown, golden: &Golden, vector: &Vector) {
    let mut header = vector.clone();
    header.fields.retain(|(name, _)| name != "frame");
    expect(shown, "message", &header);
    for name in vector.all("frame") {
        expect_frame(shown, named(&golden.frames, name));
    }
}

/// The fields of a datagram's vector, without what is in it.
fn expect_datagram(shown: &mut Shown, vector: &Vector) {
    for (name, value) in &vector.fields {
        let field = match name.as_str() {
            "from" | "message" => continue,
            "kind" | "nonce" => format!("asterism.handshake.{name}"),
            name if name.starts_with("to-") => {
                format!("asterism.handshake.{}", name.replace('-', "_"))
            }
            name => format!("asterism.{name}"),
        };
        add(shown, field, &value.replace(' ', ""));
    }
}

/// A packet of the capture: the datagram, and what must be shown once it was opened.
struct Case {
    name: String,
    datagram: Vec<u8>,
    expected: Shown,
    /// The expert's field that must be there, the others must not.
    expert: Option<&'static str>,
}

/// A packet for every vector: the datagrams as they are, messages and frames in datagrams of the same session.
fn cases(golden: &Golden) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut sealer = golden.sealer();
    let expert = |vector: &Vector| match vector.kind() {
        "refused" if vector.text("reason") == "malformed" => Some("asterism.malformed"),
        "refused" => Some("asterism.future"),
        _ => None,
    };
    for vector in &golden.datagrams {
        let mut expected = Shown::new();
        match vector.kind() {
            "handshake" => expect_datagram(&mut expected, vector),
            "sealed" => {
                expect_datagram(&mut expected, vector);
                let name = format!("message {}", vector.text("message"));
                expect_message(&mut expected, golden, named(&golden.messages, &name));
            }
            _ => continue,
        }
        cases.push(Case {
            name: vector.name.clone(),
            datagram: vector.bytes.clone(),
            expected,
            expert: None,
        });
    }
    for vector in &golden.messages {
        let mut expected = Shown::new();
        if vector.kind() == "message" {
            expect_message(&mut expected, golden, vector);
        }
        cases.push(Case {
            name: vector.name.clone(),
            datagram: seal(&mut sealer, &vector.bytes),
            expected,
            expert: expert(vector),
        });
    }
    let header = golden.message("without-a-frame");
    for vector in &golden.frames {
        let mut expected = Shown::new();
        if vector.kind() != "refused" {
            expect_frame(&mut expected, vector);
        }
        cases.push(Case {
            name: vector.name.clone(),
            datagram: seal(&mut sealer, &[&header[..], &vector.bytes[..]].concat()),
            expected,
            expert: expert(vector),
        });
    }
    cases
}

fn all_fields<'a>(expected: impl Iterator<Item = &'a Shown>) -> BTreeSet<String> {
    let named = expected.flat_map(|shown| shown.keys().cloned());
    named.chain(ALWAYS.map(str::to_owned)).collect()
}

#[test]
fn every_vector_is_shown_field_by_field() {
    if !is_installed() {
        return;
    }
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let cases = cases(&golden);
    // Every other one over IPv6: the dissector sits on UDP alone.
    let frames: Vec<Vec<u8>> = cases
        .iter()
        .enumerate()
        .map(|(place, case)| match place % 2 {
            0 => udp4(&case.datagram, PORT),
            _ => udp6(&case.datagram, PORT),
        })
        .collect();
    let input = folder.capture("golden.pcap", &frames);
    let output = folder.text("opened.pcap");
    let (end, stdout, _) = folder.decrypt(&[&input, &output]);
    assert_eq!(end, End::Done);
    assert!(!stdout.contains("Left as they were"), "{stdout}");

    let fields = all_fields(cases.iter().map(|case| &case.expected));
    assert!(fields.len() > 70, "{}", fields.len());
    let shown = shown(&folder, &output, &fields, &[]);
    assert_eq!(shown.len(), cases.len());
    for (case, shown) in cases.iter().zip(&shown) {
        let name = &case.name;
        assert!(shown.contains_key("asterism.opened"), "{name}: {shown:?}");
        for (field, values) in &case.expected {
            assert_eq!(shown.get(field), Some(values), "{name}: {field}");
        }
        for expert in ["asterism.malformed", "asterism.future"] {
            let is_there = shown.contains_key(expert);
            assert_eq!(is_there, case.expert == Some(expert), "{name}: {expert}");
        }
        // What a vector does not say is not shown either, but for the header around it.
        let around = |field: &str| {
            !field.starts_with("asterism.")
                || field.starts_with("asterism.message.")
                || !field["asterism.".len()..].contains('.')
        };
        for field in shown
            .keys()
            .filter(|field| case.expert.is_none() && !around(field))
        {
            assert!(case.expected.contains_key(field), "{name} shows {field}");
        }
        let info = &shown["_ws.col.Info"][0];
        assert!(info.starts_with("member "), "{name}: {info}");
    }
    let info = |name: &str| {
        let place = cases.iter().position(|case| case.name == name).unwrap();
        shown[place]["_ws.col.Info"][0].as_str()
    };
    assert_eq!(info("handshake hello"), "member 1 #1: Hello to member 2");
    assert_eq!(
        info("sealed with-records"),
        "member 1 #3: records 300-301, keep-alive wants an answer"
    );
    assert!(info("refused unknown-kind").ends_with(": kind 7"));
    assert!(info("close").ends_with(": close 300:70000 loose"));
    assert!(info("join-confirm").ends_with(": join confirm 2 after 900"));
    assert!(info("snapshot-acknowledge joined").ends_with(": snapshot acknowledge 300/9 joined"));
}

#[test]
fn a_sealed_capture_shows_its_headers_alone() {
    if !is_installed() {
        return;
    }
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let names = [
        "handshake challenge",
        "sealed with-records",
        "sealed without-a-frame",
    ];
    let vectors = names.map(|name| named(&golden.datagrams, name));
    let frames = vectors.map(|vector| udp4(&vector.bytes, PORT));
    let input = folder.capture("sealed.pcap", &frames);
    let all = cases(&golden);
    let fields = all_fields(all.iter().map(|case| &case.expected));
    let shown = shown(&folder, &input, &fields, &[]);
    for (vector, shown) in vectors.iter().zip(&shown) {
        let mut expected = Shown::new();
        expect_datagram(&mut expected, vector);
        for (field, values) in &expected {
            let is_inside = field.starts_with("asterism.handshake.");
            let values = (!is_inside).then_some(values);
            assert_eq!(shown.get(field), values, "{}: {field}", vector.name);
        }
        let inside = |field: &String| field.contains(".message") || field.contains(".frame");
        assert!(!shown.keys().any(inside), "{shown:?}");
        let clear = if vector.kind() == "handshake" { 48 } else { 32 };
        let (sealed, tag) = vector.bytes[clear..].split_at(vector.bytes.len() - clear - 16);
        for (field, bytes) in [("asterism.sealed", sealed), ("asterism.tag", tag)] {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(shown[field], [digits], "{}", vector.name);
        }
        assert!(
            !shown.contains_key("asterism.opened") && !shown.contains_key("asterism.malformed")
        );
    }
    assert_eq!(shown[1]["_ws.col.Info"], ["member 1 #3: sealed, 38 bytes"]);
}

/// What a host captures of its own sending: several datagrams as one, also when it went over to another key between them.
#[test]
fn joined_datagrams_are_shown_one_by_one() {
    if !is_installed() {
        return;
    }
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let mut sealer = golden.sealer();
    let message = golden.message("with-records");
    let mut padded = golden.message("with-records");
    padded.extend([128, 4, 0, 0, 0, 0]);
    let other_key = folder.add_key();
    let datagrams = [&padded, &padded, &message].map(|text| {
        let sealed = seal(&mut sealer, text);
        sealer.use_key(&other_key);
        sealed
    });
    let hello = udp4(&golden.datagram("handshake hello"), PORT);
    let joined = udp4(&datagrams.concat(), PORT);
    let input = folder.capture("joined.pcap", &[hello, joined]);
    let output = folder.text("opened.pcap");
    assert_eq!(folder.decrypt(&[&input, &output]).0, End::Done);
    let fields = [
        "asterism.counter",
        "asterism.frame.kind",
        "asterism.joined",
        "asterism.key",
        "asterism.sealed",
    ];
    let fields = fields.map(str::to_owned).into();
    for (capture, kinds) in [(&input, 0), (&output, 8)] {
        let shown = &shown(&folder, capture, &fields, &[])[1];
        assert_eq!(shown["asterism.counter"], ["1", "2", "3"]);
        assert_eq!(shown["asterism.key"], ["7", "8", "8"]);
        assert!(shown.contains_key("asterism.joined"));
        assert_eq!(shown.get("asterism.frame.kind").map_or(0, Vec::len), kinds);
    }
}

#[test]
fn other_ports_are_a_preference_or_decoded_as_and_others_traffic_is_left_alone() {
    if !is_installed() {
        return;
    }
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let sealed = golden.datagram("sealed with-records");
    let frames = [
        udp4(&sealed, PORT),
        udp4(&sealed, 9_999),
        udp4(b"short", PORT),
        udp4(&[2; 100], PORT),
    ];
    let input = folder.capture("ports.pcap", &frames);
    let fields = ["asterism.member", "asterism.version", "asterism.future"];
    let fields = fields.map(str::to_owned).into();
    let members = |more: &[&str]| -> Vec<bool> {
        let shown = shown(&folder, &input, &fields, more);
        shown
            .iter()
            .map(|shown| shown.contains_key("asterism.member"))
            .collect()
    };
    assert_eq!(members(&[]), [true, false, false, false]);
    let preference = ["-o", "asterism.ports:9990-9999"];
    assert_eq!(members(&preference), [false, true, false, false]);
    let decode_as = ["-d", "udp.port==9999,asterism"];
    assert_eq!(members(&decode_as), [true, true, false, false]);
    let shown = shown(&folder, &input, &fields, &[]);
    assert_eq!(shown[3]["asterism.version"], ["2"]);
    assert!(shown[3].contains_key("asterism.future"));

    // Opened ones are known by their mark.
    let start = folder.capture(
        "start.pcap",
        &[udp4(&golden.datagram("handshake hello"), PORT)],
    );
    let output = folder.text("opened.pcap");
    let opened = folder.decrypt(&["--handshakes", &start, &input, &output]);
    assert_eq!(opened.0, End::Done);
    let capture = crate::wireshark::frames::frames_of(&folder.path("opened.pcap"));
    assert_eq!(capture.len(), 4);
    let fields = ["asterism.records.first"].map(str::to_owned).into();
    let shown = self::shown(&folder, &output, &fields, &[]);
    assert_eq!(shown[1]["asterism.records.first"], ["300"]);
}

#[test]
fn a_retry_and_a_cookie_are_shown() {
    if !is_installed() {
        return;
    }
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let retry = named(&golden.datagrams, "retry of-the-hello");
    let hello = golden.datagram("handshake hello");
    let cookie = hex(retry.text("cookie"));
    let frames = [
        udp4(&retry.bytes, PORT),
        udp4(&[&hello[..], &cookie[..]].concat(), PORT),
    ];
    let input = folder.capture("flood.pcap", &frames);
    let fields = [
        "asterism.retry.answers",
        "asterism.retry.cookie",
        "asterism.handshake.cookie",
        "asterism.tag",
        "asterism.malformed",
        "_ws.col.Info",
    ];
    let fields = fields.map(str::to_owned).into_iter().collect();
    let shown = shown(&folder, &input, &fields, &[]);
    let digits = |text: &str| vec![text.replace(' ', "")];
    assert_eq!(
        shown[0]["asterism.retry.answers"],
        digits(retry.text("answers"))
    );
    assert_eq!(
        shown[0]["asterism.retry.cookie"],
        digits(retry.text("cookie"))
    );
    assert_eq!(shown[0]["_ws.col.Info"], ["member 2 #0: Retry"]);
    assert_eq!(
        shown[1]["asterism.handshake.cookie"],
        digits(retry.text("cookie"))
    );
    assert_eq!(shown[1]["asterism.tag"], digits(retry.text("answers")));
    assert!(
        shown
            .iter()
            .all(|shown| !shown.contains_key("asterism.malformed"))
    );
}
