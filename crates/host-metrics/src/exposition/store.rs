//! The store of remote objects. No family where there is none.

use asterism_output::page::{Kind, Metric, Page, Value, counter, gauge};

use asterism_host_view::View;
use asterism_host_view::store::{CacheDocument, FilterDocument, StoreDocument};

const STORE: [Metric<StoreDocument>; 14] = [
    gauge(
        "asterism_store_up",
        "Whether all connections to the store of remote objects are open.",
        |one| one.connected.into(),
    ),
    gauge(
        "asterism_store_round_trip_seconds",
        "Average time until a reply of the store, of the slowest instance.",
        |one| Value::Seconds(one.round_trip_us.unwrap_or(0)),
    ),
    gauge(
        "asterism_store_connections",
        "Connections to the store that instances need, by their load.",
        |one| one.connections.into(),
    ),
    counter(
        "asterism_store_keys_read_total",
        "Keys that were read from the store.",
        |one| one.keys_read.into(),
    ),
    counter(
        "asterism_store_decided_total",
        "Packets whose writes the store took or refused.",
        |one| one.decided.into(),
    ),
    counter(
        "asterism_store_crossed_total",
        "Batches of writes that another instance crossed, and that were made again.",
        |one| one.crossed.into(),
    ),
    counter(
        "asterism_store_ended_total",
        "Entries whose end these instances committed in the store.",
        |one| one.ended.into(),
    ),
    counter(
        "asterism_store_expired_total",
        "Additions that were left out, for their buckets of time were dropped before the store took them.",
        |one| one.expired.into(),
    ),
    counter(
        "asterism_store_refused_total",
        "Commands that the store refused.",
        |one| one.refused.into(),
    ),
    counter(
        "asterism_store_torn_total",
        "Batches of writes of which the store made a part, since it refused the rest.",
        |one| one.torn.into(),
    ),
    counter(
        "asterism_store_nonsense_total",
        "Replies of the store that were none to what was asked.",
        |one| one.nonsense.into(),
    ),
    counter(
        "asterism_store_misplaced_total",
        "Reads and packets that were refused since their keys are another shard's.",
        |one| one.misplaced.into(),
    ),
    counter(
        "asterism_store_connects_total",
        "Connections to the store that were made.",
        |one| one.connects.into(),
    ),
    counter(
        "asterism_store_timeouts_total",
        "Connections to the store that were given up since a reply did not come in time.",
        |one| one.timeouts.into(),
    ),
];

const CACHE: [Metric<CacheDocument>; 4] = [
    gauge(
        "asterism_store_cache_entries",
        "Answers of the store that instances keep.",
        |one| one.entries.into(),
    ),
    counter(
        "asterism_store_cache_hits_total",
        "Reads that were answered by what instances keep.",
        |one| one.hits.into(),
    ),
    counter(
        "asterism_store_cache_changes_total",
        "Changes of what instances keep that the store announced.",
        |one| one.changes.into(),
    ),
    counter(
        "asterism_store_cache_served_away_total",
        "Packets that went on while the store was away, by what instances keep.",
        |one| one.served_away.into(),
    ),
];

const FILTER: [Metric<FilterDocument>; 3] = [
    gauge(
        "asterism_store_filter_complete",
        "Whether all instances know which keys are not in the store.",
        |one| one.complete.into(),
    ),
    counter(
        "asterism_store_filter_answers_total",
        "Reads that were answered since their keys are not in the store.",
        |one| one.answers.into(),
    ),
    counter(
        "asterism_store_filter_in_vain_total",
        "Keys that were read since they may be in the store, and were not there.",
        |one| one.in_vain.into(),
    ),
];

pub(super) fn store(page: &mut Page, view: &View) {
    if let Some(store) = view.store.document(view.uptime_us()) {
        page.table(&STORE, &store);
        let (name, help) = (
            "asterism_store_entries",
            "Entries that the store has of an object, as counted some seconds ago.",
        );
        page.family(name, Kind::Gauge, help);
        for (object, entries) in &store.entries {
            page.sample(name, &[("object", object.as_str())], *entries);
        }
        if let Some(bytes) = store.embedded_bytes {
            let (name, help) = (
                "asterism_store_embedded_bytes",
                "Bytes of the keys and values that the embedded store of this host has.",
            );
            page.family(name, Kind::Gauge, help);
            page.sample(name, &[], bytes);
        }
        if let Some(refused) = store.embedded_refused {
            let (name, help) = (
                "asterism_store_embedded_refused_total",
                "Connections that the embedded store of this host closed: too many, or without a password in time.",
            );
            page.family(name, Kind::Counter, help);
            page.sample(name, &[], refused);
        }
        if !store.shards.is_empty() {
            let (name, help) = (
                "asterism_store_shard_up",
                "Whether all connections to a shard of the store are open.",
            );
            page.family(name, Kind::Gauge, help);
            for shard in &store.shards {
                page.sample(
                    name,
                    &[("shard", shard.name.as_str())],
                    u64::from(shard.connected),
                );
            }
        }
        if let Some(cache) = &store.cache {
            page.table(&CACHE, cache);
        }
        if let Some(filter) = store.cache.and_then(|cache| cache.filter) {
            page.table(&FILTER, &filter);
        }
    }
}
