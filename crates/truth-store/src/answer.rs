//! Answers of a store: revisions, snapshots, changes, outcomes and leadership.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Effect, TruthError};
use crate::key::Key;

/// A place in the store's history. Each change of the store has a higher one than the change before; not each number is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The version of an entry: the revision that wrote it. A removed and rewritten key never has a version that it had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// That of a key without an entry.
    pub const ABSENT: Version = Version(0);
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub key: Key,
    /// Its bytes.
    pub value: Arc<[u8]>,
    /// Its version.
    pub version: Version,
}

/// All entries of a prefix at one revision, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision. Changes after it are those that [`crate::TruthStore::changes`] reports.
    pub revision: Revision,
    /// The entries, in the order of their keys.
    pub entries: Vec<Entry>,
}

impl Snapshot {
    /// The entry of a key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| entry.key.cmp(key));
        at.ok().map(|at| &self.entries[at])
    }

    /// The version of a key, for a guard: [`Version::ABSENT`] if it has no entry.
    #[must_use]
    pub fn version(&self, key: &Key) -> Version {
        self.get(key).map_or(Version::ABSENT, |entry| entry.version)
    }
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The revision that made it. All changes of one transaction have the same.
    pub revision: Revision,
    /// The key.
    pub key: Key,
    /// The new value. `None`: removed.
    pub value: Option<Arc<[u8]>>,
}

/// Changes of a prefix after a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// All changes up to this revision, in order. None of a transaction is missing. Ask next for those after it.
    UpTo {
        /// The revision.
        revision: Revision,
        /// The changes.
        changes: Vec<Change>,
    },
    /// The store no longer has all changes after that revision. Read, and ask for those after the snapshot.
    Compacted,
}

/// The version that a key has, where a guard expected another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The key.
    pub key: Key,
    /// Its version: [`Version::ABSENT`] without an entry.
    pub version: Version,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a transaction may have met a conflict, which changes nothing"]
pub enum Outcome {
    /// All its writes are in force and durable, as one change.
    Committed(Revision),
    /// A guard did not hold: nothing changed. The guarded keys that have another version, with the one that they have.
    Conflict(Vec<Standing>),
    /// The leadership that it carries has ended: nothing changed. Stop leading.
    Deposed,
}

/// The proof of a leadership: higher for each later leader of an election, and never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A leadership that was won. Its transactions carry it ([`crate::Transaction::under`]) and change nothing once it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    pub(crate) election: Key,
    pub(crate) token: Token,
    pub(crate) term: Duration,
    pub(crate) lease: i64,
}

impl Leadership {
    /// The election.
    #[must_use]
    pub fn election(&self) -> &Key {
        &self.election
    }

    /// The fencing token, for parties that check it themselves.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// How long it lasts without being renewed: what was asked for, or more if the store has a shortest term. Renew after a
    /// third of it.
    #[must_use]
    pub fn term(&self) -> Duration {
        self.term
    }
}

/// What became of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Campaigned {
    /// Won.
    Leads(Leadership),
    /// Another candidate leads, or an earlier incarnation of the same until its term ends.
    HeldBy {
        /// Its name.
        candidate: String,
        /// What [`crate::TruthStore::depose`] takes.
        token: Token,
    },
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// It lasts another term from now on.
    Leads,
    /// It had ended.
    Ended,
}

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Whether other processes can change the store. If not, [`crate::TruthStore::changes`] returns at once.
    pub shared: bool,
    /// How long a call may take; [`crate::TruthStore::changes`] by its wait longer.
    pub call_wait_max: Duration,
}

/// What a store has done since it was opened. For metrics; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads that were answered.
    pub reads: u64,
    /// Transactions that are in force.
    pub committed: u64,
    /// Transactions that a guard stopped.
    pub conflicts: u64,
    /// Transactions that a newer leadership stopped.
    pub deposed: u64,
    /// Calls that failed and changed nothing.
    pub failed: u64,
    /// Calls whose outcome was unknown when they returned.
    pub unknown: u64,
    /// Lost answers whose outcome was found out.
    pub settled: u64,
    /// Compactions of the store's own file.
    pub compacted: u64,
    /// Compactions of the store's own file that failed; the file goes on as it was.
    pub compaction_failed: u64,
}

impl Counts {
    pub(crate) fn count<T>(&mut self, result: &Result<T, TruthError>) {
        match result {
            Ok(_) => {}
            Err(error) if error.effect() == Effect::Unknown => self.unknown += 1,
            Err(_) => self.failed += 1,
        }
    }

    pub(crate) fn count_outcome(&mut self, result: &Result<Outcome, TruthError>) {
        match result {
            Ok(Outcome::Committed(_)) => self.committed += 1,
            Ok(Outcome::Conflict(_)) => self.conflicts += 1,
            Ok(Outcome::Deposed) => self.deposed += 1,
            Err(_) => {}
        }
    }
}
