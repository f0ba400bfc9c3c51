//! Entries, history and leaders in memory, without I/O: the state of the embedded store and of the simulators' store. A change
//! is decided ([`Keyspace::decide`]), made durable by the caller, then applied, so that a failed write leaves no trace.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::answer::{
    Change, Changes, Entry, Outcome, Renewed, Revision, Snapshot, Standing, Token, Version,
};
use crate::error::TruthError;
use crate::key::{Key, Prefix};
use crate::mutant::{Mutant, active};
use crate::transaction::{Transaction, Write};

/// Entries of a store at most, and of one snapshot.
pub const ENTRIES_MAX: usize = 4096;
/// Bytes of all keys and values at most, and of one snapshot.
pub const STORE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Changes that a store of our own holds at most; older ones are [`Changes::Compacted`].
pub const CHANGES_MAX: usize = 1024;
/// Bytes of the changes that a store of our own holds at most.
pub const CHANGES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Elections of a store of our own at most.
pub const ELECTIONS_MAX: usize = 64;

/// Who leads an election.
#[derive(Clone, Debug)]
struct Leader {
    candidate: Key,
    token: Token,
    /// By the store's clock.
    until: Duration,
}

impl Leader {
    fn has(&self, token: Token) -> bool {
        self.token == token || active(Mutant::TokenUnchecked)
    }

    fn lasts(&self, now: Duration) -> bool {
        now < self.until || active(Mutant::TermNeverEnds)
    }
}

/// What is to become of a transaction.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It takes effect as this revision.
    Apply(Revision),
    /// It changes nothing.
    Stop(Outcome),
}

/// What is to become of a campaign.
#[derive(Debug)]
pub(crate) enum Vote {
    /// It is won as this revision.
    Won(Revision),
    /// This candidate leads.
    HeldBy(String, Token),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    revision: Revision,
    entries: BTreeMap<Key, (Version, Arc<[u8]>)>,
    bytes: usize,
    history: VecDeque<Change>,
    history_bytes: usize,
    /// Changes up to this revision are not in the history any more.
    forgotten: Revision,
    leaders: BTreeMap<Key, Leader>,
}

impl Keyspace {
    /// One with these entries, as a snapshot of a file has them.
    pub(crate) fn restored(revision: Revision, entries: Vec<Entry>) -> Keyspace {
        let mut restored = Keyspace {
            revision,
            forgotten: revision,
            ..Keyspace::default()
        };
        for entry in entries {
            restored.bytes += entry.key.as_str().len() + entry.value.len();
            restored
                .entries
                .insert(entry.key, (entry.version, entry.value));
        }
        restored
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Bytes of all keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn snapshot(&self, prefix: &Prefix) -> Snapshot {
        let entries = self.entries.iter().filter(|(key, _)| prefix.covers(key));
        let entries = entries.map(|(key, (version, value))| Entry {
            key: key.clone(),
            value: Arc::clone(value),
            version: *version,
        });
        Snapshot {
            revision: self.revision,
            entries: entries.collect(),
        }
    }

    pub(crate) fn changes(&self, prefix: &Prefix, after: Revision) -> Result<Changes, TruthError> {
        if after > self.revision {
            return Err(TruthError::WentBack {
                known: after,
                found: self.revision,
                effect: crate::Effect::NotDone,
            });
        }
        if after < self.forgotten && !active(Mutant::GapIsNoChange) {
            return Ok(Changes::Compacted);
        }
        let changes = self.history.iter();
        let changes = changes.filter(|one| one.revision > after && prefix.covers(&one.key));
        Ok(Changes::UpTo {
            revision: self.revision,
            changes: changes.cloned().collect(),
        })
    }

    fn version(&self, key: &Key) -> Version {
        self.entries
            .get(key)
            .map_or(Version::ABSENT, |(version, _)| *version)
    }

    fn next(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    /// What is to become of a transaction that was checked. Changes nothing.
    ///
    /// # Errors
    /// [`TruthError::Full`].
    pub(crate) fn decide(
        &self,
        transaction: &Transaction,
        now: Duration,
    ) -> Result<Decision, TruthError> {
        if let Some((election, token)) = &transaction.leadership
            && !self.leads(election, *token, now)
        {
            return Ok(Decision::Stop(Outcome::Deposed));
        }
        let standing = compared(&transaction.guards)
            .iter()
            .filter_map(|(key, expected)| {
                let version = self.version(key);
                let key = key.clone();
                (!fits(version, *expected)).then_some(Standing { key, version })
            });
        let standing: Vec<_> = standing.collect();
        if !standing.is_empty() {
            return Ok(Decision::Stop(Outcome::Conflict(standing)));
        }
        let (mut entries, mut bytes) = (self.entries.len(), self.bytes);
        for Write { key, value } in &transaction.writes {
            if let Some((_, old)) = self.entries.get(key) {
                entries -= 1;
                bytes -= key.as_str().len() + old.len();
            }
            if let Some(value) = value {
                entries += 1;
                bytes += key.as_str().len() + value.len();
            }
        }
        let full = |why: String| TruthError::Full {
            what: "the truth store".to_owned(),
            why,
        };
        if entries > ENTRIES_MAX {
            return Err(full(format!("{ENTRIES_MAX} entries are the most")));
        }
        if bytes > STORE_BYTES_MAX {
            return Err(full(format!("{STORE_BYTES_MAX} bytes are the most")));
        }
        Ok(Decision::Apply(self.next()))
    }

    /// Applies the writes of a decided or of a logged transaction.
    pub(crate) fn apply(&mut self, revision: Revision, writes: &[Write]) {
        self.revision = revision;
        for Write { key, value } in writes {
            let old = match value {
                Some(value) => {
                    self.bytes += key.as_str().len() + value.len();
                    let entry = (Version(revision.0), Arc::clone(value));
                    self.entries.insert(key.clone(), entry)
                }
                None => self.entries.remove(key),
            };
            if let Some((_, old)) = &old
                && (value.is_some() || !active(Mutant::BytesLeak))
            {
                self.bytes -= key.as_str().len() + old.len();
            }
            // Removing what is absent changes nothing that a watcher could see.
            if value.is_some() || old.is_some() {
                self.remember(Change {
                    revision,
                    key: key.clone(),
                    value: value.clone(),
                });
            }
        }
    }

    fn remember(&mut self, change: Change) {
        self.history_bytes += history_cost(&change);
        self.history.push_back(change);
        while self.history.len() > CHANGES_MAX || self.history_bytes > CHANGES_BYTES_MAX {
            let Some(oldest) = self.history.front().map(|change| change.revision) else {
                break;
            };
            self.forget(oldest);
        }
    }

    /// Forgets the changes up to a revision, which watchers then have to read.
    pub(crate) fn forget(&mut self, upto: Revision) {
        while let Some(oldest) = self.history.front()
            && oldest.revision <= upto
        {
            let next = self.history.get(1).map(|next| next.revision);
            let is_half = oldest.revision == upto && next == Some(upto);
            if is_half && active(Mutant::HalfForgotten) {
                self.history_bytes -= history_cost(oldest);
                self.history.pop_front();
                self.forgotten = self.forgotten.max(Revision(upto.0 - 1));
                return;
            }
            self.history_bytes -= history_cost(oldest);
            self.history.pop_front();
        }
        self.forgotten = self.forgotten.max(upto.min(self.revision));
    }

    fn leads(&self, election: &Key, token: Token, now: Duration) -> bool {
        let leader = self.leaders.get(election);
        leader.is_some_and(|leader| leader.has(token) && leader.lasts(now))
    }

    /// What is to become of a campaign. Changes nothing.
    ///
    /// # Errors
    /// [`TruthError::Full`]: too many elections.
    pub(crate) fn vote(&self, election: &Key, now: Duration) -> Result<Vote, TruthError> {
        match self.leaders.get(election) {
            Some(leader) if now < leader.until => {
                Ok(Vote::HeldBy(leader.candidate.to_string(), leader.token))
            }
            None if self.leaders.len() >= ELECTIONS_MAX => Err(TruthError::Full {
                what: "the truth store".to_owned(),
                why: format!("{ELECTIONS_MAX} elections are the most"),
            }),
            _ => Ok(Vote::Won(self.next())),
        }
    }

    /// Makes a candidate the leader; the revision of its vote is its token.
    pub(crate) fn elect(
        &mut self,
        revision: Revision,
        election: &Key,
        candidate: &Key,
        until: Duration,
    ) -> Token {
        self.revision = revision;
        let token = Token(revision.0);
        let leader = Leader {
            candidate: candidate.clone(),
            token,
            until,
        };
        self.leaders.insert(election.clone(), leader);
        token
    }

    /// Begins another term.
    pub(crate) fn renew(
        &mut self,
        election: &Key,
        token: Token,
        now: Duration,
        until: Duration,
    ) -> Renewed {
        let is_any = active(Mutant::RenewsAnyLeader) && self.leaders.contains_key(election);
        if !self.leads(election, token, now) && !is_any {
            return Renewed::Ended;
        }
        if let Some(leader) = self.leaders.get_mut(election) {
            leader.until = until;
        }
        Renewed::Leads
    }

    /// Ends a leadership, if it lasts: its leader resigns, or is deposed.
    pub(crate) fn end(&mut self, election: &Key, token: Token) {
        if self
            .leaders
            .get(election)
            .is_some_and(|leader| leader.token == token || active(Mutant::ResignsAnyLeader))
        {
            self.leaders.remove(election);
        }
    }
}

/// The guards that are compared: all.
fn compared(guards: &[(Key, Version)]) -> &[(Key, Version)] {
    match active(Mutant::LaterGuardsUnchecked) {
        true => &guards[..guards.len().min(1)],
        false => guards,
    }
}

/// Whether a guard holds.
fn fits(version: Version, expected: Version) -> bool {
    version == expected || active(Mutant::AbsentFitsAnyGuard) && version == Version::ABSENT
}

fn history_cost(change: &Change) -> usize {
    change.key.as_str().len() + change.value.as_ref().map_or(0, |value| value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn put(space: &mut Keyspace, transaction: &Transaction) {
        let decision = space.decide(transaction, Duration::ZERO).unwrap();
        let Decision::Apply(revision) = decision else {
            panic!("{decision:?}")
        };
        space.apply(revision, &transaction.writes);
    }

    #[test]
    fn entries_and_bytes_are_bounded_and_counted() {
        let mut space = Keyspace::default();
        for i in 0..ENTRIES_MAX {
            put(
                &mut space,
                &Transaction::new().put(key(&i.to_string()), *b"x"),
            );
        }
        let more = Transaction::new().put(key("more"), *b"x");
        let full = space.decide(&more, Duration::ZERO);
        assert!(matches!(full, Err(TruthError::Full { .. })), "{full:?}");
        put(
            &mut space,
            &Transaction::new().remove(key("7")).put(key("more"), *b"x"),
        );

        let mut space = Keyspace::default();
        let large =
            |i: usize| Transaction::new().put(key(&format!("{i:02}")), vec![0; 512 * 1024 - 2]);
        for i in 0..32 {
            put(&mut space, &large(i));
        }
        assert_eq!(space.bytes(), STORE_BYTES_MAX);
        assert!(space.decide(&large(32), Duration::ZERO).is_err());
        put(&mut space, &large(3));
        put(&mut space, &Transaction::new().remove(key("03")));
        assert_eq!(space.bytes(), STORE_BYTES_MAX - 512 * 1024);
        assert!(space.history_bytes <= CHANGES_BYTES_MAX);
        assert_eq!(
            space.changes(&Prefix::all(), Revision(1)).unwrap(),
            Changes::Compacted
        );
    }

    #[test]
    fn history_is_forgotten_by_whole_transactions() {
        let mut space = Keyspace::default();
        for i in 0..CHANGES_MAX {
            let i = i.to_string();
            put(
                &mut space,
                &Transaction::new()
                    .put(key("a"), i.as_bytes())
                    .put(key("b"), i.as_bytes()),
            );
        }
        let oldest = space.history.front().unwrap().revision;
        let same = space
            .history
            .iter()
            .filter(|change| change.revision == oldest);
        assert_eq!(same.count(), 2);
        let before = Revision(oldest.0 - 1);
        assert!(matches!(
            space.changes(&Prefix::all(), before),
            Ok(Changes::UpTo { .. })
        ));
        let older = Revision(oldest.0 - 2);
        assert_eq!(space.changes(&Prefix::all(), older), Ok(Changes::Compacted));
    }
}
