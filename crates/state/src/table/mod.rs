//! The table behind maps, two-way maps and sets: rows found by up to four keys, each row with a value, a stamp and an
//! incarnation of its own.
//!
//! Merging is a join. An operation always carries an entry's whole state (generation, value, last seen, expired), so that one
//! function, [`Table::merge`], serves log, snapshot and retry alike, and the order of arrival does not matter. Read
//! `record.rs` (an entry), `lanes.rs` (its index), `merge.rs` (joins two copies), `writes.rs` and `operations.rs` (where
//! copies come from), `entry_end.rs` (its end), and `totals.rs` (totals for objects made of tables).

mod audited;
mod entry_end;
mod fetched;
mod kept;
mod lanes;
mod late;
mod merge;
mod operations;
mod purge;
mod record;
mod saved;
mod settings;
mod shared;
mod totals;
mod unconfirmed;
mod writes;

use std::collections::VecDeque;
use std::rc::Rc;

use asterism_memory::index::Index;
use asterism_memory::region::Region;

use crate::audit::Leaves;
use crate::context::{
    Context, Late, Nearby, OPERATION_BYTES_MAX, Reservations, Tick, WayToRead, late_answer,
    nearby_answer,
};
use crate::mutant::{self, Mutant};
use crate::stamp::Stamp;
use crate::wire::Writer;
use asterism_object_counts::{ObjectCount, ObjectCounts};

pub use entry_end::EntryAge;
pub(crate) use fetched::{RECORDED_TOUCH, RECORDED_WRITE};
use lanes::Hashes;
pub use record::{At, Row, Value};
use record::{CONFIRMED, DOMINATED, LIVE, Links, OWN_SHARE, Record};
pub(crate) use settings::TableSettings;
pub(crate) use totals::Total;

/// Most keys (unique and grouping) of a row.
pub const LANES_MAX: usize = 4;

/// Memory of a shared table, in multiples of its capacity. A member's share is free again once it has
/// forgotten an entry; the others may hear only later that they can forget theirs, and must have room for
/// the entry that follows in the meantime. And a host that restarts finds room again for what it wrote before and others
/// have changed since, which nobody counts as its own any more. Reserved address space costs nothing until it is touched.
const SLACK: u32 = 3;
/// New records between two looks at how far a table's memory is used: less than half of a huge page of records.
const REACHED_TOGETHER: u32 = 1 << 12;
/// In place of the number of entries: they are in a store, which is asked how many there are.
const ELSEWHERE: u32 = u32::MAX;

/// Permission to add one entry: got while asking, spent by `insert`.
#[derive(Debug)]
#[must_use = "a vacancy that is not spent returns when the packet ends"]
pub struct Vacancy {
    object: u8,
}

/// Permission to add one entry under a row that is known while asking: got by [`Table::vacancy_for`], spent by
/// [`TableAct::fill`](crate::TableAct::fill).
#[derive(Debug)]
#[must_use = "a vacancy that is not spent returns when the packet ends"]
pub struct VacancyFor<R> {
    vacancy: Vacancy,
    row: R,
    hashes: Hashes,
}

impl<R> VacancyFor<R> {
    /// The row.
    pub fn row(&self) -> &R {
        &self.row
    }
}

/// What a nearby read answers: an entry and the proof that it was read at once.
pub type FoundNearby<R, V> = Result<Option<(At<R, V>, Nearby)>, Late>;

/// Calls for a row that was forgotten for good, with whether it was the last one of its group.
type OnForget<R> = Box<dyn Fn(&R, bool)>;
/// Calls for a row that came to live here although this instance did not write it, with when it was used last.
type OnAdopt<R> = Box<dyn Fn(&R, Tick)>;
/// Calls for a row of which others' word is about to be applied.
type OnPrefetch<R> = Box<dyn Fn(&R)>;
/// Calls for a row that came to live here, or ended, by anyone's word.
type OnTurn<R> = Box<dyn Fn(&R, bool)>;

/// Rows found by their keys; see [`Map`](crate::Map), [`BiMap`](crate::BiMap) and [`Set`](crate::Set).
pub struct Table<R: Row, V: Value> {
    context: Rc<Context>,
    object: u8,
    settings: TableSettings,
    records: Region<Record<R, V>>,
    links: Region<Links>,
    /// The version of each record's last change, where packets are held back for it; see `unconfirmed.rs`.
    versions: Region<u64>,
    /// These versions that are not confirmed yet, with the record of each.
    unconfirmed: VecDeque<(u64, u32)>,
    lanes: [Index; LANES_MAX],
    /// Records below this were used at least once.
    used: u32,
    /// Chain of free records below `used`, plus one; 0 is none.
    free: u32,
    /// Entries that can be found, or [`ELSEWHERE`].
    live: u32,
    held: u32,
    /// Entries that count against this instance's share of the capacity, and the share.
    own: u32,
    own_max: u32,
    reserved: Reservations,
    /// Entries that there is memory for; see [`SLACK`].
    room: u32,
    /// New entries start above this generation, so that they beat any forgotten entry of the same row that
    /// somebody else still holds.
    generation_floor: u64,
    /// Of entries in a store: there are some.
    has_any: bool,
    /// What is not found here is nowhere, as far as reads are to know.
    is_absence_certain: bool,
    /// Some entry had a generation beyond 32 bits.
    has_wide_generations: bool,
    sweep_next: u32,
    on_forget: Option<(usize, OnForget<R>)>,
    on_adopt: Option<OnAdopt<R>>,
    on_prefetch: Option<OnPrefetch<R>>,
    on_turn: Option<OnTurn<R>>,
    is_counted: bool,
    /// Those three are not needed where the entries are in a store.
    goes_unfollowed: bool,
    /// Of a table in a store: entries that stay here between calls.
    kept: Option<Box<kept::KeptEntries<R, V>>>,
    /// What others' repairs remove here, while it is looked for.
    purges: Vec<purge::Purge>,
    /// What came to live or ended last; see `totals.rs`.
    turned: Option<(u32, bool)>,
    tally: TableTally,
    /// Digests of its parts, if it is shared, and room to encode an entry.
    leaves: Option<Leaves>,
    /// Records from here on are not in them yet.
    digested: u32,
    scratch: Vec<u8>,
}

/// What happened in a table, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableTally {
    /// Entries that another entry with the same unique key keeps from being found.
    pub shadowed: u64,
    /// Writes of ours or others' that lost to a concurrent write of the same generation.
    pub lost_writes: u64,
    /// Entries that came from others when the table was full, which leases should make impossible.
    pub refused_full: u64,
    /// Entries that ended by idleness or removal and were forgotten.
    pub forgotten: u64,
    /// Entries that came back to life by a later touch.
    pub resurrected: u64,
    /// Entries removed because the host that a repair was made from did not have them.
    pub removed_by_repair: u64,
}

impl TableTally {
    /// The same as every object has it.
    pub(crate) fn counts(&self) -> ObjectCounts {
        ObjectCounts::default()
            .with(ObjectCount::Shadowed, self.shadowed)
            .with(ObjectCount::LostWrites, self.lost_writes)
            .with(ObjectCount::RefusedFull, self.refused_full)
            .with(ObjectCount::Forgotten, self.forgotten)
            .with(ObjectCount::Resurrected, self.resurrected)
            .with(ObjectCount::RemovedByRepair, self.removed_by_repair)
    }
}

impl<R: Row, V: Value> core::fmt::Debug for Table<R, V> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Table")
            .field("live", &self.live)
            .field("held", &self.held)
            .field("tally", &self.tally)
            .finish()
    }
}

impl<R: Row, V: Value> Table<R, V> {
    /// An empty table; reserves address space for its whole capacity at once.
    pub(crate) fn new(context: Rc<Context>, object: u8, settings: TableSettings) -> Self {
        let (_, shares) = context.identity().share();
        let own_max = shared::own_max(&context, &settings);
        let room = if settings.chosen.may_be_replicated() {
            let leased = settings.capacity.div_ceil(shares).checked_mul(shares);
            let room = leased.and_then(|leased| leased.checked_mul(SLACK));
            room.expect("a table has fewer than 2^31 entries")
        } else {
            settings.capacity
        };
        assert!(room < 1 << 31, "a table has fewer than 2^31 entries");
        let capacity = room as usize;
        let lane = |lane: usize| Index::new(if lane < R::LANES { capacity } else { 0 });
        let may_hold = settings.chosen.holds_output && settings.chosen.may_be_replicated();
        let mut records = Region::new(capacity);
        records.touch(settings.expected as usize);
        Self {
            context,
            object,
            records,
            links: Region::new(capacity),
            versions: Region::new(if may_hold { capacity } else { 0 }),
            unconfirmed: VecDeque::with_capacity(if may_hold {
                unconfirmed::WAITING_MAX
            } else {
                0
            }),
            lanes: [lane(0), lane(1), lane(2), lane(3)],
            used: 0,
            free: 0,
            live: if settings.is_remote { ELSEWHERE } else { 0 },
            held: 0,
            own: 0,
            own_max,
            reserved: Reservations::default(),
            room,
            generation_floor: 0,
            has_any: false,
            is_absence_certain: settings.is_absence_certain(),
            has_wide_generations: false,
            sweep_next: 0,
            on_forget: None,
            on_adopt: None,
            on_prefetch: None,
            on_turn: None,
            is_counted: false,
            goes_unfollowed: false,
            kept: None,
            purges: Vec::new(),
            turned: None,
            tally: TableTally::default(),
            leaves: Leaves::new(settings.audited),
            digested: u32::MAX,
            scratch: Vec::with_capacity(OPERATION_BYTES_MAX),
            settings,
        }
    }

    /// Registers what is called when a row is forgotten by everybody: with the row and whether no row
    /// with the same key in `lane` is left.
    pub fn on_forget(&mut self, lane: usize, call: impl Fn(&R, bool) + 'static) {
        self.on_forget = Some((lane, Box::new(call)));
    }

    /// Registers what is called when a row comes to live here that this instance did not write now: others' rows, and those
    /// of an earlier incarnation of this host. What such rows use must not be granted again.
    pub fn on_adopt(&mut self, call: impl Fn(&R) + 'static) {
        self.on_adopt_used(move |row, _| call(row));
    }

    /// The same with when the row was used last, as far as anyone who tells of it knows: of one that others opened just now that is
    /// just now; of one in a snapshot, or that was restored, mostly long ago.
    pub fn on_adopt_used(&mut self, call: impl Fn(&R, Tick) + 'static) {
        self.on_adopt = Some(Box::new(call));
    }

    /// Registers what is called for a row of which others' word is about to be applied, some groups ahead: it asks for the memory
    /// that what is called at [`Table::on_adopt`] reads, and does nothing else. The row may be known, and the word may say anything.
    pub fn on_prefetch(&mut self, call: impl Fn(&R) + 'static) {
        self.on_prefetch = Some(Box::new(call));
    }

    /// Registers what is called whenever a row comes to live here, with true, or ends here, with false, by anyone's word: each row
    /// by turns, beginning with true. So anyone who adds one and takes one away has counted the rows that live, a hidden one
    /// ([`Table::is_shadowed`]) included, whatever others did at once, and anyone who died.
    pub fn on_turn(&mut self, call: impl Fn(&R, bool) + 'static) {
        self.on_turn = Some(Box::new(call));
    }

    fn turn(&mut self, number: u32, is_live: bool) {
        self.turned = Some((number, is_live));
        if let Some(call) = &self.on_turn {
            call(&self.records[number as usize].row, is_live);
        }
    }

    fn note_adopted(&self, row: &R, used: Tick) {
        if let Some(call) = &self.on_adopt {
            call(row, used);
        }
    }

    // --- asking

    /// Finds the entry under a key. One cache line for the index and one for the record.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        lane: usize,
        (hash, key): (impl Fn() -> u64, impl Fn(&mut Writer<'_>)),
        same: impl Fn(&R) -> bool,
    ) -> Result<Option<At<R, V>>, Late> {
        let is_plain = self.context.answers_plainly();
        if !is_plain {
            self.ahead(lane, hash())?;
        } else if let Some(found) = self.hinted(lane, &same) {
            return Ok(Some(found));
        }
        let found = self.lanes[lane].find(hash(), self.seek(same));
        if let Some((number, record)) = found {
            if record.is_found_plainly_by(lane) {
                return Ok(Some(record.at(number)));
            }
            if record.is_found_by(lane) {
                self.read_unconfirmed(number);
                if self.settings.is_remote {
                    // It is here by another key, and lost one of its keys to an entry that is not.
                    self.answered(lane, hash(), key)?;
                }
                return Ok(Some(record.at(number)));
            }
        }
        if !(is_plain && self.is_absence_certain) {
            self.absent(lane, hash, key)?;
        }
        Ok(None)
    }

    /// As [`Table::find`], without what is rare: `None` says nothing. Nothing rare comes back to where it left, so
    /// the caller's registers are its own.
    #[inline(always)]
    pub(crate) fn find_nearby(
        &self,
        lane: usize,
        hash: impl Fn() -> u64,
        same: impl Fn(&R) -> bool,
    ) -> FoundNearby<R, V> {
        match self.context.way_to_read() {
            WayToRead::Plainly => {}
            WayToRead::Recalling => {
                if let Some(found) = self.hinted(lane, &same) {
                    return Ok(Some((found, nearby_answer())));
                }
            }
            WayToRead::Otherwise => {
                self.only_prefetched(lane, hash())?;
                return Ok(None);
            }
        }
        let found = self.lanes[lane].find_nearby(hash(), self.seek(same));
        if let Some((number, record)) = found
            && record.is_found_plainly_by(lane)
        {
            return Ok(Some((record.at(number), nearby_answer())));
        }
        Ok(None)
    }

    /// The entry that the prefetch pass foresaw, if it is the one: live and undisputed in all its unique lanes, so what the
    /// lane's index would give.
    #[inline(always)]
    fn hinted(&self, lane: usize, same: impl Fn(&R) -> bool) -> Option<At<R, V>> {
        let number = self.context.hinted(self.object, lane)?;
        if number >= self.used {
            return None;
        }
        // SAFETY: records below `used`, which is never above the region's length, hold rows and values.
        let record = unsafe { self.records.item(number) };
        let undisputed = record.header.flags & (CONFIRMED | DOMINATED) == CONFIRMED;
        let is_it = undisputed && same(&record.row);
        (is_it || mutant::active(Mutant::HintTrusted)).then(|| record.at(number))
    }

    #[cold]
    #[inline(never)]
    fn only_prefetched(&self, lane: usize, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            return Err(self.prefetch_probe(lane, hash));
        }
        Ok(())
    }

    /// In the prefetch pass: asks for what a probe reads first, and notes it for the second step.
    #[inline(always)]
    fn prefetch_probe(&self, lane: usize, hash: u64) -> Late {
        let bucket = self.lanes[lane].prefetch(hash);
        let prefetch_hints = self.context.prefetch_hints();
        prefetch_hints.note(self.object, lane, bucket, hash);
        late_answer()
    }

    #[inline(always)]
    fn seek<'t>(
        &'t self,
        same: impl Fn(&R) -> bool,
    ) -> impl Fn(u32) -> Option<(u32, &'t Record<R, V>)> {
        let records = &self.records;
        move |number| {
            // SAFETY: lanes give nothing but what `link` put there: numbers that `allocate` gave, all below `room`, for
            // which the index was made and which is the region's length.
            let record = unsafe { records.item(number) };
            same(&record.row).then_some((number, record))
        }
    }

    /// A live and wanted entry of a group.
    pub(crate) fn group_member(
        &self,
        lane: usize,
        (hash, key): (u64, impl Fn(&mut Writer<'_>)),
        same: impl Fn(&R) -> bool,
        wanted: impl Fn(&R) -> bool,
    ) -> Result<Option<At<R, V>>, Late> {
        if !self.context.answers_plainly() {
            self.ahead(lane, hash)?;
        }
        if self.settings.is_remote {
            // Others of the group may be here already, by reads of their own keys.
            self.answered(lane, hash, key)?;
        }
        let found = self.any_in_group(lane, hash, same, wanted);
        if self.settings.is_remote {
            let entry =
                found.map(|number| move |out: &mut Writer<'_>| self.write_entry(number, out));
            self.context
                .uses_entry((self.object, lane as u8, hash), entry);
        }
        if found.is_none() {
            self.context.trace_absent();
        }
        Ok(found.map(|number| {
            let record = &self.records[number as usize];
            if record.header.flags & CONFIRMED == 0 {
                self.read_unconfirmed(number);
            }
            record.at(number)
        }))
    }

    #[inline(always)]
    pub(crate) fn seed(&self) -> u64 {
        self.context.seed()
    }

    /// Permission to add an entry; `None` when this instance's share of the capacity is used up.
    /// Late only where the entries are in a store, or a store is to decide whether there is any.
    pub fn vacancy(&self) -> Result<Option<Vacancy>, Late> {
        if self.settings.is_remote {
            self.room_answered()?;
        }
        let limits = [
            (self.own, self.own_max),
            (self.held, self.settings.capacity),
        ];
        if !self.reserved.take(&self.context, limits) {
            self.context.decided_room(self.object)?;
            return Ok(None);
        }
        Ok(Some(Vacancy {
            object: self.object,
        }))
    }

    /// [`Table::vacancy`] for a row that is known already: what adding it reads first comes while the function decides on the rest.
    /// Costs its hashes, which [`TableAct::fill`](crate::TableAct::fill) need not make again. Late as a vacancy is.
    pub fn vacancy_for(&self, row: R) -> Result<Option<VacancyFor<R>>, Late> {
        Ok(self.vacancy()?.map(|vacancy| {
            let hashes = self.hashes(&row);
            self.prefetch(&hashes);
            VacancyFor {
                vacancy,
                row,
                hashes,
            }
        }))
    }

    /// Whether no entry can be found: a read of the table, late where reads of its entries are late by settings or asked of a store. Does
    /// not wait for entries that other hosts wrote and this host does not know yet. Costs two comparisons.
    #[inline(always)]
    pub fn is_empty(&self) -> Result<bool, Late> {
        if !self.context.answers_plainly() {
            self.ask_emptiness()?;
        }
        match self.live {
            0 => Ok(true),
            // Of entries that are elsewhere this says nothing; of others there are never so many.
            ELSEWHERE => self.is_empty_there(),
            _ => Ok(false),
        }
    }
    /// Whether no entry can be found here, for the control plane: never late.
    pub fn is_empty_now(&self) -> bool {
        self.len_now() == 0
    }
    /// How many entries can be found here, for the control plane: never late. Of those in a store none is here.
    pub fn len_now(&self) -> usize {
        match self.settings.is_remote {
            true => 0,
            false => self.live as usize,
        }
    }
    /// How many entries there are with those that ended but are not forgotten yet.
    pub fn held(&self) -> usize {
        self.held as usize
    }
    /// Entries at most, over the whole cluster.
    pub fn capacity(&self) -> u32 {
        self.settings.capacity
    }
    /// What happened so far.
    pub fn tally(&self) -> TableTally {
        self.tally
    }
    /// Entries that came to be since this instance started, no matter who wrote them: one that ended and was forgotten counts again when it
    /// comes again.
    pub fn begun(&self) -> u64 {
        u64::from(self.held) + self.tally.forgotten
    }
    /// The value of a live row. For control-plane use: never late.
    pub fn value_now(&self, row: &R) -> Option<V> {
        let record = &self.records[self.identity(row)? as usize];
        (record.header.flags & LIVE != 0).then_some(record.value)
    }
    /// Seconds of the cluster's common time, for who looks at values between packets.
    pub fn now(&self) -> Tick {
        self.context.tick()
    }
    /// Calls `each` for every live entry; for control-plane use, not for packets.
    pub fn for_each(&self, mut each: impl FnMut(&R, &V)) {
        for record in &self.records[..self.used as usize] {
            if record.header.flags & LIVE != 0 {
                each(&record.row, &record.value);
            }
        }
    }
    /// Whether the row is live but hidden by a better one; for tests of uniqueness.
    pub fn is_shadowed(&self, row: &R) -> bool {
        self.identity(row)
            .is_some_and(|number| self.records[number as usize].header.flags & DOMINATED != 0)
    }

    /// An operation at most: tag, row, generation, value, last use.
    pub(crate) const OPERATION_BYTES: usize = {
        let bytes = 2 + R::BYTES_MAX + 10 + V::BYTES_MAX + 3;
        if bytes < OPERATION_BYTES_MAX {
            bytes
        } else {
            OPERATION_BYTES_MAX
        }
    };
    /// What a record takes: the packet's part of an entry.
    pub(crate) const RECORD_BYTES: usize = size_of::<Record<R, V>>();

    // --- acting

    /// Adds an entry, or writes over the one that is there (with a new generation). Visible here at once.
    pub(crate) fn insert(&mut self, vacancy: Vacancy, row: R, value: V) {
        self.spend(vacancy);
        self.write(row, value);
    }

    /// [`Table::insert`] of a row that the vacancy is for.
    pub(crate) fn fill(&mut self, vacancy: VacancyFor<R>, value: V) {
        self.spend(vacancy.vacancy);
        self.write_under(&vacancy.hashes, vacancy.row, value);
    }

    fn spend(&self, vacancy: Vacancy) {
        debug_assert_eq!(
            vacancy.object, self.object,
            "a vacancy is spent on the table that gave it"
        );
        self.reserved.spend(&self.context);
    }

    /// Marks the entry as used now, so that it does not idle out. Writes only once in a quarter of the
    /// idle time: else one comparison.
    #[inline(always)]
    pub(crate) fn touch(&mut self, at: &At<R, V>) {
        if self.context.tick() >= at.touch_due {
            self.refresh(at.number);
        }
    }

    /// Joins `value` into the entry's, and touches it. Costs a comparison if the value is the one that was found,
    /// which changes nothing.
    #[inline(always)]
    pub(crate) fn update(&mut self, at: &At<R, V>, value: V) {
        if self.would_write(at, value) {
            self.change(at.number, value);
        }
    }

    /// Whether [`TableAct::update`](crate::TableAct::update) would write anything: what it costs, and no more. For a common path that
    /// leaves all writes to others.
    #[inline(always)]
    pub fn would_write(&self, at: &At<R, V>, value: V) -> bool {
        value != at.value || self.would_touch(at)
    }

    /// The same of [`TableAct::touch`](crate::TableAct::touch), and of an update that leaves the value as it is.
    #[inline(always)]
    pub fn would_touch(&self, at: &At<R, V>) -> bool {
        self.context.tick() >= at.touch_due
    }

    /// Removes the entry.
    pub(crate) fn remove(&mut self, at: &At<R, V>) {
        self.remove_entry(at.number);
    }

    /// What happens at the end of every packet that asked for a vacancy.
    pub(crate) fn settle(&self) {
        self.reserved.clear();
    }

    /// Puts a record where there is room for one.
    fn allocate(&mut self, record: Record<R, V>) -> Option<u32> {
        let number = if self.free != 0 {
            let number = self.free - 1;
            self.free = self.links[number as usize].next[0];
            number
        } else if self.used < self.room {
            self.used += 1;
            if self.used % REACHED_TOGETHER == 1 {
                self.reach();
            }
            self.used - 1
        } else {
            return None;
        };
        // The next new entry's lines come while other things are done.
        let next = self.free.checked_sub(1).unwrap_or(self.used) as usize;
        self.records.prefetch(next);
        self.links.prefetch(next);
        self.links[number as usize] = Links::default();
        self.records[number as usize] = record;
        self.held += 1;
        Some(number)
    }

    /// Says how far memory is used, with what comes before this is said again.
    #[cold]
    fn reach(&self) {
        let records = (self.used + REACHED_TOGETHER) as usize;
        self.records.reach(records);
        self.links.reach(records);
        for lane in &self.lanes[..R::LANES] {
            lane.reach(REACHED_TOGETHER as usize);
        }
    }

    pub(super) fn release(&mut self, number: u32) {
        let flags = self.records[number as usize].header.flags;
        if flags & OWN_SHARE != 0 {
            self.own -= 1;
        }
        self.records[number as usize].header.flags = 0;
        self.links[number as usize] = Links {
            next: [self.free, 0, 0, 0],
            ..Links::default()
        };
        self.free = number + 1;
        self.held -= 1;
    }

    fn stamp(&self) -> Stamp {
        self.context
            .stamp(self.settings.logged, Self::OPERATION_BYTES)
    }
}
