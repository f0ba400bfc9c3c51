//! The fields of `[store]`, of its cache, of its shards and of the embedded store.

use core::net::SocketAddr;
use core::time::Duration;

use super::embedded::StoreSync;
use crate::ack::StoreAck;
use asterism_toml_schema::kind::{Kind, NamedValues, Word};
use asterism_toml_schema::section::{ChosenWord, Default, List, Setting, Values, section};

/// Addresses of a store at most.
const STORE_ADDRESSES_MAX: usize = 16;

section! {
    /// The store of remote objects.
    pub(crate) static STORE: StoreKeys = {
        path: "store",
        meaning: "The store that objects with placement = \"remote\" live in: a server that speaks the protocol of Redis, or the embedded store that hosts run themselves. Tested are Redis 7 and `asterism store`. The same for all hosts.",
        fields: {
            address: List<SocketAddr> = Setting {
                kind: Kind::Several {
                    of: &Kind::Socket,
                    most: STORE_ADDRESSES_MAX,
                },
                default: Default::Unset("hosts run the embedded store"),
                meaning: "The store's address and port; or those of a primary and its replicas, or of members of a Redis cluster, as a list in any order. Hosts use the one that is the primary, and look for it again when they lose it.",
            },
            shards: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: SHARD.section(),
                    most: SHARDS_MAX,
                },
                default: Default::Is("{}"),
                meaning: "The parts of a store of several, by their names: in place of `address`.",
            },
            embedded: Values = Setting {
                kind: Kind::Table(EMBEDDED.section()),
                default: Default::Is("{}"),
                meaning: "The embedded store, which hosts run if neither `address` nor `shards` are there.",
            },
            buckets: u64 = Setting {
                kind: Kind::Count { least: 256, most: 65_536 },
                default: Default::Is("16_384"),
                meaning: "With `shards`: parts of all conversations, each of which one shard has. A power of two, and that of directors that are to send packets to the host beside their shard.",
            },
            seed: u64 = Setting {
                kind: Kind::Count { least: 0, most: i64::MAX as u64 },
                default: Default::Is("0"),
                meaning: "With `shards`: which conversations share one follows from it. The same as `seed` of such directors.",
            },
            user: String = Setting {
                kind: Kind::Name,
                default: Default::Unset("the store's default user"),
                meaning: "The user as which instances log in, with `password_file`.",
            },
            password_file: String = Setting {
                kind: Kind::File,
                default: Default::Unset("no login; to the embedded store by the cluster's keys"),
                meaning: "The file with the password, on one line. Its mode must be 0600.",
            },
            connections: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 16,
                },
                default: Default::Is("8"),
                meaning: "Connections of each instance that commit, at most: a batch of packets on each at a time. Two are always open, and one that reads; further ones while whole batches wait.",
            },
            name: String = Setting {
                kind: Kind::Name,
                default: Default::Unset("the cluster's name"),
                meaning: "What begins the names of all keys, in braces. Clusters that share a store need different ones.",
            },
            ack: StoreAck = Setting {
                kind: Kind::Choice {
                    allowed: StoreAck::WORDS,
                    refused: &[
                        Word {
                            word: "all",
                            meaning: "a packet waits for one replica: write \"replica\"",
                        },
                        Word {
                            word: "none",
                            meaning: "a packet leaves when the primary has its writes at least: write \"primary\"",
                        },
                    ],
                },
                default: Default::Is("\"primary\""),
                meaning: "Who has the writes of a packet when it leaves.",
            },
            timeout: Duration = Setting {
                kind: Kind::Duration {
 least: Duration::from_millis(10),
 most: Duration::from_secs(60),
 },
                default: Default::Is("\"1s\""),
                meaning: "How long a reply of the store may take before the connection counts as lost and is opened again. With `when_down = \"serve-known\"` less than two seconds, for which packets wait.",
            },
            cache: Values = Setting {
                kind: Kind::Table(CACHE.section()),
                default: Default::Is("{}"),
                meaning: "What instances keep of the store's answers; nothing without this table.",
            },
            when_down: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[DROP, SERVE_KNOWN, BYPASS],
                    refused: &[],
                },
                default: Default::Is("\"drop\""),
                meaning: "What becomes of packets while the store is away.",
            },
            known_for: Duration = Setting {
                kind: Kind::Duration {
 least: Duration::from_millis(100),
 most: Duration::from_secs(3_600),
 },
                default: Default::Is("\"10s\""),
                meaning: "With `when_down = \"serve-known\"`: how long after the store was last heard known flows go on.",
            },
            bypass_after: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_millis(1),
                    most: Duration::from_secs(2),
                },
                default: Default::Is("\"50ms\""),
                meaning: "With `when_down = \"bypass\"`: how long a packet waits for the store before it goes past the function.",
            },
        },
    };
}

section! {
    /// The embedded store.
    pub(crate) static EMBEDDED: EmbeddedKeys = {
        path: "store.embedded",
        meaning: "The embedded store, in the process of a host: at the host's address of [cluster.member.NAME], by TCP. While that host is down packets that need the store wait and are dropped, as for any store that is away.",
        fields: {
            members: List<String> = Setting {
                kind: Kind::List {
                    of: &Kind::Name,
                    most: SHARDS_MAX,
                },
                default: Default::Unset("the first member"),
                meaning: "The members that run it. One has all entries; several have a shard each, beside the packets that directors with `by = \"conversation\"` send to them.",
            },
            folder: String = Setting {
                kind: Kind::File,
                default: Default::Unset("what the store has ends with the host"),
                meaning: "The folder in which each of them keeps what it has, as NAME.append, and reads it when it starts again.",
            },
            sync: StoreSync = Setting {
                kind: Kind::Choice {
                    allowed: StoreSync::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"second\""),
                meaning: "With `folder`: when what was acknowledged is on the disk.",
            },
            memory_max: u64 = Setting {
                kind: Kind::Size {
                    least: 1 << 20,
                    most: 1 << 40,
                },
                default: Default::Is("\"1GiB\""),
                meaning: "Bytes that keys and values may take at each; what adds more is refused.",
            },
        },
    };
}

/// Packets that need the store are parked, and dropped in the end.
pub(super) const DROP: Word = Word {
    word: "drop",
    meaning: "Packets that need the store are parked for two seconds at most, and then dropped.",
};
/// Packets of known flows go on.
pub(super) const SERVE_KNOWN: Word = Word {
    word: "serve-known",
    meaning: "The same, but packets whose flows are in the cache go on by what it has, for `known_for`.",
};
/// Packets pass the function.
pub(super) const BYPASS: Word = Word {
    word: "bypass",
    meaning: "Packets that wait for longer than `bypass_after` go past the function as they came, if it is one that packets may go past: an IPS or a limiter, say. It is a stage of a chain then, with on_failure = \"bypass\".",
};

section! {
    /// The cache of an instance.
    pub(crate) static CACHE: CacheKeys = {
        path: "store.cache",
        meaning: "Answers of the store that each instance keeps: packets of known flows that write nothing need no round trip. The store says what has changed (`CLIENT TRACKING`, Redis 6 or later).",
        fields: {
            entries: u64 = Setting {
                kind: Kind::Count {
                    least: 64,
                    most: 1 << 24,
                },
                default: Default::Is("65536"),
                meaning: "Answers that each instance keeps at most, some 300 bytes each. Beyond that those go that were not used for longest, roughly.",
            },
            staleness: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_millis(1),
                    most: Duration::from_secs(60),
                },
                default: Default::Is("\"100ms\""),
                meaning: "A packet that reads one entry and writes nothing may act on what was there so long before it came. Several round trips to the store, or the cache is of no use.",
            },
            filter: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether each instance knows which keys are not in the store, so that a new flow reads nothing there. Eight bytes for each entry that the objects may have; every change of a key is announced to every instance.",
            },
        },
    };
}

/// The most shards. Each instance has connections to all of them.
pub(super) const SHARDS_MAX: usize = 64;

section! {
    /// One shard.
    pub(crate) static SHARD: ShardKeys = {
        path: "store.shards.NAME",
        meaning: "A part of the store: the entries of whole conversations, of all that two addresses say to each other. Shards that are named as the hosts are and run beside them have the entries of the packets that directors with `by = \"conversation\"` send to these hosts.",
        fields: {
            address: List<SocketAddr> = Setting {
                kind: Kind::Several {
                    of: &Kind::Socket,
                    most: STORE_ADDRESSES_MAX,
                },
                default: Default::Required("\"10.0.0.5:6379\""),
                meaning: "The shard's address and port; or those of a primary and its replicas, or of members of a Redis cluster, as a list in any order.",
            },
        },
    };
}
