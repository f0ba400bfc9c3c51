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
    /// Its shards, if it has several, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<ShardDocument>,
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
    /// Bytes of the keys and values that the embedded store of this host has; absent where the host runs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedded_bytes: Option<u64>,
    /// Connections that it closed, since there were too many or since they showed no password in time; absent where the host runs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedded_refused: Option<u64>,
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
    /// Batches of packets' writes of which the store made a part, since it refused the rest.
    #[serde(default)]
    pub torn: u64,
    /// Replies that were none to what was asked.
    pub nonsense: u64,
    /// Reads and packets that were refused since their keys are another shard's: the function's keys are not those of its packets.
    #[serde(default)]
    pub misplaced: u64,
    /// Connections that instances need now, by their load.
    #[serde(default)]
    pub connections: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Connections that were given up since a reply did not come in time.
    pub timeouts: u64,
}

/// One of several shards of a store, as all instances of a host see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardDocument {
    /// Its name.
    pub name: String,
    /// The address of its primary, or all of its addresses before one was found.
    pub address: String,
    /// Whether all connections of all instances to it are open.
    pub connected: bool,
    /// For how long that has been so, in microseconds.
    pub for_us: u64,
    /// Why a connection is not open; absent while all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<String>,
    /// The average time until a reply, in microseconds, of the slowest instance; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<u64>,
    /// Keys that were read from it.
    pub keys_read: u64,
    /// Packets whose writes it took or refused.
    pub decided: u64,
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
    /// All its addresses; of one with shards none.
    pub addresses: Vec<SocketAddr>,
    /// Its shards, if it has several: of each its name and its addresses.
    pub shards: Vec<(String, Vec<SocketAddr>)>,
    /// What begins the names of its keys.
    pub name: String,
    /// Whether instances keep its answers.
    pub has_cache: bool,
    /// Whether they know which keys are not there.
    pub has_filter: bool,
}

impl core::fmt::Display for StorePlace {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let shards = self.shards.iter().flat_map(|(_, addresses)| addresses);
        formatter.write_str(&joined(self.addresses.iter().chain(shards)))
    }
}

fn joined<'a>(addresses: impl IntoIterator<Item = &'a SocketAddr>) -> String {
    let addresses: Vec<String> = addresses.into_iter().map(SocketAddr::to_string).collect();
    addresses.join(", ")
}

/// Whether all instances have a store, or a shard: and since when, why not, and how long a reply takes.
struct Standing {
    connected: bool,
    for_us: u64,
    away: Option<String>,
    round_trip_us: Option<u64>,
}

impl Standing {
    fn of(snapshots: &[StoreSnapshot], now_us: u64) -> Self {
        let connected = snapshots.iter().all(|one| one.is_connected);
        let alike = snapshots.iter().filter(|one| one.is_connected == connected);
        // All are connected since the last one is; one is away since the first one was.
        let since = alike.clone().map(|one| one.since_us);
        let since_us = match connected {
            true => since.max(),
            false => since.min(),
        };
        let round_trip_us = snapshots.iter().map(|one| one.round_trip_us).max();
        Self {
            connected,
            for_us: now_us.saturating_sub(since_us.unwrap_or(0)),
            away: alike
                .map(|one| one.why.label().to_owned())
                .next()
                .filter(|_| !connected),
            round_trip_us: round_trip_us.filter(|us| *us > 0),
        }
    }
}

impl ShardDocument {
    fn new(
        (name, addresses): &(String, Vec<SocketAddr>),
        snapshots: &[StoreSnapshot],
        now_us: u64,
    ) -> Self {
        let Standing {
            connected,
            for_us,
            away,
            round_trip_us,
        } = Standing::of(snapshots, now_us);
        let sum = |of: fn(&StoreSnapshot) -> u64| snapshots.iter().map(of).sum();
        Self {
            name: name.clone(),
            address: found(snapshots).unwrap_or_else(|| joined(addresses)),
            connected,
            for_us,
            away,
            round_trip_us,
            keys_read: sum(|one| one.tally.keys_read),
            decided: sum(|one| one.tally.decided),
        }
    }
}

impl StoreDocument {
    /// Of a store that instances see so at this time of their clock, without what they do not see (entries, and what a host runs itself): by its shards, of one without any as if it were
    /// one.
    #[must_use]
    pub fn new(store: &StorePlace, by_shard: &[Vec<StoreSnapshot>], now_us: u64) -> StoreDocument {
        let snapshots = &*by_shard.concat();
        let Standing {
            connected,
            for_us,
            away,
            round_trip_us,
        } = Standing::of(snapshots, now_us);
        let shards = store.shards.iter().zip(by_shard);
        let sum = |of: fn(&StoreSnapshot) -> u64| snapshots.iter().map(of).sum();
        StoreDocument {
            address: found(snapshots).unwrap_or_else(|| store.to_string()),
            addresses: match store.addresses.as_slice() {
                [] | [_] => Vec::new(),
                several => several.iter().map(SocketAddr::to_string).collect(),
            },
            shards: shards
                .map(|(shard, snapshots)| ShardDocument::new(shard, snapshots, now_us))
                .collect(),
            name: store.name.clone(),
            connected,
            for_us,
            away,
            round_trip_us,
            keys_read: sum(|one| one.tally.keys_read),
            entries: BTreeMap::new(),
            embedded_bytes: None,
            embedded_refused: None,
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
            torn: sum(|one| one.tally.torn),
            nonsense: sum(|one| one.tally.nonsense),
            misplaced: sum(|one| one.tally.misplaced),
            connections: sum(|one| one.tally.connections),
            connects: sum(|one| one.connects),
            timeouts: sum(|one| one.timeouts),
        }
    }

    /// What of it is away, as words: its address, or the names of shards.
    #[must_use]
    pub fn part_away(&self) -> String {
        let away = self.shards.iter().filter(|shard| !shard.connected);
        let names: Vec<String> = away
            .map(|shard| format!("shard {} at {}", shard.name, shard.address))
            .collect();
        match names.is_empty() {
            true => self.address.clone(),
            false => names.join(", "),
        }
    }
}

/// The addresses of primaries that instances have found, if there are any.
fn found(snapshots: &[StoreSnapshot]) -> Option<String> {
    let found: BTreeSet<_> = snapshots.iter().filter_map(|one| one.address).collect();
    (!found.is_empty()).then(|| joined(&found))
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
            shards: Vec::new(),
            name: "b".to_owned(),
            has_cache: true,
            has_filter: true,
        };
        let document = |store: &StorePlace, snapshots: &[StoreSnapshot]| {
            StoreDocument::new(store, &[snapshots.to_vec()], 100)
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
        // With shards each is shown, and named where it is away.
        let store = StorePlace {
            addresses: Vec::new(),
            shards: vec![("a".to_owned(), vec![at(1)]), ("b".to_owned(), vec![at(2)])],
            ..store
        };
        let by_shard = [vec![here(10), here(30)], vec![here(5), away(60)]];
        let shown = StoreDocument::new(&store, &by_shard, 100);
        assert!(!shown.connected && shown.shards[0].connected);
        assert_eq!((shown.for_us, shown.shards[1].for_us), (40, 40));
        assert_eq!(shown.part_away(), "shard b at 192.0.2.2:6379");
        assert_eq!(shown.address, "192.0.2.1:6379, 192.0.2.2:6379");
    }
}
