//! What a host writes beside its packets: records for collectors, logs of ports, lines of alerts. No family of what is not written.

use asterism_host_view::View;
use asterism_host_view::exports::ExportsDocument;
use asterism_host_view::ports::PortsDocument;
use asterism_lines::LinesDocument;
use asterism_output::page::{Metric, Page, counter, gauge};

const EXPORTS: [Metric<ExportsDocument>; 4] = [
    counter(
        "asterism_export_intervals_total",
        "Intervals of flows that this host exported.",
        |one| one.intervals.into(),
    ),
    counter(
        "asterism_export_records_total",
        "Flow records sent to the collector.",
        |one| one.records.into(),
    ),
    counter(
        "asterism_export_messages_total",
        "IPFIX messages sent to the collector.",
        |one| one.messages.into(),
    ),
    counter(
        "asterism_export_messages_lost_total",
        "IPFIX messages that could not be sent; their records are lost.",
        |one| one.messages_lost.into(),
    ),
];

const NAT_PORTS: [Metric<PortsDocument>; 11] = [
    gauge(
        "asterism_nat_subscribers",
        "Subscribers with outside ports, of all hosts; 0 where none are counted.",
        |one| one.subscribers.into(),
    ),
    gauge(
        "asterism_nat_blocks_used",
        "Blocks of ports in use, of all hosts.",
        |one| one.blocks_used.into(),
    ),
    gauge(
        "asterism_nat_blocks_quarantined",
        "Blocks of ports that nobody uses and nobody else may have yet, of all hosts.",
        |one| one.blocks_quarantined.into(),
    ),
    gauge(
        "asterism_nat_ports_quarantined",
        "Ports that rest at this host before they are granted again.",
        |one| one.ports_quarantined.into(),
    ),
    counter(
        "asterism_nat_quarantines_cut_short_total",
        "Ports that were granted again too early, because too many rested.",
        |one| one.quarantines_cut_short.into(),
    ),
    counter(
        "asterism_nat_log_events_total",
        "Events of ports and blocks that this host logged.",
        |one| one.events.into(),
    ),
    counter(
        "asterism_nat_log_events_lost_total",
        "Events that were noted faster than they were taken, and are lost.",
        |one| one.events_lost.into(),
    ),
    counter(
        "asterism_nat_log_lines_lost_total",
        "Lines that could not be written to the log.",
        |one| one.lines_lost.into(),
    ),
    counter(
        "asterism_nat_log_messages_total",
        "IPFIX messages of the log that were sent.",
        |one| one.messages.into(),
    ),
    counter(
        "asterism_nat_log_messages_lost_total",
        "IPFIX messages of the log that could not be sent; their events are lost.",
        |one| one.messages_lost.into(),
    ),
    counter(
        "asterism_nat_exempt_packets_total",
        "Packets to and from destinations that are not translated, which were routed as they are.",
        |one| one.exempt.into(),
    ),
];

const EVE: [Metric<LinesDocument>; 2] = [
    counter(
        "asterism_eve_lines_total",
        "Lines of alerts and counts that were written.",
        |one| one.lines.into(),
    ),
    counter(
        "asterism_eve_lines_lost_total",
        "Lines that could not be written, and are lost.",
        |one| one.lines_lost.into(),
    ),
];

pub(super) fn outputs(page: &mut Page, view: &View) {
    if let Some(exports) = view.exports.document() {
        page.table(&EXPORTS, &exports);
    }
    if let Some(ports) = view.nat_ports.document() {
        page.table(&NAT_PORTS, &ports);
    }
    if let Some(eve) = view.eve.document() {
        page.table(&EVE, &eve);
    }
}
