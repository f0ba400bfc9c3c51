//! The store of remote objects as `status`, health and metrics show it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use asterism_config::Store;
use asterism_remote_store::{Listing, StoreSnapshot, StoreStatistics};
use serde::{Deserialize, Serialize};

use super::health::HealthDocument;

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
    /// Commands that the store refused.
    pub refused: u64,
    /// Replies that were none to what was asked.
    pub nonsense: u64,
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
    /// Changes that the store told of.
    pub changes: u64,
    /// Packets that went on while the store was away, by what was kept.
    pub served_away: u64,
}

/// A host's store, if it has one.
#[derive(Debug, Default)]
pub struct StoreView(Option<Configured>);

struct Configured {
    store: Store,
    /// All objects of the function, in the order of their numbers.
    objects: &'static [&'static str],
    statistics: Vec<Arc<StoreStatistics>>,
    listing: Option<Arc<dyn Listing>>,
}

impl Configured {
    /// Entries in the store, as the first instance that counted them has it.
    fn entries(&self) -> BTreeMap<String, u64> {
        let counted = |object: u8| self.statistics.iter().find_map(|one| one.entries(object));
        let objects = (0_u8..).zip(self.objects);
        let entries =
            objects.filter_map(|(object, name)| Some(((*name).to_owned(), counted(object)?)));
        entries.collect()
    }
}

impl core::fmt::Debug for Configured {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Configured({})", self.store.place())
    }
}

impl StoreView {
    /// Of the configured store, whose instances show this.
    #[must_use]
    pub fn new(
        store: &Store,
        objects: &'static [&'static str],
        statistics: Vec<Arc<StoreStatistics>>,
    ) -> StoreView {
        StoreView(Some(Configured {
            store: store.clone(),
            objects,
            statistics,
            listing: None,
        }))
    }

    /// The same with what shows its entries.
    #[must_use]
    pub fn with_listing(mut self, listing: Arc<dyn Listing>) -> StoreView {
        if let Some(configured) = &mut self.0 {
            configured.listing = Some(listing);
        }
        self
    }

    /// Where the store is, and what shows its entries.
    pub(crate) fn listing(&self) -> Option<(String, &dyn Listing)> {
        let configured = self.0.as_ref()?;
        let listing = configured.listing.as_deref()?;
        Some((configured.store.place(), listing))
    }

    /// It as a document, at this time of the host's clock.
    #[must_use]
    pub fn document(&self, now_us: u64) -> Option<StoreDocument> {
        let configured = self.0.as_ref()?;
        let snapshots = configured.statistics.iter().map(|one| one.snapshot());
        let snapshots: Vec<_> = snapshots.collect();
        let mut document = document(&configured.store, &snapshots, now_us);
        document.entries = configured.entries();
        document.cache = document.cache.filter(|_| configured.store.kept.is_some());
        Some(document)
    }

    /// What an operator can do if it is away.
    #[must_use]
    pub fn cure(&self) -> &'static str {
        let statistics = self.0.iter().flat_map(|configured| &configured.statistics);
        let mut snapshots = statistics.map(|one| one.snapshot());
        let away = snapshots.find(|one| !one.is_connected);
        away.unwrap_or_default().why.cure()
    }

    /// That it is away, if it is.
    pub(super) fn health(&self, now_us: u64) -> Option<HealthDocument> {
        let store = self.document(now_us)?;
        (!store.connected).then(|| HealthDocument {
            item: "store-away".to_owned(),
            member: format!("the store {}", store.address),
            for_us: store.for_us,
            effect: away_effect().to_owned(),
            cure: self.cure().to_owned(),
        })
    }
}

/// What a store that is away does to packets.
#[must_use]
pub(crate) fn away_effect() -> &'static str {
    "packets that need it are parked for 2 s at most, and dropped then as parked-too-long"
}

/// The addresses of primaries that instances have found, or all of the store's.
fn place(store: &Store, snapshots: &[StoreSnapshot]) -> String {
    let found: BTreeSet<_> = snapshots.iter().filter_map(|one| one.address).collect();
    match found.is_empty() {
        true => store.place(),
        false => {
            let found: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
            found.join(", ")
        }
    }
}

fn document(store: &Store, snapshots: &[StoreSnapshot], now_us: u64) -> StoreDocument {
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
        cache: Some(CacheDocument {
            entries: sum(|one| one.tally.cache_entries),
            hits: sum(|one| one.tally.cache_hits),
            changes: sum(|one| one.tally.changes_heard),
            served_away: sum(|one| one.tally.decided_away),
        }),
        decided: sum(|one| one.tally.decided),
        crossed: sum(|one| one.tally.crossed),
        refused: sum(|one| one.tally.refused),
        nonsense: sum(|one| one.tally.nonsense),
        connects: sum(|one| one.connects),
        timeouts: sum(|one| one.timeouts),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use asterism_remote_store::AwayReason;

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
        let mut store = Store {
            addresses: vec![at(1)],
            user: None,
            password: None,
            connections: 2,
            name: "b".to_owned(),
            ack: asterism_config::StoreAck::Primary,
            timeout: Duration::from_secs(1),
            kept: None,
        };
        let document = |store: &Store, snapshots: &[StoreSnapshot]| document(store, snapshots, 100);
        let shown = document(&store, &[here(10), here(30)]);
        assert_eq!(shown.address, "192.0.2.1:6379");
        assert!(shown.addresses.is_empty());
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
