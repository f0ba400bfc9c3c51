//! What a signature function measures, for programs that collect metrics.

use asterism_function::OwnMetric;

use super::SignatureState;

pub(super) const METRICS: [OwnMetric; 7] = [
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
        "Pieces, alerts and blocks of all hosts for which there was no room, and signatures beyond the seventh of one packet.",
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
        let counters = [&self.short, &self.fragments, &self.unrecorded];
        values.extend(counters.map(|counter| counter.total()));
    }
}
