//! Alerts in the form of `eve.json`: what a line contains, how long it may be, and which alerts a host writes.

use core::net::{Ipv4Addr, Ipv6Addr};

use asterism_function::notice::{CATEGORY_BYTES_MAX, End, Notice, Outcome, TEXT_BYTES_MAX};
use asterism_function::{OwnEvent, Tick};
use asterism_functions::events;
use asterism_functions::firewall::DENIED;
use asterism_host::eve::ledger::Ledger;
use asterism_host::eve::line::{Author, LineStats, PacketStats, Stats};
use serde_json::Value;

fn author() -> Author {
    Author {
        host: "a".repeat(64),
        cluster: "c".repeat(64),
        members: asterism_epochs::MemberNames::listed(vec!["m".repeat(64)]),
        stages: vec!["s".repeat(64)],
    }
}

#[test]
fn a_line_has_both_ends_and_what_happened() {
    let notice = Notice {
        generator: OwnEvent::OPERATOR,
        id: 1_000_001,
        text: "a \"shell\"\n{".into(),
        category: "Misc Attack".into(),
        severity: 2,
        first: Some(0),
        member: 1,
        source: End::endpoint((Ipv4Addr::new(192, 0, 2, 1).into(), 1_025)),
        destination: End::endpoint((Ipv6Addr::LOCALHOST.into(), 80)),
        protocol: Some(6),
        outcome: Outcome::Dropped,
        flow: Some(u64::MAX),
        is_of_destination: false,
        detail: String::new(),
    };
    let line = author().alert(&notice, 0, 1_735_689_599_000_007).unwrap();
    assert!(line.ends_with("}\n") && line.matches('\n').count() == 1);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["timestamp"], "2024-12-31T23:59:59.000007+00:00");
    assert_eq!(value["src_ip"], "192.0.2.1");
    assert_eq!(value["dest_ip"], "::1");
    assert_eq!(value["proto"], "TCP");
    assert_eq!(value["flow_id"], (1u64 << 53) - 1);
    assert_eq!(value["alert"]["signature"], "a \"shell\"\n{");
    assert_eq!(value["alert"]["category"], "Misc Attack");
    assert_eq!(value["alert"]["severity"], 2);
    assert_eq!(value["alert"]["action"], "blocked");
    assert!(value["asterism"].get("detail").is_none());
}

#[test]
fn the_longest_line_is_within_its_bound() {
    // Control letters take six bytes each.
    let longest = "\u{1}".repeat(TEXT_BYTES_MAX);
    let end = End::endpoint((Ipv6Addr::from_bits(u128::MAX).into(), u16::MAX));
    let notice = Notice {
        generator: u32::MAX,
        id: u32::MAX,
        text: longest.clone(),
        category: "\"".repeat(CATEGORY_BYTES_MAX),
        severity: u8::MAX,
        first: Some(0),
        member: 1,
        source: end,
        destination: end,
        protocol: Some(58),
        outcome: Outcome::Dropped,
        flow: Some(u64::MAX),
        is_of_destination: false,
        detail: longest,
    };
    assert!(
        author()
            .alert(&notice, 0, u64::from(u32::MAX) * 1_000_000)
            .is_some()
    );
    let reasons = asterism_function::Reason::ALL.iter();
    let stats = Stats {
        uptime: u64::MAX,
        packets: PacketStats {
            reasons: reasons.map(|reason| (reason.label(), u64::MAX)).collect(),
            ..PacketStats::default()
        },
        eve: LineStats::default(),
    };
    assert!(author().stats(stats, 0).is_some());
}

#[test]
fn every_event_has_a_line_also_those_of_functions_that_this_program_does_not_know() {
    let theirs = OwnEvent::new(7, "Something was seen", "Misc activity", 3);
    for event in events::all().into_iter().chain([theirs]) {
        let line = author().alert(&Notice::of(&event, 9), 3, 0).unwrap();
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["alert"]["gid"], event.generator);
        assert_eq!(value["alert"]["signature_id"], event.id);
        assert_eq!(value["alert"]["signature"], event.text);
        let denied = event == DENIED;
        assert_eq!(value["event_type"], if denied { "drop" } else { "alert" });
    }
}

fn scan(source: u8, first: Tick) -> Notice {
    Notice {
        first: Some(first),
        source: End::host(Ipv4Addr::new(192, 0, 2, source).into()),
        ..Notice::default()
    }
}

#[test]
fn an_alert_is_written_once_until_it_is_raised_again() {
    let mut ledger = Ledger::default();
    assert!(ledger.take(0, &scan(1, 100), 100, true, false));
    assert!(ledger.take(1, &scan(1, 100), 100, true, false), "a stage");
    for now in 100..4_000 {
        assert!(!ledger.take(0, &scan(1, 100), now, true, false));
        assert!(!ledger.take(0, &scan(1, 98), now, true, false), "joined");
        ledger.end_walk();
    }
    assert_eq!(ledger.len(), 1, "the other stage's idled out");
    assert!(ledger.take(0, &scan(1, 4_000), 4_000, true, false));
    for _ in 0..3 {
        ledger.end_walk();
    }
    assert!(ledger.is_empty());
    assert!(ledger.take(0, &scan(1, 4_000), 4_001, true, false));
}

#[test]
fn what_was_there_before_is_known_and_what_a_silent_host_owed_is_written() {
    let mut ledger = Ledger::default();
    assert!(!ledger.take(0, &scan(1, 50), 100, true, true));
    assert!(!ledger.take(0, &scan(1, 50), 101, true, false));
    // Another host writes, and falls silent.
    assert!(!ledger.take(0, &scan(2, 110), 110, false, false));
    assert!(!ledger.take(0, &scan(3, 118), 118, false, false));
    assert!(!ledger.take(0, &scan(2, 110), 121, true, false), "long ago");
    assert!(ledger.take(0, &scan(3, 118), 121, true, false));
    assert!(!ledger.take(0, &scan(3, 118), 121, true, false));
}
