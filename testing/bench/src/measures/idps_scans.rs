//! `idps.scans`: scans in labelled captures and SYN floods that the port-scan function misses, and alarms where there is neither.
//!
//! The labels are not ours: command lines of nmap, and what other detectors expect of the same files. Traps are captures that
//! must raise no alarm: ordinary traffic of many kinds, backscatter of a flood, a client's burst of connections. Each capture is
//! played to one instance, and dealt at random over three that hear of each other after every second packet, three times.
//!
//! No capture holds a SYN flood, those of other floods among them. So floods are made and laid over captures, from one source and from
//! many forged ones; beside them, as a trap, a crowd of as many clients whose handshakes complete.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use asterism_function::build::{self, Header4, Segment};
use asterism_function::testkit::ClusterKit;
use asterism_function::{PortNumber, TcpFlags};
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
const TRAPS: [&str; 13] = [
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
    "flood",
];
/// Captures that floods and a crowd are laid over: a scan, the answers of a flood elsewhere, a burst of connections, many downloads.
const LAID_OVER: [&str; 4] = [
    "nmap/nmap-sS-top1000.pcap",
    "scan/simple-scan-backscatter.pcap",
    "nmap/benign-http-burst.pcap",
    "manyconn/onvm-64B_download.pcap",
];
/// Of a flood: SYNs a second, and seconds. A crowd has as many clients.
const FLOOD_SYNS: u32 = 200;
const FLOOD_SECONDS: u32 = 15;
/// Of the crowd's handshakes.
const ROUND_TRIP_US: u64 = 40_000;
/// Who is flooded.
const FLOODED: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 80), 443);
/// One of those holds a scan after all, seen manually: a host that reports to an IRC server, and then opens port 139 of a new
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

/// What can be found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Found {
    Scan(Scan),
    /// A flood of a service.
    Flood(IpAddr, u16),
}

struct Case {
    name: String,
    steps: Vec<Step>,
    expected: Vec<Found>,
}

/// What is laid over a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Laid {
    FromOne,
    FromMany,
    Crowd,
}

fn scans(context: &Context) -> Result<Outcome, Failure> {
    let folder = folder()?;
    let (mut cases, labelled) = labelled(&folder)?;
    let unread = traps(&folder, &mut cases)?;
    let floods = laid_over(&folder, &mut cases)?;
    let (mut missed, mut false_alarms, mut played, mut packets) = (0, 0, 0, 0);
    for case in &cases {
        for (instances, lag) in SETTINGS {
            for deal in 0..if instances == 1 { 1 } else { DEALS } {
                let found = play(case, instances, lag, context.seed + deal);
                let expected: BTreeSet<Found> = case.expected.iter().copied().collect();
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
        .variant("floods", floods as f64)
        .variant("traps", (cases.len() - labelled - floods) as f64)
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
            expected: scan_of(scanner, kind).into_iter().collect(),
        });
    }
    let scans = cases
        .iter()
        .filter(|case| !case.expected.is_empty())
        .count();
    if scans == 0 || scans == cases.len() {
        return Err(absent(format!("{scans} scans of {} labels", cases.len())));
    }
    Ok((cases, scans))
}

/// What a label's words mean; `None` where nobody scans.
fn scan_of(scanner: &str, kind: &str) -> Option<Found> {
    let scanner = scanner.parse().ok()?;
    let class = match () {
        () if kind.contains("ICMP") => Class::Icmp,
        () if kind.contains("UDP") => Class::Udp,
        () => Class::Tcp,
    };
    let shape = match () {
        () if kind.contains("sweep") || kind.contains("horizontal") => Shape::Hosts,
        () => Shape::Ports,
    };
    Some(Found::Scan((scanner, class, shape)))
}

/// Adds captures that floods and crowds are laid over, with what is found in them alone; returns how many floods.
fn laid_over(folder: &Path, cases: &mut Vec<Case>) -> Result<usize, Failure> {
    let mut floods = 0;
    for file in LAID_OVER {
        let alone = cases.iter().find(|case| case.name == file);
        let expected = alone.map_or_else(Vec::new, |case| case.expected.clone());
        for laid in [Laid::FromOne, Laid::FromMany, Laid::Crowd] {
            let under = steps(&folder.join(file))
                .map_err(|why| Failure::Absent(format!("{file}: {why}")))?;
            let mut expected = expected.clone();
            if laid != Laid::Crowd {
                expected.push(Found::Flood(FLOODED.0.into(), FLOODED.1));
                floods += 1;
            }
            cases.push(Case {
                name: format!("{file} with {laid:?}"),
                steps: lay(under, laid),
                expected,
            });
        }
    }
    Ok(floods)
}

/// A flood or a crowd that begins with a capture, each packet at its time.
fn lay(under: Vec<Step>, laid: Laid) -> Vec<Step> {
    let mut at_us = 0;
    let mut timed: Vec<_> = under
        .into_iter()
        .map(|step| {
            at_us += step.passed_us.min(PAUSE_US_MAX);
            (at_us, step.frame)
        })
        .collect();
    let one = Ipv4Addr::new(192, 0, 2, 1);
    for number in 0..FLOOD_SYNS * FLOOD_SECONDS {
        let client = match laid {
            Laid::FromOne => (one, 1_024 + number as u16),
            Laid::FromMany | Laid::Crowd => (Ipv4Addr::from_bits(0xcb00_0000 + number), 40_000),
        };
        let begins = u64::from(number) * 1_000_000 / u64::from(FLOOD_SYNS);
        timed.push((begins, segment(client, FLOODED, TcpFlags::SYN)));
        if laid == Laid::Crowd {
            let answer = segment(FLOODED, client, TcpFlags::SYN | TcpFlags::ACK);
            timed.push((begins + ROUND_TRIP_US / 2, answer));
            let completes = segment(client, FLOODED, TcpFlags::ACK);
            timed.push((begins + ROUND_TRIP_US, completes));
        }
    }
    timed.sort_by_key(|(at_us, _)| *at_us);
    let mut latest = 0;
    let steps = timed.into_iter().map(|(at_us, frame)| {
        let passed_us = at_us - latest;
        latest = at_us;
        Step { passed_us, frame }
    });
    steps.collect()
}

fn segment(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags: TcpFlags) -> Vec<u8> {
    let mut frame = vec![0; 128];
    let (header, segment) = (Header4::between(from.0, to.0), Segment::with_flags(flags));
    let length = build::tcp4(&header, from.1, to.1, &segment, b"", &mut frame);
    frame.truncate(length.expect("headers alone fit"));
    frame
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
                .map(|host| Found::Scan((host, Class::Tcp, Shape::Hosts)));
            cases.push(Case {
                name: format!("{trap}/{name}"),
                steps,
                expected: worm.into_iter().collect(),
            });
        }
    }
    Ok(unread)
}

/// What is found in a capture dealt over instances.
fn play(case: &Case, instances: u16, lag: usize, seed: u64) -> BTreeSet<Found> {
    let config = PortScanConfig {
        response: Response::Detect,
        ..PortScanConfig::default()
    };
    let mut kit = ClusterKit::new(PortScan::new(config), instances, seed);
    let mut random = Random::new(seed);
    let mut found = BTreeSet::new();
    // Alerts are forgotten after an hour, and some captures span years.
    let mut look = |kit: &ClusterKit<PortScan>| {
        let (alerts, floods) = (kit.state(0).alerts(), kit.state(0).floods());
        found.extend(alerts.iter().map(|(subject, _)| {
            Found::Scan((subject.source.address(), subject.class, subject.shape))
        }));
        let services = floods.iter().map(|(service, _)| service);
        found.extend(services.map(|service| Found::Flood(service.host.address(), service.port)));
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
