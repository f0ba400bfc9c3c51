//! Digests of web caches, beside the packets: one host fetches each digest from its cache (`fetch.rs`), and every host serves
//! them to caches (`serve.rs`) and answers which caches hold an object. Fetched digests go to the first instance, whose state
//! carries them to all others.

mod fetch;
pub(crate) mod serve;

use std::collections::BTreeMap;

use asterism_functions::cache_digests::squid::{HEADER_BYTES, Header, StoreKey, contains};
use asterism_functions::cache_digests::{Counted, Known, read_directory, read_mask};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use asterism_host_view::{AskError, View};

pub(super) use fetch::Fetching;

/// Bytes of a directory at most: of 64 caches.
const DIRECTORY_BYTES_MAX: usize = 64 * 128;

/// What is known of web caches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestsDocument {
    /// Each of them.
    pub caches: Vec<CacheDocument>,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDocument {
    /// Its name.
    pub name: String,
    /// Where its digest comes from: `fetched`, `reports`, or `unknown`.
    pub digest: String,
    /// Seconds since it was fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
    /// Objects that the digest says it has.
    pub objects: u64,
    /// Objects that it was made for.
    pub capacity: u64,
    /// Bytes of its bits.
    pub bytes: u64,
    /// Whether it holds the object that was asked for, as its digest says; absent where that is not known, or nothing was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// What was counted over all hosts since the start.
    pub counts: BTreeMap<String, u64>,
}

/// Why there is no answer about web caches. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CachesError {
    /// The function knows no web caches.
    #[error("this host's function knows no web caches: it needs [function.cache-digests]")]
    NoCaches,
    /// The instance's answer is no directory of caches.
    #[error("the instance tells of no web caches")]
    NoDirectory,
    /// The instance was not asked, or did not answer: nothing of an answer is shown.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// What is known of all caches, in their order.
///
/// # Errors
/// The instance does not tell; in words.
fn directory(view: &View) -> Result<Vec<(Known, [u64; Counted::ALL.len()])>, CachesError> {
    let bytes = view.report(0, DIRECTORY_BYTES_MAX)?;
    read_directory(&bytes).map_err(|_| CachesError::NoDirectory)
}

/// A cache's digest; `None` if it is not known, or not all of it.
fn digest(view: &View, cache: usize) -> Result<Option<(Header, Vec<u8>)>, AskError> {
    // The last block may be a part of one, and what is known of it stands before the bits; filters of reports are smaller.
    let bytes_max = view.caches.digest_max.max(1 << 18) + 2 * HEADER_BYTES;
    let question = u32::try_from(cache + 1).unwrap_or(u32::MAX);
    Ok(read_mask(&view.report(question, bytes_max)?))
}

/// What is known of all caches, and of which the digests say that they hold what GET brings from a URL.
///
/// # Errors
/// The function knows no web caches, or the instance does not tell; in words.
pub fn query(view: &View, url: Option<&str>) -> Result<DigestsDocument, CachesError> {
    if view.caches.names.is_empty() {
        return Err(CachesError::NoCaches);
    }
    let key = url.map(|url| StoreKey::of_get(url.as_bytes()));
    let now_s = view.tick();
    let mut caches = Vec::new();
    for (place, (known, counts)) in directory(view)?.into_iter().enumerate() {
        let (from, header, age_s) = match known {
            Known::Nothing => ("unknown", Header::default(), None),
            Known::Fetched(head) => {
                let age = now_s.saturating_sub(head.fetched);
                ("fetched", head.header, Some(age.into()))
            }
            Known::Reported(header) => ("reports", header, None),
        };
        let holds = match key {
            Some(key) => digest(view, place)?.map(|(_, mask)| contains(&mask, key)),
            None => None,
        };
        caches.push(CacheDocument {
            name: view.caches.names.get(place).cloned().unwrap_or_default(),
            digest: from.to_owned(),
            age_s,
            objects: header.count.into(),
            capacity: header.capacity.into(),
            bytes: header.mask_bytes.into(),
            holds,
            counts: Counted::ALL
                .iter()
                .zip(counts)
                .map(|((_, name), count)| ((*name).to_owned(), count))
                .collect(),
        });
    }
    Ok(DigestsDocument { caches })
}
