//! Captures as packets with whole seconds of a clock that never goes back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use asterism_function::testkit::Testkit;
use asterism_function::{PortNumber, Verdict};
use asterism_functions::port_scan::{Alert, PortScan, PortScanConfig, Response, Subject};

/// A frame, and the seconds that passed before it.
pub(crate) type Step = (u32, Vec<u8>);

/// The folder of captures; `None`, said loudly, when it is absent.
pub(crate) fn traces(test: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/traces"
    ));
    if !folder.is_dir() {
        eprintln!("SKIPPED (shared data absent): {test}");
        return None;
    }
    Some(folder)
}

/// Reads a classic pcap file of Ethernet or raw IP frames. Time stamps that go back stand still.
pub(crate) fn read(path: &std::path::Path) -> Vec<Step> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let word = |at: usize| {
        let word: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        if bytes[0] == 0xa1 {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        }
    };
    assert!(
        matches!(word(0), 0xa1b2_c3d4 | 0xa1b2_3c4d),
        "{} is a pcap file",
        path.display()
    );
    let is_ethernet = word(20) == 1;
    let (mut at, mut latest) = (24, None);
    let mut steps = Vec::new();
    while at + 16 <= bytes.len() {
        let (second, length) = (word(at), word(at + 8) as usize);
        let frame = &bytes[at + 16..at + 16 + length];
        let passed = second.saturating_sub(*latest.get_or_insert(second));
        latest = latest.map(|latest: u32| latest + passed);
        let mut whole = Vec::with_capacity(length + 14);
        if !is_ethernet {
            whole.extend_from_slice(&[0; 12]);
            whole.extend_from_slice(if frame.first().is_some_and(|byte| byte >> 4 == 6) {
                &[0x86, 0xdd]
            } else {
                &[8, 0]
            });
        }
        whole.extend_from_slice(frame);
        steps.push((passed, whole));
        at += 16 + length;
    }
    steps
}

/// The defaults, with everything let through.
pub(crate) fn detect() -> PortScanConfig {
    PortScanConfig {
        response: Response::Detect,
        ..PortScanConfig::default()
    }
}

/// Runs steps through one instance: its alerts, and how many packets were dropped as blocked.
pub(crate) fn run(config: PortScanConfig, steps: &[Step]) -> (Vec<(Subject, Alert)>, usize) {
    let mut kit = Testkit::new(PortScan::new(config));
    let mut dropped = 0;
    // Alerts are forgotten after an hour, and some captures span years.
    let mut alerts = BTreeMap::new();
    for (seconds, frame) in steps {
        if *seconds > 0 {
            alerts.extend(kit.state().alerts());
            assert_eq!(kit.state().floods(), []);
            kit.advance(*seconds);
        }
        let outcome = kit.packet(PortNumber(0), frame);
        assert_eq!(&outcome.packet, frame, "the packet leaves as it came");
        dropped += usize::from(matches!(
            outcome.verdict,
            Verdict::Drop(asterism_function::Reason::Blocked)
        ));
    }
    assert_eq!(kit.state().unrecorded.get(), Ok(0));
    assert_eq!(kit.state().floods(), []);
    alerts.extend(kit.state().alerts());
    (alerts.into_iter().collect(), dropped)
}

/// Alerts as `kind of source (methods)`.
pub(crate) fn names(alerts: &[(Subject, Alert)]) -> Vec<String> {
    alerts
        .iter()
        .map(|(subject, alert)| {
            let methods: Vec<_> = alert.methods.names().collect();
            format!(
                "{} of {} ({})",
                subject.kind(),
                subject.source,
                methods.join(" ")
            )
        })
        .collect()
}
