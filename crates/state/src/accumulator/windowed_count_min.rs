//! Sums by key over the last while, in little memory, never too small.

use core::marker::PhantomData;
use std::rc::Rc;

use asterism_sketches::Grid;
use asterism_windows::{Ring, Window, WindowTally, read_bucket};

use super::sketch::{ALL, read_total};
use super::timed::{ADVANCE, TimedWriterCounters, too_many_buckets};
use super::writer_counters::{hash_place, read_place};
use super::{Writing, late, read_cell, read_saved, read_writing};
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, LANE_CELLS, Late, Query, Tick, late_answer};
use crate::map::Key;
use crate::object::{
    Addition, Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since,
    Snapshot, SumsShown, Sweep, Writable,
};
use crate::recording::{ADDS, committed_at};
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{
    BadBytes, PlaceField, PlaceSums, Reader, SumsAsked, SumsRead, Writer, amount_in_store,
};
use asterism_object_counts::ObjectCounts;

/// A sum for each of any number of keys over the last so many buckets of time, in memory that does not grow with them: a count-min
/// sketch (Cormode and Muthukrishnan 2005) for each bucket. Never less than what was added for the key in the window, and more by
/// `error` × all that was added in it with a probability of at most `doubt`.
#[derive(Debug)]
pub struct WindowedCountMin<K: Key> {
    context: Rc<Context>,
    object: u8,
    late_us: u32,
    error: f64,
    grid: Grid,
    writer_counters: TimedWriterCounters,
    keys: PhantomData<K>,
    stored: Option<InStore>,
}

/// What a store said.
#[derive(Debug)]
struct InStore {
    ring: Ring,
    /// Sums of places over the window, for the call under way.
    answered: PlaceSums,
    /// All that was added in the window, as of some seconds ago.
    known: u64,
}

impl<K: Key> WindowedCountMin<K> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        ((error, doubt), window): ((f64, f64), Window),
    ) -> Self {
        let grid = Grid::for_sums(error, doubt);
        let ring = Ring::new(window);
        let places = if settings.is_remote() { 1 } else { grid.len() };
        let mut writer_counters =
            TimedWriterCounters::new(context.clone(), object, &settings, (places, ring));
        let stored = settings.is_remote().then(|| {
            context.expect_written_unread(object);
            writer_counters.begin_recording();
            InStore {
                ring,
                answered: PlaceSums::default(),
                known: 0,
            }
        });
        Self {
            writer_counters,
            stored,
            context,
            object,
            late_us: settings.late_us,
            error,
            grid,
            keys: PhantomData,
        }
    }

    /// What was added for a key over all instances in the window that ends at the packet's arrival, as far as it is known here,
    /// or more. Costs the cache lines of its buckets (24 bytes each) for each row.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Result<u64, Late> {
        let hash = key.hash(self.context.seed());
        if !self.context.answers_plainly() {
            if let Some(stored) = &self.stored {
                return self.answered(stored, hash);
            }
            self.ahead(hash)?;
        }
        let arrived = self.context.arrived_tick();
        let sums = self.grid.places(hash);
        Ok(sums
            .map(|place| self.writer_counters.sum(place, arrived))
            .min()
            .unwrap_or(0))
    }

    /// The same in a store.
    #[cold]
    fn answered(&self, stored: &InStore, hash: u64) -> Result<u64, Late> {
        let buckets = stored.ring.read_at(self.context.arrived_tick());
        let fields = self.grid.places(hash).map(PlaceField::new);
        self.context
            .answered((self.object, LANE_CELLS, hash), |out| {
                SumsRead::write_of(out, buckets, SumsAsked::Whole, fields);
            })?;
        let sums = self.grid.places(hash);
        let sums = sums.map(|place| stored.answered.get(place));
        Ok(sums.min().unwrap_or(0) as u64)
    }

    /// All that was added in the window that ends now, as far as it is known here; in a store as of some seconds ago. For people, not packets.
    pub fn total(&self) -> u64 {
        if let Some(stored) = &self.stored {
            return stored.known;
        }
        let tick = self.context.tick();
        let row = 0..self.grid.width();
        row.fold(0, |sum: u64, place| {
            sum.wrapping_add(self.writer_counters.sum(place, tick))
        })
    }

    /// What a sum is too large by, at most, but for the doubt: its share of all that was added in the window that ends now. For
    /// people, not packets.
    pub fn excess(&self) -> f64 {
        self.error * self.total() as f64
    }

    /// What was not taken up; nothing in a store, which counts that itself.
    pub fn tally(&self) -> WindowTally {
        let stored = self.stored.as_ref();
        stored
            .map_or(self.writer_counters.ring, |stored| stored.ring)
            .tally
    }

    #[cold]
    fn ahead(&self, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            for place in self.grid.places(hash) {
                self.writer_counters.prefetch(place);
            }
            return Err(late_answer());
        }
        late(&self.context, self.object, hash, self.late_us)
    }

    #[inline(always)]
    fn add_at(&mut self, hash: u64, tick: Tick, amount: u64) {
        let Some(bucket) = self.writer_counters.ring.add_at(tick) else {
            return self.record(hash, tick, amount);
        };
        for place in self.grid.places(hash) {
            self.writer_counters.add(place, bucket, amount);
        }
    }

    /// An addition of a recorded call, or one whose bucket was dropped.
    #[cold]
    #[inline(never)]
    fn record(&self, hash: u64, tick: Tick, amount: u64) {
        if self.writer_counters.is_recording() {
            self.context.record_addition(self.object, ADDS, |out| {
                out.u64(hash);
                out.u32(tick);
                out.varint(amount);
            });
        }
    }

    fn ring(&self) -> &Ring {
        let stored = self.stored.as_ref();
        stored.map_or(&self.writer_counters.ring, |stored| &stored.ring)
    }

    fn mark(&self) -> u16 {
        self.grid.mark(self.context.seed())
    }

    fn learn(
        &mut self,
        place: u32,
        writing: Writing,
        (bucket, total): (u32, u64),
    ) -> Result<(), BadBytes> {
        if let Some(writing) = self.writer_counters.writer(writing)?
            && self.writer_counters.accept(bucket)
            && total > 0
        {
            let place = (place, hash_place(place, &()));
            self.writer_counters.learn(writing, place, (bucket, total));
        }
        Ok(())
    }
}

/// The writes of a [`WindowedCountMin`].
#[derive(Debug)]
pub struct WindowedCountMinAct<'a, K: Key>(&'a mut WindowedCountMin<K>);

impl<K: Key> WindowedCountMinAct<'_, K> {
    /// Adds for a key, in the bucket of the packet's arrival. Nothing, but counted, if that bucket was dropped already.
    #[inline(always)]
    pub fn add(&mut self, key: &K, amount: u64) {
        // Nothing is no addition: nobody would be informed of the bucket that it moves the ring to.
        if amount == 0 {
            return;
        }
        let Self(sketch) = self;
        let arrived = sketch.context.arrived_tick();
        sketch.add_at(key.hash(sketch.context.seed()), arrived, amount);
    }
}

impl<K: Key> Writable for WindowedCountMin<K> {
    type Act<'a> = WindowedCountMinAct<'a, K>;

    fn act(&mut self) -> WindowedCountMinAct<'_, K> {
        WindowedCountMinAct(self)
    }
}

impl<K: Key> Replicate for WindowedCountMin<K> {
    fn apply(&mut self, flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        if flags & ADVANCE != 0 {
            return self.writer_counters.advance(flags, input);
        }
        let writing = read_writing(input, stamp)?;
        let place = read_place(input, self.grid.len())?;
        let total = (read_bucket(input)?, input.varint()?);
        self.learn(place, writing, total)
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        let name = |place: u32, out: &mut Writer<'_>| out.varint(place.into());
        self.writer_counters
            .flush(bytes, name, |place| hash_place(place, &()))
    }
}

impl<K: Key> Sweep for WindowedCountMin<K> {
    fn sweep(&mut self, _: u32) -> u32 {
        if self.stored.is_none() {
            self.writer_counters.keep_up();
        }
        0
    }
    fn sweep_length(&self) -> u32 {
        1
    }
    fn origins_named(&self, _: u32, _: u32, named: &mut NamedOrigins) -> Option<u32> {
        self.writer_counters.origins_named(named);
        None
    }
}

impl<K: Key> Audit for WindowedCountMin<K> {
    fn tells_own(&self) -> bool {
        true
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        self.writer_counters.leaves(first, out)
    }
    fn announced(&self) -> u64 {
        let name = |place| hash_place(place, &());
        self.writer_counters.announced(self.grid.len(), name)
    }
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        let range = (cursor, records, self.grid.len());
        self.writer_counters
            .tell_again(leaves, range, |place| hash_place(place, &()))
    }
    fn digest(&self) -> u64 {
        self.writer_counters.digest(self.grid.len(), u64::from)
    }
}

impl<K: Key> Snapshot for WindowedCountMin<K> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        let mark = self.mark();
        let name = |place: u32, out: &mut Writer<'_>| {
            out.u16(mark);
            out.varint(place.into());
        };
        let used = self.grid.len();
        self.writer_counters.snapshot(cursor, used, part, name)
    }
    fn apply_snapshot(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        if flags & ADVANCE != 0 {
            return self.writer_counters.advance(flags, input);
        }
        if input.u16()? != self.mark() {
            return Err(BadBytes);
        }
        let place = read_place(input, self.grid.len())?;
        let bucket = read_bucket(input)?;
        let (writing, total, _) = read_cell(&self.context, input)?;
        self.learn(place, writing, (bucket, total))
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
        // Places mean nothing in another grid, as of a cluster with another key.
        let same = input.u16()? == self.mark();
        let (place, bucket) = (input.varint()?, read_bucket(input)?);
        let total = read_saved(input)?;
        let ring = &mut self.writer_counters.ring;
        let tick = self.context.tick();
        let wanted = same && place < self.grid.len().into() && total > 0;
        let bucket = ring
            .restored(bucket, since.times(), tick)
            .filter(|_| wanted);
        let Some(bucket) = bucket.filter(|&bucket| ring.accept(bucket, tick)) else {
            return Ok(false);
        };
        self.writer_counters.add(place as u32, bucket, total);
        Ok(true)
    }
}

impl<K: Key> Inspect for WindowedCountMin<K> {
    fn counts(&self) -> ObjectCounts {
        self.tally().into()
    }
    fn entries(&self) -> usize {
        self.grid.len() as usize
    }
}

impl<K: Key> Fetch for WindowedCountMin<K> {
    fn stays_because(&self) -> Option<&'static str> {
        too_many_buckets(self.ring())
    }
    fn extract(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        let length = self.grid.len();
        self.writer_counters.extract(query, out, |field| {
            PlaceField::read(field).filter(|place| *place < length)
        });
    }
    fn install(&mut self, _: u8, answer: &[u8]) -> Result<(), BadBytes> {
        let stored = self.stored.as_mut().ok_or(BadBytes)?;
        stored.answered.add(answer, self.grid.len())
    }
    fn withdraw(&mut self) {
        if let Some(stored) = &mut self.stored {
            stored.answered.clear();
        }
    }
    fn has_sums(&self) -> bool {
        true
    }
    fn buckets(&self) -> Option<Ring> {
        Some(*self.ring())
    }
    fn shows_sums(&self) -> SumsShown {
        SumsShown::One(ALL)
    }
    fn each_addition(
        &self,
        write: &[u8],
        each: &mut dyn FnMut(&Addition<'_>),
    ) -> Result<(), BadBytes> {
        let mut input = Reader::new(write, &[]);
        let (hash, bucket) = (input.u64()?, self.ring().bucket(input.u32()?));
        let amount = amount_in_store(input.varint()?);
        let mut add = |field: &[u8]| {
            each(&Addition {
                bucket,
                field,
                amount,
            });
        };
        for place in self.grid.places(hash) {
            add(PlaceField::new(place).as_ref());
        }
        add(ALL);
        Ok(())
    }
    fn note_sums(&mut self, answer: &[u8]) {
        if let Some(stored) = &mut self.stored {
            stored.known = read_total(answer).unwrap_or(stored.known);
        }
    }
}

impl<K: Key> Operations for WindowedCountMin<K> {
    fn begin_recording(&mut self) {
        self.writer_counters.begin_recording();
    }
    fn end_recording(&mut self) {
        if self.stored.is_none() {
            self.writer_counters.end_recording();
        }
    }
    /// In the bucket of the packet's arrival, however long the store took.
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (hash, arrived, amount) = (input.u64()?, input.u32()?, input.varint()?);
        let tick = committed_at(&self.context, arrived);
        self.add_at(hash, tick, amount);
        Ok(())
    }
}

impl<K: Key> PerPacket for WindowedCountMin<K> {}
