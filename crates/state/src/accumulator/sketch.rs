//! Cells that keys share: what a sketch of sums and a filter that forgets are made of.

use core::marker::PhantomData;
use std::rc::Rc;

use asterism_sketches::Grid;

use super::writer_counters::{Totals, WriterCounters, hash_place, write_place};
use super::{late, read_saved};
use crate::answer::Late;
use crate::audit::{Leaf, LeafSet};
use crate::context::Context;
use crate::map::Key;
use crate::object::{ObjectSettings, Part};
use crate::recording::ADDS;
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// Cells in a grid, by keys.
#[derive(Debug)]
pub(super) struct Sketch<K> {
    context: Rc<Context>,
    object: u8,
    late_us: u32,
    pub(super) grid: Grid,
    writer_counters: WriterCounters<()>,
    keys: PhantomData<K>,
}

impl<K: Key> Sketch<K> {
    pub(super) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        (grid, totals): (Grid, Totals),
    ) -> Self {
        let writer_counters =
            WriterCounters::new(context.clone(), object, &settings, (grid.len(), totals));
        Self {
            context,
            object,
            late_us: settings.late_us,
            grid,
            writer_counters,
            keys: PhantomData,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.writer_counters.len()
    }

    /// The sums in a key's places.
    #[inline(always)]
    pub(super) fn sums(&self, key: &K) -> Result<impl Iterator<Item = u64>, Late> {
        let hash = key.hash(self.context.seed());
        if !self.context.answers_plainly() {
            self.ahead(hash)?;
        }
        Ok(self
            .grid
            .places(hash)
            .map(|place| self.writer_counters.sum(place)))
    }

    #[cold]
    fn ahead(&self, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            for place in self.grid.places(hash) {
                self.writer_counters.prefetch(place);
            }
            return Err(Late::new());
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
        self.writer_counters.end_recording();
    }

    pub(super) fn commit(&mut self, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (hash, amount) = (input.u64()?, input.varint()?);
        self.add_under(hash, amount);
        Ok(())
    }

    /// All that was ever added: the sum over a row. For people, not packets.
    pub(super) fn total(&self) -> u64 {
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
