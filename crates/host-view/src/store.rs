//! The store of remote objects as `status`, health and metrics show it.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asterism_config::{Store, StoreShard};
use asterism_embedded_store::ServerStatistics;
pub use asterism_remote_store::{CacheDocument, FilterDocument, ShardDocument, StoreDocument};
use asterism_remote_store::{Listed, Listing, StorePlace, StoreStatistics};

use crate::health::HealthDocument;

/// What instances show of each shard of a store, by their numbers.
pub type ByShard = Vec<Vec<Arc<StoreStatistics>>>;

/// A host's store, if it has one.
#[derive(Debug, Default)]
pub struct StoreView(Option<Configured>);

struct Configured {
    store: StorePlace,
    /// All objects of the function, in the order of their numbers.
    objects: &'static [&'static str],
    /// What each instance shows of each shard; of a store without shards as if it were one.
    statistics: ByShard,
    listing: Option<Arc<dyn Listing>>,
    /// What the part that this host runs shows, if it does.
    own: Option<Arc<ServerStatistics>>,
}

impl Configured {
    /// Entries in the store, as the first instance that counted them has it; of several shards in those together that were counted.
    fn entries(&self) -> BTreeMap<String, u64> {
        let counted = |object: u8| {
            let by_shard = self.statistics.iter();
            let counted =
                by_shard.filter_map(|shard| shard.iter().find_map(|one| one.entries(object)));
            counted.reduce(u64::saturating_add)
        };
        let objects = (0_u8..).zip(self.objects);
        let entries =
            objects.filter_map(|(object, name)| Some(((*name).to_owned(), counted(object)?)));
        entries.collect()
    }
}

impl core::fmt::Debug for Configured {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Configured({})", self.store)
    }
}

impl StoreView {
    /// Of the configured store, whose instances show this.
    #[must_use]
    pub fn new(store: &Store, objects: &'static [&'static str], statistics: ByShard) -> StoreView {
        StoreView(Some(Configured {
            store: StorePlace {
                addresses: store.addresses.clone(),
                shards: store
                    .shards
                    .iter()
                    .flat_map(|shards| &shards.each)
                    .map(named)
                    .collect(),
                name: store.name.clone(),
                has_cache: store.cache.is_some(),
                has_filter: store.cache.is_some_and(|cache| cache.filter),
            },
            objects,
            statistics,
            listing: None,
            own: None,
        }))
    }

    /// The same with what the part that this host runs shows.
    #[must_use]
    pub fn with_own(mut self, own: Option<Arc<ServerStatistics>>) -> StoreView {
        if let Some(configured) = &mut self.0 {
            configured.own = own;
        }
        self
    }

    /// The same with what shows its entries.
    #[must_use]
    pub fn with_listing(mut self, listing: Arc<dyn Listing>) -> StoreView {
        if let Some(configured) = &mut self.0 {
            configured.listing = Some(listing);
        }
        self
    }

    /// What shows its entries; `None` without a store.
    #[must_use]
    pub fn listing(&self) -> Option<&dyn Listing> {
        self.0.as_ref()?.listing.as_deref()
    }

    /// Whether it has several shards.
    #[must_use]
    pub fn has_shards(&self) -> bool {
        let configured = self.0.as_ref();
        configured.is_some_and(|configured| configured.store.shards.len() > 1)
    }

    /// Has the listing go on with another function, an `Arc` of it.
    pub fn set_function(&self, function: Box<dyn Any + Send>) {
        if let Some(listing) = self.listing() {
            listing.set_function(function);
        }
    }

    /// What a search did not reach, a sentence for each part of the store. `enough`: the asker wanted no more.
    #[must_use]
    pub fn unsearched(&self, listed: &Listed, enough: bool) -> Vec<String> {
        let Some(Configured { store, .. }) = &self.0 else {
            return Vec::new();
        };
        let part = |place: &usize| match store.shards.get(*place) {
            Some((name, addresses)) => {
                let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
                format!("the shard {name} of the store, {},", addresses.join(", "))
            }
            None => format!("the store {store}"),
        };
        let away = listed.away.iter();
        let away = away.map(|(place, why)| format!("{} is away ({})", part(place), why.label()));
        let late = (listed.is_cut && !enough).then(|| LATE.to_owned());
        away.chain(late).collect()
    }

    /// It as a document, at this time of the host's clock.
    #[must_use]
    pub fn document(&self, now_us: u64) -> Option<StoreDocument> {
        let configured = self.0.as_ref()?;
        let snapshots = |shard: &Vec<Arc<StoreStatistics>>| {
            let snapshots = shard.iter().map(|one| one.snapshot());
            snapshots.collect::<Vec<_>>()
        };
        let by_shard: Vec<_> = configured.statistics.iter().map(snapshots).collect();
        let mut document = StoreDocument::new(&configured.store, &by_shard, now_us);
        document.entries = configured.entries();
        let own = configured.own.as_ref();
        document.embedded_bytes = own.map(|own| own.bytes.load(Ordering::Relaxed));
        document.embedded_refused = own.map(|own| own.refused.load(Ordering::Relaxed));
        Some(document)
    }

    /// What an operator can do if it is away.
    #[must_use]
    pub fn cure(&self) -> &'static str {
        let statistics = self.0.iter().flat_map(|configured| &configured.statistics);
        let mut snapshots = statistics.flatten().map(|one| one.snapshot());
        let away = snapshots.find(|one| !one.is_connected);
        away.unwrap_or_default().why.cure()
    }

    /// That it is away, if it is.
    pub(crate) fn health(&self, now_us: u64) -> Option<HealthDocument> {
        let store = self.document(now_us)?;
        (!store.connected).then(|| HealthDocument {
            item: "store-away".to_owned(),
            member: format!("the store {}", store.part_away()),
            for_us: store.for_us,
            effect: away_effect().to_owned(),
            cure: self.cure().to_owned(),
        })
    }
}

fn named(shard: &StoreShard) -> (String, Vec<SocketAddr>) {
    (shard.name.clone(), shard.addresses.clone())
}

/// Of a search that took too long.
const LATE: &str = "the store was not searched to its end, which takes longer";

/// What a store that is away does to packets.
#[must_use]
pub fn away_effect() -> &'static str {
    "packets that need it are parked for 2 s at most, and dropped then as parked-too-long"
}
