//! What a host writes beside its packets: records for collectors, logs of ports, lines of alerts.

use super::Page;
use crate::view::View;

/// What was exported, where there is a collector.
pub(super) fn exports(page: &mut Page, view: &View) {
    let Some(exports) = view.exports.document() else {
        return;
    };
    let counts = [
        (
            "asterism_export_intervals_total",
            "Intervals of flows that this host exported.",
            exports.intervals,
        ),
        (
            "asterism_export_records_total",
            "Flow records sent to the collector.",
            exports.records,
        ),
        (
            "asterism_export_messages_total",
            "IPFIX messages sent to the collector.",
            exports.messages,
        ),
        (
            "asterism_export_messages_lost_total",
            "IPFIX messages that could not be sent; their records are lost.",
            exports.messages_lost,
        ),
    ];
    for (name, help, value) in counts {
        page.one(name, "counter", help, value);
    }
}

/// What is known of outside ports, where the function is a NAT.
pub(super) fn nat_ports(page: &mut Page, view: &View) {
    let Some(ports) = view.nat_ports.document() else {
        return;
    };
    for (name, help, value) in [
        (
            "asterism_nat_subscribers",
            "Subscribers with outside ports, of all hosts; 0 where none are counted.",
            ports.subscribers,
        ),
        (
            "asterism_nat_blocks_used",
            "Blocks of ports in use, of all hosts.",
            ports.blocks_used,
        ),
        (
            "asterism_nat_blocks_quarantined",
            "Blocks of ports that nobody uses and nobody else may have yet, of all hosts.",
            ports.blocks_quarantined,
        ),
        (
            "asterism_nat_ports_quarantined",
            "Ports that rest at this host before they are granted again.",
            ports.ports_quarantined,
        ),
    ] {
        page.one(name, "gauge", help, value);
    }
    for (name, help, value) in [
        (
            "asterism_nat_quarantines_cut_short_total",
            "Ports that were granted again too early, because too many rested.",
            ports.quarantines_cut_short,
        ),
        (
            "asterism_nat_log_events_total",
            "Events of ports and blocks that this host logged.",
            ports.events,
        ),
        (
            "asterism_nat_log_events_lost_total",
            "Events that were noted faster than they were taken, and are lost.",
            ports.events_lost,
        ),
        (
            "asterism_nat_log_lines_lost_total",
            "Lines that could not be written to the log.",
            ports.lines_lost,
        ),
        (
            "asterism_nat_log_messages_total",
            "IPFIX messages of the log that were sent.",
            ports.messages,
        ),
        (
            "asterism_nat_log_messages_lost_total",
            "IPFIX messages of the log that could not be sent; their events are lost.",
            ports.messages_lost,
        ),
        (
            "asterism_nat_exempt_packets_total",
            "Packets to and from destinations that are not translated, which were routed as they are.",
            ports.exempt,
        ),
    ] {
        page.one(name, "counter", help, value);
    }
}

/// Lines of alerts, where they are written.
pub(super) fn eve(page: &mut Page, view: &View) {
    let Some(eve) = view.eve.document() else {
        return;
    };
    page.one(
        "asterism_eve_lines_total",
        "counter",
        "Lines of alerts and counts that were written.",
        eve.lines,
    );
    page.one(
        "asterism_eve_lines_lost_total",
        "counter",
        "Lines that could not be written, and are lost.",
        eve.lines_lost,
    );
}
