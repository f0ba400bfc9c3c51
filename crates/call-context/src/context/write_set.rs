//! What one packet writes to shared entries: its write set, which travels as one group and is applied whole.
//!
//! A group has [`GROUP_BYTES_MAX`](super::GROUP_BYTES_MAX) bytes at most, so that it fits a datagram. A function says how many entries one of its
//! packets writes at most, and each object knows how long its entries can be; a function of which a packet could write more than a group has is
//! refused when it is built. That it keeps to what it says is checked in every build with debug assertions, so in every test of it.

use core::cell::Cell;

use super::{Context, GROUP_BYTES_MAX};

/// Entries that a packet writes at most where its function says no other number: with the longest entries they are a group.
pub const WRITES_PER_PACKET: u32 = 4;

/// Additions to counters, sketches and other accumulators that one call may make where a store may refuse it: they are recorded until the
/// store has decided, each in [`OPERATION_BYTES_MAX`](super::OPERATION_BYTES_MAX) bytes at most.
pub const ADDITIONS_PER_CALL: u32 = 64;

/// What a packet of a function may write.
#[derive(Debug)]
pub struct WriteSet {
    writes: u32,
    /// Of some objects no more than this.
    of: Vec<(String, u32)>,
    /// The objects with entries, and how long these can be.
    entries: Vec<(usize, String)>,
}

impl Default for WriteSet {
    fn default() -> Self {
        Self {
            writes: WRITES_PER_PACKET,
            of: Vec::new(),
            entries: Vec::new(),
        }
    }
}

impl WriteSet {
    /// A packet writes so many entries at most, and of each object in `of` no more than stated there.
    pub fn expect(&mut self, writes: u32, of: &[(&str, u32)]) {
        self.writes = writes;
        let named = of.iter().map(|&(object, most)| (object.to_owned(), most));
        self.of = named.collect();
    }

    /// There is an object by this name whose entries are operations of so many bytes at most.
    pub fn note(&mut self, object: &str, entry_bytes: usize) {
        self.entries.push((entry_bytes, object.to_owned()));
    }

    /// Checks the longest write set there can be: the longest entries, as many as there may be of each object and in all.
    ///
    /// # Errors
    /// It is longer than [`GROUP_BYTES_MAX`].
    pub fn check(&self) -> Result<(), WriteSetTooLong> {
        let mut entries = self.entries.clone();
        entries.sort_by_key(|(bytes, _)| core::cmp::Reverse(*bytes));
        let (mut left, mut bytes) = (self.writes, 0);
        let mut most = Vec::new();
        for (entry_bytes, object) in entries {
            let said = self.of.iter().find(|(name, _)| *name == object);
            let count = said.map_or(left, |(_, most)| left.min(*most));
            if count == 0 {
                continue;
            }
            left -= count;
            bytes += count as usize * entry_bytes;
            most.push((count, entry_bytes, object));
        }
        match bytes <= GROUP_BYTES_MAX {
            true => Ok(()),
            false => Err(WriteSetTooLong { bytes, most }),
        }
    }
}

/// Why a function's state is not built: what one packet may write is longer than a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteSetTooLong {
    /// Bytes of the longest write set.
    pub bytes: usize,
    /// What is in it: entries, how long they can be, and the object that they are of.
    pub most: Vec<(u32, usize, String)>,
}

impl core::fmt::Display for WriteSetTooLong {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("one packet may write ")?;
        for (place, (count, bytes, object)) in self.most.iter().enumerate() {
            let and = if place > 0 { ", " } else { "" };
            write!(
                formatter,
                "{and}{count} entries of `{object}` of up to {bytes} bytes"
            )?;
        }
        write!(
            formatter,
            ": {} bytes, but what a packet writes is applied whole, and is {GROUP_BYTES_MAX} bytes at most. Write fewer entries, and say \
             how many where the objects are built (`builder.writing(..)`), or make the entries smaller",
            self.bytes
        )
    }
}

impl core::error::Error for WriteSetTooLong {}

/// What is written in the call under way, where that is checked.
#[derive(Debug)]
pub(super) struct Writing {
    max: Cell<u32>,
    /// Entries; `None` between two calls.
    count: Cell<Option<u32>>,
    /// Additions that were recorded.
    additions: Cell<u32>,
}

impl Default for Writing {
    fn default() -> Self {
        Self {
            max: Cell::new(WRITES_PER_PACKET),
            count: Cell::new(None),
            additions: Cell::new(0),
        }
    }
}

impl Context {
    /// A packet of some function writes so many entries.
    pub fn expect_writes(&self, writes: u32) {
        let max = &self.writing.max;
        max.set(max.get().max(writes));
    }
    /// A call begins, whose writes are counted where that is checked.
    #[inline(always)]
    pub fn begin_writes(&self) {
        if cfg!(debug_assertions) {
            self.writing.count.set(Some(0));
            self.writing.additions.set(0);
        }
    }
    /// It ended.
    #[inline(always)]
    pub fn end_writes(&self) {
        if cfg!(debug_assertions) {
            self.writing.count.set(None);
        }
    }
    /// Another entry is written.
    #[inline(always)]
    pub(super) fn count_write(&self) {
        if cfg!(debug_assertions)
            && let Some(count) = self.writing.count.get()
        {
            let max = self.writing.max.get();
            assert!(
                count < max,
                "one packet wrote more than {max} entries: say how many it writes where the objects are built (`builder.writing(..)`)"
            );
            self.writing.count.set(Some(count + 1));
        }
    }
    /// Another addition to an accumulator is recorded.
    pub(super) fn count_addition(&self) {
        if cfg!(debug_assertions) && self.writing.count.get().is_some() {
            let count = self.writing.additions.get();
            assert!(
                count < ADDITIONS_PER_CALL,
                "one packet adds to accumulators more than {ADDITIONS_PER_CALL} times: add up what is for the same key first"
            );
            self.writing.additions.set(count + 1);
        }
    }
    /// The group that a packet writes is full.
    #[inline(always)]
    pub(super) fn refuse_second_group(&self) {
        debug_assert!(
            self.writing.count.get().is_none() || !self.group_open.get(),
            "one packet wrote more than {GROUP_BYTES_MAX} bytes: say how many entries of each object it writes (`builder.writing(..)`)"
        );
    }
}
