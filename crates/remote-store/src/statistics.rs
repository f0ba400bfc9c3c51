//! What other threads see of an instance's store: whether it is there, and what was done by it. Written by the instance alone.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::client::ClientTally;

/// Addresses of primaries that are kept, at most: others are shown as none.
const ADDRESSES_MAX: usize = 32;

/// Why a store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AwayReason {
    /// No connection was tried yet.
    #[default]
    NotTried,
    /// No connection can be made.
    Unreachable,
    /// The store, or the network, ended the connection.
    Closed,
    /// A reply did not come in time.
    Silent,
    /// The store wants another password, or one at all.
    Login,
    /// Its keys of this name were made by a function of another kind or version.
    Layout,
    /// Its keys of this name were made by a cluster with another key, so by hashes of another seed.
    HashSeed,
    /// It takes no writes now: it loads its file, cannot write it, or its cluster is down.
    Refused,
    /// It is full: it takes no writes.
    Full,
    /// What answers does not speak the protocol of Redis.
    NoStore,
    /// Of the servers that answer none is a primary.
    Replica,
    /// Members of its cluster send to one another for the keys.
    Moved,
    /// No replica acknowledges what the primary has, or it has too few to take any.
    NoReplica,
    /// It does not say what changes of what was read.
    Tracking,
}

impl AwayReason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::NotTried,
        Self::Unreachable,
        Self::Closed,
        Self::Silent,
        Self::Login,
        Self::Layout,
        Self::HashSeed,
        Self::Refused,
        Self::Full,
        Self::NoStore,
        Self::Replica,
        Self::Moved,
        Self::NoReplica,
        Self::Tracking,
    ];

    /// As a word.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NotTried => "not-tried",
            Self::Unreachable => "unreachable",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Login => "login",
            Self::Layout => "layout",
            Self::HashSeed => "hash-seed",
            Self::Refused => "refused",
            Self::Full => "full",
            Self::NoStore => "no-store",
            Self::Replica => "replica",
            Self::Moved => "moved",
            Self::NoReplica => "no-replica",
            Self::Tracking => "tracking",
        }
    }

    /// What an operator can do.
    #[must_use]
    pub fn cure(self) -> &'static str {
        match self {
            Self::NotTried | Self::Unreachable | Self::Closed => {
                "check that the store runs at the address of [store], and the network to it"
            }
            Self::Silent => {
                "check the load of the store and the network to it; if its replies are only late, write a longer `timeout` in [store]"
            }
            Self::Login => {
                "compare `user` and `password_file` of [store] with the users of the store, who need the commands that the page Stateless functions names"
            }
            Self::Layout => {
                "give the cluster another `name` in [store], or remove the keys of this one from the store"
            }
            Self::HashSeed => {
                "the keys of this name were written under another cluster key, by whose hash seed their places are found: give this host the key file of that cluster, give this cluster another `name` in [store], or stop all hosts and remove these keys from the store"
            }
            Self::Refused => {
                "wait until the store has read its file, or its cluster is whole and has moved its slots; look in its log for what it cannot write (MISCONF)"
            }
            Self::Full => {
                "give the store more memory (`maxmemory`; of an embedded one `memory_max`), or let entries end sooner; ends go on, and free room"
            }
            Self::NoStore => "compare the address of [store] with that of the store",
            Self::Tracking => {
                "let the user of the store have HELLO and CLIENT (a cache needs CLIENT TRACKING of Redis 6 or later, a filter its option BCAST), or leave `cache` out of [store]"
            }
            Self::Replica => {
                "promote a replica (REPLICAOF NO ONE), and name the primary and all its replicas in `address` of [store]"
            }
            Self::Moved => {
                "compare what the members of the store's cluster say of its slots (CLUSTER SLOTS)"
            }
            Self::NoReplica => {
                "start a replica of the primary, or let a second one stand by: `ack` of [store] is \"replica\", or the store has `min-replicas-to-write`"
            }
        }
    }

    /// Of two servers' reasons the one that tells more about the store: the other may be of a server that has died.
    pub(crate) fn or_telling(self, other: Self) -> Self {
        let rank = |why: Self| match why {
            Self::NotTried => 0,
            Self::Unreachable => 1,
            Self::Closed => 2,
            Self::Silent => 3,
            Self::Replica => 4,
            Self::Refused | Self::Full | Self::NoReplica => 5,
            Self::Moved => 6,
            Self::NoStore => 7,
            Self::Tracking => 8,
            Self::Login => 9,
            Self::Layout | Self::HashSeed => 10,
        };
        match rank(other) > rank(self) {
            true => other,
            false => self,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct StoreStatistics {
    is_connected: AtomicU8,
    why: AtomicU8,
    /// Since when, in microseconds of the instance's clock.
    since_us: AtomicU64,
    round_trip_us: AtomicU64,
    connects: AtomicU64,
    timeouts: AtomicU64,
    keys_read: AtomicU64,
    cache_hits: AtomicU64,
    filter_answers: AtomicU64,
    filter_in_vain: AtomicU64,
    filter_scans: AtomicU64,
    filter_bytes: AtomicU64,
    filter_is_complete: AtomicU64,
    changes_heard: AtomicU64,
    cache_entries: AtomicU64,
    decided: AtomicU64,
    decided_away: AtomicU64,
    ends_committed: AtomicU64,
    additions_expired: AtomicU64,
    crossed: AtomicU64,
    refused: AtomicU64,
    torn: AtomicU64,
    nonsense: AtomicU64,
    misplaced: AtomicU64,
    connections: AtomicU64,
    entry_counts: EntryCounts,
    /// Where primaries were found, and the place of the last one, counted from 1 on.
    addresses: [OnceLock<SocketAddr>; ADDRESSES_MAX],
    address: AtomicUsize,
}

/// One more than the entries of each object in the store, by its number; 0: they were not counted.
#[derive(Debug)]
struct EntryCounts([AtomicU64; u64::BITS as usize]);

impl Default for EntryCounts {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// The statistics at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSnapshot {
    /// All connections that the instance needs are open, the store takes what is written, and replicas acknowledge if they are to.
    pub is_connected: bool,
    /// Since when that is so, or not, in microseconds of the instance's clock.
    pub since_us: u64,
    /// Why the last connection was lost or not made.
    pub why: AwayReason,
    /// Where the primary was found that connections go to, or went to last.
    pub address: Option<SocketAddr>,
    /// How long a reply takes on average, in microseconds; 0: none came yet.
    pub round_trip_us: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Connections that were given up, since a reply did not come in time.
    pub timeouts: u64,
    /// What the client counted.
    pub tally: ClientTally,
}

impl StoreStatistics {
    /// What they are now.
    #[must_use]
    pub fn snapshot(&self) -> StoreSnapshot {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let why = usize::from(self.why.load(Ordering::Relaxed));
        StoreSnapshot {
            is_connected: self.is_connected.load(Ordering::Acquire) != 0,
            since_us: read(&self.since_us),
            why: AwayReason::ALL.get(why).copied().unwrap_or_default(),
            address: self.address(),
            round_trip_us: read(&self.round_trip_us),
            connects: read(&self.connects),
            timeouts: read(&self.timeouts),
            tally: ClientTally {
                keys_read: read(&self.keys_read),
                cache_hits: read(&self.cache_hits),
                filter_answers: read(&self.filter_answers),
                filter_in_vain: read(&self.filter_in_vain),
                filter_scans: read(&self.filter_scans),
                filter_bytes: read(&self.filter_bytes),
                filter_is_complete: read(&self.filter_is_complete) != 0,
                changes_heard: read(&self.changes_heard),
                cache_entries: read(&self.cache_entries),
                decided: read(&self.decided),
                decided_away: read(&self.decided_away),
                ends_committed: read(&self.ends_committed),
                additions_expired: read(&self.additions_expired),
                crossed: read(&self.crossed),
                refused: read(&self.refused),
                torn: read(&self.torn),
                nonsense: read(&self.nonsense),
                misplaced: read(&self.misplaced),
                connections: read(&self.connections),
            },
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        let place = self.address.load(Ordering::Acquire).checked_sub(1)?;
        self.addresses.get(place)?.get().copied()
    }

    /// A primary was found here.
    pub(crate) fn note_address(&self, address: SocketAddr) {
        if self.address() == Some(address) {
            return;
        }
        let is_it = |place: &OnceLock<SocketAddr>| *place.get_or_init(|| address) == address;
        let place = self.addresses.iter().position(is_it);
        let place = place.map_or(0, |place| place + 1);
        self.address.store(place, Ordering::Release);
    }

    /// Whether all connections are open from this time on, if that is new.
    pub(crate) fn note_connected(&self, is_connected: bool, now_us: u64) {
        let before = self.is_connected.load(Ordering::Relaxed) != 0;
        if before != is_connected {
            self.since_us.store(now_us, Ordering::Relaxed);
            self.is_connected
                .store(is_connected.into(), Ordering::Release);
        }
    }

    pub(crate) fn note_away(&self, why: AwayReason) {
        self.why.store(why as u8, Ordering::Relaxed);
        if why == AwayReason::Silent {
            add(&self.timeouts);
        }
    }

    pub(crate) fn note_made(&self) {
        add(&self.connects);
    }

    /// A reply took so long: the average follows it by an eighth.
    pub(crate) fn note_round_trip(&self, us: u64) {
        let average = match self.round_trip_us.load(Ordering::Relaxed) {
            0 => us,
            before => (before * 7 + us) / 8,
        };
        self.round_trip_us.store(average.max(1), Ordering::Relaxed);
    }

    /// Entries that the store has of an object, as counted some seconds ago; `None`: they were not.
    #[must_use]
    pub fn entries(&self, object: u8) -> Option<u64> {
        let noted = self.entry_counts.0.get(usize::from(object))?;
        noted.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(crate) fn note_entry_counts(&self, counts: &BTreeMap<u8, u64>) {
        for (object, entries) in counts {
            if let Some(noted) = self.entry_counts.0.get(usize::from(*object)) {
                noted.store(entries.saturating_add(1), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn note_tally(&self, tally: ClientTally) {
        for (place, value) in [
            (&self.keys_read, tally.keys_read),
            (&self.cache_hits, tally.cache_hits),
            (&self.filter_answers, tally.filter_answers),
            (&self.filter_in_vain, tally.filter_in_vain),
            (&self.filter_scans, tally.filter_scans),
            (&self.filter_bytes, tally.filter_bytes),
            (&self.filter_is_complete, tally.filter_is_complete.into()),
            (&self.changes_heard, tally.changes_heard),
            (&self.cache_entries, tally.cache_entries),
            (&self.decided, tally.decided),
            (&self.decided_away, tally.decided_away),
            (&self.ends_committed, tally.ends_committed),
            (&self.additions_expired, tally.additions_expired),
            (&self.crossed, tally.crossed),
            (&self.refused, tally.refused),
            (&self.torn, tally.torn),
            (&self.nonsense, tally.nonsense),
            (&self.misplaced, tally.misplaced),
            (&self.connections, tally.connections),
        ] {
            place.store(value, Ordering::Relaxed);
        }
    }
}

/// There is one writer.
fn add(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
