//! A set of keys in little memory, from which they can be taken.

use std::rc::Rc;

use asterism_sketches::Grid;

use super::in_store::FILTER_STAYS;
use super::sketch::Sketch;
use super::writer_counters::Totals;
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, Late};
use crate::map::Key;
use crate::mutant::{self, Mutant};
use crate::object::{
    Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since, Snapshot,
    Sweep, Writable,
};
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, Reader};

/// A set of keys that may find one that is not in it, but none too few (a counting Bloom filter, Fan et al. 2000). Each key is in
/// it as often as it was added and not removed, by whichever instance. Removing what was never added takes other keys away.
#[derive(Debug)]
pub struct CountingBloom<K: Key>(Sketch<K>);

impl<K: Key> CountingBloom<K> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        (keys, mistaken): (u32, f64),
    ) -> Self {
        let grid = (Grid::for_keys(keys, mistaken), Totals::Fall);
        Self(Sketch::new(context, object, settings, grid))
    }

    /// Whether the key is in the set, as far as it is known here; for a share of the keys that are not, too. Where a removal is
    /// known here and the adding of another instance is not yet, a key is not.
    #[inline(always)]
    pub fn contains(&self, key: &K) -> Result<bool, Late> {
        Ok(self.0.sums(key)?.all(|sum| sum as i64 > 0))
    }
}

/// The writes of a [`CountingBloom`].
#[derive(Debug)]
pub struct CountingBloomAct<'a, K: Key>(&'a mut CountingBloom<K>);

impl<K: Key> CountingBloomAct<'_, K> {
    /// Adds a key once more.
    #[inline(always)]
    pub fn add(&mut self, key: &K) {
        self.0.0.add(key, 1);
    }

    /// Takes a key away once, which was added before.
    #[inline(always)]
    pub fn remove(&mut self, key: &K) {
        let mut times = 1u64;
        if mutant::active(Mutant::RemovedForAll)
            && let Ok(sums) = self.0.0.sums(key)
        {
            times = sums.min().unwrap_or(1).max(1);
        }
        self.0.0.add(key, times.wrapping_neg());
    }
}

impl<K: Key> Writable for CountingBloom<K> {
    type Act<'a> = CountingBloomAct<'a, K>;

    fn act(&mut self) -> CountingBloomAct<'_, K> {
        CountingBloomAct(self)
    }
}

impl<K: Key> Replicate for CountingBloom<K> {
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        self.0.apply(input, stamp)
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        self.0.flush(bytes)
    }
    fn joined(&mut self) {
        self.0.joined();
    }
}

impl<K: Key> Sweep for CountingBloom<K> {
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32> {
        self.0.origins_named(cursor, records, named)
    }
}

impl<K: Key> Audit for CountingBloom<K> {
    fn tells_own(&self) -> bool {
        true
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        self.0.leaves(first, out)
    }
    fn announced(&self) -> u64 {
        self.0.announced()
    }
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        self.0.tell_again(leaves, cursor, records)
    }
    fn digest(&self) -> u64 {
        self.0.digest()
    }
}

impl<K: Key> Snapshot for CountingBloom<K> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        self.0.snapshot(cursor, part)
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        self.0.apply_snapshot(input)
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        self.0.restore(input)
    }
}

impl<K: Key> Inspect for CountingBloom<K> {
    fn entries(&self) -> usize {
        self.0.len() as usize
    }
}

impl<K: Key> Fetch for CountingBloom<K> {
    fn stays_because(&self) -> Option<&'static str> {
        Some(FILTER_STAYS)
    }
}

impl<K: Key> Operations for CountingBloom<K> {
    fn begin_recording(&mut self) {
        self.0.begin_recording();
    }
    fn end_recording(&mut self) {
        self.0.end_recording();
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        self.0.commit(input)
    }
}

impl<K: Key> PerPacket for CountingBloom<K> {}
