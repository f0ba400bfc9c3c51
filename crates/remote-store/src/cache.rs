//! Answers that are kept: a read of a key whose answer is here is not asked for.
//!
//! The store tells the connection that reads of each change of what it has read (`CLIENT TRACKING`), in the order of its replies. So
//! whatever was changed before a command was sent has been heard of once that command is answered, and an answer that is still here then is
//! as of that time or later. It is given out until that is longer ago than the staleness; a connection that has nothing to ask asks for
//! nothing (`PING`) often enough. Transactions are checked by the store whatever they read, so a stale answer costs them another call at most.
//!
//! With a filter (`filter.rs`) the store tells of all changes of the function's keys, and it does so behind its replies: a reply may come
//! before the news of a change that was made just before it. What was changed before a command was sent has been heard of surely once
//! another command is answered that was sent after the reply to the first one had come.
//!
//! An instance may keep the entry of an answer that it was given, and call its function by it without a look here. So each answer that was given and
//! is let go, for any reason, is reported as dropped; and a burst of packets begins with the question whether what is here is fresh.
//!
//! What this client itself has written, or was refused for, it asks for again: the other connection, which heard of that first, is not in
//! order with this one. Such a key is *barred*: answers to commands that were sent before are not kept.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use asterism_engine::Dropped;
use asterism_resp::Value;
use asterism_state::Tick;

use crate::filter::{Filter, Piece};
use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::workbench::NOTHING;

/// Answers longer than this are not kept.
const ANSWER_BYTES_MAX: usize = 4_096;

/// Keys that are barred one by one at most, while the store takes long to answer: beyond that no answer that is under way is kept.
const BARS_MAX: usize = 1 << 16;

/// How answers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Answers that are kept at most.
    pub entries: usize,
    /// An answer that is given out was so within this time.
    pub staleness: Duration,
    /// The same while the store is away.
    pub staleness_away: Duration,
    /// It is known which keys may be in the store: a read of one that is not there is answered as if that were kept.
    pub has_filter: bool,
}

#[derive(Debug, Default)]
struct Entry {
    key: Vec<u8>,
    answer: Vec<u8>,
    /// The last second in which none of its entries has ended.
    through: Tick,
    /// It was given out since the hand passed.
    is_used: bool,
    /// The read that it was given out for, by which the instance may keep its entry.
    given: Option<Dropped>,
}

impl Entry {
    fn has_ended(&self, tick: Tick) -> bool {
        tick > self.through && !mutant::active(Mutant::EndedGivenOut)
    }
}

fn is_too_old(age_us: u128, staleness: Duration) -> bool {
    age_us > staleness.as_micros() && !mutant::active(Mutant::StaleGivenOut)
}

/// What may be given out.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// This answer was kept.
    Kept(&'a [u8]),
    /// There is no such key.
    Absent,
}

impl<'a> Found<'a> {
    pub(crate) fn answer(&self) -> &'a [u8] {
        match self {
            Self::Kept(answer) => answer,
            Self::Absent => &NOTHING,
        }
    }
}

/// See the module. Times are microseconds.
#[derive(Debug)]
pub(crate) struct Cache {
    config: CacheConfig,
    filter: Option<Filter>,
    kept: Vec<Entry>,
    places: HashMap<Vec<u8>, usize>,
    free: Vec<usize>,
    /// The next one that is let go, unless it is used.
    hand: usize,
    /// All changes up to here were heard of.
    fresh_us: u64,
    is_connected: bool,
    /// The number of the last command.
    sent: u64,
    answered: u64,
    /// When the last command that is answered was sent by this connection; 0: none is.
    answered_us: u64,
    /// With a filter, for each command under way: the last one that was answered when it was sent, and when that was sent.
    under_way: VecDeque<(u64, u64)>,
    /// All changes from before this command was sent were heard of.
    heard: u64,
    /// Keys, each with the last command whose answer is not kept.
    barred: HashMap<Vec<u8>, u64>,
    /// The same in the order of commands.
    bars: VecDeque<(u64, Vec<u8>)>,
    /// The last command of whose answers none is kept.
    all_barred: u64,
    /// What was changed before this command was sent the filter may lack.
    filter_barred: u64,
    /// Answers that were given out and are not here any more.
    dropped: VecDeque<Dropped>,
}

impl Cache {
    /// Of objects with so many entries at most, in a cluster with this seed.
    pub(crate) fn new(config: CacheConfig, (entries, seed): (u64, u64)) -> Self {
        Self {
            config,
            filter: config.has_filter.then(|| Filter::new(entries, seed)),
            kept: Vec::new(),
            places: HashMap::new(),
            free: Vec::new(),
            hand: 0,
            fresh_us: 0,
            is_connected: false,
            sent: 0,
            answered: 0,
            answered_us: 0,
            under_way: VecDeque::new(),
            heard: 0,
            barred: HashMap::new(),
            bars: VecDeque::new(),
            all_barred: 0,
            filter_barred: 0,
            dropped: VecDeque::new(),
        }
    }

    /// Answers that are here.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// There is a connection, which has read nothing.
    pub(crate) fn connected(&mut self) {
        self.is_connected = true;
        self.filter.iter_mut().for_each(Filter::connected);
        if !mutant::active(Mutant::KeptOverConnections) {
            self.clear();
        }
    }

    /// The connection is lost: what is changed from now on is not heard of.
    pub(crate) fn lost(&mut self) {
        self.is_connected = false;
        self.filter.iter_mut().for_each(Filter::lost);
        (self.answered, self.answered_us) = (self.sent, 0);
        self.under_way.clear();
        self.lift_bars();
    }

    pub(crate) fn clear(&mut self) {
        self.drop_given(None);
        self.kept.clear();
        self.places.clear();
        self.free.clear();
        self.hand = 0;
    }

    /// Whether it gives anything out while the store is away.
    pub(crate) fn serves_away(&self) -> bool {
        !self.config.staleness_away.is_zero()
    }

    /// Whether all that is here is so now, or was so within the staleness.
    pub(crate) fn is_fresh(&self, now_us: u64) -> bool {
        let staleness = match self.is_connected {
            true => self.config.staleness,
            false => self.config.staleness_away,
        };
        let age_us = u128::from(now_us.saturating_sub(self.fresh_us));
        !is_too_old(age_us, staleness)
    }

    /// The answer to a read by this key, if it may be given out: to an instance that may keep its entry until it is dropped.
    pub(crate) fn give(
        &mut self,
        (key, read): (&[u8], Dropped),
        now: (u64, Tick),
    ) -> Option<Found<'_>> {
        if let Some(&place) = self.places.get(key) {
            self.kept[place].given = Some(read);
        }
        self.get(key, now)
    }

    /// What was given out and is not so any more, or may not be.
    pub(crate) fn next_dropped(&mut self) -> Option<Dropped> {
        self.dropped.pop_front()
    }

    /// What was given out of a place is here no more; `None`: of all.
    fn drop_given(&mut self, place: Option<usize>) {
        if mutant::active(Mutant::GivenNotDropped) {
            return;
        }
        match place {
            Some(place) => self.dropped.extend(self.kept[place].given.take()),
            None => {
                self.dropped.clear();
                self.dropped.push_back(Dropped::All);
            }
        }
    }

    /// The answer to a read by this key, if it may be given out.
    pub(crate) fn get(&mut self, key: &[u8], (now_us, tick): (u64, Tick)) -> Option<Found<'_>> {
        if !self.is_fresh(now_us) {
            return None;
        }
        let Some(&place) = self.places.get(key) else {
            let filter = self.filter.as_ref();
            let filter = filter.filter(|_| self.heard > self.filter_barred);
            return (filter?.lacks(key)).then_some(Found::Absent);
        };
        if self.kept[place].has_ended(tick) {
            self.remove(key);
            return None;
        }
        let kept = &mut self.kept[place];
        kept.is_used = true;
        Some(Found::Kept(&kept.answer))
    }

    /// A command was sent.
    pub(crate) fn command_sent(&mut self) {
        self.sent += 1;
        if self.filter.is_some() {
            self.under_way.push_back((self.answered, self.answered_us));
        }
    }

    /// The next command is answered, which was sent at this time.
    pub(crate) fn command_answered(&mut self, sent_us: u64) {
        self.answered += 1;
        self.answered_us = sent_us;
        let (heard, heard_us) = match self.filter {
            None => (self.answered, sent_us),
            Some(_) => self.under_way.pop_front().unwrap_or_default(),
        };
        self.heard = self.heard.max(heard);
        self.fresh_us = self.fresh_us.max(heard_us);
    }

    /// No more answers to what was answered last come.
    pub(crate) fn lift_bars(&mut self) {
        while let Some((number, _)) = self.bars.front()
            && *number <= self.answered
        {
            let Some((number, key)) = self.bars.pop_front() else {
                return;
            };
            if self.barred.get(&key) == Some(&number) {
                self.barred.remove(&key);
            }
        }
    }

    /// Keeps the answer to the command that was answered last.
    pub(crate) fn keep(&mut self, key: Vec<u8>, answer: &[u8], through: Tick) {
        let bar = self.barred.get(&key).copied().unwrap_or_default();
        let is_barred = bar.max(self.all_barred) >= self.answered;
        if answer.len() > ANSWER_BYTES_MAX || is_barred {
            return;
        }
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => self.room(),
        };
        self.drop_given(Some(place));
        let kept = &mut self.kept[place];
        kept.answer.clear();
        kept.answer.extend(answer);
        kept.through = through;
        kept.is_used = false;
        if kept.key != key {
            kept.key.clone_from(&key);
            self.places.insert(key, place);
        }
    }

    /// A place for one more.
    fn room(&mut self) -> usize {
        if let Some(place) = self.free.pop() {
            return place;
        }
        if self.kept.len() < self.config.entries.max(1) {
            self.kept.push(Entry::default());
            return self.kept.len() - 1;
        }
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.kept.len();
            let kept = &mut self.kept[place];
            if !core::mem::take(&mut kept.is_used) {
                let key = core::mem::take(&mut kept.key);
                self.places.remove(&key);
                self.drop_given(Some(place));
                return place;
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(place) = self.places.remove(key) {
            self.drop_given(Some(place));
            self.kept[place].key.clear();
            self.free.push(place);
        }
    }

    /// The store says that a key has changed; `None`: all may have.
    pub(crate) fn changed(&mut self, key: Option<&[u8]>) {
        if mutant::active(Mutant::ChangesUnheard) {
            return;
        }
        match key {
            Some(key) => {
                self.remove(key);
                self.add_announced(key);
            }
            None => {
                self.clear();
                self.filter.iter_mut().for_each(Filter::all_changed);
            }
        }
    }

    fn add_announced(&mut self, key: &[u8]) {
        if let Some(filter) = &mut self.filter
            && !mutant::active(Mutant::AnnouncedNotAdded)
        {
            filter.add(key);
        }
    }

    /// This client has changed keys, or has learnt that they are otherwise.
    pub(crate) fn bar(&mut self, changed: &[Vec<u8>], keys: &Keys) {
        let mut objects = 0_u64;
        for key in changed {
            self.bar_key(key);
            objects |= keys.object_of(key).map_or(0, |object| 1 << (object % 64));
        }
        if self.filter.is_some() {
            let objects = (0..u64::BITS as u8).filter(|object| objects >> object & 1 != 0);
            objects.for_each(|object| self.add(&keys.of_ends(object)));
        }
    }

    /// This client has a key in the store.
    fn add(&mut self, key: &[u8]) {
        if let Some(filter) = &mut self.filter
            && !mutant::active(Mutant::OwnWriteNotAdded)
        {
            filter.add(key);
        }
    }

    fn bar_key(&mut self, key: &[u8]) {
        if mutant::active(Mutant::OwnWriteNotBarred) {
            return;
        }
        self.remove(key);
        self.add(key);
        if self.bars.len() >= BARS_MAX {
            self.bars.clear();
            self.barred.clear();
            self.all_barred = self.sent;
        }
        if self.is_connected && self.answered < self.sent {
            self.barred.insert(key.to_vec(), self.sent);
            self.bars.push_back((self.sent, key.to_vec()));
        }
    }

    /// This client has changed keys that it does not know any more.
    pub(crate) fn bar_all(&mut self) {
        self.clear();
        (self.all_barred, self.filter_barred) = (self.sent, self.sent);
    }

    /// Goes on with the filter: writes a command, if one is due.
    pub(crate) fn write_filter(
        &mut self,
        now_us: u64,
        keys: &Keys,
        out: &mut Vec<u8>,
    ) -> Option<Piece> {
        self.filter.as_mut()?.write(now_us, keys, out)
    }

    /// The reply to such a command, which was sent at this time. False if it is none.
    pub(crate) fn filter_reply(&mut self, piece: Piece, value: &Value<'_>, sent_us: u64) -> bool {
        let mut filter = self.filter.iter_mut();
        filter.all(|filter| filter.reply(piece, value, sent_us))
    }

    /// Whether a key that is not there was asked for since the filter may have it.
    pub(crate) fn is_in_vain(&self, key: &[u8]) -> bool {
        let mut filter = self.filter.iter();
        filter.any(|filter| filter.is_complete() && !filter.lacks(key))
    }

    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// When something is to be asked for, so that what is here may be given out on and on, if the last command was sent at this time.
    pub(crate) fn ping_due_us(&self, sent_us: u64) -> Option<u64> {
        let quarter = self.config.staleness / 4;
        let gives_out = !self.places.is_empty() || self.filter.is_some();
        gives_out.then(|| sent_us + quarter.as_micros() as u64)
    }
}
