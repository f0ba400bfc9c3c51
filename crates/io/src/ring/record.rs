//! The protocol of a single-writer ring of records: positions, publication, release.
//!
//! Positions are bytes since the start, never wrapped (2^64 bytes are not reached), always multiples of 8; a position
//! modulo the capacity is an offset. A record is a 32-bit length, the bytes, and padding to 8. One that does not fit
//! before the end of the memory is preceded by a skip mark and starts at offset 0.
//!
//! Who may touch which bytes, and why that is enough:
//! - `published` is stored by the writer alone. Bytes in `[slowest cursor, published)` are only read, by readers.
//! - each cursor is stored by its reader alone. Bytes outside that range are touched by the writer alone.
//! - the release store of `published` makes the record's bytes visible to anyone who acquires it; the release store of a
//!   cursor ends that reader's reads before the writer, having acquired it, writes there again.

use crate::pages::{Backing, Pages};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The longest record of any ring, in bytes; a small ring has a lower bound ([`RingWriter::record_bytes_max`]).
pub const RECORD_BYTES_MAX: usize = 64 * 1024;
/// Records begin at multiples of this, so that a mark always fits before the end of the memory.
const ALIGNMENT: usize = 8;
/// Bytes of waiting records asked for at once when a reader looks ahead.
const LOOKED_AHEAD_BYTES: u64 = 1 << 10;
const CACHE_LINE_BYTES: usize = 64;
const LENGTH_BYTES: usize = 4;
/// Where a length would be: the rest of the memory is unused.
const SKIP: u32 = u32::MAX;
/// The cursor of a reader that is gone: it holds nobody back.
const GONE: u64 = u64::MAX;
/// A writer's `open` when no reservation is.
const NOTHING_OPEN: u64 = u64::MAX;

/// Why a ring did not take a record. The ring is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The slowest reader has not given back enough space. Try again later; nobody waits on a ring.
    Full,
    /// The record is longer than [`RingWriter::record_bytes_max`]. It will never fit.
    TooLong,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Refused::Full => "the ring is full until its slowest reader releases records",
            Refused::TooLong => "the record is longer than this ring takes",
        })
    }
}

impl std::error::Error for Refused {}

/// On a cache line of its own (two, because the processor fetches lines in pairs), so that one thread's stores do
/// not take another's line away.
#[derive(Debug)]
#[repr(align(128))]
struct Alone<T>(T);

#[derive(Debug)]
struct Shared {
    /// Keeps the memory that both ends' `base` points to.
    pages: Pages,
    published: Alone<AtomicU64>,
    writer_gone: Alone<AtomicBool>,
    cursors: Box<[Alone<AtomicU64>]>,
}

impl Shared {
    /// The smallest cursor of the readers that are left, `None` when all are gone.
    fn slowest(&self) -> Option<u64> {
        // Acquire: the readers' reads end before what the caller writes into the space.
        self.cursors
            .iter()
            .map(|cursor| cursor.0.load(Ordering::Acquire))
            .filter(|&cursor| cursor != GONE)
            .min()
    }
}

pub(super) fn ends(capacity: usize, readers: usize) -> io::Result<(RingWriter, Vec<RingReader>)> {
    debug_assert!(capacity.is_power_of_two() && capacity >= 2 * ALIGNMENT);
    let pages = Pages::new(capacity, Backing::Populated)?;
    let base = pages.as_ptr();
    let shared = Arc::new(Shared {
        pages,
        published: Alone(AtomicU64::new(0)),
        writer_gone: Alone(AtomicBool::new(false)),
        cursors: (0..readers).map(|_| Alone(AtomicU64::new(0))).collect(),
    });
    let mask = capacity - 1;
    let handles = (0..readers)
        .map(|index| RingReader {
            base,
            mask,
            position: 0,
            published: 0,
            released: 0,
            quarter: capacity as u64 / 4,
            index,
            shared: Arc::clone(&shared),
        })
        .collect();
    Ok((
        RingWriter {
            base,
            mask,
            position: 0,
            limit: capacity as u64,
            published: 0,
            open: NOTHING_OPEN,
            reserved: 0,
            record_bytes_max: (capacity / 2 - ALIGNMENT).min(RECORD_BYTES_MAX),
            shared,
        },
        handles,
    ))
}

/// The writing end of a ring. One thread at a time has it.
#[derive(Debug)]
pub struct RingWriter {
    base: *mut u8,
    mask: usize,
    /// Where the next record goes.
    position: u64,
    /// The writer may write up to here: the slowest cursor last seen, plus the capacity.
    limit: u64,
    published: u64,
    /// Where the open reservation's record begins, `NOTHING_OPEN` when there is none.
    open: u64,
    /// The open reservation's length.
    reserved: usize,
    record_bytes_max: usize,
    shared: Arc<Shared>,
}

// SAFETY: `base` points into `shared.pages`, which lives as long as this; the bytes it may write are this end's alone
// (module documentation), on whatever thread it is.
unsafe impl Send for RingWriter {}

impl RingWriter {
    /// What holds after every change: readers see whole records, and nothing that they may still read is written over.
    #[inline(always)]
    fn assert_sound(&self) {
        debug_assert!(self.published <= self.position && self.position <= self.limit);
        debug_assert!(self.position.is_multiple_of(ALIGNMENT as u64));
    }

    /// Appends a record, which readers see after [`RingWriter::publish`]. Costs a copy; allocates nothing.
    #[inline]
    pub fn try_push(&mut self, record: &[u8]) -> Result<(), Refused> {
        let start = self.place(record.len())?;
        let offset = start as usize & self.mask;
        // SAFETY: `place` found the record's footprint at `offset`, inside the memory, in the writer's space; `record` is
        // not there, because nobody has a reference to that space.
        unsafe {
            let record_start = self.base.add(offset);
            record_start.cast::<u32>().write(record.len() as u32);
            std::ptr::copy_nonoverlapping(
                record.as_ptr(),
                record_start.add(LENGTH_BYTES),
                record.len(),
            );
        }
        self.position = start + footprint(record.len()) as u64;
        self.open = NOTHING_OPEN;
        self.assert_sound();
        Ok(())
    }

    /// Space for a record of up to `length` bytes, to be written in place (contents arbitrary) and appended with
    /// [`RingWriter::commit`]. A reservation that is not committed is forgotten by the next one.
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<&mut [u8], Refused> {
        let start = self.place(length)?;
        (self.open, self.reserved) = (start, length);
        let offset = start as usize & self.mask;
        // SAFETY: `place` found the record's footprint at `offset`, inside the memory, in the writer's space; all bytes of
        // the mapping are initialised. The slice borrows `self`, so no second one exists.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.base.add(offset + LENGTH_BYTES), length) })
    }

    /// Appends the first `length` bytes of the open reservation (fewer if it was shorter). Without one, nothing happens.
    #[inline]
    pub fn commit(&mut self, length: usize) {
        if self.open == NOTHING_OPEN {
            return;
        }
        let length = length.min(self.reserved);
        let offset = self.open as usize & self.mask;
        // SAFETY: `reserve` found room at `open`: a multiple of 8 below the capacity, in the writer's space.
        unsafe { self.base.add(offset).cast::<u32>().write(length as u32) };
        self.position = self.open + footprint(length) as u64;
        self.open = NOTHING_OPEN;
        self.assert_sound();
    }

    /// Shows the readers every record appended so far. One store; call it once a batch.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.position {
            self.published = self.position;
            // Release: the records' bytes are visible to anyone who sees the new position.
            self.shared
                .published
                .0
                .store(self.position, Ordering::Release);
        }
    }

    /// The longest record that this ring takes, in bytes: half the ring less 8, at most [`RECORD_BYTES_MAX`].
    /// Half, because a record next to the end needs the rest of the memory skipped too.
    #[inline]
    pub fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// Bytes free for records and their padding, by the readers' cursors now.
    pub fn free_bytes(&mut self) -> usize {
        self.refresh_limit(0);
        (self.limit - self.position) as usize
    }

    /// Whether so many bytes are free. Looks at the readers' cursors only where what was seen of them last is not enough.
    #[inline]
    pub fn has_free(&mut self, bytes: usize) -> bool {
        self.position + bytes as u64 <= self.limit || self.refresh_limit(bytes)
    }

    /// How many bytes of ring memory the slowest reader has not released: its lag.
    pub fn lag_bytes(&mut self) -> usize {
        self.mask + 1 - self.free_bytes()
    }

    /// Bytes of memory.
    pub fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// How many readers are left.
    pub fn readers(&self) -> usize {
        self.shared
            .cursors
            .iter()
            .filter(|cursor| cursor.0.load(Ordering::Relaxed) != GONE)
            .count()
    }

    /// Where a record of `length` bytes goes: at the position, or at the memory's start behind a skip mark. The position does
    /// not move: a skip mark published without the record behind it would send readers to old bytes.
    #[inline(always)]
    fn place(&mut self, length: usize) -> Result<u64, Refused> {
        if length > self.record_bytes_max() {
            return Err(Refused::TooLong);
        }
        let total = footprint(length);
        let offset = self.position as usize & self.mask;
        let before_end = self.mask + 1 - offset;
        if total <= before_end {
            if self.position + total as u64 > self.limit && !self.refresh_limit(total) {
                return Err(Refused::Full);
            }
            return Ok(self.position);
        }
        let needed = before_end + total;
        if self.position + needed as u64 > self.limit && !self.refresh_limit(needed) {
            return Err(Refused::Full);
        }
        // SAFETY: `offset` is a multiple of 8 below the capacity, so 4 bytes fit; the space up to `limit` is the writer's.
        unsafe { self.base.add(offset).cast::<u32>().write(SKIP) };
        Ok(self.position + before_end as u64)
    }

    /// Looks at the cursors again; whether `needed` bytes fit now.
    #[cold]
    fn refresh_limit(&mut self, needed: usize) -> bool {
        // With no reader left nothing holds the writer back.
        let slowest = self.shared.slowest().unwrap_or(self.position);
        debug_assert!(slowest <= self.position, "a reader is never ahead");
        self.limit = slowest + (self.mask as u64 + 1);
        self.position + needed as u64 <= self.limit
    }
}

impl Drop for RingWriter {
    /// Publishes what was appended, then tells the readers that no more comes.
    fn drop(&mut self) {
        self.publish();
        self.shared.writer_gone.0.store(true, Ordering::Release);
    }
}

/// A reading end of a ring. One thread at a time has it; dropping it frees the writer of it.
#[derive(Debug)]
pub struct RingReader {
    base: *const u8,
    mask: usize,
    /// Where the next record is.
    position: u64,
    /// The writer's published position last seen.
    published: u64,
    /// The cursor as the writer sees it.
    released: u64,
    quarter: u64,
    index: usize,
    shared: Arc<Shared>,
}

// SAFETY: `base` points into `shared.pages`, which lives as long as this; what it reads is published and not yet
// released, which the writer leaves alone (module documentation), on whatever thread it is.
unsafe impl Send for RingReader {}

impl RingReader {
    /// The next record, or `None` when every published one was taken. Allocates nothing, copies nothing.
    ///
    /// Space goes back to the writer by itself when the reader finds nothing or is a quarter of the ring further, and at
    /// [`RingReader::release`].
    // Not `Iterator`: the record borrows the reader, so that its space cannot be written meanwhile.
    #[expect(clippy::should_implement_trait, reason = "a lending iterator")]
    #[inline]
    pub fn next(&mut self) -> Option<&[u8]> {
        if self.position == self.published && !self.refresh() {
            return None;
        }
        if self.position - self.released > self.quarter {
            self.release();
        }
        // SAFETY: `position` is before `published`; the record is left alone until it is released, which needs `&mut self`,
        // which the returned slice keeps borrowed.
        let (record, end) = unsafe { record_at(self.base, self.mask, self.position) };
        self.position = end;
        debug_assert!(self.released <= self.position && self.position <= self.published);
        Some(record)
    }

    /// Shows up to `records_max` of the records that [`RingReader::next`] gives next, without taking them.
    #[inline]
    pub fn look_ahead(&mut self, records_max: usize, mut look: impl FnMut(&[u8])) -> usize {
        if self.position == self.published && !self.refresh() {
            return 0;
        }
        // Another core wrote them: their lines are asked for together, not one when the record before it is read.
        let waiting = (self.published - self.position).min(LOOKED_AHEAD_BYTES);
        for ahead in (0..waiting).step_by(CACHE_LINE_BYTES) {
            let offset = (self.position + ahead) as usize & self.mask;
            self.shared.pages.prefetch(offset);
        }
        let mut position = self.position;
        let mut seen = 0;
        while seen < records_max && position != self.published {
            // SAFETY: `position` is before `published`; nothing is released meanwhile.
            let (record, end) = unsafe { record_at(self.base, self.mask, position) };
            position = end;
            seen += 1;
            look(record);
        }
        seen
    }

    /// Hands up to `records_max` records to `apply`, then gives their space back; returns how many. The fastest way to read:
    /// the position stays in a register.
    #[inline]
    pub fn drain(&mut self, records_max: usize, mut apply: impl FnMut(&[u8])) -> usize {
        if self.position == self.published && !self.refresh() {
            return 0;
        }
        let (base, mask, published) = (self.base, self.mask, self.published);
        let mut position = self.position;
        let mut taken = 0;
        while taken < records_max && position != published {
            // SAFETY: `position` is before `published`; the record is left alone until `self.release` below.
            let (record, end) = unsafe { record_at(base, mask, position) };
            position = end;
            taken += 1;
            apply(record);
        }
        self.position = position;
        debug_assert!(self.released <= self.position && self.position <= self.published);
        self.release();
        taken
    }

    /// Gives the space of every record taken so far back to the writer. One store; call it once a batch.
    #[inline]
    pub fn release(&mut self) {
        if self.released != self.position {
            self.released = self.position;
            // Release: the reads of those records are over before the writer, acquiring this, writes there.
            self.shared.cursors[self.index]
                .0
                .store(self.position, Ordering::Release);
        }
    }

    /// Whether no published record is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.position == self.shared.published.0.load(Ordering::Acquire)
    }

    /// Bytes of ring memory published and not taken: this reader's lag.
    pub fn lag_bytes(&self) -> usize {
        (self.shared.published.0.load(Ordering::Acquire) - self.position) as usize
    }

    /// Whether the writer is gone and every record was taken: nothing will come any more.
    pub fn is_finished(&self) -> bool {
        // In this order: the writer publishes before it says that it is gone.
        self.shared.writer_gone.0.load(Ordering::Acquire) && self.is_empty()
    }

    /// Looks at what the writer published; whether there is a record. Also where space goes back unasked.
    #[inline]
    fn refresh(&mut self) -> bool {
        self.release();
        self.published = self.shared.published.0.load(Ordering::Acquire);
        self.position != self.published
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        self.shared.cursors[self.index]
            .0
            .store(GONE, Ordering::Release);
    }
}

/// Bytes of ring memory that a record of `length` bytes takes.
#[inline(always)]
fn footprint(length: usize) -> usize {
    (length + LENGTH_BYTES + ALIGNMENT - 1) & !(ALIGNMENT - 1)
}

/// The record at or after `position` (there may be a skip mark), and where the next one begins.
///
/// # Safety
///
/// `base` is the memory of a ring with `mask`, `position` one of its record boundaries before what the caller saw published, and the
/// record is not released while the slice lives.
#[inline(always)]
unsafe fn record_at<'a>(base: *const u8, mask: usize, mut position: u64) -> (&'a [u8], u64) {
    let mut offset = position as usize & mask;
    // SAFETY: `[position, published)` holds whole records that begin at multiples of 8; 4 bytes fit there.
    let mut length = unsafe { base.add(offset).cast::<u32>().read() };
    if length == SKIP {
        // The writer moves past a skip mark only together with the record behind it, so that is published too.
        position += (mask + 1 - offset) as u64;
        offset = 0;
        // SAFETY: as above, at the memory's start.
        length = unsafe { base.cast::<u32>().read() };
    }
    // SAFETY: the writer put `length` initialised bytes behind the length, inside the memory.
    let record =
        unsafe { std::slice::from_raw_parts(base.add(offset + LENGTH_BYTES), length as usize) };
    (record, position + footprint(length as usize) as u64)
}
