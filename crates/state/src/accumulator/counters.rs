//! Sums by key.

use core::ops::Range;
use std::rc::Rc;

use asterism_memory::index::Index;
use asterism_memory::prefetch_hints::PrefetchHints;

use super::in_store::InStore;
use super::writer_counters::{Totals, Whose, WriterCounters};
use super::{Writing, late, read_cell, read_saved, read_writing};
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, LANE_ROOM, LANE_SUM, Late, Query, Reservations, late_answer};
use crate::map::Key;
use crate::mutant::{self, Mutant};
use crate::object::{
    Addition, Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since,
    Snapshot, Sweep, Writable,
};
use crate::recording::{ADDS, BEGINS, note_room};
use crate::shown::Shown;
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, KeySums, Reader, Writer, amount_in_store, write_sums};
use asterism_object_counts::{ObjectCount, ObjectCounts};

/// Keys of a shared object for which there is room, in multiples of its capacity. A saved state's keys, and those of earlier incarnations,
/// count against nobody's share: who knows of fewer keys than the capacity may start one, while all others start their shares.
const SLACK: u32 = 2;

/// A counter for each key. Keys are never forgotten; there are at most `capacity` of them.
#[derive(Debug)]
pub struct Counters<K: Key> {
    context: Rc<Context>,
    object: u8,
    settings: ObjectSettings,
    index: Index,
    /// [`SLACK`] times all shares together.
    writer_counters: WriterCounters<K>,
    used: u32,
    /// Keys that this instance added, and how many it may: applying others' keys never runs out.
    own: u32,
    own_max: u32,
    /// Keys that undecided transactions begin: they have their room already.
    undecided: u32,
    reserved: Reservations,
    refused_full: u64,
    stored: Option<InStore<K>>,
    /// What a store was said to have, some seconds ago, or to be shown.
    known: KeySums<K>,
}

/// A key's counter as it was found, or the permission to start one.
#[derive(Clone, Copy, Debug)]
pub struct Tally<K> {
    pub(super) number: Option<u32>,
    pub(super) key: K,
    /// The sum over all instances, as far as it is known here.
    pub total: u64,
}

impl<K: Key> Counters<K> {
    pub(crate) fn new(context: Rc<Context>, object: u8, settings: ObjectSettings) -> Self {
        let capacity = settings.capacity;
        let (_, shares) = context.identity().share();
        let share = capacity.div_ceil(shares);
        let room = if settings.may_be_replicated() {
            let leased = share.checked_mul(shares);
            let room = leased.and_then(|leased| leased.checked_mul(SLACK));
            room.expect("there are fewer than 2^32 counters")
        } else {
            capacity
        };
        let leases = settings.is_replicated() && !mutant::active(Mutant::CapacityNotLeased);
        let writer_counters =
            WriterCounters::new(context.clone(), object, &settings, (room, Totals::Grow));
        if settings.is_remote() {
            context.expect_written_unread(object);
        }
        let stored = settings.is_remote().then(InStore::default);
        let mut counters = Self {
            context,
            object,
            settings,
            index: Index::new(room as usize),
            writer_counters,
            used: 0,
            own: 0,
            own_max: if leases { share } else { capacity },
            undecided: 0,
            reserved: Reservations::default(),
            refused_full: 0,
            stored,
            known: KeySums::default(),
        };
        if counters.stored.is_some() {
            counters.writer_counters.begin_recording();
        }
        counters
    }

    /// The key's counter: found, or about to be started by the first `add`. `None` when there is no room
    /// for another key.
    #[inline(always)]
    pub fn find(&self, key: &K) -> Result<Option<Tally<K>>, Late> {
        if self.stored.is_some() {
            return self.find_there(key);
        }
        if let Some(number) = self.query(key)? {
            return Ok(Some(Tally {
                number: Some(number),
                key: *key,
                total: self.writer_counters.sum(number),
            }));
        }
        Ok(self.room()?.then_some(Tally {
            number: None,
            key: *key,
            total: 0,
        }))
    }

    /// The sum for a key; 0 if it has no counter.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Result<u64, Late> {
        if let Some(stored) = &self.stored {
            self.answered(key)?;
            return Ok(stored.sum(key));
        }
        Ok(self
            .query(key)?
            .map_or(0, |number| self.writer_counters.sum(number)))
    }

    /// Whether the store said what the sum for a key is.
    #[cold]
    fn answered(&self, key: &K) -> Result<(), Late> {
        let read = (self.object, LANE_SUM, key.hash(self.context.seed()));
        self.context.answered(read, |field| key.encode(field))
    }

    /// [`Counters::find`] in a store, which is asked for the sum and for room at once.
    #[cold]
    fn find_there(&self, key: &K) -> Result<Option<Tally<K>>, Late> {
        let room = self.context.answered((self.object, LANE_ROOM, 0), |_| {});
        self.answered(key).and(room)?;
        let stored = self.stored.as_ref();
        Ok(stored.and_then(|stored| stored.find(key)))
    }

    /// [`Counters::get`] for the control plane: never late. In a store as of some seconds ago, and 0 while there are more than
    /// 4,096 keys there.
    #[must_use]
    pub fn total(&self, key: &K) -> u64 {
        if self.stored.is_some() {
            return self.known.get(key).unwrap_or(0);
        }
        let number = self.number(key, key.hash(self.context.seed()));
        number.map_or(0, |number| self.writer_counters.sum(number))
    }

    /// Keys of others that found no room, which leases should make impossible.
    pub fn refused_full(&self) -> u64 {
        self.refused_full
    }

    #[inline(always)]
    fn query(&self, key: &K) -> Result<Option<u32>, Late> {
        let hash = key.hash(self.context.seed());
        if !self.context.answers_plainly() {
            self.ahead(hash)?;
        }
        Ok(self.number(key, hash))
    }

    #[inline(always)]
    fn number(&self, key: &K, hash: u64) -> Option<u32> {
        self.index.find(hash, |number| {
            (self.writer_counters.tag(number) == key).then_some(number)
        })
    }

    /// Calls `each` for every key and its sum; for control-plane use.
    pub fn for_each(&self, mut each: impl FnMut(&K, u64)) {
        for (key, total) in self.known.iter() {
            each(key, *total);
        }
        for number in 0..self.used {
            each(
                self.writer_counters.tag(number),
                self.writer_counters.sum(number),
            );
        }
    }

    #[cold]
    fn ahead(&self, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            let bucket = self.index.prefetch(hash);
            let prefetch_hints = self.context.prefetch_hints();
            prefetch_hints.note(self.object, 0, bucket, hash);
            return Err(late_answer());
        }
        late(&self.context, self.object, hash, self.settings.late_us)
    }

    #[cold]
    fn room(&self) -> Result<bool, Late> {
        let undecided = self.undecided;
        let limits = [
            (self.own + undecided, self.own_max),
            (self.used + undecided, self.settings.capacity),
        ];
        if self.reserved.take(&self.context, limits) {
            return Ok(true);
        }
        // A refusal may give room again.
        self.context.decided_room(self.object)?;
        Ok(false)
    }

    /// Adds for a key that is not known to have a number; of a call that is recorded, the addition is recorded instead.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, key: K, was_known: bool, amount: u64) {
        if !self.writer_counters.is_recording() {
            return self.add_for(key, amount);
        }
        let kind = if was_known { ADDS } else { BEGINS };
        self.context.record_addition(self.object, kind, |out| {
            key.encode(out);
            out.varint(amount);
        });
    }

    fn add_for(&mut self, key: K, amount: u64) {
        if let Some(number) = self.start(key, true) {
            self.writer_counters.add(number, amount);
        }
    }

    #[cold]
    #[inline(never)]
    fn start(&mut self, key: K, own: bool) -> Option<u32> {
        let hash = key.hash(self.context.seed());
        if let Some(number) = self.number(&key, hash) {
            return Some(number);
        }
        if self.used >= self.writer_counters.len() {
            self.refused_full += 1;
            return None;
        }
        let number = self.used;
        self.used += 1;
        self.own += u32::from(own);
        self.writer_counters.set_tag(number, key);
        let (writer_counters, seed) = (&self.writer_counters, self.context.seed());
        self.index.insert(hash, number, |number| {
            writer_counters.tag(number).hash(seed)
        });
        Some(number)
    }

    fn learn(
        &mut self,
        key: K,
        writing: Writing,
        total: u64,
        sequence: u64,
    ) -> Result<(), BadBytes> {
        let whose = self.writer_counters.whose(writing)?;
        if !matches!(whose, Whose::Own)
            && let Some(number) = self.start(key, false)
        {
            let name = key.hash(self.context.seed());
            self.writer_counters
                .learn(whose, (number, name), (total, sequence));
        }
        Ok(())
    }
}

/// The writes of [`Counters`].
#[derive(Debug)]
pub struct CountersAct<'a, K: Key>(&'a mut Counters<K>);

impl<K: Key> CountersAct<'_, K> {
    /// Adds to the key's counter; starts it if it is new.
    #[inline(always)]
    pub fn add(&mut self, tally: &Tally<K>, amount: u64) {
        let Self(counters) = self;
        let Tally { number, key, .. } = *tally;
        if !number.is_some_and(|number| counters.writer_counters.add(number, amount)) {
            counters.begin(key, number.is_some(), amount);
        }
    }
}

impl<K: Key> Writable for Counters<K> {
    type Act<'a> = CountersAct<'a, K>;

    fn act(&mut self) -> CountersAct<'_, K> {
        CountersAct(self)
    }
}

impl<K: Key> Replicate for Counters<K> {
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        let writing = read_writing(input, stamp)?;
        let key = K::decode(input)?;
        let total = input.varint()?;
        self.learn(key, writing, total, stamp.sequence)
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        let seed = self.context.seed();
        let name = |_, key: &K, out: &mut Writer<'_>| key.encode(out);
        self.writer_counters
            .flush(bytes, name, |_, key| key.hash(seed))
    }
    fn joined(&mut self) {
        self.writer_counters.joined();
    }
    /// Of what counts here it begins with a share at most, so that the keys of all fit.
    fn share(&mut self, shares: bool) -> bool {
        let (_, parts) = self.context.identity().share();
        let capacity = self.settings.capacity;
        let share = capacity.div_ceil(parts);
        if shares && (self.own > share || self.used > share.saturating_mul(SLACK)) {
            return self.settings.is_replicated();
        }
        let shares = self.settings.share(shares);
        self.own_max = if shares { share } else { capacity };
        self.writer_counters.share(shares);
        shares
    }
}

impl<K: Key> Sweep for Counters<K> {
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32> {
        self.writer_counters
            .origins_named((cursor, records, self.used), named)
    }
}

impl<K: Key> Audit for Counters<K> {
    fn tells_own(&self) -> bool {
        true
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        self.writer_counters.leaves(first, out)
    }
    fn announced(&self) -> u64 {
        let seed = self.context.seed();
        self.writer_counters
            .announced(self.used, |_, key| key.hash(seed))
    }
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        let (seed, range) = (self.context.seed(), (cursor, records, self.used));
        self.writer_counters
            .tell_again(leaves, range, |_, key| key.hash(seed))
    }
    fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        let mut digest = 0u64;
        self.for_each(|key, total| {
            bytes.clear();
            let mut out = Writer::new(&mut bytes, self.context.addresses());
            key.encode(&mut out);
            out.u64(total);
            digest = digest.wrapping_add(asterism_memory::hash::bytes(&bytes, 0));
        });
        digest
    }
}

impl<K: Key> Snapshot for Counters<K> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        let name = |_, key: &K, out: &mut Writer<'_>| key.encode(out);
        self.writer_counters.snapshot(cursor, self.used, part, name)
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let key = K::decode(input)?;
        let (writing, total, stamp) = read_cell(&self.context, input)?;
        self.learn(key, writing, total, stamp.sequence)
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        let key = K::decode(input)?;
        let total = read_saved(input)?;
        // What is beyond the capacity is others' room.
        let is_full = self.used >= self.settings.capacity;
        if is_full && self.number(&key, key.hash(self.context.seed())).is_none() {
            self.refused_full += 1;
            return Ok(false);
        }
        let Some(number) = self.start(key, false).filter(|_| total > 0) else {
            return Ok(false);
        };
        self.writer_counters.add(number, total);
        Ok(true)
    }
}

impl<K: Key> Inspect for Counters<K> {
    fn show(&self, cursor: u32, records: u32, each: &mut dyn FnMut(&Shown<'_>)) -> Option<u32> {
        let end = cursor.saturating_add(records).min(self.used);
        for number in cursor..end {
            each(&Shown {
                key: self.writer_counters.tag(number),
                value: &self.writer_counters.sum(number),
                provenance: None,
            });
        }
        // Those of a store it has for people alone where none are added.
        if self.stored.is_none() {
            for (key, value) in self.known.iter() {
                each(&Shown {
                    key,
                    value,
                    provenance: None,
                });
            }
        }
        (end < self.used).then_some(end)
    }
    fn capacity(&self) -> u32 {
        self.settings.capacity
    }
    fn counts(&self) -> ObjectCounts {
        ObjectCounts::default().with(ObjectCount::RefusedFull, self.refused_full())
    }
    fn entries(&self) -> usize {
        self.used as usize
    }
}

impl<K: Key> Fetch for Counters<K> {
    fn stays_because(&self) -> Option<&'static str> {
        None
    }
    fn extract(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        let mut sums = Vec::new();
        match query.lane {
            LANE_ROOM => {
                let room = self.settings.capacity.saturating_sub(self.used);
                out.extend([0; 2]);
                return out.extend(room.to_le_bytes());
            }
            LANE_SUM => {
                let key = K::decode(&mut Reader::new(query.key, self.context.addresses())).ok();
                let number = key.and_then(|key| self.number(&key, query.hash));
                sums.extend(
                    number.map(|number| {
                        (query.key.to_vec(), self.writer_counters.sum(number) as i64)
                    }),
                );
            }
            _ => self.for_each(|key, total| {
                let mut field = Vec::new();
                key.encode(&mut Writer::new(&mut field, self.context.addresses()));
                sums.push((field, total as i64));
            }),
        }
        write_sums(sums.iter().map(|(field, sum)| (&**field, *sum)), out);
    }
    fn install(&mut self, lane: u8, answer: &[u8]) -> Result<(), BadBytes> {
        let stored = self.stored.as_mut().ok_or(BadBytes)?;
        if lane == LANE_ROOM {
            let room = answer.get(2..).and_then(<[u8]>::first_chunk);
            stored.room = u32::from_le_bytes(*room.ok_or(BadBytes)?);
            return Ok(());
        }
        stored.take(answer, self.settings.capacity, self.context.addresses())
    }
    fn has_sums(&self) -> bool {
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
        each(&Addition::new(field, amount_in_store(input.varint()?)));
        Ok(())
    }
    fn note_sums(&mut self, answer: &[u8]) {
        let mut known = KeySums::default();
        let (most, addresses) = (self.settings.capacity, self.context.addresses());
        if known.add(answer, most, addresses).is_ok() {
            self.known = known;
        }
    }
    fn withdraw(&mut self) {
        if let Some(stored) = &mut self.stored {
            stored.withdraw();
        }
    }
}

impl<K: Key> Operations for Counters<K> {
    fn begin_recording(&mut self) {
        self.writer_counters.begin_recording();
    }
    fn end_recording(&mut self) {
        if self.stored.is_none() {
            self.writer_counters.end_recording();
        }
    }
    fn note_undecided(
        &mut self,
        kind: u8,
        _: &mut Reader<'_>,
        begins: bool,
    ) -> Result<(), BadBytes> {
        if kind == BEGINS {
            self.undecided = note_room(self.undecided, begins);
            self.context.note_undecided_entry(self.object, begins);
        }
        Ok(())
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (key, amount) = (K::decode(input)?, input.varint()?);
        self.add_for(key, amount);
        Ok(())
    }
}

impl<K: Key> PerPacket for Counters<K> {
    fn prefetch_records(&self, prefetch_hints: &PrefetchHints, packets: Range<usize>) -> usize {
        prefetch_hints.each_record(packets, |_| {
            |bucket, hash| {
                let number = self.index.likely(bucket, hash)?;
                self.writer_counters.prefetch(number);
                Some(number)
            }
        })
    }
    fn outgrew_cache(&self, cache_bytes: usize) -> bool {
        self.index.bytes_in_use() + self.used as usize * WriterCounters::<K>::CELL_BYTES
            > cache_bytes
    }
    fn settle(&self) {
        self.reserved.clear();
    }
}
