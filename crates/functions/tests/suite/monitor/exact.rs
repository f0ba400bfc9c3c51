//! What the monitor counts, compared with what `tshark` and `argus` count in the same captures, and its sketches with their
//! stated errors.

use asterism_function::Host;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use asterism_function::testkit::START_TICK;
use asterism_functions::monitor::{Flow, MonitorConfig};

use crate::monitor::capture::{Counts, captures, read, run};
use crate::nfcapd::has;

fn host(text: &str) -> Option<Host> {
    Some(text.parse::<core::net::IpAddr>().ok()?.into())
}

/// Packets and IP bytes by flow, as tshark tells them: first occurrence of each field, nothing reassembled.
fn of_tshark(path: &Path) -> Counts {
    let fields = [
        "ip.src",
        "ip.dst",
        "ip.proto",
        "ip.len",
        "ipv6.src",
        "ipv6.dst",
        "ipv6.nxt",
        "ipv6.plen",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
        "ipv6.hopopts.nxt",
    ];
    let mut tshark = Command::new("tshark");
    tshark.args([
        "-n",
        "-T",
        "fields",
        "-E",
        "separator=,",
        "-E",
        "occurrence=f",
    ]);
    tshark.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
    tshark.args(["-o", "tcp.desegment_tcp_streams:FALSE"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.arg("-r").arg(path).output().expect("tshark runs");
    let text = String::from_utf8(output.stdout).expect("tshark writes text");
    let mut counts = Counts::new();
    for line in text.lines() {
        let field: Vec<&str> = line.split(',').collect();
        let number = |at: usize| field[at].parse::<u64>().unwrap_or(0);
        let (at, bytes) = if field[0].is_empty() {
            (4, number(7) + 40)
        } else {
            (0, number(3))
        };
        let (Some(source), Some(destination)) = (host(field[at]), host(field[at + 1])) else {
            continue;
        };
        // An IPv6 packet may begin with hop-by-hop options, as those of multicast listeners do.
        let hop_by_hop = at == 4 && number(6) == 0;
        let protocol = number(if hop_by_hop { 12 } else { at + 2 }) as u8;
        // An ICMP error quotes the ports of what it is about.
        let (source_port, destination_port) = match protocol {
            6 => (number(8), number(9)),
            17 => (number(10), number(11)),
            _ => (0, 0),
        };
        let flow = Flow {
            source,
            destination,
            source_port: source_port as u16,
            destination_port: destination_port as u16,
            protocol,
        };
        let count = counts.entry(flow).or_default();
        *count = (count.0 + 1, count.1 + bytes);
    }
    assert!(!counts.is_empty(), "{} has flows", path.display());
    counts
}

/// Packets by flow of TCP and UDP over IPv4, as argus tells them.
fn of_argus(path: &Path) -> BTreeMap<Flow, u64> {
    let folder = std::env::temp_dir().join(format!("monitor-argus-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let records = folder.join("records");
    let status = Command::new("argus")
        .arg("-r")
        .arg(path)
        .arg("-w")
        .arg(&records)
        .output();
    assert!(status.expect("argus runs").status.success());
    let fields = [
        "proto", "saddr", "sport", "daddr", "dport", "spkts", "dpkts",
    ];
    let mut ra = Command::new("ra");
    ra.arg("-r")
        .arg(&records)
        .args(["-n", "-n", "-c", ",", "-s"])
        .args(fields);
    let output = ra
        .arg("-")
        .args(["tcp", "or", "udp"])
        .output()
        .expect("ra runs");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    let text = String::from_utf8(output.stdout).expect("ra writes text");
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let field: Vec<&str> = line.split(',').map(str::trim).collect();
        let protocol = match field[0] {
            "tcp" | "6" => 6,
            "udp" | "17" => 17,
            _ => continue,
        };
        let (Some(source), Some(destination)) = (host(field[1]), host(field[3])) else {
            continue;
        };
        let port = |at: usize| field[at].parse().unwrap_or(0);
        let forth = Flow {
            source,
            destination,
            source_port: port(2),
            destination_port: port(4),
            protocol,
        };
        let back = Flow {
            source: destination,
            destination: source,
            source_port: port(4),
            destination_port: port(2),
            protocol,
        };
        for (flow, at) in [(forth, 5), (back, 6)] {
            let packets: u64 = field[at].parse().expect("a number of packets");
            if packets > 0 {
                *counts.entry(flow).or_insert(0) += packets;
            }
        }
    }
    assert!(
        !counts.is_empty(),
        "argus finds flows in {}",
        path.display()
    );
    counts
}

#[test]
fn every_flow_has_the_packets_and_bytes_that_tshark_counts() {
    let test = "every_flow_has_the_packets_and_bytes_that_tshark_counts";
    if !has("tshark", test) {
        return;
    }
    for path in captures(test) {
        let (counts, kit) = run(MonitorConfig::default(), &read(&path));
        let expected = of_tshark(&path);
        for (flow, count) in &expected {
            assert_eq!(counts.get(flow), Some(count), "{}: {flow}", path.display());
        }
        assert_eq!(counts.len(), expected.len(), "{}", path.display());
        // Protocols are the sums of their flows.
        let mut protocols: BTreeMap<(u8, bool), (u64, u64)> = BTreeMap::new();
        for (flow, (packets, bytes)) in &expected {
            let sum = protocols
                .entry((flow.protocol, !flow.is_ipv4()))
                .or_default();
            *sum = (sum.0 + packets, sum.1 + bytes);
        }
        let counted = kit.state().protocol_counts();
        let reported: BTreeMap<_, _> = counted
            .iter()
            .filter_map(|count| Some((count.protocol?, (count.packets, count.bytes))))
            .collect();
        assert_eq!(reported, protocols, "{}", path.display());
        assert_eq!(kit.state().unrecorded.get(), Ok(0));
    }
}

#[test]
fn every_flow_has_the_packets_that_argus_counts() {
    let test = "every_flow_has_the_packets_that_argus_counts";
    if !has("argus", test) || !has("ra", test) {
        return;
    }
    for path in captures(test) {
        let (counts, _) = run(MonitorConfig::default(), &read(&path));
        let expected = of_argus(&path);
        let (mut agreed, mut differ) = (0, Vec::new());
        for (flow, packets) in &expected {
            match counts.get(flow) {
                Some((counted, _)) if counted == packets => agreed += 1,
                other => differ.push((flow, packets, other)),
            }
        }
        assert!(
            differ.is_empty(),
            "{}: {agreed} flows agree, these do not: {differ:?}",
            path.display()
        );
    }
}

#[test]
fn the_graph_has_the_edges_and_degrees_of_the_capture() {
    for path in captures("the_graph_has_the_edges_and_degrees_of_the_capture") {
        let config = MonitorConfig {
            edge_idle_s: 7 * 24 * 3_600,
            ..MonitorConfig::default()
        };
        let (counts, kit) = run(config, &read(&path));
        let mut edges: BTreeMap<(Host, Host), u64> = BTreeMap::new();
        for (flow, (_, bytes)) in &counts {
            *edges.entry((flow.source, flow.destination)).or_default() += bytes;
        }
        let mut found = BTreeMap::new();
        kit.state().links.for_each(|source, destination, bytes| {
            found.insert((*source, *destination), bytes);
        });
        assert_eq!(found, edges, "{}", path.display());
        for (source, destination) in edges.keys() {
            let out = edges.keys().filter(|(other, _)| other == source).count();
            let into = edges
                .keys()
                .filter(|(_, other)| other == destination)
                .count();
            assert_eq!(kit.state().links.out_degree(source).ok(), Some(out as u32));
            assert_eq!(
                kit.state().links.in_degree(destination).ok(),
                Some(into as u32)
            );
        }
    }
}

#[test]
fn sketches_keep_their_stated_errors() {
    for path in captures("sketches_keep_their_stated_errors") {
        let config = MonitorConfig {
            places: 64,
            cells: 512,
            interval_s: 3_600,
            ..MonitorConfig::default()
        };
        let steps = read(&path);
        let (counts, kit) = run(config, &steps);
        let state = kit.state();
        let excess = state.volumes.excess();
        for (flow, (_, bytes)) in &counts {
            let reported = state.volumes.get(flow).unwrap();
            let over = reported
                .checked_sub(*bytes)
                .expect("a volume is never too small");
            assert!(
                over as f64 <= excess,
                "{}: {flow} by {over}",
                path.display()
            );
        }
        for (heavy, of) in [(&state.heavy_bytes, 1), (&state.heavy_packets, 0)] {
            let exact = |flow: &Flow| {
                let (packets, bytes) = counts[flow];
                [packets, bytes][of]
            };
            let listed = heavy.heaviest(64);
            for one in &listed {
                let truth = exact(&one.key);
                assert!(one.at_least <= truth && truth <= one.at_most, "{}", one.key);
                assert!(one.sum.abs_diff(truth) <= heavy.excess());
            }
            for flow in counts.keys().filter(|flow| exact(flow) > heavy.excess()) {
                assert!(
                    listed.iter().any(|one| one.key == *flow),
                    "{flow} is missing"
                );
            }
        }
        // The interval in which the capture ends, if it lies in one.
        let seconds: u32 = steps.iter().map(|(passed, _)| passed).sum();
        if START_TICK % 3_600 + seconds < 3_600 {
            let sizes = state.sizes_at(START_TICK, kit.function().config().cells);
            let error = sizes.error().expect("cells are left");
            for (packets, reported) in sizes.table() {
                let truth = counts.values().filter(|(of, _)| *of >= packets).count();
                let off = (reported as f64 - truth as f64).abs();
                assert!(off <= error, "{}: {packets}, {off}", path.display());
            }
        }
    }
}
