//! `asterism status` as text.

use asterism_config::value::show_size;
use asterism_host::run::event_log::date;
use asterism_host::run::jobs::keys::listed;
use asterism_host_view::health::ahead_text;
use asterism_host_view::placements::PlacementDocument;
use asterism_host_view::store::StoreDocument;
use asterism_host_view::{
    ChannelDocument, InstanceDocument, ObjectDocument, PeerDocument, PortDocument, StageDocument,
    StatusDocument, TimeDocument,
};

use super::audit::audit_text;
use super::sites::sites_text;
use super::span;

/// A member that fell off the log this long ago and has not caught up is shown with a cure, since a snapshot takes seconds.
const LAGS_LONG_US: u64 = 10_000_000;
/// A machine's date that differs less from the cluster's time is not shown.
const DATE_DIFFERS_US: u64 = 2_000_000;
/// Number of incarnations from which `status` shows it: three quarters of the most that an instance distinguishes.
const INCARNATIONS_TO_SAY: u64 = INCARNATIONS_MAX.div_ceil(4) * 3;
const INCARNATIONS_MAX: u64 = asterism_state::ORIGINS_MAX as u64;

/// The sections of a host's status, in order.
pub(super) fn status_text(status: &StatusDocument) -> String {
    let instances = status.instances.iter().map(instance_text);
    let peers = status.peers.iter().map(peer_text);
    let refused = status.channel.refused.iter();
    [
        host_text(status),
        needs_text(status),
        store_text(status.store.as_ref()),
        outputs_text(status),
        instances.collect(),
        channel_text(&status.channel),
        peers.collect(),
        refused
            .map(|(reason, count)| format!("  refused {count} {reason}\n"))
            .collect(),
        sites_text(&status.sites, &status.host),
        "\nAudit: ".to_owned(),
        audit_text(&status.audit),
    ]
    .concat()
}

/// The host, what it runs, and its time.
fn host_text(status: &StatusDocument) -> String {
    let mut text = format!(
        "{} of {}: {}, {} ({}), up {}\n",
        status.host,
        status.cluster,
        status.function,
        status.phase,
        status.version,
        span(status.uptime_us)
    );
    text.push_str(&format!(
        "member {}, incarnation {}, epoch {}, state channel at {}, shape {}\n",
        status.member, status.incarnation, status.epoch, status.channel.address, status.shape
    ));
    if let Some(time) = &status.time {
        text.push_str(&time_text(time));
    }
    text
}

/// Everything that keeps the host from its work, or needs a look.
fn needs_text(status: &StatusDocument) -> String {
    let mut text = String::new();
    for item in &status.health {
        text.push_str(&format!(
            "needs a look: {} {} for {}: {}; {}\n",
            item.member,
            item.item,
            span(item.for_us),
            item.effect,
            item.cure
        ));
    }
    if !status.joined {
        text.push_str("joins: this host reads no packets before it has the state of the others\n");
    }
    if let Some(later) = status.later_epoch {
        text.push_str(&format!(
            "epoch {later} is in force elsewhere: until this host receives it, the host grants no ports and reads no packets\n"
        ));
    }
    for placement in &status.placements {
        text.push_str(&placement_text(placement));
    }
    for incarnation in &status.ended {
        let waits = incarnation.waits_for.as_ref().map_or_else(
            || "members take over its updates from each other".to_owned(),
            |name| format!("{name} has not reported which updates of it are held there"),
        );
        text.push_str(&format!(
            "incarnation {} of {} has ended: {waits}\n",
            incarnation.incarnation, incarnation.name
        ));
    }
    text
}

/// How far an object's change between local and replicated is.
fn placement_text(placement: &PlacementDocument) -> String {
    let mut text = format!(
        "{} is {} by this host's configuration, and {} with others now",
        placement.object,
        placement.placement,
        if placement.shared {
            "shared"
        } else {
            "not shared"
        }
    );
    if !placement.differing.is_empty() {
        text.push_str(&format!(
            "; another placement have {}",
            placement.differing.join(", ")
        ));
    }
    if placement.waits {
        text.push_str("; it waits until an instance holds no more of its entries than its share");
    }
    if !placement.settled {
        text.push_str("; hosts still write again what they held");
    }
    text.push('\n');
    text
}

/// Whether a store, or a shard, is there.
fn standing_text(connected: bool, away: Option<&str>) -> String {
    match (away, connected) {
        (_, true) => "connected".to_owned(),
        (Some(why), false) => format!("away ({why})"),
        (None, false) => "away".to_owned(),
    }
}

fn round_trip_text(us: Option<u64>) -> String {
    us.map_or_else(String::new, |us| format!(", round trip {}", span(us)))
}

/// The store of remote objects.
fn store_text(store: Option<&StoreDocument>) -> String {
    let Some(store) = store else {
        return String::new();
    };
    let standing = standing_text(store.connected, store.away.as_deref());
    let round_trip = round_trip_text(store.round_trip_us);
    let mut entries = String::new();
    for shard in &store.shards {
        let standing = standing_text(shard.connected, shard.away.as_deref());
        entries.push_str(&format!(
            "  shard {} at {}: {standing} for {}{}; {} keys read, {} packets decided\n",
            shard.name,
            shard.address,
            span(shard.for_us),
            round_trip_text(shard.round_trip_us),
            shard.keys_read,
            shard.decided,
        ));
    }
    if store.torn > 0 {
        entries.push_str(&format!(
            "  {} batches of writes made in part: a key of the store has another type than it should\n",
            store.torn
        ));
    }
    if store.misplaced > 0 {
        entries.push_str(&format!(
            "  {} reads and packets refused whose keys are another shard's\n",
            store.misplaced
        ));
    }
    if let Some(bytes) = store.embedded_bytes {
        entries.push_str(&format!(
            "  the embedded store of this host has {}\n",
            show_size(bytes)
        ));
    }
    if let Some(refused) = store.embedded_refused.filter(|refused| *refused > 0) {
        entries.push_str(&format!(
            "  it closed {refused} connections: too many, or without a password in time\n"
        ));
    }
    for (object, count) in &store.entries {
        entries.push_str(&format!("  {object}: {count} entries\n"));
    }
    let cache = store.cache.map_or_else(String::new, |cache| {
        format!(
            "  cache: {} answers, {} reads answered, {} changes, {} packets while the store was away\n",
            cache.entries, cache.hits, cache.changes, cache.served_away
        )
    });
    let filter = store.cache.and_then(|cache| cache.filter);
    let filter = filter.map_or_else(String::new, |filter| {
        format!(
            "  filter: {}, {} after {} scans; {} reads answered, {} keys read in vain\n",
            if filter.complete {
                "complete"
            } else {
                "not complete"
            },
            show_size(filter.bytes),
            filter.scans,
            filter.answers,
            filter.in_vain
        )
    });
    format!(
        "store {}: {standing} for {}{round_trip}; {} keys read, {} packets decided, {} crossed, {} ended, {} refused, {} connections, {} timeouts\n{entries}{cache}{filter}",
        store.address,
        span(store.for_us),
        store.keys_read,
        store.decided,
        store.crossed,
        store.ended,
        store.refused,
        store.connections,
        store.timeouts,
    )
}

/// What the host writes beside its packets.
fn outputs_text(status: &StatusDocument) -> String {
    let mut text = String::new();
    if let Some(exports) = &status.exports {
        text.push_str(&format!(
            "exported {} intervals of flows: {} records in {} messages, {} messages lost\n",
            exports.intervals, exports.records, exports.messages, exports.messages_lost
        ));
    }
    if let Some(ports) = &status.nat_ports {
        text.push_str(&format!(
            "subscribers {}: {} blocks used, {} quarantined; {} ports quarantined; {} events logged, {} lost\n",
            ports.subscribers,
            ports.blocks_used,
            ports.blocks_quarantined,
            ports.ports_quarantined,
            ports.events,
            ports.events_lost + ports.lines_lost + ports.messages_lost,
        ));
        if ports.exempt != 0 {
            text.push_str(&format!("{} packets routed exempt\n", ports.exempt));
        }
    }
    if let Some(eve) = &status.eve {
        text.push_str(&format!(
            "alerts written: {} lines, {} lines lost\n",
            eve.lines, eve.lines_lost
        ));
    }
    if let Some(caches) = &status.caches {
        text.push_str(&format!(
            "digests of web caches: {} fetched, {} served, {} requests not served\n",
            caches.fetched, caches.served, caches.not_served
        ));
        for (reason, count) in &caches.refused {
            text.push_str(&format!("  refused {count} {reason}\n"));
        }
    }
    text
}

fn instance_text(instance: &InstanceDocument) -> String {
    let mut text = String::new();
    let count = |name: &str| instance.counts.get(name).copied().unwrap_or(0);
    text.push_str(&format!(
        "\nInstance {}: {} received, {} forwarded, {} dropped, {} parked (most {})\n",
        instance.instance,
        count("packets_received"),
        count("packets_forwarded"),
        instance.dropped.values().sum::<u64>(),
        instance.parked,
        instance.parked_most,
    ));
    let held = count("packets_held");
    if held > 0 {
        text.push_str(&format!(
            "  {} held for other hosts now (most {}), {held} in all, {} of them released unconfirmed\n",
            instance.held,
            instance.held_most,
            count("packets_released_unconfirmed"),
        ));
    }
    for (reason, count) in &instance.dropped {
        text.push_str(&format!("  dropped {count} {reason}\n"));
    }
    text.push_str(&incarnations_text(instance.incarnations));
    let (copies, lost) = (count("copies"), count("copies_lost"));
    if copies + lost > 0 {
        text.push_str(&format!("  {copies} copies sent, {lost} lost\n"));
    }
    for port in &instance.ports {
        text.push_str(&port_text(port));
    }
    for stage in &instance.stages {
        text.push_str(&stage_text(stage));
    }
    for (metric, value) in &instance.own {
        text.push_str(&format!("  {metric} {value}\n"));
    }
    for object in &instance.objects {
        text.push_str(&object_text(object));
    }
    text
}

fn object_text(object: &ObjectDocument) -> String {
    let of = match object.capacity {
        0 => String::new(),
        capacity => format!(" of {capacity}"),
    };
    let inherited = match (object.reclaimed, object.quarantined) {
        (0, 0) => String::new(),
        (reclaimed, quarantined) => {
            format!(", of others {reclaimed} reclaimed, {quarantined} quarantined")
        }
    };
    let digest = object
        .digest
        .as_ref()
        .map_or_else(String::new, |digest| format!("  digest {digest}"));
    let mut text = format!(
        "  {:12} {} live, {} held{of}{inherited}{digest}\n",
        object.name, object.live, object.held
    );
    for (count, value) in &object.counts {
        text.push_str(&format!("    {value} {count}\n"));
    }
    text
}

fn channel_text(channel: &ChannelDocument) -> String {
    let mut text = String::new();
    text.push_str(&format!(
        "\nState channel: {} groups written, log with room for {} groups and {} bytes, {}\n",
        channel.head,
        channel.log_groups_free,
        channel.log_bytes_free,
        if channel.is_quiet {
            "all acknowledged"
        } else {
            "not all acknowledged"
        },
    ));
    text.push_str(&format!(
        "  sends with key {}, accepts {}\n",
        channel.sends_with,
        listed(&channel.accepts)
    ));
    let (speaks, understands) = (channel.speaks, channel.understands);
    text.push_str(&format!(
        "  speaks wire version {speaks}, understands {understands}\n"
    ));
    if channel.counters_reported > 0 {
        text.push_str(&format!(
            "  counters: window of {}, {:.1} changes per reported total\n",
            span(channel.coalescing_window_us),
            channel.counter_changes as f64 / channel.counters_reported as f64,
        ));
    }
    text
}

/// How well the two hosts hear each other, in a word.
fn peer_state(peer: &PeerDocument) -> &str {
    match peer {
        peer if !peer.takes_part => "takes no part",
        // Differing dates keep no host from its work, so any other state takes precedence.
        PeerDocument {
            fault: Some(fault), ..
        } if fault != "dates-apart" => fault,
        peer if peer.unreachable => "unreachable",
        peer if !peer.admitted || !peer.welcomes => "not joined",
        peer if peer.lagging => "lags",
        peer if peer.congested => "congested",
        _ => "joined",
    }
}

fn peer_text(peer: &PeerDocument) -> String {
    let state = peer_state(peer);
    let time = |us: Option<u64>| us.map_or_else(|| "never".to_owned(), span);
    let mut text = format!(
        "  {:12} {state}, received {} ago{}, has received datagrams sent {} ago, round trip {}, date {}, behind {} groups ({}), {} unacknowledged\n",
        peer.name,
        time(peer.heard_us_ago),
        key_text(peer),
        time(peer.receives_us_ago),
        time(peer.round_trip_us),
        date_text(peer),
        peer.behind_groups,
        span(peer.behind_us),
        peer.unacknowledged_groups,
    );
    let heard_us_ago = peer.heard_us_ago.filter(|_| peer.takes_part);
    if let Some(hint) = lags_text(&peer.name, heard_us_ago, peer.lags_us) {
        text.push_str(&hint);
    }
    if !peer.differing_keys.is_empty() {
        text.push_str(&format!(
            "    has a key {} that differs from this host's: copy one key file to both\n",
            listed(&peer.differing_keys)
        ));
    }
    for setting in &peer.differing_settings {
        text.push_str(&format!(
            "    is refused: {} is \"{}\" here and \"{}\" there\n",
            setting.name, setting.ours, setting.theirs
        ));
    }
    if let Some(missing) = &peer.missing_key {
        text.push_str(&format!(
            "    {} datagrams in its name under keys that this host lacks, the last under key {} {} ago\n",
            missing.datagrams,
            missing.id,
            span(missing.us_ago)
        ));
    }
    text
}

/// The cluster's time, if this machine's date differs.
fn time_text(time: &TimeDocument) -> String {
    let ahead_us = time
        .date_us
        .cast_signed()
        .saturating_sub(time.cluster_us.cast_signed());
    if ahead_us.unsigned_abs() < DATE_DIFFERS_US {
        return String::new();
    }
    let source = time.taken_from.as_ref().map_or_else(
        || "this machine's date when the host was started".to_owned(),
        |name| format!("taken over from {name}"),
    );
    format!(
        "this machine's date is {} the cluster's time, {}, by which sessions idle: {source}\n",
        ahead_text(ahead_us / 1_000_000),
        date(time.cluster_us / 1_000_000),
    )
}

/// Difference of a member's date from the date here.
fn date_text(peer: &PeerDocument) -> String {
    let Some(ahead_us) = peer.clock.and_then(|clock| clock.date_ahead_us) else {
        return "unknown".to_owned();
    };
    let sign = if ahead_us < 0 { "-" } else { "+" };
    format!("{sign}{}", span(ahead_us.unsigned_abs()))
}

/// The cure for a member that has been silent or lagging for long.
fn lags_text(name: &str, heard_us_ago: Option<u64>, lags_us: Option<u64>) -> Option<String> {
    let long = |us: &u64| *us > LAGS_LONG_US;
    if let Some(silent_us) = heard_us_ago.filter(long) {
        return Some(format!(
            "    silent for {}: tombstones are kept until {name} acknowledges them, or an epoch leaves it out (`asterism epoch CONFIG --without {name}`)\n",
            span(silent_us),
        ));
    }
    let lags_us = lags_us.filter(long)?;
    Some(format!(
        "    has not caught up for {}: its links or cores are too slow for the writes of all members; give it more, or leave it out (`asterism epoch CONFIG --without {name}`)\n",
        span(lags_us),
    ))
}

fn key_text(peer: &PeerDocument) -> String {
    let heard = peer
        .heard_with
        .map_or_else(String::new, |id| format!(" with key {id}"));
    let accepts = peer.accepts.as_ref();
    let accepts = accepts.map_or_else(String::new, |ids| format!(", accepts {}", listed(ids)));
    let understands = peer.understands;
    let understands = understands.map_or_else(String::new, |versions| {
        format!(", understands wire version {versions}")
    });
    heard + &accepts + &understands
}

fn stage_text(stage: &StageDocument) -> String {
    let mut text = format!(
        "  stage {:12} {} asked, {} acted, {} late",
        stage.name, stage.asked, stage.acted, stage.late
    );
    if stage.bypassed > 0 {
        text.push_str(&format!(", {} bypassed", stage.bypassed));
    }
    if stage.mirrored + stage.mirror_lost > 0 {
        text.push_str(&format!(
            ", {} copies, {} lost",
            stage.mirrored, stage.mirror_lost
        ));
    }
    text.push('\n');
    for (reason, count) in &stage.dropped {
        text.push_str(&format!("    dropped {count} {reason}\n"));
    }
    text
}

pub(super) fn port_text(port: &PortDocument) -> String {
    let mut text = format!(
        "  {:12} {} ({}), {}: {} in, {} out\n",
        port.name,
        port.place,
        port.kind,
        if port.is_up { "up" } else { "down" },
        port.received_packets,
        port.sent_packets,
    );
    for (reason, count) in &port.dropped {
        text.push_str(&format!("    dropped {count} {reason}\n"));
    }
    text
}

/// That the incarnations of members which an instance can distinguish will be used up, once that is near.
fn incarnations_text(incarnations: u64) -> String {
    if incarnations < INCARNATIONS_TO_SAY {
        return String::new();
    }
    format!(
        "  distinguishes {incarnations} incarnations of members, of {INCARNATIONS_MAX}: entries that never end refer to them; remove those entries, or restart this host\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnations_are_reported_before_they_are_used_up() {
        assert_eq!(incarnations_text(49_151), "");
        let expected = "  distinguishes 49152 incarnations of members, of 65535: entries that never end refer to them; remove those entries, or restart this host\n";
        assert_eq!(incarnations_text(49_152), expected);
    }

    #[test]
    fn the_clusters_time_is_shown_where_the_date_is_another_one() {
        let mut time = TimeDocument {
            cluster_us: 1_700_000_000_000_000,
            date_us: 1_700_021_600_000_000,
            settled: true,
            taken_from: Some("b".to_owned()),
        };
        let text = time_text(&time);
        let expected = "this machine's date is 6 h 0 min ahead of the cluster's time, 2023-11-14";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("taken over from b\n"), "{text}");
        time.date_us = time.cluster_us - 1_999_999;
        assert_eq!(time_text(&time), "");
    }

    #[test]
    fn a_stage_shows_what_it_did() {
        let stage = StageDocument {
            name: "watch".to_owned(),
            asked: 10,
            acted: 7,
            late: 3,
            bypassed: 2,
            mirrored: 0,
            mirror_lost: 0,
            dropped: [("table-full".to_owned(), 2)].into(),
        };
        let text = stage_text(&stage);
        let expected = "  stage watch        10 asked, 7 acted, 3 late, 2 bypassed\n    dropped 2 table-full\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn only_who_is_silent_or_lags_for_long_is_reported_of() {
        let (short, long) = (Some(LAGS_LONG_US), Some(12_000_000));
        assert_eq!(lags_text("b", None, None), None);
        assert_eq!(lags_text("b", short, short), None);
        let slow = lags_text("b", short, long).expect("a hint");
        let silent = lags_text("b", long, long).expect("a hint");
        for (hint, begins) in [
            (slow, "    has not caught up for 12"),
            (silent, "    silent for 12"),
        ] {
            assert!(hint.starts_with(begins), "{hint}");
            assert!(hint.contains("--without b"), "{hint}");
        }
    }
}
