//! A bounded table with flows as keys, whose entries end when they idle. Nothing allocates after it is made.

use core::time::Duration;

use asterism_memory::index::Index;
use asterism_packet::FlowKey;
use asterism_placement::Time;

/// Entries that one call of [`FlowTable::sweep`] looks at.
const SWEPT: usize = 64;

/// The table has no place for another entry. It is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

#[derive(Clone, Copy, Debug)]
struct Entry<V> {
    key: FlowKey,
    value: V,
    /// When it was used last.
    used: Time,
    idle: Duration,
}

/// The table.
#[derive(Debug)]
pub(crate) struct FlowTable<V> {
    index: Index,
    /// By record; `None` where there is none.
    entries: Box<[Option<Entry<V>>]>,
    free: Vec<u32>,
    seed: u64,
    /// Where the next sweep begins.
    hand: usize,
}

impl<V: Copy> FlowTable<V> {
    /// An empty table for so many entries, at most 2^24.
    pub(crate) fn new(entries_max: usize, seed: u64) -> FlowTable<V> {
        let entries_max = entries_max.min(1 << 24);
        let index = Index::new(entries_max);
        index.reach(entries_max);
        FlowTable {
            index,
            entries: vec![None; entries_max].into(),
            free: (0..entries_max as u32).rev().collect(),
            seed,
            hand: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    #[inline]
    fn record_of(&self, key: &FlowKey) -> Option<u32> {
        let hash = key.hash(self.seed);
        self.index.find(hash, |record| {
            let entry = self.entries.get(record as usize)?.as_ref()?;
            (entry.key == *key).then_some(record)
        })
    }

    /// The value of a key, which is used now: one probe.
    #[inline]
    pub(crate) fn find(&mut self, key: &FlowKey, now: Time) -> Option<V> {
        let record = self.record_of(key)?;
        let entry = self.entries.get_mut(record as usize)?.as_mut()?;
        entry.used = now;
        Some(entry.value)
    }

    /// Sets the value of a key; true if it had none.
    ///
    /// # Errors
    /// [`Full`]: the key had no value, and has none.
    pub(crate) fn insert(
        &mut self,
        key: FlowKey,
        value: V,
        idle: Duration,
        now: Time,
    ) -> Result<bool, Full> {
        let entry = Some(Entry {
            key,
            value,
            used: now,
            idle,
        });
        if let Some(record) = self.record_of(&key) {
            self.entries[record as usize] = entry;
            return Ok(false);
        }
        let record = self.free.pop().ok_or(Full)?;
        self.entries[record as usize] = entry;
        let (entries, seed) = (&self.entries, self.seed);
        let hash_of = |record: u32| {
            let entry = entries.get(record as usize).and_then(Option::as_ref);
            entry.map_or(0, |entry| entry.key.hash(seed))
        };
        self.index.insert(key.hash(seed), record, hash_of);
        Ok(true)
    }

    /// Changes the value of a key that has one.
    pub(crate) fn replace(&mut self, key: &FlowKey, value: V) {
        if let Some(record) = self.record_of(key)
            && let Some(Some(entry)) = self.entries.get_mut(record as usize)
        {
            entry.value = value;
        }
    }

    /// Takes a key out; its value, if it had one.
    pub(crate) fn remove(&mut self, key: &FlowKey) -> Option<V> {
        let record = self.record_of(key)?;
        self.index.remove(key.hash(self.seed), record);
        self.free.push(record);
        let entry = self.entries.get_mut(record as usize)?.take();
        entry.map(|entry| entry.value)
    }

    /// Ends entries that have idled, of the next few: how many. `keeps` says which stay all the same.
    pub(crate) fn sweep(&mut self, now: Time, keeps: impl Fn(&V) -> bool) -> usize {
        let mut ended = 0;
        for _ in 0..SWEPT.min(self.entries.len()) {
            let entry = self.entries.get(self.hand).copied().flatten();
            self.hand = (self.hand + 1) % self.entries.len();
            if let Some(entry) = entry
                && now.since(entry.used) > entry.idle
                && !keeps(&entry.value)
            {
                ended += usize::from(self.remove(&entry.key).is_some());
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_packet::{Flow4, Packet, build};
    use core::net::Ipv4Addr;

    fn key(port: u16) -> FlowKey {
        let flow = Flow4 {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            source_port: port,
            destination_port: 80,
            protocol: 17,
        };
        let mut frame = [0; 64];
        let length = build::flow4(&flow, b"", &mut frame).unwrap();
        FlowKey::of(&Packet::parse(&mut frame[..length]).unwrap())
    }

    #[test]
    fn entries_are_found_refused_and_end() {
        let idle = Duration::from_secs(1);
        let mut table = FlowTable::new(200, 3);
        for port in 0..200 {
            assert_eq!(table.insert(key(port), port, idle, Time::ZERO), Ok(true));
        }
        assert_eq!(table.insert(key(200), 200, idle, Time::ZERO), Err(Full));
        assert_eq!(table.insert(key(7), 70, idle, Time::ZERO), Ok(false));
        assert_eq!(table.find(&key(7), Time::from_micros(600_000)), Some(70));
        assert_eq!(table.find(&key(200), Time::ZERO), None);
        assert_eq!(table.remove(&key(8)), Some(8));
        assert_eq!(table.remove(&key(8)), None);
        assert_eq!(table.len(), 199);
        let later = Time::from_micros(1_100_000);
        let ended: usize = (0..4)
            .map(|_| table.sweep(later, |value| *value == 9))
            .sum();
        assert_eq!(ended, 197, "all but the one in use and the one kept");
        assert_eq!(table.find(&key(7), later), Some(70));
        assert_eq!(table.find(&key(9), later), Some(9));
        for port in 300..498 {
            assert_eq!(table.insert(key(port), port, idle, later), Ok(true));
        }
        assert_eq!(table.insert(key(500), 500, idle, later), Err(Full));
    }
}
