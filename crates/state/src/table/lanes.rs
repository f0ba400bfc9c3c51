//! How entries are found: an index per lane to the head of the chain of rows with that key.
//!
//! The head of a unique key's chain is its best row; the rest has no order, and is short. A group's chain
//! may be long: its live rows stand before its ended ones, and its head knows its tail, so that every
//! change is a few steps.

use core::ops::Range;

use asterism_memory::index::Index;
use asterism_memory::prefetch_hints::PrefetchHints;

use super::record::{CHAINED, DOMINATED, LIVE, LIVED, Record};
use super::{LANES_MAX, Row, Table, Value};
use crate::mutant::{self, Mutant};

/// Set in the `previous` of a group's head: the rest is the group's tail (plus one).
const TAIL: u32 = 1 << 31;

/// Rows of a group that are looked at for one with a property.
pub(super) const MEMBERS_SEEN_MAX: usize = 64;

/// A row's hash in each of its lanes.
pub(super) type Hashes = [u64; LANES_MAX];

impl<R: Row, V: Value> Table<R, V> {
    /// The row's hashes, which every way to find or to add it begins with: some hundred instructions for four lanes.
    #[inline]
    pub(super) fn hashes(&self, row: &R) -> Hashes {
        let seed = self.context.seed();
        let mut hashes = [0; LANES_MAX];
        for (lane, hash) in hashes.iter_mut().enumerate().take(R::LANES) {
            *hash = row.lane_hash(lane, seed);
        }
        hashes
    }

    /// The record of exactly this row, live or not.
    pub(super) fn identity(&self, row: &R) -> Option<u32> {
        self.identity_under(row.lane_hash(0, self.context.seed()), row)
    }

    /// The same, by the hash of its first lane.
    pub(super) fn identity_under(&self, hash: u64, row: &R) -> Option<u32> {
        let mut at = self.head(0, hash, row)?;
        loop {
            if self.records[at as usize].row == *row {
                return Some(at);
            }
            at = self.links[at as usize].next[0].checked_sub(1)?;
        }
    }

    /// Asks for the cache line of every lane that a probe for a row reads first.
    #[inline]
    pub(super) fn prefetch(&self, hashes: &Hashes) {
        for (lane, hash) in hashes.iter().enumerate().take(R::LANES) {
            self.prefetch_lane(lane, *hash);
        }
    }

    #[inline]
    pub(crate) fn prefetch_lane(&self, lane: usize, hash: u64) {
        self.lanes[lane].prefetch(hash);
    }

    /// Whether a row with the same key in `lane` was ever found here. The first row mostly tells.
    #[inline]
    pub(super) fn any_lived(&self, lane: usize, row: &R) -> bool {
        let mut at = self.head(lane, row.lane_hash(lane, self.context.seed()), row);
        while let Some(number) = at {
            if self.records[number as usize].header.flags & LIVED != 0 {
                return true;
            }
            at = self.links[number as usize].next[lane].checked_sub(1);
        }
        false
    }

    /// Brings the records closer at which prefetched probes are likely to end: see [`PrefetchHints::each_record`].
    #[inline]
    pub(crate) fn prefetch_records(
        &self,
        prefetch_hints: &PrefetchHints,
        packets: Range<usize>,
    ) -> usize {
        prefetch_hints.each_record(packets, |lane| {
            let index = &self.lanes[lane % LANES_MAX];
            move |bucket, hash| {
                let number = index.likely(bucket, hash)?;
                self.records.prefetch(number as usize);
                Some(number)
            }
        })
    }

    /// Whether a probe is likely to miss the cache, so that prefetching pays.
    pub(crate) fn outgrew_cache(&self, cache_bytes: usize) -> bool {
        self.lanes.iter().map(Index::bytes_in_use).sum::<usize>()
            + self.held as usize * Self::RECORD_BYTES
            > cache_bytes
    }

    fn head(&self, lane: usize, hash: u64, row: &R) -> Option<u32> {
        self.lanes[lane].find(hash, |number| {
            let record = &self.records[number as usize];
            record.row.lane_equal(lane, row).then_some(number)
        })
    }

    /// Whether record `left` stands before record `right` in a unique key's chain.
    fn better(&self, left: u32, right: u32) -> bool {
        let (left, right) = (&self.records[left as usize], &self.records[right as usize]);
        let alive = |record: &Record<R, V>| record.header.flags & LIVE;
        if alive(left) != alive(right) {
            return alive(left) > alive(right);
        }
        left.row.order(&right.row).is_gt()
    }

    /// Puts a record into all lanes. The row is given: read back from a record just written, it would wait until the cache
    /// line of that record has come.
    pub(super) fn link(&mut self, number: u32, row: R, hashes: &Hashes) {
        let seed = self.context.seed();
        let mut chained = false;
        for (lane, &hash) in hashes.iter().enumerate().take(R::LANES) {
            match self.head(lane, hash, &row) {
                None => {
                    if lane >= R::UNIQUE {
                        self.links[number as usize].previous[lane] = TAIL | (number + 1);
                    }
                    let records = &self.records;
                    let hash_of = |record: u32| records[record as usize].row.lane_hash(lane, seed);
                    let prefetch = |record: u32| records.prefetch(record as usize);
                    self.lanes[lane].insert_ahead(hash, number, hash_of, prefetch);
                }
                Some(head) => {
                    if lane >= R::UNIQUE {
                        self.link_group(lane, hash, head, number);
                    } else {
                        self.link_unique(lane, hash, head, number);
                    }
                    self.records[head as usize].header.flags |= CHAINED;
                    chained = true;
                }
            }
        }
        if chained {
            self.records[number as usize].header.flags |= CHAINED;
            self.judge_neighbours(&row);
        }
    }

    fn link_unique(&mut self, lane: usize, hash: u64, head: u32, number: u32) {
        if self.better(number, head) {
            self.lanes[lane].replace(hash, head, number);
            self.links[number as usize].next[lane] = head + 1;
            self.links[head as usize].previous[lane] = number + 1;
        } else {
            self.link_after(lane, head, number);
        }
    }

    /// Live rows to the front of the group, ended ones to its end.
    fn link_group(&mut self, lane: usize, hash: u64, head: u32, number: u32) {
        let alive = |number: u32| self.records[number as usize].header.flags & LIVE != 0;
        let tail = self.links[head as usize].previous[lane];
        if alive(number) && !alive(head) {
            self.lanes[lane].replace(hash, head, number);
            self.links[number as usize].next[lane] = head + 1;
            self.links[number as usize].previous[lane] = tail;
            self.links[head as usize].previous[lane] = number + 1;
            return;
        }
        let after = if alive(number) {
            head
        } else {
            (tail & !TAIL) - 1
        };
        self.link_after(lane, after, number);
        if self.links[number as usize].next[lane] == 0 {
            self.links[head as usize].previous[lane] = TAIL | (number + 1);
        }
    }

    fn link_after(&mut self, lane: usize, before: u32, number: u32) {
        let after = self.links[before as usize].next[lane];
        self.links[number as usize].previous[lane] = before + 1;
        self.links[number as usize].next[lane] = after;
        self.links[before as usize].next[lane] = number + 1;
        if after != 0 {
            self.links[after as usize - 1].previous[lane] = number + 1;
        }
    }

    /// Takes a record out of all lanes. Tells, for each lane, whether no row with that key is left.
    pub(super) fn unlink(&mut self, number: u32) -> [bool; super::LANES_MAX] {
        let seed = self.context.seed();
        let row = self.records[number as usize].row;
        let mut emptied = [false; super::LANES_MAX];
        for (lane, emptied) in emptied.iter_mut().enumerate().take(R::LANES) {
            let (next, previous) = (
                self.links[number as usize].next[lane],
                self.links[number as usize].previous[lane],
            );
            let hash = row.lane_hash(lane, seed);
            if previous != 0 && previous & TAIL == 0 {
                self.links[previous as usize - 1].next[lane] = next;
                if next != 0 {
                    self.links[next as usize - 1].previous[lane] = previous;
                } else if lane >= R::UNIQUE
                    && let Some(head) = self.head(lane, hash, &row)
                {
                    self.links[head as usize].previous[lane] = TAIL | previous;
                }
            } else if next == 0 {
                self.lanes[lane].remove(hash, number);
                *emptied = true;
            } else {
                self.links[next as usize - 1].previous[lane] = previous;
                self.lanes[lane].replace(hash, number, next - 1);
                if lane < R::UNIQUE {
                    let best = self.best_of(lane, next - 1);
                    self.promote(lane, hash, next - 1, best);
                }
            }
            self.links[number as usize].next[lane] = 0;
            self.links[number as usize].previous[lane] = 0;
        }
        if self.records[number as usize].header.flags & CHAINED != 0 {
            self.records[number as usize].header.flags &= !(CHAINED | DOMINATED);
            self.judge_neighbours(&row);
        }
        emptied
    }

    /// After an entry came alive or died: puts it where it belongs in its chains.
    pub(super) fn relink(&mut self, number: u32) {
        if self.records[number as usize].header.flags & CHAINED != 0 {
            self.unlink(number);
            let row = self.records[number as usize].row;
            self.link(number, row, &self.hashes(&row));
        }
    }

    /// The best record of a unique key's chain.
    fn best_of(&self, lane: usize, first: u32) -> u32 {
        let mut best = first;
        let mut at = first;
        while let Some(next) = self.links[at as usize].next[lane].checked_sub(1) {
            at = next;
            if self.better(at, best) {
                best = at;
            }
        }
        best
    }

    /// Moves `best` from inside a chain to its head.
    fn promote(&mut self, lane: usize, hash: u64, head: u32, best: u32) {
        if head == best {
            return;
        }
        let (next, previous) = (
            self.links[best as usize].next[lane],
            self.links[best as usize].previous[lane],
        );
        self.links[previous as usize - 1].next[lane] = next;
        if next != 0 {
            self.links[next as usize - 1].previous[lane] = previous;
        }
        self.links[best as usize].previous[lane] = 0;
        self.links[best as usize].next[lane] = head + 1;
        self.links[head as usize].previous[lane] = best + 1;
        self.lanes[lane].replace(hash, head, best);
    }

    /// Recomputes who is shadowed among all rows that share a unique key with `row`.
    fn judge_neighbours(&mut self, row: &R) {
        let seed = self.context.seed();
        for lane in 0..R::UNIQUE {
            let Some(mut at) = self.head(lane, row.lane_hash(lane, seed), row) else {
                continue;
            };
            loop {
                self.judge(at);
                match self.links[at as usize].next[lane] {
                    0 => break,
                    next => at = next - 1,
                }
            }
        }
    }

    /// A live entry is shadowed while it is not the head of each of its unique lanes, whether or not the
    /// one before it is shadowed itself: so the outcome does not depend on the order of arrival.
    fn judge(&mut self, number: u32) {
        let sides = if mutant::active(Mutant::SidesSeparate) {
            1
        } else {
            R::UNIQUE
        };
        let shadowed = self.records[number as usize].header.flags & LIVE != 0
            && (0..sides).any(|lane| self.links[number as usize].previous[lane] != 0);
        let flags = &mut self.records[number as usize].header.flags;
        if shadowed && *flags & DOMINATED == 0 {
            self.tally.shadowed += 1;
        }
        *flags = if shadowed {
            *flags | DOMINATED
        } else {
            *flags & !DOMINATED
        };
    }

    /// A live row of a grouping lane's key that is `wanted`, among the first [`MEMBERS_SEEN_MAX`].
    pub(crate) fn any_in_group(
        &self,
        lane: usize,
        hash: u64,
        same: impl Fn(&R) -> bool,
        wanted: impl Fn(&R) -> bool,
    ) -> Option<u32> {
        let mut number = self.lanes[lane].find(hash, |number| {
            same(&self.records[number as usize].row).then_some(number)
        })?;
        for _ in 0..MEMBERS_SEEN_MAX {
            let record = &self.records[number as usize];
            if record.header.flags & LIVE != 0 && wanted(&record.row) {
                return Some(number);
            }
            number = self.links[number as usize].next[lane].checked_sub(1)?;
        }
        None
    }
}
