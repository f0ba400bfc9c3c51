//! Objects of network functions in a store that speaks the protocol of Redis: what an instance reads there, and how it commits.
//!
//! Above the engine, of which this is a store ([`asterism_engine::Store`]). `client.rs` is sans I/O: it writes commands and takes replies.
//! `connection.rs` has the connections to a store, `network.rs` where they come from, `login.rs` and `password.rs` what each begins with, `primary.rs` to which of its servers they go,
//! and `link.rs` joins all to an instance; `statistics.rs` is what other threads see of that. `keys.rs` says under which keys what is kept,
//! `cache.rs` keeps answers, `filter.rs` knows which keys there are not, and `listing.rs` shows people what is there.
//!
//! A store keeps, under each key by which an entry is found, the answer to that read: the entries as an instance takes them in. A transaction
//! is committed by what all such stores have: `WATCH` of what it read and writes, one read of all, and `MULTI` with what becomes of it. What
//! becomes of it is computed here, by objects of the same function that hold these entries alone (`workbench.rs`, `decisions.rs`, `loaded.rs`). Transactions
//! that wait are committed together, by two round trips for all (`steps.rs` has what is waited for meanwhile). Where packets leave only when a replica has their writes, `WAIT` goes behind `EXEC`.
//!
//! A store may have several shards, each with whole conversations (`shards.rs`): an instance has a client of each (`sharded.rs`).
//!
//! Entries end by commits of their own (`ends.rs`). `sums.rs` has what is added to sums, and what is answered of them.
//!
//! Read first: `keys.rs`, then `commits.rs`.

#![forbid(unsafe_code)]

mod cache;
mod cells;
mod client;
mod commits;
mod connection;
mod decisions;
mod document;
mod ends;
mod filter;
mod keys;
mod layout;
mod link;
mod listing;
mod loaded;
mod login;
pub mod mutant;
mod network;
mod password;
mod primary;
mod reads;
mod refusals;
mod sharded;
mod shards;
mod statistics;
mod steps;
mod sums;
mod workbench;

pub use cache::CacheConfig;
pub use client::{Client, ClientConfig, ClientEvent, ClientTally};
pub use document::{CacheDocument, FilterDocument, ShardDocument, StoreDocument, StorePlace};
pub use link::{RemoteConfig, RemoteStore};
pub use listing::{Entries, Listed, Listing, StoreListing};
pub use login::{Greeting, Login};
pub use network::{Network, Sockets};
pub use password::Password;
pub use sharded::{ShardStore, ShardedStore};
pub use shards::{SHARDS_MAX, Shard, Shards};
pub use statistics::{AwayReason, StoreSnapshot, StoreStatistics};
pub use steps::Try;
