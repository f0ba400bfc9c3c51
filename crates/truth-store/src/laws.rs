//! Laws of every store, as a function that the tests of each store call.

use std::time::Duration;

use crate::{
    Campaigned, Change, Changes, Effect, Key, Leadership, Outcome, Prefix, RefusedError, Renewed,
    Revision, Snapshot, Standing, TERM_MIN, Transaction, TruthError, TruthStore, VALUE_BYTES_MAX,
    Version, WRITES_MAX,
};

/// Calls of one step at most, where a store may fail.
const TRIES_MAX: usize = 200;
/// Steps of waiting for the end of a term, each as long as the world makes it.
const TERM_STEPS_MAX: usize = 200;

/// Why a store was not found to keep the laws.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LawError {
    /// The store breaks this law.
    #[error("a truth store must: {0}")]
    Broken(&'static str),
    /// The store failed more often than any store may.
    #[error("the store failed {TRIES_MAX} times in a row, last by: {0}")]
    Failing(TruthError),
    /// A name or bound of the laws themselves was refused.
    #[error(transparent)]
    Refused(#[from] RefusedError),
}

/// What the laws are held against.
pub struct World<'a> {
    /// An empty store, and others of the same truth where there can be others.
    pub stores: Vec<&'a mut dyn TruthStore>,
    /// Lets time pass, for terms to end: a second or less.
    pub pass: &'a mut dyn FnMut(),
    /// How long to wait for changes that have been made.
    pub wait: Duration,
}

fn demand(law: &'static str, holds: bool) -> Result<(), LawError> {
    match holds {
        true => Ok(()),
        false => Err(LawError::Broken(law)),
    }
}

/// Asks again as long as the store fails, which a question may always do.
fn persist<T>(mut call: impl FnMut() -> Result<T, TruthError>) -> Result<T, LawError> {
    let mut last = None;
    for _ in 0..TRIES_MAX {
        match call() {
            Ok(answer) => return Ok(answer),
            Err(error) => last = Some(error),
        }
    }
    last.map_or(Err(LawError::Broken("be asked")), |error| {
        Err(LawError::Failing(error))
    })
}

fn read(store: &mut dyn TruthStore, prefix: &Prefix) -> Result<Snapshot, LawError> {
    persist(|| store.read(prefix))
}

/// Commits by what a caller must do: again after [`Effect::NotDone`]; after [`Effect::Unknown`] it looks whether `proof`, which
/// the transaction alone brings about, is there.
fn commit(
    store: &mut dyn TruthStore,
    transaction: &Transaction,
    proof: &dyn Fn(&Snapshot) -> Option<Revision>,
) -> Result<Outcome, LawError> {
    let mut last = None;
    for _ in 0..TRIES_MAX {
        match store.commit(transaction) {
            Ok(outcome) => return Ok(outcome),
            Err(error) => {
                if error.effect() == Effect::Unknown
                    && let Some(revision) = proof(&read(store, &Prefix::all())?)
                {
                    return Ok(Outcome::Committed(revision));
                }
                last = Some(error);
            }
        }
    }
    last.map_or(Err(LawError::Broken("be asked")), |error| {
        Err(LawError::Failing(error))
    })
}

/// What a store reports up to a revision. `None`: it has forgotten some of it, which it may at any time.
fn reported(
    store: &mut dyn TruthStore,
    prefix: &Prefix,
    after: Revision,
    until: Version,
    wait: Duration,
) -> Result<Option<Vec<Change>>, LawError> {
    let (mut at, mut seen) = (after, Vec::new());
    for _ in 0..TRIES_MAX {
        let found = persist(|| store.changes(prefix, at, wait))?;
        let Changes::UpTo { revision, changes } = found else {
            return Ok(None);
        };
        let is_new = changes.iter().all(|change| change.revision > at);
        demand("report no change twice", is_new)?;
        demand("not go back", revision >= at)?;
        at = revision;
        seen.extend(changes);
        if at.0 >= until.0 {
            return Ok(Some(seen));
        }
    }
    Err(LawError::Broken("report a change at last"))
}

/// Writes one value under a guard.
fn set(
    store: &mut dyn TruthStore,
    key: &Key,
    expected: Version,
    value: &'static [u8],
    under: Option<&Leadership>,
) -> Result<Outcome, LawError> {
    let mut transaction = Transaction::new()
        .expect(key.clone(), expected)
        .put(key.clone(), value);
    if let Some(leadership) = under {
        transaction = transaction.under(leadership);
    }
    commit(store, &transaction, &|snapshot| {
        let entry = snapshot.get(key)?;
        let is_ours = *entry.value == *value && entry.version > expected;
        is_ours.then_some(Revision(entry.version.0))
    })
}

fn committed(outcome: &Outcome) -> Result<Version, LawError> {
    match outcome {
        Outcome::Committed(revision) => Ok(Version(revision.0)),
        _ => Err(LawError::Broken("commit a transaction whose guards hold")),
    }
}

/// Holds a store to the laws of [`TruthStore`]. Leaves entries behind.
///
/// # Errors
/// [`LawError`]: the law that it breaks.
pub fn check(world: &mut World<'_>) -> Result<(), LawError> {
    entries(world)?;
    history(world)?;
    bounds(world)?;
    leadership(world)
}

/// Entries have versions, and guards compare them.
fn entries(world: &mut World<'_>) -> Result<(), LawError> {
    let (last, wait) = (world.stores.len() - 1, world.wait);
    let key = Key::new("laws/a")?;
    let other = Key::new("laws/b")?;
    let laws = Prefix::new("laws/")?;
    let empty = read(world.stores[0], &laws)?;
    demand("be empty at first", empty.entries.is_empty())?;

    let first = committed(&set(world.stores[0], &key, Version::ABSENT, b"one", None)?)?;
    demand(
        "give later changes later revisions",
        first.0 > empty.revision.0,
    )?;
    // Another store of the same truth sees it at the latest when its changes say so.
    let seen = reported(world.stores[last], &laws, empty.revision, first, wait)?;
    if let Some(changes) = seen {
        demand(
            "report a change to all of its stores, dated by its version",
            changes.len() == 1
                && changes[0].key == key
                && changes[0].value.as_deref() == Some(b"one")
                && changes[0].revision.0 == first.0,
        )?;
    }

    let blind = set(world.stores[last], &key, Version::ABSENT, b"blind", None)?;
    let Outcome::Conflict(standing) = blind else {
        return Err(LawError::Broken(
            "refuse a write that expects another version",
        ));
    };
    let now = Standing {
        key: key.clone(),
        version: first,
    };
    demand("say which version stands there", standing == [now])?;
    let second = committed(&set(world.stores[last], &key, first, b"two", None)?)?;
    demand("never give a version twice", second > first)?;

    // All or nothing, over several keys.
    let half = Transaction::new()
        .expect(key.clone(), first)
        .put(key.clone(), *b"half")
        .put(other.clone(), *b"half");
    let outcome = commit(world.stores[0], &half, &|_| None)?;
    demand(
        "change nothing on a conflict",
        matches!(outcome, Outcome::Conflict(_)),
    )?;
    let both = Transaction::new()
        .expect(key.clone(), second)
        .expect(other.clone(), Version::ABSENT)
        .remove(key.clone())
        .put(other.clone(), *b"both");
    let third = committed(&commit(world.stores[0], &both, &|snapshot| {
        snapshot.get(&other).map(|entry| Revision(entry.version.0))
    })?)?;
    if let Some(changes) = reported(world.stores[0], &laws, Revision(second.0), third, wait)? {
        demand(
            "report all writes of a transaction as one change",
            changes.len() == 2 && changes.iter().all(|change| change.revision.0 == third.0),
        )?;
        let is_gone = changes.iter().any(|it| it.key == key && it.value.is_none());
        demand("report a removal", is_gone)?;
    }
    let again = committed(&set(
        world.stores[0],
        &key,
        Version::ABSENT,
        b"again",
        None,
    )?)?;
    demand("never give a version again after a removal", again > third)?;
    let old = set(world.stores[0], &key, first, b"old", None)?;
    demand(
        "refuse a version of before a removal",
        matches!(old, Outcome::Conflict(_)),
    )
}

/// Changes arrive once, whole and in order.
fn history(world: &mut World<'_>) -> Result<(), LawError> {
    let wait = world.wait;
    let prefix = Prefix::new("history/")?;
    let (key, beside) = (Key::new("history/a")?, Key::new("histories")?);
    let begin = read(world.stores[0], &Prefix::all())?.revision;
    let values: [&'static [u8]; 4] = [b"0", b"1", b"2", b"3"];
    let mut version = Version::ABSENT;
    let mut version_beside = Version::ABSENT;
    for value in values {
        version = committed(&set(world.stores[0], &key, version, value, None)?)?;
        version_beside = committed(&set(world.stores[0], &beside, version_beside, value, None)?)?;
    }
    let Some(changes) = reported(world.stores[0], &prefix, begin, version, wait)? else {
        // A reader then reads.
        let snapshot = read(world.stores[0], &Prefix::all())?;
        let found = snapshot.get(&key).map(|entry| &*entry.value);
        return demand("hold what it no longer reports", found == Some(values[3]));
    };
    let values_reported: Vec<_> = changes
        .iter()
        .filter_map(|it| it.value.as_deref())
        .collect();
    demand(
        "report each change of the prefix once, in order",
        values_reported == values,
    )
}

/// What is out of bounds is refused, and changes nothing.
fn bounds(world: &mut World<'_>) -> Result<(), LawError> {
    let key = Key::new("bounds/a")?;
    let refused = |outcome: Result<Outcome, TruthError>| {
        let is_refused = matches!(outcome, Err(TruthError::Refused(_)));
        demand("refuse what is out of its bounds", is_refused)
    };
    let large = Transaction::new().put(key.clone(), vec![1; VALUE_BYTES_MAX + 1]);
    refused(world.stores[0].commit(&large))?;
    refused(world.stores[0].commit(&Transaction::new()))?;
    let mut many = Transaction::new();
    for i in 0..=WRITES_MAX {
        many = many.put(Key::new(format!("bounds/{i}"))?, *b"x");
    }
    refused(world.stores[0].commit(&many))?;
    let term = world.stores[0].campaign(&key, &key, Duration::from_millis(1));
    demand(
        "refuse a term out of its bounds",
        matches!(term, Err(TruthError::Refused(_))),
    )?;
    let snapshot = read(world.stores[0], &Prefix::all())?;
    let none = Prefix::new("bounds/")?;
    demand(
        "change nothing when it refuses",
        !snapshot.entries.iter().any(|entry| none.covers(&entry.key)),
    )?;
    // The largest value comes back whole.
    let value: Vec<u8> = (0..VALUE_BYTES_MAX).map(|i| (i % 251) as u8).collect();
    let whole = Transaction::new()
        .expect(key.clone(), Version::ABSENT)
        .put(key.clone(), value.clone());
    let outcome = commit(world.stores[0], &whole, &|snapshot| {
        snapshot.get(&key).map(|entry| Revision(entry.version.0))
    })?;
    committed(&outcome)?;
    let snapshot = read(world.stores[0], &Prefix::all())?;
    let found = snapshot.get(&key).map(|entry| &*entry.value);
    demand("hold the largest value", found == Some(&value[..]))
}

/// A campaign, tried until it has an outcome. A lost one ends by time.
fn campaign(
    world: &mut World<'_>,
    store: usize,
    election: &Key,
    candidate: &Key,
    is_patient: bool,
) -> Result<Campaigned, LawError> {
    let mut was_unknown = false;
    for _ in 0..TERM_STEPS_MAX {
        match world.stores[store].campaign(election, candidate, TERM_MIN) {
            Ok(Campaigned::HeldBy { .. }) if is_patient || was_unknown => (world.pass)(),
            Ok(answer) => return Ok(answer),
            Err(error) => was_unknown |= error.effect() == Effect::Unknown,
        }
    }
    Err(LawError::Broken("end a leadership that is not renewed"))
}

/// One leads; a deposed leader changes nothing.
fn leadership(world: &mut World<'_>) -> Result<(), LawError> {
    let last = world.stores.len() - 1;
    let election = Key::new("orchestrator")?;
    let (a, b) = (Key::new("a")?, Key::new("b")?);
    let key = Key::new("led/a")?;
    let Campaigned::Leads(first) = campaign(world, 0, &election, &a, false)? else {
        return Err(LawError::Broken("elect the only candidate"));
    };
    let written = set(
        world.stores[0],
        &key,
        Version::ABSENT,
        b"first",
        Some(&first),
    )?;
    let mut version = match written {
        Outcome::Committed(revision) => Version(revision.0),
        // Its term may have ended before, by a store that fails for long.
        _ => Version::ABSENT,
    };
    // The other one waits, and its turn comes since the first does not renew.
    let Campaigned::Leads(second) = campaign(world, last, &election, &b, true)? else {
        return Err(LawError::Broken("pass leadership on"));
    };
    demand(
        "give a later leader a higher token",
        second.token() > first.token(),
    )?;
    let late = set(world.stores[0], &key, version, b"late", Some(&first))?;
    demand(
        "stop the writes of a deposed leader",
        late == Outcome::Deposed,
    )?;
    let ended = persist(|| world.stores[0].renew(&first))?;
    demand("not renew what has ended", ended == Renewed::Ended)?;
    persist(|| world.stores[0].resign(&first))?;
    let lasts = persist(|| world.stores[last].renew(&second))?;
    if lasts == Renewed::Leads {
        let written = set(world.stores[last], &key, version, b"second", Some(&second))?;
        if let Outcome::Committed(revision) = written {
            version = Version(revision.0);
        }
    }
    persist(|| world.stores[last].resign(&second))?;
    let after = set(world.stores[last], &key, version, b"after", Some(&second))?;
    demand(
        "stop the writes of a leader that resigned",
        after == Outcome::Deposed,
    )?;
    let Campaigned::Leads(third) = campaign(world, 0, &election, &a, false)? else {
        return Err(LawError::Broken("be free at once after a resignation"));
    };
    demand("never give a token twice", third.token() > second.token())?;
    persist(|| world.stores[last].depose(&election, second.token()))?;
    let before = read(world.stores[0], &Prefix::all())?.version(&key);
    persist(|| world.stores[last].depose(&election, third.token()))?;
    let deposed = set(world.stores[0], &key, before, b"deposed", Some(&third))?;
    demand(
        "stop the writes of a leader that another one deposed",
        deposed == Outcome::Deposed,
    )?;
    let Campaigned::Leads(fourth) = campaign(world, last, &election, &b, false)? else {
        return Err(LawError::Broken("be free once its leader was deposed"));
    };
    persist(|| world.stores[last].resign(&fourth))
}
