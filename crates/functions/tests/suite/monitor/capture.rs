//! Captures as packets with whole seconds of a clock that never goes back, through one monitor, and what it exports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use asterism_function::PortNumber;
use asterism_function::testkit::{START_TICK, Testkit};
use asterism_functions::monitor::{Flow, FlowRecord, Monitor, MonitorConfig};

/// A frame, and the seconds that passed before it.
pub(crate) type Step = (u32, Vec<u8>);

/// Packets and bytes by flow.
pub(crate) type Counts = BTreeMap<Flow, (u64, u64)>;

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

/// Captures that come with the tree.
pub(crate) const OWN: [&str; 4] = [
    "trex-exchange_0.pcap",
    "trex-smtp_0.pcap",
    "nmap-sT-top200.pcap",
    "nmap-sS-top1000.pcap",
];

/// The tree's captures, and what there is of the large ones.
pub(crate) fn captures(test: &str) -> Vec<PathBuf> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../rehearsal/data/");
    let mut captures: Vec<PathBuf> = OWN.iter().map(|name| Path::new(own).join(name)).collect();
    if let Some(traces) = traces(test) {
        for name in [
            "mixed/ndpi-wechat.pcap",
            "mixed/ndpi-teams.pcap",
            "bulk/ndpi-netflix.pcap",
            "manyconn/onvm-64B_download.pcap",
            "attack/slips-test-cc-1.pcap",
        ] {
            captures.push(traces.join(name));
        }
    }
    captures
}

/// Reads a classic pcap file of Ethernet frames. Time stamps that go back stand still.
pub(crate) fn read(path: &Path) -> Vec<Step> {
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
        matches!(word(0), 0xa1b2_c3d4 | 0xa1b2_3c4d) && word(20) == 1,
        "{} is a pcap file of Ethernet frames",
        path.display()
    );
    let (mut at, mut latest) = (24, None);
    let mut steps = Vec::new();
    while at + 16 <= bytes.len() {
        let (second, length) = (word(at), word(at + 8) as usize);
        let passed = second.saturating_sub(*latest.get_or_insert(second));
        latest = latest.map(|latest: u32| latest + passed);
        steps.push((passed, bytes[at + 16..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    steps
}

/// Runs steps through one monitor and gives its flows of all intervals, each read when its interval is over, and the monitor.
pub(crate) fn run(config: MonitorConfig, steps: &[Step]) -> (Counts, Testkit<Monitor>) {
    let mut kit = Testkit::new(Monitor::new(config));
    let mut counts = Counts::new();
    let interval_s = kit.function().config().interval_s;
    let mut tick = START_TICK;
    let mut take = |kit: &Testkit<Monitor>, tick: u32| {
        kit.state()
            .flows_at(tick, (0, u32::MAX), |record: FlowRecord| {
                let count = counts.entry(record.flow).or_default();
                *count = (count.0 + record.packets, count.1 + record.bytes);
            });
    };
    for (passed, frame) in steps {
        if *passed > 0 {
            if (tick + passed) / interval_s != tick / interval_s {
                take(&kit, tick);
            }
            tick += passed;
            kit.advance(*passed);
        }
        let outcome = kit.packet(PortNumber(0), frame);
        assert_eq!(&outcome.packet, frame, "the packet leaves as it came");
    }
    take(&kit, tick);
    (counts, kit)
}
