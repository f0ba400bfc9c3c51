//! A set of keys in little memory, which only grows.

use core::marker::PhantomData;
use std::rc::Rc;

use asterism_sketches::Grid;

use asterism_memory::region::Region;

use super::announced::Announced;
use super::in_store::FILTER_STAYS;
use super::late;
use super::writer_counters::{hash_place, read_place};
use crate::audit::{Leaf, LeafSet, Leaves};
use crate::context::{Context, Late, OPERATION_BYTES_MAX, late_answer};
use crate::map::Key;
use crate::object::{
    Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since, Snapshot,
    Sweep, Writable,
};
use crate::recording::{ADDS, Recordable};
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// A set of keys that may find one that is not in it, but none too few (Bloom 1970). Copies join by "or", so it needs neither
/// totals nor stamps: a bit for each place, about 1.44 log₂(1/mistaken) for each key.
#[derive(Debug)]
pub struct Bloom<K: Key> {
    context: Rc<Context>,
    object: u8,
    settings: ObjectSettings,
    grid: Grid,
    words: Recordable<u64>,
    /// Words whose bits this instance has set and not reported yet: a bit for each, and their numbers.
    is_changed: Region<u64>,
    changed: Vec<u32>,
    /// The bits of each word that anybody announced.
    announced: Option<Announced<u64>>,
    keys: PhantomData<K>,
}

impl<K: Key> Bloom<K> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        (keys, mistaken): (u32, f64),
    ) -> Self {
        let grid = Grid::for_keys(keys, mistaken);
        let words = grid.len().div_ceil(u64::BITS);
        Self {
            context,
            object,
            grid,
            words: Recordable::new(words as usize),
            is_changed: Region::new(words.div_ceil(u64::BITS) as usize),
            changed: Vec::with_capacity(words as usize),
            announced: Announced::new(&settings, words),
            keys: PhantomData,
            settings,
        }
    }

    /// Whether the key is in the set, as far as it is known here; for a share of the keys that are not, too.
    #[inline(always)]
    pub fn contains(&self, key: &K) -> Result<bool, Late> {
        let hash = key.hash(self.context.seed());
        if !self.context.answers_plainly() {
            self.ahead(hash)?;
        }
        let mut places = self.grid.places(hash);
        Ok(places.all(|place| {
            let (word, bit) = split(place);
            self.words[word as usize] & bit != 0
        }))
    }

    #[cold]
    fn ahead(&self, hash: u64) -> Result<(), Late> {
        if self.context.is_prefetching() {
            for place in self.grid.places(hash) {
                self.words.prefetch(split(place).0 as usize);
            }
            return Err(late_answer());
        }
        late(&self.context, self.object, hash, self.settings.late_us)
    }

    fn join(&mut self, word: u32, bits: u64) {
        self.words[word as usize] |= bits;
    }

    /// Somebody announced these bits of a word, perhaps this instance.
    fn announce(&mut self, word: u32, bits: u64) {
        let Some(announced) = &mut self.announced else {
            return;
        };
        let known = announced.own[word as usize];
        if known | bits != known {
            announced.own[word as usize] |= bits;
            announced.applied(
                hash_place(word, &()),
                digest(word, known),
                digest(word, known | bits),
            );
        }
    }

    /// What a snapshot says of a word: what is not announced follows in the log.
    fn reported(&self, word: u32) -> u64 {
        let bits = self.words[word as usize];
        let announced = self.announced.as_ref();
        announced.map_or(bits, |announced| announced.own[word as usize])
    }

    /// Bits that this instance sets. False while a call is recorded, of which no word is found.
    fn set(&mut self, word: u32, bits: u64) -> bool {
        let Some(known) = self.words.get_mut(word as usize) else {
            return false;
        };
        if *known & bits != bits {
            *known |= bits;
            self.mark(word);
        }
        true
    }

    /// Sets all bits of a key.
    #[inline(always)]
    fn add_under(&mut self, hash: u64) {
        for place in self.grid.places(hash) {
            let (word, bit) = split(place);
            if !self.set(word, bit) {
                return self.record(hash);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&self, hash: u64) {
        self.context
            .record_addition(self.object, ADDS, |out| out.u64(hash));
    }

    /// The word is to be reported.
    fn mark(&mut self, word: u32) {
        let (of, flag) = split(word);
        if self.settings.is_replicated() && self.is_changed[of as usize] & flag == 0 {
            self.is_changed[of as usize] |= flag;
            self.changed.push(word);
        }
    }

    fn read(&self, input: &mut Reader<'_>) -> Result<(u32, u64), BadBytes> {
        Ok((read_place(input, self.words.len() as u32)?, input.u64()?))
    }

    fn write(word: u32, bits: u64, out: &mut Writer<'_>) {
        out.varint(word.into());
        out.u64(bits);
    }
}

/// A word's part of a digest; nothing while no bit is set.
fn digest(word: u32, bits: u64) -> u64 {
    if bits == 0 {
        return 0;
    }
    asterism_memory::hash::words(word.into(), bits, 0)
}

/// The word that a bit is in, and the bit.
#[inline(always)]
fn split(place: u32) -> (u32, u64) {
    (place / u64::BITS, 1 << (place % u64::BITS))
}

/// The writes of a [`Bloom`].
#[derive(Debug)]
pub struct BloomAct<'a, K: Key>(&'a mut Bloom<K>);

impl<K: Key> BloomAct<'_, K> {
    /// Adds a key.
    #[inline(always)]
    pub fn add(&mut self, key: &K) {
        self.0.add_under(key.hash(self.0.context.seed()));
    }
}

impl<K: Key> Writable for Bloom<K> {
    type Act<'a> = BloomAct<'a, K>;

    fn act(&mut self) -> BloomAct<'_, K> {
        BloomAct(self)
    }
}

impl<K: Key> Replicate for Bloom<K> {
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, _: Stamp) -> Result<(), BadBytes> {
        let (word, bits) = self.read(input)?;
        self.join(word, bits);
        self.announce(word, bits);
        Ok(())
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        if self.context.accumulators_held() {
            return true;
        }
        while let Some(&word) = self.changed.last() {
            if *bytes < OPERATION_BYTES_MAX {
                return false;
            }
            self.changed.pop();
            let (of, flag) = split(word);
            self.is_changed[of as usize] &= !flag;
            self.context
                .stamp(true, crate::context::OPERATION_BYTES_MAX);
            // What others added is in it as well, which they announced before.
            let bits = self.words[word as usize];
            let length = self.context.log(|out| {
                out.tag(self.object, 0);
                Self::write(word, bits, out);
            });
            *bytes = bytes.saturating_sub(length);
            self.announce(word, bits);
        }
        true
    }
}

impl<K: Key> Sweep for Bloom<K> {
    fn origins_named(&self, _: u32, _: u32, _: &mut NamedOrigins) -> Option<u32> {
        // Bits do not say who set them.
        None
    }
}

impl<K: Key> Audit for Bloom<K> {
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        let leaves = self.announced.as_ref().map(|announced| &announced.leaves);
        Leaves::read(leaves, first, out)
    }
    fn announced(&self) -> u64 {
        (0..self.words.len() as u32).fold(0, |sum, word| {
            sum.wrapping_add(digest(word, self.reported(word)))
        })
    }
    /// All bits of a word go, of anyone who they are: what others lack of them they add.
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        let words = self.words.len() as u32;
        let end = cursor.saturating_add(records).min(words);
        let mut reported = 0;
        for word in cursor..end {
            if self.reported(word) != 0 && leaves.contains(Leaves::of(hash_place(word, &()))) {
                self.mark(word);
                reported += 1;
            }
        }
        ((end < words).then_some(end), reported)
    }
    fn digest(&self) -> u64 {
        let words = (0u32..).zip(self.words.iter());
        words.fold(0, |sum, (word, &bits)| sum.wrapping_add(digest(word, bits)))
    }
}

impl<K: Key> Snapshot for Bloom<K> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        if !self.settings.is_replicated() {
            return None;
        }
        let mark = self.grid.mark(self.context.seed());
        for word in cursor..self.words.len() as u32 {
            if !part.query() {
                return Some(word);
            }
            let bits = self.reported(word);
            if bits == 0 {
                continue;
            }
            if !part.has_room() {
                return Some(word);
            }
            let mut writer = Writer::new(part.out(), self.context.addresses());
            writer.tag(self.object, 0);
            writer.u16(mark);
            Self::write(word, bits, &mut writer);
        }
        None
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        if input.u16()? != self.grid.mark(self.context.seed()) {
            return Err(BadBytes);
        }
        let (word, bits) = self.read(input)?;
        self.join(word, bits);
        self.announce(word, bits);
        Ok(())
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        // Places mean nothing in another grid, as of a cluster with another key.
        let same = input.u16()? == self.grid.mark(self.context.seed());
        let (word, bits) = (input.varint()?, input.u64()?);
        if !same || word >= self.words.len() as u64 {
            return Ok(false);
        }
        self.set(word as u32, bits);
        Ok(true)
    }
}

impl<K: Key> Inspect for Bloom<K> {
    fn entries(&self) -> usize {
        self.grid.len() as usize
    }
}

impl<K: Key> Fetch for Bloom<K> {
    fn stays_because(&self) -> Option<&'static str> {
        Some(FILTER_STAYS)
    }
}

impl<K: Key> Operations for Bloom<K> {
    fn begin_recording(&mut self) {
        self.words.begin_recording();
    }
    fn end_recording(&mut self) {
        self.words.end_recording();
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let hash = input.u64()?;
        self.add_under(hash);
        Ok(())
    }
}

impl<K: Key> PerPacket for Bloom<K> {}
