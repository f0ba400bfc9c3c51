//! Cells that keys share: what a sketch of sums and a filter that forgets are made of.

use core::marker::PhantomData;
use std::rc::Rc;

use asterism_sketches::Grid;

use super::writer_counters::{Totals, WriterCounters, hash_place, write_place};
use super::{late, read_saved};
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, LANE_CELLS, Late, Query, late_answer};
use crate::map::Key;
use crate::object::{Addition, ObjectSettings, Part};
use crate::recording::ADDS;
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{
    BadBytes, PlaceField, PlaceSums, Reader, SumsRead, Writer, amount_in_store, each_sum,
    write_sums,
};

/// The field of the sum of all additions, in a store.
pub(super) const ALL: &[u8] = b"all";

/// What an answer says was added in all; `None`: it says nothing of it.
pub(super) fn read_total(answer: &[u8]) -> Option<u64> {
    let mut total = None;
    let read = each_sum(answer, |field, sum| {
        if field == ALL {
            total = Some(sum as u64);
        }
    });
    total.filter(|_| read.is_ok())
}

/// Cells in a grid, by keys.
#[derive(Debug)]
pub(super) struct Sketch<K> {
    context: Rc<Context>,
    object: u8,
    late_us: u32,
    pub(super) grid: Grid,
    writer_counters: WriterCounters<()>,
    keys: PhantomData<K>,
    /// In a store: the sums that were answered for the call under way.
    answered: Option<PlaceSums>,
    /// And all that was added, as of some seconds ago.
    known: u64,
}

impl<K: Key> Sketch<K> {
    pub(super) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        (grid, totals): (Grid, Totals),
    ) -> Self {
        let mut writer_counters =
            WriterCounters::new(context.clone(), object, &settings, (grid.len(), totals));
        if settings.is_remote() {
            context.expect_written_unread(object);
            writer_counters.begin_recording();
        }
        Self {
            answered: settings.is_remote().then(PlaceSums::default),
            known: 0,
            context,
            object,
            late_us: settings.late_us,
            grid,
            writer_counters,
            keys: PhantomData,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.grid.len()
    }

    /// The least of the sums in a key's places.
    #[inline(always)]
    pub(super) fn least(&self, key: &K) -> Result<u64, Late> {
        let hash = key.hash(self.context.seed());
        if !self.context.answers_plainly() {
            self.ahead(hash)?;
            if let Some(answered) = &self.answered {
                let sums = self.grid.places(hash).map(|place| answered.get(place));
                return Ok(sums.min().unwrap_or(0) as u64);
            }
        }
        Ok(self.sums_here(hash).min().unwrap_or(0))
    }

    /// The sums in a key's places.
    #[inline(always)]
    pub(super) fn sums(&self, key: &K) -> Result<impl Iterator<Item = u64>, Late> {
        let hash = key.hash(self.context.seed());
        if !self.context.answers_plainly() {
            self.ahead(hash)?;
        }
        Ok(self.sums_here(hash))
    }

    #[inline(always)]
    fn sums_here(&self, hash: u64) -> impl Iterator<Item = u64> {
        let places = self.grid.places(hash);
        places.map(|place| self.writer_counters.sum(place))
    }

    /// As [`Sketch::least`], for the control plane; `None` in a store.
    pub(super) fn known(&self, key: &K) -> Option<u64> {
        let is_here = self.answered.is_none();
        is_here.then(|| {
            self.sums_here(key.hash(self.context.seed()))
                .min()
                .unwrap_or(0)
        })
    }

    #[cold]
    fn ahead(&self, hash: u64) -> Result<(), Late> {
        if self.answered.is_some() {
            let read = (self.object, LANE_CELLS, hash);
            let fields = self.grid.places(hash).map(PlaceField::new);
            return self
                .context
                .answered(read, |out| SumsRead::write(out, fields));
        }
        if self.context.is_prefetching() {
            for place in self.grid.places(hash) {
                self.writer_counters.prefetch(place);
            }
            return Err(late_answer());
        }
        late(&self.context, self.object, hash, self.late_us)
    }

    #[inline(always)]
    pub(super) fn add(&mut self, key: &K, amount: u64) {
        self.add_under(key.hash(self.context.seed()), amount);
    }

    #[inline(always)]
    fn add_under(&mut self, hash: u64, amount: u64) {
        for place in self.grid.places(hash) {
            if !self.writer_counters.add(place, amount) {
                return self.record(hash, amount);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&self, hash: u64, amount: u64) {
        self.context.record_addition(self.object, ADDS, |out| {
            out.u64(hash);
            out.varint(amount);
        });
    }

    pub(super) fn begin_recording(&mut self) {
        self.writer_counters.begin_recording();
    }

    pub(super) fn end_recording(&mut self) {
        if self.answered.is_none() {
            self.writer_counters.end_recording();
        }
    }

    /// What a store answers that is asked for some of the places, or for all that was added.
    pub(super) fn extract(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        let read = SumsRead::read(query.key);
        let fields = read.iter().flat_map(SumsRead::fields);
        let sums = fields.filter_map(|field| {
            let place = PlaceField::read(field).filter(|place| *place < self.len());
            let sum = place.map(|place| self.writer_counters.sum(place));
            let sum = sum.or_else(|| (field == ALL).then(|| self.total()))?;
            Some((field, sum as i64)).filter(|_| sum != 0)
        });
        write_sums(sums, out);
    }

    pub(super) fn install(&mut self, answer: &[u8]) -> Result<(), BadBytes> {
        let length = self.len();
        let answered = self.answered.as_mut().ok_or(BadBytes)?;
        answered.add(answer, length)
    }

    pub(super) fn withdraw(&mut self) {
        self.answered.iter_mut().for_each(PlaceSums::clear);
    }

    pub(super) fn each_addition(
        &self,
        mut write: Reader<'_>,
        each: &mut dyn FnMut(&Addition<'_>),
    ) -> Result<(), BadBytes> {
        let (hash, amount) = (write.u64()?, amount_in_store(write.varint()?));
        for place in self.grid.places(hash) {
            each(&Addition::new(PlaceField::new(place).bytes(), amount));
        }
        each(&Addition::new(ALL, amount));
        Ok(())
    }

    /// Notes what was added in all, as a store has it.
    pub(super) fn note_total(&mut self, answer: &[u8]) {
        self.known = read_total(answer).unwrap_or(self.known);
    }

    pub(super) fn commit(&mut self, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (hash, amount) = (input.u64()?, input.varint()?);
        self.add_under(hash, amount);
        Ok(())
    }

    /// All that was ever added: the sum over a row; in a store as of some seconds ago. For people, not packets.
    pub(super) fn total(&self) -> u64 {
        if self.answered.is_some() {
            return self.known;
        }
        (0..self.grid.width()).fold(0, |sum, place| {
            sum.wrapping_add(self.writer_counters.sum(place))
        })
    }

    pub(super) fn apply(&mut self, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        self.writer_counters.apply(input, stamp)
    }

    pub(super) fn flush(&mut self, bytes: &mut usize) -> bool {
        self.writer_counters.flush(bytes, write_place, hash_place)
    }

    pub(super) fn joined(&mut self) {
        self.writer_counters.joined();
    }

    pub(super) fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        self.writer_counters.leaves(first, out)
    }

    pub(super) fn announced(&self) -> u64 {
        self.writer_counters.announced(self.len(), hash_place)
    }

    pub(super) fn tell_again(
        &mut self,
        leaves: &LeafSet,
        cursor: u32,
        places: u32,
    ) -> (Option<u32>, u32) {
        let range = (cursor, places, self.len());
        self.writer_counters.tell_again(leaves, range, hash_place)
    }

    pub(super) fn origins_named(
        &self,
        cursor: u32,
        records: u32,
        named: &mut NamedOrigins,
    ) -> Option<u32> {
        let range = (cursor, records, self.len());
        self.writer_counters.origins_named(range, named)
    }

    pub(super) fn digest(&self) -> u64 {
        self.writer_counters.digest()
    }

    /// Each entry says of which grid it is: places mean nothing in another.
    pub(super) fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        let mark = self.grid.mark(self.context.seed());
        let name = |place, tag: &(), out: &mut Writer<'_>| {
            out.u16(mark);
            write_place(place, tag, out);
        };
        self.writer_counters
            .snapshot(cursor, self.len(), part, name)
    }

    pub(super) fn apply_snapshot(&mut self, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        if input.u16()? != self.grid.mark(self.context.seed()) {
            return Err(BadBytes);
        }
        self.writer_counters.apply_snapshot(input)
    }

    /// Not what was saved of another grid, as of a cluster with another key.
    pub(super) fn restore(&mut self, input: &mut Reader<'_>) -> Result<bool, BadBytes> {
        let same = input.u16()? == self.grid.mark(self.context.seed());
        let place = input.varint()?;
        let total = read_saved(input)?;
        if !same || place >= self.len().into() || total == 0 {
            return Ok(false);
        }
        self.writer_counters.add(place as u32, total);
        Ok(true)
    }
}
