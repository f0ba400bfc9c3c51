//! Totals by place: what an accumulator with many cells is made of.

use std::rc::Rc;

use asterism_memory::region::{Region, Zeroed};
use asterism_memory::zeroed;

use super::announced::{Announced, digest, writer};
use super::{
    CELLS_MAX, Party, WRITERS_MAX, WriterPlace, Writing, bears_old_name, change,
    is_of_later_incarnation, newer, own_writing, read_cell, read_writing, write_cell,
};
use crate::audit::{Leaf, LeafSet, Leaves};
use crate::context::{Context, OPERATION_BYTES_MAX};
use crate::mutant::{self, Mutant};
use crate::object::{ObjectSettings, Part};
use crate::recording::Recordable;
use crate::stamp::{NamedOrigins, Origin, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// What all instances added in one place.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Cell<T> {
    own: u64,
    others: u64,
    /// The group of the last flush of `own`; 0 before the first.
    flushed: u64,
    /// How often it changed since then, counted down from zero: so the first change shows as a borrow, and counting the
    /// others costs no more than asking.
    changes: u32,
    tag: T,
}

// SAFETY: zero is a cell that nobody added to. A tag of which zero is no value is read only where one was set before.
unsafe impl<T: Copy> Zeroed for Cell<T> {}

/// What becomes of an instance's total in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Totals {
    /// It only grows, so that of one group the greater one is the newer.
    Grow,
    /// It may fall too: only groups tell which one is newer.
    Fall,
}

zeroed! {
    /// A total that was announced: in which group of which incarnation. No group: none was.
    struct LastReport {
        total: u64,
        sequence: u64,
        origin: u16,
    }
}

impl LastReport {
    const NOTHING: Self = Self {
        total: 0,
        sequence: 0,
        origin: 0,
    };
}

/// Totals of one other writer, by place.
#[derive(Debug)]
struct Others {
    seat: WriterPlace,
    writer_counters: Region<LastReport>,
}

/// Which totals a writer's are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    /// This instance's: it knows better.
    Own,
    /// Those of an earlier incarnation of this host, with which this instance goes on.
    Before(Origin),
    /// Those of a writer that was heard before.
    Known(usize, Origin),
    /// Of one that was not.
    New(WriterPlace, Origin),
}

/// A number of cells, each with a tag beside it: of counters by key, the key.
#[derive(Debug)]
pub(super) struct WriterCounters<T: Copy> {
    context: Rc<Context>,
    object: u8,
    logged: bool,
    /// What changes is noted, since it is logged now or may be later.
    notes_changes: bool,
    totals: Totals,
    writer_counters: Recordable<Cell<T>>,
    changed: Vec<u32>,
    /// Of those that had changed when a flush began, the ones that it has not reported yet: what changes while it goes on waits for
    /// the next one, however often that is.
    telling: Vec<u32>,
    others: Vec<Others>,
    /// What instances in the place of this one announced in earlier incarnations of the host, by place. It is part of `own`, and what is reported
    /// of a place until this incarnation announced something of it.
    before: Option<Region<LastReport>>,
    /// The last announced total of each own cell is in it too.
    announced: Option<Announced<u64>>,
}

impl<T: Copy> WriterCounters<T> {
    pub(super) fn new(
        context: Rc<Context>,
        object: u8,
        settings: &ObjectSettings,
        (room, totals): (u32, Totals),
    ) -> Self {
        let logged = settings.is_replicated();
        assert!(
            !settings.may_be_replicated() || room <= CELLS_MAX,
            "a shared accumulator has at most {CELLS_MAX} writer_counters"
        );
        Self {
            context,
            object,
            logged,
            notes_changes: settings.may_be_replicated(),
            totals,
            writer_counters: Recordable::new(room as usize),
            changed: Vec::with_capacity(room as usize),
            telling: Vec::with_capacity(room as usize),
            others: Vec::with_capacity(64),
            before: None,
            announced: Announced::new(settings, room),
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.writer_counters.len() as u32
    }

    /// The sum over all instances, as far as it is known here.
    #[inline(always)]
    pub(super) fn sum(&self, place: u32) -> u64 {
        let cell = &self.writer_counters[place as usize];
        cell.own.wrapping_add(cell.others)
    }

    #[inline(always)]
    pub(super) fn tag(&self, place: u32) -> &T {
        &self.writer_counters[place as usize].tag
    }

    pub(super) fn set_tag(&mut self, place: u32, tag: T) {
        self.writer_counters[place as usize].tag = tag;
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, place: u32) {
        self.writer_counters.prefetch(place as usize);
    }

    pub(super) const CELL_BYTES: usize = size_of::<Cell<T>>();

    /// Adds, as this instance; wraps at 2⁶⁴. False if there is no such place, and while a call is recorded.
    #[inline(always)]
    pub(super) fn add(&mut self, place: u32, amount: u64) -> bool {
        let Some(cell) = self.writer_counters.get_mut(place as usize) else {
            return false;
        };
        cell.own = cell.own.wrapping_add(amount);
        let first;
        (cell.changes, first) = cell.changes.overflowing_sub(1);
        if first {
            self.mark(place);
        }
        true
    }

    /// From here on additions find no place: see `recording.rs`.
    pub(super) fn begin_recording(&mut self) {
        self.writer_counters.begin_recording();
    }

    pub(super) fn end_recording(&mut self) {
        self.writer_counters.end_recording();
    }

    /// Whether a call is recorded, of which additions do not find this place that there is.
    pub(super) fn records(&self, place: u32) -> bool {
        self.writer_counters.is_recording() && (place as usize) < self.writer_counters.length()
    }

    /// Whether a call is recorded.
    pub(super) fn is_recording(&self) -> bool {
        self.writer_counters.is_recording()
    }

    #[cold]
    #[inline(never)]
    fn mark(&mut self, place: u32) {
        if self.notes_changes {
            self.changed.push(place);
        }
    }

    /// Logs totals from now on, all that was added since they were logged last included; or does so no longer.
    pub(super) fn share(&mut self, shares: bool) {
        self.logged = shares;
    }

    /// Whose totals are spoken of.
    pub(super) fn whose(&self, writing: Writing) -> Result<Whose, BadBytes> {
        let origin = Origin(writing.origin);
        let seat = match Party::of(&self.context, writing) {
            Party::Own => return Ok(Whose::Own),
            Party::Before => return Ok(Whose::Before(origin)),
            Party::Other(seat) => seat,
        };
        let known = self.others.iter().position(|others| others.seat == seat);
        match known {
            Some(place) => Ok(Whose::Known(place, origin)),
            None if self.others.len() >= WRITERS_MAX => Err(BadBytes),
            None => Ok(Whose::New(seat, origin)),
        }
    }

    /// What group `sequence` of a writer said of its total in a place, of which `name` is a hash that is the same everywhere.
    pub(super) fn learn(
        &mut self,
        whose: Whose,
        (place, name): (u32, u64),
        (total, sequence): (u64, u64),
    ) {
        let said = |Origin(origin)| LastReport {
            total,
            sequence,
            origin,
        };
        let (of, said) = match whose {
            Whose::Own => return,
            Whose::Before(origin) => return self.go_on_from((place, name), said(origin)),
            Whose::Known(of, origin) => (of, said(origin)),
            Whose::New(seat, origin) => {
                let writer_counters = Region::made_late(self.writer_counters.len());
                self.others.push(Others {
                    seat,
                    writer_counters,
                });
                (self.others.len() - 1, said(origin))
            }
        };
        let known = self.others[of].writer_counters[place as usize];
        if self.replaces(said, known) {
            self.others[of].writer_counters[place as usize] = said;
            let cell = &mut self.writer_counters[place as usize];
            cell.others = cell.others.wrapping_add(change(total, known.total));
            let lane = self.others[of].seat.lane;
            let (before, after) = (
                self.digest_of(name, lane, known),
                self.digest_of(name, lane, said),
            );
            if let Some(announced) = &mut self.announced {
                announced.applied(name, before, after);
            }
        }
    }

    /// An earlier incarnation of this host announced a total, which is this instance's from now on. One that comes once this incarnation has
    /// announced a total of its own had better be reported: the others took that one, and have this one nowhere.
    #[cold]
    fn go_on_from(&mut self, (place, name): (u32, u64), said: LastReport) {
        let room = self.writer_counters.len();
        let before = self.before.get_or_insert_with(|| Region::made_late(room));
        let known = before[place as usize];
        if !self.replaces(said, known) {
            return;
        }
        if let Some(before) = &mut self.before {
            before[place as usize] = said;
        }
        let cell = &mut self.writer_counters[place as usize];
        cell.own = cell.own.wrapping_add(change(said.total, known.total));
        if cell.flushed != 0 {
            if cell.changes == 0 && !mutant::active(Mutant::LateTotalUnreported) {
                cell.changes = u32::MAX;
                self.mark(place);
            }
            return;
        }
        let lane = self.context.identity().lane.0;
        let digests = (
            self.digest_of(name, lane, known),
            self.digest_of(name, lane, said),
        );
        if let Some(announced) = &mut self.announced {
            announced.applied(name, digests.0, digests.1);
        }
    }

    /// This instance goes on from what it has: the next flushes tell what bears an old incarnation's name.
    pub(super) fn joined(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        for (place, said) in before.iter().enumerate() {
            let cell = &mut self.writer_counters[place];
            let is_unreported = said.sequence != 0 && cell.flushed == 0 && cell.changes == 0;
            if is_unreported && bears_old_name(&self.context, Origin(said.origin)) {
                cell.changes = u32::MAX;
                self.mark(place as u32);
            }
        }
        self.before = Some(before);
    }

    /// Whether what was said of a total is newer than what is known of it.
    fn replaces(&self, said: LastReport, known: LastReport) -> bool {
        if mutant::active(Mutant::FallIgnored) {
            return said.total > known.total;
        }
        if known.sequence != 0 && said.origin != known.origin {
            return is_of_later_incarnation(
                &self.context,
                Origin(said.origin),
                Origin(known.origin),
            );
        }
        match self.totals {
            Totals::Grow => newer((said.total, said.sequence), (known.total, known.sequence)),
            Totals::Fall => said.sequence >= known.sequence,
        }
    }

    /// What a total is among the digests; nothing if none was announced.
    fn digest_of(&self, name: u64, lane: u16, said: LastReport) -> u64 {
        let LastReport {
            total,
            sequence,
            origin,
        } = said;
        let is_reported = self.announced.is_some() && sequence != 0;
        if !is_reported {
            return 0;
        }
        let writer = writer(&self.context, Writing { origin, lane });
        digest(name, writer, (total, sequence))
    }

    /// What an earlier incarnation of this host announced of a place.
    fn before(&self, place: u32) -> LastReport {
        let before = self.before.as_ref();
        before.map_or(LastReport::NOTHING, |before| before[place as usize])
    }

    /// Logs the totals that changed. `name` writes what a place is called by, `hash` is that of [`WriterCounters::learn`].
    pub(super) fn flush(
        &mut self,
        bytes: &mut usize,
        name: impl Fn(u32, &T, &mut Writer<'_>),
        hash: impl Fn(u32, &T) -> u64,
    ) -> bool {
        if !self.logged {
            return true;
        }
        if self.context.accumulators_held() {
            self.hold_changes();
            return true;
        }
        if self.telling.is_empty() {
            core::mem::swap(&mut self.telling, &mut self.changed);
        }
        while let Some(&place) = self.telling.last() {
            if *bytes < OPERATION_BYTES_MAX {
                return false;
            }
            self.telling.pop();
            let length = self.report(place, &name, &hash);
            *bytes = bytes.saturating_sub(length);
        }
        true
    }

    /// Accumulators are held: what changed stays noted for a later flush.
    fn hold_changes(&mut self) {
        if mutant::active(Mutant::HeldChangesForgotten) {
            for place in self.changed.drain(..).chain(self.telling.drain(..)) {
                self.writer_counters[place as usize].changes = 0;
            }
        }
    }

    /// Logs the total of a place, and replaces what was announced of it among the digests; bytes logged.
    #[inline]
    fn report(
        &mut self,
        place: u32,
        name: impl Fn(u32, &T, &mut Writer<'_>),
        hash: impl Fn(u32, &T) -> u64,
    ) -> usize {
        let lane = self.context.identity().lane.0;
        let stamp = self
            .context
            .stamp(true, crate::context::OPERATION_BYTES_MAX);
        let before = self.before(place);
        let cell = &mut self.writer_counters[place as usize];
        self.context
            .note_reported(core::mem::take(&mut cell.changes));
        let said = core::mem::replace(&mut cell.flushed, stamp.sequence);
        let total = cell.own;
        let length = self.context.log(|out| {
            out.tag(self.object, 0);
            out.varint(lane.into());
            name(place, &cell.tag, out);
            out.varint(match mutant::active(Mutant::TotalReportedShort) {
                true => total.wrapping_sub(1),
                false => total,
            });
        });
        let name = hash(place, &cell.tag);
        let inherited = self.digest_of(name, lane, before);
        if let Some(announced) = &mut self.announced {
            let writer = writer(&self.context, own_writing(&self.context));
            let known = core::mem::replace(&mut announced.own[place as usize], total);
            announced.leaves.replace(
                Leaves::of(name),
                match said {
                    0 => inherited,
                    _ => digest(name, writer, (known, said)),
                },
                digest(name, writer, (total, stamp.sequence)),
            );
        }
        length
    }

    /// Copies digests of what is announced; false if none are kept.
    pub(super) fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        let announced = self.announced.as_ref().filter(|_| self.logged);
        let leaves = announced.map(|announced| &announced.leaves);
        Leaves::read(leaves, first, out)
    }

    /// The sum of these digests, by a look at the cells of the first `used` places.
    pub(super) fn announced(&self, used: u32, hash: impl Fn(u32, &T) -> u64) -> u64 {
        let mut sum = 0u64;
        for of in 0..=self.others.len() as u32 {
            for place in 0..used {
                if let Some((writing, total, sequence)) = self.total(of, place) {
                    let name = hash(place, &self.writer_counters[place as usize].tag);
                    let writer = writer(&self.context, writing);
                    sum = sum.wrapping_add(digest(name, writer, (total, sequence)));
                }
            }
        }
        sum
    }

    /// Has the next flush tell again what this instance announced of some leaves: looks at `places` of the first `used` ones
    /// from `cursor` on. What it has of other writers is theirs to tell.
    pub(super) fn tell_again(
        &mut self,
        leaves: &LeafSet,
        (cursor, places, used): (u32, u32, u32),
        hash: impl Fn(u32, &T) -> u64,
    ) -> (Option<u32>, u32) {
        let end = cursor.saturating_add(places).min(used);
        let mut reported = 0;
        for place in cursor..end {
            let is_reported = self.before(place).sequence != 0;
            let cell = &mut self.writer_counters[place as usize];
            if cell.flushed == 0 && !is_reported
                || !leaves.contains(Leaves::of(hash(place, &cell.tag)))
            {
                continue;
            }
            reported += 1;
            if cell.changes == 0 {
                cell.changes = u32::MAX;
                self.mark(place);
            }
        }
        ((end < used).then_some(end), reported)
    }

    /// The totals of all writers in the first `used` places, from `cursor` on. Writer by writer, each in strides of the whole
    /// room, so that a cell used first during the scan does not shift the cursor.
    pub(super) fn snapshot(
        &self,
        cursor: u32,
        used: u32,
        part: &mut Part<'_>,
        name: impl Fn(u32, &T, &mut Writer<'_>),
    ) -> Option<u32> {
        let room = self.len().max(1);
        let (mut writer, mut first) = (cursor / room, cursor % room);
        while writer as usize <= self.others.len() {
            for place in first..used {
                if !part.query() {
                    return Some(writer * room + place);
                }
                let Some((writing, total, sequence)) = self.total(writer, place) else {
                    continue;
                };
                if !part.has_room() {
                    return Some(writer * room + place);
                }
                let mut bytes = Writer::new(part.out(), self.context.addresses());
                bytes.tag(self.object, 0);
                name(place, &self.writer_counters[place as usize].tag, &mut bytes);
                let stamp = Stamp {
                    origin: Origin(writing.origin),
                    sequence,
                };
                write_cell(&self.context, writing, total, stamp, &mut bytes);
            }
            (writer, first) = (writer + 1, 0);
        }
        None
    }

    /// Marks the slots of those whose totals there are, in up to `count` of the first `used` places of each from `cursor` on; what
    /// earlier incarnations of this host announced comes first. Where to go on, `None` at the end.
    pub(super) fn origins_named(
        &self,
        (cursor, count, used): (u32, u32, u32),
        named: &mut NamedOrigins,
    ) -> Option<u32> {
        let room = self.len().max(1);
        let (of, first) = (cursor / room, cursor % room);
        if of > self.others.len() as u32 {
            return None;
        }
        let said = match of.checked_sub(1) {
            None => self.before.as_ref(),
            Some(other) => Some(&self.others[other as usize].writer_counters),
        };
        let end = first.saturating_add(count.max(1)).min(used);
        if let Some(said) = said {
            for place in first..end {
                named.mark(said[place as usize].origin);
            }
            if end < used {
                return Some(of * room + end);
            }
        }
        (of < self.others.len() as u32).then_some((of + 1) * room)
    }

    /// What is known of a writer's total: (whose, total, group); `None` if it was never reported. Writer 0 is this instance.
    fn total(&self, writer: u32, place: u32) -> Option<(Writing, u64, u64)> {
        let own = own_writing(&self.context);
        let cell = &self.writer_counters[place as usize];
        let (lane, said) = match writer.checked_sub(1) {
            None if cell.flushed == 0 => (own.lane, self.before(place)),
            None => {
                // What is not announced follows by itself, and is in no digest.
                let announced = self.announced.as_ref();
                let total = announced.map_or(cell.own, |announced| announced.own[place as usize]);
                return Some((own, total, cell.flushed));
            }
            Some(other) => {
                let others = self.others.get(other as usize)?;
                (others.seat.lane, others.writer_counters[place as usize])
            }
        };
        let LastReport {
            total,
            sequence,
            origin,
        } = said;
        (sequence != 0).then_some((Writing { origin, lane }, total, sequence))
    }
}

/// Cells that are called by their place.
impl WriterCounters<()> {
    pub(super) fn apply(&mut self, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        let writing = read_writing(input, stamp)?;
        let place = read_place(input, self.len())?;
        let total = input.varint()?;
        let whose = self.whose(writing)?;
        self.learn(
            whose,
            (place, hash_place(place, &())),
            (total, stamp.sequence),
        );
        Ok(())
    }

    pub(super) fn apply_snapshot(&mut self, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let place = read_place(input, self.len())?;
        let (writing, total, stamp) = read_cell(&self.context, input)?;
        let whose = self.whose(writing)?;
        self.learn(
            whose,
            (place, hash_place(place, &())),
            (total, stamp.sequence),
        );
        Ok(())
    }

    /// The sum of a hash for each place that holds something: equal sums, equal digests.
    pub(super) fn digest(&self) -> u64 {
        self.digest_with(|_| 0)
    }

    /// The same of sums with what is not in the cells yet.
    pub(super) fn digest_with(&self, more: impl Fn(u32) -> u64) -> u64 {
        (0..self.len())
            .map(|place| (place, self.sum(place).wrapping_add(more(place))))
            .filter(|&(_, sum)| sum != 0)
            .fold(0, |digest, (place, sum)| {
                digest.wrapping_add(asterism_memory::hash::words(place.into(), sum, 0))
            })
    }
}

/// A place, which must be one of those that there are.
pub(super) fn read_place(input: &mut Reader<'_>, places: u32) -> Result<u32, BadBytes> {
    match input.varint()? {
        place if place < places.into() => Ok(place as u32),
        _ => Err(BadBytes),
    }
}

/// A place's hash, the same everywhere.
pub(super) fn hash_place(place: u32, (): &()) -> u64 {
    asterism_memory::hash::word(place.into(), 0)
}

pub(super) fn write_place(place: u32, (): &(), out: &mut Writer<'_>) {
    out.varint(place.into());
}
