//! A store for clusters that have no other: what of Redis the placement `remote` uses, in this process or beside it, over its protocol.
//!
//! It answers the commands of [`COMMANDS`] as Redis 7 does: strings, hashes, sorted sets, times, and transactions by `WATCH`, `MULTI` and
//! `EXEC`. There are no scripts, no subscriptions, one database, no replicas. Nothing here reads a clock or waits but [`Server`], which
//! serves connections on one thread, and [`RunningServer`], which is one on a thread of its own.
//!
//! What it holds is bounded ([`Keyspace::new`]): beyond that what adds is refused (`OOM`), as Redis does without eviction. With a
//! [`AppendFile`] it is durable: changes are appended to a file as commands, which is read again at start, and rewritten when it has grown.
//!
//! Read first: `keyspace.rs`, then `command/mod.rs` (commands and their table), `session.rs` (one connection), `append_file.rs` and
//! `server.rs`.

#![forbid(unsafe_code)]

mod append_file;
mod command;
mod fields;
mod keyspace;
mod passwords;
mod running;
mod server;
mod session;
mod sorted;
mod tracking;

pub use append_file::{AppendFile, AppendFileError, Sync};
pub use command::COMMANDS;
pub use keyspace::Keyspace;
pub use passwords::Passwords;
pub use running::{EndedError, RunningServer};
pub use server::{Server, ServerConfig, ServerError, ServerStatistics, wall_ms};
pub use session::{After, Session};
