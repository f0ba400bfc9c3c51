//! `asterism traffic`: the traffic that all hosts of a cluster see together, where the function is a monitor.

use std::net::IpAddr;

use asterism_host::control::Ask;
use asterism_host::run::traffic::{
    COUNT_MAX, EndsDocument, FlowDocument, FlowsDocument, HeavyDocument, HostDocument,
    HostsDocument, SinceStartDocument, SizesDocument, TrafficDocument, Wanted,
};
use asterism_output::End;
use asterism_output::Table;
use asterism_output::{Output, Schema};
use clap::Args;

use super::client::Which;
use super::top::scaled;
use super::{WITHIN, with_answer};

/// The arguments of `asterism traffic`.
#[derive(Args, Clone, Debug)]
pub struct TrafficArguments {
    /// Number of flows, hosts and edges of each kind
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX as u64))]
    pub count: u64,
    /// Only traffic of this address
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The current interval, instead of the last complete interval
    #[arg(long)]
    pub now: bool,
    /// Which host.
    #[command(flatten)]
    pub which: Which,
}

/// The schema of `asterism traffic`.
pub const TRAFFIC: Schema = Schema {
    name: "asterism.traffic",
    version: 1,
};

/// `asterism traffic`.
pub fn traffic(arguments: &TrafficArguments, output: &mut Output<'_>) -> End {
    let request = Ask::Traffic(Wanted {
        count: arguments.count as usize,
        address: arguments.address,
        now: arguments.now,
    });
    with_answer(
        &arguments.which,
        &request,
        WITHIN,
        output,
        |document: TrafficDocument, output| {
            if output.json() {
                output.document(TRAFFIC, &document);
            } else {
                output.text(&traffic_text(&document));
            }
        },
    )
}

fn traffic_text(traffic: &TrafficDocument) -> String {
    let mut text = summary_text(traffic);
    let sections = [
        of_interval(&traffic.flows, traffic.sizes.as_ref()),
        of_start(&traffic.since_start),
        of_hosts(&traffic.hosts),
    ];
    for section in sections.into_iter().flatten() {
        if let Some(table) = section.table {
            text.push_str(&format!("\n{}\n{}", section.title, table.text()));
        }
    }
    text
}

/// A table below a title; nothing of it is shown without rows.
struct Section {
    title: String,
    table: Option<Table>,
}

fn section(title: impl Into<String>, table: Option<Table>) -> Section {
    let title = title.into();
    Section { title, table }
}

/// The interval, and what somebody should see first.
fn summary_text(traffic: &TrafficDocument) -> String {
    let (interval, flows) = (&traffic.interval, &traffic.flows);
    let goes_on = if interval.over { "" } else { " (goes on)" };
    let mut text = format!(
        "{} s from {}{goes_on}: {} flows, {} packets, {}\n",
        interval.seconds,
        interval.start,
        flows.count,
        scaled(flows.packets as f64),
        bytes(flows.bytes)
    );
    for alarm in &traffic.alarms {
        let says = match alarm.degree.as_str() {
            "out" => format!("{} sends to {} others", alarm.address, alarm.others),
            _ => format!("{} others send to {}", alarm.others, alarm.address),
        };
        text.push_str(&format!("ALARM since {}: {says}\n", alarm.since));
    }
    let unrecorded = traffic.unrecorded;
    if unrecorded > 0 {
        text.push_str(&format!(
            "tables were full for the flows or edges of {unrecorded} packets since the start: some may be missing below\n"
        ));
    }
    text
}

/// The flows of the interval.
fn of_interval(flows: &FlowsDocument, sizes: Option<&SizesDocument>) -> Vec<Section> {
    let mut sections = vec![
        section("heaviest flows by bytes", flows_table(&flows.by_bytes)),
        section("heaviest flows by packets", flows_table(&flows.by_packets)),
    ];
    sections.extend(sizes.map(|sizes| {
        // With all cells in use nothing can be reported.
        let rows = sizes.error.map(|_| sizes.at_least.iter());
        let rows = rows.into_iter().flatten();
        let rows = rows.map(|row| vec![row.packets.to_string(), row.flows.to_string()]);
        let title = format!(
            "sizes of flows, each number off by {:.0} flows at most",
            sizes.error.unwrap_or_default()
        );
        section(title, table(&["packets at least", "flows"], rows))
    }));
    sections
}

/// Everything since the start.
fn of_start(since_start: &SinceStartDocument) -> Vec<Section> {
    let protocols = since_start.protocols.iter().map(|one| {
        let version = one
            .ip
            .map_or_else(String::new, |ip| format!(" over IPv{ip}"));
        vec![
            format!("{}{version}", one.protocol),
            scaled(one.packets as f64),
            bytes(one.bytes),
        ]
    });
    let heavy = |what: &str, amount: fn(u64) -> String, heavy: &HeavyDocument| {
        let error = amount(heavy.error);
        section(
            format!("heaviest flows since the start by {what}, off by {error} at most"),
            heavy_table(heavy, what, amount),
        )
    };
    let packets: fn(u64) -> String = |packets| scaled(packets as f64);
    vec![
        section(
            "protocols since the start",
            table(&["protocol", "packets", "bytes"], protocols),
        ),
        heavy("bytes", bytes, &since_start.by_bytes),
        heavy("packets", packets, &since_start.by_packets),
    ]
}

/// The hosts that send, and those that receive.
fn of_hosts(hosts: &HostsDocument) -> Vec<Section> {
    let edges = hosts.by_bytes.iter().map(|link| {
        vec![
            format!("{} > {}", link.source, link.destination),
            bytes(link.bytes),
        ]
    });
    vec![
        section(
            format!(
                "hosts that send to most others ({} hosts, {} edges)",
                hosts.count, hosts.links
            ),
            hosts_table(&hosts.by_out_degree),
        ),
        section(
            "hosts to which most others send",
            hosts_table(&hosts.by_in_degree),
        ),
        section("heaviest edges", table(&["edge", "bytes"], edges)),
    ]
}

/// A table; `None` without rows.
fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Option<Table> {
    let mut rows = rows.peekable();
    rows.peek()?;
    let mut table = Table::new(headings);
    rows.for_each(|row| table.row(&row));
    Some(table)
}

fn flows_table(flows: &[FlowDocument]) -> Option<Table> {
    let rows = flows.iter().map(|flow| {
        vec![
            ends_text(&flow.ends),
            scaled(flow.packets as f64),
            bytes(flow.bytes),
        ]
    });
    table(&["flow", "packets", "bytes"], rows)
}

fn heavy_table(heavy: &HeavyDocument, what: &str, amount: fn(u64) -> String) -> Option<Table> {
    let rows = heavy.flows.iter().map(|flow| {
        vec![
            ends_text(&flow.ends),
            amount(flow.sum),
            amount(flow.at_least),
            amount(flow.at_most),
        ]
    });
    table(&["flow", what, "at least", "at most"], rows)
}

fn hosts_table(hosts: &[HostDocument]) -> Option<Table> {
    let rows = hosts.iter().map(|host| {
        vec![
            host.address.to_string(),
            host.out_degree.to_string(),
            host.in_degree.to_string(),
        ]
    });
    table(&["host", "sends to", "receives from"], rows)
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        _ => format!("{}B", scaled(bytes as f64)),
    }
}

fn ends_text(ends: &EndsDocument) -> String {
    let end = |address: IpAddr, port: Option<u16>| match (address, port) {
        (address, Some(port)) => std::net::SocketAddr::new(address, port).to_string(),
        (address, None) => address.to_string(),
    };
    format!(
        "{} {} > {}",
        ends.protocol,
        end(ends.source, ends.source_port),
        end(ends.destination, ends.destination_port)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_host::run::traffic::{
        AlarmDocument, HeavyFlowDocument, IntervalDocument, LinkDocument, ProtocolDocument,
        SizeDocument,
    };

    fn ends(source: &str, destination: &str, port: Option<u16>, protocol: &str) -> EndsDocument {
        EndsDocument {
            source: source.parse().unwrap(),
            source_port: port,
            destination: destination.parse().unwrap(),
            destination_port: port.map(|_| 443),
            protocol: protocol.to_owned(),
        }
    }

    fn nothing() -> TrafficDocument {
        let heavy = || HeavyDocument {
            total: 0,
            error: 0,
            flows: Vec::new(),
        };
        TrafficDocument {
            interval: IntervalDocument {
                start: "2026-11-24T12:00:00Z".to_owned(),
                seconds: 60,
                over: true,
            },
            flows: FlowsDocument {
                count: 0,
                packets: 0,
                bytes: 0,
                by_bytes: Vec::new(),
                by_packets: Vec::new(),
            },
            sizes: None,
            since_start: SinceStartDocument {
                protocols: Vec::new(),
                by_bytes: heavy(),
                by_packets: heavy(),
            },
            hosts: HostsDocument {
                count: 0,
                links: 0,
                by_out_degree: Vec::new(),
                by_in_degree: Vec::new(),
                by_bytes: Vec::new(),
            },
            alarms: Vec::new(),
            unrecorded: 0,
        }
    }

    #[test]
    fn without_traffic_there_is_a_line() {
        assert_eq!(
            traffic_text(&nothing()),
            "60 s from 2026-11-24T12:00:00Z: 0 flows, 0 packets, 0 B\n"
        );
    }

    #[test]
    fn what_is_seen_is_reported_in_tables() {
        let mut traffic = nothing();
        traffic.interval.over = false;
        traffic.flows.count = 2;
        let tcp = ends("10.0.0.1", "192.0.2.9", Some(5_000), "tcp");
        let ping = ends("2001:db8::1", "2001:db8::2", None, "icmpv6");
        traffic.flows.by_bytes = [(&tcp, 1_200_000), (&ping, 640)]
            .map(|(ends, bytes)| FlowDocument {
                ends: ends.clone(),
                packets: 10,
                bytes,
            })
            .into();
        traffic.sizes = Some(SizesDocument {
            error: Some(2.4),
            at_least: vec![SizeDocument {
                packets: 8,
                flows: 2,
            }],
        });
        traffic.since_start.protocols = vec![ProtocolDocument {
            protocol: "tcp".to_owned(),
            ip: Some(4),
            packets: 1_500,
            bytes: 2_000_000_000,
        }];
        traffic.since_start.by_bytes.error = 40;
        traffic.since_start.by_bytes.flows = vec![HeavyFlowDocument {
            ends: tcp,
            sum: 100,
            at_least: 90,
            at_most: 110,
        }];
        traffic.hosts.by_out_degree = vec![HostDocument {
            address: "10.0.0.1".parse().unwrap(),
            out_degree: 250,
            in_degree: 3,
        }];
        traffic.hosts.by_bytes = vec![LinkDocument {
            source: "10.0.0.1".parse().unwrap(),
            destination: "192.0.2.9".parse().unwrap(),
            bytes: 77,
        }];
        let alarm = |degree: &str| AlarmDocument {
            address: "10.0.0.1".parse().unwrap(),
            degree: degree.to_owned(),
            others: 250,
            since: "2026-11-24T12:00:07Z".to_owned(),
        };
        traffic.alarms = vec![alarm("out"), alarm("in")];
        traffic.unrecorded = 5;
        let text = traffic_text(&traffic);
        for line in [
            "60 s from 2026-11-24T12:00:00Z (goes on): 2 flows, 0 packets, 0 B",
            "tcp 10.0.0.1:5000 > 192.0.2.9:443       10  1.20 MB",
            "icmpv6 2001:db8::1 > 2001:db8::2        10    640 B",
            "sizes of flows, each number off by 2 flows at most",
            "tcp over IPv4    1.5 k  2.00 GB",
            "heaviest flows since the start by bytes, off by 40 B at most",
            "tcp 10.0.0.1:5000 > 192.0.2.9:443  100 B      90 B    110 B",
            "10.0.0.1       250              3",
            "10.0.0.1 > 192.0.2.9   77 B",
            "ALARM since 2026-11-24T12:00:07Z: 10.0.0.1 sends to 250 others",
            "ALARM since 2026-11-24T12:00:07Z: 250 others send to 10.0.0.1",
            "tables were full for the flows or edges of 5 packets since the start: some may be missing below",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} of:\n{text}");
        }
        traffic.sizes = Some(SizesDocument {
            error: None,
            at_least: vec![SizeDocument {
                packets: 1,
                flows: 9,
            }],
        });
        assert!(
            !traffic_text(&traffic).contains("sizes"),
            "all cells are in use"
        );
    }
}
