//! Counters that all instances add to, exact once the adding stops.
//!
//! An accumulator never logs an operation per packet. Each instance keeps its own total (a *cell*) and
//! now and then logs the totals that changed; a newer total of a cell replaces an older one, so that
//! duplicates and reordering do no harm. What travels is bounded by what changed, not by traffic. Memory
//! is instances × cells.

use core::ops::Range;
use std::rc::Rc;

use crate::answer::Late;
use crate::context::{Context, OPERATION_BYTES_MAX};
use crate::foresight::Foresight;
use crate::index::Index;
use crate::map::Key;
use crate::memory::{Region, Zeroed};
use crate::mutant::{self, Mutant};
use crate::object::{Object, ObjectSettings, Since, read_stamp, skip_stamp, write_stamp};
use crate::reservations::Reservations;
use crate::stamp::{Origins, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// Instances of one host at most.
const LANES_OF_HOST_MAX: u64 = 256;
/// Writers (hosts × instances × incarnations) of one counter at most. What further ones say is refused, so
/// that bytes gone wrong cannot use up the memory.
const WRITERS_MAX: usize = 1024;
/// Keys of one shared object of counters at most.
const COUNTERS_MAX: u32 = u32::MAX / (WRITERS_MAX as u32 + 1);

/// Whose cell it is: an instance (lane) of an origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Writing {
    origin: u16,
    lane: u16,
}

/// One counter. Read and add cost a few instructions; other instances see an addition after the flush
/// interval and the lag.
#[derive(Debug)]
pub struct Counter {
    context: Rc<Context>,
    object: u8,
    settings: ObjectSettings,
    /// Reads are late by settings; a byte of its own, since every read looks at it.
    is_late: bool,
    own: u64,
    others: u64,
    /// The total that was last flushed.
    told: u64,
    /// (writer, its total, the group that said so)
    cells: Vec<(Writing, u64, Stamp)>,
    flushed: Stamp,
}

impl Counter {
    pub(crate) fn new(context: Rc<Context>, object: u8, settings: ObjectSettings) -> Self {
        let cells = Vec::with_capacity(64);
        Self {
            context,
            object,
            is_late: settings.late_us != 0,
            settings,
            own: 0,
            others: 0,
            told: 0,
            cells,
            flushed: NEVER,
        }
    }

    /// The sum over all instances, as far as it is known here. Additions of this instance count at once.
    #[inline(always)]
    pub fn get(&self) -> Result<u64, Late> {
        if self.is_late {
            late(&self.context, self.object, 0, self.settings.late_us)?;
        }
        Ok(self.own.wrapping_add(self.others))
    }

    fn learn(&mut self, writing: Writing, total: u64, stamp: Stamp) -> Result<(), BadBytes> {
        if is_own(&self.context, writing) {
            return Ok(());
        }
        let full = self.cells.len() >= WRITERS_MAX;
        match self.cells.iter_mut().find(|cell| cell.0 == writing) {
            Some((_, known, said)) => {
                if newer((total, stamp.sequence), (*known, said.sequence)) {
                    self.others = self.others.wrapping_add(change(total, *known));
                    (*known, *said) = (total, stamp);
                }
            }
            None if full => return Err(BadBytes),
            None => {
                self.others = self.others.wrapping_add(total);
                self.cells.push((writing, total, stamp));
            }
        }
        Ok(())
    }
}

/// Whether a cell's (total, group) replaces another. A group may hold a total twice, and an image what was
/// not flushed yet; totals grow, so of one group the greater is the newer.
fn newer((total, sequence): (u64, u64), (known, said): (u64, u64)) -> bool {
    sequence > said || sequence == said && total > known
}

/// What a sum changes by when a cell's total replaces the known one.
fn change(total: u64, known: u64) -> u64 {
    if mutant::active(Mutant::TotalAdded) {
        total
    } else {
        total.wrapping_sub(known)
    }
}

/// The writes of a [`Counter`].
#[derive(Debug)]
pub struct CounterAct<'a>(&'a mut Counter);

impl CounterAct<'_> {
    /// Adds; wraps at 2⁶⁴.
    #[inline(always)]
    pub fn add(&mut self, amount: u64) {
        self.0.own = self.0.own.wrapping_add(amount);
    }
}

impl Object for Counter {
    type Act<'a> = CounterAct<'a>;

    fn act(&mut self) -> CounterAct<'_> {
        CounterAct(self)
    }
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        let lane = read_lane(input)?;
        let total = input.varint()?;
        self.learn(
            Writing {
                origin: stamp.origin.0,
                lane,
            },
            total,
            stamp,
        )
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        if self.own == self.told || !self.settings.logged || self.context.accumulators_held() {
            return true;
        }
        if *bytes < OPERATION_BYTES_MAX {
            return false;
        }
        self.flushed = self.context.stamp(true);
        let lane = self.context.identity().lane.0;
        let length = self.context.log(|out| {
            out.u8(self.object << 3);
            out.varint(lane.into());
            out.varint(self.own);
        });
        *bytes = bytes.saturating_sub(length);
        self.told = self.own;
        true
    }
    fn digest(&self) -> u64 {
        crate::hash::word(self.own.wrapping_add(self.others), 0)
    }
    fn image(&self, cursor: u32, bytes_max: usize, out: &mut Vec<u8>) -> Option<u32> {
        // Place 0 is this instance's own cell as last flushed: later changes follow in the log.
        let own = (self.flushed != NEVER).then(|| {
            let writing = Writing {
                origin: Origins::OWN.0,
                lane: self.context.identity().lane.0,
            };
            (writing, self.own, self.flushed)
        });
        let cells = own.iter().chain(&self.cells).enumerate();
        for (place, (writing, total, stamp)) in cells.skip(cursor as usize) {
            if out.len() + OPERATION_BYTES_MAX > bytes_max {
                return Some(place as u32);
            }
            let mut writer = Writer::new(out, self.context.addresses());
            writer.u8(self.object << 3);
            write_cell(&self.context, *writing, *total, *stamp, &mut writer);
        }
        None
    }
    fn apply_image(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (writing, total, stamp) = read_cell(&self.context, input)?;
        self.learn(writing, total, stamp)
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        read_lane(input)?;
        let total = input.varint()?;
        skip_stamp(input)?;
        self.own = self.own.wrapping_add(total);
        Ok(total > 0)
    }
    fn entries(&self) -> usize {
        1
    }
}

const NEVER: Stamp = Stamp {
    origin: Origins::OWN,
    sequence: 0,
};

fn is_own(context: &Context, writing: Writing) -> bool {
    writing
        == Writing {
            origin: Origins::OWN.0,
            lane: context.identity().lane.0,
        }
}

fn write_cell(context: &Context, writing: Writing, total: u64, stamp: Stamp, out: &mut Writer<'_>) {
    out.varint(writing.lane.into());
    out.varint(total);
    write_stamp(context, stamp, out);
}

fn read_lane(input: &mut Reader<'_>) -> Result<u16, BadBytes> {
    match input.varint()? {
        lane if lane < LANES_OF_HOST_MAX => Ok(lane as u16),
        _ => Err(BadBytes),
    }
}

fn read_cell(context: &Context, input: &mut Reader<'_>) -> Result<(Writing, u64, Stamp), BadBytes> {
    let lane = read_lane(input)?;
    let total = input.varint()?;
    let stamp = read_stamp(context, input)?;
    Ok((
        Writing {
            origin: stamp.origin.0,
            lane,
        },
        total,
        stamp,
    ))
}

#[cold]
fn late(context: &Context, object: u8, hash: u64, late_us: u32) -> Result<(), Late> {
    if late_us == 0 || context.is_prefetching() || context.fetched(object, hash, late_us.into()) {
        Ok(())
    } else {
        Err(Late::new())
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Cell<K> {
    own: u64,
    others: u64,
    /// The group of the last flush of `own`; 0 before the first.
    flushed: u64,
    changed: bool,
    key: K,
}

// SAFETY: cells are read only below `used`, where `cell_of` has written them.
unsafe impl<K: Copy> Zeroed for Cell<K> {}

/// Totals of one other writer, by cell: (total, group that said so).
#[derive(Debug)]
struct Totals {
    writing: Writing,
    cells: Region<[u64; 2]>,
}

/// A counter for each key. Keys are never forgotten; there are at most `capacity` of them.
#[derive(Debug)]
pub struct Counters<K: Key> {
    context: Rc<Context>,
    object: u8,
    settings: ObjectSettings,
    index: Index,
    cells: Region<Cell<K>>,
    used: u32,
    /// Keys that this instance added, and how many it may: applying others' keys never runs out.
    own: u32,
    own_max: u32,
    reserved: Reservations,
    changed: Vec<u32>,
    totals: Vec<Totals>,
    /// Cells in `cells` and in each of `totals`: all shares together.
    room: u32,
    refused_full: u64,
}

/// A key's counter as it was found, or the permission to start one.
#[derive(Clone, Copy, Debug)]
pub struct Tally<K> {
    number: Option<u32>,
    key: K,
    /// The sum over all instances, as far as it is known here.
    pub total: u64,
}

impl<K: Key> Counters<K> {
    pub(crate) fn new(context: Rc<Context>, object: u8, settings: ObjectSettings) -> Self {
        let capacity = settings.capacity;
        let (_, shares) = context.identity().share();
        let (own_max, room) = if settings.logged {
            let own_max = capacity.div_ceil(shares);
            let room = own_max.checked_mul(shares);
            (own_max, room.expect("there are fewer than 2^32 counters"))
        } else {
            (capacity, capacity)
        };
        assert!(
            !settings.logged || room <= COUNTERS_MAX,
            "at most {COUNTERS_MAX} shared counters: a place in an image is a writer and a key"
        );
        Self {
            context,
            object,
            settings,
            index: Index::new(room as usize),
            cells: Region::new(room as usize),
            used: 0,
            own: 0,
            own_max: if mutant::active(Mutant::CapacityNotLeased) {
                capacity
            } else {
                own_max
            },
            reserved: Reservations::default(),
            changed: Vec::with_capacity(room as usize),
            room,
            totals: Vec::with_capacity(64),
            refused_full: 0,
        }
    }

    /// The key's counter: found, or about to be started by the first `add`. `None` when there is no room
    /// for another key.
    #[inline(always)]
    pub fn find(&self, key: &K) -> Result<Option<Tally<K>>, Late> {
        if let Some(number) = self.look(key)? {
            let cell = &self.cells[number as usize];
            return Ok(Some(Tally {
                number: Some(number),
                key: *key,
                total: cell.own.wrapping_add(cell.others),
            }));
        }
        Ok(self.room().then_some(Tally {
            number: None,
            key: *key,
            total: 0,
        }))
    }

    /// The sum for a key; 0 if it has no counter.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Result<u64, Late> {
        Ok(self.look(key)?.map_or(0, |number| {
            let cell = &self.cells[number as usize];
            cell.own.wrapping_add(cell.others)
        }))
    }

    /// Keys of others that found no room, which leases should make impossible.
    pub fn refused_full(&self) -> u64 {
        self.refused_full
    }

    #[inline(always)]
    fn look(&self, key: &K) -> Result<Option<u32>, Late> {
        let hash = key.hash(self.context.seed());
        if !self.context.answers_plainly() {
            self.ahead(hash)?;
        }
        Ok(self.index.find(hash, |number| {
            (self.cells[number as usize].key == *key).then_some(number)
        }))
    }

    /// Calls `each` for every key and its sum; for control-plane use.
    pub fn for_each(&self, mut each: impl FnMut(&K, u64)) {
        for cell in &self.cells[..self.used as usize] {
            each(&cell.key, cell.own.wrapping_add(cell.others));
        }
    }

    #[cold]
    fn ahead(&self, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            let bucket = self.index.prefetch(hash);
            let foresight = self.context.foresight();
            foresight.note(self.object, 0, bucket, hash);
            return Err(Late::new());
        }
        late(&self.context, self.object, hash, self.settings.late_us)
    }

    #[cold]
    fn room(&self) -> bool {
        let limits = [
            (self.own, self.own_max),
            (self.used, self.settings.capacity),
        ];
        self.reserved.take(&self.context, limits)
    }

    #[cold]
    #[inline(never)]
    fn start(&mut self, key: K, own: bool) -> Option<u32> {
        let hash = key.hash(self.context.seed());
        if let Some(number) = self.index.find(hash, |number| {
            (self.cells[number as usize].key == key).then_some(number)
        }) {
            return Some(number);
        }
        if self.used >= self.room {
            self.refused_full += 1;
            return None;
        }
        let number = self.used;
        self.used += 1;
        self.own += u32::from(own);
        self.cells[number as usize] = Cell {
            own: 0,
            others: 0,
            flushed: 0,
            changed: false,
            key,
        };
        let (cells, seed) = (&self.cells, self.context.seed());
        self.index
            .insert(hash, number, |number| cells[number as usize].key.hash(seed));
        Some(number)
    }

    #[cold]
    #[inline(never)]
    fn mark(&mut self, number: u32) {
        self.cells[number as usize].changed = true;
        if self.settings.logged {
            self.changed.push(number);
        }
    }

    fn learn(
        &mut self,
        key: K,
        writing: Writing,
        total: u64,
        sequence: u64,
    ) -> Result<(), BadBytes> {
        if is_own(&self.context, writing) {
            return Ok(());
        }
        let known = self
            .totals
            .iter()
            .position(|totals| totals.writing == writing);
        if known.is_none() && self.totals.len() >= WRITERS_MAX {
            return Err(BadBytes);
        }
        let Some(number) = self.start(key, false) else {
            return Ok(());
        };
        let place = known.unwrap_or_else(|| {
            self.totals.push(Totals {
                writing,
                cells: Region::new(self.room as usize),
            });
            self.totals.len() - 1
        });
        let known = &mut self.totals[place].cells[number as usize];
        if newer((total, sequence), (known[0], known[1])) {
            let cell = &mut self.cells[number as usize];
            cell.others = cell.others.wrapping_add(change(total, known[0]));
            *known = [total, sequence];
        }
        Ok(())
    }

    /// What is known of a writer's cell: (whose, total, group). Writer 0 is this instance.
    fn cell(&self, writer: u32, number: u32) -> Option<(Writing, u64, u64)> {
        let cell = &self.cells[number as usize];
        if writer == 0 {
            let own = Writing {
                origin: Origins::OWN.0,
                lane: self.context.identity().lane.0,
            };
            return Some((own, cell.own, cell.flushed));
        }
        let totals = self.totals.get(writer as usize - 1)?;
        let [total, sequence] = totals.cells[number as usize];
        Some((totals.writing, total, sequence))
    }
}

/// The writes of [`Counters`].
#[derive(Debug)]
pub struct CountersAct<'a, K: Key>(&'a mut Counters<K>);

impl<K: Key> CountersAct<'_, K> {
    /// Adds to the key's counter; starts it if it is new.
    #[inline(always)]
    pub fn add(&mut self, tally: &Tally<K>, amount: u64) {
        let Some(number) = tally.number.or_else(|| self.0.start(tally.key, true)) else {
            return;
        };
        let cell = &mut self.0.cells[number as usize];
        cell.own = cell.own.wrapping_add(amount);
        if !cell.changed {
            self.0.mark(number);
        }
    }
}

impl<K: Key> Object for Counters<K> {
    type Act<'a> = CountersAct<'a, K>;

    fn act(&mut self) -> CountersAct<'_, K> {
        CountersAct(self)
    }
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        let lane = read_lane(input)?;
        let key = K::decode(input)?;
        let total = input.varint()?;
        self.learn(
            key,
            Writing {
                origin: stamp.origin.0,
                lane,
            },
            total,
            stamp.sequence,
        )
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        if self.context.accumulators_held() {
            return true;
        }
        let lane = self.context.identity().lane.0;
        while let Some(&number) = self.changed.last() {
            if *bytes < OPERATION_BYTES_MAX {
                return false;
            }
            self.changed.pop();
            let stamp = self.context.stamp(true);
            let cell = &mut self.cells[number as usize];
            cell.changed = false;
            cell.flushed = stamp.sequence;
            let length = self.context.log(|out| {
                out.u8(self.object << 3);
                out.varint(lane.into());
                cell.key.encode(out);
                out.varint(cell.own);
            });
            *bytes = bytes.saturating_sub(length);
        }
        true
    }
    fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        let mut digest = 0u64;
        self.for_each(|key, total| {
            bytes.clear();
            let mut out = Writer::new(&mut bytes, self.context.addresses());
            key.encode(&mut out);
            out.u64(total);
            digest = digest.wrapping_add(crate::hash::bytes(&bytes, 0));
        });
        digest
    }
    fn image(&self, cursor: u32, bytes_max: usize, out: &mut Vec<u8>) -> Option<u32> {
        // Writer by writer, each in strides of the whole room, so that a key started during the walk does
        // not shift the cursor.
        let room = u64::from(self.room);
        let mut writer = (u64::from(cursor) / room.max(1)) as u32;
        let mut number = (u64::from(cursor) % room.max(1)) as u32;
        while writer as usize <= self.totals.len() {
            for number in number..self.used {
                let Some((writing, total, sequence)) = self.cell(writer, number) else {
                    continue;
                };
                if sequence == 0 {
                    continue;
                }
                if out.len() + OPERATION_BYTES_MAX > bytes_max {
                    return Some((u64::from(writer) * room + u64::from(number)) as u32);
                }
                let mut bytes = Writer::new(out, self.context.addresses());
                bytes.u8(self.object << 3);
                self.cells[number as usize].key.encode(&mut bytes);
                let stamp = Stamp {
                    origin: crate::stamp::Origin(writing.origin),
                    sequence,
                };
                write_cell(&self.context, writing, total, stamp, &mut bytes);
            }
            (writer, number) = (writer + 1, 0);
        }
        None
    }
    fn apply_image(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let key = K::decode(input)?;
        let (writing, total, stamp) = read_cell(&self.context, input)?;
        self.learn(key, writing, total, stamp.sequence)
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        let key = K::decode(input)?;
        read_lane(input)?;
        let total = input.varint()?;
        skip_stamp(input)?;
        let Some(number) = self.start(key, false).filter(|_| total > 0) else {
            return Ok(false);
        };
        let cell = &mut self.cells[number as usize];
        cell.own = cell.own.wrapping_add(total);
        if !cell.changed {
            self.mark(number);
        }
        Ok(true)
    }
    fn capacity(&self) -> u32 {
        self.settings.capacity
    }
    fn prefetch_records(&self, foresight: &Foresight, packets: Range<usize>) -> usize {
        foresight.each_record(packets, |_| {
            |bucket, hash| {
                let number = self.index.likely(bucket, hash)?;
                self.cells.prefetch(number as usize);
                Some(number)
            }
        })
    }
    fn outgrew_cache(&self, cache_bytes: usize) -> bool {
        self.index.bytes_in_use() + self.used as usize * size_of::<Cell<K>>() > cache_bytes
    }
    fn settle(&self) {
        self.reserved.clear();
    }
    fn entries(&self) -> usize {
        self.used as usize
    }
}
