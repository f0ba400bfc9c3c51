//! Sums by place, that may also fall.

use core::cell::Cell;
use std::rc::Rc;

use super::writer_counters::{Totals, WriterCounters, hash_place, read_place, write_place};
use super::{late, read_saved};
use crate::answer::Late;
use crate::audit::{Leaf, LeafSet};
use crate::context::Context;
use crate::object::{
    Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since, Snapshot,
    Sweep, Writable,
};
use crate::recording::ADDS;
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, Reader};

/// A sum for each place of a fixed number of them, as the load of servers: what all instances added and took away. What a host
/// added before it died stays, until others take it away.
#[derive(Debug)]
pub struct Vector {
    context: Rc<Context>,
    object: u8,
    late_us: u32,
    writer_counters: WriterCounters<()>,
    later: Rc<Later>,
}

/// Adds to a [`Vector`] from where no packet acts, as when a row of a table comes or ends: what is added counts here at once, and
/// is asked to others with the next flush.
#[derive(Debug)]
pub struct Later {
    amounts: Box<[Cell<i64>]>,
    /// Some amount is not zero.
    any: Cell<bool>,
}

impl Later {
    /// Adds; wraps at 2⁶³. Nothing where there is no such place. Takes nothing from the heap.
    pub fn add(&self, place: u32, amount: i64) {
        if let Some(cell) = self.amounts.get(place as usize) {
            cell.set(cell.get().wrapping_add(amount));
            self.any.set(true);
        }
    }

    fn amount(&self, place: u32) -> i64 {
        self.amounts.get(place as usize).map_or(0, Cell::get)
    }
}

impl Vector {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        length: u32,
    ) -> Self {
        let writer_counters =
            WriterCounters::new(context.clone(), object, &settings, (length, Totals::Fall));
        let later = Rc::new(Later {
            amounts: (0..length).map(|_| Cell::new(0)).collect(),
            any: Cell::new(false),
        });
        Self {
            context,
            object,
            late_us: settings.late_us,
            writer_counters,
            later,
        }
    }

    /// What adds to it from where no packet acts.
    pub fn later(&self) -> Rc<Later> {
        self.later.clone()
    }

    /// What was added by [`Later`] goes to the cells.
    fn take_later(&mut self) {
        if !self.later.any.replace(false) {
            return;
        }
        for (place, amount) in self.later.amounts.iter().enumerate() {
            let amount = amount.replace(0);
            if amount != 0 {
                self.writer_counters.add(place as u32, amount as u64);
            }
        }
    }

    /// How many places there are.
    pub fn len(&self) -> u32 {
        self.writer_counters.len()
    }

    /// Whether there is no place at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sum in a place over all instances, as far as it is known here; what this instance does counts at once. 0 where there
    /// is no such place.
    #[inline(always)]
    pub fn get(&self, place: u32) -> Result<i64, Late> {
        if place >= self.len() {
            return Ok(0);
        }
        if !self.context.answers_plainly() {
            self.ahead(place)?;
        }
        let sum = self.writer_counters.sum(place) as i64;
        Ok(sum.wrapping_add(self.later.amount(place)))
    }

    /// The first of these places in which the sum is lowest: the server that is used least. Those that do not exist are passed
    /// over.
    pub fn lowest(&self, places: impl IntoIterator<Item = u32>) -> Result<Option<u32>, Late> {
        let mut lowest = None;
        for place in places {
            if place < self.len() {
                let sum = self.get(place)?;
                if lowest.is_none_or(|(least, _)| sum < least) {
                    lowest = Some((sum, place));
                }
            }
        }
        Ok(lowest.map(|(_, place)| place))
    }

    /// An addition found no place.
    #[cold]
    #[inline(never)]
    fn record(&self, place: u32, amount: i64) {
        if self.writer_counters.records(place) {
            self.context.record_addition(self.object, ADDS, |out| {
                out.varint(place.into());
                out.varint(amount as u64);
            });
        }
    }

    #[cold]
    fn ahead(&self, place: u32) -> Result<(), Late> {
        if self.context.is_prefetching() {
            self.writer_counters.prefetch(place);
            return Err(Late::new());
        }
        late(&self.context, self.object, place.into(), self.late_us)
    }
}

/// The writes of a [`Vector`].
#[derive(Debug)]
pub struct VectorAct<'a>(&'a mut Vector);

impl VectorAct<'_> {
    /// Adds; wraps at 2⁶³. Nothing where there is no such place.
    #[inline(always)]
    pub fn add(&mut self, place: u32, amount: i64) {
        if !self.0.writer_counters.add(place, amount as u64) {
            self.0.record(place, amount);
        }
    }
}

impl Writable for Vector {
    type Act<'a> = VectorAct<'a>;

    fn act(&mut self) -> VectorAct<'_> {
        VectorAct(self)
    }
}

impl Replicate for Vector {
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        self.writer_counters.apply(input, stamp)
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        self.take_later();
        self.writer_counters.flush(bytes, write_place, hash_place)
    }
    fn joined(&mut self) {
        self.writer_counters.joined();
    }
}

impl Sweep for Vector {
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32> {
        let range = (cursor, records, self.writer_counters.len());
        self.writer_counters.origins_named(range, named)
    }
}

impl Audit for Vector {
    fn tells_own(&self) -> bool {
        true
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        self.writer_counters.leaves(first, out)
    }
    fn announced(&self) -> u64 {
        self.writer_counters.announced(self.len(), hash_place)
    }
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        let range = (cursor, records, self.len());
        self.writer_counters.tell_again(leaves, range, hash_place)
    }
    fn digest(&self) -> u64 {
        self.writer_counters
            .digest_with(|place| self.later.amount(place) as u64)
    }
}

impl Snapshot for Vector {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        self.writer_counters
            .snapshot(cursor, self.len(), part, write_place)
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        self.writer_counters.apply_snapshot(input)
    }
    /// Not what was saved of a place that is not here: saved states may be of other sizes.
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        let place = input.varint()?;
        let total = read_saved(input)?;
        if place >= self.len().into() || total == 0 {
            return Ok(false);
        }
        self.writer_counters.add(place as u32, total);
        Ok(true)
    }
}

impl Inspect for Vector {
    fn capacity(&self) -> u32 {
        self.len()
    }
    fn entries(&self) -> usize {
        self.len() as usize
    }
}

impl Fetch for Vector {}

impl Operations for Vector {
    fn begin_recording(&mut self) {
        self.writer_counters.begin_recording();
    }
    fn end_recording(&mut self) {
        self.writer_counters.end_recording();
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let place = read_place(input, self.len())?;
        let amount = input.varint()?;
        self.writer_counters.add(place, amount);
        Ok(())
    }
}

impl PerPacket for Vector {}
