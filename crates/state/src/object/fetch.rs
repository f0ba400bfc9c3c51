//! Objects that live in a store, and writes that are made when they are committed.
//!
//! The same two traits serve both sides. An instance installs what the store answered for one call, and records what the call
//! writes. The store extracts what is read and makes what was recorded. See `requests.rs` of `asterism-call-context`.

use asterism_windows::Ring;

use crate::context::{Query, Tick};
use crate::wire::{BadBytes, Reader};

/// An entry of an answer.
#[derive(Debug)]
pub struct FetchedEntry<'a> {
    /// Row, value, and whether it is shadowed, as an answer has them.
    pub bytes: &'a [u8],
    /// What it is found by, as an answer has it.
    pub row: &'a [u8],
    /// When it ends unless it is used again; `None`: never.
    pub ends: Option<Tick>,
    /// The reads that find it.
    pub reads: &'a [Query<'a>],
    /// So many of them, the first ones, find one entry at a time; the others find groups.
    pub unique: usize,
    /// Another entry is found instead by one of those.
    pub is_shadowed: bool,
}

/// What a recorded write adds to a sum in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition<'a> {
    /// The bucket of time whose sum it is; 0: the object has no buckets.
    pub bucket: u32,
    /// The field of the sum.
    pub field: &'a [u8],
    /// What comes to it.
    pub amount: i64,
}

impl<'a> Addition<'a> {
    /// To a sum of an object without buckets.
    pub(crate) fn new(field: &'a [u8], amount: i64) -> Self {
        Self {
            bucket: 0,
            field,
            amount,
        }
    }
}

/// Which of its sums in a store an object shows to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumsShown {
    /// All of them.
    All,
    /// That under this field alone.
    One(&'static [u8]),
    /// None: instances show what they know themselves.
    None,
}

/// Reads by keys, of an object that lives in a store.
pub trait Fetch {
    /// Why it cannot live in a store: the end of a sentence that begins with its name and "cannot live in a store, since". `None`: it can.
    fn stays_because(&self) -> Option<&'static str>;
    /// Whether each of its keys is of one conversation: so a store of several shards can have it, each with whole conversations.
    fn is_by_conversation(&self) -> bool {
        false
    }
    /// The [conversation](asterism_memory::hash::conversation) of a key that is read; `None`: it says none, or is no key of this object.
    fn conversation_of(&self, _query: &Query<'_>, _seed: u64) -> Option<u64> {
        None
    }
    /// Appends the answer to a read: two bytes with the length of the part that must be the same when the call is committed, that part, and
    /// what may have changed by then.
    fn extract(&self, _query: &Query<'_>, _out: &mut Vec<u8>) {}
    /// Whether a read finds an entry of this hash, among however many: [`entry_hash`](crate::entry_hash).
    fn has_entry(&self, _query: &Query<'_>, _hash: u64) -> bool {
        false
    }
    /// Has what was answered here, for the call under way.
    ///
    /// # Errors
    /// It is no answer of this object. What was installed before stays until [`Fetch::withdraw`].
    fn install(&mut self, _lane: u8, _answer: &[u8]) -> Result<(), BadBytes> {
        Err(BadBytes)
    }
    /// Answers may be kept here between calls from now on, as [`Fetch::keep`] does.
    fn expect_kept(&mut self) {}
    /// Has the entry of an answer here between calls, if it is of the key with this hash: it is so until [`Fetch::drop_kept`] says otherwise.
    fn keep(&mut self, _lane: u8, _hash: u64, _answer: &[u8]) {}
    /// An answer that was kept is not so any more, or nobody knows that it is: by the lane and the hash of its key.
    fn drop_kept(&mut self, _lane: u8, _hash: u64) {}
    /// The same of all answers.
    fn drop_all_kept(&mut self) {}
    /// The same of entries whose idle time is over by now.
    fn drop_ended(&mut self) {}
    /// Reads find what is kept from here on, and what was installed no more (`shows`); or the other way round, as at first. Kept answers come and go
    /// while they are not shown.
    fn show_kept(&mut self, _shows: bool) {}
    /// Has nothing here any more that was answered.
    fn withdraw(&mut self) {}
    /// Has nothing here any more at all, for an object that computes what a store is to hold: see [`Fetch::each_entry`].
    fn clear(&mut self) {}
    /// Whether it has entries that end by themselves: in a store they stay until their end is committed, which [`Fetch::end_over`] makes.
    fn ends(&self) -> bool {
        false
    }
    /// Whether sums in the store count its entries.
    fn is_counted(&self) -> bool {
        false
    }
    /// Ends the entry of a row, if it is here and its time is over, for an object that computes what a store is to hold.
    ///
    /// # Errors
    /// It is no row of this object.
    fn end_over(&mut self, _row: &[u8]) -> Result<(), BadBytes> {
        Err(BadBytes)
    }
    /// The reads that find a row, as an answer has it.
    ///
    /// # Errors
    /// It is no row of this object.
    fn reads_of(&self, _row: &[u8], _each: &mut dyn FnMut(&[Query<'_>])) -> Result<(), BadBytes> {
        Err(BadBytes)
    }
    /// Whether a store has it as sums, each under a field, to which recorded writes add: see [`Fetch::each_addition`].
    fn has_sums(&self) -> bool {
        false
    }
    /// Whether its sums follow the entries of a table, and are where these are.
    fn counts_entries(&self) -> bool {
        false
    }
    /// The buckets of time of its sums: a store has sums for each bucket that is kept. `None`: for no bucket by itself.
    fn buckets(&self) -> Option<Ring> {
        None
    }
    /// Whether the fields of its sums are keys for which there is so much room as its capacity says, over all buckets that are kept.
    fn has_room_for_keys(&self) -> bool {
        false
    }
    /// Whether an instance whose object is in a store notes what becomes of its own writes, as of one that is here:
    /// [`Operations::note_undecided`] and [`Operations::commit`].
    fn follows_decisions(&self) -> bool {
        false
    }
    /// Which sums people see.
    fn shows_sums(&self) -> SumsShown {
        SumsShown::All
    }
    /// What a recorded write adds, for a store that has sums.
    ///
    /// # Errors
    /// It is no write of this object.
    fn each_addition(
        &self,
        _write: &[u8],
        _each: &mut dyn FnMut(&Addition<'_>),
    ) -> Result<(), BadBytes> {
        Err(BadBytes)
    }
    /// Notes the sums that a store has, for people: as an answer has them.
    fn note_sums(&mut self, _answer: &[u8]) {}
    /// Takes what has come with entries to the sum of each place since [`Fetch::clear`], for an object that computes what a store is to add.
    fn take_sums(&mut self, _each: &mut dyn FnMut(u32, i64)) {}
    /// The entries in an answer to a read by a key, for a store that keeps answers under keys.
    ///
    /// # Errors
    /// It is no answer of this object.
    fn each_entry(
        &self,
        _answer: &[u8],
        _each: &mut dyn FnMut(&FetchedEntry<'_>),
    ) -> Result<(), BadBytes> {
        Err(BadBytes)
    }
}

/// Writes that a call records, and that are made when its transaction is committed.
pub trait Operations {
    /// Whether [`Operations::begin_recording`] and [`Operations::end_recording`] matter to it; else it looks at the context when it writes.
    fn must_begin_recording(&self) -> bool {
        true
    }
    /// The call under way begins to write: what follows is recorded, at once or by [`Operations::end_recording`].
    fn begin_recording(&mut self) {}
    /// Records what the call wrote, if it did not while it wrote, and has it undone here.
    fn end_recording(&mut self) {}
    /// Whether a recorded write of this kind needs room.
    fn adds(&self, _kind: u8) -> bool {
        false
    }
    /// Whether a recorded write of this kind says no more than that an entry is in use.
    fn is_use(&self, _kind: u8) -> bool {
        false
    }
    /// Whether there is room for so many writes that need it.
    fn is_room_for(&self, _writes: u32) -> bool {
        true
    }
    /// A write that was recorded waits for its decision from now on (`begins`), or has it: see `undecided.rs` of `asterism-call-context`.
    ///
    /// # Errors
    /// It is no write of this object.
    fn note_undecided(
        &mut self,
        _kind: u8,
        _input: &mut Reader<'_>,
        _begins: bool,
    ) -> Result<(), BadBytes> {
        Ok(())
    }
    /// Makes a write that was recorded, as this instance's.
    ///
    /// # Errors
    /// It is no write of this object.
    fn commit(&mut self, _kind: u8, _input: &mut Reader<'_>) -> Result<(), BadBytes> {
        Err(BadBytes)
    }
}
