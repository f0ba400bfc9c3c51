//! Transactions that are committed together, by one connection.
//!
//! 1. *Load.* `WATCH` all keys of what the transactions read and write, and read them. Entries found under keys of what is written that one
//!    entry has at a time have other keys too, by which they may be in the way: those are loaded as well, until there are no more.
//! 2. *Decide*, at the workbench. Each transaction in turn is refused if one of its reads is answered otherwise by now, or if there is no room
//!    for what it adds; else its writes are made there.
//! 3. *Write* by `MULTI` and `EXEC` what has become of the keys. If another client wrote one of them meanwhile, nothing is made, and it
//!    begins again.
//!
//! A connection may end before the reply to `EXEC` is here. So each try also sets the pipe's own key to its number, and each load begins with
//! that key, which is watched: a try that was made is found, and one that is still on its way can no longer be made once another is.

mod loading;

use std::collections::{BTreeSet, VecDeque};

use asterism_function::NetworkFunction;
use asterism_resp::{CommandWriter, Value};
use asterism_state::{Tick, Transaction};

use crate::decisions::{make, still_holds};
use crate::ends::{self, Claim, Ends};
use crate::keys::Keys;
use crate::loaded::{Changes, Loaded, Outdated, write_sums};
use crate::mutant::{self, Mutant};
use crate::primary::is_primary;
use crate::refusals::refusal_reason;
use crate::statistics::AwayReason;
use crate::steps::{Decided, Outcome, Replicas, Replied, Step, is_acknowledged, note_try, wait};
use crate::workbench::Workbench;

/// Transactions that are committed together, at most.
pub(crate) const TOGETHER_MAX: usize = 64;
/// Keys that are loaded for them at most.
const KEYS_MAX: usize = 4_096;
/// Times that keys of entries in the way are loaded, at most.
const ROUNDS_MAX: u32 = 8;
/// Tries at most: then all are refused, and called again with what the store answers by then.
const TRIES_MAX: u32 = 32;
/// Microseconds after which what the store refused for now is tried again.
const PAUSE_US: u64 = 5_000;
/// Microseconds after which a connection without transactions asks whether the server still is the primary.
const CHECKED_EACH_US: u64 = 1_000_000;

/// A transaction under its name.
pub(crate) type Named<A> = (A, Transaction);

/// A connection's transactions.
#[derive(Debug)]
pub(crate) struct CommitPipe<A> {
    pub(crate) own_key: Vec<u8>,
    pub(crate) step: Step,
    /// The number of what is committed now, or was last.
    pub(crate) number: u64,
    pub(crate) tries: u32,
    /// What was decided in each try that was sent.
    pub(crate) decided: Vec<Decided>,
    /// Additions that came too late, in tries that were made.
    expired: u64,
    pub(crate) transactions: Vec<Named<A>>,
    loaded: Loaded,
    rounds: u32,
    /// Objects with little room, or with few entries where that matters, as of the last time: their numbers are watched from the first round on.
    few: BTreeSet<u8>,
    is_connected: bool,
    outdated: Outdated,
    /// The try that is decided was found made: what it wrote beside what is loaded now is not known any more.
    was_found_made: bool,
    /// When it was last asked whether the server is the primary, or a connection was made.
    checked_us: u64,
    /// It is not.
    meets_replica: bool,
    /// Which try was made, by the pipe's key, when the reply to it was lost.
    made: Option<u32>,
    pub(crate) replicas: Option<Replicas>,
    /// If this connection ends entries: when, and those that it is ending. It has no transactions meanwhile.
    ends: Option<Ends>,
    claim: Option<Claim>,
    /// Entries that it ends with what is committed now, and that it has ended.
    ending: u64,
    ended: u64,
    /// What the store said last to what was to be written, until that is asked for; and since when it refuses it by this connection.
    taken: Option<Result<(), AwayReason>>,
    refused_here_us: Option<u64>,
    /// Since when no replica has acknowledged what is committed now; and since when by this connection.
    unacknowledged_us: Option<u64>,
    unacknowledged_here_us: Option<u64>,
}

impl<A: Copy + PartialEq> CommitPipe<A> {
    /// Its own key, and the objects of which it ends entries.
    pub(crate) fn new(own_key: Vec<u8>, ends: Vec<u8>) -> Self {
        let has_ends = !ends.is_empty();
        Self {
            ends: has_ends.then(|| Ends::new(own_key.clone(), ends)),
            claim: None,
            ending: 0,
            ended: 0,
            own_key,
            step: Step::Nothing,
            number: 0,
            tries: 0,
            decided: Vec::new(),
            expired: 0,
            transactions: Vec::new(),
            loaded: Loaded::default(),
            rounds: 0,
            few: BTreeSet::new(),
            is_connected: false,
            outdated: Outdated::default(),
            was_found_made: false,
            checked_us: 0,
            meets_replica: false,
            made: None,
            replicas: None,
            taken: None,
            refused_here_us: None,
            unacknowledged_us: None,
            unacknowledged_here_us: None,
        }
    }

    /// Whether it has none, and a connection.
    pub(crate) fn is_free(&self) -> bool {
        self.step == Step::Nothing && self.transactions.is_empty() && self.is_connected
    }

    /// Whether it has a connection, and something to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_connected && !self.is_free()
    }

    /// Whether it is free, and packets are to be served before entries are ended.
    pub(crate) fn is_free_for_packets(&self, now_us: u64) -> bool {
        let ends = self.ends.as_ref();
        self.is_free() && !ends.is_some_and(|ends| ends.is_due(now_us, true))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        let is_ending = self.claim.is_some() || matches!(self.step, Step::Looking(_));
        !self.transactions.is_empty() || self.step == Step::Checking || is_ending
    }

    /// Whether the server is no primary any more.
    pub(crate) fn meets_replica(&self) -> bool {
        self.meets_replica
    }

    /// Whether no replica has acknowledged what is committed for longer than is to be.
    pub(crate) fn lacks_replica(&self, now_us: u64) -> bool {
        let since = self.unacknowledged_us.zip(self.replicas);
        since.is_some_and(|(us, replicas)| now_us.saturating_sub(us) > replicas.patience_us)
    }

    /// Whether it can go on by another connection alone.
    pub(crate) fn needs_connection(&self) -> bool {
        self.step == Step::Connection
    }

    /// Whether a reply is to come.
    pub(crate) fn awaits_reply(&self) -> bool {
        use Step::{Checking, Executing, Leaving, Loading, Looking, Replicating};
        matches!(
            self.step,
            Loading { .. }
                | Executing { .. }
                | Replicating { .. }
                | Leaving
                | Checking
                | Looking(_)
        )
    }

    pub(crate) fn has(&self, name: A) -> bool {
        self.transactions.iter().any(|(known, _)| *known == name)
    }

    /// What the store said last to what was to be written, if it did since the last time.
    pub(crate) fn take_taken(&mut self) -> Option<Result<(), AwayReason>> {
        self.taken.take()
    }

    /// Whether the store has refused all that was to be written by this connection, for longer than this.
    pub(crate) fn is_refused_for(&self, now_us: u64, us: u64) -> bool {
        let since = self.refused_here_us;
        since.is_some_and(|since_us| now_us.saturating_sub(since_us) > us)
    }

    /// Notes what the store said to what was to be written.
    fn note_taken(&mut self, taken: Result<(), AwayReason>, now_us: u64) {
        match taken {
            Ok(()) => self.refused_here_us = None,
            Err(_) => _ = self.refused_here_us.get_or_insert(now_us),
        }
        self.taken = Some(taken);
    }

    /// Keys that are outdated since the last time.
    pub(crate) fn take_outdated(&mut self) -> Outdated {
        core::mem::take(&mut self.outdated)
    }

    /// Entries that it has ended since the last time.
    pub(crate) fn take_ended(&mut self) -> u64 {
        core::mem::take(&mut self.ended)
    }

    /// Additions that were left out since the last time, for their buckets of time were dropped.
    pub(crate) fn take_expired(&mut self) -> u64 {
        core::mem::take(&mut self.expired)
    }

    pub(crate) fn connected(&mut self) {
        // Its entries have ended, or somebody finds them again.
        self.claim = None;
        (self.is_connected, self.meets_replica) = (true, false);
        (self.unacknowledged_here_us, self.refused_here_us) = (None, None);
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
        self.ends.iter_mut().for_each(Ends::packets_served);
        self.begin_number();
        self.step = Step::Time(0);
    }

    fn begin_number(&mut self) {
        self.number += 1;
        self.tries = 0;
        self.decided.clear();
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
            self.load_first(keys, bench, out);
        } else if let Some(ends) = &mut self.ends
            && self.step == Step::Nothing
            && self.is_connected
            && ends.is_due(now_us, false)
        {
            ends.look(tick, keys, out);
            self.step = Step::Looking(ends::REPLIES);
        } else if self.is_free() && now_us >= self.checked_us + CHECKED_EACH_US {
            // One that was demoted goes on to answer reads.
            self.checked_us = now_us;
            self.step = Step::Checking;
            CommandWriter::new(out).command(&[b"ROLE"]);
        }
    }

    /// The next reply. What is to be sent then goes to `out`, and what was decided to `decided`.
    pub(crate) fn reply<F: NetworkFunction>(
        &mut self,
        value: &Value<'_>,
        now_us: u64,
        (keys, bench): (&Keys, &mut Workbench<F>),
        out: &mut Vec<u8>,
        decided: &mut impl FnMut(A, bool),
    ) -> Replied {
        match core::mem::replace(&mut self.step, Step::Connection) {
            Step::Looking(left) => {
                let ends = self.ends.as_mut();
                let Some(Ok(claim)) = ends.map(|ends| ends.reply(value, left, now_us)) else {
                    return Replied::Nonsense;
                };
                self.step = match left {
                    1 => Step::Nothing,
                    _ => Step::Looking(left - 1),
                };
                if left == ends::REPLIES {
                    // The word of who looks is a write, each second: it shows when the store takes some again.
                    let taken = refusal_reason(value).map_or(Ok(()), Err);
                    self.note_taken(taken, now_us);
                }
                if matches!(value, Value::Error(_)) {
                    return Replied::Refused;
                }
                if let Some(claim) = claim {
                    self.begin_number();
                    self.loaded = Loaded::default();
                    (self.rounds, self.made) = (0, None);
                    claim.load((keys, bench), &mut self.loaded);
                    self.claim = Some(claim);
                    self.load(keys, Vec::new(), out);
                }
                Replied::Well
            }
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
                    Value::Array(values) => self.take_answers(values, is_first),
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
                } else if let Some(made) = self.made.take() {
                    self.confirm(made, out, decided);
                } else {
                    self.go_on((keys, bench), out, decided);
                }
                Replied::Well
            }
            Step::Executing { left, refused } if left > 1 => {
                let refused = refused.or_else(|| refusal_reason(value));
                let left = left - 1;
                self.step = Step::Executing { left, refused };
                Replied::Well
            }
            Step::Executing { refused, .. } => {
                let Some(outcome) = self.outcome(value, refused) else {
                    return Replied::Nonsense;
                };
                if self.replicas.is_some() && self.claim.is_none() {
                    self.step = Step::Replicating { left: 1, outcome };
                    return Replied::Well;
                }
                self.conclude(outcome, now_us, decided)
            }
            // What a replica has is not known: another connection asks again, whatever it was that was refused.
            Step::Replicating { .. } if matches!(value, Value::Error(_)) => Replied::Refused,
            Step::Replicating { left, outcome } if left > 1 => {
                let left = left - 1;
                self.step = Step::Replicating { left, outcome };
                Replied::Well
            }
            Step::Replicating { outcome, .. } => match (value, outcome) {
                (Value::Integer(count), Outcome::Made(_)) if !is_acknowledged(*count) => {
                    self.wait_again(outcome, now_us, out);
                    Replied::Well
                }
                (Value::Integer(_), _) => self.conclude(outcome, now_us, decided),
                _ => Replied::Nonsense,
            },
            Step::Leaving => {
                self.step = Step::Nothing;
                Replied::Well
            }
            Step::Checking => self.take_role(value),
            _ => Replied::Nonsense,
        }
    }

    /// What the reply to `EXEC` says.
    fn outcome(&self, value: &Value<'_>, refused: Option<AwayReason>) -> Option<Outcome> {
        Some(match (value, refused.or_else(|| refusal_reason(value))) {
            (Value::Array(_), _) => Outcome::Made(self.tries),
            (Value::Null | Value::Error(_), Some(why)) => Outcome::Refused(why),
            (Value::Null, None) if mutant::active(Mutant::CrossedCountsAsMade) => {
                Outcome::Made(self.tries)
            }
            (Value::Null, None) => Outcome::Crossed,
            _ => return None,
        })
    }

    /// What the server says that it is.
    fn take_role(&mut self, role: &Value<'_>) -> Replied {
        let is_primary = is_primary(role);
        if is_primary == Some(false) && !mutant::active(Mutant::ReplicaTakenForPrimary) {
            self.meets_replica = true;
            return Replied::Refused;
        }
        if is_primary.is_none() && !matches!(role, Value::Error(_)) {
            return Replied::Nonsense;
        }
        self.step = Step::Nothing;
        Replied::Well
    }

    /// What becomes of the transactions of a try.
    fn conclude(
        &mut self,
        outcome: Outcome,
        now_us: u64,
        decided: &mut impl FnMut(A, bool),
    ) -> Replied {
        // Nothing of it was made, unless it was.
        let (pause_us, replied) = match outcome {
            Outcome::Made(tried) => {
                if self.claim.is_none() {
                    // A full store takes what frees room.
                    self.note_taken(Ok(()), now_us);
                }
                self.finish(tried, decided);
                return Replied::Well;
            }
            Outcome::Crossed => (0, Replied::Crossed),
            Outcome::Refused(why) => {
                self.note_taken(Err(why), now_us);
                (PAUSE_US, Replied::Refused)
            }
        };
        if self.claim.take().is_some() {
            let is_crossed = matches!(outcome, Outcome::Crossed);
            if let Some(ends) = &mut self.ends {
                ends.refused(is_crossed, now_us);
            }
            self.step = Step::Nothing;
            return replied;
        }
        self.step = Step::Time(now_us + pause_us);
        if self.tries >= TRIES_MAX {
            self.refuse_all(decided);
            self.step = Step::Nothing;
        }
        replied
    }

    /// A try was made, and the reply to it was lost.
    fn confirm(&mut self, made: u32, out: &mut Vec<u8>, decided: &mut impl FnMut(A, bool)) {
        self.was_found_made = true;
        let Some(replicas) = self.replicas else {
            self.finish(made, decided);
            return self.leave(out);
        };
        CommandWriter::new(out).command(&[b"UNWATCH"]);
        // `WAIT` is about what its own connection wrote: a replica that has this has all before it.
        let writes = !mutant::active(Mutant::WaitWithoutWrite);
        if writes {
            note_try(&self.own_key, self.number, made, out);
        }
        wait(replicas, out);
        let (left, outcome) = (2 + usize::from(writes), Outcome::Made(made));
        self.step = Step::Replicating { left, outcome };
    }

    /// No replica has acknowledged it yet. If that goes on, a connection to another server may find one that has.
    fn wait_again(&mut self, outcome: Outcome, now_us: u64, out: &mut Vec<u8>) {
        let Some(replicas) = self.replicas else {
            return;
        };
        self.unacknowledged_us.get_or_insert(now_us);
        let since_us = *self.unacknowledged_here_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) <= replicas.patience_us {
            wait(replicas, out);
            self.step = Step::Replicating { left: 1, outcome };
        }
    }

    /// Loads what is in the way of what was loaded, or decides.
    fn go_on<F: NetworkFunction>(
        &mut self,
        (keys, bench): (&Keys, &mut Workbench<F>),
        out: &mut Vec<u8>,
        decided: &mut impl FnMut(A, bool),
    ) {
        self.rounds += 1;
        let before = self.loaded.keys.len();
        self.loaded.add_those_in_the_way(keys, bench);
        let loaded = &mut self.loaded;
        let mut few = Vec::new();
        for (&object, count) in &mut loaded.counts {
            let decides = count.decides(bench.capacity(object));
            if !decides || mutant::active(Mutant::RoomUnwatched) {
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
            return self.load(keys, few, out);
        }
        let decisions = self.decide(bench);
        if decisions.contains(&true) || self.claim.is_some() {
            self.execute((keys, bench), decisions, out);
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
        if let Some(claim) = &self.claim {
            bench.end_over(claim.object, &claim.rows);
        }
        let (counts, additions) = (&mut loaded.counts, &mut loaded.additions);
        let transactions = self.transactions.iter();
        transactions
            .map(|(_, transaction)| {
                let holds = is_well && still_holds(transaction, counts, bench);
                if !holds && mutant::active(Mutant::RefusedAdditionShipped) {
                    additions.append(bench.additions(transaction).unwrap_or_default());
                }
                holds && make(transaction, (counts, additions), bench).is_ok()
            })
            .collect()
    }

    /// Writes what has become of the keys.
    fn execute<F: NetworkFunction>(
        &mut self,
        (keys, bench): (&Keys, &mut Workbench<F>),
        decisions: Vec<bool>,
        out: &mut Vec<u8>,
    ) {
        self.tries += 1;
        self.decided.push(Decided {
            are_committed: decisions,
            expired: self.loaded.additions.expired(),
        });
        let mut commands = 1 + self.loaded.additions.write_early(keys, out);
        CommandWriter::new(out).command(&[b"MULTI"]);
        let mut changes = Changes::of(&self.loaded, bench);
        if let Some(claim) = &self.claim {
            self.ending = claim.note(bench, &mut changes);
        }
        commands += changes.write(keys, out);
        commands += self.loaded.additions.write(keys, out) + write_sums((keys, bench), out);
        // A claim that was made, or not, is found again by what is due. So a full store takes what frees room.
        if self.claim.is_none() {
            note_try(&self.own_key, self.number, self.tries, out);
            commands += 1;
        }
        CommandWriter::new(out).command(&[b"EXEC"]);
        if let Some(replicas) = self.replicas.filter(|_| self.claim.is_none()) {
            wait(replicas, out);
        }
        self.step = Step::Executing {
            left: commands + 1,
            refused: None,
        };
    }

    /// What was decided in a try is so.
    fn finish(&mut self, tried: u32, decided: &mut impl FnMut(A, bool)) {
        let place = (tried as usize).checked_sub(1);
        let tried = place.and_then(|place| self.decided.get(place));
        self.expired += tried.map_or(0, |tried| tried.expired);
        let mut all_committed = true;
        for (place, (name, _)) in self.transactions.iter().enumerate() {
            let is_committed = tried.and_then(|tried| tried.are_committed.get(place));
            let is_committed = is_committed == Some(&true);
            all_committed &= is_committed;
            decided(*name, is_committed);
        }
        self.transactions.clear();
        if self.claim.take().is_some() {
            self.ended += core::mem::take(&mut self.ending);
            self.ends.iter_mut().for_each(Ends::made);
        }
        (self.unacknowledged_us, self.unacknowledged_here_us) = (None, None);
        let loaded = core::mem::take(&mut self.loaded);
        let keys = loaded.keys.into_iter().zip(loaded.may_change);
        let keys = keys.filter(|(_, may_change)| *may_change || !all_committed);
        self.outdated = match core::mem::take(&mut self.was_found_made) {
            true => Outdated::All,
            false => Outdated::Keys(keys.map(|(key, _)| key).collect()),
        };
        self.step = Step::Nothing;
    }

    fn refuse_all(&mut self, decided: &mut impl FnMut(A, bool)) {
        if self.claim.take().is_some() {
            // With all that is in the way of them they are more than can be loaded.
            self.ends.iter_mut().for_each(|ends| ends.refused(true, 0));
        }
        (self.unacknowledged_us, self.unacknowledged_here_us) = (None, None);
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
