//! `asterism top`: the rates of one host, or of all hosts of a cluster, again and again.

use std::io::IsTerminal;
use std::time::Duration;

use asterism_api::client::Client;
use asterism_api::data::{ClusterSummary, Host, Stage};
use asterism_host_view::{InstanceDocument, PortDocument, StatusDocument};
use asterism_output::{End, Output, Schema, Table};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::client::Which;
use super::cluster::{ClusterError, client, packets, stage};
use super::remote::{Remote, Source, SourceError};
use super::span;

/// The arguments of `asterism top`.
#[derive(Args, Clone, Debug)]
pub struct TopArguments {
    /// Which host.
    #[command(flatten)]
    pub which: Which,
    /// By the API: with --host one host, without it all.
    #[command(flatten)]
    pub remote: Remote,
    /// Show the rates of one interval, and end
    #[arg(long)]
    pub once: bool,
    /// Seconds between two queries
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// The order of a cluster's hosts: the most first, but for names
    #[arg(long, value_enum, default_value_t = Sort::Packets)]
    pub sort: Sort,
}

/// The order of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Sort {
    Name,
    Packets,
    Bits,
    Cpu,
    Flows,
    Lag,
    Drops,
}

/// Rates over an interval.
#[derive(Clone, Debug, Serialize)]
pub struct TopDocument {
    /// The host.
    pub host: String,
    /// Microseconds between the two queries.
    pub interval_us: u64,
    /// Rates of each port, over all packet loops.
    pub ports: Vec<RateDocument>,
    /// Packets dropped a second, for any reason.
    pub dropped_per_s: f64,
    /// Operation groups written a second.
    pub groups_written_per_s: f64,
    /// Operation groups of others applied a second.
    pub groups_applied_per_s: f64,
    /// Packets parked now.
    pub parked: u64,
    /// Operation groups of all other members that are not applied here.
    pub behind_groups: u64,
}

/// Rates of one port.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RateDocument {
    pub name: String,
    pub received_packets_per_s: f64,
    pub received_bits_per_s: f64,
    pub sent_packets_per_s: f64,
    pub sent_bits_per_s: f64,
    pub dropped_per_s: f64,
}

/// Rates of all hosts over an interval.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterTopDocument {
    /// The cluster.
    pub cluster: ClusterSummary,
    /// Milliseconds between the two queries.
    pub interval_ms: u64,
    /// The hosts, in the order that was asked for.
    pub hosts: Vec<HostRateDocument>,
}

/// Rates of one host.
#[derive(Clone, Debug, Serialize)]
pub struct HostRateDocument {
    /// The host.
    pub host: String,
    /// How far it is.
    pub stage: Stage,
    /// Whether packets go to it, or why not.
    pub packets: &'static str,
    /// Packets received a second.
    pub packets_per_s: u64,
    /// Bits received a second.
    pub bits_per_s: u64,
    /// Processor time over the time of its packet loops, in thousandths.
    pub cpu_permille: u32,
    /// Entries of its largest table.
    pub flows: u64,
    /// How long its oldest update has waited for an acknowledgement, in microseconds.
    pub lag_us: u64,
    /// Packets that wait for a late answer.
    pub parked: u64,
    /// Packets dropped a second.
    pub dropped_per_s: f64,
}

/// The schema of `asterism top` of one host.
pub const TOP: Schema = Schema {
    name: "asterism.top",
    version: 1,
};
/// The schema of `asterism top` of a cluster.
pub const CLUSTER_TOP: Schema = Schema {
    name: "asterism.cluster-top",
    version: 1,
};

/// `asterism top`.
pub fn top(arguments: &TopArguments, output: &mut Output<'_>) -> End {
    match (arguments.remote.at(), &arguments.remote.host) {
        (Some(at), None) => match client(&at) {
            Ok(client) => cluster_top(&client, arguments, output),
            Err(error) => output.fail(End::File, &error),
        },
        (at, host) => {
            let api = at.as_ref().zip(host.as_deref());
            match Source::of(&arguments.which, api, output.functions()) {
                Ok(source) => host_top(&source, arguments, output),
                Err(error) => output.fail(End::File, &error),
            }
        }
    }
}

fn host_top(source: &Source, arguments: &TopArguments, output: &mut Output<'_>) -> End {
    let query = || source.status(false);
    let show = |before: &StatusDocument, now: &StatusDocument, output: &mut Output<'_>| {
        let rates = rates(before, now);
        match output.json() {
            true => output.document(TOP, &rates),
            false => screen(arguments.once, &top_text(&rates, now), output),
        }
    };
    repeat::<_, SourceError>(arguments, query, show, output)
}

fn cluster_top(client: &Client, arguments: &TopArguments, output: &mut Output<'_>) -> End {
    let query = || -> Result<_, ClusterError> { Ok((client.cluster()?, client.hosts()?)) };
    let show = |before: &(ClusterSummary, asterism_api::data::Hosts),
                now: &(ClusterSummary, asterism_api::data::Hosts),
                output: &mut Output<'_>| {
        let interval_ms = now.1.at_ms.saturating_sub(before.1.at_ms);
        let document = ClusterTopDocument {
            cluster: now.0.clone(),
            interval_ms,
            hosts: host_rates(&before.1.hosts, &now.1.hosts, interval_ms, arguments.sort),
        };
        match output.json() {
            true => output.document(CLUSTER_TOP, &document),
            false => screen(arguments.once, &cluster_text(&document), output),
        }
    };
    repeat(arguments, query, show, output)
}

/// Queries after each interval and shows what changed since the query before.
fn repeat<T, E: core::fmt::Display>(
    arguments: &TopArguments,
    query: impl Fn() -> Result<T, E>,
    show: impl Fn(&T, &T, &mut Output<'_>),
    output: &mut Output<'_>,
) -> End {
    let interval = Duration::from_secs(arguments.interval);
    let mut before = match query() {
        Ok(first) => first,
        Err(error) => return output.fail(End::File, &error),
    };
    loop {
        std::thread::park_timeout(interval);
        let now = match query() {
            Ok(now) => now,
            Err(error) => return output.fail(End::File, &error),
        };
        show(&before, &now, output);
        before = now;
        let end = output.end(End::Done);
        if arguments.once || end != End::Done {
            return end;
        }
    }
}

/// Writes a table. On a terminal it takes the place of the table before, line by line, without a flicker; elsewhere an empty line ends it.
fn screen(once: bool, text: &str, output: &mut Output<'_>) {
    let is_terminal = std::io::stdout().is_terminal();
    output.text(&match (once, is_terminal) {
        (true, _) => text.to_owned(),
        (false, true) => format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")),
        (false, false) => format!("{text}\n"),
    });
}

fn host_rates(
    before: &[Host],
    now: &[Host],
    interval_ms: u64,
    sort: Sort,
) -> Vec<HostRateDocument> {
    let dropped = |host: &Host| -> u64 {
        let loads = host.loads.iter();
        loads.flat_map(|loads| loads.drops.values()).sum()
    };
    let rate = |host: &Host| {
        let past = before
            .iter()
            .find(|past| (&past.name, past.incarnation) == (&host.name, host.incarnation));
        let count = past.map_or(0, |past| dropped(host).saturating_sub(dropped(past)));
        let loads = host.loads.clone().unwrap_or_default();
        HostRateDocument {
            host: host.name.clone(),
            stage: host.stage,
            packets: packets(host),
            packets_per_s: loads.packets_per_second,
            bits_per_s: loads.bits_per_second,
            cpu_permille: loads.cpu_permille,
            flows: loads.flows,
            lag_us: loads.lag_us,
            parked: loads.parked,
            dropped_per_s: count as f64 * 1e3 / interval_ms.max(1) as f64,
        }
    };
    let mut hosts: Vec<HostRateDocument> = now.iter().map(rate).collect();
    hosts.sort_by(|one, other| {
        let most_first = match sort {
            Sort::Name => core::cmp::Ordering::Equal,
            Sort::Packets => other.packets_per_s.cmp(&one.packets_per_s),
            Sort::Bits => other.bits_per_s.cmp(&one.bits_per_s),
            Sort::Cpu => other.cpu_permille.cmp(&one.cpu_permille),
            Sort::Flows => other.flows.cmp(&one.flows),
            Sort::Lag => other.lag_us.cmp(&one.lag_us),
            Sort::Drops => other.dropped_per_s.total_cmp(&one.dropped_per_s),
        };
        most_first.then_with(|| one.host.cmp(&other.host))
    });
    hosts
}

fn cluster_text(document: &ClusterTopDocument) -> String {
    let cluster = &document.cluster;
    let packets: u64 = document.hosts.iter().map(|host| host.packets_per_s).sum();
    let bits: u64 = document.hosts.iter().map(|host| host.bits_per_s).sum();
    let mut text = format!(
        "{}: epoch {}, {} of {} hosts take packets, {packets} packets/s, {} bit/s\n\n",
        cluster.name,
        cluster.epoch,
        cluster.hosts_taking,
        cluster.hosts,
        scaled(bits as f64).trim_end(),
    );
    let mut table = Table::new(&[
        "host", "stage", "packets", "pps", "bit/s", "cpu", "flows", "lag", "parked", "drops/s",
    ]);
    for host in &document.hosts {
        table.row(&[
            host.host.clone(),
            stage(host.stage).to_owned(),
            host.packets.to_owned(),
            host.packets_per_s.to_string(),
            scaled(host.bits_per_s as f64),
            format!("{}.{} %", host.cpu_permille / 10, host.cpu_permille % 10),
            host.flows.to_string(),
            span(host.lag_us),
            host.parked.to_string(),
            format!("{:.0}", host.dropped_per_s),
        ]);
    }
    text += &table.text();
    text
}

/// The rates, per second, between two queries.
fn rates(before: &StatusDocument, now: &StatusDocument) -> TopDocument {
    // A host that was restarted between the queries has counted since its start.
    let same = before.incarnation == now.incarnation;
    let interval_us = if same {
        now.uptime_us - before.uptime_us.min(now.uptime_us)
    } else {
        now.uptime_us
    };
    let seconds = (interval_us.max(1)) as f64 / 1e6;
    let sum = |status: &StatusDocument, of: &dyn Fn(&InstanceDocument) -> u64| -> u64 {
        status.instances.iter().map(of).sum()
    };
    let rate = |of: &dyn Fn(&InstanceDocument) -> u64| {
        let past = if same { sum(before, of) } else { 0 };
        sum(now, of).saturating_sub(past) as f64 / seconds
    };
    let count =
        |name: &'static str| rate(&move |instance| instance.counts.get(name).copied().unwrap_or(0));
    let names = now
        .instances
        .first()
        .map_or(&[][..], |instance| &instance.ports);
    let ports = names.iter().map(|port| {
        let of = |read: fn(&PortDocument) -> u64| {
            rate(&|instance: &InstanceDocument| {
                instance
                    .ports
                    .iter()
                    .filter(|other| other.name == port.name)
                    .map(read)
                    .sum()
            })
        };
        RateDocument {
            name: port.name.clone(),
            received_packets_per_s: of(|port| port.received_packets),
            received_bits_per_s: of(|port| port.received_bytes) * 8.0,
            sent_packets_per_s: of(|port| port.sent_packets),
            sent_bits_per_s: of(|port| port.sent_bytes) * 8.0,
            dropped_per_s: of(|port| port.dropped.values().sum()),
        }
    });
    TopDocument {
        host: now.host.clone(),
        interval_us,
        ports: ports.collect(),
        dropped_per_s: rate(&|instance| instance.dropped.values().sum()),
        groups_written_per_s: count("groups_written"),
        groups_applied_per_s: count("groups_applied"),
        parked: sum(now, &|instance| instance.parked),
        behind_groups: now.peers.iter().map(|peer| peer.behind_groups).sum(),
    }
}

fn top_text(top: &TopDocument, status: &StatusDocument) -> String {
    let mut text = format!(
        "{} ({}), up {}, over {}\n\n{:12} {:>12} {:>12} {:>12} {:>12} {:>10}\n",
        top.host,
        status.phase,
        span(status.uptime_us),
        span(top.interval_us),
        "port",
        "in pps",
        "in bit/s",
        "out pps",
        "out bit/s",
        "drops/s"
    );
    for port in &top.ports {
        text.push_str(&format!(
            "{:12} {:>12.0} {:>12} {:>12.0} {:>12} {:>10.0}\n",
            port.name,
            port.received_packets_per_s,
            scaled(port.received_bits_per_s),
            port.sent_packets_per_s,
            scaled(port.sent_bits_per_s),
            port.dropped_per_s
        ));
    }
    text.push_str(&format!(
        "\ndropped {:.0}/s, parked {}, written {:.0} and applied {:.0} groups/s, behind {} groups\n",
        top.dropped_per_s, top.parked, top.groups_written_per_s, top.groups_applied_per_s, top.behind_groups
    ));
    for peer in &status.peers {
        text.push_str(&format!(
            "{:12} round trip {}, behind {}{}\n",
            peer.name,
            peer.round_trip_us
                .map_or_else(|| "unknown".to_owned(), span),
            span(peer.behind_us),
            peer.heard_with
                .map_or_else(String::new, |id| format!(", received with key {id}"))
        ));
    }
    text
}

pub(super) fn scaled(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{:.2} G", value / 1e9),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_api::data::Loads;

    fn host(name: &str, incarnation: u64, packets: u64, dropped: u64) -> Host {
        Host {
            name: name.to_owned(),
            incarnation,
            stage: Stage::Serving,
            takes: true,
            loads: Some(Loads {
                packets_per_second: packets,
                lag_us: 1_000 - packets,
                drops: [("all".to_owned(), dropped)].into(),
                ..Loads::default()
            }),
            ..Host::default()
        }
    }

    #[test]
    fn hosts_are_sorted_and_drops_are_of_the_interval() {
        let before = [host("a", 1, 0, 100), host("b", 1, 0, 100)];
        let now = [
            host("a", 1, 10, 300),
            host("b", 2, 30, 50),
            host("c", 1, 20, 7),
        ];
        let names = |sort| -> String {
            let hosts = host_rates(&before, &now, 2_000, sort);
            hosts.into_iter().map(|host| host.host).collect()
        };
        assert_eq!(names(Sort::Name), "abc");
        assert_eq!(names(Sort::Packets), "bca");
        assert_eq!(names(Sort::Lag), "acb");
        assert_eq!(names(Sort::Drops), "abc");
        // A host that was started again, or that is new, has counted for another time.
        let rates = host_rates(&before, &now, 2_000, Sort::Name);
        let drops: Vec<f64> = rates.iter().map(|host| host.dropped_per_s).collect();
        assert_eq!(drops, [100.0, 0.0, 0.0]);
        let text = cluster_text(&ClusterTopDocument {
            cluster: ClusterSummary::default(),
            interval_ms: 2_000,
            hosts: rates,
        });
        assert!(text.contains("60 packets/s"), "{text}");
        assert_eq!(text.lines().count(), 2 + 2 + 3, "{text}");
    }
}
