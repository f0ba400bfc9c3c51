//! What the prefetch pass over a burst foresees of each packet's read, for the pass that handles the packets.
//!
//! First where a probe begins, so that its bucket is asked for; then, when all buckets were asked for, the record at which
//! it is likely to end. The second call of a packet looks at that record first, and probes only if it is not the one: what
//! is hinted is never trusted.

use core::cell::Cell;
use core::ops::Range;

use crate::index::TAG_BITS;

/// Packets of one burst.
pub const BURST_MAX: usize = 32;

/// What is hinted of a packet. One word, so that it is kept and compared as one. From below: bucket or record (32 bits),
/// object, lane, step, and where a tag is taken from in a hash, at the top, the same bits of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hint(u64);

impl Hint {
    const NOTHING: Self = Self(0);
    const PROBE: u64 = 1 << 48;
    const RECORD: u64 = 2 << 48;
    /// The bits that probes of one kind have in common.
    const KIND: u64 = 0x0003_ffff << 32;

    #[inline(always)]
    const fn kind(step: u64, object: u8, lane: usize) -> u64 {
        step | (object as u64) << 32 | (lane as u64) << 40
    }
    #[inline(always)]
    fn is_probe(self) -> bool {
        self.0 & Self::PROBE != 0
    }
    #[inline(always)]
    fn object(self) -> u8 {
        (self.0 >> 32) as u8
    }
    #[inline(always)]
    fn lane(self) -> usize {
        usize::from((self.0 >> 40) as u8)
    }
}

/// What is hinted of the packets of a burst.
#[derive(Debug)]
pub struct PrefetchHints {
    burst: [Cell<Hint>; BURST_MAX],
    /// The packet that the pass is at.
    at: Cell<usize>,
    /// Of all reads of that packet.
    reads: Cell<u64>,
    /// Of the packet that is handled.
    now: Cell<Hint>,
    /// A bit for each packet whose probe will likely find nothing, until it is taken.
    likely_misses: Cell<u32>,
}

const _: () = assert!(BURST_MAX <= u32::BITS as usize);

impl Default for PrefetchHints {
    fn default() -> Self {
        Self {
            burst: [const { Cell::new(Hint::NOTHING) }; BURST_MAX],
            at: Cell::new(0),
            reads: Cell::new(0),
            now: Cell::new(Hint::NOTHING),
            likely_misses: Cell::new(0),
        }
    }
}

impl PrefetchHints {
    /// Begins the pass over a burst.
    pub fn begin(&self) {
        for hinted in &self.burst {
            hinted.set(Hint::NOTHING);
        }
    }

    /// The next call of the pass is for packet `number` of the burst.
    #[inline(always)]
    pub fn turn_to(&self, number: usize) {
        self.at.set(number);
        self.reads.set(0);
    }

    /// A fingerprint of all that the last call of the pass asked for; zero if that was nothing. Packets that ask for the same
    /// have the same.
    #[inline(always)]
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// The first probe of some packets of the burst: whose, and of which object.
    #[inline(always)]
    pub fn first_probe(&self, packets: Range<usize>) -> Option<(usize, u8)> {
        let of = self.burst.get(packets.clone())?;
        let found = of.iter().position(|hinted| hinted.get().is_probe())?;
        Some((packets.start + found, of[found].get().object()))
    }

    /// The packets, a bit for each, whose probes were turned into no record since this was asked last: they will likely find
    /// nothing.
    #[inline(always)]
    pub fn take_likely_misses(&self) -> u32 {
        self.likely_misses.take()
    }

    /// Packet `number` of the burst is handled next.
    #[inline(always)]
    pub fn recall(&self, number: usize) {
        self.now.set(self.burst[number % BURST_MAX].get());
    }

    /// In the pass: a read of the packet probes `bucket` for the tag of `hash`. Of several reads the last one is kept.
    #[inline(always)]
    pub fn note(&self, object: u8, lane: usize, bucket: u32, hash: u64) {
        let kind = Hint::kind(Hint::PROBE, object, lane);
        let hinted = Hint(kind | hash & TAG_BITS | u64::from(bucket));
        self.burst[self.at.get() % BURST_MAX].set(hinted);
        self.reads.set(self.reads.get().rotate_left(23) ^ hinted.0);
    }

    /// Turns probes into records: that of the first of these packets, and of those that follow and probe the same object
    /// and lane. `likely` gets the lane, and gives what tells the record of a bucket and a hash, of which there are the bits of the
    /// tag. Returns where it stopped.
    #[inline(always)]
    pub fn each_record<L: Fn(u32, u64) -> Option<u32>>(
        &self,
        packets: Range<usize>,
        likely: impl FnOnce(usize) -> L,
    ) -> usize {
        let of = self.burst.get(packets.clone()).unwrap_or(&[]);
        let Some(first) = of.first().map(Cell::get) else {
            return packets.end;
        };
        let likely = likely(first.lane());
        let record_of = Hint::kind(Hint::RECORD, first.object(), first.lane());
        let mut likely_misses = self.likely_misses.get();
        for (place, number) in of.iter().zip(packets.clone()) {
            let probe = place.get();
            if (probe.0 ^ first.0) & Hint::KIND != 0 {
                self.likely_misses.set(likely_misses);
                return number;
            }
            let record = likely(probe.0 as u32, probe.0);
            let hinted = record.map(|record| Hint(record_of | u64::from(record)));
            place.set(hinted.unwrap_or(Hint::NOTHING));
            likely_misses |= u32::from(record.is_none()) << number;
        }
        self.likely_misses.set(likely_misses);
        packets.end
    }

    /// The record that the packet being handled is likely to ask for, if it is one of this object and lane.
    #[inline(always)]
    pub fn record(&self, object: u8, lane: usize) -> Option<u32> {
        let now = self.now.get().0;
        let wanted = Hint::kind(Hint::RECORD, object, lane);
        (now >> 32 == wanted >> 32).then_some(now as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_becomes_a_record_of_its_own_object_and_lane() {
        let prefetch_hints = PrefetchHints::default();
        prefetch_hints.begin();
        for (number, object, lane) in [(1, 3, 0), (2, 3, 0), (4, 3, 1), (5, 2, 1)] {
            prefetch_hints.turn_to(number);
            prefetch_hints.note(object, lane, 100 + number as u32, (number as u64) << 57);
        }
        let of_the_last = prefetch_hints.reads();
        assert_eq!(of_the_last, prefetch_hints.burst[5].get().0);
        prefetch_hints.note(1, 0, 7, 0);
        assert!(
            prefetch_hints.reads() != of_the_last
                && prefetch_hints.reads() != prefetch_hints.burst[5].get().0
        );
        prefetch_hints.turn_to(5);
        assert_eq!(
            prefetch_hints.reads(),
            0,
            "the call that follows asked for nothing yet"
        );
        prefetch_hints.note(2, 1, 105, 5 << 57);
        let mut runs = Vec::new();
        let mut from = 0;
        while let Some((number, object)) = prefetch_hints.first_probe(from..BURST_MAX) {
            let mut asked = Vec::new();
            from = prefetch_hints.each_record(number..BURST_MAX, |lane| {
                asked.push(lane as u32);
                |bucket, hash| (hash >> 57 != 2).then_some(bucket * 2)
            });
            runs.push((number, object, from, asked));
        }
        assert_eq!(
            runs,
            [(1, 3, 3, vec![0]), (4, 3, 5, vec![1]), (5, 2, 6, vec![1])]
        );
        assert_eq!(
            prefetch_hints.take_likely_misses(),
            1 << 2,
            "no record was likely"
        );
        assert_eq!(prefetch_hints.take_likely_misses(), 0);
        let seen = |number, object, lane| {
            prefetch_hints.recall(number);
            prefetch_hints.record(object, lane)
        };
        assert_eq!(seen(1, 3, 0), Some(202));
        assert_eq!(seen(1, 3, 1), None, "another lane");
        assert_eq!(seen(1, 2, 0), None, "another object");
        assert_eq!(seen(2, 3, 0), None, "no record was likely");
        assert_eq!(seen(3, 0, 0), None, "it read nothing");
        assert_eq!(seen(5, 2, 1), Some(210));
    }

    #[test]
    fn a_whole_burst_ends_and_the_next_one_begins_with_nothing() {
        let prefetch_hints = PrefetchHints::default();
        prefetch_hints.begin();
        for number in 0..BURST_MAX {
            prefetch_hints.turn_to(number);
            prefetch_hints.note(0, 0, number as u32, 0);
        }
        let all = 0..BURST_MAX;
        assert_eq!(prefetch_hints.first_probe(all.clone()), Some((0, 0)));
        assert_eq!(
            prefetch_hints.each_record(0..8, |_| |bucket, _| Some(bucket)),
            8
        );
        assert_eq!(prefetch_hints.first_probe(all), Some((8, 0)));
        assert_eq!(
            prefetch_hints.each_record(8..BURST_MAX, |_| |bucket, _| Some(bucket)),
            BURST_MAX
        );
        assert_eq!(prefetch_hints.first_probe(BURST_MAX..BURST_MAX), None);
        prefetch_hints.recall(31);
        assert_eq!(prefetch_hints.record(0, 0), Some(31));
        prefetch_hints.begin();
        prefetch_hints.recall(31);
        assert_eq!(prefetch_hints.record(0, 0), None);
    }
}
