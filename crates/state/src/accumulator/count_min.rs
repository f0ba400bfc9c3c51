//! Sums by key in little memory, never too small.

use std::rc::Rc;

use asterism_sketches::Grid;

use super::sketch::{ALL, Sketch};
use super::writer_counters::Totals;
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, Late, Query};
use crate::map::Key;
use crate::object::{
    Addition, Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since,
    Snapshot, SumsShown, Sweep, Writable,
};
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, Reader};

/// A sum for each of any number of keys, in memory that does not grow with them (a count-min sketch, Cormode and Muthukrishnan
/// 2005): never less than what was added for the key, and more by `error` × all that was added with a probability of at most
/// `doubt`. Costs as many cache lines as it has rows, ln(1/doubt).
#[derive(Debug)]
pub struct CountMin<K: Key> {
    sketch: Sketch<K>,
    error: f64,
}

impl<K: Key> CountMin<K> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        (error, doubt): (f64, f64),
    ) -> Self {
        let grid = (Grid::for_sums(error, doubt), Totals::Grow);
        Self {
            sketch: Sketch::new(context, object, settings, grid),
            error,
        }
    }

    /// What was added for a key over all instances, as far as it is known here, or more.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Result<u64, Late> {
        self.sketch.least(key)
    }

    /// [`CountMin::get`] for the control plane: never late. `None` where the sums are in a store, which answers packets alone.
    pub fn known(&self, key: &K) -> Option<u64> {
        self.sketch.known(key)
    }

    /// All that was added, as far as it is known here; in a store as of some seconds ago. For people, not packets.
    pub fn total(&self) -> u64 {
        self.sketch.total()
    }

    /// What a sum is too large by, at most, but for the doubt: its share of all that was added. For people, not packets.
    pub fn excess(&self) -> f64 {
        self.error * self.sketch.total() as f64
    }
}

/// The writes of a [`CountMin`].
#[derive(Debug)]
pub struct CountMinAct<'a, K: Key>(&'a mut CountMin<K>);

impl<K: Key> CountMinAct<'_, K> {
    /// Adds for a key.
    #[inline(always)]
    pub fn add(&mut self, key: &K, amount: u64) {
        self.0.sketch.add(key, amount);
    }
}

impl<K: Key> Writable for CountMin<K> {
    type Act<'a> = CountMinAct<'a, K>;

    fn act(&mut self) -> CountMinAct<'_, K> {
        CountMinAct(self)
    }
}

impl<K: Key> Replicate for CountMin<K> {
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        self.sketch.apply(input, stamp)
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        self.sketch.flush(bytes)
    }
    fn joined(&mut self) {
        self.sketch.joined();
    }
}

impl<K: Key> Sweep for CountMin<K> {
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32> {
        self.sketch.origins_named(cursor, records, named)
    }
}

impl<K: Key> Audit for CountMin<K> {
    fn tells_own(&self) -> bool {
        true
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        self.sketch.leaves(first, out)
    }
    fn announced(&self) -> u64 {
        self.sketch.announced()
    }
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        self.sketch.tell_again(leaves, cursor, records)
    }
    fn digest(&self) -> u64 {
        self.sketch.digest()
    }
}

impl<K: Key> Snapshot for CountMin<K> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        self.sketch.snapshot(cursor, part)
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        self.sketch.apply_snapshot(input)
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        self.sketch.restore(input)
    }
}

impl<K: Key> Inspect for CountMin<K> {
    fn entries(&self) -> usize {
        self.sketch.len() as usize
    }
}

impl<K: Key> Fetch for CountMin<K> {
    fn stays_because(&self) -> Option<&'static str> {
        None
    }
    fn extract(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        self.sketch.extract(query, out);
    }
    fn install(&mut self, _: u8, answer: &[u8]) -> Result<(), BadBytes> {
        self.sketch.install(answer)
    }
    fn withdraw(&mut self) {
        self.sketch.withdraw();
    }
    fn has_sums(&self) -> bool {
        true
    }
    fn shows_sums(&self) -> SumsShown {
        SumsShown::One(ALL)
    }
    fn each_addition(
        &self,
        write: &[u8],
        each: &mut dyn FnMut(&Addition<'_>),
    ) -> Result<(), BadBytes> {
        self.sketch.each_addition(Reader::new(write, &[]), each)
    }
    fn note_sums(&mut self, answer: &[u8]) {
        self.sketch.note_total(answer);
    }
}

impl<K: Key> Operations for CountMin<K> {
    fn begin_recording(&mut self) {
        self.sketch.begin_recording();
    }
    fn end_recording(&mut self) {
        self.sketch.end_recording();
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        self.sketch.commit(input)
    }
}

impl<K: Key> PerPacket for CountMin<K> {}
