//! What a store said of sums by key, for the call under way.

use super::counters::Tally;
use crate::map::Key;
use crate::wire::{BadBytes, KeySums};

/// Why a filter of keys cannot live in a store.
pub(super) const FILTER_STAYS: &str =
    "a read names a place of each of its rows, where a set answers by one key and without mistakes";

/// Sums that were answered, and how many keys may begin.
#[derive(Debug)]
pub(super) struct InStore<K> {
    answered: KeySums<K>,
    pub(super) room: u32,
}

impl<K> Default for InStore<K> {
    fn default() -> Self {
        Self {
            answered: KeySums::default(),
            room: 0,
        }
    }
}

impl<K: Key> InStore<K> {
    /// The sum for a key; 0 if there is none.
    pub(super) fn sum(&self, key: &K) -> u64 {
        self.answered.get(key).unwrap_or(0)
    }

    /// The key's counter, or one that is about to begin; `None` where there is no room for it.
    pub(super) fn find(&self, key: &K) -> Option<Tally<K>> {
        let total = self.answered.get(key);
        (total.is_some() || self.room > 0).then_some(Tally {
            number: None,
            key: *key,
            total: total.unwrap_or(0),
        })
    }

    /// Takes an answer, of no more keys than `capacity`; the room, too, if it says how many keys there are.
    pub(super) fn take(
        &mut self,
        answer: &[u8],
        capacity: u32,
        addresses: &[u32],
    ) -> Result<(), BadBytes> {
        if let Some(keys) = self.answered.add(answer, capacity, addresses)? {
            let keys = u32::try_from(keys).unwrap_or(u32::MAX);
            self.room = capacity.saturating_sub(keys);
        }
        Ok(())
    }

    /// The call has ended.
    pub(super) fn withdraw(&mut self) {
        self.answered.clear();
        self.room = 0;
    }
}
