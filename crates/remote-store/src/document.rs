//! A store as people see it: what the instances of a host know of it together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::statistics::StoreSnapshot;

/// The store of remote objects, as all instances of a host see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreDocument {
    /// The address of the primary that instances are connected to, or were last; before that all addresses of the store.
    pub address: String,
    /// All addresses of the store, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// What begins the names of its keys.
    pub name: String,
    /// Whether all connections of all instances are open.
    pub connected: bool,
    /// For how long that has been so, in microseconds.
    pub for_us: u64,
    /// Why a connection is not open, or was lost last; absent while all are open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<String>,
    /// The average time until a reply, in microseconds, of the slowest instance; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<u64>,
    /// Keys that were read.
    pub keys_read: u64,
    /// Entries that it has of each object that is there, as counted some seconds ago; without those that were not counted yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub entries: BTreeMap<String, u64>,
    /// Answers of the store that instances keep; absent where they keep none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheDocument>,
    /// Packets whose writes the store took or refused.
    pub decided: u64,
    /// Batches that another instance crossed, and that were made again.
    pub crossed: u64,
    /// Entries whose end these instances committed.
    #[serde(default)]
    pub ended: u64,
    /// Additions that were left out, for their buckets of time were dropped before the store took them.
    #[serde(default)]
    pub expired: u64,
    /// Commands that the store refused.
    pub refused: u64,
    /// Replies that were none to what was asked.
    pub nonsense: u64,
    /// Connections that instances need now, by their load.
    #[serde(default)]
    pub connections: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Connections that were given up since a reply did not come in time.
    pub timeouts: u64,
}

/// What instances keep of the store's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDocument {
    /// Answers that are kept now.
    pub entries: u64,
    /// Reads that were answered by one.
    pub hits: u64,
    /// Changes that the store announced.
    pub changes: u64,
    /// Packets that went on while the store was away, by what was kept.
    pub served_away: u64,
    /// Which keys may be in the store; absent where instances do not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterDocument>,
}

/// What instances know of keys that are not in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterDocument {
    /// Whether those of all instances have all keys. Until then reads go out.
    pub complete: bool,
    /// Memory of them all.
    pub bytes: u64,
    /// Reads that were answered by one.
    pub answers: u64,
    /// Reads of keys that were not there, and that went out since a filter may have them.
    pub in_vain: u64,
    /// Scans of the store that filled one.
    pub scans: u64,
}

/// The store as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// All its addresses.
    pub addresses: Vec<SocketAddr>,
    /// What begins the names of its keys.
    pub name: String,
    /// Whether instances keep its answers.
    pub has_cache: bool,
    /// Whether they know which keys are not there.
    pub has_filter: bool,
}

impl core::fmt::Display for StorePlace {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        formatter.write_str(&addresses.join(", "))
    }
}

impl StoreDocument {
    /// Of a store that instances see so at this time of their clock, without the entries of objects.
    #[must_use]
    pub fn new(store: &StorePlace, snapshots: &[StoreSnapshot], now_us: u64) -> StoreDocument {
        let connected = snapshots.iter().all(|one| one.is_connected);
        let alike = snapshots.iter().filter(|one| one.is_connected == connected);
        // All are connected since the last one is; one is away since the first one was.
        let since = alike.clone().map(|one| one.since_us);
        let since_us = match connected {
            true => since.max(),
            false => since.min(),
        };
        let round_trip_us = snapshots.iter().map(|one| one.round_trip_us).max();
        let sum = |of: fn(&StoreSnapshot) -> u64| snapshots.iter().map(of).sum();
        StoreDocument {
            address: place(store, snapshots),
            addresses: match store.addresses.as_slice() {
                [_] => Vec::new(),
                several => several.iter().map(SocketAddr::to_string).collect(),
            },
            name: store.name.clone(),
            connected,
            for_us: now_us.saturating_sub(since_us.unwrap_or(0)),
            away: alike
                .map(|one| one.why.label().to_owned())
                .next()
                .filter(|_| !connected),
            round_trip_us: round_trip_us.filter(|us| *us > 0),
            keys_read: sum(|one| one.tally.keys_read),
            entries: BTreeMap::new(),
            cache: store.has_cache.then(|| CacheDocument {
                entries: sum(|one| one.tally.cache_entries),
                hits: sum(|one| one.tally.cache_hits),
                changes: sum(|one| one.tally.changes_heard),
                served_away: sum(|one| one.tally.decided_away),
                filter: store.has_filter.then(|| FilterDocument {
                    complete: snapshots.iter().all(|one| one.tally.filter_is_complete),
                    bytes: sum(|one| one.tally.filter_bytes),
                    answers: sum(|one| one.tally.filter_answers),
                    in_vain: sum(|one| one.tally.filter_in_vain),
                    scans: sum(|one| one.tally.filter_scans),
                }),
            }),
            decided: sum(|one| one.tally.decided),
            crossed: sum(|one| one.tally.crossed),
            ended: sum(|one| one.tally.ends_committed),
            expired: sum(|one| one.tally.additions_expired),
            refused: sum(|one| one.tally.refused),
            nonsense: sum(|one| one.tally.nonsense),
            connections: sum(|one| one.tally.connections),
            connects: sum(|one| one.connects),
            timeouts: sum(|one| one.timeouts),
        }
    }
}

/// The addresses of primaries that instances have found, or all of the store's.
fn place(store: &StorePlace, snapshots: &[StoreSnapshot]) -> String {
    let found: BTreeSet<_> = snapshots.iter().filter_map(|one| one.address).collect();
    match found.is_empty() {
        true => store.to_string(),
        false => {
            let found: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
            found.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::AwayReason;

    #[test]
    fn a_store_is_there_when_all_instances_have_it() {
        let here = |since_us| StoreSnapshot {
            is_connected: true,
            since_us,
            round_trip_us: since_us,
            ..StoreSnapshot::default()
        };
        let away = |since_us| StoreSnapshot {
            is_connected: false,
            why: AwayReason::Silent,
            ..here(since_us)
        };
        let at = |last| SocketAddr::from(([192, 0, 2, last], 6_379));
        let mut store = StorePlace {
            addresses: vec![at(1)],
            name: "b".to_owned(),
            has_cache: true,
            has_filter: true,
        };
        let document = |store: &StorePlace, snapshots: &[StoreSnapshot]| {
            StoreDocument::new(store, snapshots, 100)
        };
        let shown = document(&store, &[here(10), here(30)]);
        assert_eq!(shown.address, "192.0.2.1:6379");
        assert!(shown.addresses.is_empty());
        let filter = |snapshots: &[StoreSnapshot]| {
            let cache = document(&store, snapshots).cache.expect("it is kept");
            cache.filter.expect("it is known").complete
        };
        let mut complete = [here(1); 2];
        complete[0].tally.filter_is_complete = true;
        assert!(!filter(&complete));
        complete[1].tally.filter_is_complete = true;
        assert!(filter(&complete));
        assert_eq!(
            (shown.connected, shown.for_us, shown.away),
            (true, 70, None)
        );
        assert_eq!(shown.round_trip_us, Some(30));
        let shown = document(&store, &[here(10), away(60), away(40)]);
        let silent = Some("silent".to_owned());
        assert_eq!(
            (shown.connected, shown.for_us, shown.away),
            (false, 60, silent)
        );
        store.addresses.push(at(2));
        let mut found = [StoreSnapshot::default(); 3];
        let shown = document(&store, &found);
        assert_eq!(shown.address, "192.0.2.1:6379, 192.0.2.2:6379");
        assert_eq!(shown.addresses.len(), 2);
        (found[0].address, found[2].address) = (Some(at(2)), Some(at(2)));
        assert_eq!(document(&store, &found).address, "192.0.2.2:6379");
        assert_eq!(shown.away.as_deref(), Some("not-tried"));
        assert_eq!((shown.for_us, shown.round_trip_us), (100, None));
    }
}
