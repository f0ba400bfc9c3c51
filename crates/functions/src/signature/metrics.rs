//! What a signature function measures, for programs that collect metrics.

use asterism_function::OwnMetric;

use super::SignatureState;

pub(super) const METRICS: [OwnMetric; 9] = [
    OwnMetric::counter(
        "alerts_total",
        "Alerts of all hosts since this instance started, as it knows.",
    ),
    OwnMetric::gauge(
        "blocked_targets",
        "Connections or sources that are blocked, whichever the response blocks, and sources that an operator blocked.",
    ),
    OwnMetric::counter(
        "short_segments_total",
        "TCP segments of all hosts that carry fewer bytes than the shortest piece, and were not looked at.",
    ),
    OwnMetric::counter(
        "fragments_total",
        "IP fragments of all hosts, which were not looked at.",
    ),
    OwnMetric::counter(
        "unrecorded_total",
        "Pieces, alerts, blocks and streams of all hosts for which there was no room, and signatures beyond the seventh of one packet (with reassembly the fifth).",
    ),
    OwnMetric::counter(
        "out_of_order_segments_total",
        "TCP segments of all hosts that left a gap in their stream before them. With reassembly.",
    ),
    OwnMetric::counter(
        "gaps_given_up_total",
        "Gaps in TCP streams of all hosts that were given up, as a stream had too many: bytes that fill them are not searched together with those on both sides. With reassembly.",
    ),
    OwnMetric::gauge("signatures", "Signatures that this host looks for."),
    OwnMetric::gauge(
        "signature_list",
        "A number that is the same on hosts that look for the same signatures.",
    ),
];

impl SignatureState {
    /// Appends a value for each of [`METRICS`] but the last two, which are not of the state.
    pub(super) fn measure(&self, values: &mut Vec<u64>) {
        let blocked = self.blocked.len_now() + self.manual.len_now();
        values.extend([self.alerts.begun(), blocked as u64]);
        let counters = [
            &self.short,
            &self.fragments,
            &self.unrecorded,
            &self.out_of_order,
            &self.gaps,
        ];
        values.extend(counters.map(|counter| counter.total()));
    }
}
