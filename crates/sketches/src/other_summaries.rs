//! What is known of the summaries of other instances, which an instance adds to its own.

use core::cell::Cell;

use asterism_memory::index::Index;
use asterism_memory::region::{Region, Slot};
use asterism_memory::zeroed;
use asterism_wire::Key;

use crate::summary::Counted;

zeroed! {
    /// A place of another instance's summary.
    pub struct LastReport<K: Key> {
        /// What was counted there.
        pub count: u64,
        /// By how much that is too large at most.
        pub error: u64,
        /// For which key; none: the place is free.
        pub key: Slot<K>,
        /// The incarnation that said so.
        pub origin: u16,
    }
}

/// What is known of another instance's summary.
#[derive(Debug)]
pub struct Others<K: Key, S> {
    /// Whose it is.
    pub seat: S,
    /// Its places.
    pub places: Region<LastReport<K>>,
    /// Where its keys are.
    pub index: Index,
    /// What it has counted in all.
    pub total: u64,
}

impl<K: Key> LastReport<K> {
    /// Nothing was reported of the place.
    pub const NOTHING: Self = Self {
        count: 0,
        error: 0,
        key: Slot::NONE,
        origin: 0,
    };

    /// What an incarnation said.
    pub fn of(Counted { count, error, key }: Counted<K>, origin: u16) -> Self {
        Self {
            count,
            error,
            key: Slot::of(key),
            origin,
        }
    }

    /// What it says, if anything.
    pub fn get(&self) -> Option<Counted<K>> {
        let key = *self.key.get()?;
        let Self { count, error, .. } = *self;
        Some(Counted { count, error, key })
    }
}

impl<K: Key, S> Others<K, S> {
    /// Of an instance of which nothing was heard yet.
    pub fn new(seat: S, places: u32) -> Self {
        let places = places as usize;
        Self {
            seat,
            places: Region::made_late(places),
            index: Index::new(places),
            total: 0,
        }
    }

    /// What is in a place.
    pub fn get(&self, place: u32) -> Option<Counted<K>> {
        self.places[place as usize].get()
    }

    /// What a key has. While not all is reported, a key may be in its old place and its new one: the greater count is the newer.
    #[inline]
    pub fn find(&self, key: &K, hash: u64) -> Option<Counted<K>> {
        let best = Cell::new(None);
        self.index.find(hash, |place| -> Option<()> {
            let held = self.get(place).filter(|held| held.key == *key);
            best.set(best.get().max(held));
            None
        });
        best.get()
    }

    /// A place's count only grows, so that of two copies the greater is the newer one; but for another incarnation's, where the later one's
    /// is. Whether this one is.
    ///
    /// `is_later` says of two incarnations whether the first one came after the other; `seed` is that of hashes.
    pub fn learn(
        &mut self,
        (place, seed): (u32, u64),
        said: LastReport<K>,
        is_later: impl FnOnce(u16, u16) -> bool,
    ) -> bool {
        let before = self.places[place as usize];
        let (known, Some(held)) = (before.get(), said.get()) else {
            return false;
        };
        let is_newer = match known {
            None => true,
            Some(known) if before.origin == said.origin => held > known,
            Some(_) => is_later(said.origin, before.origin),
        };
        if !is_newer {
            return false;
        }
        self.total = self
            .total
            .wrapping_sub(before.count)
            .wrapping_add(held.count);
        let is_same = known.is_some_and(|known| known.key == held.key);
        if let Some(known) = known.filter(|_| !is_same) {
            self.index.remove(known.key.hash(seed), place);
        }
        self.places[place as usize] = said;
        if !is_same {
            let places = &self.places;
            self.index.insert(held.key.hash(seed), place, |place| {
                let key = places[place as usize].key.get();
                key.map_or(0, |key| key.hash(seed))
            });
        }
        true
    }
}
