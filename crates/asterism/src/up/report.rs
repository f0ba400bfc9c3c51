//! What `asterism up` says in the end.

use asterism_local_network::NetworkSnapshot;
use asterism_output::{Schema, Table};
use serde::Serialize;

/// The schema of [`UpReport`].
pub const UP: Schema = Schema {
    name: "asterism.up",
    version: 1,
};

/// What a cluster on one machine did.
#[derive(Clone, Debug, Serialize)]
pub struct UpReport {
    /// Whether packets were translated, and no flow failed, no translation changed and no byte was wrong.
    pub holds: bool,
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

impl UpReport {
    pub(super) fn new(
        network: &NetworkSnapshot,
        first_translated_s: Option<f64>,
        (hosts_started, hosts_ended): (u64, u64),
        added_host_first_packet_s: Option<f64>,
    ) -> UpReport {
        let traffic = &network.traffic;
        let (client, server) = (&traffic.client, &traffic.server);
        let dropped = network.hosts.iter().flat_map(|(_, links)| links.dropped);
        let trips = &traffic.round_trips;
        UpReport {
            holds: first_translated_s.is_some()
                && traffic.failed() + traffic.broken() + traffic.wrong() == 0,
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

    /// The report for people.
    #[must_use]
    pub fn text(&self) -> String {
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
        let verdict = match self.holds {
            true => "Every flow kept its translation and got its bytes.\n",
            false => "NOT as it should be.\n",
        };
        format!("{}\n{verdict}", table.text())
    }
}
