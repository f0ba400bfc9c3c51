//! Sums by place, that may also fall.

use core::cell::Cell;
use std::rc::Rc;

use super::writer_counters::{Totals, WriterCounters, hash_place, read_place, write_place};
use super::{late, read_saved};
use crate::answer::Late;
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, LANE_SUMS, Query};
use crate::object::{
    Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since, Snapshot,
    Sweep, Writable,
};
use crate::recording::ADDS;
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// A sum for each place of a fixed number of them, as the load of servers: what all instances added and took away. What a host
/// added before it died stays, until others take it away.
#[derive(Debug)]
pub struct Vector {
    context: Rc<Context>,
    object: u8,
    late_us: u32,
    writer_counters: WriterCounters<()>,
    later: Rc<Later>,
    /// They count the entries of a table.
    counts_entries: bool,
    /// In a store: what was answered for the call under way, by place.
    answered: Option<Vec<(u32, i64)>>,
    /// The same as it was some seconds ago.
    known: Vec<(u32, i64)>,
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

    /// Takes what was added, by place.
    fn take(&self, each: &mut dyn FnMut(u32, i64)) {
        if !self.any.replace(false) {
            return;
        }
        for (place, amount) in (0..).zip(&self.amounts) {
            match amount.replace(0) {
                0 => {}
                amount => each(place, amount),
            }
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
            counts_entries: false,
            answered: None,
            known: Vec::new(),
        }
    }

    /// The sums count the entries of a table, and are where these are: in a store, additions find no place here.
    pub(crate) fn count_entries(&mut self, in_store: bool) {
        self.counts_entries = true;
        if !in_store {
            return;
        }
        self.context.expect_in_store(self.object);
        self.writer_counters.begin_recording();
        self.answered = Some(Vec::new());
    }

    /// What adds to it from where no packet acts.
    pub fn later(&self) -> Rc<Later> {
        self.later.clone()
    }

    /// What was added by [`Later`] goes to the cells.
    fn take_later(&mut self) {
        let later = self.later.clone();
        later.take(&mut |place, amount| _ = self.writer_counters.add(place, amount as u64));
    }

    /// How many places there are.
    pub fn len(&self) -> u32 {
        self.later.amounts.len() as u32
    }

    /// Whether there is no place at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sum in a place over all instances, as far as it is known here; what this instance does counts at once. 0 where there
    /// is no such place.
    #[inline(always)]
    pub fn get(&self, place: u32) -> Result<i64, Late> {
        if place >= self.writer_counters.len() {
            return self.answered(place);
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

    /// What a store answers of a place that is not here.
    #[cold]
    fn answered(&self, place: u32) -> Result<i64, Late> {
        let Some(answered) = &self.answered else {
            return Ok(0);
        };
        self.context.answered((self.object, LANE_SUMS, 0), |_| {})?;
        Ok(sum_of(answered, place))
    }

    /// The sum in a place for people, and never late: in a store as of some seconds ago.
    pub fn known(&self, place: u32) -> i64 {
        match self.answered {
            Some(_) => sum_of(&self.known, place),
            None => self.get(place).unwrap_or(0),
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

/// Appends the answer to a read of sums, for a store that has them: each that is not zero with its place. No part of it must be the same
/// when a call is committed.
pub fn write_sums(sums: impl Iterator<Item = (u32, i64)>, out: &mut Vec<u8>) {
    out.extend([0; 2]);
    let mut writer = Writer::new(out, &[]);
    for (place, sum) in sums.filter(|(_, sum)| *sum != 0) {
        writer.varint(place.into());
        writer.varint((sum << 1 ^ sum >> 63) as u64);
    }
}

/// Reads what [`write_sums`] wrote: of places below `length`, and of no more than so many.
fn read_sums(answer: &[u8], length: u32, sums: &mut Vec<(u32, i64)>) -> Result<(), BadBytes> {
    sums.clear();
    let mut input = Reader::new(answer.get(2..).ok_or(BadBytes)?, &[]);
    while !input.is_empty() {
        let (place, sum) = (input.varint()?, input.varint()?);
        let place = u32::try_from(place).map_err(|_| BadBytes)?;
        if place < length && sums.len() < length as usize {
            sums.push((place, (sum >> 1) as i64 ^ -((sum & 1) as i64)));
        }
    }
    sums.sort_unstable();
    Ok(())
}

fn sum_of(sums: &[(u32, i64)], place: u32) -> i64 {
    let found = sums.binary_search_by_key(&place, |(place, _)| *place);
    found.map_or(0, |found| sums[found].1)
}

impl Fetch for Vector {
    fn stays_because(&self) -> Option<&'static str> {
        (self.answered.is_none())
            .then_some("what it answers is a sum over all that was added, not an entry")
    }
    fn extract(&self, _: &Query<'_>, out: &mut Vec<u8>) {
        let sum = |place| {
            let added = self.later.amount(place);
            (self.writer_counters.sum(place) as i64).wrapping_add(added)
        };
        write_sums((0..self.len()).map(|place| (place, sum(place))), out);
    }
    fn install(&mut self, _: u8, answer: &[u8]) -> Result<(), BadBytes> {
        let length = self.len();
        read_sums(answer, length, self.answered.as_mut().ok_or(BadBytes)?)
    }
    fn has_sums(&self) -> bool {
        self.counts_entries
    }
    fn note_sums(&mut self, answer: &[u8]) {
        if read_sums(answer, self.len(), &mut self.known).is_err() {
            self.known.clear();
        }
    }
    fn withdraw(&mut self) {
        self.answered.iter_mut().for_each(Vec::clear);
    }
    fn clear(&mut self) {
        self.take_sums(&mut |_, _| {});
    }
    fn take_sums(&mut self, each: &mut dyn FnMut(u32, i64)) {
        self.later.take(each);
    }
}

impl Operations for Vector {
    fn begin_recording(&mut self) {
        self.writer_counters.begin_recording();
    }
    fn end_recording(&mut self) {
        if self.answered.is_none() {
            self.writer_counters.end_recording();
        }
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let place = read_place(input, self.len())?;
        let amount = input.varint()?;
        self.writer_counters.add(place, amount);
        Ok(())
    }
}

impl PerPacket for Vector {}
