//! What a host fetched from web caches and served to them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use asterism_config::Settings;
use asterism_functions::cache_digests::Refusal;
use serde::{Deserialize, Serialize};

/// What a host fetched from caches and served to them.
#[derive(Debug, Default)]
pub struct Caches {
    /// Names of the caches, in order; none where the function knows none.
    pub names: Vec<String>,
    /// Bytes of a digest's bits at most.
    pub digest_max: usize,
    /// Digests that this host fetched.
    pub fetched: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    /// Digests that were served.
    pub served: AtomicU64,
    /// Requests for digests that are not known.
    pub not_served: AtomicU64,
}

/// What a host fetched from caches and served to them, as `status` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachesDocument {
    /// Digests that this host fetched: all, where it is the first living host of the member list.
    pub fetched: u64,
    /// Digests that were refused, by reason; those that occurred.
    pub refused: BTreeMap<String, u64>,
    /// Digests that were served.
    pub served: u64,
    /// Requests for digests that are not known.
    pub not_served: u64,
}

impl Caches {
    /// Of a host whose function is set so.
    #[must_use]
    pub fn new(settings: &Settings) -> Caches {
        let Settings::CacheDigests(settings) = settings else {
            return Caches::default();
        };
        Caches {
            names: settings.caches.iter().map(|one| one.name.clone()).collect(),
            digest_max: settings.digest_max as usize,
            ..Caches::default()
        }
    }

    /// The counts now; `None` where the function knows no caches.
    #[must_use]
    pub fn document(&self) -> Option<CachesDocument> {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let refused = Refusal::ALL.iter().zip(&self.refused);
        (!self.names.is_empty()).then(|| CachesDocument {
            fetched: count(&self.fetched),
            refused: refused
                .map(|(refusal, refused)| (refusal.label().to_owned(), count(refused)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            served: count(&self.served),
            not_served: count(&self.not_served),
        })
    }

    /// Counts a refused digest.
    pub fn add_refused(&self, refusal: Refusal) {
        if let Some(count) = self.refused.get(refusal as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
