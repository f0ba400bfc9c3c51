//! The embedded store: one synced file in a folder of one process. For one orchestrator on one machine, and the default.
//!
//! Everything is in memory (`keyspace.rs`) and in a log: a snapshot, then a record for each change. A change is
//! appended and synced before it is applied and answered. When the log has grown, a new snapshot replaces it. Own code and
//! not a database's: there is one writer, 16 MiB at most and no query, and each byte of the file can be argued about.
//!
//! `kill -9` and power cuts leave a log whose last record may be torn; it was never answered, and is dropped. Any other
//! damage is refused ([`OpenError::Damaged`]). Read `format.rs` (the bytes), `disk.rs` (the files), then this file.

mod checksum;
mod disk;
mod format;
pub mod fuzz;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::TruthStore;
use crate::answer::{
    Abilities, Campaigned, Changes, Counts, Leadership, Outcome, Renewed, Revision, Snapshot, Token,
};
use crate::clock::Clock;
use crate::error::TruthError;
use crate::key::{Key, Prefix};
use crate::keyspace::{Decision, Keyspace, STORE_BYTES_MAX, Vote};
use crate::mutant::{Mutant, active};
use crate::transaction::{Transaction, check_wait, term_seconds};
use disk::{Disk, Folder, ReplaceError, TakeError};
use format::Damage;

/// Bytes by which the log may grow beyond twice its entries before it is compacted.
pub const COMPACT_AFTER_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of the file at most. A store whose compaction has failed for so long is full.
pub const FILE_BYTES_MAX: u64 = 4 * STORE_BYTES_MAX as u64;
/// How long a call is expected to take at most: a compaction, on a slow disk. A disk that hangs holds the call.
pub const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// Why a store could not be opened. Nothing was changed but, where it was absent, an empty store made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "another process has the truth store in {0} open: stop it, or give this one its own folder"
    )]
    Locked(PathBuf),
    /// The folder or the file could not be read or written.
    #[error("the truth store in {folder}: {error}")]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The system's words.
        error: std::io::Error,
    },
    /// The file is damaged. It stays as it is.
    #[error(
        "the truth store in {folder} is damaged at byte {at}: {fault}; restore the file from a copy"
    )]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// The first byte of the record that is damaged.
        at: usize,
        /// The fault.
        fault: String,
    },
}

/// Why a store did not go on from its file.
enum ResumeError {
    Damaged(Damage),
    Io(std::io::Error),
}

/// See the module. Dropping it closes the store; leadership ends with it.
pub struct EmbeddedStore {
    keyspace: Keyspace,
    disk: Box<dyn Disk + Send>,
    clock: Clock,
    name: String,
    /// Bytes of the file.
    length: u64,
    /// The length at which to try compacting.
    compact_at: u64,
    /// Why the store has ended.
    ended: Option<String>,
    /// Why the last compaction that failed did.
    compaction_error: Option<String>,
    dropped_bytes: u64,
    counts: Counts,
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("name", &self.name)
            .field("revision", &self.keyspace.revision())
            .field("length", &self.length)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Opens the store in a folder that exists, or makes an empty one. Reads the whole file, at most [`FILE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(folder: &Path, clock: Clock) -> Result<EmbeddedStore, OpenError> {
        let io = |error| OpenError::Io {
            folder: folder.to_owned(),
            error,
        };
        let empty = format::file(Revision(0), &[]);
        let taken = Folder::take(folder, &empty, FILE_BYTES_MAX);
        let (disk, bytes) = taken.map_err(|error| match error {
            TakeError::Locked => OpenError::Locked(folder.to_owned()),
            TakeError::Io(error) => io(error),
        })?;
        let name = format!("the truth store in {}", folder.display());
        let resumed = EmbeddedStore::resume(Box::new(disk), &bytes, clock, name);
        resumed.map_err(|error| match error {
            ResumeError::Damaged(damage) => OpenError::Damaged {
                folder: folder.to_owned(),
                at: damage.at,
                fault: damage.fault.to_string(),
            },
            ResumeError::Io(error) => io(error),
        })
    }

    /// Goes on from a file's bytes; cuts off a torn tail.
    fn resume(
        mut disk: Box<dyn Disk + Send>,
        bytes: &[u8],
        clock: Clock,
        name: String,
    ) -> Result<EmbeddedStore, ResumeError> {
        let loaded = format::load(bytes).map_err(ResumeError::Damaged)?;
        let good = loaded.good as u64;
        if loaded.good < bytes.len() && !active(Mutant::TornTailKept) {
            disk.cut(good).map_err(ResumeError::Io)?;
        }
        // A record that was written and not synced when its process was killed counts from here on.
        disk.sync().map_err(ResumeError::Io)?;
        let mut store = EmbeddedStore::new(loaded.keyspace, disk, clock, name, good);
        store.dropped_bytes = bytes.len() as u64 - good;
        Ok(store)
    }

    fn new(
        keyspace: Keyspace,
        disk: Box<dyn Disk + Send>,
        clock: Clock,
        name: String,
        length: u64,
    ) -> EmbeddedStore {
        let compact_at = compact_at(&keyspace);
        EmbeddedStore {
            keyspace,
            disk,
            clock,
            name,
            length,
            compact_at,
            ended: None,
            compaction_error: None,
            dropped_bytes: 0,
            counts: Counts::default(),
        }
    }

    /// Bytes of a torn record that were dropped when the store was opened: a change that was never answered.
    #[must_use]
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    fn alive(&self) -> Result<(), TruthError> {
        match &self.ended {
            Some(why) => Err(TruthError::Ended(why.clone())),
            None => Ok(()),
        }
    }

    fn full(&self, why: String) -> TruthError {
        TruthError::Full {
            what: self.name.clone(),
            why,
        }
    }

    /// Makes a record durable. After an error [`TruthError::Full`] the file is as before.
    fn log(&mut self, record: &[u8]) -> Result<(), TruthError> {
        let length = self.length + record.len() as u64;
        if length > FILE_BYTES_MAX {
            self.compact();
            self.alive()?;
        }
        let length = self.length + record.len() as u64;
        if length > FILE_BYTES_MAX {
            let why = self.compaction_error.as_deref().unwrap_or_default();
            return Err(self.full(format!(
                "its file has {FILE_BYTES_MAX} bytes and could not be compacted: {why}"
            )));
        }
        if let Err(error) = self.disk.append(record) {
            if let Err(undo) = self.undo() {
                let why = format!("a failed write could not be undone: {undo}");
                self.ended = Some(why.clone());
                return Err(TruthError::SyncFailed(why));
            }
            return Err(self.full(error.to_string()));
        }
        if let Err(error) = self.sync_record() {
            let why = format!("a sync failed: {error}");
            self.ended = Some(why.clone());
            return Err(TruthError::SyncFailed(why));
        }
        self.length = length;
        Ok(())
    }

    /// Cuts off what a failed write left.
    fn undo(&mut self) -> std::io::Result<()> {
        if active(Mutant::TornWriteKept) {
            return Ok(());
        }
        self.disk.cut(self.length)?;
        self.disk.sync()
    }

    fn sync_record(&mut self) -> std::io::Result<()> {
        match active(Mutant::SyncLeftOut) {
            true => Ok(()),
            false => self.sync_once(),
        }
    }

    /// A second sync after one that failed would succeed without having written anything: the kernel has dropped the pages.
    fn sync_once(&mut self) -> std::io::Result<()> {
        match self.disk.sync() {
            Err(_) if active(Mutant::SyncRetried) => self.disk.sync(),
            synced => synced,
        }
    }

    fn compact_if_grown(&mut self) {
        if self.length >= self.compact_at {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let snapshot = self.keyspace.snapshot(&Prefix::all());
        let bytes = format::file(snapshot.revision, &snapshot.entries);
        match self.disk.replace(&bytes) {
            Ok(()) => {
                self.counts.compacted += 1;
                self.length = self.length_of(&bytes);
                self.compact_at = compact_at(&self.keyspace);
            }
            Err(ReplaceError::Kept(error)) => {
                self.compaction_error = Some(error.to_string());
                self.counts.compaction_failed += 1;
                self.compact_at = self.length + COMPACT_AFTER_BYTES;
            }
            Err(ReplaceError::Unsynced(_)) if active(Mutant::ReplacementUnsynced) => {
                self.counts.compacted += 1;
                self.length = bytes.len() as u64;
            }
            Err(ReplaceError::Unsynced(error)) => {
                self.counts.compaction_failed += 1;
                self.ended = Some(format!("the sync of the folder failed: {error}"));
            }
        }
    }

    /// The length of the file that has replaced another.
    fn length_of(&self, replacement: &[u8]) -> u64 {
        match active(Mutant::LengthOfOldFile) {
            true => self.length,
            false => replacement.len() as u64,
        }
    }

    /// Makes it durable that an election was won, so that its token is never given again.
    fn log_election(&mut self, revision: Revision) -> Result<(), TruthError> {
        match active(Mutant::ElectionNotLogged) {
            true => Ok(()),
            false => self.log(&format::election(revision)),
        }
    }

    /// When a term begins: when its leader asked for it, however long the disk took.
    fn term_begins(&mut self, asked_at: Duration) -> Duration {
        match active(Mutant::TermFromAnswer) {
            true => (self.clock)(),
            false => asked_at,
        }
    }

    fn commit_checked(&mut self, transaction: &Transaction) -> Result<Outcome, TruthError> {
        transaction.check()?;
        self.alive()?;
        let now = (self.clock)();
        let revision = match self.keyspace.decide(transaction, now)? {
            Decision::Apply(revision) => revision,
            Decision::Stop(outcome) => return Ok(outcome),
        };
        if active(Mutant::AppliedBeforeDurable) {
            self.keyspace.apply(revision, &transaction.writes);
        }
        self.log(&format::writes(revision, &transaction.writes))?;
        if !active(Mutant::AppliedBeforeDurable) {
            self.keyspace.apply(revision, &transaction.writes);
        }
        self.compact_if_grown();
        Ok(Outcome::Committed(revision))
    }

    fn counted<T>(&mut self, result: Result<T, TruthError>) -> Result<T, TruthError> {
        self.counts.count(&result);
        result
    }
}

fn compact_at(keyspace: &Keyspace) -> u64 {
    2 * keyspace.bytes() as u64 + COMPACT_AFTER_BYTES
}

impl TruthStore for EmbeddedStore {
    fn abilities(&self) -> Abilities {
        Abilities {
            shared: false,
            call_wait_max: CALL_WAIT_MAX,
        }
    }

    fn read(&mut self, prefix: &Prefix) -> Result<Snapshot, TruthError> {
        let result = self.alive().map(|()| self.keyspace.snapshot(prefix));
        self.counts.reads += u64::from(result.is_ok());
        self.counted(result)
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, TruthError> {
        let result = self.commit_checked(transaction);
        self.counts.count_outcome(&result);
        self.counted(result)
    }

    fn changes(
        &mut self,
        prefix: &Prefix,
        after: Revision,
        wait: Duration,
    ) -> Result<Changes, TruthError> {
        let result = check_wait(wait)
            .map_err(TruthError::from)
            .and_then(|()| self.alive())
            .and_then(|()| self.keyspace.changes(prefix, after));
        self.counted(result)
    }

    fn campaign(
        &mut self,
        election: &Key,
        candidate: &Key,
        term: Duration,
    ) -> Result<Campaigned, TruthError> {
        let mut campaign = || {
            let term = Duration::from_secs(term_seconds(term)?);
            self.alive()?;
            let now = (self.clock)();
            let revision = match self.keyspace.vote(election, now)? {
                Vote::HeldBy(candidate, token) => {
                    return Ok(Campaigned::HeldBy { candidate, token });
                }
                Vote::Won(revision) => revision,
            };
            self.log_election(revision)?;
            let now = self.term_begins(now);
            let token = self
                .keyspace
                .elect(revision, election, candidate, now + term);
            self.compact_if_grown();
            Ok(Campaigned::Leads(Leadership {
                election: election.clone(),
                token,
                term,
                lease: 0,
            }))
        };
        let result = campaign();
        self.counted(result)
    }

    fn renew(&mut self, leadership: &Leadership) -> Result<Renewed, TruthError> {
        let result = self.alive().map(|()| {
            let now = (self.clock)();
            let until = now + leadership.term;
            self.keyspace
                .renew(&leadership.election, leadership.token, now, until)
        });
        self.counted(result)
    }

    fn resign(&mut self, leadership: &Leadership) -> Result<(), TruthError> {
        self.depose(&leadership.election, leadership.token)
    }

    fn depose(&mut self, election: &Key, token: Token) -> Result<(), TruthError> {
        let result = self.alive().map(|()| self.keyspace.end(election, token));
        self.counted(result)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod tests;
