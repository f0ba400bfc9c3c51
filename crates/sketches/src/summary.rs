//! The heaviest keys of one instance in bounded memory: the Space-Saving summary (Metwally, Agrawal and El Abbadi 2005), with
//! weights.
//!
//! A key that has no place takes that of the lightest one and adds to its count. So a place's count only ever grows, whatever key is
//! there, and counts sum up to all that was added.

use asterism_memory::index::Index;
use asterism_memory::region::{Region, Slot};
use asterism_memory::zeroed;

use asterism_wire::Key;

/// In place of a place: there was none.
pub const NO_PLACE: u32 = u32::MAX;

/// What a summary says of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Counted<K> {
    /// What was added for the key, or more.
    pub count: u64,
    /// How much more, at most: what was counted for others before the key took their place.
    pub error: u64,
    /// The key.
    pub key: K,
}

zeroed! {
    struct Place<K: Key> {
        count: u64,
        error: u64,
        key: Slot<K>,
        /// Where the place is in the heap.
        in_heap: u32,
        /// It is in the list of those to tell.
        changed: bool,
    }
}

/// The heaviest keys.
#[derive(Debug)]
pub struct Summary<K: Key> {
    seed: u64,
    index: Index,
    places: Region<Place<K>>,
    /// Places in use, as a heap with the lightest one first.
    heap: Region<u32>,
    used: u32,
    /// No place before this one is free.
    free_from: u32,
    total: u64,
}

impl<K: Key> Summary<K> {
    /// A summary with so many places; `seed` is that of the keys' hashes.
    pub fn new(seed: u64, places: u32) -> Self {
        Self {
            seed,
            index: Index::new(places as usize),
            places: Region::new(places as usize),
            heap: Region::new(places as usize),
            used: 0,
            free_from: 0,
            total: 0,
        }
    }

    /// Takes a place of the summary that this one goes on with; false if something is there. Of a key that has two, which was moved
    /// while its writer ended, the heavier one counts.
    pub fn put(&mut self, place: u32, held: Counted<K>) -> bool {
        let Counted { count, error, key } = held;
        let free = self.places.get(place as usize);
        if free.is_none_or(|free| free.key.get().is_some()) {
            return false;
        }
        self.total = self.total.saturating_add(count);
        let of = &mut self.places[place as usize];
        (of.count, of.error, of.key) = (count, error, Slot::of(key));
        self.add_to_heap(place);
        let hash = key.hash(self.seed);
        match self.find(&key, hash) {
            Some(other) if self.count(other) >= count => return true,
            Some(other) => self.index.remove(hash, other),
            None => {}
        }
        self.add_to_index(hash, place);
        true
    }

    /// Places in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// All that was added.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What a key without a place can have at most.
    #[cfg(test)]
    pub fn least(&self) -> u64 {
        if (self.used as usize) < self.places.len() {
            return 0;
        }
        self.heap.first().map_or(0, |&place| self.count(place))
    }

    /// What is counted at a place, if it is in use.
    pub fn get(&self, place: u32) -> Option<Counted<K>> {
        let Place {
            count, error, key, ..
        } = self.places.get(place as usize)?;
        key.get().map(|&key| Counted {
            count: *count,
            error: *error,
            key,
        })
    }

    /// A key's place.
    #[inline(always)]
    pub fn find(&self, key: &K, hash: u64) -> Option<u32> {
        self.index.find(hash, |place| {
            self.places[place as usize].key.is(key).then_some(place)
        })
    }

    #[inline(always)]
    /// The count at a place in use.
    pub fn count(&self, place: u32) -> u64 {
        self.places[place as usize].count
    }

    /// The index of places by their keys.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Asks for the cache line of a place.
    pub fn prefetch(&self, place: u32) {
        self.places.prefetch(place as usize);
    }

    /// Bytes of memory in use.
    pub fn bytes_in_use(&self) -> usize {
        self.index.bytes_in_use() + self.used as usize * (size_of::<Place<K>>() + size_of::<u32>())
    }

    /// Adds for a key, of which `error` may be others'. Tells the place that changed if it was not marked as such, and marks it; and
    /// [`NO_PLACE`] if the summary has no places at all. Counts stop at 2⁶⁴ - 1.
    #[inline]
    pub fn add(&mut self, key: &K, weight: u64, error: u64) -> Option<u32> {
        let hash = key.hash(self.seed);
        let place = match self.find(key, hash) {
            Some(place) => place,
            None => match self.take(*key, hash) {
                Some(place) => place,
                None => return Some(NO_PLACE),
            },
        };
        self.total = self.total.saturating_add(weight);
        let held = &mut self.places[place as usize];
        held.count = held.count.saturating_add(weight);
        held.error = held.error.saturating_add(error);
        let was_changed = core::mem::replace(&mut held.changed, true);
        let in_heap = held.in_heap;
        self.sink(in_heap);
        (!was_changed).then_some(place)
    }

    /// Marks a place as changed; whether it was not.
    pub fn mark(&mut self, place: u32) -> bool {
        !core::mem::replace(&mut self.places[place as usize].changed, true)
    }

    /// From here on a change of the place is reported by [`Summary::add`] again.
    pub fn unmark(&mut self, place: u32) {
        self.places[place as usize].changed = false;
    }

    /// A place for a key that has none: a free one, or that of the lightest.
    #[cold]
    #[inline(never)]
    fn take(&mut self, key: K, hash: u64) -> Option<u32> {
        let is_full = self.used as usize >= self.places.len();
        let place = if is_full {
            let place = *self.heap.first()?;
            if let Some(&old) = self.places[place as usize].key.get() {
                let old_hash = old.hash(self.seed);
                if self.find(&old, old_hash) == Some(place) {
                    self.index.remove(old_hash, place);
                }
            }
            place
        } else {
            while self.places[self.free_from as usize].key.get().is_some() {
                self.free_from += 1;
            }
            self.free_from
        };
        let held = &mut self.places[place as usize];
        (held.key, held.error) = (Slot::of(key), held.count);
        if !is_full {
            self.add_to_heap(place);
        }
        self.add_to_index(hash, place);
        Some(place)
    }

    /// Adds a place to the heap that was free until now.
    fn add_to_heap(&mut self, place: u32) {
        let at = self.used;
        self.used += 1;
        self.heap[at as usize] = place;
        self.places[place as usize].in_heap = at;
        self.rise(at);
    }

    fn add_to_index(&mut self, hash: u64, place: u32) {
        let (places, seed) = (&self.places, self.seed);
        self.index.insert(hash, place, |place| {
            let key = places[place as usize].key.get();
            key.map_or(0, |key| key.hash(seed))
        });
    }

    /// Moves what became heavier down the heap.
    #[inline]
    fn sink(&mut self, mut at: u32) {
        loop {
            let left = 2 * at + 1;
            if left >= self.used {
                return;
            }
            let right = (left + 1).min(self.used - 1);
            let lighter = if self.at(right) < self.at(left) {
                right
            } else {
                left
            };
            if self.at(lighter) >= self.at(at) {
                return;
            }
            self.swap(at, lighter);
            at = lighter;
        }
    }

    /// Moves what is new up the heap.
    fn rise(&mut self, mut at: u32) {
        while at > 0 && self.at(at) < self.at((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    #[inline(always)]
    fn at(&self, in_heap: u32) -> u64 {
        self.count(self.heap[in_heap as usize])
    }

    fn swap(&mut self, left: u32, right: u32) {
        self.heap.swap(left as usize, right as usize);
        for at in [left, right] {
            let place = self.heap[at as usize];
            self.places[place as usize].in_heap = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against exact sums, and against the structure's own rules.
        #[test]
        fn counts_are_off_by_no_more_than_a_place_s_share(
            places in 1u32..12, added in prop::collection::vec((0u32..40, 1u64..100), 1..300),
        ) {
            let mut summary = Summary::<u32>::new(5, places);
            let mut truth = BTreeMap::<u32, u64>::new();
            let mut before = vec![0; places as usize];
            for &(key, weight) in &added {
                let _ = summary.add(&key, weight, 0);
                *truth.entry(key).or_default() += weight;
                for place in 0..summary.used() {
                    let count = summary.count(place);
                    prop_assert!(count >= before[place as usize], "a place's count grows");
                    before[place as usize] = count;
                    prop_assert_eq!(summary.heap[summary.places[place as usize].in_heap as usize], place);
                }
            }
            let total: u64 = truth.values().sum();
            prop_assert_eq!(summary.total(), total);
            prop_assert_eq!((0..summary.used()).map(|place| summary.count(place)).sum::<u64>(), total);
            prop_assert!(summary.least() * u64::from(places) <= total);
            let lightest = (0..summary.used()).map(|place| summary.count(place)).min();
            if summary.used() == places {
                prop_assert_eq!(Some(summary.least()), lightest);
            }
            for (key, &truth) in &truth {
                let place = summary.find(key, key.hash(5));
                let held = place.and_then(|place| summary.get(place));
                match held {
                    Some(held) => {
                        prop_assert_eq!(held.key, *key);
                        prop_assert!(held.count >= truth && held.count - held.error <= truth);
                        prop_assert!(held.error <= summary.least());
                    }
                    None => prop_assert!(truth <= summary.least()),
                }
            }
        }
    }

    #[test]
    fn marks_tell_a_change_once_and_counts_stop() {
        let mut summary = Summary::<u32>::new(5, 1);
        assert_eq!(summary.add(&1, u64::MAX - 1, 0), Some(0));
        assert_eq!(summary.add(&2, 5, 0), None);
        summary.unmark(0);
        assert_eq!(summary.add(&2, 5, 0), Some(0));
        assert_eq!(summary.get(0).map(|held| held.count), Some(u64::MAX));
        let mut none = Summary::<u32>::new(5, 0);
        assert_eq!(none.add(&1, 1, 0), Some(NO_PLACE));
    }
}
