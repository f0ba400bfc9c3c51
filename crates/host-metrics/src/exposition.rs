//! Everything that a host counts, in the text format of Prometheus, version 0.0.4.
//!
//! Names are `asterism_SUBJECT_UNIT`, counters end in `_total`, times are in seconds. Reasons are labels, from the one list of
//! each layer, all of them at all times, so that a rate never begins with a hole. Reads snapshots only.
//!
//! Families with one value for a subject are rows of tables (`asterism_output::page`, read it first).

mod audit;
mod caches;
mod channel;
mod outputs;
mod own;
mod peers;
mod sites;
mod stages;
mod store;

use asterism_engine::ObjectUse;
use asterism_engine::transport::ChannelSnapshot;
use asterism_io::port::PortDrop;
use asterism_state::ObjectCount;

use asterism_host_view::statistics::{COUNTS, InstanceSnapshot, PortSnapshot};
use asterism_host_view::{Names, Own, View};

use asterism_output::page::{Kind, Labels, Metric, Page, Value, counter, gauge};

/// The type of what [`text`] gives.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const CLOCKS: [Metric<View>; 2] = [
    gauge(
        "asterism_uptime_seconds",
        "Time since the host was started.",
        |view| Value::Seconds(view.uptime_us()),
    ),
    gauge(
        "asterism_date_ahead_seconds",
        "By how much this machine's date is ahead of the cluster's time; negative if it is behind, 0 below two seconds.",
        |view| Value::SignedSeconds(view.dates().date_ahead_us()),
    ),
];

const EVENT_LOG: [Metric<View>; 1] = [counter(
    "asterism_log_lines_suppressed_total",
    "Lines that the log left out because there were too many of their kind.",
    |view| view.suppressed().into(),
)];

const INSTANCE: [Metric<InstanceSnapshot>; 11] = [
    gauge("asterism_packets_parked", "Packets parked now.", |one| {
        one.parked.into()
    }),
    gauge(
        "asterism_packets_parked_most",
        "The most packets parked at any time.",
        |one| one.parked_most.into(),
    ),
    gauge(
        "asterism_packets_held",
        "Packets held back now until other hosts have what they depend on.",
        |one| one.held.into(),
    ),
    gauge("asterism_held_bytes", "Bytes of these packets.", |one| {
        one.held_bytes.into()
    }),
    gauge(
        "asterism_packets_held_most",
        "The most packets held back at any time.",
        |one| one.held_most.into(),
    ),
    gauge(
        "asterism_incarnations_tracked",
        "Incarnations of members that the instance distinguishes now; beyond 65,535 it stops.",
        |one| one.incarnations.into(),
    ),
    gauge(
        "asterism_frames_in_use",
        "Frames in use: parked and held packets, and what ports hold.",
        |one| one.frames_in_use.into(),
    ),
    gauge(
        "asterism_ring_bytes",
        "Bytes that wait for the state channel.",
        |one| one.ring_bytes.into(),
    ),
    gauge("asterism_ring_capacity_bytes", "Room for them.", |one| {
        one.ring_capacity.into()
    }),
    counter("asterism_turns_total", "Turns of the packet loop.", |one| {
        one.turns.into()
    }),
    counter(
        "asterism_sleeps_total",
        "Times that the packet loop slept.",
        |one| one.sleeps.into(),
    ),
];

const PORT: [Metric<PortSnapshot>; 9] = [
    counter(
        "asterism_port_received_packets_total",
        "Packets that came by the port.",
        |one| one.statistics.received_packets.into(),
    ),
    counter(
        "asterism_port_received_bytes_total",
        "Their bytes.",
        |one| one.statistics.received_bytes.into(),
    ),
    counter(
        "asterism_port_sent_packets_total",
        "Packets sent by the port.",
        |one| one.statistics.sent_packets.into(),
    ),
    counter("asterism_port_sent_bytes_total", "Their bytes.", |one| {
        one.statistics.sent_bytes.into()
    }),
    counter(
        "asterism_port_checksums_completed_total",
        "Packets whose checksum the port completed.",
        |one| one.statistics.checksums_completed.into(),
    ),
    counter(
        "asterism_port_segments_made_total",
        "Segments that the port cut long packets into.",
        |one| one.statistics.segments_made.into(),
    ),
    counter(
        "asterism_port_segments_merged_total",
        "TCP segments that the port handed to its interface merged with their neighbours.",
        |one| one.statistics.segments_merged.into(),
    ),
    counter(
        "asterism_port_link_downs_total",
        "Times that the link went down.",
        |one| one.statistics.link_downs.into(),
    ),
    counter(
        "asterism_port_reopened_total",
        "Times that the port was opened again.",
        |one| one.statistics.reopened.into(),
    ),
];

const PORT_UP: [Metric<PortSnapshot>; 1] = [gauge(
    "asterism_port_up",
    "Whether packets can pass.",
    |one| one.is_up.into(),
)];

const OBJECT: [Metric<ObjectUse>; 6] = [
    gauge(
        "asterism_object_entries",
        "Entries that can be found.",
        |one| one.live.into(),
    ),
    gauge(
        "asterism_object_entries_held",
        "Entries with those that ended and are not forgotten yet.",
        |one| one.held.into(),
    ),
    gauge(
        "asterism_object_entries_ended",
        "Entries that ended and are kept until all members of the epoch know.",
        |one| one.ended.into(),
    ),
    gauge(
        "asterism_object_capacity",
        "Entries at most; of a pool, what this instance may grant; 0 if there is no bound.",
        |one| one.capacity.into(),
    ),
    gauge(
        "asterism_object_quarantined",
        "Of a pool, items of members that left which this instance is to grant and may not yet.",
        |one| one.quarantined.into(),
    ),
    gauge(
        "asterism_object_reclaimed",
        "Of a pool, items of members that left which this instance may grant.",
        |one| one.reclaimed.into(),
    ),
];

/// A host's metrics now.
#[must_use]
pub fn text(view: &View) -> String {
    text_with(view, &view.channel())
}

fn text_with(view: &View, snapshot: &ChannelSnapshot) -> String {
    let names = &view.names;
    let instances: Vec<(String, InstanceSnapshot)> = view
        .snapshots()
        .into_iter()
        .enumerate()
        .filter_map(|(number, snapshot)| Some((number.to_string(), snapshot?)))
        .collect();
    let mut page = Page::default();
    host(&mut page, view);
    packets(&mut page, &names.own, &instances);
    own::own(&mut page, &names.own.metrics, &instances);
    ports(&mut page, names, &instances);
    stages::stages(&mut page, names, &instances);
    objects(&mut page, &instances);
    outputs::outputs(&mut page, view);
    caches::caches(&mut page, view);
    store::store(&mut page, view);
    channel::channel(&mut page, names, snapshot);
    audit::audit(&mut page, names, snapshot);
    peers::peers(&mut page, names, snapshot);
    page.into_text()
}

fn host(page: &mut Page, view: &View) {
    let names = &view.names;
    let name = "asterism_build_info";
    let help = "The program and what it runs; always 1.";
    page.family(name, Kind::Gauge, help);
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("function", names.function),
        ("cluster", &names.cluster),
        ("host", &names.host),
    ];
    page.sample(name, &labels, 1u64);
    page.table(&CLOCKS, view);
    let name = "asterism_phase";
    let help = "What the host does: 1 for the phase that it is in.";
    page.family(name, Kind::Gauge, help);
    let now = view.phase().word();
    for phase in ["listening", "running", "draining", "ended"] {
        page.sample(name, &[("phase", phase)], phase == now);
    }
    page.table(&EVENT_LOG, view);
}

fn packets(page: &mut Page, own: &Own, instances: &[(String, InstanceSnapshot)]) {
    for (place, count) in COUNTS.iter().enumerate() {
        let name = format!("asterism_{}_total", count.name);
        page.family(&name, Kind::Counter, count.meaning);
        for (instance, snapshot) in instances {
            let value = snapshot.counts.get(place).copied().unwrap_or(0);
            page.sample(&name, &[("instance", instance)], value);
        }
    }
    let name = "asterism_packets_dropped_total";
    page.family(name, Kind::Counter, "Packets dropped, by reason.");
    for (instance, snapshot) in instances {
        for (reason, value) in own.labelled(&snapshot.dropped) {
            page.sample(name, &[("instance", instance), ("reason", reason)], value);
        }
    }
    page.table_of(&INSTANCE, |visit| {
        for (instance, snapshot) in instances {
            visit(&[("instance", instance)], snapshot);
        }
    });
}

fn ports(page: &mut Page, names: &Names, instances: &[(String, InstanceSnapshot)]) {
    let each = |visit: &mut dyn FnMut(&Labels<'_>, &PortSnapshot)| {
        for (instance, snapshot) in instances {
            for (port, (name, ..)) in snapshot.ports.iter().zip(&names.ports) {
                visit(&[("instance", instance), ("port", name)], port);
            }
        }
    };
    page.table_of(&PORT, each);
    let name = "asterism_port_dropped_packets_total";
    let help = "Packets dropped at the port, by reason.";
    page.family(name, Kind::Counter, help);
    each(&mut |labels, port| {
        for drop in PortDrop::ALL {
            let labels = [labels, &[("reason", drop.label())]].concat();
            page.sample(name, &labels, port.statistics.dropped(drop));
        }
    });
    page.table_of(&PORT_UP, each);
}

fn objects(page: &mut Page, instances: &[(String, InstanceSnapshot)]) {
    let each = |visit: &mut dyn FnMut(&Labels<'_>, &ObjectUse)| {
        for (instance, snapshot) in instances {
            for object in &snapshot.objects {
                visit(&[("instance", instance), ("object", object.name)], object);
            }
        }
    };
    page.table_of(&OBJECT, each);
    for count in ObjectCount::ALL {
        let name = format!("asterism_object_{}_total", count.label());
        page.family(&name, Kind::Counter, count.meaning());
        each(&mut |labels, object| {
            if let Some(value) = object.counts.get(*count) {
                page.sample(&name, labels, value);
            }
        });
    }
}

#[cfg(test)]
mod tests;
