//! Token buckets by key, which all instances spend from.

mod in_store;

use core::cell::{Cell, RefCell};
use core::ops::Range;
use std::collections::HashMap;
use std::rc::Rc;

use asterism_memory::prefetch_hints::PrefetchHints;
use asterism_token_buckets::{Bounds, BoundsOf, Levels, Rates, TokenRate};
use asterism_windows::{Ring, Window, read_bucket};

use self::in_store::InStore;
use super::keyed::Keyed;
use super::timed::{ADVANCE, TimedWriterCounters};
use super::windowed_counters::{digest, hash_key, write_key};
use super::{Writing, late, read_cell, read_saved, read_writing};
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, GRANTS_PER_PACKET_MAX, Late, Tick, late_answer};
use crate::map::Key;
use crate::mutant::{self, Mutant};
use crate::object::{
    Audit, Inspect, ObjectSettings, Part, PerPacket, Replicate, Since, Snapshot, Sweep, Writable,
};
use crate::recording::{ADDS, BEGINS};
use crate::shown::{Filled, Shown};
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, Reader, Writer};
use asterism_object_counts::{ObjectCount, ObjectCounts};

/// Bytes of a flush for each key of which what was spent is counted: what telling it takes, about. Who counts more than can be reported
/// makes a turn long for nothing.
const COUNTED_BYTES: usize = 10;
/// Keys that a flush may count in a turn, however few bytes it has.
const COUNTED_MIN: usize = 1024;

/// How the instances of a cluster spend from one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spending {
    /// Each from the whole bucket, as far as it knows what the others spent. Over any time `t`, `n` instances together spend at
    /// most burst + rate × `t`, and (`n` - 1) × (burst + rate × delay) more, where delay is the time from spending to being known
    /// everywhere, up to a second.
    Approximate,
    /// Each from an equal share that is leased to it by its place in the member list. Never more than burst + rate × `t` together,
    /// whatever is delayed, lost or restarted; but an instance that most of a key's packets come to has no more than its share.
    Escrow,
}

/// A token bucket for each key, for policing rates (RFC 2697 calls it a meter): refills at a rate, up to a burst, and a packet
/// passes if it has as many tokens as the packet costs. A key that nobody spends for is forgotten after its bucket is full. All refill
/// at one rate, or some at their own, with `R` as [`TokenRates`](super::TokenRates).
#[derive(Debug)]
pub struct TokenBucket<K: Key, R: Rates<K> = TokenRate> {
    context: Rc<Context>,
    object: u8,
    late_us: u32,
    keys: Keyed<K>,
    bounds: R::Bounds,
    levels: Levels,
    /// What each instance spent, for those that spend from the whole bucket.
    spent: Option<TimedWriterCounters>,
    /// The same where a store has it.
    in_store: Box<InStore<K>>,
    /// Keys of which something is noted beside their level that is not in `spent` yet, each once, here or in `counting`.
    noted: Vec<u32>,
    /// Of those that were noted when a flush of all began, the ones that it has not counted yet: what is noted while it goes on
    /// waits for the next one, so that it ends.
    counting: Vec<u32>,
    /// Those of them, and others, whose bucket was more than half empty when something was spent, each once: others must know soon.
    short: Vec<u32>,
    promised: RefCell<Promised<K>>,
    /// Tokens that undecided transactions spend, by the hash of their key.
    undecided: HashMap<u64, u64>,
    /// Shares begin empty when the instance does: what its former incarnation spent of them is not known.
    begins_empty: bool,
    began_us: Cell<Option<u64>>,
    refused: Cell<u64>,
    written_off: u64,
}

/// Tokens of a bucket: got while asking, spent by [`TokenBucketAct::spend`]. They stay in the bucket if they are not.
#[derive(Debug)]
#[must_use = "tokens that are not spent stay in the bucket"]
pub struct Tokens<K> {
    number: Option<u32>,
    key: K,
    count: u64,
}

/// What a call was promised and has not spent yet.
#[derive(Debug)]
struct Promised<K> {
    turn: u64,
    /// What undecided transactions spend of the key that the call read last.
    undecided: u64,
    of: [Option<(K, u64)>; GRANTS_PER_PACKET_MAX],
}

impl<K> Promised<K> {
    /// What an earlier call was promised is void.
    #[inline(always)]
    fn renew(&mut self, turn: u64)
    where
        K: Copy,
    {
        if self.turn != turn {
            *self = Self {
                turn,
                undecided: 0,
                of: [None; GRANTS_PER_PACKET_MAX],
            };
        }
    }
}

/// What happened to token buckets, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenTally {
    /// Asked for and not given: too few tokens in the bucket, no room for another key, or too many asked for by one packet.
    pub refused: u64,
    /// Tokens that others spent so long ago that they are not paid back.
    pub written_off: u64,
    /// Keys of others that found no room, which leases should make impossible.
    pub refused_full: u64,
}

impl<K: Key, R: Rates<K>> TokenBucket<K, R> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        (rates, spending): (R, Spending),
    ) -> Self {
        let rates = if mutant::active(Mutant::OneRateForAll) {
            rates.common()
        } else {
            rates
        };
        let instances = if settings.is_replicated() {
            context.identity().share().1
        } else {
            1
        };
        let (shares, is_reported) = match spending {
            Spending::Approximate => (1, settings.is_replicated()),
            Spending::Escrow => (instances, false),
        };
        let keys = Keyed::new(context.clone(), &settings, is_reported);
        let spent = is_reported.then(|| {
            // As long as the slowest empty bucket takes to fill: older spending does not matter any more.
            let window = Window {
                buckets: 1,
                bucket_seconds: Tick::try_from(rates.fills_seconds()).unwrap_or(Tick::MAX),
            };
            let size = (keys.room(), Ring::new(window));
            TimedWriterCounters::new(context.clone(), object, &settings, size)
        });
        let room = spent.as_ref().map_or(0, |_| keys.room() as usize);
        let is_remote = settings.is_remote();
        let in_store = is_remote.then_some(keys.room());
        let in_store = InStore::new((&context, object), (&rates, spending), in_store);
        let instances = match is_remote {
            true => in_store::INSTANCES_MAX,
            false => instances,
        };
        Self {
            in_store: Box::new(in_store),
            bounds: rates.bounds((instances, shares), keys.room()),
            levels: Levels::new(keys.room()),
            context,
            object,
            late_us: settings.late_us,
            keys,
            noted: Vec::with_capacity(room),
            counting: Vec::with_capacity(room),
            short: Vec::with_capacity(room),
            spent,
            promised: RefCell::new(Promised {
                turn: 0,
                undecided: 0,
                of: [None; GRANTS_PER_PACKET_MAX],
            }),
            undecided: HashMap::new(),
            begins_empty: settings.is_replicated() && spending == Spending::Escrow,
            began_us: Cell::new(None),
            refused: Cell::new(0),
            written_off: 0,
        }
    }

    /// So many tokens of the key's bucket, for a packet to pass: `None` if it does not have them, or if there is no room for
    /// another key. At most four for a packet. Costs a cache line for the key, one for its number and one for the level; with rates
    /// by key one more.
    #[inline(always)]
    pub fn tokens(&self, key: &K, count: u64) -> Result<Option<Tokens<K>>, Late> {
        let number = self.query(key)?;
        let bounds = self.bounds_of(number, key);
        let debt = self.debt(number, bounds);
        let given = (number.is_some() || self.keys.may_start(self.object)?)
            && self.promise(key, (bounds, debt), count);
        if !given {
            self.refused.set(self.refused.get() + 1);
        }
        Ok(given.then_some(Tokens {
            number,
            key: *key,
            count,
        }))
    }

    /// Tokens of a key that undecided transactions spend: they are no other packet's until these are refused.
    fn undecided(&self, hash: u64) -> u64 {
        if self.undecided.is_empty() || mutant::active(Mutant::PromisedTokensGiven) {
            return 0;
        }
        self.undecided.get(&hash).copied().unwrap_or_default()
    }

    /// Whole tokens that the key's bucket has for this instance, as far as it is known here.
    pub fn available(&self, key: &K) -> Result<u64, Late> {
        let number = self.query(key)?;
        let bounds = self.bounds_of(number, key);
        let debt = self.debt(number, bounds);
        let undecided = self.undecided(self.keys.hash(key));
        Ok(bounds.tokens(bounds.spent(debt, undecided)))
    }

    /// Keys that have a bucket: those of which something is missing, and those that are full and not forgotten yet.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.keys.count()
    }

    /// What happened so far.
    pub fn tally(&self) -> TokenTally {
        TokenTally {
            refused: self.refused.get(),
            written_off: self.written_off,
            refused_full: self.keys.refused_full(),
        }
    }

    #[inline(always)]
    fn query(&self, key: &K) -> Result<Option<u32>, Late> {
        let hash = self.keys.hash(key);
        if !self.context.answers_plainly() {
            self.ahead((key, hash))?;
        }
        Ok(self.keys.find(key, hash))
    }

    #[cold]
    fn ahead(&self, (key, hash): (&K, u64)) -> Result<(), Late> {
        if self.context.is_prefetching() {
            self.keys.prefetch(self.object, hash);
            return Err(late_answer());
        }
        match self.in_store.known.is_some() {
            true => self.answered((key, hash))?,
            false => late(&self.context, self.object, hash, self.late_us)?,
        }
        // While there are any, all reads come here.
        let mut promised = self.promised.borrow_mut();
        promised.renew(self.context.turn());
        promised.undecided = self.undecided(hash);
        Ok(())
    }

    #[inline(always)]
    fn bounds_of(&self, number: Option<u32>, key: &K) -> &Bounds {
        number.map_or_else(|| self.bounds.of_key(key), |number| self.bounds.of(number))
    }

    #[inline(always)]
    fn debt(&self, number: Option<u32>, bounds: &Bounds) -> u64 {
        let arrived_us = self.context.arrived_us();
        match number {
            Some(number) => self.levels.debt(number, bounds, arrived_us),
            None => self.debt_of_new(bounds, arrived_us),
        }
    }

    /// What is missing in a bucket that begins now.
    #[cold]
    fn debt_of_new(&self, bounds: &Bounds, now_us: u64) -> u64 {
        let empty_at_us = self.begins_empty.then(|| self.began_us(now_us));
        bounds.debt_of_new(empty_at_us, now_us)
    }

    /// When this instance first knew the time.
    fn began_us(&self, now_us: u64) -> u64 {
        let began_us = self.began_us.get().unwrap_or(now_us);
        self.began_us.set(Some(began_us));
        began_us
    }

    /// Whether the bucket has the tokens besides those that this call was promised already, and undecided ones: then these are, too.
    #[inline]
    fn promise(&self, key: &K, (bounds, debt): (&Bounds, u64), count: u64) -> bool {
        let mut promised = self.promised.borrow_mut();
        promised.renew(self.context.turn());
        let of_key = promised.of.iter().flatten();
        let before = of_key
            .filter(|(of, _)| of == key)
            .fold(promised.undecided, |sum, &(_, count)| {
                sum.saturating_add(count)
            });
        let given = bounds.has(debt, before, count);
        match promised.of.iter_mut().find(|of| of.is_none()) {
            Some(free) if given => {
                *free = Some((*key, count));
                true
            }
            _ => false,
        }
    }

    /// Whether a flush reports buckets that are at least half full.
    fn reports_calm(&self) -> bool {
        !self.context.is_patient() && !mutant::active(Mutant::CalmNeverReported)
    }

    /// Counts what was noted, in the second that it is: of buckets that were more than half empty, or of `all`; of `most` keys of
    /// either kind. Whether none is left.
    fn count_noted(&mut self, all: bool, most: usize) -> bool {
        let Some(spent) = &mut self.spent else {
            return true;
        };
        let tick = self.context.tick();
        let mut count = |number, count| {
            // The ring moves on only with what others are informed of.
            if count > 0
                && let Some(bucket) = spent.ring.add_at(tick)
            {
                spent.add(number, bucket, count);
            }
        };
        for number in self.short.drain(self.short.len().saturating_sub(most)..) {
            count(number, self.levels.take_short(number));
        }
        if !all {
            return self.short.is_empty();
        }
        if self.counting.is_empty() {
            core::mem::swap(&mut self.counting, &mut self.noted);
        }
        let from = self.counting.len().saturating_sub(most);
        for number in self.counting.drain(from..) {
            count(number, self.levels.take_noted(number));
        }
        self.short.is_empty() && self.counting.is_empty()
    }

    /// The number of a key, whose bucket begins now if it is new.
    fn start(&mut self, key: K, is_own: bool, now_us: u64) -> Option<u32> {
        let (number, is_new) = self.keys.start(key, is_own)?;
        if is_new {
            self.bounds.begin(number, &key);
            let debt = self.debt_of_new(self.bounds.of(number), now_us);
            self.levels.begin(number, debt, now_us);
        }
        Some(number)
    }

    /// Spends for a key that is not known to have a number; of a call that is recorded, the spending is recorded instead.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, key: K, was_known: bool, count: u64) {
        let arrived_us = self.context.arrived_us();
        if !self.keys.is_recording() {
            return self.take_for(key, (count, arrived_us));
        }
        if count == 0 {
            return;
        }
        let kind = if was_known { ADDS } else { BEGINS };
        self.context.record_addition(self.object, kind, |out| {
            key.encode(out);
            out.varint(count);
            out.varint(arrived_us);
            out.u32(self.context.arrived_tick());
        });
    }

    fn take_for(&mut self, key: K, (count, arrived_us): (u64, u64)) {
        if let Some(number) = self.start(key, true, arrived_us) {
            self.take(number, (count, arrived_us));
        }
    }

    #[inline(always)]
    fn take(&mut self, number: u32, (count, arrived_us): (u64, u64)) {
        let bounds = self.bounds.of(number);
        let debt = self.levels.spend(number, bounds, (count, arrived_us));
        if self.spent.is_some() && count > 0 {
            if self.levels.note(number, count) {
                self.noted.push(number);
            }
            if bounds.is_short(debt) && self.levels.hurry(number) {
                self.short.push(number);
            }
        }
    }

    /// What another instance spent in a time bucket, in all.
    fn learn(
        &mut self,
        key: K,
        writing: Writing,
        (bucket, total): (u32, u64),
    ) -> Result<(), BadBytes> {
        let now_us = self.context.now_us();
        let spent = self.spent.as_mut().ok_or(BadBytes)?;
        let Some(writing) = spent.writer(writing)? else {
            return Ok(());
        };
        if !spent.accept(bucket) || total == 0 {
            return Ok(());
        }
        let Some(number) = self.start(key, false, now_us) else {
            return Ok(());
        };
        if let Some(spent) = &mut self.spent {
            let place = (number, self.keys.hash(&key));
            let count = spent.learn(writing, place, (bucket, total));
            let owed = if mutant::active(Mutant::OthersNotOwed) {
                0
            } else {
                count
            };
            let bounds = self.bounds.of(number);
            let (debt, written_off) = self.levels.owe(number, bounds, (owed, now_us));
            if bounds.is_short(debt) && self.levels.hurry(number) {
                self.short.push(number);
            }
            self.written_off = self.written_off.saturating_add(written_off);
        }
        Ok(())
    }
}

/// Whether a flush that reports full buckets or not, `with_calm`, reports those that are more than half empty: any flush does.
fn reports_short(with_calm: bool) -> bool {
    with_calm || !mutant::active(Mutant::ShortWaits)
}

/// The writes of a [`TokenBucket`].
#[derive(Debug)]
pub struct TokenBucketAct<'a, K: Key, R: Rates<K> = TokenRate>(&'a mut TokenBucket<K, R>);

impl<K: Key, R: Rates<K>> TokenBucketAct<'_, K, R> {
    /// Spends the tokens. Others know of it after the flush interval and the lag, where they spend from the same bucket.
    #[inline(always)]
    pub fn spend(&mut self, tokens: Tokens<K>) {
        let Self(buckets) = self;
        let Tokens { number, key, count } = tokens;
        match number.filter(|&number| buckets.keys.key(number) == Some(&key)) {
            Some(number) => buckets.take(number, (count, buckets.context.arrived_us())),
            None => buckets.begin(key, number.is_some(), count),
        }
    }
}

impl<K: Key, R: Rates<K> + 'static> Writable for TokenBucket<K, R> {
    type Act<'a> = TokenBucketAct<'a, K, R>;

    fn act(&mut self) -> TokenBucketAct<'_, K, R> {
        TokenBucketAct(self)
    }
}

impl<K: Key, R: Rates<K> + 'static> Replicate for TokenBucket<K, R> {
    fn apply(&mut self, flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        if flags & ADVANCE != 0 {
            return self.spent.as_mut().ok_or(BadBytes)?.advance(flags, input);
        }
        let writing = read_writing(input, stamp)?;
        let key = K::decode(input)?;
        let total = (read_bucket(input)?, input.varint()?);
        self.learn(key, writing, total)
    }
    /// While a bucket is at least half full, nobody decides by what others spent from it: a patient flush leaves it out. Of a great
    /// many keys it takes as many turns as telling them does.
    fn flush(&mut self, bytes: &mut usize) -> bool {
        let with_calm = self.reports_calm();
        let most = (*bytes / COUNTED_BYTES).max(COUNTED_MIN);
        let is_counted = !reports_short(with_calm) || self.count_noted(with_calm, most);
        let keys = &self.keys;
        let Some(spent) = &mut self.spent else {
            return true;
        };
        let name = |number, out: &mut Writer<'_>| write_key(keys, number, out);
        spent.flush(bytes, name, |number| hash_key(keys, number)) && is_counted
    }
}

impl<K: Key, R: Rates<K> + 'static> Sweep for TokenBucket<K, R> {
    fn sweep(&mut self, records: u32) -> u32 {
        if let Some(spent) = &mut self.spent {
            spent.keep_up();
        }
        self.in_store.keep_up(self.context.tick());
        let now_us = self.context.now_us();
        self.began_us(now_us);
        let (levels, bounds, undecided) = (&self.levels, &self.bounds, &self.undecided);
        let (spent, in_store) = (&self.spent, &self.in_store);
        let (seed, tick) = (self.context.seed(), self.context.tick());
        self.keys.sweep(records, |number, key| {
            levels.debt(number, bounds.of(number), now_us) == 0
                && !levels.is_noted(number)
                && spent.as_ref().is_none_or(|spent| spent.is_empty(number))
                && in_store.may_forget(number, tick)
                && (undecided.is_empty() || !undecided.contains_key(&key.hash(seed)))
        })
    }
    fn sweep_length(&self) -> u32 {
        self.keys.used().max(1)
    }
    /// Of what was spent: levels are each instance's own view.
    fn origins_named(&self, _: u32, _: u32, named: &mut NamedOrigins) -> Option<u32> {
        if let Some(spent) = &self.spent {
            spent.origins_named(named);
        }
        None
    }
}

impl<K: Key, R: Rates<K> + 'static> Audit for TokenBucket<K, R> {
    fn tells_own(&self) -> bool {
        true
    }
    /// Of what was spent: levels are each instance's own view.
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        let spent = self.spent.as_ref();
        spent.is_some_and(|spent| spent.leaves(first, out))
    }
    fn announced(&self) -> u64 {
        let name = |number| hash_key(&self.keys, number);
        let spent = self.spent.as_ref();
        spent.map_or(0, |spent| spent.announced(self.keys.used(), name))
    }
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        let (keys, range) = (&self.keys, (cursor, records, self.keys.used()));
        let name = |number| hash_key(keys, number);
        let spent = self.spent.as_mut();
        spent.map_or((None, 0), |spent| spent.tell_again(leaves, range, name))
    }
    fn digest(&self) -> u64 {
        let spent = self.spent.as_ref();
        spent.map_or(0, |spent| digest(&self.keys, spent, &self.context))
    }
}

impl<K: Key, R: Rates<K> + 'static> Snapshot for TokenBucket<K, R> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        let name = |number, out: &mut Writer<'_>| write_key(&self.keys, number, out);
        let used = self.keys.used();
        let spent = self.spent.as_ref()?;
        spent.snapshot(cursor, used, part, name)
    }
    fn apply_snapshot(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        if flags & ADVANCE != 0 {
            return self.spent.as_mut().ok_or(BadBytes)?.advance(flags, input);
        }
        let key = K::decode(input)?;
        let bucket = read_bucket(input)?;
        let (writing, total, _) = read_cell(&self.context, input)?;
        self.learn(key, writing, (bucket, total))
    }
    /// What was saved is owed here, and reported as spent by this instance.
    fn restore(
        &mut self,
        flags: u8,
        input: &mut Reader<'_>,
        since: &Since,
    ) -> Result<bool, BadBytes> {
        if flags & ADVANCE != 0 {
            read_bucket(input)?;
            return Ok(false);
        }
        let key = K::decode(input)?;
        let bucket = read_bucket(input)?;
        let total = read_saved(input)?;
        let (tick, now_us) = (self.context.tick(), self.context.now_us());
        let Some(spent) = &mut self.spent else {
            return Ok(false);
        };
        let bucket = spent.ring.restored(bucket, since.times(), tick);
        let Some(bucket) = bucket.filter(|&bucket| total > 0 && spent.ring.accept(bucket, tick))
        else {
            return Ok(false);
        };
        let Some(number) = self.start(key, false, now_us) else {
            return Ok(false);
        };
        let bounds = self.bounds.of(number);
        self.levels.owe(number, bounds, (total, now_us));
        if let Some(spent) = &mut self.spent {
            spent.add(number, bucket, total);
        }
        Ok(true)
    }
}

impl<K: Key, R: Rates<K> + 'static> Inspect for TokenBucket<K, R> {
    /// What this instance may spend now, and of how much: with [`Spending::Escrow`], of its share.
    fn show(&self, cursor: u32, records: u32, each: &mut dyn FnMut(&Shown<'_>)) -> Option<u32> {
        let (levels, now_us) = (&self.levels, self.context.now_us());
        self.keys.each_from((cursor, records), |number, key| {
            let bounds = self.bounds.of(number);
            let debt = levels.debt(number, bounds, now_us);
            let filled = Filled {
                tokens: bounds.tokens(debt),
                tokens_max: bounds.tokens(0),
                is_short: bounds.is_short(debt),
            };
            each(&Shown {
                key,
                value: &filled,
                provenance: None,
            });
        })
    }
    fn capacity(&self) -> u32 {
        self.keys.capacity()
    }
    fn counts(&self) -> ObjectCounts {
        let tally = self.tally();
        ObjectCounts::default()
            .with(ObjectCount::Refused, tally.refused)
            .with(ObjectCount::RefusedFull, tally.refused_full)
            .with(ObjectCount::WrittenOff, tally.written_off)
    }
    fn entries(&self) -> usize {
        self.keys.count() as usize
    }
}

impl<K: Key, R: Rates<K> + 'static> PerPacket for TokenBucket<K, R> {
    fn prefetch_records(&self, prefetch_hints: &PrefetchHints, packets: Range<usize>) -> usize {
        self.keys.prefetch_each(prefetch_hints, packets, |number| {
            self.levels.prefetch(number);
            self.bounds.prefetch(number);
        })
    }
    fn outgrew_cache(&self, cache_bytes: usize) -> bool {
        let of_cells = |spent: &TimedWriterCounters| spent.bytes_of(self.keys.used());
        let in_store = self.in_store.known.as_ref();
        self.keys.bytes_in_use()
            + self.keys.used() as usize * (Levels::BYTES + R::Bounds::BYTES)
            + self.spent.as_ref().map_or(0, of_cells)
            + in_store.map_or(0, |known| known.bytes_of(self.keys.used()))
            > cache_bytes
    }
    fn settle(&self) {
        self.keys.settle();
        let mut promised = self.promised.borrow_mut();
        (promised.undecided, promised.of) = (0, [None; GRANTS_PER_PACKET_MAX]);
    }
}
