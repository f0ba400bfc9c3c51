//! The store by seeds, on a disk in memory that fails, tears and forgets, against a model of what it has answered: nothing that was
//! answered is lost, nothing else takes effect, and no version or token is given twice. Every planted bug of the store is found.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::answer::{Change, Entry, Renewed, Standing, Token, Version};

/// Seeds that each run of the tests takes.
const SEEDS: u64 = 300;
/// Steps of a seed.
const STEPS: usize = 150;
/// Leaderships that a seed remembers, the old ones among them.
const LEADERSHIPS: usize = 6;
/// Bytes of a record before its body: a power cut between them is refused as damage, which the page of the store states.
const RECORD_HEAD_BYTES: usize = 12;
const END_BYTES: usize = 4;

/// What a seed found that must not be.
#[derive(Debug)]
struct Violation(String);

macro_rules! claim {
    ($holds:expr, $($said:tt)*) => {
        if !$holds {
            return Err(Violation(format!($($said)*)));
        }
    };
}

/// The one source of randomness.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// What is on the disk, and what the system alone has.
#[derive(Clone, Default)]
struct Platter {
    /// What a process that starts after `kill -9` reads.
    written: Vec<u8>,
    /// What is there after a power cut at least.
    durable: Vec<u8>,
    /// The file that may come back after a power cut, since its replacement's name was not synced.
    replaced: Option<Vec<u8>>,
}

/// A disk that shows its state to the test after each call.
struct PowerDisk {
    platter: Platter,
    /// Bytes that a failed sync has dropped: a later one leaves zeros in their places.
    dropped: Option<std::ops::Range<usize>>,
    /// Calls until it fails; 0: it does not.
    fails_in: Arc<AtomicUsize>,
    /// Milliseconds of the store's clock: a sync takes time.
    now: Arc<AtomicU64>,
    shows: Sender<Platter>,
}

impl PowerDisk {
    fn strike(&self) -> io::Result<()> {
        let left = self.fails_in.load(Ordering::Relaxed);
        self.fails_in
            .store(left.saturating_sub(1), Ordering::Relaxed);
        match left {
            1 => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn show(&self) {
        // A seed that has ended looks no more.
        let _ = self.shows.send(self.platter.clone());
    }
}

impl Disk for PowerDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let struck = self.strike();
        let arrives = match struck.is_err() {
            true => bytes.len() / 2,
            false => bytes.len(),
        };
        self.platter.written.extend_from_slice(&bytes[..arrives]);
        self.show();
        struck
    }

    fn sync(&mut self) -> io::Result<()> {
        self.now.fetch_add(40, Ordering::Relaxed);
        if let Err(error) = self.strike() {
            self.dropped = Some(self.platter.durable.len()..self.platter.written.len());
            return Err(error);
        }
        self.platter.durable.clone_from(&self.platter.written);
        if let Some(dropped) = self.dropped.take()
            && let Some(lost) = self.platter.durable.get_mut(dropped)
        {
            lost.fill(0);
        }
        self.show();
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.strike()?;
        self.platter.written.resize(length as usize, 0);
        self.platter.durable.truncate(length as usize);
        self.show();
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<(), ReplaceError> {
        self.strike().map_err(ReplaceError::Kept)?;
        let old = std::mem::replace(&mut self.platter.durable, bytes.to_vec());
        self.platter.written = bytes.to_vec();
        self.dropped = None;
        let struck = self.strike().map_err(ReplaceError::Unsynced);
        self.platter.replaced = struck.is_err().then_some(old);
        self.show();
        struck
    }
}

/// What the store has answered.
#[derive(Clone, Default)]
struct Model {
    revision: u64,
    entries: BTreeMap<Key, (u64, Arc<[u8]>)>,
    history: Vec<Change>,
    /// Candidate, token and end of each election's leader.
    leaders: BTreeMap<Key, (Key, u64, Duration)>,
    /// Changes up to here may be forgotten.
    floor: u64,
    /// The same, once the store is opened again.
    floor_of_file: u64,
}

impl Model {
    fn version(&self, key: &Key) -> Version {
        Version(self.entries.get(key).map_or(0, |(version, _)| *version))
    }

    fn leads(&self, election: &Key, token: u64, now: Duration) -> bool {
        let leader = self.leaders.get(election);
        leader.is_some_and(|(_, has, until)| *has == token && now < *until)
    }

    fn outcome(&self, transaction: &Transaction, now: Duration) -> Outcome {
        if let Some((election, token)) = &transaction.leadership
            && !self.leads(election, token.0, now)
        {
            return Outcome::Deposed;
        }
        let standing = transaction.guards.iter().filter_map(|(key, expected)| {
            let (key, version) = (key.clone(), self.version(key));
            (version != *expected).then_some(Standing { key, version })
        });
        let standing: Vec<_> = standing.collect();
        match standing.is_empty() {
            true => Outcome::Committed(Revision(self.revision + 1)),
            false => Outcome::Conflict(standing),
        }
    }

    fn apply(&mut self, transaction: &Transaction) {
        self.revision += 1;
        for write in &transaction.writes {
            let (key, value) = (write.key.clone(), write.value.clone());
            let old = match &value {
                Some(value) => self
                    .entries
                    .insert(key.clone(), (self.revision, Arc::clone(value))),
                None => self.entries.remove(&key),
            };
            if value.is_some() || old.is_some() {
                let revision = Revision(self.revision);
                self.history.push(Change {
                    revision,
                    key,
                    value,
                });
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let entry = |(key, (version, value)): (&Key, &(u64, Arc<[u8]>))| Entry {
            key: key.clone(),
            value: Arc::clone(value),
            version: Version(*version),
        };
        Snapshot {
            revision: Revision(self.revision),
            entries: self.entries.iter().map(entry).collect(),
        }
    }

    fn bytes(&self) -> usize {
        let one = |(key, (_, value)): (&Key, &(u64, Arc<[u8]>))| key.as_str().len() + value.len();
        self.entries.iter().map(one).sum()
    }
}

/// A store, its disk, and the model that it is compared with.
struct Trial {
    random: Random,
    store: EmbeddedStore,
    shown: Receiver<Platter>,
    platter: Platter,
    fails_in: Arc<AtomicUsize>,
    now: Arc<AtomicU64>,
    model: Model,
    /// The model if a change without an outcome was made.
    or_else: Option<Model>,
    leaderships: Vec<Leadership>,
}

type Opened = (EmbeddedStore, Receiver<Platter>);

fn open(
    bytes: Vec<u8>,
    fails_in: &Arc<AtomicUsize>,
    now: &Arc<AtomicU64>,
) -> Result<Opened, Violation> {
    let (shows, shown) = channel();
    let disk = PowerDisk {
        platter: Platter {
            durable: bytes.clone(),
            written: bytes.clone(),
            replaced: None,
        },
        dropped: None,
        fails_in: Arc::clone(fails_in),
        now: Arc::clone(now),
        shows,
    };
    let read = Arc::clone(now);
    let clock: Clock = Box::new(move || Duration::from_millis(read.load(Ordering::Relaxed)));
    let opened = EmbeddedStore::resume(Box::new(disk), &bytes, clock, "it".to_owned());
    match opened {
        Ok(store) => Ok((store, shown)),
        Err(ResumeError::Damaged(damage)) => Err(Violation(format!(
            "the file is damaged at byte {} of {}: {}",
            damage.at,
            bytes.len(),
            damage.fault
        ))),
        Err(ResumeError::Io(error)) => Err(Violation(format!("the disk failed: {error}"))),
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

impl Trial {
    fn new(seed: u64) -> Result<Trial, Violation> {
        let (fails_in, now) = (Arc::default(), Arc::default());
        let bytes = format::file(Revision(0), &[]);
        let (store, shown) = open(bytes.clone(), &fails_in, &now)?;
        Ok(Trial {
            random: Random(seed),
            store,
            shown,
            platter: Platter {
                written: bytes.clone(),
                durable: bytes,
                replaced: None,
            },
            fails_in,
            now,
            model: Model::default(),
            or_else: None,
            leaderships: Vec::new(),
        })
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now.load(Ordering::Relaxed))
    }

    fn step(&mut self) -> Result<(), Violation> {
        if self.random.one_in(5) {
            let calls = 1 + self.random.below(3);
            self.fails_in.store(calls, Ordering::Relaxed);
        }
        match self.random.below(20) {
            0..8 => self.commit()?,
            8..11 => self.campaign()?,
            11 | 12 => self.renew()?,
            13 => self.resign()?,
            14 | 15 => self.changes()?,
            16 => {
                self.now.fetch_add(700, Ordering::Relaxed);
            }
            17 => {
                let upto = self.random.below(self.model.revision as usize + 1) as u64;
                self.store.keyspace.forget(Revision(upto));
                self.model.floor = self.model.floor.max(upto);
            }
            18 => self.compact(),
            _ => self.crash()?,
        }
        self.fails_in.store(0, Ordering::Relaxed);
        if self.store.ended.is_some() {
            let ended = self.store.read(&Prefix::all());
            claim!(
                matches!(ended, Err(TruthError::Ended(_))),
                "a store that ended answered {ended:?}"
            );
            return self.crash();
        }
        self.compare()
    }

    /// What the store answers is what the model has.
    fn compare(&mut self) -> Result<(), Violation> {
        let read = self.store.read(&Prefix::all());
        claim!(
            read.as_ref() == Ok(&self.model.snapshot()),
            "it reads {read:?} and not {:?}",
            self.model.snapshot()
        );
        let (counted, are) = (self.store.keyspace.bytes(), self.model.bytes());
        claim!(counted == are, "it counts {counted} bytes of {are}");
        Ok(())
    }

    /// What an error means: nothing changed, or the store has ended and the change may be there.
    fn failed(&mut self, error: &TruthError, changed: Model) -> Result<(), Violation> {
        match error {
            TruthError::Full { .. } => {}
            TruthError::SyncFailed(_) => {
                claim!(self.store.ended.is_some(), "it goes on after {error}");
                self.or_else = Some(changed);
            }
            // The compaction before the write was not durable.
            TruthError::Ended(_) if self.store.ended.is_some() => {}
            other => return Err(Violation(format!("it failed by {other}"))),
        }
        Ok(())
    }

    fn transaction(&mut self) -> Transaction {
        let names = ["a", "b", "c/1", "c/2", "d"].map(key);
        let mut transaction = Transaction::new();
        for name in &names {
            if self.random.one_in(3) {
                let version = match self.random.below(6) {
                    0 => self.random.below(self.model.revision as usize + 2) as u64,
                    1 => 0,
                    _ => self.model.version(name).0,
                };
                transaction = transaction.expect(name.clone(), Version(version));
            }
        }
        let mut rest = 1 + self.random.below(3);
        while rest > 0 {
            let name = self.random.of(&names);
            if !transaction.writes.iter().any(|write| write.key == name) {
                let size = self.random.below(60);
                transaction = match self.random.one_in(3) {
                    true => transaction.remove(name),
                    false => transaction.put(name, vec![1 + self.random.below(255) as u8; size]),
                };
            }
            rest -= 1;
        }
        if !self.leaderships.is_empty() && self.random.one_in(2) {
            let leadership = self.random.of(&self.leaderships);
            transaction = transaction.under(&leadership);
        }
        transaction
    }

    fn commit(&mut self) -> Result<(), Violation> {
        let transaction = self.transaction();
        let expected = self.model.outcome(&transaction, self.now());
        let is_change = matches!(expected, Outcome::Committed(_));
        let mut changed = self.model.clone();
        changed.apply(&transaction);
        let outcome = self.store.commit(&transaction);
        match &outcome {
            Ok(outcome) => {
                claim!(
                    *outcome == expected,
                    "{transaction:?} had the outcome {outcome:?} and not {expected:?}"
                );
                if is_change {
                    self.model = changed;
                }
                Ok(())
            }
            Err(error) => {
                claim!(is_change, "{expected:?} needs no disk: {error}");
                self.failed(error, changed)
            }
        }
    }

    fn campaign(&mut self) -> Result<(), Violation> {
        let election = key(self.random.of(&["first", "second"]));
        let candidate = key(self.random.of(&["x", "y", "z"]));
        let term = Duration::from_secs(1 + self.random.below(2) as u64);
        let now = self.now();
        let holder = self.model.leaders.get(&election);
        let holder = holder.filter(|(_, _, until)| now < *until);
        let holder = holder.map(|(holder, token, _)| (holder.to_string(), Token(*token)));
        let mut changed = self.model.clone();
        changed.revision += 1;
        match self.store.campaign(&election, &candidate, term) {
            Ok(Campaigned::HeldBy {
                candidate: found,
                token,
            }) => {
                let found = Some((found, token));
                claim!(
                    found == holder,
                    "{election} is held by {holder:?}, not by {found:?}"
                );
            }
            Ok(Campaigned::Leads(leadership)) => {
                claim!(holder.is_none(), "{election} has two leaders");
                claim!(
                    leadership.token() == Token(changed.revision),
                    "the token is not that of revision {}: {leadership:?}",
                    changed.revision
                );
                let leader = (candidate, changed.revision, now + term);
                changed.leaders.insert(election, leader);
                self.model = changed;
                self.leaderships.push(leadership);
                if self.leaderships.len() > LEADERSHIPS {
                    self.leaderships.remove(0);
                }
            }
            Err(error) => {
                claim!(holder.is_none(), "that it is held needs no disk: {error}");
                self.failed(&error, changed)?;
            }
        }
        Ok(())
    }

    fn renew(&mut self) -> Result<(), Violation> {
        if self.leaderships.is_empty() {
            return Ok(());
        }
        let leadership = self.random.of(&self.leaderships);
        let (election, token) = (leadership.election(), leadership.token().0);
        let now = self.now();
        let expected = match self.model.leads(election, token, now) {
            true => Renewed::Leads,
            false => Renewed::Ended,
        };
        let renewed = self.store.renew(&leadership);
        claim!(
            renewed == Ok(expected),
            "{leadership:?} was renewed: {renewed:?}"
        );
        if expected == Renewed::Leads
            && let Some(leader) = self.model.leaders.get_mut(election)
        {
            leader.2 = now + leadership.term();
        }
        Ok(())
    }

    fn resign(&mut self) -> Result<(), Violation> {
        if self.leaderships.is_empty() {
            return Ok(());
        }
        let leadership = self.random.of(&self.leaderships);
        let resigned = self.store.resign(&leadership);
        claim!(resigned == Ok(()), "a resignation failed: {resigned:?}");
        let token = leadership.token().0;
        let leaders = &mut self.model.leaders;
        leaders.retain(|election, (_, has, _)| election != leadership.election() || *has != token);
        Ok(())
    }

    fn changes(&mut self) -> Result<(), Violation> {
        let prefix = Prefix::new(self.random.of(&["", "c/"])).unwrap();
        let after = Revision(self.random.below(self.model.revision as usize + 3) as u64);
        let found = self.store.changes(&prefix, after, Duration::ZERO);
        let found = match found {
            Err(TruthError::WentBack { .. }) => {
                claim!(after.0 > self.model.revision, "{after:?} is not ahead");
                return Ok(());
            }
            Err(error) => return Err(Violation(format!("changes failed by {error}"))),
            Ok(found) => found,
        };
        match found {
            Changes::Compacted => {
                let floor = self.model.floor;
                claim!(after.0 < floor, "{after:?} is not below {floor}");
            }
            Changes::UpTo { revision, changes } => {
                claim!(
                    revision.0 == self.model.revision,
                    "changes up to {revision:?} and not {}",
                    self.model.revision
                );
                let all = self.model.history.iter();
                let expected = all.filter(|one| one.revision > after && prefix.covers(&one.key));
                let expected: Vec<_> = expected.cloned().collect();
                claim!(
                    changes == expected,
                    "changes after {after:?} are {changes:?} and not {expected:?}"
                );
            }
        }
        Ok(())
    }

    fn compact(&mut self) {
        let before = self.store.counts.compacted;
        self.store.compact();
        if self.store.counts.compacted > before || self.store.ended.is_some() {
            self.model.floor_of_file = self.model.revision;
        }
    }

    /// Ends the process, by `kill -9` or by a power cut, and opens what is there then.
    fn crash(&mut self) -> Result<(), Violation> {
        self.fails_in.store(0, Ordering::Relaxed);
        if let Some(last) = self.shown.try_iter().last() {
            self.platter = last;
        }
        self.flip()?;
        // After a failed sync the system may still show what the disk has not: only a power cut shows the disk.
        let is_power_cut = self.store.ended.is_some() || self.random.one_in(2);
        let bytes = match is_power_cut {
            true => self.after_power_cut(),
            false => self.platter.written.clone(),
        };
        let (store, shown) = open(bytes.clone(), &self.fails_in, &self.now)?;
        (self.store, self.shown) = (store, shown);
        self.platter = Platter {
            written: bytes.clone(),
            durable: bytes,
            replaced: None,
        };
        let found = self.store.keyspace.snapshot(&Prefix::all());
        if let Some(changed) = self.or_else.take()
            && changed.snapshot() == found
        {
            self.model = changed;
        }
        self.model.leaders.clear();
        self.model.floor = self.model.floor_of_file;
        self.compare()
    }

    /// What is on the disk, and any part of what was not synced: less of it, or zeros in its place.
    fn after_power_cut(&mut self) -> Vec<u8> {
        if let Some(old) = self.platter.replaced.take()
            && self.random.one_in(2)
        {
            return old;
        }
        let mut bytes = self.platter.durable.clone();
        let unsynced = self.platter.written.get(bytes.len()..).unwrap_or_default();
        match self.random.below(3) {
            0 => {
                let arrives = self.random.below(unsynced.len() + 1);
                bytes.extend_from_slice(&unsynced[..arrives]);
            }
            1 if unsynced.len() > RECORD_HEAD_BYTES + END_BYTES => {
                let room = unsynced.len() - RECORD_HEAD_BYTES - END_BYTES;
                let arrives = RECORD_HEAD_BYTES + self.random.below(room);
                bytes.extend_from_slice(&unsynced[..arrives]);
                bytes.resize(bytes.len() + unsynced.len() - arrives, 0);
            }
            _ => bytes.extend_from_slice(unsynced),
        }
        bytes
    }

    /// A flipped byte of what is durable is refused.
    fn flip(&mut self) -> Result<(), Violation> {
        let mut bytes = self.platter.durable.clone();
        let at = self.random.below(bytes.len());
        bytes[at] ^= 1 + self.random.below(255) as u8;
        let loaded = format::load(&bytes);
        claim!(
            loaded.is_err(),
            "a flipped byte at {at} of {} passed",
            bytes.len()
        );
        Ok(())
    }
}

fn run(seed: u64) -> Result<(), Violation> {
    let mut trial = Trial::new(seed)?;
    for _ in 0..STEPS {
        trial.step()?;
    }
    trial.crash()
}

#[test]
fn what_was_answered_holds_whatever_the_disk_does() {
    for seed in 0..SEEDS {
        if let Err(Violation(found)) = run(seed) {
            panic!("seed {seed}: {found}");
        }
    }
}

/// Only in a build with `--cfg asterism_mutants`:
/// `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-truth-store crashes`.
#[test]
#[cfg(asterism_mutants)]
fn every_planted_bug_is_found() {
    use crate::mutant::{Mutant, select};
    let mut alive = Vec::new();
    for planted in Mutant::ALL.into_iter().filter(|one| !one.is_of_etcd()) {
        select(Some(planted));
        let found = (0..SEEDS).find_map(|seed| run(seed).err().map(|found| (seed, found)));
        select(None);
        match found {
            Some((seed, Violation(found))) => {
                let found: String = found.chars().take(120).collect();
                println!("{planted:?}: seed {seed}: {found}");
            }
            None => alive.push(planted),
        }
    }
    assert!(alive.is_empty(), "found by no seed: {alive:?}");
}
