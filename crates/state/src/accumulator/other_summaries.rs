//! What is known of the summaries of other instances: what [`TopK`](super::TopK) adds to its own.

use core::cell::Cell;

use asterism_memory::index::Index;
use asterism_memory::region::{Region, Slot};
use asterism_memory::zeroed;
use asterism_sketches::Counted;

use super::{WriterPlace, is_of_later_incarnation};
use crate::context::Context;
use crate::map::Key;
use crate::stamp::Origin;

zeroed! {
    /// A place of another instance's summary.
    pub(super) struct LastReport<K: Key> {
        pub(super) count: u64,
        pub(super) error: u64,
        pub(super) key: Slot<K>,
        /// The incarnation that said so.
        pub(super) origin: u16,
    }
}

/// What is known of another instance's summary.
#[derive(Debug)]
pub(super) struct Others<K: Key> {
    pub(super) seat: WriterPlace,
    pub(super) places: Region<LastReport<K>>,
    pub(super) index: Index,
    pub(super) total: u64,
}

impl<K: Key> LastReport<K> {
    pub(super) const NOTHING: Self = Self {
        count: 0,
        error: 0,
        key: Slot::NONE,
        origin: 0,
    };

    pub(super) fn of(Counted { count, error, key }: Counted<K>, origin: Origin) -> Self {
        Self {
            count,
            error,
            key: Slot::of(key),
            origin: origin.0,
        }
    }

    pub(super) fn get(&self) -> Option<Counted<K>> {
        let key = *self.key.get()?;
        let Self { count, error, .. } = *self;
        Some(Counted { count, error, key })
    }
}

impl<K: Key> Others<K> {
    pub(super) fn new(seat: WriterPlace, places: u32) -> Self {
        let places = places as usize;
        Self {
            seat,
            places: Region::made_late(places),
            index: Index::new(places),
            total: 0,
        }
    }

    pub(super) fn get(&self, place: u32) -> Option<Counted<K>> {
        self.places[place as usize].get()
    }

    /// What a key has. While not all is reported, a key may be in its old place and its new one: the greater count is the newer.
    #[inline]
    pub(super) fn find(&self, key: &K, hash: u64) -> Option<Counted<K>> {
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
    pub(super) fn learn(&mut self, context: &Context, place: u32, said: LastReport<K>) -> bool {
        let before = self.places[place as usize];
        let (known, Some(held)) = (before.get(), said.get()) else {
            return false;
        };
        let is_newer = match known {
            None => true,
            Some(known) if before.origin == said.origin => held > known,
            Some(_) => is_of_later_incarnation(context, Origin(said.origin), Origin(before.origin)),
        };
        if !is_newer {
            return false;
        }
        self.total = self
            .total
            .wrapping_sub(before.count)
            .wrapping_add(held.count);
        let is_same = known.is_some_and(|known| known.key == held.key);
        let seed = context.seed();
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
