//! A hash index from keys to record numbers: one cache line a probe, grows without a pause.
//!
//! Linear hashing over buckets of one cache line each. An insertion splits at most one bucket, so no
//! packet ever pays for a whole rehash, and nothing is allocated: the buckets are a [`Region`] reserved
//! for the table's full capacity. The index holds no keys; the caller compares records. What a split must
//! know of a hash stands in its slot (`Packing`), so that it reads two buckets and no records.

use crate::region::{Region, Zeroed};

const SLOTS: usize = 12;
/// Mean entries a bucket at which the index grows by a bucket. While a level is being split, buckets
/// not yet split hold up to twice this.
const MEAN_ENTRIES: usize = 5;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// The top byte of each hash, never 0; 0 marks a free slot.
    tags: [u8; SLOTS],
    /// The overflow bucket that continues this one, plus one; 0 is none.
    next: u32,
    slots: [u32; SLOTS],
}

/// How a slot holds a record's number, and above it those bits of its hash by which the larger levels are split: as many
/// as the number leaves room for. An index for 16,000,000 records keeps eight: up to a 256th of that, splits read the
/// records.
#[derive(Clone, Copy, Debug)]
struct Packing {
    number_bits: u32,
    /// The bits of a slot that are the number.
    number_mask: u32,
    /// The lowest bit of the hash that is kept.
    first_bit: u32,
}

impl Packing {
    fn new(capacity: usize, buckets: usize) -> Self {
        let number_bits = (usize::BITS - capacity.leading_zeros()).clamp(1, u32::BITS - 1);
        Self {
            number_bits,
            number_mask: (1 << number_bits) - 1,
            first_bit: buckets
                .trailing_zeros()
                .saturating_sub(u32::BITS - number_bits),
        }
    }

    #[inline(always)]
    fn pack(self, hash: u64, record: u32) -> u32 {
        debug_assert!(record >> self.number_bits == 0);
        record | ((hash >> self.first_bit) as u32) << self.number_bits
    }

    #[inline(always)]
    fn number(self, slot: u32) -> u32 {
        slot & self.number_mask
    }

    /// The hash's bit `bit`, if it is kept.
    fn bit(self, slot: u32, bit: u32) -> Option<bool> {
        let at = (bit + self.number_bits).checked_sub(self.first_bit)?;
        (at >= self.number_bits && at < u32::BITS).then(|| slot >> at & 1 != 0)
    }
}

// SAFETY: a bucket of zeroes is an empty bucket.
unsafe impl Zeroed for Bucket {}

/// The index. Costs one cache miss a probe once it outgrows the cache, about 13 bytes an entry.
#[derive(Debug)]
pub struct Index {
    buckets: Region<Bucket>,
    packing: Packing,
    overflow: Region<Bucket>,
    /// Overflow buckets handed out so far, and the chain of those given back (plus one; 0 is none).
    overflow_used: u32,
    overflow_free: u32,
    /// Buckets of the level being split, minus one.
    mask: usize,
    /// Buckets of that level which are split already.
    split: usize,
    count: usize,
}

/// The bits of a hash from which its tag is made.
pub const TAG_BITS: u64 = 0x7f << 57;

#[inline(always)]
fn tag_of(hash: u64) -> u8 {
    // Seven bits; the eighth tells a tag from 0, which means free.
    (hash >> 57) as u8 | 0x80
}

impl Bucket {
    const EMPTY: Self = Self {
        tags: [0; SLOTS],
        next: 0,
        slots: [0; SLOTS],
    };

    /// A bit for each slot whose tag is `tag`.
    #[inline(always)]
    fn matching(&self, tag: u8) -> u32 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 is part of x86_64; the load covers the bucket's first 16 bytes (`tags` and
        // `next`, laid out by repr(C) with a 64-byte alignment), and the mask drops the last four.
        unsafe {
            use core::arch::x86_64::{
                _mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi32,
            };
            let tags = _mm_load_si128(core::ptr::from_ref(self).cast());
            // SSE2 spreads words, not bytes.
            let wanted = _mm_set1_epi32((u32::from(tag) * 0x0101_0101) as i32);
            _mm_movemask_epi8(_mm_cmpeq_epi8(tags, wanted)) as u32 & ((1 << SLOTS) - 1)
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.tags.iter().enumerate().fold(0, |bits, (slot, &held)| {
            bits | u32::from(held == tag) << slot
        })
    }
}

impl Bucket {
    /// Tags and slots that are taken, by the bits of one comparison: whether a slot is taken is not to be guessed.
    #[inline]
    fn held(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        let mut taken = !self.matching(0) & ((1 << SLOTS) - 1);
        core::iter::from_fn(move || {
            let slot = (taken != 0).then(|| self.first(taken))?;
            let tag = self.tags[(taken.trailing_zeros() as usize).min(SLOTS - 1)];
            taken &= taken - 1;
            Some((tag, slot))
        })
    }

    /// Makes two buckets without continuation of what stays and of what `moves`. Which of them an entry goes to is not to be
    /// guessed either. Written where they stay: a copy made of small parts waits for all of them.
    #[inline]
    fn divide(&self, mut halves: [&mut Self; 2], moves: impl Fn(u32) -> bool) {
        for half in &mut halves {
            **half = Self::EMPTY;
        }
        let mut used = [0; 2];
        for (tag, slot) in self.held() {
            let half = usize::from(moves(slot));
            let at = used[half].min(SLOTS - 1);
            halves[half].tags[at] = tag;
            halves[half].slots[at] = slot;
            used[half] += 1;
        }
    }

    /// What `seek` finds in the slots under a hash with this tag.
    #[inline(always)]
    fn find<T>(&self, tag: u8, seek: impl Fn(u32) -> Option<T>) -> Option<T> {
        let mut matching = self.matching(tag);
        if matching == 0 {
            return None;
        }
        // Nearly always the first one is it.
        if let Some(found) = seek(self.first(matching)) {
            return Some(found);
        }
        loop {
            matching &= matching - 1;
            if matching == 0 {
                return None;
            }
            if let Some(found) = seek(self.first(matching)) {
                return Some(found);
            }
        }
    }

    /// The lowest of the slots that [`Bucket::matching`] gave; not of none.
    #[inline(always)]
    fn first(&self, matching: u32) -> u32 {
        debug_assert!(matching != 0 && matching >> SLOTS == 0);
        // SAFETY: a set bit below bit `SLOTS`, which is all that `matching` gives, is the number of a slot.
        unsafe { *self.slots.get_unchecked(matching.trailing_zeros() as usize) }
    }
}

impl Index {
    /// An index for at most `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        let buckets = (capacity / MEAN_ENTRIES + 2).next_power_of_two();
        Self {
            buckets: Region::new(buckets),
            packing: Packing::new(capacity, buckets),
            // Every overflow bucket in use holds an entry, so this can never run out.
            overflow: Region::new(capacity + 2),
            overflow_used: 0,
            overflow_free: 0,
            mask: 0,
            split: 0,
            count: 0,
        }
    }

    /// Bytes that a probe may touch, to judge whether the index outgrew the cache.
    pub fn bytes_in_use(&self) -> usize {
        (self.mask + 1 + self.split) * size_of::<Bucket>()
    }

    /// Says how far memory is used once `entries` more are in.
    pub fn reach(&self, entries: usize) {
        let more = entries / MEAN_ENTRIES + 1;
        self.buckets.reach(self.mask + 1 + self.split + more);
        self.overflow.reach(self.overflow_used as usize + more);
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> usize {
        let low = hash as usize & self.mask;
        if low < self.split {
            hash as usize & (self.mask * 2 + 1)
        } else {
            low
        }
    }

    /// The bucket that a probe for `hash` reads first.
    #[inline(always)]
    fn home(&self, hash: u64) -> &Bucket {
        let place = self.place(hash);
        debug_assert!(place < self.buckets.len());
        // SAFETY: `place` is at most `mask + split`, of a level not yet split whole or of the one above it as
        // far as it is: `split_one` raises both only as far as there are buckets (`insert` checks).
        unsafe { self.buckets.get_unchecked(place) }
    }

    /// Asks for the cache line that a probe for `hash` reads first: which bucket that is.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) -> u32 {
        let place = self.place(hash);
        self.buckets.prefetch(place);
        place as u32
    }

    /// The first record in a bucket that fits the tag of `hash`, for prefetching it. May be wrong.
    #[inline(always)]
    pub fn likely(&self, bucket: u32, hash: u64) -> Option<u32> {
        let bucket = self.buckets.get(bucket as usize)?;
        let matching = bucket.matching(tag_of(hash));
        (matching != 0).then(|| self.packing.number(bucket.first(matching)))
    }

    /// What `seek` finds in one of the records that may be those under `hash`.
    #[inline(always)]
    pub fn find<T>(&self, hash: u64, seek: impl Fn(u32) -> Option<T>) -> Option<T> {
        let tag = tag_of(hash);
        let mut bucket = self.home(hash);
        // One entry in a hundred has the same tag by chance, and its record lies where the cache has nothing: what else the slot
        // keeps of the hash tells most of them apart.
        let kept = self.packing.pack(hash, 0);
        let seek = |slot: u32| {
            let is_like = (slot ^ kept) & !self.packing.number_mask == 0;
            is_like.then(|| seek(self.packing.number(slot))).flatten()
        };
        loop {
            if let Some(found) = bucket.find(tag, seek) {
                return Some(found);
            }
            if bucket.next == 0 {
                return None;
            }
            bucket = &self.overflow[bucket.next as usize - 1];
        }
    }

    /// [`Index::find`] in the first bucket alone: what it does not find may be in the others.
    #[inline(always)]
    pub fn find_nearby<T>(&self, hash: u64, seek: impl Fn(u32) -> Option<T>) -> Option<T> {
        let seek = |slot: u32| seek(self.packing.number(slot));
        self.home(hash).find(tag_of(hash), seek)
    }

    /// Adds `record` under `hash`. `hash_of` tells the hash of any record in the index; it is called for
    /// the entries of one bucket when the index grows.
    pub fn insert(&mut self, hash: u64, record: u32, hash_of: impl Fn(u32) -> u64) {
        self.insert_ahead(hash, record, hash_of, |_| ());
    }

    /// As [`Index::insert`], for records that the cache does not hold: `prefetch` asks for a record's cache
    /// line, and is called for some entries of the bucket that is split next.
    pub fn insert_ahead(
        &mut self,
        hash: u64,
        record: u32,
        hash_of: impl Fn(u32) -> u64,
        prefetch: impl Fn(u32),
    ) {
        if self.count >= (self.mask + 1 + self.split) * MEAN_ENTRIES
            && self.mask + 1 + self.split < self.buckets.len()
        {
            self.split_one(hash_of);
            self.buckets.prefetch(self.split + self.mask + 1);
            self.buckets.prefetch(self.split + 1);
        }
        self.foresee_split(prefetch);
        let home = self.place(hash);
        self.put(home, tag_of(hash), self.packing.pack(hash, record));
        self.count += 1;
    }

    /// Replaces record `old`, which is under `hash`, by `new`.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) {
        if let Some((bucket, slot)) = self.locate(hash, old) {
            self.bucket_mut(bucket).slots[slot] = self.packing.pack(hash, new);
        }
    }

    /// Removes `record`, which is under `hash`.
    pub fn remove(&mut self, hash: u64, record: u32) {
        let Some((bucket, slot)) = self.locate(hash, record) else {
            debug_assert!(
                false,
                "a record is removed from an index that does not hold it"
            );
            return;
        };
        self.bucket_mut(bucket).tags[slot] = 0;
        self.count -= 1;
        self.trim(self.place(hash));
    }

    /// How many entries there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count
    }

    fn bucket_mut(&mut self, at: Place) -> &mut Bucket {
        match at {
            Place::Home(home) => &mut self.buckets[home],
            Place::Overflow(overflow) => &mut self.overflow[overflow],
        }
    }

    fn locate(&self, hash: u64, record: u32) -> Option<(Place, usize)> {
        let mut at = Place::Home(self.place(hash));
        loop {
            let bucket = match at {
                Place::Home(home) => &self.buckets[home],
                Place::Overflow(overflow) => &self.overflow[overflow],
            };
            let holds = |slot: &usize| {
                bucket.tags[*slot] != 0 && self.packing.number(bucket.slots[*slot]) == record
            };
            if let Some(slot) = (0..SLOTS).find(holds) {
                return Some((at, slot));
            }
            if bucket.next == 0 {
                return None;
            }
            at = Place::Overflow(bucket.next as usize - 1);
        }
    }

    /// Puts an entry into the first free slot of the chain that starts at bucket `home`.
    fn put(&mut self, home: usize, tag: u8, slot: u32) {
        let mut at = Place::Home(home);
        loop {
            let bucket = self.bucket_mut(at);
            let free = bucket.matching(0);
            if free != 0 {
                let at = (free.trailing_zeros() as usize).min(SLOTS - 1);
                bucket.tags[at] = tag;
                bucket.slots[at] = slot;
                return;
            }
            if bucket.next == 0 {
                let fresh = self.take_overflow();
                self.bucket_mut(at).next = fresh + 1;
                at = Place::Overflow(fresh as usize);
            } else {
                at = Place::Overflow(bucket.next as usize - 1);
            }
        }
    }

    fn take_overflow(&mut self) -> u32 {
        if self.overflow_free != 0 {
            let taken = self.overflow_free - 1;
            self.overflow_free = self.overflow[taken as usize].next;
            self.overflow[taken as usize].next = 0;
            return taken;
        }
        self.overflow_used += 1;
        self.overflow_used - 1
    }

    fn give_overflow(&mut self, bucket: u32) {
        self.overflow[bucket as usize] = Bucket {
            next: self.overflow_free,
            ..Bucket::EMPTY
        };
        self.overflow_free = bucket + 1;
    }

    /// Gives back the overflow buckets of a chain that became empty.
    fn trim(&mut self, home: usize) {
        let mut before = Place::Home(home);
        loop {
            let next = self.bucket_mut(before).next;
            if next == 0 {
                return;
            }
            let here = self.overflow[next as usize - 1];
            if here.tags == [0; SLOTS] {
                self.bucket_mut(before).next = here.next;
                self.give_overflow(next - 1);
            } else {
                before = Place::Overflow(next as usize - 1);
            }
        }
    }

    /// The bit of the hash by which the level is split.
    fn level_bit(&self) -> u32 {
        (self.mask + 1).trailing_zeros()
    }

    /// Asks for a part of the records that the next split reads, if it does: for some at each of the [`MEAN_ENTRIES`]
    /// insertions before it, since a processor waits when it is asked for more lines at once than it has places for.
    #[inline]
    fn foresee_split(&self, prefetch: impl Fn(u32)) {
        const PART: usize = SLOTS.div_ceil(MEAN_ENTRIES - 1);
        if self.level_bit() >= self.packing.first_bit {
            return;
        }
        let to_split = (self.mask + 1 + self.split) * MEAN_ENTRIES;
        if self.count + MEAN_ENTRIES < to_split {
            return;
        }
        // The bucket itself was asked for at the split before.
        let bucket = &self.buckets[self.split];
        let part = self.count % MEAN_ENTRIES * PART;
        for slot in part..SLOTS.min(part + PART) {
            if bucket.tags[slot] != 0 {
                prefetch(self.packing.number(bucket.slots[slot]));
            }
        }
    }

    /// Splits the next bucket of the level: its entries divide between it and a new one.
    fn split_one(&mut self, hash_of: impl Fn(u32) -> u64) {
        let old = self.split;
        let new = old + self.mask + 1;
        let wide = self.mask * 2 + 1;
        let bit = self.level_bit();
        let mut chain = self.buckets[old];
        self.split += 1;
        if self.split > self.mask {
            self.mask = wide;
            self.split = 0;
        }
        let packing = self.packing;
        let moves = |slot: u32| {
            let of_record = || hash_of(packing.number(slot)) >> bit & 1 != 0;
            packing.bit(slot, bit).unwrap_or_else(of_record)
        };
        let (level, above) = self.buckets.split_at_mut(new);
        chain.divide([&mut level[old], &mut above[0]], moves);
        // Most have no more.
        while chain.next != 0 {
            let given = chain.next - 1;
            chain = self.overflow[given as usize];
            for (tag, slot) in chain.held() {
                self.put(if moves(slot) { new } else { old }, tag, slot);
            }
            self.give_overflow(given);
        }
    }
}

#[derive(Clone, Copy)]
enum Place {
    Home(usize),
    Overflow(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn find(index: &Index, hash: u64, key: u32) -> Option<u32> {
        index.find(hash, |record| (record == key).then_some(record))
    }

    fn hash(key: u32) -> u64 {
        // Poor on purpose: long chains and shared tags.
        u64::from(key % 61).wrapping_mul(0x0101_0101_0101_0101)
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(operations in prop::collection::vec((0u32..400, any::<bool>()), 1..2000), good: bool) {
            let hash = |key: u32| if good { crate::hash::word(key.into(), 7) } else { hash(key) };
            let mut index = Index::new(400);
            let mut model = BTreeMap::new();
            for (key, insert) in operations {
                let held = find(&index, hash(key), key);
                prop_assert_eq!(held, model.get(&key).copied());
                if insert && held.is_none() {
                    index.insert(hash(key), key, hash);
                    model.insert(key, key);
                } else if !insert && held.is_some() {
                    index.remove(hash(key), key);
                    model.remove(&key);
                }
                prop_assert_eq!(index.count(), model.len());
            }
            for key in 0..400 {
                prop_assert_eq!(find(&index, hash(key), key), model.get(&key).copied());
            }
        }
    }

    #[test]
    fn fills_to_capacity_and_replaces() {
        let capacity = 50_000;
        let hash = |key: u32| crate::hash::word(key.into(), 3);
        let mut index = Index::new(capacity);
        for key in 0..capacity as u32 - 1 {
            index.insert(hash(key), key, hash);
        }
        for key in 0..capacity as u32 - 1 {
            assert_eq!(find(&index, hash(key), key), Some(key));
        }
        index.replace(hash(5), 5, capacity as u32 - 1);
        assert_eq!(
            find(&index, hash(5), capacity as u32 - 1),
            Some(capacity as u32 - 1)
        );
        assert!(
            index.bytes_in_use() < capacity * 20,
            "{} bytes an entry",
            index.bytes_in_use() / capacity
        );
    }

    #[test]
    fn of_entries_with_one_tag_few_records_are_looked_at() {
        let hash = |key: u32| crate::hash::word(key.into(), 3);
        let mut index = Index::new(400_000);
        for key in 0..10_000 {
            index.insert(hash(key), key, hash);
        }
        let looked = core::cell::Cell::new(0);
        let mut tags = 0;
        for absent in 10_000..110_000 {
            let bucket = index.home(hash(absent));
            tags += bucket.matching(tag_of(hash(absent))).count_ones();
            let found = index.find(hash(absent), |_| {
                looked.set(looked.get() + 1);
                None::<()>
            });
            assert_eq!(found, None);
        }
        assert!(tags > 1_000, "{tags} tags fit by chance");
        assert!(looked.get() * 8 < tags, "{} of {tags}", looked.get());
    }

    #[test]
    fn what_a_slot_keeps_of_a_hash_is_right() {
        for capacity in [
            0,
            1,
            2,
            3,
            400,
            65_536,
            1 << 20,
            (1 << 24) + 5,
            (1 << 31) - 1,
        ] {
            let buckets = (capacity / MEAN_ENTRIES + 2).next_power_of_two();
            let packing = Packing::new(capacity, buckets);
            let last = (capacity as u32).saturating_sub(1);
            for hash in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
                let slot = packing.pack(hash, last);
                assert_eq!(packing.number(slot), last);
                let mut kept = 0;
                for bit in 0..buckets.trailing_zeros() {
                    if let Some(set) = packing.bit(slot, bit) {
                        assert_eq!(set, hash >> bit & 1 != 0, "bit {bit} of {hash:x}");
                        kept += 1;
                    }
                }
                // Those of the last levels.
                let room = u32::BITS - packing.number_bits;
                assert_eq!(kept, room.min(buckets.trailing_zeros()));
            }
        }
    }

    #[test]
    fn a_table_that_keeps_few_bits_reads_records_at_its_first_levels_alone() {
        // Room for 2^26 numbers leaves five bits, for levels beyond these.
        let mut index = Index::new(1 << 26);
        let hash = |key: u32| crate::hash::word(key.into(), 5);
        let reads = core::cell::Cell::new(0);
        for key in 0..50_000 {
            index.insert(hash(key), key, |key| {
                reads.set(reads.get() + 1);
                hash(key)
            });
        }
        assert!(reads.get() > 50_000, "{} reads", reads.get());
        for key in 0..50_000 {
            assert_eq!(find(&index, hash(key), key), Some(key));
        }
    }

    #[test]
    fn an_insertion_moves_the_entries_of_one_bucket_at_most() {
        // So large that splits at these levels read records.
        let capacity = 1 << 26;
        let hash = |key: u32| crate::hash::word(key.into(), 3);
        let mut index = Index::new(capacity);
        let mut most = 0;
        for key in 0..200_000 {
            let moved = core::cell::Cell::new(0);
            index.insert(hash(key), key, |key| {
                moved.set(moved.get() + 1);
                hash(key)
            });
            most = most.max(moved.get());
        }
        // Up to twice the mean before a split, and chance.
        assert!(most > 0 && most <= 8 * MEAN_ENTRIES, "{most} entries moved");
    }
}
