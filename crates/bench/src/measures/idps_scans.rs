//! `idps.scans`: scans in labelled captures that the port-scan function misses, and alarms where there is no scan.
//!
//! The labels are not ours: command lines of nmap, and what other detectors expect of the same files. Traps are captures that
//! must raise no alarm: ordinary traffic of many kinds, backscatter of a flood, a client's burst of connections. Each capture is
//! played to one instance, and dealt at random over three that hear of each other after every second packet, three times.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use asterism_function::PortNumber;
use asterism_function::testkit::ClusterKit;
use asterism_functions::port_scan::{Class, PortScan, PortScanConfig, Response, Shape};

use super::captures::{Step, folder, steps};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::traffic::Random;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "idps.scans",
    make: scans,
}];

/// Folders of captures without a label.
const TRAPS: [&str; 12] = [
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
/// One of those holds a scan after all, seen by hand: a host that reports to an IRC server, and then opens port 139 of a new
/// address every 30 ms.
const WORM: (&str, &str) = ("mercury-emix.pcap", "192.168.1.124");
/// Instances, and the packets between two exchanges.
const SETTINGS: [(u16, usize); 2] = [(1, 1), (3, 2)];
/// How often a capture is dealt.
const DEALS: u64 = 3;
/// Pauses longer than an hour: captures that jump by years jump by that.
const PAUSE_US_MAX: u64 = 3_600_000_000;

/// A scan: who, what kind of probe, and whether over ports or over hosts.
type Scan = (IpAddr, Class, Shape);

struct Case {
    name: String,
    steps: Vec<Step>,
    expected: Option<Scan>,
}

fn scans(context: &Context) -> Result<Outcome, Failure> {
    let folder = folder()?;
    let (mut cases, labelled) = labelled(&folder)?;
    let unread = traps(&folder, &mut cases)?;
    let (mut missed, mut false_alarms, mut played, mut packets) = (0, 0, 0, 0);
    for case in &cases {
        for (instances, lag) in SETTINGS {
            for deal in 0..if instances == 1 { 1 } else { DEALS } {
                let found = play(case, instances, lag, context.seed + deal);
                let expected: BTreeSet<Scan> = case.expected.into_iter().collect();
                for scan in expected.difference(&found) {
                    missed += 1;
                    context.say(&format!(
                        "{}: {scan:?} was missed by {instances} instances",
                        case.name
                    ));
                }
                for scan in found.difference(&expected) {
                    false_alarms += 1;
                    context.say(&format!(
                        "{}: {scan:?} is a false alarm of {instances} instances",
                        case.name
                    ));
                }
                played += 1;
                packets += case.steps.len();
            }
        }
    }
    Ok(Outcome::new(f64::from(missed + false_alarms), played)
        .variant("missed", f64::from(missed))
        .variant("false-alarms", f64::from(false_alarms))
        .variant("labelled-scans", labelled as f64)
        .variant("traps", (cases.len() - labelled) as f64)
        .variant("captures-not-of-ethernet", unread as f64)
        .variant("packets", packets as f64))
}

/// The captures with a label, and how many of them hold a scan.
fn labelled(folder: &Path) -> Result<(Vec<Case>, usize), Failure> {
    let absent = |why: String| Failure::Absent(format!("scan-labels.csv: {why}"));
    let text = std::fs::read_to_string(folder.join("scan-labels.csv"))
        .map_err(|error| absent(error.to_string()))?;
    let mut cases = Vec::new();
    for line in text.lines().skip(1) {
        let mut fields = line.split(',');
        let (Some(file), Some(scanner), Some(kind)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err(absent(format!("`{line}` has no three fields")));
        };
        let path = folder.join(file);
        cases.push(Case {
            name: file.to_owned(),
            steps: steps(&path).map_err(absent)?,
            expected: scanner.parse().ok().map(|scanner| scan_of(scanner, kind)),
        });
    }
    let scans = cases.iter().filter(|case| case.expected.is_some()).count();
    if scans == 0 || scans == cases.len() {
        return Err(absent(format!("{scans} scans of {} labels", cases.len())));
    }
    Ok((cases, scans))
}

/// What a label's words mean.
fn scan_of(scanner: IpAddr, kind: &str) -> Scan {
    let class = match () {
        () if kind.contains("ICMP") => Class::Icmp,
        () if kind.contains("UDP") => Class::Udp,
        () => Class::Tcp,
    };
    let shape = match () {
        () if kind.contains("sweep") || kind.contains("horizontal") => Shape::Hosts,
        () => Shape::Ports,
    };
    (scanner, class, shape)
}

/// Adds the captures of ordinary traffic; returns how many are of another link than Ethernet, which are left out.
fn traps(folder: &Path, cases: &mut Vec<Case>) -> Result<usize, Failure> {
    let mut unread = 0;
    for trap in TRAPS {
        let entries = std::fs::read_dir(folder.join(trap))
            .map_err(|error| Failure::Absent(format!("{trap}: {error}")))?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(steps) = steps(&path) else {
                unread += 1;
                continue;
            };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let worm = (name == WORM.0)
                .then(|| WORM.1.parse().ok())
                .flatten()
                .map(|host| (host, Class::Tcp, Shape::Hosts));
            cases.push(Case {
                name: format!("{trap}/{name}"),
                steps,
                expected: worm,
            });
        }
    }
    Ok(unread)
}

/// What is found in a capture dealt over instances.
fn play(case: &Case, instances: u16, lag: usize, seed: u64) -> BTreeSet<Scan> {
    let config = PortScanConfig {
        response: Response::Detect,
        ..PortScanConfig::default()
    };
    let mut kit = ClusterKit::new(PortScan::new(config), instances, seed);
    let mut random = Random::new(seed);
    let mut found = BTreeSet::new();
    // Alerts are forgotten after an hour, and some captures span years.
    let mut look = |kit: &ClusterKit<PortScan>| {
        let alerts = kit.state(0).alerts();
        found.extend(
            alerts
                .iter()
                .map(|(subject, _)| (subject.source.address(), subject.class, subject.shape)),
        );
    };
    for (place, step) in case.steps.iter().enumerate() {
        if step.passed_us > 1_000_000 {
            kit.exchange();
            look(&kit);
        }
        kit.advance_us(step.passed_us.min(PAUSE_US_MAX));
        let member = random.below(u64::from(instances)) as usize;
        kit.packet(member, PortNumber(0), &step.frame);
        if place % lag == lag - 1 {
            kit.exchange();
        }
    }
    kit.agree();
    look(&kit);
    found
}
