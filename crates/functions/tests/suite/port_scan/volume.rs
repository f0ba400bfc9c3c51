//! The volume policy, on one instance.

use asterism_blocking::blocked::{BLOCKED_QUESTION, BlockedRecord};
use asterism_function::notice::{End, Notice, QUESTION};
use asterism_function::records::read_records;
use asterism_function::testkit::Testkit;
use asterism_function::{Observable, PortNumber, Reason, Verdict};
use asterism_functions::port_scan::{PortScan, PortScanConfig, VolumePolicy};

use crate::port_scan::capture::detect;
use crate::port_scan::packets::{host, syn, udp};

const FORWARD: Verdict = Verdict::Forward(PortNumber(1));

fn kit(volume: VolumePolicy) -> Testkit<PortScan> {
    Testkit::new(PortScan::new(PortScanConfig {
        volume: Some(volume),
        ..detect()
    }))
}

#[test]
fn the_papers_threshold_is_kept_to_the_packet() {
    let mut kit = kit(VolumePolicy::default());
    let frame = udp((1, 9_000), (2, 9), &[0; 1_458]);
    assert_eq!(frame.len(), 1_500);
    let allowed = 1_024_000_000 / 12_000 + 1;
    for number in 0..allowed {
        assert_eq!(
            kit.packet(PortNumber(0), &frame).verdict,
            FORWARD,
            "packet {number}"
        );
    }
    kit.advance(1_000_000);
    assert_eq!(
        kit.packet(PortNumber(0), &frame).verdict,
        Verdict::Drop(Reason::PortBlocked)
    );
    assert_eq!(
        kit.packet(PortNumber(0), &udp((1, 9_000), (2, 10), b""))
            .verdict,
        FORWARD,
        "another port"
    );
    assert_eq!(
        kit.packet(PortNumber(0), &udp((2, 9), (1, 9_000), b""))
            .verdict,
        FORWARD,
        "from the port"
    );
}

/// Who is blocked is reported: a port for ever, and a source that scanned.
#[test]
fn ports_and_sources_that_are_blocked_are_reported() {
    let mut kit = Testkit::new(PortScan::new(PortScanConfig {
        volume: Some(VolumePolicy {
            bits: 8_000,
            ..VolumePolicy::default()
        }),
        ..PortScanConfig::default()
    }));
    for _ in 0..10 {
        kit.packet(PortNumber(0), &udp((1, 9_000), (2, 9), &[0; 958]));
    }
    for port in 0..20 {
        kit.packet(PortNumber(0), &syn(7, (2, port)));
    }
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let range = (from, 16);
        cursor = (kit.function()).report(kit.state(), BLOCKED_QUESTION, range, &mut bytes);
    }
    assert!(read_records(&bytes, |record: BlockedRecord| records.push(record)));
    let [source, port] = &records[..] else {
        panic!("{records:?}");
    };
    assert_eq!(source.source, End::host(host(7).into()));
    assert_eq!(
        (source.by.as_str(), source.destination),
        ("it scanned", End::default())
    );
    assert_eq!(
        (port.source, port.destination.port),
        (End::default(), Some(9))
    );
    assert_eq!(port.until, u32::MAX);
}

#[test]
fn a_window_starts_again_and_a_block_ends() {
    let mut kit = kit(VolumePolicy {
        bits: 16 * 8_000,
        window_s: 10,
        block_s: 25,
    });
    let frame = udp((1, 9_000), (2, 9), &[0; 958]);
    assert_eq!(frame.len(), 1_000);
    let mut passed = 0;
    // Fifteen frames in each window are below sixteen.
    for _ in 0..8 {
        for _ in 0..15 {
            passed += u32::from(kit.packet(PortNumber(0), &frame).verdict == FORWARD);
        }
        kit.advance(10);
    }
    assert_eq!(passed, 120);
    // The window's first frame, and sixteen that fit; the next one passes and is the last.
    let flood = |kit: &mut Testkit<PortScan>| {
        (0..100)
            .filter(|_| kit.packet(PortNumber(0), &frame).verdict == FORWARD)
            .count()
    };
    assert_eq!(flood(&mut kit), 18);
    kit.advance(24);
    assert_eq!(flood(&mut kit), 0);
    kit.advance(6);
    assert_eq!(flood(&mut kit), 18, "the block is over and a window began");
}

/// A flood of one port beside a hundred others: none of those is blocked, and without the flood nothing is.
#[test]
fn a_flood_of_one_port_blocks_that_port_alone_and_ordinary_traffic_none() {
    let policy = VolumePolicy {
        bits: 1_000 * 8_000,
        window_s: 10,
        block_s: 30,
    };
    for floods in [false, true] {
        let mut kit = kit(policy);
        let mut dropped = std::collections::BTreeMap::new();
        for turn in 0..300u32 {
            let ordinary = (0..100u16).map(|port| (9_000 + port, 1));
            let flood = floods.then_some((53, 200));
            for (port, count) in ordinary.chain(flood) {
                // One frame of a hundred bytes a second to each of a hundred ports, and two hundred of a thousand to the flooded one.
                let payload = if port == 53 { 958 } else { 58 };
                let frame = udp(
                    (20_000 + (turn % 7) as u16, 5_000),
                    (2, port),
                    &[0; 958][..payload],
                );
                for _ in 0..count {
                    if kit.packet(PortNumber(0), &frame).verdict != FORWARD {
                        *dropped.entry(port).or_insert(0) += 1;
                    }
                }
            }
            kit.advance(1);
        }
        let blocked: Vec<u16> = dropped.keys().copied().collect();
        assert_eq!(blocked, if floods { vec![53] } else { vec![] });
        let function = PortScan::new(PortScanConfig {
            volume: Some(policy),
            ..detect()
        });
        let (mut bytes, mut notices) = (Vec::new(), Vec::new());
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            cursor = function.report(kit.state(), QUESTION, (from, 16), &mut bytes);
        }
        assert!(Notice::read_all(&bytes, |notice| notices.push(notice)));
        notices.retain(|notice| notice.id == 10);
        let ports: Vec<_> = notices
            .iter()
            .map(|notice| notice.destination.port)
            .collect();
        assert_eq!(ports, if floods { vec![Some(53)] } else { vec![] });
        // A thousand frames are too many: they come in five seconds, then all is dropped for thirty.
        if floods {
            assert!(dropped[&53] > 300 * 200 / 2, "{dropped:?}");
        }
    }
}
