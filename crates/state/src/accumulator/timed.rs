//! Totals by place and time bucket: what windowed accumulators are made of.
//!
//! As `writer_counters.rs`, with a cell for each place and each bucket of the ring (`asterism-windows`). Within a bucket an instance's total only
//! grows, so that of two copies the greater one is the newer: merging is a maximum and needs no stamps. A cell knows its bucket, so
//! that nothing is cleared when the ring moves on: what is of a dropped bucket counts as nothing, and is written over.

use std::rc::Rc;

use asterism_memory::region::Region;
use asterism_memory::zeroed;
use asterism_windows::{Known, Ring, Rolling, SKEW_SECONDS_MAX, name_in, read_bucket};

use super::announced::{digest, digest_if, writer};
use super::{CELLS_MAX, WRITERS_MAX, Writing, is_own, own_writing, write_cell};
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, OPERATION_BYTES_MAX, Query};
use crate::mutant::{self, Mutant};
use crate::object::{ObjectSettings, Part};
use crate::stamp::{NamedOrigins, Origin, Stamp};
use crate::wire::{BadBytes, Reader, SumsRead, Writer, write_sums};

/// Flag of an operation and of an entry of a snapshot: not a total, but where the ring ends.
pub(super) const ADVANCE: u8 = 1;
/// With it, of an entry of a snapshot: where the ring of who wrote the snapshot ends, which nobody announced yet.
const UNANNOUNCED: u8 = 2;

/// Buckets of a window in a store, at most: a read asks for each.
const BUCKETS_IN_STORE_MAX: u32 = 64;
/// Why sums stay here that the function lists.
pub(super) const LISTED: &str =
    "the function lists its sums, and a store is asked for those of single keys";

/// Why sums of so many buckets stay here, if they do.
pub(super) fn too_many_buckets(ring: &Ring) -> Option<&'static str> {
    let are_too_many = ring.slots() > BUCKETS_IN_STORE_MAX + 1 + SKEW_SECONDS_MAX;
    are_too_many.then_some("its window has more than 64 buckets, and a read asks for each")
}

zeroed! {
    /// What all instances added in one place and bucket.
    struct Cell {
        own: u64,
        others: u64,
        bucket: u32,
        /// How often it changed since it was reported, counted down from zero: it is in the list of those to tell unless zero.
        changes: u32,
    }
}

#[derive(Debug)]
struct Others {
    writing: Writing,
    writer_counters: Region<Known>,
}

/// A number of places, each with a cell for every bucket of the ring.
#[derive(Debug)]
pub(super) struct TimedWriterCounters {
    context: Rc<Context>,
    object: u8,
    logged: bool,
    pub(super) ring: Ring,
    /// The ring while a call is recorded.
    aside: Option<Ring>,
    writer_counters: Region<Cell>,
    changed: Vec<u32>,
    /// Of those that had changed when a flush began, the ones that it has not reported yet.
    telling: Vec<u32>,
    others: Vec<Others>,
    announced: Option<Rolling>,
}

impl TimedWriterCounters {
    pub(super) fn new(
        context: Rc<Context>,
        object: u8,
        settings: &ObjectSettings,
        (places, ring): (u32, Ring),
    ) -> Self {
        let room = places.checked_mul(ring.slots());
        let room = room.filter(|&room| room < CELLS_MAX);
        let room = room.unwrap_or_else(|| {
            panic!("a windowed accumulator has fewer than {CELLS_MAX} writer_counters: keys × 2 × buckets kept, or writer_counters × buckets kept")
        });
        Self {
            context,
            object,
            logged: settings.is_replicated(),
            announced: Rolling::new(settings.is_replicated() && settings.audited, &ring, room),
            ring,
            aside: None,
            writer_counters: Region::new(room as usize),
            changed: Vec::with_capacity(room as usize),
            telling: Vec::with_capacity(room as usize),
            others: Vec::with_capacity(64),
        }
    }

    /// The cells of a place, one for each slot of the ring.
    #[inline(always)]
    fn of_place(&self, place: u32) -> &[Cell] {
        let slots = self.ring.slots() as usize;
        &self.writer_counters[place as usize * slots..][..slots]
    }

    /// What all instances added in a place, as far as it is known here, in the window that ends now.
    #[inline(always)]
    pub(super) fn sum(&self, place: u32, tick: u32) -> u64 {
        let (before, last) = match mutant::active(Mutant::WindowRestarts) {
            true => self.ring.newest(1, tick),
            false => self.ring.shown(tick),
        };
        self.of_place(place)
            .iter()
            .filter(|cell| cell.bucket > before && cell.bucket <= last)
            .fold(0, |sum, cell| {
                sum.wrapping_add(cell.own).wrapping_add(cell.others)
            })
    }

    /// The same in the bucket that `tick` lies in alone; 0 when that is not kept.
    pub(super) fn sum_at(&self, place: u32, tick: u32) -> u64 {
        self.sum_in(place, self.ring.bucket(tick))
    }

    /// The same in a bucket.
    pub(super) fn sum_in(&self, place: u32, bucket: u32) -> u64 {
        if !self.ring.keeps(bucket) {
            return 0;
        }
        let cell = &self.writer_counters[self.at(place, bucket)];
        if cell.bucket == bucket {
            cell.own.wrapping_add(cell.others)
        } else {
            0
        }
    }

    /// What a store answers of sums in buckets; `place` says where those of a field are.
    pub(super) fn extract(
        &self,
        query: &Query<'_>,
        out: &mut Vec<u8>,
        place: impl Fn(&[u8]) -> Option<u32>,
    ) {
        let read = SumsRead::read(query.key);
        let fields = read.iter().flat_map(|read| {
            let each = read.fields();
            each.map(move |field| (field, read.each_bucket()))
        });
        let sums = fields.filter_map(|(field, buckets)| {
            let place = place(field)?;
            let each = buckets.map(|bucket| self.sum_in(place, bucket));
            let sum = each.fold(0, u64::wrapping_add);
            (sum != 0).then_some((field, sum as i64))
        });
        write_sums(sums, out);
    }

    /// Whether no bucket that is kept holds anything of a place.
    pub(super) fn is_empty(&self, place: u32) -> bool {
        let mut writer_counters = self.of_place(place).iter();
        !writer_counters.any(|cell| self.ring.keeps(cell.bucket))
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, place: u32) {
        self.writer_counters
            .prefetch((place * self.ring.slots()) as usize);
    }

    pub(super) fn bytes_of(&self, places: u32) -> usize {
        places as usize * self.ring.slots() as usize * size_of::<Cell>()
    }

    /// A place's cell of a bucket that is kept, as a number.
    #[inline(always)]
    fn at(&self, place: u32, bucket: u32) -> usize {
        (place * self.ring.slots() + self.ring.slot(bucket)) as usize
    }

    /// The cell, of this bucket from now on.
    #[inline(always)]
    fn cell(&mut self, at: usize, bucket: u32) -> &mut Cell {
        let cell = &mut self.writer_counters[at];
        if cell.bucket != bucket {
            (cell.own, cell.others, cell.bucket) = (0, 0, bucket);
        }
        cell
    }

    /// Adds something in a bucket that is kept, as this instance; a total stops at 2⁶⁴ - 1.
    #[inline(always)]
    pub(super) fn add(&mut self, place: u32, bucket: u32, amount: u64) {
        let at = self.at(place, bucket);
        let cell = self.cell(at, bucket);
        cell.own = cell.own.saturating_add(amount);
        let first;
        (cell.changes, first) = cell.changes.overflowing_sub(1);
        if first {
            self.mark(at);
        }
    }

    /// From here on additions find no bucket: see `recording.rs`.
    pub(super) fn begin_recording(&mut self) {
        if self.aside.is_none() && !mutant::active(Mutant::RefusedCallCounted) {
            self.aside = Some(self.ring);
            self.ring = self.ring.without_buckets();
        }
    }

    pub(super) fn end_recording(&mut self) {
        if let Some(ring) = self.aside.take() {
            self.ring = ring;
        }
    }

    /// Whether a call is recorded.
    pub(super) fn is_recording(&self) -> bool {
        self.aside.is_some()
    }

    #[cold]
    #[inline(never)]
    fn mark(&mut self, at: usize) {
        if self.logged {
            self.changed.push(at as u32);
        }
    }

    /// Whose totals are spoken of: `None` for this instance's own, which knows better.
    pub(super) fn writer(&self, writing: Writing) -> Result<Option<Writing>, BadBytes> {
        if is_own(&self.context, writing) {
            return Ok(None);
        }
        let known = self.others.iter().any(|others| others.writing == writing);
        if !known && self.others.len() >= WRITERS_MAX && self.forgotten().is_none() {
            return Err(BadBytes);
        }
        Ok(Some(writing))
    }

    /// A writer of which nothing is kept any more.
    #[cold]
    fn forgotten(&self) -> Option<usize> {
        let keeps = |known: &Known| known.total > 0 && self.ring.keeps(known.bucket);
        let mut others = self.others.iter();
        others.position(|others| !others.writer_counters.iter().any(keeps))
    }

    /// Room for the totals of a writer that is new.
    #[cold]
    fn begin(&mut self, writing: Writing) -> usize {
        if self.others.len() >= WRITERS_MAX
            && let Some(of) = self.forgotten()
        {
            self.others[of].writing = writing;
            return of;
        }
        let writer_counters = Region::made_late(self.writer_counters.len());
        self.others.push(Others {
            writing,
            writer_counters,
        });
        self.others.len() - 1
    }

    /// Whether what a member said of a bucket is taken up.
    pub(super) fn accept(&mut self, bucket: u32) -> bool {
        let before = self.ring.tally.ahead;
        let accepted = self.ring.accept(bucket, self.context.tick());
        if let Some(announced) = &mut self.announced {
            if self.ring.tally.ahead != before {
                announced.refused(bucket);
            } else {
                announced.advance(bucket);
            }
        }
        accepted
    }

    /// What a writer said of its total in a bucket that is kept, in a place of which `name` is a hash that is the same
    /// everywhere. By how much that raises the sum.
    pub(super) fn learn(
        &mut self,
        writing: Writing,
        (place, name): (u32, u64),
        (bucket, total): (u32, u64),
    ) -> u64 {
        let known = self
            .others
            .iter()
            .position(|others| others.writing == writing);
        let of = known.unwrap_or_else(|| self.begin(writing));
        let at = self.at(place, bucket);
        let known = &mut self.others[of].writer_counters[at];
        if known.bucket != bucket {
            (known.total, known.bucket) = (0, bucket);
        }
        let raise = total.saturating_sub(known.total);
        if raise > 0 {
            let before = core::mem::replace(&mut known.total, total);
            if let Some(announced) = &mut self.announced {
                let writer = writer(&self.context, writing);
                let cell = name_in(bucket, name);
                announced.applied(
                    bucket,
                    name,
                    digest_if(before != 0, cell, writer, (before, 0)),
                    digest(cell, writer, (total, 0)),
                );
            }
            let cell = self.cell(at, bucket);
            cell.others = cell.others.wrapping_add(raise);
        }
        raise
    }

    /// Moves the ring on with this host's clock, and tells it if that drops anything.
    pub(super) fn keep_up(&mut self) {
        if self.ring.keep_up(self.context.tick()) && self.logged {
            self.context
                .stamp(true, crate::context::OPERATION_BYTES_MAX);
            self.context.log(|out| {
                out.tag(self.object, ADVANCE);
                out.varint(self.ring.head().into());
            });
            if let Some(announced) = &mut self.announced {
                announced.advance(self.ring.head());
            }
        }
        if let Some(announced) = &mut self.announced {
            announced.follow(&self.ring);
        }
    }

    /// What a member said of where the ring ends.
    pub(super) fn advance(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let bucket = read_bucket(input)?;
        let advanced = self.ring.advance(bucket, self.context.tick());
        if let Some(announced) = &mut self.announced
            && flags & UNANNOUNCED == 0
        {
            if advanced {
                announced.advance(bucket);
            } else {
                announced.refused(bucket);
            }
        }
        Ok(())
    }

    /// Logs the totals that changed. `name` writes what a place is called by, `hash` is that of [`TimedWriterCounters::learn`]; a place
    /// without a name is not reported.
    pub(super) fn flush(
        &mut self,
        bytes: &mut usize,
        name: impl Fn(u32, &mut Writer<'_>),
        hash: impl Fn(u32) -> u64,
    ) -> bool {
        if self.context.accumulators_held() {
            return true;
        }
        let lane = self.context.identity().lane.0;
        if self.telling.is_empty() {
            core::mem::swap(&mut self.telling, &mut self.changed);
        }
        while let Some(&at) = self.telling.last() {
            if *bytes < OPERATION_BYTES_MAX {
                return false;
            }
            self.telling.pop();
            let cell = &mut self.writer_counters[at as usize];
            let changes = core::mem::take(&mut cell.changes);
            let (own, bucket) = (cell.own, cell.bucket);
            if own == 0 || !self.ring.keeps(bucket) {
                // Held back until its bucket was dropped: nobody would take it up.
                self.ring.tally.expired += 1;
                continue;
            }
            self.context.note_reported(changes);
            self.context
                .stamp(true, crate::context::OPERATION_BYTES_MAX);
            let length = self.context.log(|out| {
                out.tag(self.object, 0);
                out.varint(lane.into());
                name(at / self.ring.slots(), out);
                out.varint(bucket.into());
                out.varint(own);
            });
            *bytes = bytes.saturating_sub(length);
            if let Some(announced) = &mut self.announced {
                announced.advance(bucket);
                let reported = Known { total: own, bucket };
                let known = core::mem::replace(&mut announced.own[at as usize], reported);
                let before = if known.bucket == bucket {
                    known.total
                } else {
                    0
                };
                let name = hash(at / self.ring.slots());
                let writer = writer(&self.context, own_writing(&self.context));
                let cell = name_in(bucket, name);
                announced.replace(
                    bucket,
                    name,
                    digest_if(before != 0, cell, writer, (before, 0)),
                    digest(cell, writer, (own, 0)),
                );
            }
        }
        true
    }

    /// Copies digests of what is announced; false if none are kept.
    pub(super) fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        let announced = self.announced.as_ref();
        announced.is_some_and(|announced| announced.read(&self.ring, first, out))
    }

    /// The sum of these digests, by a look at the cells of the first `used` places, if nothing is unsure.
    pub(super) fn announced(&self, used: u32, hash: impl Fn(u32) -> u64) -> u64 {
        let mut sum = 0u64;
        for of in 0..=self.others.len() as u32 {
            for at in 0..used * self.ring.slots() {
                let known = self.total(of, at);
                if let Some((writing, total, bucket)) = known.filter(|_| self.announced.is_some()) {
                    let cell = name_in(bucket, hash(at / self.ring.slots()));
                    let writer = writer(&self.context, writing);
                    sum = sum.wrapping_add(digest(cell, writer, (total, 0)));
                }
            }
        }
        sum
    }

    /// Has the next flush tell again what this instance announced of some leaves; as `WriterCounters::tell_again`. Totals of a bucket only grow, so it raises what is too small elsewhere; what is too great is gone
    /// when its bucket is dropped.
    pub(super) fn tell_again(
        &mut self,
        leaves: &LeafSet,
        (cursor, places, used): (u32, u32, u32),
        hash: impl Fn(u32) -> u64,
    ) -> (Option<u32>, u32) {
        let end = cursor.saturating_add(places).min(used);
        let mut reported = 0;
        for at in cursor * self.ring.slots()..end * self.ring.slots() {
            let own = self.total(0, at);
            let Some((known, announced)) = own.zip(self.announced.as_ref()) else {
                continue;
            };
            let name = hash(at / self.ring.slots());
            let (bucket, cell) = (known.2, &mut self.writer_counters[at as usize]);
            if cell.bucket != bucket || !leaves.contains(announced.leaf_of(bucket, name)) {
                continue;
            }
            reported += 1;
            if cell.changes == 0 {
                cell.changes = u32::MAX;
                self.mark(at as usize);
            }
        }
        ((end < used).then_some(end), reported)
    }

    /// Where the ring ends, then the totals of all writers in the first `used` places, writer by writer: as they were announced,
    /// if hosts compare that. Of a total that is reported again, the greater one counts.
    pub(super) fn snapshot(
        &self,
        cursor: u32,
        used: u32,
        part: &mut Part<'_>,
        name: impl Fn(u32, &mut Writer<'_>),
    ) -> Option<u32> {
        if !self.logged || self.ring.head() == 0 {
            return None;
        }
        if cursor == 0 {
            if !part.has_room() {
                return Some(0);
            }
            let mut bytes = Writer::new(part.out(), self.context.addresses());
            let announced = self.announced.as_ref();
            let head = announced.map_or(self.ring.head(), Rolling::head);
            for (flags, head, ends) in [
                (ADVANCE, head, head > 0),
                (
                    ADVANCE | UNANNOUNCED,
                    self.ring.head(),
                    self.ring.head() > head,
                ),
            ] {
                if ends {
                    bytes.tag(self.object, flags);
                    bytes.varint(head.into());
                }
            }
        }
        let room = (self.writer_counters.len() as u32).max(1);
        let from = cursor.saturating_sub(1);
        let (mut writer, mut first) = (from / room, from % room);
        while writer as usize <= self.others.len() {
            for at in first..used * self.ring.slots() {
                if !part.query() {
                    return Some(1 + writer * room + at);
                }
                let Some((writing, total, bucket)) = self.total(writer, at) else {
                    continue;
                };
                if !part.has_room() {
                    return Some(1 + writer * room + at);
                }
                let mut bytes = Writer::new(part.out(), self.context.addresses());
                bytes.tag(self.object, 0);
                name(at / self.ring.slots(), &mut bytes);
                bytes.varint(bucket.into());
                // No stamp is needed: that of a cell says whose it is.
                let stamp = Stamp {
                    origin: Origin(writing.origin),
                    sequence: 0,
                };
                write_cell(&self.context, writing, total, stamp, &mut bytes);
            }
            (writer, first) = (writer + 1, 0);
        }
        self.snapshot_end(writer * room, part)
    }

    /// What the ring dropped during the scan was not reported, unless it is announced by now: then it follows in the log.
    fn snapshot_end(&self, end: u32, part: &mut Part<'_>) -> Option<u32> {
        let head = self.ring.head();
        let announced = self.announced.as_ref().map_or(head, Rolling::head);
        if head > announced {
            if !part.has_room() {
                return Some(1 + end);
            }
            let mut bytes = Writer::new(part.out(), self.context.addresses());
            bytes.tag(self.object, ADVANCE | UNANNOUNCED);
            bytes.varint(head.into());
        }
        None
    }

    /// Marks the slots of all writers that have cells: 1,024 at most, so at once.
    pub(super) fn origins_named(&self, named: &mut NamedOrigins) {
        let others = self.others.iter();
        others.for_each(|others| named.mark(others.writing.origin));
    }

    /// What is known of a writer's total: (whose, total, bucket); `None` if nothing is kept. Writer 0 is this instance.
    fn total(&self, writer: u32, at: u32) -> Option<(Writing, u64, u32)> {
        let (writing, total, bucket) = match writer.checked_sub(1) {
            None => {
                let Cell { own, bucket, .. } = self.writer_counters[at as usize];
                let announced = self.announced.as_ref();
                let (total, bucket) = announced.map_or((own, bucket), |announced| {
                    let reported = announced.own[at as usize];
                    (reported.total, reported.bucket)
                });
                (own_writing(&self.context), total, bucket)
            }
            Some(other) => {
                let others = self.others.get(other as usize)?;
                let Known { total, bucket } = others.writer_counters[at as usize];
                (others.writing, total, bucket)
            }
        };
        (total != 0 && self.ring.keeps(bucket)).then_some((writing, total, bucket))
    }

    /// Where the ring ends, and the sum of a hash for each bucket of the first `used` places that holds something.
    pub(super) fn digest(&self, used: u32, name: impl Fn(u32) -> u64) -> u64 {
        let end = asterism_memory::hash::word(self.ring.head().into(), 0);
        (0..used).fold(end, |digest, place| {
            let kept = self.of_place(place).iter();
            kept.filter(|cell| self.ring.keeps(cell.bucket))
                .map(|cell| (cell.bucket, cell.own.wrapping_add(cell.others)))
                .filter(|&(_, sum)| sum != 0)
                .fold(digest, |digest, (bucket, sum)| {
                    digest.wrapping_add(asterism_memory::hash::words(
                        name(place),
                        sum,
                        bucket.into(),
                    ))
                })
        })
    }
}
