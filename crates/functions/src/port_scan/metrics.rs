//! What a port-scan IDPS measures, for programs that collect metrics.

use asterism_function::OwnMetric;

use super::PortScanState;

pub(super) const METRICS: [OwnMetric; 5] = [
    OwnMetric::gauge(
        "watched_trails",
        "Histories of what sources probed lately: one for each source and class of probes (TCP, UDP, ICMP).",
    ),
    OwnMetric::counter(
        "alerts_total",
        "Alerts of all hosts since this instance started, as it knows.",
    ),
    OwnMetric::gauge(
        "blocked_sources",
        "Sources that are blocked, for a scan or manually.",
    ),
    OwnMetric::gauge(
        "watched_ports",
        "Destination ports whose volume is measured, or that are blocked for it.",
    ),
    OwnMetric::counter(
        "unrecorded_total",
        "Probes, alerts, blocks and watches of all hosts for which there was no room.",
    ),
];

impl PortScanState {
    /// Appends a value for each of [`METRICS`].
    pub(super) fn measure(&self, values: &mut Vec<u64>) {
        values.extend([
            self.histories.len_now() as u64,
            self.alerts.begun(),
            self.blocked.len_now() as u64,
            self.watched.len_now() as u64,
            self.unrecorded.total(),
        ]);
    }
}
