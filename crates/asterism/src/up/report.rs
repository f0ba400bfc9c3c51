//! What `asterism up` says in the end.

use asterism_local_network::traffic::TrafficSnapshot;
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
    /// Median and 99 % of the round trips, in microseconds.
    pub round_trip_us: [u64; 2],
}

impl UpReport {
    pub(super) fn new(
        traffic: &TrafficSnapshot,
        first_translated_s: Option<f64>,
        hosts_started: u64,
        hosts_ended: u64,
    ) -> UpReport {
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
        let verdict = match self.holds {
            true => "Every flow kept its translation and got its bytes.\n",
            false => "NOT as it should be.\n",
        };
        format!("{}\n{verdict}", table.text())
    }
}
