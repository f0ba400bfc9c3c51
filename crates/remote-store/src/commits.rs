//! Transactions that are committed together, by one connection.
//!
//! 1. *Load.* `WATCH` all keys of what the transactions read and write, and read them. Entries found under the keys of what is written have
//!    other keys too, by which they may be in the way: those are loaded as well, until there are no more.
//! 2. *Decide*, at the workbench. Each transaction in turn is refused if one of its reads is answered otherwise by now, or if there is no room
//!    for what it adds; else its writes are made there.
//! 3. *Write* by `MULTI` and `EXEC` what has become of the keys. If another client wrote one of them meanwhile, nothing is made, and it
//!    begins again.
//!
//! A connection may end before the reply to `EXEC` is here. So each try also sets the pipe's own key to its number, and each load begins with
//! that key, which is watched: a try that was made is found, and one that is still on its way can no longer be made once another is.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use asterism_function::NetworkFunction;
use asterism_resp::{CommandWriter, Value};
use asterism_state::{LANE_ANY, LANE_ROOM, Tick, Transaction};

use crate::decisions::{Count, ends_of, make, still_holds};
use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::primary::is_primary;
use crate::reads::count_entries;
use crate::workbench::{NOTHING, Read, Workbench};

/// Transactions that are committed together, at most.
pub(crate) const TOGETHER_MAX: usize = 64;
/// Keys that are loaded for them at most.
const KEYS_MAX: usize = 4_096;
/// Times that keys of entries in the way are loaded, at most.
const ROUNDS_MAX: u32 = 8;
/// Tries at most: then all are refused, and called again with what the store answers by then.
const TRIES_MAX: u32 = 32;
/// Where so few entries are left, or may be added, their number is watched: other clients may change it too.
const FEW: u64 = 256;
/// Microseconds after which what the store refused for now is tried again.
const PAUSE_US: u64 = 5_000;
/// Microseconds after which a connection without transactions asks whether the server still is the primary.
const CHECKED_EACH_US: u64 = 1_000_000;
/// Seconds that what ends stays longer.
const GRACE_S: Tick = 1;
/// Entries that have ended are taken out of the sorted sets once in so many commits.
const CLEANED_EACH: u64 = 32;
/// Seconds that a pipe's key stays after its last commit.
const PIPE_STAYS_S: i64 = 24 * 3_600;

/// A transaction under its name.
pub(crate) type Named<A> = (A, Transaction);

/// What was loaded of the store.
#[derive(Debug, Default)]
struct Loaded {
    keys: Vec<Vec<u8>>,
    places: HashMap<Vec<u8>, usize>,
    reads: Vec<Read>,
    answers: Vec<Vec<u8>>,
    /// What is under a key may be written.
    may_change: Vec<bool>,
    counts: BTreeMap<u8, Count>,
    /// Keys up to here are loaded.
    through: usize,
}

impl Loaded {
    fn add(&mut self, keys: &Keys, read: Read, may_change: bool) {
        let key = keys.of_read(&read.query());
        match self.places.get(&key) {
            Some(&place) => self.may_change[place] |= may_change,
            None => {
                self.places.insert(key.clone(), self.keys.len());
                self.keys.push(key);
                self.reads.push(read);
                self.answers.push(NOTHING.to_vec());
                self.may_change.push(may_change);
            }
        }
    }
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// The replies to `WATCH`, to the read of the pipe's key and of those after so many, and then these counts.
    Loading {
        replies: usize,
        counts: Vec<u8>,
        is_first: bool,
    },
    /// The replies to so many commands, of which the last one is `EXEC`.
    Executing {
        left: usize,
        is_refused: bool,
    },
    /// The reply to `UNWATCH`: nothing was to be written.
    Leaving,
    /// The reply to `ROLE`.
    Checking,
    /// A connection.
    Connection,
    /// This time, in microseconds: the store takes nothing now.
    Time(u64),
}

/// What came of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replied {
    /// All is as it should be.
    Well,
    /// The store refused a command, for now.
    Refused,
    /// Somebody else wrote what was read: it begins again.
    Crossed,
    /// That is no reply to what was sent.
    Nonsense,
}

/// Keys of which the store knows more than was read of them: they were written, or are otherwise than a transaction read.
#[derive(Debug)]
pub(crate) enum Outdated {
    Keys(Vec<Vec<u8>>),
    /// It is not known which.
    All,
}

impl Default for Outdated {
    fn default() -> Self {
        Self::Keys(Vec::new())
    }
}

/// A connection's transactions.
#[derive(Debug)]
pub(crate) struct CommitPipe<A> {
    own_key: Vec<u8>,
    step: Step,
    /// The number of what is committed now, or was last.
    number: u64,
    tries: u32,
    /// What was decided in each try that was sent.
    decisions: Vec<Vec<bool>>,
    transactions: Vec<Named<A>>,
    loaded: Loaded,
    rounds: u32,
    /// Objects with few entries, or little room, as of the last time: their numbers are watched from the first round on.
    few: BTreeSet<u8>,
    is_connected: bool,
    outdated: Outdated,
    /// When it was last asked whether the server is the primary, or a connection was made.
    checked_us: u64,
    /// It is not.
    meets_replica: bool,
}

impl<A: Copy + PartialEq> CommitPipe<A> {
    pub(crate) fn new(own_key: Vec<u8>) -> Self {
        Self {
            own_key,
            step: Step::Nothing,
            number: 0,
            tries: 0,
            decisions: Vec::new(),
            transactions: Vec::new(),
            loaded: Loaded::default(),
            rounds: 0,
            few: BTreeSet::new(),
            is_connected: false,
            outdated: Outdated::default(),
            checked_us: 0,
            meets_replica: false,
        }
    }

    /// Whether it has none, and a connection.
    pub(crate) fn is_free(&self) -> bool {
        self.step == Step::Nothing && self.transactions.is_empty() && self.is_connected
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.transactions.is_empty() || self.step == Step::Checking
    }

    /// Whether the server is no primary any more.
    pub(crate) fn meets_replica(&self) -> bool {
        self.meets_replica
    }

    /// Whether it can go on by another connection alone.
    pub(crate) fn needs_connection(&self) -> bool {
        self.step == Step::Connection
    }

    /// Whether a reply is to come.
    pub(crate) fn awaits_reply(&self) -> bool {
        use Step::{Checking, Executing, Leaving, Loading};
        matches!(
            self.step,
            Loading { .. } | Executing { .. } | Leaving | Checking
        )
    }

    pub(crate) fn has(&self, name: A) -> bool {
        self.transactions.iter().any(|(known, _)| *known == name)
    }

    /// Keys that are outdated since the last time.
    pub(crate) fn take_outdated(&mut self) -> Outdated {
        core::mem::take(&mut self.outdated)
    }

    pub(crate) fn connected(&mut self) {
        (self.is_connected, self.meets_replica) = (true, false);
        self.step = match self.transactions.is_empty() {
            true => Step::Nothing,
            false => Step::Time(0),
        };
    }

    pub(crate) fn lost(&mut self) {
        self.is_connected = false;
        self.step = Step::Connection;
        if mutant::active(Mutant::LostCountsAsNew) {
            self.number += 1;
        }
    }

    /// Commits these.
    pub(crate) fn begin(&mut self, transactions: &mut VecDeque<Named<A>>) {
        let count = transactions.len().min(TOGETHER_MAX);
        self.transactions.extend(transactions.drain(..count));
        self.number += 1;
        self.tries = 0;
        self.decisions.clear();
        self.step = Step::Time(0);
    }

    /// Writes what is to be sent now.
    pub(crate) fn write<F: NetworkFunction>(
        &mut self,
        (now_us, tick): (u64, Tick),
        keys: &Keys,
        bench: &Workbench<F>,
        out: &mut Vec<u8>,
    ) {
        let is_due = matches!(self.step, Step::Time(at) if at <= now_us);
        if is_due && self.is_connected && !self.transactions.is_empty() {
            self.load_first(tick, keys, bench, out);
        } else if self.is_free() && now_us >= self.checked_us + CHECKED_EACH_US {
            // One that was demoted goes on to answer reads.
            self.checked_us = now_us;
            self.step = Step::Checking;
            CommandWriter::new(out).command(&[b"ROLE"]);
        }
    }

    /// What the transactions read and write.
    fn load_first<F: NetworkFunction>(
        &mut self,
        tick: Tick,
        keys: &Keys,
        bench: &Workbench<F>,
        out: &mut Vec<u8>,
    ) {
        self.loaded = Loaded::default();
        self.rounds = 0;
        let loaded = &mut self.loaded;
        for (_, transaction) in &self.transactions {
            for (query, _) in transaction.reads() {
                match query.lane {
                    LANE_ROOM | LANE_ANY => _ = loaded.counts.entry(query.object).or_default(),
                    _ => loaded.add(keys, Read::new(&query), false),
                }
            }
            // What is none is refused when it is decided.
            let _ = bench.each_written(transaction, |object, _, entry| {
                loaded.counts.entry(object).or_default();
                for query in entry.reads {
                    loaded.add(keys, Read::new(query), true);
                }
            });
        }
        for (object, count) in &mut loaded.counts {
            count.is_watched = self.few.contains(object);
        }
        let counts = self.loaded.counts.keys().copied().collect();
        self.load(tick, keys, counts, out);
    }

    /// Loads what is not loaded yet, and these objects' numbers of entries.
    fn load(&mut self, tick: Tick, keys: &Keys, counts: Vec<u8>, out: &mut Vec<u8>) {
        let is_first = self.rounds == 0;
        let new = &self.loaded.keys[self.loaded.through..];
        let watched: Vec<Vec<u8>> = (counts.iter())
            .filter(|object| self.loaded.counts[object].is_watched)
            .map(|&object| keys.of_ends(object))
            .collect();
        let own = is_first.then_some(&self.own_key);
        let watches = !mutant::active(Mutant::NothingWatched);
        let read = new.len() + usize::from(is_first);
        let mut writer = CommandWriter::new(out);
        let mut replies = 0;
        if read + watched.len() > 0 {
            writer.begin(1 + read + watched.len());
            writer.argument(b"WATCH");
            // A key that nobody writes, where nothing is watched.
            let watched = own.into_iter().chain(new).chain(&watched);
            watched.for_each(|key| writer.argument(if watches { key } else { b"nothing" }));
            replies += 1;
        }
        if read > 0 {
            writer.begin(1 + read);
            writer.argument(b"MGET");
            own.into_iter()
                .chain(new)
                .for_each(|key| writer.argument(key));
            replies += 1;
        }
        for &object in &counts {
            count_entries(&keys.of_ends(object), tick, out);
        }
        self.step = Step::Loading {
            replies: replies + counts.len(),
            counts,
            is_first,
        };
    }

    /// The next reply. What is to be sent then goes to `out`, and what was decided to `decided`.
    pub(crate) fn reply<F: NetworkFunction>(
        &mut self,
        value: &Value<'_>,
        (now_us, tick): (u64, Tick),
        (keys, bench): (&Keys, &mut Workbench<F>),
        out: &mut Vec<u8>,
        decided: &mut impl FnMut(A, bool),
    ) -> Replied {
        match core::mem::replace(&mut self.step, Step::Connection) {
            Step::Loading {
                replies,
                mut counts,
                is_first,
            } => {
                if let Value::Error(_) = value {
                    // Replies that are still to come would be taken for those to what is sent next: another connection has none.
                    return Replied::Refused;
                }
                let is_well = match value {
                    Value::Status(_) => true,
                    Value::Array(values) => self.take_answers(values, is_first, decided),
                    Value::Integer(count) => self.take_count(*count, &mut counts),
                    _ => false,
                };
                if !is_well {
                    return Replied::Nonsense;
                }
                if replies > 1 {
                    let replies = replies - 1;
                    self.step = Step::Loading {
                        replies,
                        counts,
                        is_first,
                    };
                } else if self.transactions.is_empty() {
                    // They were made before, and the reply was lost.
                    self.leave(out);
                } else {
                    self.go_on(tick, (keys, bench), out, decided);
                }
                Replied::Well
            }
            Step::Executing { left, is_refused } if left > 1 => {
                let is_refused = is_refused || matches!(value, Value::Error(_));
                let left = left - 1;
                self.step = Step::Executing { left, is_refused };
                Replied::Well
            }
            Step::Executing { is_refused, .. } => match value {
                Value::Array(_) => {
                    self.finish(self.tries, decided);
                    Replied::Well
                }
                Value::Null if !is_refused && mutant::active(Mutant::CrossedCountsAsMade) => {
                    self.finish(self.tries, decided);
                    Replied::Well
                }
                // Nothing of it was made.
                Value::Null | Value::Error(_) => {
                    let is_crossed = *value == Value::Null && !is_refused;
                    let (pause_us, replied) = match is_crossed {
                        true => (0, Replied::Crossed),
                        false => (PAUSE_US, Replied::Refused),
                    };
                    self.step = Step::Time(now_us + pause_us);
                    if self.tries >= TRIES_MAX {
                        self.refuse_all(decided);
                        self.step = Step::Nothing;
                    }
                    replied
                }
                _ => Replied::Nonsense,
            },
            Step::Leaving => {
                self.step = Step::Nothing;
                Replied::Well
            }
            Step::Checking => {
                self.meets_replica = is_primary(value) == Some(false)
                    && !mutant::active(Mutant::ReplicaTakenForPrimary);
                match is_primary(value) {
                    _ if self.meets_replica => return Replied::Refused,
                    None if !matches!(value, Value::Error(_)) => return Replied::Nonsense,
                    _ => self.step = Step::Nothing,
                }
                Replied::Well
            }
            _ => Replied::Nonsense,
        }
    }

    fn take_answers(
        &mut self,
        values: &asterism_resp::Values<'_>,
        is_first: bool,
        decided: &mut impl FnMut(A, bool),
    ) -> bool {
        let mut values = *values;
        let loaded = &mut self.loaded;
        if values.len() != loaded.keys.len() - loaded.through + usize::from(is_first) {
            return false;
        }
        let made = match is_first {
            true => values.next().and_then(|value| self.made_try(&value)),
            false => None,
        };
        for (answer, value) in self.loaded.answers[self.loaded.through..]
            .iter_mut()
            .zip(values)
        {
            answer.clear();
            answer.extend(value.bytes().unwrap_or(&NOTHING));
        }
        self.loaded.through = self.loaded.keys.len();
        if let Some(made) = made {
            self.finish(made, decided);
            // What that try wrote beside what is loaded is not known any more.
            self.outdated = Outdated::All;
        }
        true
    }

    /// Which try of what is committed now the pipe's key says was made.
    fn made_try(&self, value: &Value<'_>) -> Option<u32> {
        if mutant::active(Mutant::MadeTryForgotten) {
            return None;
        }
        let text = core::str::from_utf8(value.bytes()?).ok()?;
        let (number, made) = text.split_once('.')?;
        (number.parse() == Ok(self.number)).then(|| made.parse().ok())?
    }

    fn take_count(&mut self, count: i64, counts: &mut Vec<u8>) -> bool {
        if counts.is_empty() {
            return false;
        }
        let count = u64::try_from(count).unwrap_or_default();
        self.loaded
            .counts
            .entry(counts.remove(0))
            .or_default()
            .entries = count;
        true
    }

    /// The other keys of entries that were found under keys of what may be written.
    fn add_those_in_the_way<F: NetworkFunction>(&mut self, keys: &Keys, bench: &Workbench<F>) {
        if mutant::active(Mutant::OtherKeysNotLoaded) {
            return;
        }
        let loaded = &mut self.loaded;
        for place in 0..loaded.keys.len() {
            if !loaded.may_change[place] {
                continue;
            }
            let answer = loaded.answers[place].clone();
            let object = loaded.reads[place].object;
            // What is no answer is found out when it is installed.
            let _ = bench.each_entry(object, &answer, &mut |entry| {
                for query in entry.reads {
                    loaded.add(keys, Read::new(query), true);
                }
            });
        }
    }

    /// Loads what is in the way of what was loaded, or decides.
    fn go_on<F: NetworkFunction>(
        &mut self,
        tick: Tick,
        (keys, bench): (&Keys, &mut Workbench<F>),
        out: &mut Vec<u8>,
        decided: &mut impl FnMut(A, bool),
    ) {
        self.rounds += 1;
        let before = self.loaded.keys.len();
        self.add_those_in_the_way(keys, bench);
        let loaded = &mut self.loaded;
        let mut few = Vec::new();
        for (&object, count) in &mut loaded.counts {
            let room = bench.capacity(object).saturating_sub(count.entries);
            if room >= FEW && count.entries >= FEW || mutant::active(Mutant::RoomUnwatched) {
                self.few.remove(&object);
                continue;
            }
            self.few.insert(object);
            if !core::mem::replace(&mut count.is_watched, true) {
                few.push(object);
            }
        }
        if loaded.keys.len() > KEYS_MAX || self.rounds > ROUNDS_MAX {
            self.refuse_all(decided);
            return self.leave(out);
        }
        if loaded.keys.len() > before || !few.is_empty() {
            return self.load(tick, keys, few, out);
        }
        let decisions = self.decide(bench);
        if decisions.contains(&true) {
            self.execute(tick, (keys, bench), decisions, out);
        } else {
            self.refuse_all(decided);
            self.leave(out);
        }
    }

    /// Makes, at the workbench, the writes of the transactions whose reads still hold; which those are.
    fn decide<F: NetworkFunction>(&mut self, bench: &mut Workbench<F>) -> Vec<bool> {
        bench.clear();
        let loaded = &mut self.loaded;
        let mut is_well = true;
        for (read, answer) in loaded.reads.iter().zip(&loaded.answers) {
            is_well &= bench.install(read, answer).is_ok();
        }
        let counts = &mut loaded.counts;
        let transactions = self.transactions.iter();
        transactions
            .map(|(_, transaction)| {
                is_well
                    && still_holds(transaction, counts, bench)
                    && make(transaction, counts, bench).is_ok()
            })
            .collect()
    }

    /// Writes what has become of the keys.
    fn execute<F: NetworkFunction>(
        &mut self,
        tick: Tick,
        (keys, bench): (&Keys, &mut Workbench<F>),
        decisions: Vec<bool>,
        out: &mut Vec<u8>,
    ) {
        self.tries += 1;
        self.decisions.push(decisions);
        let mut commands = 2;
        let mut writer = CommandWriter::new(out);
        writer.command(&[b"MULTI"]);
        for place in 0..self.loaded.reads.len() {
            if !self.loaded.may_change[place] {
                continue;
            }
            let read = &self.loaded.reads[place];
            let new = bench.extract(&read.query()).to_vec();
            let old = &self.loaded.answers[place];
            if new == *old {
                continue;
            }
            let ends = ends_of(bench, read.object, &new);
            let key = &self.loaded.keys[place];
            let mut writer = CommandWriter::new(out);
            commands += 1;
            let all_end = ends.iter().map(|(_, end)| *end).collect::<Option<Vec<_>>>();
            match all_end.map(|all| all.into_iter().max()) {
                _ if ends.is_empty() => writer.command(&[b"DEL", key]),
                Some(Some(last)) => {
                    writer.begin(5);
                    writer.argument(b"SET");
                    writer.argument(key);
                    writer.argument(&new);
                    writer.argument(b"EX");
                    writer.number((last.saturating_sub(tick) + GRACE_S).into());
                }
                _ => writer.command(&[b"SET", key, &new]),
            }
            if read.lane != 0 {
                continue;
            }
            // Each entry is under one key of the first lane.
            let ends_key = keys.of_ends(read.object);
            let before = ends_of(bench, read.object, old);
            let mut writer = CommandWriter::new(out);
            for (row, _) in before {
                if !ends.iter().any(|(known, _)| *known == row) {
                    writer.command(&[b"ZREM", &ends_key, &row]);
                    commands += 1;
                }
            }
            for (row, end) in &ends {
                writer.begin(4);
                writer.argument(b"ZADD");
                writer.argument(&ends_key);
                match end {
                    Some(end) => writer.number((*end).into()),
                    None => writer.argument(b"+inf"),
                }
                writer.argument(row);
                commands += 1;
            }
        }
        let mut writer = CommandWriter::new(out);
        if self.number.is_multiple_of(CLEANED_EACH) {
            for &object in self.loaded.counts.keys() {
                writer.begin(4);
                writer.argument(b"ZREMRANGEBYSCORE");
                writer.argument(&keys.of_ends(object));
                writer.argument(b"-inf");
                writer.argument(format!("({tick}").as_bytes());
                commands += 1;
            }
        }
        let number = format!("{}.{}", self.number, self.tries);
        writer.begin(5);
        writer.argument(b"SET");
        writer.argument(&self.own_key);
        writer.argument(number.as_bytes());
        writer.argument(b"EX");
        writer.number(PIPE_STAYS_S);
        writer.command(&[b"EXEC"]);
        self.step = Step::Executing {
            left: commands + 1,
            is_refused: false,
        };
    }

    /// What was decided in a try is so.
    fn finish(&mut self, tried: u32, decided: &mut impl FnMut(A, bool)) {
        let place = (tried as usize).checked_sub(1);
        let decisions = place.and_then(|place| self.decisions.get(place));
        let mut all_committed = true;
        for (place, (name, _)) in self.transactions.iter().enumerate() {
            let is_committed = decisions.and_then(|decisions| decisions.get(place));
            let is_committed = is_committed == Some(&true);
            all_committed &= is_committed;
            decided(*name, is_committed);
        }
        self.transactions.clear();
        let loaded = core::mem::take(&mut self.loaded);
        let keys = loaded.keys.into_iter().zip(loaded.may_change);
        let keys = keys.filter(|(_, may_change)| *may_change || !all_committed);
        self.outdated = Outdated::Keys(keys.map(|(key, _)| key).collect());
        self.step = Step::Nothing;
    }

    fn refuse_all(&mut self, decided: &mut impl FnMut(A, bool)) {
        for (name, _) in self.transactions.drain(..) {
            decided(name, false);
        }
        let loaded = core::mem::take(&mut self.loaded);
        self.outdated = Outdated::Keys(loaded.keys);
    }

    fn leave(&mut self, out: &mut Vec<u8>) {
        CommandWriter::new(out).command(&[b"UNWATCH"]);
        self.step = Step::Leaving;
    }
}
