//! What a port-scan IDPS measures.

use asterism_function::testkit::{Testkit, measured};
use asterism_function::{PortNumber, Reason, Verdict};
use asterism_functions::port_scan::{PortScan, PortScanConfig, VolumePolicy};

use crate::port_scan::packets::{ping, syn, udp};

const NAMES: [&str; 5] = [
    "watched_trails",
    "alerts_total",
    "blocked_sources",
    "watched_ports",
    "unrecorded_total",
];

fn counts(kit: &Testkit<PortScan>) -> [u64; 5] {
    NAMES.map(|name| measured(kit.function(), kit.state(), name))
}

#[test]
fn trails_alerts_and_blocks_are_counted() {
    let mut kit = Testkit::new(PortScan::new(PortScanConfig {
        alert_keep_s: 600,
        ..PortScanConfig::default()
    }));
    assert_eq!(counts(&kit), [0; 5]);
    kit.packet(PortNumber(0), &syn(1, (2, 80)));
    kit.packet(PortNumber(0), &ping(1, 2));
    kit.packet(PortNumber(0), &syn(3, (2, 80)));
    assert_eq!(
        counts(&kit),
        [3, 0, 0, 0, 0],
        "one for each class of probes"
    );
    let scan = |kit: &mut Testkit<PortScan>| {
        let probes = (0..40).map(|port| kit.packet(PortNumber(0), &syn(9, (2, port))).verdict);
        probes
            .filter(|verdict| *verdict == Verdict::Drop(Reason::Blocked))
            .count()
    };
    assert!(scan(&mut kit) > 20);
    assert_eq!(counts(&kit)[1..], [1, 1, 0, 0]);
    scan(&mut kit);
    assert_eq!(counts(&kit)[1..], [1, 1, 0, 0], "it is one alert");
    // All is forgotten; what was raised stays counted, and the next scan is another.
    for _ in 0..20 {
        kit.advance(100);
    }
    assert_eq!(counts(&kit), [0, 1, 0, 0, 0]);
    scan(&mut kit);
    assert_eq!(counts(&kit)[1..], [2, 1, 0, 0]);
}

#[test]
fn what_finds_no_room_and_ports_whose_volume_is_measured_are_counted() {
    let mut kit = Testkit::new(PortScan::new(PortScanConfig {
        histories_max: 10,
        volume: Some(VolumePolicy {
            bits: 160_000,
            window_s: 10,
            block_s: 60,
        }),
        ..PortScanConfig::default()
    }));
    for source in 0..50 {
        kit.packet(PortNumber(0), &syn(100 + source, (2, 80)));
    }
    assert_eq!(counts(&kit), [10, 0, 0, 1, 40]);
    for _ in 0..50 {
        kit.packet(PortNumber(0), &udp((100, 9), (2, 53), b"x"));
    }
    assert_eq!(counts(&kit)[3], 2);
}
