//! Sums by place, that may also fall.

use core::cell::Cell;
use std::rc::Rc;

use super::writer_counters::{Totals, WriterCounters, hash_place, read_place, write_place};
use super::{late, read_saved};
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, LANE_SUM, LANE_SUMS, Late, Query, late_answer};
use crate::object::{
    Addition, Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since,
    Snapshot, Sweep, Writable,
};
use crate::recording::ADDS;
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, PlaceField, PlaceSums, Reader, write_sums};

/// Places of one that is in a store itself, at most: so many fit an answer.
const PLACES_IN_STORE_MAX: u32 = 1_024;

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
    /// They are where what they follow from is.
    follows: bool,
    /// In a store: what was answered for the call under way, by place.
    answered: Option<PlaceSums>,
    /// The same as it was some seconds ago.
    known: PlaceSums,
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
        let mut vector = Self {
            context,
            object,
            late_us: settings.late_us,
            writer_counters,
            later,
            counts_entries: false,
            follows: false,
            answered: None,
            known: PlaceSums::default(),
        };
        if settings.is_remote() {
            vector.move_to_store();
            vector.context.expect_written_unread(object);
        }
        vector
    }

    /// The same whose sums follow from another object.
    pub(crate) fn following(mut self) -> Self {
        self.follows = true;
        self
    }

    /// The sums are in a store: additions find no place here.
    fn move_to_store(&mut self) {
        self.writer_counters.begin_recording();
        self.answered = Some(PlaceSums::default());
    }

    /// The sums count the entries of a table, and are where these are.
    pub(crate) fn count_entries(&mut self, in_store: bool) {
        self.counts_entries = true;
        if !in_store {
            return;
        }
        self.context.expect_in_store(self.object);
        self.move_to_store();
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
        if let Some(answered) = &self.answered {
            self.context.answered((self.object, LANE_SUMS, 0), |_| {})?;
            let there = places.into_iter().filter(|place| *place < self.len());
            return Ok(there.min_by_key(|place| answered.get(*place)));
        }
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
        if place < self.len() {
            let read = (self.object, LANE_SUM, place.into());
            let field = PlaceField::new(place);
            self.context.answered(read, |key| key.raw(field.bytes()))?;
        }
        Ok(answered.get(place))
    }

    /// The sum in a place for people, and never late: in a store as of some seconds ago.
    pub fn known(&self, place: u32) -> i64 {
        match self.answered {
            Some(_) => self.known.get(place),
            None => self.get(place).unwrap_or(0),
        }
    }

    #[cold]
    fn ahead(&self, place: u32) -> Result<(), Late> {
        if self.context.is_prefetching() {
            self.writer_counters.prefetch(place);
            return Err(late_answer());
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

impl Fetch for Vector {
    fn stays_because(&self) -> Option<&'static str> {
        if self.follows {
            let stays = self.answered.is_none();
            return stays.then_some("it counts the entries of a table, and is where that is");
        }
        (self.len() > PLACES_IN_STORE_MAX).then_some("it has more than 1,024 places")
    }
    fn extract(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        let sum = |place| {
            let added = self.later.amount(place);
            (self.writer_counters.sum(place) as i64).wrapping_add(added)
        };
        let read = match query.lane {
            LANE_SUM => match PlaceField::read(query.key) {
                Some(place) if place < self.len() => place..place + 1,
                _ => 0..0,
            },
            _ => 0..self.len(),
        };
        let fields = read.map(|place| (PlaceField::new(place), sum(place)));
        let fields: Vec<_> = fields.filter(|(_, sum)| *sum != 0).collect();
        write_sums(fields.iter().map(|(field, sum)| (field.bytes(), *sum)), out);
    }
    fn install(&mut self, _: u8, answer: &[u8]) -> Result<(), BadBytes> {
        let length = self.len();
        let answered = self.answered.as_mut().ok_or(BadBytes)?;
        answered.add(answer, length)
    }
    fn has_sums(&self) -> bool {
        true
    }
    fn counts_entries(&self) -> bool {
        self.counts_entries
    }
    fn each_addition(
        &self,
        write: &[u8],
        each: &mut dyn FnMut(&Addition<'_>),
    ) -> Result<(), BadBytes> {
        let mut input = Reader::new(write, &[]);
        let field = PlaceField::new(read_place(&mut input, self.len())?);
        each(&Addition::new(field.bytes(), input.varint()? as i64));
        Ok(())
    }
    fn note_sums(&mut self, answer: &[u8]) {
        self.known.clear();
        if self.known.add(answer, self.len()).is_err() {
            self.known.clear();
        }
    }
    fn withdraw(&mut self) {
        self.answered.iter_mut().for_each(PlaceSums::clear);
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
