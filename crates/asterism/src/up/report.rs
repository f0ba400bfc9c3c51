//! What `asterism up` says in the end.

use std::collections::BTreeMap;

use asterism_local_network::NetworkSnapshot;
use asterism_output::{Schema, Table};
use serde::Serialize;

use super::launched::{Ended, word};

/// The schema of [`UpReport`].
pub const UP: Schema = Schema {
    name: "asterism.up",
    version: 1,
};

/// What a cluster on one machine did.
#[derive(Clone, Debug, Serialize)]
pub struct UpReport {
    /// Whether every process ended in order; over the local network also whether packets were translated, no flow failed, no
    /// translation changed, and no byte was wrong.
    pub holds: bool,
    /// The processes that this command started, or its orchestrator did.
    pub processes: Vec<ProcessReport>,
    /// What clients and servers saw, over the local network.
    #[serde(flatten)]
    pub traffic: Option<TrafficReport>,
}

/// A process of the cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessReport {
    /// `host`, `orchestrator` or `director`.
    pub role: &'static str,
    /// Its name.
    pub name: String,
    /// How often it was started; 0: it ran already, or the orchestrator of the configuration started it.
    pub starts: u64,
    /// How often it ended by itself, or was killed.
    pub ends_by_itself: u64,
    /// How it ended when all were ended; `None`: it did not run then.
    pub end: Option<String>,
    /// Whether it ended as it should.
    pub in_order: bool,
}

impl ProcessReport {
    /// The hosts that an orchestrator launched, of which these ran until the end. One that did not was not wanted any more.
    pub(super) fn of(counts: &BTreeMap<String, [u64; 2]>, ended: &[Ended]) -> Vec<ProcessReport> {
        let mut reports: BTreeMap<&str, ProcessReport> = BTreeMap::new();
        for end in ended {
            let (role, name) = (word(end.role), end.name.clone());
            let report = ProcessReport {
                role,
                name,
                starts: 0,
                ends_by_itself: 0,
                end: Some(end.exit.to_string()),
                in_order: end.in_order,
            };
            reports.insert(&end.name, report);
        }
        for (name, [starts, ends]) in counts.iter().filter(|(_, counted)| **counted != [0, 0]) {
            let report = reports.entry(name).or_insert_with(|| ProcessReport {
                role: "host",
                name: name.clone(),
                starts: 0,
                ends_by_itself: 0,
                end: None,
                in_order: true,
            });
            (report.starts, report.ends_by_itself) = (*starts, *ends);
        }
        reports.into_values().collect()
    }
}

impl UpReport {
    pub(super) fn new(processes: Vec<ProcessReport>, traffic: Option<TrafficReport>) -> UpReport {
        UpReport {
            holds: processes.iter().all(|process| process.in_order)
                && traffic.as_ref().is_none_or(TrafficReport::holds),
            processes,
            traffic,
        }
    }

    /// The report for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = Table::new(&["process", "starts", "ended by itself", "end"]);
        for process in &self.processes {
            let end = process.end.as_deref().unwrap_or("did not run");
            let end = match process.in_order {
                true => end.to_owned(),
                false => format!("{end}: NOT in order"),
            };
            table.row(&[
                format!("{} {}", process.role, process.name),
                process.starts.to_string(),
                process.ends_by_itself.to_string(),
                end,
            ]);
        }
        let mut text = format!("{}\n", table.text());
        if let Some(traffic) = &self.traffic {
            text += &format!("{}\n", traffic.table().text());
        }
        text += match (self.holds, &self.traffic) {
            (true, Some(_)) => "Every flow kept its translation and got its bytes.\n",
            (true, None) => "Every process ended in order.\n",
            (false, _) => "NOT as it should be.\n",
        };
        text
    }
}

/// What clients and servers of the local network saw.
#[derive(Clone, Debug, Serialize)]
pub struct TrafficReport {
    /// Seconds from the command's start until the first translated packet; `None` if there was none.
    pub first_translated_s: Option<f64>,
    /// Hosts that were started, in all.
    pub hosts_started: u64,
    /// Hosts that ended by themselves or were killed.
    pub hosts_ended: u64,
    /// UDP flows and TCP connections that began.
    pub flows_begun: u64,
    /// Those that ended well.
    pub flows_done: u64,
    /// Those that failed.
    pub flows_failed: u64,
    /// Those whose translation changed, or was another flow's too.
    pub flows_broken: u64,
    /// UDP requests, and those of them that were not answered within a second.
    pub requests: u64,
    /// Requests that were not answered within a second.
    pub requests_lost: u64,
    /// Packets with wrong bytes, checksums, or addresses.
    pub packets_wrong: u64,
    /// Packets that the links to hosts dropped, after the director.
    pub packets_dropped_at_links: u64,
    /// Segments that were sent again.
    pub segments_sent_again: u64,
    /// Packets that clients and servers could not send, and flows that they postponed: more than 0 is the generator's own fault.
    pub generator_dropped: u64,
    /// Seconds from the decision to add a host until its first packet, of the slowest; `None` if none was added while packets flowed.
    pub added_host_first_packet_s: Option<f64>,
    /// Median and 99 % of the round trips, in microseconds.
    pub round_trip_us: [u64; 2],
}

impl TrafficReport {
    pub(super) fn new(
        network: &NetworkSnapshot,
        first_translated_s: Option<f64>,
        (hosts_started, hosts_ended): (u64, u64),
        added_host_first_packet_s: Option<f64>,
    ) -> TrafficReport {
        let traffic = &network.traffic;
        let (client, server) = (&traffic.client, &traffic.server);
        let dropped = network.hosts.iter().flat_map(|(_, links)| links.dropped);
        let trips = &traffic.round_trips;
        TrafficReport {
            first_translated_s,
            hosts_started,
            hosts_ended,
            flows_begun: traffic.begun(),
            flows_done: traffic.ended(),
            flows_failed: traffic.failed(),
            flows_broken: traffic.broken(),
            requests: traffic.client.requests,
            requests_lost: traffic.client.lost,
            packets_wrong: traffic.wrong(),
            packets_dropped_at_links: dropped.sum(),
            segments_sent_again: client.retransmissions + server.retransmissions,
            generator_dropped: client.not_sent + server.not_sent + client.postponed,
            added_host_first_packet_s,
            round_trip_us: [trips.permille(500), trips.permille(990)]
                .map(Option::unwrap_or_default),
        }
    }

    /// Whether packets were translated, no flow failed, no translation changed, and no byte was wrong.
    fn holds(&self) -> bool {
        self.first_translated_s.is_some()
            && self.flows_failed + self.flows_broken + self.packets_wrong == 0
    }

    fn table(&self) -> Table {
        let first = self.first_translated_s.map_or_else(
            || "none was".to_owned(),
            |seconds| format!("after {seconds:.2} s"),
        );
        let mut table = Table::new(&["", ""]);
        let [median, slow] = self.round_trip_us;
        for (name, value) in [
            ("first translated packet", first),
            (
                "hosts",
                format!(
                    "{} started, {} ended meanwhile",
                    self.hosts_started, self.hosts_ended
                ),
            ),
            (
                "flows",
                format!(
                    "{} begun, {} done, {} failed, {} with another translation",
                    self.flows_begun, self.flows_done, self.flows_failed, self.flows_broken
                ),
            ),
            (
                "requests",
                format!("{}, {} of them lost", self.requests, self.requests_lost),
            ),
            ("round trips", format!("median {median} us, 99 % {slow} us")),
            ("wrong packets", self.packets_wrong.to_string()),
        ] {
            table.row(&[name.to_owned(), value]);
        }
        if let Some(seconds) = self.added_host_first_packet_s {
            let value = format!("first packet {seconds:.2} s after the decision at most");
            table.row(&["hosts added".to_owned(), value]);
        }
        table
    }
}
