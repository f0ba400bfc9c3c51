//! Everything that a host counts, in the text format of Prometheus, version 0.0.4.
//!
//! Names are `asterism_SUBJECT_UNIT`, counters end in `_total`, times are in seconds. Reasons are labels, from the one list of
//! each layer, all of them at all times, so that a rate never begins with a hole. Reads snapshots only.

mod caches;
mod outputs;
mod own;
mod peers;
mod stages;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use asterism_engine::ChannelTally;
use asterism_engine::transport::ChannelSnapshot;
use asterism_io::port::{PortDrop, PortStatistics};
use asterism_state::ObjectCount;

use crate::run::statistics::{COUNTS, InstanceSnapshot, PortSnapshot};
use crate::view::audit::AuditDocument;
use crate::view::{Own, View, phase_word};

use peers::{peers, sites};

/// The type of what [`text`] gives.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics under construction.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// The head of a family; its samples follow at once.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl core::fmt::Display) {
        self.text.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let mark = if place == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{mark}{label}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// A family with one sample and no labels.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl core::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// A host's metrics now.
#[must_use]
pub fn text(view: &View) -> String {
    text_with(view, &view.channel())
}

fn text_with(view: &View, channel_snapshot: &ChannelSnapshot) -> String {
    let mut page = Page::default();
    host(&mut page, view);
    let instances: Vec<(String, InstanceSnapshot)> = view
        .snapshots()
        .into_iter()
        .enumerate()
        .filter_map(|(number, snapshot)| Some((number.to_string(), snapshot?)))
        .collect();
    packets(&mut page, &view.names.own, &instances);
    own::own(&mut page, &view.names.own.metrics, &instances);
    ports(&mut page, view, &instances);
    stages::stages(&mut page, &view.names, &instances);
    objects(&mut page, &instances);
    outputs::exports(&mut page, view);
    outputs::nat_ports(&mut page, view);
    outputs::eve(&mut page, view);
    caches::counts(&mut page, view);
    channel(&mut page, view, channel_snapshot);
    audit(&mut page, view, channel_snapshot);
    peers(&mut page, view, channel_snapshot);
    page.text
}

fn host(page: &mut Page, view: &View) {
    let names = &view.names;
    page.family(
        "asterism_build_info",
        "gauge",
        "The program and what it runs; always 1.",
    );
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("function", names.function),
        ("cluster", &names.cluster),
        ("host", &names.host),
    ];
    page.sample("asterism_build_info", &labels, 1);
    page.one(
        "asterism_uptime_seconds",
        "gauge",
        "Time since the host was started.",
        seconds(view.uptime_us()),
    );
    page.one(
        "asterism_date_ahead_seconds",
        "gauge",
        "By how much this machine's date is ahead of the cluster's time; negative if it is behind, 0 below two seconds.",
        signed_seconds(view.dates().date_ahead_us()),
    );
    page.family(
        "asterism_phase",
        "gauge",
        "What the host does: 1 for the phase that it is in.",
    );
    let now = phase_word(view.phase());
    for phase in ["listening", "running", "draining", "ended"] {
        page.sample(
            "asterism_phase",
            &[("phase", phase)],
            u8::from(phase == now),
        );
    }
    page.one(
        "asterism_log_lines_suppressed_total",
        "counter",
        "Lines that the log left out because there were too many of their kind.",
        view.suppressed(),
    );
}

fn packets(page: &mut Page, own: &Own, instances: &[(String, InstanceSnapshot)]) {
    for (place, count) in COUNTS.iter().enumerate() {
        let name = format!("asterism_{}_total", count.name);
        page.family(&name, "counter", count.meaning);
        for (instance, snapshot) in instances {
            let value = snapshot.counts.get(place).copied().unwrap_or(0);
            page.sample(&name, &[("instance", instance)], value);
        }
    }
    let name = "asterism_packets_dropped_total";
    page.family(name, "counter", "Packets dropped, by reason.");
    for (instance, snapshot) in instances {
        for (reason, value) in own.labelled(&snapshot.dropped) {
            page.sample(name, &[("instance", instance), ("reason", reason)], value);
        }
    }
    type Read = fn(&InstanceSnapshot) -> u64;
    let gauges: [(&str, &str, &str, Read); 8] = [
        (
            "asterism_packets_parked",
            "gauge",
            "Packets parked now.",
            |one| one.parked,
        ),
        (
            "asterism_packets_parked_most",
            "gauge",
            "The most packets parked at any time.",
            |one| one.parked_most,
        ),
        (
            "asterism_incarnations_tracked",
            "gauge",
            "Incarnations of members that the instance distinguishes now; beyond 65,535 it stops.",
            |one| one.incarnations,
        ),
        (
            "asterism_frames_in_use",
            "gauge",
            "Frames in use: parked packets and what ports hold.",
            |one| one.frames_in_use,
        ),
        (
            "asterism_ring_bytes",
            "gauge",
            "Bytes that wait for the state channel.",
            |one| one.ring_bytes,
        ),
        (
            "asterism_ring_capacity_bytes",
            "gauge",
            "Room for them.",
            |one| one.ring_capacity,
        ),
        (
            "asterism_turns_total",
            "counter",
            "Turns of the packet loop.",
            |one| one.turns,
        ),
        (
            "asterism_sleeps_total",
            "counter",
            "Times that the packet loop slept.",
            |one| one.sleeps,
        ),
    ];
    for (name, kind, help, read) in gauges {
        page.family(name, kind, help);
        for (instance, snapshot) in instances {
            page.sample(name, &[("instance", instance)], read(snapshot));
        }
    }
}

fn ports(page: &mut Page, view: &View, instances: &[(String, InstanceSnapshot)]) {
    let each = |visit: &mut dyn FnMut(&str, &str, &PortSnapshot)| {
        for (instance, snapshot) in instances {
            for (port, (name, ..)) in snapshot.ports.iter().zip(&view.names.ports) {
                visit(instance, name, port);
            }
        }
    };
    type Read = fn(&PortStatistics) -> u64;
    let counters: [(&str, &str, Read); 9] = [
        (
            "asterism_port_received_packets_total",
            "Packets that came by the port.",
            |one| one.received_packets,
        ),
        (
            "asterism_port_received_bytes_total",
            "Their bytes.",
            |one| one.received_bytes,
        ),
        (
            "asterism_port_sent_packets_total",
            "Packets sent by the port.",
            |one| one.sent_packets,
        ),
        ("asterism_port_sent_bytes_total", "Their bytes.", |one| {
            one.sent_bytes
        }),
        (
            "asterism_port_checksums_completed_total",
            "Packets whose checksum the port completed.",
            |one| one.checksums_completed,
        ),
        (
            "asterism_port_segments_made_total",
            "Segments that the port cut long packets into.",
            |one| one.segments_made,
        ),
        (
            "asterism_port_segments_merged_total",
            "TCP segments that the port handed to its interface merged with their neighbours.",
            |one| one.segments_merged,
        ),
        (
            "asterism_port_link_downs_total",
            "Times that the link went down.",
            |one| one.link_downs,
        ),
        (
            "asterism_port_reopened_total",
            "Times that the port was opened again.",
            |one| one.reopened,
        ),
    ];
    for (name, help, read) in counters {
        page.family(name, "counter", help);
        each(&mut |instance, port, snapshot| {
            page.sample(
                name,
                &[("instance", instance), ("port", port)],
                read(&snapshot.statistics),
            );
        });
    }
    let name = "asterism_port_dropped_packets_total";
    page.family(name, "counter", "Packets dropped at the port, by reason.");
    each(&mut |instance, port, snapshot| {
        for drop in PortDrop::ALL {
            let labels = [
                ("instance", instance),
                ("port", port),
                ("reason", drop.label()),
            ];
            page.sample(name, &labels, snapshot.statistics.dropped(drop));
        }
    });
    page.family("asterism_port_up", "gauge", "Whether packets can pass.");
    each(&mut |instance, port, snapshot| {
        let labels = [("instance", instance), ("port", port)];
        page.sample("asterism_port_up", &labels, u8::from(snapshot.is_up));
    });
}

fn objects(page: &mut Page, instances: &[(String, InstanceSnapshot)]) {
    type Read = fn(&asterism_engine::ObjectUse) -> u64;
    let gauges: [(&str, &str, Read); 6] = [
        (
            "asterism_object_entries",
            "Entries that can be found.",
            |one| one.live as u64,
        ),
        (
            "asterism_object_entries_held",
            "Entries with those that ended and are not forgotten yet.",
            |one| one.held as u64,
        ),
        (
            "asterism_object_entries_ended",
            "Entries that ended and are kept until all members of the epoch know.",
            |one| one.ended as u64,
        ),
        (
            "asterism_object_capacity",
            "Entries at most; of a pool, what this instance may grant; 0 if there is no bound.",
            |one| one.capacity.into(),
        ),
        (
            "asterism_object_quarantined",
            "Of a pool, items of members that left which this instance is to grant and may not yet.",
            |one| one.quarantined.into(),
        ),
        (
            "asterism_object_reclaimed",
            "Of a pool, items of members that left which this instance may grant.",
            |one| one.reclaimed.into(),
        ),
    ];
    for (name, help, read) in gauges {
        page.family(name, "gauge", help);
        for (instance, snapshot) in instances {
            for object in &snapshot.objects {
                page.sample(
                    name,
                    &[("instance", instance), ("object", object.name)],
                    read(object),
                );
            }
        }
    }
    for count in ObjectCount::ALL {
        let name = format!("asterism_object_{}_total", count.label());
        page.family(&name, "counter", count.meaning());
        for (instance, snapshot) in instances {
            for object in &snapshot.objects {
                if let Some(value) = object.counts.get(*count) {
                    let labels = [("instance", instance.as_str()), ("object", object.name)];
                    page.sample(&name, &labels, value);
                }
            }
        }
    }
}

fn channel(page: &mut Page, view: &View, snapshot: &ChannelSnapshot) {
    snapshot.transport.each(|counter, value| {
        let name = format!("asterism_transport_{counter}_total");
        page.one(
            &name,
            "counter",
            &format!("The state channel's transport: {}.", words(counter)),
            value,
        );
    });
    type Read = fn(&ChannelTally) -> u64;
    let tally: [(&str, Read); 10] = [
        ("datagrams_sent", |one| one.datagrams_sent),
        ("bytes_sent", |one| one.bytes_sent),
        ("datagrams_received", |one| one.datagrams_received),
        ("bytes_received", |one| one.bytes_received),
        ("refused_sealed", |one| one.refused_sealed),
        ("refused_opened", |one| one.refused_opened),
        ("refused_backlog", |one| one.refused_backlog),
        ("backlogged", |one| one.backlogged),
        ("held_by_log", |one| one.held_by_log),
        ("events_lost", |one| one.events_lost),
    ];
    for (counter, read) in tally {
        let name = format!("asterism_channel_{counter}_total");
        page.one(
            &name,
            "counter",
            &format!("The state channel: {}.", words(counter)),
            read(&snapshot.channel),
        );
    }
    snapshot.relay.each(|counter, value| {
        if snapshot.sites.is_empty() {
            return;
        }
        let name = format!("asterism_relay_{counter}_total");
        page.one(
            &name,
            "counter",
            &format!("Sites and relays: {}.", words(counter)),
            value,
        );
    });
    sites(page, view, snapshot);
    let name = "asterism_seal_refused_total";
    page.family(
        name,
        "counter",
        "Datagrams refused while sealed, by reason.",
    );
    for (reason, count) in snapshot.refused.iter() {
        page.sample(name, &[("reason", reason.label())], count);
    }
    let (handshakes, events) = snapshot.seal_dropped;
    page.one(
        "asterism_seal_handshakes_dropped_total",
        "counter",
        "Handshakes dropped at their bound.",
        handshakes,
    );
    page.one(
        "asterism_seal_events_dropped_total",
        "counter",
        "Events of the sealed channel dropped at their bound.",
        events,
    );
    let mut refused = Vec::new();
    snapshot
        .replication
        .each(|counter, reason, value| match reason {
            None => {
                let name = format!("asterism_replication_{counter}_total");
                page.one(
                    &name,
                    "counter",
                    &format!("Replication: {}.", words(counter)),
                    value,
                );
            }
            Some(reason) => refused.push((reason.label(), value)),
        });
    let name = "asterism_replication_refused_total";
    page.family(name, "counter", "State messages refused, by reason.");
    for (reason, value) in refused {
        page.sample(name, &[("reason", reason)], value);
    }
    let (groups, bytes) = view.names.log;
    let gauges: [(&str, &str, u64); 16] = [
        (
            "asterism_log_head",
            "The last group that this host wrote.",
            snapshot.head,
        ),
        (
            "asterism_log_groups",
            "Groups in the log.",
            (groups.saturating_sub(snapshot.log_room.groups)) as u64,
        ),
        (
            "asterism_log_groups_capacity",
            "Groups that fit the log.",
            groups as u64,
        ),
        (
            "asterism_log_bytes",
            "Bytes in the log.",
            (bytes.saturating_sub(snapshot.log_room.bytes)) as u64,
        ),
        (
            "asterism_log_capacity_bytes",
            "Bytes that fit the log.",
            bytes as u64,
        ),
        (
            "asterism_channel_backlog_bytes",
            "Bytes that wait for slow instances.",
            snapshot.backlog_bytes as u64,
        ),
        (
            "asterism_channel_coalescing_window_microseconds",
            "How long counters and sketches keep changes back at most now; 0 while no path is congested.",
            snapshot.window.length.as_micros() as u64,
        ),
        (
            "asterism_channel_path_mtu_bytes",
            "The narrowest path's MTU; 0 while none is known.",
            snapshot.state.path_mtu as u64,
        ),
        (
            "asterism_channel_quiet",
            "Whether all that was written is applied everywhere.",
            snapshot.is_quiet.into(),
        ),
        (
            "asterism_key_sends_with",
            "The number of the cluster key that this host sends with.",
            snapshot.sends_under.into(),
        ),
        (
            "asterism_wire_version",
            "The wire version that this host speaks.",
            snapshot.speaks.into(),
        ),
        (
            "asterism_wire_version_newest",
            "The newest wire version that this host understands.",
            snapshot.understands.newest.into(),
        ),
        (
            "asterism_epoch",
            "The epoch in force.",
            snapshot.epoch.0.into(),
        ),
        (
            "asterism_later_epoch",
            "A later epoch that another member has in force; 0: none.",
            snapshot.later_epoch.map_or(0, |(_, epoch)| epoch.0.into()),
        ),
        (
            "asterism_joined",
            "Whether this host holds what the others hold.",
            snapshot.is_ready.into(),
        ),
        (
            "asterism_incarnations_not_closed",
            "Incarnations of members that an epoch ended, and that not all members have alike yet.",
            snapshot
                .ended
                .iter()
                .filter(|incarnation| !incarnation.closed)
                .count() as u64,
        ),
    ];
    for (name, help, value) in gauges {
        page.one(name, "gauge", help, value);
    }
    let name = "asterism_key_accepted";
    page.family(
        name,
        "gauge",
        "The cluster keys that this host accepts; always 1.",
    );
    for id in snapshot.accepts.ids() {
        page.sample(name, &[("key", &id.to_string())], 1);
    }
    page.one(
        "asterism_channel_processor_seconds_total",
        "counter",
        "Time that the state channel's thread spent on a processor.",
        seconds(snapshot.thread.processor_time.as_micros() as u64),
    );
    page.one(
        "asterism_channel_turns_total",
        "counter",
        "Turns of the state channel's thread.",
        snapshot.thread.turns,
    );
}

fn audit(page: &mut Page, view: &View, snapshot: &ChannelSnapshot) {
    let audit = AuditDocument::new(snapshot, &view.names);
    let differing = "asterism_audit_parts_differing";
    page.family(
        differing,
        "gauge",
        "Parts of an object that differ from the reference's, of 256; anything but zero is an alarm.",
    );
    for object in &audit.objects {
        for difference in &object.differs {
            let instance = difference.instance.to_string();
            let labels = [("object", object.object.as_str()), ("instance", &instance)];
            page.sample(differing, &labels, difference.parts.len());
        }
        if object.differs.is_empty() {
            page.sample(differing, &[("object", object.object.as_str())], 0);
        }
    }
    let age = "asterism_audit_age_seconds";
    page.family(
        age,
        "gauge",
        "How long ago all of an object had been found equal to the reference's.",
    );
    for object in &audit.objects {
        if let Some(ago) = object.equal_us_ago {
            page.sample(age, &[("object", object.object.as_str())], seconds(ago));
        }
    }
    let compared = "asterism_audit_parts_compared_total";
    page.family(
        compared,
        "counter",
        "Comparisons of parts with the reference's, by what was found; those that changed meanwhile say nothing.",
    );
    for (finding, count) in [
        ("equal", audit.parts_equal),
        ("different", audit.parts_different),
        ("changing", audit.parts_changing),
    ] {
        page.sample(compared, &[("finding", finding)], count);
    }
    let streams = "asterism_audit_stream_ranges_differing_total";
    page.family(
        streams,
        "counter",
        "Ranges of a host's groups that were delivered here otherwise than sent; anything but zero is an alarm.",
    );
    for stream in &audit.streams {
        let labels = [("member", stream.member.as_str())];
        page.sample(streams, &labels, stream.ranges_different);
    }
    let age = "asterism_audit_stream_age_seconds";
    page.family(
        age,
        "gauge",
        "How long ago a host's groups were found to be delivered here as they were sent.",
    );
    for stream in &audit.streams {
        if let Some(ago) = stream.equal_us_ago {
            page.sample(age, &[("member", stream.member.as_str())], seconds(ago));
        }
    }
    page.one(
        "asterism_audit_rounds_void_total",
        "counter",
        "Comparisons that came to nothing because a message was lost or late.",
        audit.rounds_void,
    );
    page.one(
        "asterism_audit_refused_total",
        "counter",
        "Messages of an auditor that were none, or not from the reference.",
        audit.refused,
    );
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn signed_seconds(us: i64) -> String {
    let sign = if us < 0 { "-" } else { "" };
    format!("{sign}{}", seconds(us.unsigned_abs()))
}

/// A counter's name as words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}
