//! Numbers for keys that come and go: what windowed counters and token buckets are made of.

use std::rc::Rc;

use asterism_memory::index::Index;
use asterism_memory::prefetch_hints::PrefetchHints;
use asterism_memory::region::Slot;
use asterism_memory::zeroed;

use crate::context::{Context, Late, Reservations};
use crate::map::Key;
use crate::object::ObjectSettings;
use crate::recording::{Recordable, note_room};

/// Numbers of a shared object, in multiples of its capacity: another member may forget a key a little earlier than this one,
/// and use its share again.
const SLACK: u32 = 2;

zeroed! {
    /// A number's key.
    struct Held<K: Key> {
        key: Slot<K>,
        /// The next free number, plus one; 0 is none.
        next_free: u32,
        /// The key counts against this instance's share.
        is_own: bool,
    }
}

/// Keys by number, and numbers by key.
#[derive(Debug)]
pub(super) struct Keyed<K: Key> {
    context: Rc<Context>,
    index: Index,
    held: Recordable<Held<K>>,
    used: u32,
    free: u32,
    count: u32,
    capacity: u32,
    /// Keys that this instance added, and how many it may.
    own: u32,
    own_max: u32,
    /// Keys that undecided transactions begin: they have their room already.
    undecided: u32,
    reserved: Reservations,
    sweep_next: u32,
    refused_full: u64,
}

impl<K: Key> Keyed<K> {
    /// Room for `capacity` keys of the whole cluster if they are shared, else of this instance.
    pub(super) fn new(context: Rc<Context>, settings: &ObjectSettings, is_shared: bool) -> Self {
        let capacity = settings.capacity;
        let (_, shares) = context.identity().share();
        let (own_max, room) = if is_shared {
            let own_max = capacity.div_ceil(shares);
            let leased = own_max.checked_mul(shares);
            let room = leased.and_then(|leased| leased.checked_mul(SLACK));
            (own_max, room.filter(|&room| room < 1 << 31))
        } else {
            (capacity, Some(capacity).filter(|&room| room < 1 << 31))
        };
        let room = room.expect("there are fewer than 2^31 keys");
        Self {
            index: Index::new(room as usize),
            held: Recordable::new(room as usize),
            used: 0,
            free: 0,
            count: 0,
            capacity,
            own: 0,
            own_max,
            undecided: 0,
            reserved: Reservations::default(),
            sweep_next: 0,
            refused_full: 0,
            context,
        }
    }

    /// Numbers that there is memory for.
    pub(super) fn room(&self) -> u32 {
        self.held.len() as u32
    }

    /// Numbers below this were used at least once.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// How many keys there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Keys of others that found no room, which leases should make impossible.
    pub(super) fn refused_full(&self) -> u64 {
        self.refused_full
    }

    pub(super) fn bytes_in_use(&self) -> usize {
        self.index.bytes_in_use() + self.used as usize * size_of::<Held<K>>()
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &K) -> u64 {
        key.hash(self.context.seed())
    }

    #[inline(always)]
    pub(super) fn find(&self, key: &K, hash: u64) -> Option<u32> {
        self.index.find(hash, |number| {
            self.held[number as usize].key.is(key).then_some(number)
        })
    }

    /// The key of a number; `None` if it is free, and while a call is recorded.
    #[inline(always)]
    pub(super) fn key(&self, number: u32) -> Option<&K> {
        self.held.get(number as usize)?.key.get()
    }

    /// From here on numbers have no keys, and none is started: see `recording.rs`.
    pub(super) fn begin_recording(&mut self) {
        self.held.begin_recording();
    }

    pub(super) fn end_recording(&mut self) {
        self.held.end_recording();
    }

    /// Whether a call is recorded.
    pub(super) fn is_recording(&self) -> bool {
        self.held.is_recording()
    }

    /// A transaction that begins a key waits for its decision from now on, or has it.
    pub(super) fn note_undecided(&mut self, object: u8, begins: bool) {
        self.undecided = note_room(self.undecided, begins);
        self.context.note_undecided_entry(object, begins);
    }

    /// Calls `each` for the keys of up to `count` numbers from the `cursor`th on. Where to go on, `None` at the end.
    pub(super) fn each_from(
        &self,
        (cursor, count): (u32, u32),
        mut each: impl FnMut(u32, &K),
    ) -> Option<u32> {
        let end = cursor.saturating_add(count).min(self.used);
        for number in cursor..end {
            if let Some(key) = self.key(number) {
                each(number, key);
            }
        }
        (end < self.used).then_some(end)
    }

    /// Asks for what a probe reads first, and notes it for the second step of the pass.
    pub(super) fn prefetch(&self, object: u8, hash: u64) {
        let bucket = self.index.prefetch(hash);
        self.context.prefetch_hints().note(object, 0, bucket, hash);
    }

    /// The number at which a probe is likely to end.
    #[inline(always)]
    pub(super) fn likely(&self, bucket: u32, hash: u64) -> Option<u32> {
        self.index.likely(bucket, hash)
    }

    /// [`crate::Object::prefetch_records`], with what asks for a number's record.
    pub(super) fn prefetch_each(
        &self,
        prefetch_hints: &PrefetchHints,
        packets: core::ops::Range<usize>,
        prefetch: impl Fn(u32),
    ) -> usize {
        prefetch_hints.each_record(packets, |_| {
            |bucket, hash| {
                let number = self.likely(bucket, hash)?;
                self.held.prefetch(number as usize);
                prefetch(number);
                Some(number)
            }
        })
    }

    /// Whether the call may start a key of the object: then it may until its packet ends. Late while decisions may give room again.
    #[cold]
    pub(super) fn may_start(&self, object: u8) -> Result<bool, Late> {
        let undecided = self.undecided;
        let limits = [
            (self.own + undecided, self.own_max),
            (self.count + undecided, self.capacity),
        ];
        if self.reserved.take(&self.context, limits) {
            return Ok(true);
        }
        self.context.decided_room(object)?;
        Ok(false)
    }

    pub(super) fn settle(&self) {
        self.reserved.clear();
    }

    /// The number of a key, given out now if it is new; whether it is. `None` where there is no room.
    #[cold]
    #[inline(never)]
    pub(super) fn start(&mut self, key: K, is_own: bool) -> Option<(u32, bool)> {
        let hash = self.hash(&key);
        if let Some(number) = self.find(&key, hash) {
            return Some((number, false));
        }
        let number = if self.free != 0 {
            let number = self.free - 1;
            self.free = self.held[number as usize].next_free;
            number
        } else if self.used < self.room() {
            self.used += 1;
            self.used - 1
        } else {
            self.refused_full += 1;
            return None;
        };
        self.held[number as usize] = Held {
            key: Slot::of(key),
            next_free: 0,
            is_own,
        };
        self.count += 1;
        self.own += u32::from(is_own);
        let (held, seed) = (&self.held, self.context.seed());
        self.index.insert(hash, number, |number| {
            let key = held[number as usize].key.get();
            key.map_or(0, |key| key.hash(seed))
        });
        Some((number, true))
    }

    /// The same of a key that a store reports: undecided transactions keep the room that they have.
    pub(super) fn start_of_others(&mut self, key: K) -> Option<(u32, bool)> {
        if let Some(number) = self.find(&key, self.hash(&key)) {
            return Some((number, false));
        }
        if self.count + self.undecided >= self.capacity {
            self.refused_full += 1;
            return None;
        }
        self.start(key, false)
    }

    /// Looks at up to `numbers` of the keys in turn and forgets those that `may_go`; how many those were.
    pub(super) fn sweep(&mut self, numbers: u32, may_go: impl Fn(u32, &K) -> bool) -> u32 {
        let before = self.count;
        for _ in 0..numbers.min(self.used) {
            if self.sweep_next >= self.used {
                self.sweep_next = 0;
            }
            let number = self.sweep_next;
            self.sweep_next += 1;
            let Held { key, is_own, .. } = self.held[number as usize];
            let Some(key) = key.get().filter(|key| may_go(number, key)) else {
                continue;
            };
            self.index.remove(self.hash(key), number);
            self.held[number as usize] = Held {
                key: Slot::NONE,
                next_free: self.free,
                is_own: false,
            };
            self.free = number + 1;
            self.count -= 1;
            self.own -= u32::from(is_own);
        }
        before - self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_and_go_and_their_room_comes_back() {
        let settings = ObjectSettings {
            capacity: 8,
            ..ObjectSettings::LOCAL
        };
        let context = Rc::new(Context::alone());
        let mut keys = Keyed::<u32>::new(context.clone(), &settings, false);
        for round in 0..50u32 {
            context.begin(round.into());
            for key in 0..8 {
                assert_eq!(keys.may_start(0), Ok(true));
                let started = keys.start(round * 3 + key, true);
                assert!(started.is_some_and(|(_, is_new)| is_new));
                keys.settle();
            }
            assert_eq!(keys.may_start(0), Ok(false), "full");
            assert_eq!(keys.start(9_999, false), None);
            let first = round * 3;
            let again = keys.start(first, true);
            assert_eq!(
                again,
                keys.find(&first, keys.hash(&first))
                    .map(|number| (number, false))
            );
            keys.sweep(3, |_, _| true);
            assert_eq!(keys.count(), 5);
            keys.sweep(8, |number, _| number % 2 == 0);
            keys.sweep(8, |_, _| true);
            assert_eq!((keys.count(), keys.used()), (0, 8));
        }
        assert_eq!(keys.refused_full(), 50);
    }
}
