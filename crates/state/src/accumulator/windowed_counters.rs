//! Sums by key over the last while.

use core::ops::Range;
use std::rc::Rc;

use asterism_memory::prefetch_hints::PrefetchHints;
use asterism_windows::{Ring, Window, WindowTally, read_bucket};

use super::in_store::InStore;
use super::keyed::Keyed;
use super::timed::{ADVANCE, LISTED, TimedWriterCounters, too_many_buckets};
use super::{Tally, Writing, late, read_cell, read_saved, read_writing};
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, LANE_CELLS, Late, Query, Tick, late_answer};
use crate::map::Key;
use crate::object::{
    Addition, Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since,
    Snapshot, Sweep, Writable,
};
use crate::recording::{ADDS, BEGINS, committed_at};
use crate::shown::{Recent, Shown};
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{
    BadBytes, KeySums, Reader, SumsAsked, SumsRead, Writer, amount_in_store, append_sum,
};
use asterism_object_counts::{ObjectCount, ObjectCounts};

/// A counter for each key that forgets: what was added in the last so many buckets of time, over all instances. Keys of which no
/// bucket holds anything any more are forgotten, and their room is free.
#[derive(Debug)]
pub struct WindowedCounters<K: Key> {
    context: Rc<Context>,
    object: u8,
    late_us: u32,
    capacity: u32,
    keys: Keyed<K>,
    writer_counters: TimedWriterCounters,
    /// The function lists sums, and does not only ask for those of single keys.
    is_listed: bool,
    stored: Option<InStore<K>>,
    /// What a store was said to have, some seconds ago, or to be shown.
    known: KeySums<K>,
}

impl<K: Key> WindowedCounters<K> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        window: Window,
    ) -> Self {
        let capacity = settings.capacity;
        let settings = settings.without_room_in_store();
        let mut keys = Keyed::new(context.clone(), &settings, settings.is_replicated());
        let size = (keys.room(), Ring::new(window));
        let writer_counters = TimedWriterCounters::new(context.clone(), object, &settings, size);
        if settings.is_remote() {
            context.expect_written_unread(object);
            keys.begin_recording();
        }
        Self {
            context,
            object,
            late_us: settings.late_us,
            capacity,
            keys,
            writer_counters,
            is_listed: false,
            stored: settings.is_remote().then(InStore::default),
            known: KeySums::default(),
        }
    }

    /// The same whose sums the function lists, by [`WindowedCounters::for_each_at`]: it cannot be in a store.
    #[must_use]
    pub fn listed(mut self) -> Self {
        self.is_listed = true;
        self
    }

    /// The key's counter: found, or about to be started by the first `add`. `None` when there is no room for another key.
    #[inline(always)]
    pub fn find(&self, key: &K) -> Result<Option<Tally<K>>, Late> {
        let hash = self.keys.hash(key);
        if !self.context.answers_plainly() {
            if let Some(stored) = &self.stored {
                return self.find_there(stored, (key, hash));
            }
            self.ahead(hash)?;
        }
        let number = self.keys.find(key, hash);
        let total = number.map_or(0, |number| self.sum(number));
        let found = number.is_some() || self.keys.may_start(self.object)?;
        Ok(found.then_some(Tally {
            number,
            key: *key,
            total,
        }))
    }

    /// The sum for a key over the window that ends at the packet's arrival, as far as it is known here; 0 if it has no counter.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Result<u64, Late> {
        let hash = self.keys.hash(key);
        if !self.context.answers_plainly() {
            if let Some(stored) = &self.stored {
                self.answered((key, hash), SumsAsked::Whole)?;
                return Ok(stored.sum(key));
            }
            self.ahead(hash)?;
        }
        let number = self.keys.find(key, hash);
        Ok(number.map_or(0, |number| self.sum(number)))
    }

    /// Whether the store said what the sum for a key is in the window that ends at the packet's arrival.
    #[cold]
    fn answered(&self, (key, hash): (&K, u64), asked: SumsAsked) -> Result<(), Late> {
        let buckets = self
            .writer_counters
            .ring
            .read_at(self.context.arrived_tick());
        // A call may ask for a key in both ways.
        let hash = hash ^ asked as u64;
        self.context
            .answered((self.object, LANE_CELLS, hash), |out| {
                let mut field = Vec::new();
                key.encode(&mut Writer::new(&mut field, self.context.addresses()));
                SumsRead::write_of(out, buckets, asked, [field]);
            })
    }

    /// [`WindowedCounters::find`] in a store, which is asked for the sum and for room at once.
    #[cold]
    fn find_there(
        &self,
        stored: &InStore<K>,
        (key, hash): (&K, u64),
    ) -> Result<Option<Tally<K>>, Late> {
        self.answered((key, hash), SumsAsked::WithKeys)?;
        Ok(stored.find(key))
    }

    /// What was not taken up.
    pub fn tally(&self) -> WindowTally {
        self.writer_counters.ring.tally
    }

    /// Keys of others that found no room, which leases should make impossible.
    pub fn refused_full(&self) -> u64 {
        self.keys.refused_full()
    }

    /// Calls `each` for every key and its sum over the window that ends now, if there is any; for control-plane use. In a store as of some
    /// seconds ago, and none while there may be more than 4,096 keys there.
    pub fn for_each(&self, mut each: impl FnMut(&K, u64)) {
        self.known.iter().for_each(|(key, sum)| each(key, *sum));
        for number in 0..self.keys.used() {
            let sum = self.writer_counters.sum(number, self.context.tick());
            if let Some(key) = self.keys.key(number)
                && sum > 0
            {
                each(key, sum);
            }
        }
    }

    /// Looks at up to `count` counters from the `cursor`th on, and calls `each` for every key with the sum of all instances in the
    /// one bucket of time that `tick` lies in, if there is any: what was added in an interval that is over, so long as its bucket
    /// is kept. Gives where to go on, `None` at the end; a key that moves meanwhile may be missed or come twice, which those of
    /// kept buckets do not. For control-plane use.
    pub fn for_each_at(
        &self,
        tick: Tick,
        (cursor, count): (u32, u32),
        mut each: impl FnMut(&K, u64),
    ) -> Option<u32> {
        self.keys.each_from((cursor, count), |number, key| {
            let sum = self.writer_counters.sum_at(number, tick);
            if sum > 0 {
                each(key, sum);
            }
        })
    }

    /// A second of each bucket that is kept, the oldest first: what [`WindowedCounters::for_each_at`] can be asked for.
    pub fn kept(&self) -> impl Iterator<Item = Tick> + use<K> {
        self.writer_counters.ring.kept()
    }

    /// The sum for a key in the one bucket that `tick` lies in; 0 if there is none. For control-plane use.
    pub fn sum_at(&self, key: &K, tick: Tick) -> u64 {
        let number = self.keys.find(key, self.keys.hash(key));
        number.map_or(0, |number| self.writer_counters.sum_at(number, tick))
    }

    /// The sum for a key over the window that ends now; 0 if it has no counter. For control-plane use: never late, in a store as of
    /// [`WindowedCounters::for_each`].
    #[must_use]
    pub fn total(&self, key: &K) -> u64 {
        if self.stored.is_some() {
            return self.known.get(key).unwrap_or(0);
        }
        let number = self.keys.find(key, self.keys.hash(key));
        number.map_or(0, |number| {
            self.writer_counters.sum(number, self.context.tick())
        })
    }

    #[inline(always)]
    fn sum(&self, number: u32) -> u64 {
        self.writer_counters
            .sum(number, self.context.arrived_tick())
    }

    #[cold]
    fn ahead(&self, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            self.keys.prefetch(self.object, hash);
            return Err(late_answer());
        }
        late(&self.context, self.object, hash, self.late_us)
    }

    /// Adds for a key that is not known to have a number; of a call that is recorded, the addition is recorded instead.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, key: K, was_known: bool, amount: u64) {
        let arrived = self.context.arrived_tick();
        if !self.keys.is_recording() {
            return self.add_for(key, arrived, amount);
        }
        let kind = if was_known { ADDS } else { BEGINS };
        self.context.record_addition(self.object, kind, |out| {
            key.encode(out);
            out.u32(arrived);
            out.varint(amount);
        });
    }

    fn add_for(&mut self, key: K, tick: Tick, amount: u64) {
        if let Some((number, _)) = self.keys.start(key, true) {
            self.add_at(number, tick, amount);
        }
    }

    #[inline(always)]
    fn add_at(&mut self, number: u32, tick: Tick, amount: u64) {
        if let Some(bucket) = self.writer_counters.ring.add_at(tick) {
            self.writer_counters.add(number, bucket, amount);
        }
    }

    fn learn(
        &mut self,
        key: K,
        writing: Writing,
        (bucket, total): (u32, u64),
    ) -> Result<(), BadBytes> {
        let Some(writing) = self.writer_counters.writer(writing)? else {
            return Ok(());
        };
        if self.writer_counters.accept(bucket)
            && total > 0
            && let Some((number, _)) = self.keys.start(key, false)
        {
            let name = self.keys.hash(&key);
            self.writer_counters
                .learn(writing, (number, name), (bucket, total));
        }
        Ok(())
    }
}

/// The writes of [`WindowedCounters`].
#[derive(Debug)]
pub struct WindowedCountersAct<'a, K: Key>(&'a mut WindowedCounters<K>);

impl<K: Key> WindowedCountersAct<'_, K> {
    /// Adds to the key's counter, in the bucket of the packet's arrival; starts it if it is new. Nothing, but counted, if that
    /// bucket was dropped already. A total of an instance, key and bucket stops at 2⁶⁴ - 1.
    #[inline(always)]
    pub fn add(&mut self, tally: &Tally<K>, amount: u64) {
        // Nothing is no addition: nobody would be informed of the bucket that it moves the ring to.
        if amount == 0 {
            return;
        }
        let Self(counters) = self;
        let Tally { number, key, .. } = *tally;
        match number.filter(|&number| counters.keys.key(number) == Some(&key)) {
            Some(number) => counters.add_at(number, counters.context.arrived_tick(), amount),
            None => counters.begin(key, number.is_some(), amount),
        }
    }
}

impl<K: Key> Writable for WindowedCounters<K> {
    type Act<'a> = WindowedCountersAct<'a, K>;

    fn act(&mut self) -> WindowedCountersAct<'_, K> {
        WindowedCountersAct(self)
    }
}

impl<K: Key> Replicate for WindowedCounters<K> {
    fn apply(&mut self, flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        if flags & ADVANCE != 0 {
            return self.writer_counters.advance(flags, input);
        }
        let writing = read_writing(input, stamp)?;
        let key = K::decode(input)?;
        let total = (read_bucket(input)?, input.varint()?);
        self.learn(key, writing, total)
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        let keys = &self.keys;
        let name = |number, out: &mut Writer<'_>| write_key(keys, number, out);
        self.writer_counters
            .flush(bytes, name, |number| hash_key(keys, number))
    }
}

impl<K: Key> Sweep for WindowedCounters<K> {
    fn sweep(&mut self, records: u32) -> u32 {
        self.writer_counters.keep_up();
        let writer_counters = &self.writer_counters;
        self.keys
            .sweep(records, |number, _| writer_counters.is_empty(number))
    }
    fn sweep_length(&self) -> u32 {
        self.keys.used().max(1)
    }
    fn origins_named(&self, _: u32, _: u32, named: &mut NamedOrigins) -> Option<u32> {
        self.writer_counters.origins_named(named);
        None
    }
}

impl<K: Key> Audit for WindowedCounters<K> {
    fn tells_own(&self) -> bool {
        true
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        self.writer_counters.leaves(first, out)
    }
    fn announced(&self) -> u64 {
        let name = |number| hash_key(&self.keys, number);
        self.writer_counters.announced(self.keys.used(), name)
    }
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        let (keys, range) = (&self.keys, (cursor, records, self.keys.used()));
        self.writer_counters
            .tell_again(leaves, range, |number| hash_key(keys, number))
    }
    fn digest(&self) -> u64 {
        digest(&self.keys, &self.writer_counters, &self.context)
    }
}

impl<K: Key> Snapshot for WindowedCounters<K> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        let name = |number, out: &mut Writer<'_>| write_key(&self.keys, number, out);
        let used = self.keys.used();
        self.writer_counters.snapshot(cursor, used, part, name)
    }
    fn apply_snapshot(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        if flags & ADVANCE != 0 {
            return self.writer_counters.advance(flags, input);
        }
        let key = K::decode(input)?;
        let bucket = read_bucket(input)?;
        let (writing, total, _) = read_cell(&self.context, input)?;
        self.learn(key, writing, (bucket, total))
    }
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
        let ring = &mut self.writer_counters.ring;
        let tick = self.context.tick();
        let Some(bucket) = ring
            .restored(bucket, since.times(), tick)
            .filter(|_| total > 0)
        else {
            return Ok(false);
        };
        if !ring.accept(bucket, tick) {
            return Ok(false);
        }
        let Some((number, _)) = self.keys.start(key, false) else {
            return Ok(false);
        };
        self.writer_counters.add(number, bucket, total);
        Ok(true)
    }
}

impl<K: Key> Inspect for WindowedCounters<K> {
    fn show(&self, cursor: u32, records: u32, each: &mut dyn FnMut(&Shown<'_>)) -> Option<u32> {
        let (tick, window_s) = (
            self.context.tick(),
            self.writer_counters.ring.window_seconds(),
        );
        // Those of a store it has for people alone where none are added.
        if self.stored.is_none() && cursor == 0 {
            for &(ref key, sum) in self.known.iter() {
                each(&Shown {
                    key,
                    value: &Recent { sum, window_s },
                    provenance: None,
                });
            }
        }
        self.keys.each_from((cursor, records), |number, key| {
            let sum = self.writer_counters.sum(number, tick);
            each(&Shown {
                key,
                value: &Recent { sum, window_s },
                provenance: None,
            });
        })
    }
    fn capacity(&self) -> u32 {
        self.capacity
    }
    fn counts(&self) -> ObjectCounts {
        ObjectCounts::from(self.tally()).with(ObjectCount::RefusedFull, self.refused_full())
    }
    fn entries(&self) -> usize {
        self.keys.count() as usize
    }
}

impl<K: Key> Fetch for WindowedCounters<K> {
    fn stays_because(&self) -> Option<&'static str> {
        match self.is_listed {
            true => Some(LISTED),
            false => too_many_buckets(&self.writer_counters.ring),
        }
    }
    fn extract(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        self.writer_counters.extract(query, out, |field| {
            let key = K::decode(&mut Reader::new(field, self.context.addresses())).ok()?;
            self.keys.find(&key, self.keys.hash(&key))
        });
        if SumsRead::read(query.key).is_ok_and(|read| read.counts_keys()) {
            append_sum(b"", self.keys.count().into(), out);
        }
    }
    fn install(&mut self, _: u8, answer: &[u8]) -> Result<(), BadBytes> {
        let stored = self.stored.as_mut().ok_or(BadBytes)?;
        stored.take(answer, self.capacity, self.context.addresses())
    }
    fn withdraw(&mut self) {
        if let Some(stored) = &mut self.stored {
            stored.withdraw();
        }
    }
    fn has_sums(&self) -> bool {
        true
    }
    fn buckets(&self) -> Option<Ring> {
        Some(self.writer_counters.ring)
    }
    fn has_room_for_keys(&self) -> bool {
        true
    }
    fn each_addition(
        &self,
        write: &[u8],
        each: &mut dyn FnMut(&Addition<'_>),
    ) -> Result<(), BadBytes> {
        let mut input = Reader::new(write, self.context.addresses());
        K::decode(&mut input)?;
        let field = &write[..write.len() - input.left()];
        each(&Addition {
            bucket: self.writer_counters.ring.bucket(input.u32()?),
            field,
            amount: amount_in_store(input.varint()?),
        });
        Ok(())
    }
    fn note_sums(&mut self, answer: &[u8]) {
        let mut known = KeySums::default();
        let addresses = self.context.addresses();
        if known.add(answer, self.capacity, addresses).is_ok() {
            self.known = known;
        }
    }
}

impl<K: Key> Operations for WindowedCounters<K> {
    fn begin_recording(&mut self) {
        self.keys.begin_recording();
    }
    fn end_recording(&mut self) {
        if self.stored.is_none() {
            self.keys.end_recording();
        }
    }
    fn note_undecided(
        &mut self,
        kind: u8,
        _: &mut Reader<'_>,
        begins: bool,
    ) -> Result<(), BadBytes> {
        if kind == BEGINS {
            self.keys.note_undecided(self.object, begins);
        }
        Ok(())
    }
    /// In the bucket of the packet's arrival, however long the store took.
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (key, arrived, amount) = (K::decode(input)?, input.u32()?, input.varint()?);
        let tick = committed_at(&self.context, arrived);
        self.add_for(key, tick, amount);
        Ok(())
    }
}

impl<K: Key> PerPacket for WindowedCounters<K> {
    fn prefetch_records(&self, prefetch_hints: &PrefetchHints, packets: Range<usize>) -> usize {
        let prefetch = |number| self.writer_counters.prefetch(number);
        self.keys.prefetch_each(prefetch_hints, packets, prefetch)
    }
    fn outgrew_cache(&self, cache_bytes: usize) -> bool {
        self.keys.bytes_in_use() + self.writer_counters.bytes_of(self.keys.used()) > cache_bytes
    }
    fn settle(&self) {
        self.keys.settle();
    }
}

/// What a number's cells are called by. A number without a key has no cells that are kept.
pub(super) fn write_key<K: Key>(keys: &Keyed<K>, number: u32, out: &mut Writer<'_>) {
    if let Some(key) = keys.key(number) {
        key.encode(out);
    }
}

/// The hash of a number's key, the same everywhere.
pub(super) fn hash_key<K: Key>(keys: &Keyed<K>, number: u32) -> u64 {
    keys.key(number).map_or(0, |key| keys.hash(key))
}

/// The digest of cells that are called by keys, whatever numbers those have.
pub(super) fn digest<K: Key>(
    keys: &Keyed<K>,
    writer_counters: &TimedWriterCounters,
    context: &Context,
) -> u64 {
    writer_counters.digest(keys.used(), |number| {
        let mut bytes = Vec::new();
        write_key(
            keys,
            number,
            &mut Writer::new(&mut bytes, context.addresses()),
        );
        asterism_memory::hash::bytes(&bytes, 0)
    })
}
