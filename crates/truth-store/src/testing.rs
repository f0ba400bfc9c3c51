//! A hostile store in memory, for simulators and tests: it fails by a seed that is handed in, and runs on the time that is
//! handed in. Two runs with the same seed and the same calls are equal.
//!
//! [`MemoryTruth`] is the truth; each orchestrator has a [`MemoryStore`] of it. [`Faults`] says how hostile it is.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use crate::TruthStore;
use crate::answer::{
    Abilities, Campaigned, Changes, Counts, Leadership, Outcome, Renewed, Revision, Snapshot, Token,
};
use crate::error::TruthError;
use crate::key::{Key, Prefix};
use crate::keyspace::{Decision, Keyspace, Vote};
use crate::transaction::{Transaction, check_wait, term_seconds};

/// Older states that stale reads may show.
const PAST_MAX: usize = 8;
/// Changes under way at most, over all stores; each store has one.
const UNDER_WAY_MAX: usize = 64;

/// How hostile a store is, in calls of a thousand. The default is none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Calls that are not answered and change nothing.
    pub away_permille: u16,
    /// Changes whose answer is lost: made at once, later, or never, a third each.
    pub unknown_permille: u16,
    /// Reads and changes of the past, though never of before what the same store has shown.
    pub stale_permille: u16,
    /// Watches that end without an answer.
    pub watch_ends_permille: u16,
    /// Calls before which all history is forgotten.
    pub compaction_permille: u16,
}

impl Faults {
    /// A store as hostile as one that is of any use can be.
    pub const HOSTILE: Faults = Faults {
        away_permille: 150,
        unknown_permille: 150,
        stale_permille: 200,
        watch_ends_permille: 200,
        compaction_permille: 50,
    };
}

#[derive(Clone, Debug)]
enum Action {
    Write(Transaction),
    Campaign {
        election: Key,
        candidate: Key,
        term: Duration,
    },
    End(Key, Token),
}

#[derive(Debug)]
struct Shared {
    keyspace: Keyspace,
    past: VecDeque<Keyspace>,
    /// Changes whose answer was lost, with the store that made each.
    under_way: Vec<(u64, Action)>,
    faults: Faults,
    cut_off: Vec<u64>,
    now: Duration,
    random: u64,
    stores: u64,
}

impl Shared {
    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, permille: u16) -> bool {
        permille > 0 && self.random() % 1_000 < u64::from(permille)
    }

    /// Makes a change, now.
    fn act(&mut self, action: &Action) -> Result<Done, TruthError> {
        if self.faults.stale_permille > 0 {
            self.past.push_back(self.keyspace.clone());
            if self.past.len() > PAST_MAX {
                self.past.pop_front();
            }
        }
        match action {
            Action::Write(transaction) => match self.keyspace.decide(transaction, self.now)? {
                Decision::Stop(outcome) => Ok(Done::Outcome(outcome)),
                Decision::Apply(revision) => {
                    self.keyspace.apply(revision, &transaction.writes);
                    Ok(Done::Outcome(Outcome::Committed(revision)))
                }
            },
            Action::Campaign {
                election,
                candidate,
                term,
            } => match self.keyspace.vote(election, self.now)? {
                Vote::HeldBy(candidate, token) => {
                    Ok(Done::Campaigned(Campaigned::HeldBy { candidate, token }))
                }
                Vote::Won(revision) => {
                    let until = self.now + *term;
                    let token = self.keyspace.elect(revision, election, candidate, until);
                    Ok(Done::Campaigned(Campaigned::Leads(Leadership {
                        election: election.clone(),
                        token,
                        term: *term,
                        lease: 0,
                    })))
                }
            },
            Action::End(election, token) => {
                self.keyspace.end(election, *token);
                Ok(Done::Ended)
            }
        }
    }

    /// Some of what is under way arrives.
    fn arrive(&mut self) {
        if !self.under_way.is_empty() && self.happens(300) {
            let at = (self.random() % self.under_way.len() as u64) as usize;
            let (_, action) = self.under_way.swap_remove(at);
            // Nobody waits for the answer.
            let _ = self.act(&action);
        }
    }
}

enum Done {
    Outcome(Outcome),
    Campaigned(Campaigned),
    Ended,
}

/// The truth that the stores share, and what a simulator does to it.
#[derive(Clone, Debug)]
pub struct MemoryTruth {
    shared: Rc<RefCell<Shared>>,
}

impl MemoryTruth {
    /// An empty one.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> MemoryTruth {
        let shared = Shared {
            keyspace: Keyspace::default(),
            past: VecDeque::new(),
            under_way: Vec::new(),
            faults,
            cut_off: Vec::new(),
            now: Duration::ZERO,
            random: seed,
            stores: 0,
        };
        MemoryTruth {
            shared: Rc::new(RefCell::new(shared)),
        }
    }

    /// Another orchestrator's store.
    #[must_use]
    pub fn store(&self) -> MemoryStore {
        let mut shared = self.shared.borrow_mut();
        shared.stores += 1;
        MemoryStore {
            shared: Rc::clone(&self.shared),
            number: shared.stores,
            seen: Revision::default(),
            is_open: false,
            counts: Counts::default(),
        }
    }

    /// Sets the time, by which terms of leadership end.
    pub fn set_now(&self, now: Duration) {
        let mut shared = self.shared.borrow_mut();
        shared.now = shared.now.max(now);
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.shared.borrow_mut().now += by;
    }

    /// Makes it more or less hostile.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.borrow_mut().faults = faults;
    }

    /// Cuts a store off, or joins it again: all of its calls fail without effect. What it had under way may still arrive.
    pub fn set_reachable(&self, store: &MemoryStore, reachable: bool) {
        let mut shared = self.shared.borrow_mut();
        shared.cut_off.retain(|number| *number != store.number);
        if !reachable {
            shared.cut_off.push(store.number);
        }
    }

    /// Forgets all history.
    pub fn compact(&self) {
        let mut shared = self.shared.borrow_mut();
        let now = shared.keyspace.revision();
        shared.keyspace.forget(now);
    }

    /// Everything, as it really is: for a simulator's checks.
    #[must_use]
    pub fn really(&self) -> Snapshot {
        self.shared.borrow().keyspace.snapshot(&Prefix::all())
    }
}

/// A store of a [`MemoryTruth`]. Its calls take no time.
#[derive(Debug)]
pub struct MemoryStore {
    shared: Rc<RefCell<Shared>>,
    number: u64,
    /// The highest revision that it has shown.
    seen: Revision,
    /// Whether its last change has no outcome yet.
    is_open: bool,
    counts: Counts,
}

fn away(why: &str) -> TruthError {
    TruthError::Away {
        what: "the truth store in memory".to_owned(),
        why: why.to_owned(),
    }
}

impl MemoryStore {
    /// What every call begins with: the world goes on, and the store answers or not. If it does, this store's change that was
    /// under way has its outcome.
    fn begin(&mut self) -> Result<(), TruthError> {
        let mut shared = self.shared.borrow_mut();
        shared.arrive();
        let compaction = shared.faults.compaction_permille;
        if shared.happens(compaction) {
            let now = shared.keyspace.revision();
            shared.keyspace.forget(now);
        }
        if shared.cut_off.contains(&self.number) {
            return Err(away("it is cut off"));
        }
        let permille = shared.faults.away_permille;
        if shared.happens(permille) {
            return Err(away("it did not answer"));
        }
        if std::mem::take(&mut self.is_open) {
            let under_way = shared.under_way.iter();
            let mine = { under_way }.position(|(number, _)| *number == self.number);
            if let Some(at) = mine {
                let (_, action) = shared.under_way.swap_remove(at);
                if shared.happens(500) {
                    let _ = shared.act(&action);
                }
            }
            // No later answer is of before the outcome, whether it came about now or earlier.
            self.seen = shared.keyspace.revision();
            self.counts.settled += 1;
        }
        Ok(())
    }

    fn change(&mut self, action: Action) -> Result<Done, TruthError> {
        self.begin()?;
        let mut shared = self.shared.borrow_mut();
        let permille = shared.faults.unknown_permille;
        if shared.happens(permille) && shared.under_way.len() < UNDER_WAY_MAX {
            match shared.random() % 3 {
                0 => {
                    let _ = shared.act(&action);
                }
                // It arrives later, or with the next call, or never.
                1 => shared.under_way.push((self.number, action)),
                _ => {}
            }
            self.is_open = true;
            return Err(TruthError::Unknown {
                what: "the truth store in memory".to_owned(),
                why: "its answer was lost".to_owned(),
            });
        }
        let done = shared.act(&action)?;
        // Also where it changed nothing: the answer was of now.
        self.seen = shared.keyspace.revision();
        Ok(done)
    }

    /// The state that a question is answered from.
    fn view<T>(&mut self, after: Revision, look: impl Fn(&Keyspace) -> T) -> T {
        let mut shared = self.shared.borrow_mut();
        let (seen, permille) = (self.seen.max(after), shared.faults.stale_permille);
        let stale = shared.happens(permille).then(|| {
            let mut past = shared.past.iter();
            past.position(|keyspace| keyspace.revision() >= seen)
        });
        match stale.flatten().and_then(|at| shared.past.get(at)) {
            Some(past) => look(past),
            None => look(&shared.keyspace),
        }
    }

    fn counted<T>(&mut self, result: Result<T, TruthError>) -> Result<T, TruthError> {
        self.counts.count(&result);
        result
    }
}

fn unexpected<T>() -> Result<T, TruthError> {
    Err(away("it answered another question"))
}

impl TruthStore for MemoryStore {
    fn abilities(&self) -> Abilities {
        Abilities {
            shared: true,
            call_wait_max: Duration::ZERO,
        }
    }

    fn read(&mut self, prefix: &Prefix) -> Result<Snapshot, TruthError> {
        let result = self.begin().map(|()| {
            let snapshot = self.view(Revision::default(), |keyspace| keyspace.snapshot(prefix));
            self.seen = self.seen.max(snapshot.revision);
            self.counts.reads += 1;
            snapshot
        });
        self.counted(result)
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, TruthError> {
        let checked = transaction.check().map_err(TruthError::from);
        let done = checked.and_then(|()| self.change(Action::Write(transaction.clone())));
        let result = done.and_then(|done| match done {
            Done::Outcome(outcome) => Ok(outcome),
            _ => unexpected(),
        });
        self.counts.count_outcome(&result);
        self.counted(result)
    }

    fn changes(
        &mut self,
        prefix: &Prefix,
        after: Revision,
        wait: Duration,
    ) -> Result<Changes, TruthError> {
        let checked = check_wait(wait).map_err(TruthError::from);
        let result = checked.and_then(|()| self.begin()).and_then(|()| {
            let ends = {
                let mut shared = self.shared.borrow_mut();
                let permille = shared.faults.watch_ends_permille;
                shared.happens(permille)
            };
            if ends {
                return Err(away("the watch ended"));
            }
            let changes = self.view(after, |keyspace| keyspace.changes(prefix, after))?;
            if let Changes::UpTo { revision, .. } = &changes {
                self.seen = self.seen.max(*revision);
            }
            Ok(changes)
        });
        self.counted(result)
    }

    fn campaign(
        &mut self,
        election: &Key,
        candidate: &Key,
        term: Duration,
    ) -> Result<Campaigned, TruthError> {
        let done = term_seconds(term)
            .map_err(TruthError::from)
            .and_then(|seconds| {
                self.change(Action::Campaign {
                    election: election.clone(),
                    candidate: candidate.clone(),
                    term: Duration::from_secs(seconds),
                })
            });
        let result = done.and_then(|done| match done {
            Done::Campaigned(campaigned) => Ok(campaigned),
            _ => unexpected(),
        });
        self.counted(result)
    }

    fn renew(&mut self, leadership: &Leadership) -> Result<Renewed, TruthError> {
        let result = self.begin().and_then(|()| {
            let mut shared = self.shared.borrow_mut();
            let permille = shared.faults.unknown_permille;
            let is_lost = shared.happens(permille);
            if is_lost && shared.happens(500) {
                return Err(away("the renewal was lost"));
            }
            let (now, until) = (shared.now, shared.now + leadership.term);
            let renewed = shared
                .keyspace
                .renew(&leadership.election, leadership.token, now, until);
            match is_lost {
                true => Err(TruthError::Unknown {
                    what: "the truth store in memory".to_owned(),
                    why: "its answer was lost".to_owned(),
                }),
                false => Ok(renewed),
            }
        });
        self.counted(result)
    }

    fn resign(&mut self, leadership: &Leadership) -> Result<(), TruthError> {
        self.depose(&leadership.election, leadership.token)
    }

    fn depose(&mut self, election: &Key, token: Token) -> Result<(), TruthError> {
        let done = self.change(Action::End(election.clone(), token));
        self.counted(done.map(|_| ()))
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
