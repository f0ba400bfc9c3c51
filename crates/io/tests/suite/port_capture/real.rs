//! Captures that real tools wrote, against what an independent tool counted in them.

use asterism_io::port::{CaptureError, CaptureProblem, CaptureReader};
use std::path::{Path, PathBuf};

/// The number behind `"key": ` in one of the facts files, which are flat enough for it.
fn fact<'a>(facts: &'a str, key: &str) -> Option<&'a str> {
    let rest = facts.split_once(&format!("\"{key}\": "))?.1;
    Some(rest.split([',', '\n', '}']).next()?.trim_matches('"'))
}

fn captures(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            captures(&path, into);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "pcap" || extension == "pcapng")
        {
            into.push(path);
        }
    }
}

#[test]
fn real_captures_agree_with_what_capinfos_counted() {
    let traces = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/traces"
    ));
    if !traces.exists() {
        eprintln!("SKIPPED (shared data absent): real_captures_agree_with_what_capinfos_counted");
        return;
    }
    let mut files = Vec::new();
    captures(traces, &mut files);
    let (mut compared, mut refused) = (0, 0);
    for path in files {
        let mut into = Vec::new();
        let mut reader = match CaptureReader::open(&path) {
            Ok(reader) => reader,
            Err(CaptureError {
                problem: CaptureProblem::LinkType(_),
                ..
            }) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let (mut packets, mut bytes, mut first, mut last) = (0u64, 0u64, u64::MAX, 0u64);
        while let Some(packet) = reader.next(&mut into).unwrap() {
            packets += 1;
            bytes += u64::from(packet.original_length);
            (first, last) = (
                first.min(packet.timestamp_ns),
                last.max(packet.timestamp_ns),
            );
        }
        let name = path.file_stem().unwrap().to_string_lossy();
        let Ok(facts) = std::fs::read_to_string(traces.join(format!("facts/{name}.json"))) else {
            continue;
        };
        assert_eq!(
            fact(&facts, "packets"),
            Some(packets.to_string().as_str()),
            "{name}"
        );
        assert_eq!(
            fact(&facts, "data_bytes"),
            Some(bytes.to_string().as_str()),
            "{name}"
        );
        let duration: f64 = fact(&facts, "duration_s").unwrap().parse().unwrap();
        let seen = (last - first) as f64 / 1e9;
        // This file's fractions are all beyond a second, which its reader may take as it likes.
        let damaged = name == "onvm-64B_download";
        assert!(
            damaged || (duration - seen).abs() < 2e-6 * duration.max(1.0),
            "{name}: {duration}, seen {seen}"
        );
        compared += 1;
    }
    assert!(
        compared >= 60 && refused >= 1,
        "{compared} compared, {refused} refused"
    );
}
