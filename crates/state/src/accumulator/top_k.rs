//! The heaviest keys of all instances.

use core::ops::Range;
use std::rc::Rc;

use asterism_memory::hash;
use asterism_memory::prefetch_hints::PrefetchHints;
use asterism_memory::region::Region;

use super::announced::{self, Announced, writer};
use super::writer_counters::{hash_place, read_place};
use super::{
    CELLS_MAX, Party, WRITERS_MAX, WriterPlace, Writing, bears_old_name, is_of_later_incarnation,
    late, read_cell, read_saved, read_writing, write_cell,
};
use crate::audit::{Leaf, LeafSet, Leaves};
use crate::context::{Context, Late, OPERATION_BYTES_MAX, late_answer};
use crate::map::Key;
use crate::mutant::{self, Mutant};
use crate::object::{
    Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since, Snapshot,
    Sweep, Writable,
};
use crate::recording::ADDS;
use crate::stamp::{NamedOrigins, Origin, Origins, Stamp};
use crate::wire::{BadBytes, Reader, Writer};
use asterism_sketches::{
    Counted, Heavy, HeavyKeys, HeavyPlace, LastReport, NO_PLACE, Others, Summary,
};

/// The keys for which most was added, over all instances, in memory that does not grow with keys: heavy hitters, as by bytes.
///
/// Each instance keeps the heaviest keys of its own in `places` (Space-Saving, Metwally et al. 2005) and tells the places that
/// changed; what is known of a key is the sum over all instances' places. A sum is off by 1/`places` of all that was added at
/// most, above or below, and every key for which more than that was added is known. That holds for every input, with no doubt.
#[derive(Debug)]
pub struct TopK<K: Key> {
    context: Rc<Context>,
    object: u8,
    settings: ObjectSettings,
    own: Summary<K>,
    /// While a call is recorded, the own summary, in whose place is one without places; else that one, once there was a call.
    aside: Option<Summary<K>>,
    is_recording: bool,
    changed: Vec<u32>,
    others: Vec<Others<K, WriterPlace>>,
    /// What the instance in this one's place announced in earlier incarnations of the host. Once this one has joined, its own summary goes
    /// on from there, and this is what is informed of a place until this incarnation reported something of it.
    before: Option<Others<K, WriterPlace>>,
    joined: bool,
    /// Places that this incarnation reported something of.
    reported: Region<bool>,
    announced: Option<Announced<LastReport<K>>>,
}

impl<K: Key> TopK<K> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        places: u32,
    ) -> Self {
        assert!(
            places > 0 && places < CELLS_MAX,
            "the heaviest keys have 1 to {CELLS_MAX} places"
        );
        Self {
            own: Summary::new(context.seed(), places),
            aside: None,
            is_recording: false,
            changed: Vec::with_capacity(places as usize),
            others: Vec::with_capacity(64),
            before: None,
            joined: false,
            reported: Region::new(places as usize),
            announced: Announced::new(&settings, places),
            context,
            object,
            settings,
        }
    }

    /// About what was added for a key over all instances, as far as it is known here: off by [`TopK::excess`] at most, above or
    /// below; 0 for keys that are not among the heavy ones. Costs two cache lines for each instance.
    #[inline]
    pub fn get(&self, key: &K) -> Result<u64, Late> {
        let hash = key.hash(self.context.seed());
        if !self.context.answers_plainly() {
            self.ahead(hash)?;
        }
        let own = self.own.find(key, hash);
        let own = own.map_or(0, |place| self.own.count(place));
        let others = self
            .others
            .iter()
            .filter_map(|others| others.find(key, hash));
        Ok(others.fold(own, |sum, held| sum.saturating_add(held.count)))
    }

    /// All that was added for whatever key, as far as it is known here.
    pub fn total(&self) -> u64 {
        let others = self.others.iter().map(|others| others.total);
        others.fold(self.own.total(), u64::saturating_add)
    }

    /// What a sum is off by at most: a place's share of all that was added.
    pub fn excess(&self) -> u64 {
        self.total() / u64::from(self.places())
    }

    /// The `count` heaviest keys, heaviest first, equal ones by key. Each for which more was added than [`TopK::excess`] is among
    /// them if there is room. Looks at everything and allocates: for people and the control plane.
    pub fn heaviest(&self, count: usize) -> Vec<Heavy<K>> {
        let mut keys = HeavyKeys::new(self.places());
        self.for_each_place((0, u32::MAX), |place| keys.add(place));
        keys.heaviest(count)
    }

    /// Looks at up to `count` places from the `cursor`th on, one instance's after the other's, and calls `each` for those that have a
    /// key: what [`HeavyKeys`] is made of. Gives where to go on, `None` at the end. For control-plane use.
    pub fn for_each_place(
        &self,
        (cursor, count): (u32, u32),
        mut each: impl FnMut(HeavyPlace<K>),
    ) -> Option<u32> {
        let places = self.places();
        let all = places.saturating_mul(1 + self.others.len() as u32);
        let end = cursor.saturating_add(count).min(all);
        for at in cursor..end {
            let writer = at / places;
            if let Some(Counted { count, error, key }) = self.counted(writer, at % places) {
                each(HeavyPlace {
                    writer,
                    key,
                    count,
                    error,
                });
            }
        }
        (end < all).then_some(end)
    }

    /// Places of each instance.
    fn places(&self) -> u32 {
        self.settings.capacity
    }

    #[cold]
    fn ahead(&self, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            let bucket = self.own.index().prefetch(hash);
            self.context
                .prefetch_hints()
                .note(self.object, 0, bucket, hash);
            for others in &self.others {
                others.index.prefetch(hash);
            }
            return Err(late_answer());
        }
        late(&self.context, self.object, hash, self.settings.late_us)
    }

    fn mark(&mut self, changed: Option<u32>) {
        if let Some(place) = changed
            && self.settings.is_replicated()
        {
            self.changed.push(place);
        }
    }

    #[inline]
    fn add(&mut self, key: &K, weight: u64) {
        match self.own.add(key, weight, 0) {
            None => {}
            Some(NO_PLACE) => self.record(key, weight),
            changed => self.mark(changed),
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&self, key: &K, weight: u64) {
        self.context.record_addition(self.object, ADDS, |out| {
            key.encode(out);
            out.varint(weight);
        });
    }

    fn swap_aside(&mut self) {
        let seed = self.context.seed();
        let aside = self.aside.get_or_insert_with(|| Summary::new(seed, 0));
        core::mem::swap(&mut self.own, aside);
    }

    fn learn(&mut self, writing: Writing, place: u32, said: Counted<K>) -> Result<(), BadBytes> {
        let origin = Origin(writing.origin);
        let seat = match Party::of(&self.context, writing) {
            Party::Own => return Ok(()),
            Party::Before if self.joined => {
                self.go_on_from(place, LastReport::of(said, origin.0));
                return Ok(());
            }
            Party::Before => WriterPlace::own(&self.context),
            Party::Other(seat) => seat,
        };
        let known = self.others.iter().position(|others| others.seat == seat);
        let of = match known {
            Some(of) => of,
            None if self.others.len() >= WRITERS_MAX => return Err(BadBytes),
            None => {
                self.others.push(Others::new(seat, self.places()));
                self.others.len() - 1
            }
        };
        let before = self.others[of].places[place as usize];
        let (context, seed) = (&self.context, self.context.seed());
        let is_later =
            |origin, than| is_of_later_incarnation(context, Origin(origin), Origin(than));
        if self.others[of].learn((place, seed), LastReport::of(said, origin.0), is_later) {
            self.audit(place, seat.lane, before, LastReport::of(said, origin.0));
        }
        Ok(())
    }

    /// An earlier incarnation of this host reported something of a place after this instance went on from what it knew of it.
    #[cold]
    fn go_on_from(&mut self, place: u32, said: LastReport<K>) {
        let (seat, places) = (WriterPlace::own(&self.context), self.places());
        let before = self.before.get_or_insert_with(|| Others::new(seat, places));
        let known = before.places[place as usize];
        let (context, seed) = (&self.context, self.context.seed());
        let is_later =
            |origin, than| is_of_later_incarnation(context, Origin(origin), Origin(than));
        let Some(held) = said
            .get()
            .filter(|_| before.learn((place, seed), said, is_later))
        else {
            return;
        };
        if !self.reported[place as usize] {
            self.audit(place, seat.lane, known, said);
        }
        if self.own.put(place, held) {
            return;
        }
        // The others have that in this place now, or had something of this incarnation there before: they are informed what is there.
        let more = held.count.saturating_sub(known.count);
        if more > 0 {
            let changed = self.own.add(&held.key, more, held.error.min(more));
            self.mark(changed);
        }
        let marked = self.own.mark(place).then_some(place);
        self.mark(marked);
    }

    /// What a writer is known to have reported a place changed.
    fn audit(&mut self, place: u32, lane: u16, before: LastReport<K>, after: LastReport<K>) {
        let digests = (
            self.digest_of(place, lane, before),
            self.digest_of(place, lane, after),
        );
        if let Some(announced) = &mut self.announced {
            announced.applied(hash_place(place, &()), digests.0, digests.1);
        }
    }

    /// A place's part of the digests that hosts compare; nothing if nobody reported anything of it.
    fn digest_of(&self, place: u32, lane: u16, said: LastReport<K>) -> u64 {
        let origin = said.origin;
        said.get().map_or(0, |held| {
            let writer = writer(&self.context, Writing { origin, lane });
            let name = hash::words(held.key.hash(self.context.seed()), place.into(), 0);
            announced::digest(name, writer, (held.count, held.error))
        })
    }

    /// The lane of the instance behind a number: 0 is this one.
    fn lane(&self, writer: u32) -> Option<u16> {
        match writer.checked_sub(1) {
            None => Some(WriterPlace::own(&self.context).lane),
            Some(other) => Some(self.others.get(other as usize)?.seat.lane),
        }
    }

    /// What an instance reported a place: this one in this incarnation, or before it.
    fn reported(&self, writer: u32, place: u32) -> LastReport<K> {
        let at = place as usize;
        match writer.checked_sub(1) {
            None if !self.reported[at] => self
                .before
                .as_ref()
                .map_or(LastReport::NOTHING, |before| before.places[at]),
            None => match &self.announced {
                Some(announced) => announced.own[at],
                None => self.said(place),
            },
            Some(other) => self
                .others
                .get(other as usize)
                .map_or(LastReport::NOTHING, |others| others.places[at]),
        }
    }

    /// What this instance has in a place.
    fn said(&self, place: u32) -> LastReport<K> {
        let held = self.own.get(place);
        held.map_or(LastReport::NOTHING, |held| {
            LastReport::of(held, Origins::OWN.0)
        })
    }

    /// What is known of an instance's place.
    fn counted(&self, writer: u32, place: u32) -> Option<Counted<K>> {
        match writer.checked_sub(1) {
            None => self.own.get(place),
            Some(other) => self.others.get(other as usize)?.get(place),
        }
    }
}

/// The writes of a [`TopK`].
#[derive(Debug)]
pub struct TopKAct<'a, K: Key>(&'a mut TopK<K>);

impl<K: Key> TopKAct<'_, K> {
    /// Adds for a key. Costs two cache lines, and log₂(places) more at most where its order among the others changes.
    #[inline]
    pub fn add(&mut self, key: &K, weight: u64) {
        if weight > 0 {
            self.0.add(key, weight);
        }
    }
}

impl<K: Key> Writable for TopK<K> {
    type Act<'a> = TopKAct<'a, K>;

    fn act(&mut self) -> TopKAct<'_, K> {
        TopKAct(self)
    }
}

impl<K: Key> Replicate for TopK<K> {
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        let writing = read_writing(input, stamp)?;
        let place = read_place(input, self.places())?;
        let (key, error) = (K::decode(input)?, input.varint()?);
        let said = counted(key, error, input.varint()?)?;
        self.learn(writing, place, said)
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        if self.context.accumulators_held() {
            return true;
        }
        let lane = self.context.identity().lane.0;
        while let Some(&place) = self.changed.last() {
            if *bytes < OPERATION_BYTES_MAX {
                return false;
            }
            self.changed.pop();
            self.own.unmark(place);
            let Some(held) = self.own.get(place) else {
                continue;
            };
            self.context
                .stamp(true, crate::context::OPERATION_BYTES_MAX);
            let length = self.context.log(|out| {
                out.tag(self.object, 0);
                out.varint(lane.into());
                write_name(place, &held, out);
                out.varint(held.count);
            });
            *bytes = bytes.saturating_sub(length);
            let (before, after) = (
                self.reported(0, place),
                LastReport::of(held, Origins::OWN.0),
            );
            let digests = (
                self.digest_of(place, lane, before),
                self.digest_of(place, lane, after),
            );
            self.reported[place as usize] = true;
            if let Some(announced) = &mut self.announced {
                announced.own[place as usize] = after;
                let leaf = Leaves::of(hash_place(place, &()));
                announced.leaves.replace(leaf, digests.0, digests.1);
            }
        }
        true
    }
    fn joined(&mut self) {
        if core::mem::replace(&mut self.joined, true) {
            return;
        }
        let seat = WriterPlace::own(&self.context);
        let Some(of) = self.others.iter().position(|others| others.seat == seat) else {
            return;
        };
        let before = self.others.remove(of);
        for place in 0..self.places() {
            let Some(held) = before.get(place) else {
                continue;
            };
            self.own.put(place, held);
            let origin = Origin(before.places[place as usize].origin);
            if bears_old_name(&self.context, origin) {
                let marked = self.own.mark(place).then_some(place);
                self.mark(marked);
            }
        }
        self.before = Some(before);
    }
}

impl<K: Key> Sweep for TopK<K> {
    /// Of all instances' places.
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32> {
        let places = self.places();
        let summaries = self.before.iter().chain(&self.others);
        let all = places.saturating_mul(u32::try_from(summaries.clone().count()).unwrap_or(0));
        let end = cursor.saturating_add(records.max(1)).min(all);
        let summaries: Vec<_> = summaries.collect();
        for at in cursor..end {
            let of = summaries[(at / places) as usize];
            named.mark(of.places[(at % places) as usize].origin);
        }
        (end < all).then_some(end)
    }
}

impl<K: Key> Audit for TopK<K> {
    fn tells_own(&self) -> bool {
        true
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        let leaves = self.announced.as_ref().map(|announced| &announced.leaves);
        Leaves::read(leaves, first, out)
    }
    fn announced(&self) -> u64 {
        let mut sum = 0u64;
        for of in 0..=self.others.len() as u32 {
            let Some(lane) = self.lane(of) else {
                continue;
            };
            for place in 0..self.places() {
                let said = self.reported(of, place);
                sum = sum.wrapping_add(self.digest_of(place, lane, said));
            }
        }
        sum
    }
    /// Counts of a place only grow, so it raises what is too small elsewhere; what is too great goes when a greater one is reported.
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        let end = cursor.saturating_add(records).min(self.places());
        let mut reported = 0;
        for place in cursor..end {
            let wanted = leaves.contains(Leaves::of(hash_place(place, &())));
            if wanted && self.reported(0, place).get().is_some() {
                reported += 1;
                let marked = self.own.mark(place).then_some(place);
                self.mark(marked);
            }
        }
        ((end < self.places()).then_some(end), reported)
    }
    fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        let mut digest = 0u64;
        for writer in 0..=self.others.len() as u32 {
            let Some(lane) = self.lane(writer) else {
                continue;
            };
            for place in 0..self.places() {
                // What this incarnation tells of next counts as reported.
                let mut said = self.reported(writer, place);
                if writer == 0 && self.own.get(place) != said.get() {
                    said = self.said(place);
                }
                let Some(held) = said.get() else {
                    continue;
                };
                let name = self.context.origin_name(Origin(said.origin));
                bytes.clear();
                let mut out = Writer::new(&mut bytes, self.context.addresses());
                out.u16(name.member);
                out.u64(name.incarnation);
                out.u16(lane);
                write_name(place, &held, &mut out);
                out.u64(held.count);
                digest = digest.wrapping_add(hash::bytes(&bytes, 0));
            }
        }
        digest
    }
}

impl<K: Key> Snapshot for TopK<K> {
    /// Of a place that is reported again, the greater count is the newer.
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        if !self.settings.is_replicated() {
            return None;
        }
        let places = self.places();
        let (mut writer, mut first) = (cursor / places, cursor % places);
        while let Some(lane) = self.lane(writer) {
            for place in first..places {
                if !part.query() {
                    return Some(writer * places + place);
                }
                let said = self.reported(writer, place);
                let Some(held) = said.get() else {
                    continue;
                };
                if !part.has_room() {
                    return Some(writer * places + place);
                }
                let mut bytes = Writer::new(part.out(), self.context.addresses());
                bytes.tag(self.object, 0);
                write_name(place, &held, &mut bytes);
                // No stamp is needed but for whose it is.
                let origin = said.origin;
                let stamp = Stamp {
                    origin: Origin(origin),
                    sequence: 0,
                };
                let writing = Writing { origin, lane };
                write_cell(&self.context, writing, held.count, stamp, &mut bytes);
            }
            (writer, first) = (writer + 1, 0);
        }
        None
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let place = read_place(input, self.places())?;
        let (key, error) = (K::decode(input)?, input.varint()?);
        let (writing, count, _) = read_cell(&self.context, input)?;
        self.learn(writing, place, counted(key, error, count)?)
    }
    /// All instances' places become this one's: what is restored may be off by twice as much.
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        input.varint()?;
        let (key, error) = (K::decode(input)?, input.varint()?);
        let said = counted(key, error, read_saved(input)?)?;
        let changed = self.own.add(&said.key, said.count, said.error);
        self.mark(changed);
        Ok(true)
    }
}

impl<K: Key> Inspect for TopK<K> {
    fn capacity(&self) -> u32 {
        self.places()
    }
    fn entries(&self) -> usize {
        self.own.used() as usize
    }
}

impl<K: Key> Fetch for TopK<K> {
    fn stays_because(&self) -> Option<&'static str> {
        Some(
            "a new key takes the place of the lightest one, so that each addition would depend on all places",
        )
    }
}

impl<K: Key> Operations for TopK<K> {
    fn begin_recording(&mut self) {
        if !self.is_recording && !mutant::active(Mutant::RefusedCallCounted) {
            self.is_recording = true;
            self.swap_aside();
        }
    }
    fn end_recording(&mut self) {
        if core::mem::take(&mut self.is_recording) {
            self.swap_aside();
        }
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (key, weight) = (K::decode(input)?, input.varint()?);
        self.add(&key, weight);
        Ok(())
    }
}

impl<K: Key> PerPacket for TopK<K> {
    fn prefetch_records(&self, prefetch_hints: &PrefetchHints, packets: Range<usize>) -> usize {
        prefetch_hints.each_record(packets, |_| {
            |bucket, hash| {
                let place = self.own.index().likely(bucket, hash)?;
                self.own.prefetch(place);
                Some(place)
            }
        })
    }
    fn outgrew_cache(&self, cache_bytes: usize) -> bool {
        self.own.bytes_in_use() > cache_bytes
    }
}

/// What a place is called by: its number, its key, and what of its count may be others'.
fn write_name<K: Key>(place: u32, held: &Counted<K>, out: &mut Writer<'_>) {
    out.varint(place.into());
    held.key.encode(out);
    out.varint(held.error);
}

/// What a place holds, if that can be.
fn counted<K>(key: K, error: u64, count: u64) -> Result<Counted<K>, BadBytes> {
    if count == 0 || error > count {
        return Err(BadBytes);
    }
    Ok(Counted { count, error, key })
}
