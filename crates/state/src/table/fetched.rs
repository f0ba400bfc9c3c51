//! Entries that live in a store: what is read there of a table, what of it is here for one call, and writes that are committed.
//!
//! The store's side is a table too, with all the entries. It answers a read with the live entries under a key
//! ([`Fetch::extract`]), and makes the writes that a call recorded ([`Operations::commit`]) as its own.

use asterism_memory::hash;

use super::lanes::MEMBERS_SEEN_MAX;
use super::record::{CONFIRMED, DOMINATED, Header, LIVE, LIVED, Record, USED};
use super::{LANES_MAX, Row, Table, Value};
use crate::accumulator::Vector;
use crate::context::{LANE_ANY, LANE_ROOM, Late, Query, Tick, entry_hash};
use crate::mutant::{self, Mutant};
use crate::object::{Fetch, FetchedEntry, Operations};
use crate::wire::{BadBytes, Reader, Writer};

/// Kinds of recorded writes.
pub(crate) const RECORDED_WRITE: u8 = 0;
pub(super) const RECORDED_CHANGE: u8 = 1;
pub(crate) const RECORDED_TOUCH: u8 = 2;
pub(super) const RECORDED_REMOVAL: u8 = 3;

impl<R: Row, V: Value> Table<R, V> {
    /// Whether its entries are in a store, which instances ask.
    #[inline]
    pub fn lives_in_store(&self) -> bool {
        self.settings.is_remote
    }

    /// The function does without what follows the arrival and the end of entries ([`Table::on_adopt`], [`Table::on_forget`],
    /// [`Table::on_turn`]) where they are in a store: there nothing is called. Unless it says so, a table that others follow cannot live
    /// in a store.
    pub fn goes_unfollowed_in_store(&mut self) {
        self.goes_unfollowed = true;
    }

    /// Has each row that lives counted as one in a place of these sums, no matter who wrote it: see [`Table::on_turn`]. The sums are where the
    /// table is. In a store an entry then stays, and is found, until its end is committed together with what that takes from its sum.
    pub fn counted_in(&mut self, sums: &mut Vector, place: impl Fn(&R) -> u32 + 'static) {
        let later = sums.later();
        self.on_turn(move |row, is_live| later.add(place(row), if is_live { 1 } else { -1 }));
        self.is_counted = true;
        sums.count_entries(self.settings.is_remote);
    }

    /// Asks a store, ahead of [`Table::vacancy`], how many entries may be added; late until it has answered.
    ///
    /// # Errors
    /// Late until then.
    pub fn room_ahead(&self) -> Result<(), Late> {
        match self.settings.is_remote {
            true => self.room_answered(),
            false => Ok(()),
        }
    }

    /// Whether a write is recorded, to be committed, and not made.
    #[inline]
    pub(super) fn records_writes(&self) -> bool {
        self.settings.records && (self.settings.is_remote || self.context.is_staged())
    }

    pub(super) fn record(&self, kind: u8, row: R, value: V) {
        self.context.record(self.object, kind, |out| {
            row.encode(out);
            value.encode(out);
        });
    }

    /// Whether the store answered a read by a key for this call.
    #[cold]
    pub(super) fn answered(
        &self,
        lane: usize,
        hash: u64,
        key: impl Fn(&mut Writer<'_>),
    ) -> Result<(), Late> {
        self.context.answered((self.object, lane as u8, hash), key)
    }

    /// Whether the store said how many entries may be added.
    #[cold]
    pub(super) fn room_answered(&self) -> Result<(), Late> {
        self.context.answered((self.object, LANE_ROOM, 0), |_| {})
    }

    /// Whether the store has no entry.
    #[cold]
    pub(super) fn is_empty_there(&self) -> Result<bool, Late> {
        self.context.answered((self.object, LANE_ANY, 0), |_| {})?;
        Ok(!self.has_any)
    }

    /// Entries that may be added.
    fn room_left(&self) -> u32 {
        let own = self.own_max.saturating_sub(self.own);
        own.min(self.settings.capacity.saturating_sub(self.held))
    }

    /// The live records under a key, or those of them that are looked at for one of a group: of a unique key the one that it finds, then the
    /// others by their bytes. So an answer depends on what is under its key alone, not on what was installed or written before.
    fn under(&self, query: &Query<'_>) -> Vec<u32> {
        let mut found: Vec<u32> = self.all_under(query).take(MEMBERS_SEEN_MAX).collect();
        let lane = usize::from(query.lane);
        let first = found.len().min(usize::from(lane < R::UNIQUE));
        found[first..].sort_by_cached_key(|number| {
            let mut bytes = Vec::new();
            let row = &self.records[*number as usize].row;
            row.encode(&mut Writer::new(&mut bytes, self.context.addresses()));
            bytes
        });
        found
    }

    /// The live records under a key.
    fn all_under<'a>(&'a self, query: &Query<'_>) -> impl Iterator<Item = u32> + use<'a, R, V> {
        let lane = usize::from(query.lane);
        let first = (lane < R::LANES).then(|| {
            self.lanes[lane].find(query.hash, |number| {
                let mut bytes = Vec::new();
                let row = &self.records[number as usize].row;
                row.lane_key(lane, &mut Writer::new(&mut bytes, self.context.addresses()));
                (bytes == query.key).then_some(number)
            })
        });
        let next = move |number: &u32| self.links[*number as usize].next[lane].checked_sub(1);
        core::iter::successors(first.flatten(), next)
            .filter(|number| self.records[*number as usize].header.flags & LIVE != 0)
    }

    /// Writes a record as an answer has it.
    pub(super) fn write_entry(&self, number: u32, out: &mut Writer<'_>) {
        let record = &self.records[number as usize];
        record.row.encode(out);
        record.value.encode(out);
        out.u8(u8::from(record.header.flags & DOMINATED != 0));
    }

    /// The reads that find a row, of which [`Row::LANES`] are some.
    fn reads<'a>(&self, row: &R, keys: &'a mut [Vec<u8>; LANES_MAX]) -> [Query<'a>; LANES_MAX] {
        let hashes = self.hashes(row);
        for (lane, key) in keys.iter_mut().enumerate().take(R::LANES) {
            key.clear();
            row.lane_key(lane, &mut Writer::new(key, self.context.addresses()));
        }
        let keys = &*keys;
        core::array::from_fn(|lane| Query {
            object: self.object,
            lane: lane as u8,
            hash: hashes[lane],
            key: &keys[lane],
            conversation: 0,
        })
    }

    /// Puts an entry here for the call under way.
    pub(super) fn install_entry(&mut self, row: R, value: V, known: Known) -> Option<u32> {
        let Known {
            is_shadowed,
            touch_due,
        } = known;
        let known = self.identity(&row);
        let number = known.or_else(|| {
            let header = Header {
                touch_due,
                seen: match self.idle(&value) {
                    0 => 1,
                    idle => touch_due.saturating_sub(announced_after(idle)).max(1),
                },
                flags: USED | LIVE | LIVED | CONFIRMED,
                ..Header::default()
            };
            if !self.settings.is_remote {
                self.live += 1;
            }
            self.allocate(Record { header, row, value })
        });
        // Else there are more entries than the table may have: the store has as many at most.
        let number = number?;
        if known.is_some() {
            self.unlink(number);
        }
        self.link(number, row, &self.hashes(&row));
        if is_shadowed {
            let flags = &mut self.records[number as usize].header.flags;
            *flags = *flags & !CONFIRMED | DOMINATED;
        }
        Some(number)
    }

    /// Has no entry here any more.
    pub(super) fn empty(&mut self) {
        for number in 0..self.used {
            if self.records[number as usize].header.flags & USED != 0 {
                self.unlink(number);
                self.records[number as usize].header.flags = 0;
            }
        }
        (self.used, self.free, self.held, self.own) = (0, 0, 0, 0);
    }
}

impl<R: Row, V: Value> Fetch for Table<R, V> {
    fn stays_because(&self) -> Option<&'static str> {
        let turns = self.on_turn.is_some() && !self.is_counted;
        let is_followed = self.on_forget.is_some() || self.on_adopt.is_some() || turns;
        (is_followed && !self.goes_unfollowed)
            .then_some("other objects follow the end and the arrival of its entries")
    }

    fn is_by_conversation(&self) -> bool {
        R::IS_OF_CONVERSATION
    }

    fn conversation_of(&self, query: &Query<'_>, seed: u64) -> Option<u64> {
        let mut key = Reader::new(query.key, self.context.addresses());
        let (one, other) = R::between(query.lane.into(), &mut key).ok()??;
        key.is_empty().then(|| hash::conversation(one, other, seed))
    }

    fn extract(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        match query.lane {
            LANE_ROOM => {
                out.extend([0; 2]);
                out.extend(self.room_left().to_le_bytes());
            }
            LANE_ANY => out.extend([1, 0, u8::from(self.live > 0)]),
            _ => {
                let found = self.under(query);
                let start = out.len();
                out.extend([0; 2]);
                let mut writer = Writer::new(out, self.context.addresses());
                for &number in &found {
                    self.write_entry(number, &mut writer);
                }
                let stable = (out.len() - start - 2) as u16;
                out[start..start + 2].copy_from_slice(&stable.to_le_bytes());
                for &number in &found {
                    out.extend(self.records[number as usize].header.touch_due.to_le_bytes());
                }
            }
        }
    }

    fn has_entry(&self, query: &Query<'_>, hash: u64) -> bool {
        let mut bytes = Vec::new();
        self.all_under(query).any(|number| {
            bytes.clear();
            self.write_entry(
                number,
                &mut Writer::new(&mut bytes, self.context.addresses()),
            );
            entry_hash(&bytes) == hash
        })
    }

    fn install(&mut self, lane: u8, answer: &[u8]) -> Result<(), BadBytes> {
        let (length, rest) = answer.split_first_chunk().ok_or(BadBytes)?;
        let stable = usize::from(u16::from_le_bytes(*length));
        let (stable, rest) = rest.split_at_checked(stable).ok_or(BadBytes)?;
        match lane {
            LANE_ROOM => {
                let left = rest.first_chunk().ok_or(BadBytes)?;
                (self.own, self.own_max) = (0, u32::from_le_bytes(*left));
            }
            LANE_ANY => self.has_any = *stable.first().ok_or(BadBytes)? != 0,
            _ => {
                let context = self.context.clone();
                return read_entries(answer, context.addresses(), |row, value, known, _, _| {
                    let _ = self.install_entry(row, value, known);
                });
            }
        }
        Ok(())
    }

    fn withdraw(&mut self) {
        if self.settings.is_remote {
            self.clear();
            (self.own_max, self.has_any) = (0, false);
        }
    }

    fn clear(&mut self) {
        self.empty();
        if !self.settings.is_remote {
            self.live = 0;
        }
    }

    fn expect_kept(&mut self) {
        Self::expect_kept(self);
    }

    fn show_kept(&mut self, shows: bool) {
        self.swap_kept(shows);
    }

    fn keep(&mut self, lane: u8, hash: u64, answer: &[u8]) {
        self.keep_answered(lane.into(), hash, answer);
    }

    fn drop_kept(&mut self, lane: u8, hash: u64) {
        self.drop_kept_under(lane.into(), hash);
    }

    fn drop_all_kept(&mut self) {
        self.drop_kept_all();
    }

    fn drop_ended(&mut self) {
        self.drop_kept_ended();
    }

    fn ends(&self) -> bool {
        self.settings.idle.iter().any(|idle| *idle != 0)
    }

    fn is_counted(&self) -> bool {
        self.is_counted
    }

    fn end_over(&mut self, row: &[u8]) -> Result<(), BadBytes> {
        let row = R::decode(&mut Reader::new(row, self.context.addresses()))?;
        if let Some(number) = self.identity(&row)
            && self.records[number as usize].header.flags & LIVE != 0
            && self.is_idle(number)
        {
            self.expire(number);
        }
        Ok(())
    }

    fn reads_of(&self, row: &[u8], each: &mut dyn FnMut(&[Query<'_>])) -> Result<(), BadBytes> {
        let row = R::decode(&mut Reader::new(row, self.context.addresses()))?;
        let mut keys = Default::default();
        each(&self.reads(&row, &mut keys)[..R::LANES]);
        Ok(())
    }

    fn each_entry(
        &self,
        answer: &[u8],
        each: &mut dyn FnMut(&FetchedEntry<'_>),
    ) -> Result<(), BadBytes> {
        let mut keys: [Vec<u8>; LANES_MAX] = Default::default();
        read_entries(
            answer,
            self.context.addresses(),
            |row: R, value: V, known, bytes, row_bytes| {
                let reads = self.reads(&row, &mut keys);
                let idle = self.idle(&value);
                each(&FetchedEntry {
                    bytes,
                    row: row_bytes,
                    // Uses before that are not announced, so the last one may have been as late.
                    ends: (idle != 0).then(|| known.touch_due.saturating_add(idle)),
                    reads: &reads[..R::LANES],
                    unique: R::UNIQUE,
                    is_shadowed: known.is_shadowed,
                });
            },
        )
    }
}

/// Seconds after which a use of an entry with this idle time is announced again.
fn announced_after(idle: Tick) -> Tick {
    (idle / 4).max(1)
}

/// What an answer says of an entry beside its row and value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) is_shadowed: bool,
    pub(super) touch_due: Tick,
}

/// Reads the entries of an answer, each with its bytes, and those of its row.
pub(super) fn read_entries<R: Row, V: Value>(
    answer: &[u8],
    addresses: &[u32],
    mut each: impl FnMut(R, V, Known, &[u8], &[u8]),
) -> Result<(), BadBytes> {
    let (length, rest) = answer.split_first_chunk().ok_or(BadBytes)?;
    let stable = usize::from(u16::from_le_bytes(*length));
    let (mut stable, rest) = rest.split_at_checked(stable).ok_or(BadBytes)?;
    let mut dues = rest.chunks_exact(4);
    while !stable.is_empty() {
        let mut input = Reader::new(stable, addresses);
        let row = R::decode(&mut input)?;
        let row_bytes = &stable[..stable.len() - input.left()];
        let (value, is_shadowed) = (V::decode(&mut input)?, input.u8()? != 0);
        let (bytes, rest) = stable.split_at(stable.len() - input.left());
        stable = rest;
        let due = dues.next().and_then(|due| due.first_chunk());
        let touch_due = u32::from_le_bytes(*due.ok_or(BadBytes)?);
        let known = Known {
            is_shadowed,
            touch_due,
        };
        each(row, value, known, bytes, row_bytes);
    }
    Ok(())
}

impl<R: Row, V: Value> Operations for Table<R, V> {
    fn must_begin_recording(&self) -> bool {
        false
    }

    fn is_room_for(&self, writes: u32) -> bool {
        writes <= self.room_left()
    }

    fn adds(&self, kind: u8) -> bool {
        kind == RECORDED_WRITE
    }

    fn is_use(&self, kind: u8) -> bool {
        kind == RECORDED_TOUCH
    }

    fn note_undecided(
        &mut self,
        kind: u8,
        input: &mut Reader<'_>,
        begins: bool,
    ) -> Result<(), BadBytes> {
        let row = R::decode(input)?;
        // A use is no matter to other packets.
        if kind == RECORDED_TOUCH {
            return Ok(());
        }
        for (lane, &hash) in self.hashes(&row).iter().enumerate().take(R::LANES) {
            let read = (self.object, lane as u8, hash);
            self.context.note_undecided(read, begins);
        }
        if kind == RECORDED_WRITE && !mutant::active(Mutant::PromisedRoomGiven) {
            // It has its room already.
            match begins {
                true => (self.own, self.held) = (self.own + 1, self.held + 1),
                false => (self.own, self.held) = (self.own - 1, self.held - 1),
            }
        }
        if kind != RECORDED_CHANGE {
            self.context.note_undecided_entry(self.object, begins);
        }
        Ok(())
    }

    fn commit(&mut self, kind: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (row, value) = (R::decode(input)?, V::decode(input)?);
        let known = self.identity(&row);
        match (kind, known) {
            (RECORDED_WRITE, _) => self.write(row, value),
            (RECORDED_CHANGE, Some(number)) => self.change(number, value),
            (RECORDED_TOUCH, Some(number)) => self.refresh(number),
            (RECORDED_REMOVAL, Some(number)) => self.remove_entry(number),
            // It ended since.
            (RECORDED_CHANGE | RECORDED_TOUCH | RECORDED_REMOVAL, None) => {}
            _ => return Err(BadBytes),
        }
        Ok(())
    }
}
