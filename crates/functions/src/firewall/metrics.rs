//! What a firewall measures, for programs that collect metrics.

use asterism_function::OwnMetric;
use asterism_tracking::Tracks;

use super::{Action, FirewallState};

/// Numbers that no rule has, under which `hits` counts what was decided, whichever rule did.
const ALLOWED: u32 = u32::MAX;
const DROPPED: u32 = u32::MAX - 1;
const BLOCKED: u32 = u32::MAX - 2;
/// The number of flows that were rejected with an answer.
pub(super) const ANSWERED: u32 = u32::MAX - 3;

/// The number under which `hits` counts what was decided on a new flow.
pub(super) fn number_of(action: Action) -> u32 {
    match action {
        Action::Allow => ALLOWED,
        Action::Drop | Action::Reject => DROPPED,
        Action::Block(_) => BLOCKED,
    }
}

pub(super) const METRICS: [OwnMetric; 10] = [
    OwnMetric::gauge(
        "flows",
        "Flows that are known, of all hosts, as this one knows; those that ended count until they idle out.",
    ),
    OwnMetric::gauge(
        "half_open_connections",
        "TCP connections of all hosts that were begun within the last minute and neither completed nor refused; `half_open_total` bounds those of each link.",
    ),
    OwnMetric::gauge(
        "blocked_sources",
        "Sources that rules blocked, or somebody manually, of all hosts; they count for little longer than they are blocked.",
    ),
    OwnMetric::gauge(
        "events",
        "What rules with `log` decided on and who met a limit, within the last minute: one for each rule and source.",
    ),
    OwnMetric::counter(
        "allowed_flows_total",
        "New flows of all hosts that a rule or the default allowed.",
    ),
    OwnMetric::counter(
        "dropped_flows_total",
        "First packets of new flows of all hosts that a rule or the default dropped or rejected.",
    ),
    OwnMetric::counter(
        "blocked_flows_total",
        "First packets of new flows of all hosts for which a rule blocked their source.",
    ),
    OwnMetric::counter(
        "answered_flows_total",
        "First packets of new flows of all hosts that a rule or the default rejected with an answer.",
    ),
    OwnMetric::counter(
        "blocks_without_room_total",
        "Packets whose source a rule would have blocked, had there been room: over all hosts, as this one knows.",
    ),
    OwnMetric::counter(
        "events_without_room_total",
        "Packets that would have been noted, had there been room: over all hosts, as this one knows.",
    ),
];

impl FirewallState {
    /// Appends a value for each of [`METRICS`].
    pub(super) fn measure(&self, values: &mut Vec<u64>) {
        values.extend([
            self.flows.len_now() as u64,
            self.tracked().half_open.map_or(0, |counts| counts.total()),
            self.blocked.len_now() as u64,
            self.events.len_now() as u64,
        ]);
        values.extend([ALLOWED, DROPPED, BLOCKED, ANSWERED].map(|number| self.hits.total(&number)));
        values.extend([
            self.blocks_without_room.total(),
            self.events_without_room.total(),
        ]);
    }
}
