//! Linux's recordings and our NAT: nothing may differ that no rule explains.

use std::collections::BTreeSet;

use asterism_oracle::live::SCENARIOS;
use asterism_oracle::{Recording, Report, Rule, compare};

fn check(recording: &Recording) -> Report {
    let report = compare(recording).expect("the recording is whole");
    let lines: Vec<String> = report
        .differences
        .iter()
        .map(|difference| format!("{} us: {}", difference.time_us, difference.sentence))
        .collect();
    eprintln!(
        "{}: {} arrived, {} compared, {} fields, {} swallowed, explained {:?}, normalised {:?}, drops {:?}",
        recording.name,
        report.arrived,
        report.compared,
        report.fields,
        report.swallowed,
        report.explained,
        recording.normalised,
        report.drops
    );
    assert!(
        lines.is_empty(),
        "{}:\n{}",
        recording.name,
        lines.join("\n")
    );
    report
}

#[test]
fn sends_what_linux_6_18_sent() {
    let Some(recording) = asterism_oracle::development().expect("the recording is whole") else {
        eprintln!("SKIPPED (shared data absent): oracle/development");
        return;
    };
    let report = check(&recording);
    assert_eq!(report.compared, 169, "{report:?}");
    assert_eq!(report.explained[&Rule::SilentlyDropped], 3);
}

#[test]
fn sends_what_linux_sent_in_every_scenario() {
    let recordings = Recording::load_all(&asterism_oracle::shipped()).expect("they are whole");
    let names: BTreeSet<&str> = recordings.iter().map(|one| one.name.as_str()).collect();
    let wanted: BTreeSet<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    assert_eq!(names, wanted, "a recording for each scenario");
    let mut all = Report::default();
    for recording in &recordings {
        all.add(&check(recording));
    }
    assert!(all.compared > 1_000, "{}", all.compared);
    for rule in Rule::ALL {
        assert!(
            all.explained.contains_key(&rule),
            "{rule:?} explains nothing"
        );
    }
}

/// What Linux sent, changed bit by bit: every change must be seen. Without this the comparison might be blind.
#[test]
fn every_change_is_seen() {
    for name in ["echo", "tcp", "icmp-errors", "narrow-inside"] {
        let recording = Recording::load(&asterism_oracle::shipped().join(name)).expect("whole");
        let before = check(&recording);
        let mut unseen = Vec::new();
        for (place, frame) in recording.sent.iter().enumerate() {
            // The identification of the box's own packets is Linux's to choose, and its checksum follows it.
            let own = frame.bytes[34] == 3 || frame.bytes[34] == 11 || frame.bytes[34] == 0;
            let own = own && frame.bytes[23] == 1;
            let places = [
                0, 14, 15, 16, 17, 18, 20, 21, 22, 23, 26, 29, 30, 33, 34, 35, 36, 39, 41,
            ];
            let at = places[place % places.len()];
            if own && at == 18 || at >= frame.bytes.len() {
                continue;
            }
            let mut changed = recording.clone();
            changed.sent[place].bytes[at] ^= 0x10;
            let report = compare(&changed).expect("the comparison is made");
            if report.differences.is_empty() && report.explained == before.explained {
                unseen.push(format!("byte {at} of packet {place}"));
            }
        }
        // Nothing of ours is beside what Linux alone sends.
        let alone = before.explained.get(&Rule::SilentlyDropped).unwrap_or(&0);
        assert!(
            unseen.len() as u64 <= *alone,
            "{name}: {unseen:?} changed unseen"
        );
        // One packet less.
        for place in (0..recording.sent.len()).step_by(7) {
            let mut changed = recording.clone();
            changed.sent.remove(place);
            let report = compare(&changed).expect("the comparison is made");
            assert!(
                !report.differences.is_empty() || report.explained != before.explained,
                "{name}: packet {place} missing unseen"
            );
        }
    }
}
