//! What an operator chooses.

use core::net::Ipv4Addr;

use asterism_function::Tick;

use super::squid::Header;

/// Caches at most.
pub(super) const CACHES_MAX: usize = 64;
/// Places of all counting filters together at most: some 90 MB in each instance.
pub(super) const FILTER_BITS_MAX: u32 = 1 << 21;
/// Bits of a counting filter for each object that it is made for: with Squid's four hash functions 2.4 % of strangers are found
/// in a full one ((1 - e^-0.5)^4).
pub const REPORTED_BITS_PER_ENTRY: u8 = 8;

/// A cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cache {
    /// Its address: where queries go to, and reports come from.
    pub address: Ipv4Addr,
    /// Its UDP port for queries of the Internet Cache Protocol; 0: they are not answered in its name.
    pub icp_port: u16,
    /// How it is known what it holds.
    pub source: Source,
}

/// How it is known what a cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// It makes a digest, which the control side fetches.
    Digest,
    /// It reports what it stores and lets go: this many objects at most.
    Reports(u32),
}

impl Cache {
    /// The sizes of the filter of a cache that reports.
    #[must_use]
    pub fn filter(&self) -> Option<Header> {
        match self.source {
            Source::Digest => None,
            Source::Reports(objects) => Some(Header::sized(objects, REPORTED_BITS_PER_ENTRY)),
        }
    }
}

/// What an operator chooses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheDigestsConfig {
    /// The caches, at most 64; one's number is its place.
    pub caches: Vec<Cache>,
    /// Where caches send their reports to.
    pub reports: Option<(Ipv4Addr, u16)>,
    /// Seconds for which a digest is kept that is not fetched again.
    pub keep_s: Tick,
    /// Blocks of fetched digests at most, over the whole cluster; hosts share it out.
    pub blocks_max: u32,
}

impl Default for CacheDigestsConfig {
    fn default() -> Self {
        Self {
            caches: Vec::new(),
            reports: None,
            keep_s: 2 * 3_600,
            blocks_max: 65_536,
        }
    }
}

impl CacheDigestsConfig {
    /// With values out of their bounds taken as the nearest within.
    pub(super) fn bounded(mut self) -> Self {
        self.caches.truncate(CACHES_MAX);
        self.keep_s = self.keep_s.max(1);
        self.blocks_max = self.blocks_max.max(1);
        self
    }
}
