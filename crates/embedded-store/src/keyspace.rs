//! The keys with their values and times, and what they were before: what commands read and change.

use std::collections::{BTreeMap, BTreeSet};

use asterism_resp::CommandWriter;

use crate::fields::Fields;
use crate::sorted::Sorted;
use crate::tracking::Tracking;

/// Bytes of memory that a key, a field or a member takes besides its own bytes, roughly.
const OVERHEAD_BYTES: usize = 64;

/// A key's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stored {
    /// Bytes.
    String(Vec<u8>),
    /// Fields, each with its bytes.
    Hash(Fields),
    /// Members, each with a score, in the order of scores.
    Sorted(Sorted),
}

impl Stored {
    /// Nothing is left of it: then the key is gone.
    fn is_empty(&self) -> bool {
        match self {
            Self::String(_) => false,
            Self::Hash(fields) => fields.is_empty(),
            Self::Sorted(members) => members.is_empty(),
        }
    }

    /// What Redis calls it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::Hash(_) => "hash",
            Self::Sorted(_) => "zset",
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::String(bytes) => bytes.len(),
            Self::Hash(fields) => fields.bytes() + fields.len() * OVERHEAD_BYTES,
            Self::Sorted(members) => members.bytes() + members.len() * 2 * OVERHEAD_BYTES,
        }
    }
}

#[derive(Debug)]
struct Entry {
    value: Stored,
    /// Its place in the order in which keys came to be.
    born: u64,
    expires_ms: Option<u64>,
    bytes: usize,
}

/// All keys. Times are milliseconds since 1970, and arguments.
#[derive(Debug)]
pub struct Keyspace {
    entries: BTreeMap<Vec<u8>, Entry>,
    expiring: BTreeSet<(u64, Vec<u8>)>,
    /// Keys in the order in which they came to be.
    born: BTreeMap<u64, Vec<u8>>,
    births: u64,
    /// Keys that connections watch.
    watched: BTreeMap<Vec<u8>, Watched>,
    pub(crate) tracking: Tracking,
    changes: u64,
    bytes: usize,
    bytes_max: usize,
    now_ms: u64,
    expired: u64,
    /// Keys whose time ended and that the append file does not say yet; `None` without an append file.
    ended: Option<Vec<Vec<u8>>>,
}

/// A key that connections watch, whether there is one or not.
#[derive(Debug, Default)]
struct Watched {
    watchers: usize,
    /// The number of its last change since it is watched.
    changed: u64,
}

impl Keyspace {
    /// Without keys. Writes that add are refused while keys and values take more than so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            expiring: BTreeSet::new(),
            born: BTreeMap::new(),
            births: 0,
            watched: BTreeMap::new(),
            tracking: Tracking::default(),
            changes: 0,
            bytes: 0,
            bytes_max,
            now_ms: 0,
            expired: 0,
            ended: None,
        }
    }

    /// Keys that there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// Bytes that keys and values take, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Whether writes that add are refused.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }
    /// Keys whose time ended so far.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }
    /// When the next key's time ends.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        self.expiring.first().map(|(due_ms, _)| *due_ms)
    }

    /// It is so late now, at least: keys whose time has ended are gone. Time does not go back.
    pub fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        while let Some((due_ms, _)) = self.expiring.first() {
            if *due_ms > self.now_ms {
                break;
            }
            let Some((_, key)) = self.expiring.pop_first() else {
                break;
            };
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.bytes;
                self.born.remove(&entry.born);
                self.expired += 1;
                self.note_change(&key);
                if let Some(ended) = &mut self.ended {
                    ended.push(key);
                }
            }
        }
    }

    /// Keys whose time ends are kept for [`Keyspace::take_ended`].
    pub(crate) fn note_ended(&mut self) {
        self.ended = Some(Vec::new());
    }
    /// Appends the removal of the keys whose time has ended: an append file is read without a clock.
    pub(crate) fn take_ended(&mut self, append_file: &mut Vec<u8>) {
        for key in self.ended.iter_mut().flat_map(|ended| ended.drain(..)) {
            CommandWriter::new(append_file).command(&[b"del", &key]);
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Stored> {
        self.entries.get(key).map(|entry| &entry.value)
    }
    /// A connection watches a key from now on. What [`Keyspace::has_changed`] asks for.
    pub(crate) fn watch(&mut self, key: &[u8]) -> u64 {
        let watched = self.watched.entry(key.to_vec()).or_default();
        watched.watchers += 1;
        self.changes
    }
    /// A connection watches a key no more.
    pub(crate) fn unwatch(&mut self, key: &[u8]) {
        if let Some(watched) = self.watched.get_mut(key) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                self.watched.remove(key);
            }
        }
    }
    /// Whether a key that is watched has changed since.
    pub(crate) fn has_changed(&self, key: &[u8], since: u64) -> bool {
        let watched = self.watched.get(key);
        watched.is_none_or(|watched| watched.changed > since)
    }
    pub(crate) fn expires_ms(&self, key: &[u8]) -> Option<u64> {
        self.entries.get(key)?.expires_ms
    }
    /// Keys in the order in which they came to be, from this place in it on, each with its place.
    pub(crate) fn born_from(&self, from: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let each = self.born.range(from..);
        each.map(|(born, key)| (*born, key.as_slice()))
    }
    /// All keys, with their values and when they end.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&[u8], &Stored, Option<u64>)> {
        let each = self.entries.iter();
        each.map(|(key, entry)| (key.as_slice(), &entry.value, entry.expires_ms))
    }

    fn note_change(&mut self, key: &[u8]) {
        self.changes += 1;
        if let Some(watched) = self.watched.get_mut(key) {
            watched.changed = self.changes;
        }
        self.tracking.changed(key);
    }

    /// A key comes to be.
    fn bear(&mut self, key: &[u8]) -> u64 {
        self.births += 1;
        self.born.insert(self.births, key.to_vec());
        self.births
    }

    /// Gives a key this value, until then.
    pub(crate) fn set(&mut self, key: &[u8], value: Stored, expires_ms: Option<u64>) {
        let before = self.take(key);
        let born = before.unwrap_or_else(|| self.bear(key));
        let bytes = key.len() + OVERHEAD_BYTES + value.bytes();
        self.note_change(key);
        self.bytes += bytes;
        let entry = Entry {
            value,
            born,
            expires_ms,
            bytes,
        };
        self.entries.insert(key.to_vec(), entry);
        if let Some(due_ms) = expires_ms {
            self.expiring.insert((due_ms, key.to_vec()));
        }
    }

    /// Changes a value in place, which `new` makes if there is none. `change` also tells whether it changed anything. A value of which
    /// nothing is left is gone.
    pub(crate) fn change<T>(
        &mut self,
        key: &[u8],
        new: impl FnOnce() -> Stored,
        change: impl FnOnce(&mut Stored) -> (T, bool),
    ) -> T {
        let born = match self.entries.contains_key(key) {
            true => 0,
            false => self.bear(key),
        };
        let entry = self.entries.entry(key.to_vec());
        let entry = entry.or_insert_with(|| Entry {
            value: new(),
            born,
            expires_ms: None,
            bytes: 0,
        });
        let (answer, is_changed) = change(&mut entry.value);
        let bytes = key.len() + OVERHEAD_BYTES + entry.value.bytes();
        self.bytes = self.bytes - entry.bytes + bytes;
        entry.bytes = bytes;
        if entry.value.is_empty() {
            self.take_away(key);
        }
        if is_changed {
            self.note_change(key);
        }
        answer
    }

    /// Takes a key away. Whether there was one.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let is_there = self.take_away(key);
        if is_there {
            self.note_change(key);
        }
        is_there
    }

    fn take_away(&mut self, key: &[u8]) -> bool {
        let born = self.take(key);
        born.is_some_and(|born| self.born.remove(&born).is_some())
    }

    /// Takes out a key but for its place in the order in which keys came to be, which it gives.
    fn take(&mut self, key: &[u8]) -> Option<u64> {
        let entry = self.entries.remove(key)?;
        self.bytes -= entry.bytes;
        if let Some(due_ms) = entry.expires_ms {
            self.expiring.remove(&(due_ms, key.to_vec()));
        }
        Some(entry.born)
    }

    /// Has a key end then, or never. Whether there is one.
    pub(crate) fn set_expiry(&mut self, key: &[u8], expires_ms: Option<u64>) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        if let Some(due_ms) = core::mem::replace(&mut entry.expires_ms, expires_ms) {
            self.expiring.remove(&(due_ms, key.to_vec()));
        }
        if let Some(due_ms) = expires_ms {
            self.expiring.insert((due_ms, key.to_vec()));
        }
        self.note_change(key);
        self.advance(self.now_ms);
        true
    }

    /// Takes all keys away.
    pub(crate) fn clear(&mut self) {
        self.changes += 1;
        for (key, watched) in &mut self.watched {
            if self.entries.contains_key(key) {
                watched.changed = self.changes;
            }
        }
        self.tracking.all_changed();
        self.entries.clear();
        self.expiring.clear();
        self.born.clear();
        self.bytes = 0;
    }
}
