//! Whether packets come back to entries that a core's cache may still hold, however large the tables are.
//!
//! The tables of a cluster hold what all its members saw, and one member's packets read their own share of that. A prefetch pass
//! calls the function twice for each packet, which pays only where reads miss the cache. So what some packets read is looked
//! up in a shadow of the cache: which reads came last, by fingerprint alone. The share of packets that it does not
//! remember decides. Bursts are looked at in samples: all others pay nothing.
//!
//! A function of the packets alone, no clock is read: the same packets are prefetched in every run. It decides how fast
//! packets are handled, never what becomes of them.

/// Reads that share a set, the last first.
const WAYS: usize = 8;
/// Sets. With the ways, as many packets' reads as fit 1.5 MiB if each reads six cache lines.
const SETS: usize = 512;
/// Packets that are looked at before each decision.
const DECIDES_AFTER: u32 = 1_024;
/// Packets are prefetched once more than one in so many reads what is not remembered,
const PREFETCHES_FROM: u32 = 8;
/// and no more once fewer than one in so many does.
const PREFETCHES_UNTIL: u32 = 16;
/// Bursts that are looked at in each step of a sweep: while all are prefetched, which costs a few instructions a packet, and
/// while no other is, which costs a second call for each packet looked at.
const SAMPLED_OF_ALL: u32 = 64;
const SAMPLED_ALONE: u32 = 8;

/// The shadow of a cache, and what it says.
#[derive(Debug)]
pub(super) struct Recency {
    sets: Box<[[u16; WAYS]; SETS]>,
    looked_at: u32,
    missed: u32,
    /// Reads are taken to miss until they are seen not to.
    misses: bool,
    /// Bursts to be looked at.
    bursts: u32,
}

impl Default for Recency {
    fn default() -> Self {
        Self {
            sets: Box::new([[0; WAYS]; SETS]),
            looked_at: 0,
            missed: 0,
            misses: true,
            bursts: 0,
        }
    }
}

impl Recency {
    /// How many bursts are to be hinted until this is asked again, some of them so that they are looked at.
    pub(super) fn bursts_to_foresee(&mut self) -> u32 {
        if self.looked_at >= DECIDES_AFTER {
            let most = if self.misses {
                PREFETCHES_UNTIL
            } else {
                PREFETCHES_FROM
            };
            self.misses = self.missed > self.looked_at / most;
            (self.looked_at, self.missed) = (0, 0);
        }
        self.bursts = if self.misses {
            SAMPLED_OF_ALL
        } else {
            SAMPLED_ALONE
        };
        if self.misses { u32::MAX } else { self.bursts }
    }

    /// A burst is hinted: whether to look at it.
    #[inline]
    pub(super) fn takes_burst(&mut self) -> bool {
        let takes = self.bursts > 0;
        self.bursts -= u32::from(takes);
        takes
    }

    /// A packet reads what has this fingerprint; zero: nothing.
    #[inline]
    pub(super) fn look_at(&mut self, reads: u64) {
        if reads == 0 {
            return;
        }
        // Mixed, since neighbouring buckets differ in few bits; a packet's reads have the same in every round.
        let mixed = (reads ^ reads >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = &mut self.sets[(mixed >> 55) as usize % SETS];
        // Zero is an empty place.
        let tag = (mixed >> 39) as u16 | 1;
        let place = set.iter().position(|&known| known == tag);
        let place = place.unwrap_or_else(|| {
            self.missed += 1;
            WAYS - 1
        });
        set[..=place].rotate_right(1);
        set[0] = tag;
        self.looked_at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of so many flows at random, in bursts as they are asked for, over some steps; what is to be hinted then.
    fn after(recency: &mut Recency, flows: u64, steps: u32) -> u32 {
        let mut random = 1u64;
        let mut hinted = recency.bursts_to_foresee();
        for _ in 0..steps {
            while recency.takes_burst() {
                for _ in 0..32 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    // As `PrefetchHints` has it: a bucket with bits of a hash above.
                    let flow = (random >> 33) % flows;
                    let hash = flow.wrapping_mul(0xd6e8_feb8_6659_fd93);
                    recency.look_at(hash >> 57 << 57 | 1 << 48 | hash >> 20 & 0xffff);
                }
            }
            hinted = recency.bursts_to_foresee();
        }
        hinted
    }

    #[test]
    fn few_flows_need_no_prefetching_and_many_do() {
        let mut recency = Recency::default();
        assert_eq!(after(&mut recency, 2_000, 0), u32::MAX, "until it is known");
        assert_eq!(after(&mut recency, 2_000, 4), SAMPLED_ALONE);
        assert_eq!(after(&mut recency, 2_000, 100), SAMPLED_ALONE, "and stays");
        // A quarter of what is to be decided on comes with a step.
        assert_eq!(after(&mut recency, 100_000, 5), u32::MAX);
        assert_eq!(after(&mut recency, 100_000, 100), u32::MAX);
        assert_eq!(after(&mut recency, 2_000, 4), SAMPLED_ALONE);
    }

    #[test]
    fn packets_that_read_nothing_say_nothing() {
        let mut recency = Recency::default();
        recency.bursts_to_foresee();
        for _ in 0..10 * DECIDES_AFTER {
            recency.look_at(0);
        }
        assert_eq!(recency.bursts_to_foresee(), u32::MAX);
    }
}
