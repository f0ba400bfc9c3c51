//! Web-cache digests: which cache of a group holds which object, known by every instance (Constellation, table 2: web-cache
//! digests in counting Bloom filters).
//!
//! A cache's digest is a Bloom filter in Squid's own geometry, so that Squid can read it. A cache that *reports* stored and
//! released objects has a counting filter: a sum for each place, which all instances add to. A cache that makes its digest
//! itself is asked for it by the control side now and then; the bits are kept unchanged, in blocks of a table
//! (`docs/src/architecture/functions.md` says why).
//!
//! Packets go from one port to the other. A query of the Internet Cache Protocol to a cache with a known digest is answered
//! in the cache's name; reports of caches are recorded. `squid.rs` has the format and the hash functions, `icp.rs` and
//! `store_log.rs` the packets' content, `control.rs` the control side's writes, `report.rs` its reads. Read first:
//! [`CacheDigestsState`], then `look.rs`.

mod config;
mod control;
#[doc(hidden)]
pub mod fuzz;
pub mod icp;
mod kept;
mod query;
mod refusal;
mod report;
pub mod squid;
pub mod store_log;

use asterism_function::objects::hash;
use asterism_function::{
    Ask, Builder, Counters, Fragment, Late, Map, NetworkFunction, Observable, PortNumber, Protocol,
    Vector, Verdict, state,
};

pub use config::{Cache, CacheDigestsConfig, REPORTED_BITS_PER_ENTRY, Source};
pub use control::{FRAME_BLOCKS_MAX, frames};
pub use kept::{BLOCK_BYTES, Bits, BlockKey, Head};
pub use refusal::Refusal;
pub use report::{Directory, Known, read_directory, read_mask};

pub use asterism_function::CONTROL;

/// What the instances share.
#[state]
pub struct CacheDigestsState {
    /// Of each cache that makes a digest itself: the size of the last one, and when it was fetched.
    pub heads: Map<u16, Head>,
    /// The bits of these digests, in blocks.
    pub masks: Map<BlockKey, Bits>,
    /// Of caches that report: how many objects have each place of the cache's filter.
    pub stored: Vector,
    /// What was counted, see [`Counted`], by itself and the cache.
    pub counts: Counters<u16>,
}

/// What is counted of each cache, over all instances since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Counted {
    /// Queries that were answered with a hit.
    Hits,
    /// Queries that were answered with a miss.
    Misses,
    /// Queries that were passed on to the cache, because its digest was not known.
    Unknown,
    /// Datagrams to the cache's port for queries that are none, and were passed on.
    BadQueries,
    /// Objects that the cache reported as stored.
    Stored,
    /// Objects that it reported as let go.
    Released,
    /// Objects reported as let go that were not known: reports were lost, or lie.
    NotStored,
    /// Lines of reports that are none.
    BadReports,
}

impl Counted {
    /// All of them, with their names.
    pub const ALL: [(Counted, &'static str); 8] = [
        (Self::Hits, "hits"),
        (Self::Misses, "misses"),
        (Self::Unknown, "unknown"),
        (Self::BadQueries, "bad_queries"),
        (Self::Stored, "stored"),
        (Self::Released, "released"),
        (Self::NotStored, "not_stored"),
        (Self::BadReports, "bad_reports"),
    ];

    fn of(self, cache: u16) -> u16 {
        (self as u16) << 8 | cache
    }
}

/// The function: from its first port to its second and back.
#[derive(Clone, Debug, Default)]
pub struct CacheDigests {
    config: CacheDigestsConfig,
    /// Caches by address, each with its number.
    by_address: Vec<(u32, u16)>,
    /// Of each cache that reports, where its filter begins and how many bits it has.
    filters: Vec<Option<(u32, u32)>>,
}

/// What a packet is to a cache.
enum Purpose {
    Query(u16),
    Reports(u16),
}

impl CacheDigests {
    /// The function. Of caches with one address the first counts; filters past 2²¹ bits in all have none.
    #[must_use]
    pub fn new(config: CacheDigestsConfig) -> Self {
        let config = config.bounded();
        let numbered = || (0u16..).zip(&config.caches);
        let mut by_address: Vec<(u32, u16)> = numbered()
            .map(|(number, cache)| (cache.address.to_bits(), number))
            .collect();
        by_address.sort_unstable();
        by_address.dedup_by_key(|(address, _)| *address);
        let mut used = 0u32;
        let filters = numbered().map(|(_, cache)| {
            let bits = cache.filter()?.bits();
            let begin = used;
            used = used
                .checked_add(bits)
                .filter(|used| *used <= config::FILTER_BITS_MAX)?;
            Some((begin, bits))
        });
        Self {
            filters: filters.collect(),
            by_address,
            config,
        }
    }

    /// What the operator chose.
    #[must_use]
    pub fn config(&self) -> &CacheDigestsConfig {
        &self.config
    }

    /// The number of the cache with an address.
    #[inline(always)]
    fn cache_at(&self, address: u32) -> Option<u16> {
        let found = self.by_address.binary_search_by_key(&address, |one| one.0);
        found
            .ok()
            .and_then(|place| self.by_address.get(place))
            .map(|one| one.1)
    }

    /// What a packet is for, if it concerns a cache.
    #[inline(always)]
    fn purpose(&self, ask: &Ask<'_, CacheDigestsState>) -> Option<Purpose> {
        let packet = ask.packet();
        let flow = packet.flow4()?;
        if flow.protocol != Protocol::UDP.0 || packet.layout().fragment() != Fragment::Whole {
            return None;
        }
        if self.config.reports == Some((flow.destination, flow.destination_port)) {
            let cache = self.cache_at(flow.source.to_bits())?;
            return Some(Purpose::Reports(cache));
        }
        let cache = self.cache_at(flow.destination.to_bits())?;
        let port = self.config.caches.get(usize::from(cache))?.icp_port;
        (flow.destination_port == port && port != 0).then_some(Purpose::Query(cache))
    }
}

impl NetworkFunction for CacheDigests {
    type State = CacheDigestsState;

    fn state(&self, builder: &Builder) -> CacheDigestsState {
        let config = &self.config;
        let bits = self.filters.iter().flatten().map(|(_, bits)| *bits).sum();
        // Any instance may be the first to count, or to write a head, and each may begin its share of them.
        let (_, instances) = builder.context().identity().share();
        let caches = config.caches.len() as u32;
        CacheDigestsState {
            heads: builder.table(
                "heads",
                caches.saturating_mul(instances).max(1),
                &[config.keep_s],
            ),
            masks: builder.table("masks", config.blocks_max, &[config.keep_s]),
            stored: builder.vector("stored", std::cmp::max(bits, 1)),
            counts: builder.counters(
                "counts",
                (Counted::ALL.len() as u32 * caches)
                    .saturating_mul(instances)
                    .max(1),
            ),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, CacheDigestsState>) -> Result<Verdict, Late> {
        if ask.port() == CONTROL {
            return self.control(ask);
        }
        match self.purpose(&ask) {
            None => Ok(Verdict::Forward(across(&ask))),
            Some(Purpose::Query(cache)) => self.asked(ask, cache),
            Some(Purpose::Reports(cache)) => self.reported(ask, cache),
        }
    }

    fn observable(&self) -> Option<&dyn Observable<CacheDigestsState>> {
        Some(self)
    }

    fn schema(&self) -> u64 {
        let caches = self.config.caches.iter();
        caches.fold(u64::from(self.config.keep_s), |schema, cache| {
            let filter = cache.filter().map_or(0, |filter| u64::from(filter.bits()));
            hash::words(cache.address.to_bits().into(), filter, schema)
        })
    }
}

impl Observable<CacheDigestsState> for CacheDigests {
    /// Of 0, the directory ([`read_directory`]); of a cache's number plus one, its digest ([`read_mask`]).
    fn report(
        &self,
        state: &CacheDigestsState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        self.tell(state, question, range, out)
    }
}

/// The port at the other side.
#[inline(always)]
fn across(ask: &Ask<'_, CacheDigestsState>) -> PortNumber {
    PortNumber(ask.port().0 ^ 1)
}
