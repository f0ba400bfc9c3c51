//! What the monitor exports by IPFIX and by NetFlow version 9, as the real collector `nfcapd` takes it and `nfdump` shows it.

use std::path::Path;

use asterism_functions::ipfix::Export;
use asterism_functions::monitor::{Exporter, Flow, FlowRecord, MonitorConfig, Observed, Span};

use crate::monitor::capture::{Counts, captures, read, run};
use crate::nfcapd::Collector;

/// The flows that a collector has.
pub(crate) fn flows(collector: Collector) -> Vec<FlowRecord> {
    let text = collector.shown(&["-N", "-o", "fmt:%pr,%sa,%da,%sp,%dp,%pkt,%byt"]);
    text.lines().filter_map(record).collect()
}

fn record(line: &str) -> Option<FlowRecord> {
    let field: Vec<&str> = line.split(',').map(str::trim).collect();
    if field.len() != 7 {
        return None;
    }
    let address = |at: usize| field[at].parse::<core::net::IpAddr>().expect(line);
    let number = |at: usize| field[at].parse::<u64>().expect(line);
    let flow = Flow {
        source: address(1).into(),
        destination: address(2).into(),
        source_port: number(3) as u16,
        // Of ICMP it is shown as type and code.
        destination_port: field[4].parse().unwrap_or(0),
        protocol: match field[0] {
            "TCP" => 6,
            "UDP" => 17,
            "ICMP" => 1,
            "ICMP6" => 58,
            "IGMP" => 2,
            other => other.parse().expect(line),
        },
    };
    Some(FlowRecord {
        packets: number(5),
        bytes: number(6),
        ..FlowRecord::of(Observed::of_flow(flow))
    })
}

#[test]
fn a_real_collector_has_every_flow_with_its_packets_and_bytes() {
    let test = "a_real_collector_has_every_flow_with_its_packets_and_bytes";
    for path in captures(test) {
        let Some((collector, counts)) = collected(test, Export::Ipfix, &path) else {
            return;
        };
        assert_eq!(sums(flows(collector)), counts, "{}", path.display());
    }
}

/// By NetFlow version 9 the same, and the same times.
#[test]
fn a_collector_of_netflow_9_has_every_flow_with_its_times() {
    let test = "a_collector_of_netflow_9_has_every_flow_with_its_times";
    for path in captures(test) {
        let Some((collector, counts)) = collected(test, Export::NetFlow9, &path) else {
            return;
        };
        let format = "fmt:%tsr,%ter,%pr,%sa,%da,%sp,%dp,%pkt,%byt";
        let text = collector.shown(&["-N", "-o", format]);
        let lines = text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ',');
            let times = (parts.next()?.trim(), parts.next()?.trim());
            let record = record(parts.next()?)?;
            // This nfdump shows other thousandths of the end than it has.
            assert_eq!(times.0, "1700000040.000", "{line}");
            assert!(times.1.starts_with("1700000099."), "{line}");
            Some(record)
        });
        assert_eq!(sums(lines.collect()), counts, "{}", path.display());
    }
}

/// A collector that was sent the flows of a capture, and these; `None` where there is none.
fn collected(test: &str, export: Export, path: &Path) -> Option<(Collector, Counts)> {
    let collector = Collector::start(test)?;
    let (counts, _) = run(MonitorConfig::default(), &read(path));
    let span = Span {
        start_s: 1_700_000_040,
        length_s: 60,
    };
    let mut exporter = Exporter::new(1).by(export);
    let send = |message: &[u8]| collector.send(message);
    for (flow, (packets, bytes)) in &counts {
        let record = FlowRecord {
            packets: *packets,
            bytes: *bytes,
            ..FlowRecord::of(Observed::of_flow(*flow))
        };
        exporter.add(&record, span, 1_700_000_110, send);
    }
    exporter.finish(1_700_000_110, send);
    Some((collector, counts))
}

fn sums(records: Vec<FlowRecord>) -> Counts {
    let mut sums = Counts::new();
    for record in records {
        let count = sums.entry(record.flow).or_default();
        *count = (count.0 + record.packets, count.1 + record.bytes);
    }
    sums
}

/// Type and code of ICMP of both versions and the VLAN, as the collector shows them; and templates that it can read after a start.
#[test]
fn a_real_collector_has_type_and_code_of_icmp_and_the_vlan() {
    let test = "a_real_collector_has_type_and_code_of_icmp_and_the_vlan";
    for export in [Export::Ipfix, Export::NetFlow9] {
        let Some(collector) = Collector::start(test) else {
            return;
        };
        let mut exporter = Exporter::new(1).by(export);
        let span = Span {
            start_s: 1_700_000_040,
            length_s: 60,
        };
        let four: core::net::IpAddr = [192, 0, 2, 1].into();
        let six: core::net::IpAddr = core::net::Ipv6Addr::LOCALHOST.into();
        let record = |host: core::net::IpAddr, protocol, icmp, vlan| FlowRecord {
            packets: 1,
            bytes: 84,
            ..FlowRecord::of(Observed {
                icmp,
                vlan,
                ..Observed::of_flow(Flow {
                    source: host.into(),
                    destination: host.into(),
                    source_port: 0,
                    destination_port: 0,
                    protocol,
                })
            })
        };
        // A collector that was not there yet: what comes a minute later is decoded all the same.
        exporter.add(&record(four, 1, 0x0800, 9), span, 1_700_000_110, |_| false);
        exporter.finish(1_700_000_110, |_| true);
        let send = |message: &[u8]| collector.send(message);
        for one in [
            record(four, 1, 0x0301, 7),
            record(four, 1, 0x0800, 4_094),
            record(six, 58, 0x0104, 0),
        ] {
            exporter.add(&one, span, 1_700_000_170, send);
        }
        exporter.finish(1_700_000_170, send);
        let text = collector.shown(&["-N", "-o", "fmt:%pr,%dp,%svln"]);
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(|line: &String| !line.is_empty())
            .collect();
        lines.sort();
        // This nfdump reads element 139 from IPFIX alone.
        let of_icmpv6 = match export {
            Export::Ipfix => "58,1.4,0",
            Export::NetFlow9 => "58,0.0,0",
        };
        assert_eq!(lines, ["1,3.1,7", "1,8.0,4094", of_icmpv6], "{export:?}");
    }
}
