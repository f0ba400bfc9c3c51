//! What the state channel counts: its transport, its relays, its sealing, its replication, its log and its thread.

use asterism_engine::ChannelTally;
use asterism_engine::transport::ChannelSnapshot;

use super::sites::sites;
use asterism_host_view::Names;
use asterism_output::page::{Kind, Metric, Page, Value, counter, gauge};

type ReadTally = fn(&ChannelTally) -> u64;

/// Counters whose names are their help.
const TALLY: [(&str, ReadTally); 10] = [
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

const SEAL: [Metric<ChannelSnapshot>; 2] = [
    counter(
        "asterism_seal_handshakes_dropped_total",
        "Handshakes dropped at their bound.",
        |one| one.seal_dropped.0.into(),
    ),
    counter(
        "asterism_seal_events_dropped_total",
        "Events of the sealed channel dropped at their bound.",
        |one| one.seal_dropped.1.into(),
    ),
];

/// The log of what this host wrote.
struct Log {
    head: u64,
    groups: usize,
    groups_capacity: usize,
    bytes: usize,
    bytes_capacity: usize,
}

const LOG: [Metric<Log>; 5] = [
    gauge(
        "asterism_log_head",
        "The last group that this host wrote.",
        |one| one.head.into(),
    ),
    gauge("asterism_log_groups", "Groups in the log.", |one| {
        one.groups.into()
    }),
    gauge(
        "asterism_log_groups_capacity",
        "Groups that fit the log.",
        |one| one.groups_capacity.into(),
    ),
    gauge("asterism_log_bytes", "Bytes in the log.", |one| {
        one.bytes.into()
    }),
    gauge(
        "asterism_log_capacity_bytes",
        "Bytes that fit the log.",
        |one| one.bytes_capacity.into(),
    ),
];

const STANDING: [Metric<ChannelSnapshot>; 11] = [
    gauge(
        "asterism_channel_backlog_bytes",
        "Bytes that wait for slow instances.",
        |one| one.backlog_bytes.into(),
    ),
    gauge(
        "asterism_channel_coalescing_window_microseconds",
        "How long counters and sketches keep changes back at most now; 0 while no path is congested.",
        |one| (one.window.length.as_micros() as u64).into(),
    ),
    gauge(
        "asterism_channel_path_mtu_bytes",
        "The narrowest path's MTU; 0 while none is known.",
        |one| one.state.path_mtu.into(),
    ),
    gauge(
        "asterism_channel_quiet",
        "Whether all that was written is applied everywhere.",
        |one| one.is_quiet.into(),
    ),
    gauge(
        "asterism_key_sends_with",
        "The number of the cluster key that this host sends with.",
        |one| one.sends_under.into(),
    ),
    gauge(
        "asterism_wire_version",
        "The wire version that this host speaks.",
        |one| one.speaks.into(),
    ),
    gauge(
        "asterism_wire_version_newest",
        "The newest wire version that this host understands.",
        |one| one.understands.newest.into(),
    ),
    gauge("asterism_epoch", "The epoch in force.", |one| {
        one.epoch.0.into()
    }),
    gauge(
        "asterism_later_epoch",
        "A later epoch that another member has in force; 0: none.",
        |one| one.later_epoch.map_or(0, |(_, epoch)| epoch.0).into(),
    ),
    gauge(
        "asterism_joined",
        "Whether this host holds what the others hold.",
        |one| one.is_ready.into(),
    ),
    gauge(
        "asterism_incarnations_not_closed",
        "Incarnations of members that an epoch ended, and that not all members have alike yet.",
        |one| {
            let open = one.ended.iter().filter(|incarnation| !incarnation.closed);
            open.count().into()
        },
    ),
];

const THREAD: [Metric<ChannelSnapshot>; 2] = [
    counter(
        "asterism_channel_processor_seconds_total",
        "Time that the state channel's thread spent on a processor.",
        |one| Value::Seconds(one.thread.processor_time.as_micros() as u64),
    ),
    counter(
        "asterism_channel_turns_total",
        "Turns of the state channel's thread.",
        |one| one.thread.turns.into(),
    ),
];

pub(super) fn channel(page: &mut Page, names: &Names, snapshot: &ChannelSnapshot) {
    transport(page, snapshot);
    relay(page, snapshot);
    sites(page, names, snapshot);
    seal(page, snapshot);
    replication(page, snapshot);
    log(page, names.log, snapshot);
    page.table(&STANDING, snapshot);
    keys(page, snapshot);
    page.table(&THREAD, snapshot);
}

fn transport(page: &mut Page, snapshot: &ChannelSnapshot) {
    snapshot.transport.each(|counter, value| {
        let name = format!("asterism_transport_{counter}_total");
        let help = format!("The state channel's transport: {}.", words(counter));
        page.one(&name, Kind::Counter, &help, value);
    });
    for (counter, read) in TALLY {
        let name = format!("asterism_channel_{counter}_total");
        let help = format!("The state channel: {}.", words(counter));
        page.one(&name, Kind::Counter, &help, read(&snapshot.channel));
    }
}

/// Nothing where members have no sites.
fn relay(page: &mut Page, snapshot: &ChannelSnapshot) {
    if snapshot.sites.is_empty() {
        return;
    }
    snapshot.relay.each(|counter, value| {
        let name = format!("asterism_relay_{counter}_total");
        let help = format!("Sites and relays: {}.", words(counter));
        page.one(&name, Kind::Counter, &help, value);
    });
}

fn seal(page: &mut Page, snapshot: &ChannelSnapshot) {
    let name = "asterism_seal_refused_total";
    let help = "Datagrams refused while sealed, by reason.";
    page.family(name, Kind::Counter, help);
    for (reason, count) in snapshot.refused.iter() {
        page.sample(name, &[("reason", reason.label())], count);
    }
    page.table(&SEAL, snapshot);
}

fn replication(page: &mut Page, snapshot: &ChannelSnapshot) {
    let mut refused = Vec::new();
    snapshot
        .replication
        .each(|counter, reason, value| match reason {
            None => {
                let name = format!("asterism_replication_{counter}_total");
                let help = format!("Replication: {}.", words(counter));
                page.one(&name, Kind::Counter, &help, value);
            }
            Some(reason) => refused.push((reason.label(), value)),
        });
    let name = "asterism_replication_refused_total";
    let help = "State messages refused, by reason.";
    page.family(name, Kind::Counter, help);
    for (reason, value) in refused {
        page.sample(name, &[("reason", reason)], value);
    }
}

fn log(page: &mut Page, (groups, bytes): (usize, usize), snapshot: &ChannelSnapshot) {
    let log = Log {
        head: snapshot.head,
        groups: groups.saturating_sub(snapshot.log_room.groups),
        groups_capacity: groups,
        bytes: bytes.saturating_sub(snapshot.log_room.bytes),
        bytes_capacity: bytes,
    };
    page.table(&LOG, &log);
}

fn keys(page: &mut Page, snapshot: &ChannelSnapshot) {
    let name = "asterism_key_accepted";
    let help = "The cluster keys that this host accepts; always 1.";
    page.family(name, Kind::Gauge, help);
    for id in snapshot.accepts.ids() {
        page.sample(name, &[("key", &id.to_string())], 1u64);
    }
}

/// A counter's name as words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}
