//! The heaviest keys of all instances, made of the places that each has reported.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use crate::summary::Counted;
use asterism_wire::Key;

/// A place of one instance among its heaviest keys, as `TopK::for_each_place` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeavyPlace<K> {
    /// Whose place it is: a number that stands for an instance.
    pub writer: u32,
    /// The key.
    pub key: K,
    /// What was added for it there, or more.
    pub count: u64,
    /// How much more, at most.
    pub error: u64,
}

/// A heavy key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heavy<K> {
    /// The key.
    pub key: K,
    /// About what was added for it: the counts of all instances that have a place for it.
    pub sum: u64,
    /// What was added for it at least, of what is known here.
    pub at_least: u64,
    /// And at most.
    pub at_most: u64,
}

/// What an instance has.
#[derive(Debug)]
struct Writer<K> {
    keys: BTreeMap<K, Counted<K>>,
    total: u64,
}

impl<K> Default for Writer<K> {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            total: 0,
        }
    }
}

/// Puts together what instances have in their places. For people and the control plane, where it may be read in parts: what
/// changes between two of them is reported as it was at either time.
#[derive(Debug)]
pub struct HeavyKeys<K: Key> {
    places: u32,
    writers: BTreeMap<u32, Writer<K>>,
}

impl<K: Key> HeavyKeys<K> {
    /// Of instances that have so many places each.
    #[must_use]
    pub fn new(places: u32) -> Self {
        Self {
            places,
            writers: BTreeMap::new(),
        }
    }

    /// Takes a place up. Where a key comes twice, its greater count is the newer.
    pub fn add(&mut self, place: HeavyPlace<K>) {
        let HeavyPlace {
            writer,
            key,
            count,
            error,
        } = place;
        let of = self.writers.entry(writer).or_default();
        of.total = of.total.saturating_add(count);
        let held = Counted { count, error, key };
        let newest = of.keys.entry(key).or_insert(held);
        *newest = held.max(*newest);
    }

    /// All that was added for whatever key.
    #[must_use]
    pub fn total(&self) -> u64 {
        let totals = self.writers.values().map(|writer| writer.total);
        totals.fold(0, u64::saturating_add)
    }

    /// What a sum is off by at most: a place's share of all that was added.
    #[must_use]
    pub fn excess(&self) -> u64 {
        self.total() / u64::from(self.places.max(1))
    }

    /// The `count` heaviest keys, heaviest first, equal ones by key.
    #[must_use]
    pub fn heaviest(&self, count: usize) -> Vec<Heavy<K>> {
        let leasts: Vec<u64> = self
            .writers
            .values()
            .map(|writer| writer.least(self.places))
            .collect();
        let mut keys: Vec<K> = self
            .writers
            .values()
            .flat_map(|writer| writer.keys.keys().copied())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let mut heavy: Vec<Heavy<K>> = keys.iter().map(|key| self.heavy(key, &leasts)).collect();
        heavy.sort_unstable_by_key(|heavy| (Reverse(heavy.sum), heavy.key));
        heavy.truncate(count);
        heavy
    }

    fn heavy(&self, key: &K, leasts: &[u64]) -> Heavy<K> {
        let nothing = Heavy {
            key: *key,
            sum: 0,
            at_least: 0,
            at_most: 0,
        };
        let each = self.writers.values().zip(leasts);
        each.fold(nothing, |heavy, (writer, &least)| {
            let held = writer.keys.get(key);
            let (count, error, most) =
                held.map_or((0, 0, least), |held| (held.count, held.error, held.count));
            Heavy {
                sum: heavy.sum.saturating_add(count),
                at_least: heavy.at_least.saturating_add(count.saturating_sub(error)),
                at_most: heavy.at_most.saturating_add(most),
                ..heavy
            }
        })
    }
}

impl<K: Key> Writer<K> {
    /// What a key without a place can have at most: nothing while places are free.
    fn least(&self, places: u32) -> u64 {
        if self.keys.len() < places as usize {
            return 0;
        }
        let counts = self.keys.values().map(|held| held.count);
        counts.min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(writer: u32, key: u32, count: u64, error: u64) -> HeavyPlace<u32> {
        HeavyPlace {
            writer,
            key,
            count,
            error,
        }
    }

    #[test]
    fn places_of_all_instances_are_put_together() {
        let mut keys = HeavyKeys::new(2);
        for one in [
            place(0, 7, 90, 5),
            place(0, 8, 40, 0),
            place(3, 7, 10, 2),
            place(3, 9, 30, 0),
        ] {
            keys.add(one);
        }
        assert_eq!((keys.total(), keys.excess()), (170, 85));
        let heavy = |key, sum, at_least, at_most| Heavy {
            key,
            sum,
            at_least,
            at_most,
        };
        let expected = [
            heavy(7, 100, 93, 100),
            // What has no place at an instance may have as much there as its lightest.
            heavy(8, 40, 40, 50),
            heavy(9, 30, 30, 70),
        ];
        assert_eq!(keys.heaviest(9), expected);
        assert_eq!(keys.heaviest(1), expected[..1]);
    }

    #[test]
    fn of_a_key_that_comes_twice_the_greater_count_is_taken() {
        let mut keys = HeavyKeys::new(4);
        keys.add(place(0, 7, 90, 5));
        keys.add(place(0, 7, 20, 0));
        let heavy = keys.heaviest(9);
        assert_eq!((heavy.len(), heavy[0].sum, heavy[0].at_most), (1, 90, 90));
        assert!(HeavyKeys::<u32>::new(0).heaviest(1).is_empty());
        assert_eq!(HeavyKeys::<u32>::new(0).excess(), 0);
    }
}
