//! The table: the flow space in a power of two of buckets, and the target of each. No I/O.
//!
//! `asterism-rendezvous` computes which target has which bucket. A [`Table`] is made from targets and shares on the thread that
//! decides, and handed to the packet loop whole. Single buckets can be moved ([`Table::move_bucket`]). A bucket of a target that
//! drains has two targets: the new one, and the one that keeps the TCP connections that it has.

use std::collections::BTreeMap;

use asterism_memory::hash;
use asterism_rendezvous::Target;

/// The fewest buckets of a table.
pub const BUCKETS_MIN: u32 = 256;
/// The most buckets of a table: one byte each.
pub const BUCKETS_MAX: u32 = 65_536;
/// A sane number of buckets: they fit beside the targets into a first-level cache.
pub const BUCKETS_SANE: u32 = 16_384;
/// Targets of a table at most.
pub const TARGETS_MAX: usize = 64;

/// A place for a target in the director, below [`TARGETS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u8);

impl Slot {
    /// The slot of a number below [`TARGETS_MAX`].
    #[must_use]
    pub const fn new(number: usize) -> Option<Slot> {
        if number < TARGETS_MAX {
            Some(Slot(number as u8))
        } else {
            None
        }
    }

    /// Its number.
    #[inline(always)]
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// Of the low six bits of a byte.
    #[inline(always)]
    pub(crate) const fn of_bits(bits: u8) -> Slot {
        Slot(bits & SLOT_BITS)
    }
}

/// How the flow space is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketSpace {
    bits: u32,
    /// Directors that spread alike have it in common.
    seed: u64,
}

impl BucketSpace {
    /// So many buckets, a power of two from [`BUCKETS_MIN`] to [`BUCKETS_MAX`]; `None` otherwise. The seed decides which
    /// flows share a bucket and which target has it: the same for directors that spread alike, and secret where senders may
    /// choose flows that meet.
    #[must_use]
    pub const fn new(buckets: u32, seed: u64) -> Option<BucketSpace> {
        if buckets.is_power_of_two() && buckets >= BUCKETS_MIN && buckets <= BUCKETS_MAX {
            Some(BucketSpace {
                bits: buckets.trailing_zeros(),
                seed,
            })
        } else {
            None
        }
    }

    /// How many buckets there are.
    #[must_use]
    pub const fn buckets(self) -> u32 {
        1 << self.bits
    }

    /// The seed.
    #[must_use]
    pub const fn seed(self) -> u64 {
        self.seed
    }

    /// The bucket of a flow's hash.
    #[inline(always)]
    #[must_use]
    pub const fn bucket(self, hash: u64) -> u32 {
        hash as u32 & (self.buckets() - 1)
    }
}

/// A target that is to get a share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share<'a> {
    /// Its place in the director.
    pub slot: Slot,
    /// Its name, from which its buckets follow.
    pub name: &'a str,
    /// Its weight beside the others': 1 and more.
    pub weight: u16,
}

/// The target of each bucket.
fn assign(space: BucketSpace, shares: &[Share<'_>]) -> Vec<Option<Slot>> {
    let names = shares.iter().map(|share| (share.name, share.weight));
    let targets: Vec<_> = names
        .map(|(name, weight)| Target { name, weight })
        .collect();
    let slot = |place: usize| shares.get(place).map(|share| share.slot);
    let assigned = asterism_rendezvous::assign(space.buckets(), space.seed, &targets).into_iter();
    assigned.map(|place| place.and_then(slot)).collect()
}

/// The bits of a slot in a bucket's byte.
const SLOT_BITS: u8 = 0x3f;
/// The bucket has a target that drains beside its own.
const DRAINING: u8 = 0x40;
/// The bucket is suspended: its packets wait.
const SUSPENDED: u8 = 0x80;
/// No target has the bucket.
const NOBODY: u8 = 0xff;

/// What a bucket's byte says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bucket {
    /// Its packets go to a target.
    Target(Slot),
    /// They go to `to`, but for TCP connections that `from` has.
    Draining {
        /// The target of new flows.
        to: Slot,
        /// The one that drains.
        from: Slot,
    },
    /// They wait.
    Suspended,
    /// They go nowhere.
    Nobody,
}

/// The target of every bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    space: BucketSpace,
    buckets: Box<[u8]>,
    /// The draining target of each bucket; empty if no target drains.
    leaving: Box<[u8]>,
    /// A bit for each target that takes or drains.
    members: u64,
    /// How many buckets the new flows of each target have.
    counts: Box<[u32; TARGETS_MAX]>,
    /// The sum, without carries, of a hash of each bucket and its targets.
    digest: u64,
}

impl Table {
    /// A table in which no target has a bucket.
    #[must_use]
    pub fn empty(space: BucketSpace) -> Table {
        Table::counted(
            space,
            vec![NOBODY; space.buckets() as usize].into(),
            Box::default(),
        )
    }

    fn counted(space: BucketSpace, buckets: Box<[u8]>, leaving: Box<[u8]>) -> Table {
        let mut table = Table {
            space,
            buckets,
            leaving,
            members: 0,
            counts: Box::new([0; TARGETS_MAX]),
            digest: 0,
        };
        for bucket in 0..space.buckets() {
            table.count(bucket, true);
        }
        table
    }

    /// Adds a bucket to the counts and the digest, or takes it out.
    fn count(&mut self, bucket: u32, is_added: bool) {
        let target = self.target(bucket);
        if let Some(target) = target {
            let count = &mut self.counts[target.number()];
            *count = match is_added {
                true => *count + 1,
                false => count.saturating_sub(1),
            };
        }
        let target = target.map_or(NOBODY, |target| target.0);
        let left = self.leaving.get(bucket as usize).copied();
        let targets = u64::from(target) | u64::from(left.unwrap_or(NOBODY)) << 8;
        self.digest ^= hash::words(u64::from(bucket), targets, self.space.seed);
    }

    /// The table in which `takers` share all buckets but those in `moved`, which a target of the map has if it takes or drains.
    /// A bucket of one of `drainers` goes to a taker, and the target that drains keeps its TCP connections.
    ///
    /// Costs some 70 ns for each bucket and target: 2 ms for 3 targets and [`BUCKETS_SANE`]. Shares are binomial: the share of a
    /// target with the part `p` of all weights is within `p ± 4 √(p (1 - p) / buckets)` in all but one of 15,000 cases.
    #[must_use]
    pub fn new(
        space: BucketSpace,
        takers: &[Share<'_>],
        drainers: &[Share<'_>],
        moved: &BTreeMap<u32, Slot>,
    ) -> Table {
        let mut after = assign(space, takers);
        let all: Vec<Share<'_>> = takers.iter().chain(drainers).copied().collect();
        let drains = |slot: &Slot| drainers.iter().any(|one| one.slot == *slot);
        let mut leaving: Box<[u8]> = Box::default();
        if !drainers.is_empty() && !takers.is_empty() {
            let before = assign(space, &all);
            let kept = before.iter().map(|slot| slot.filter(drains));
            leaving = kept
                .map(|slot| slot.map_or(NOBODY, |slot| slot.0))
                .collect();
        }
        for (bucket, slot) in moved {
            let place = *bucket as usize;
            let Some(target) = after.get_mut(place) else {
                continue;
            };
            if takers.iter().any(|one| one.slot == *slot) {
                *target = Some(*slot);
                if let Some(left) = leaving.get_mut(place) {
                    *left = NOBODY;
                }
            } else if drains(slot)
                && let Some(left) = leaving.get_mut(place)
            {
                *left = slot.0;
            }
        }
        let buckets = after
            .iter()
            .map(|slot| slot.map_or(NOBODY, |slot| slot.0))
            .collect();
        let mut table = Table::counted(space, buckets, leaving);
        table.members = all.iter().fold(0, |bits, one| bits | 1 << one.slot.0);
        for bucket in 0..space.buckets() {
            table.mark_drain(bucket);
        }
        table
    }

    /// How the flow space is divided.
    #[must_use]
    pub fn space(&self) -> BucketSpace {
        self.space
    }

    /// The target of new flows in a bucket, suspended or not; `None` beyond the last, and where no target has it.
    #[must_use]
    pub fn target(&self, bucket: u32) -> Option<Slot> {
        let byte = *self.buckets.get(bucket as usize)?;
        (byte != NOBODY).then(|| Slot::of_bits(byte))
    }

    /// Gives a bucket to a target; false beyond the last bucket. Its packets wait on if it is suspended. A target that
    /// drains keeps nothing of it.
    pub fn move_bucket(&mut self, bucket: u32, to: Slot) -> bool {
        if bucket >= self.space.buckets() {
            return false;
        }
        self.count(bucket, false);
        let byte = &mut self.buckets[bucket as usize];
        let suspended = if *byte == NOBODY {
            0
        } else {
            *byte & SUSPENDED
        };
        *byte = to.0 | suspended;
        if let Some(left) = self.leaving.get_mut(bucket as usize) {
            *left = NOBODY;
        }
        self.members |= 1 << to.0;
        self.count(bucket, true);
        true
    }

    /// Whether a target takes or drains, or got a bucket by [`Table::move_bucket`].
    #[inline(always)]
    #[must_use]
    pub fn serves(&self, slot: Slot) -> bool {
        self.members >> slot.0 & 1 == 1
    }

    /// Whether a target that drains keeps connections of a bucket.
    #[must_use]
    pub fn drains(&self, bucket: u32) -> bool {
        let left = self.leaving.get(bucket as usize);
        left.is_some_and(|left| *left != NOBODY)
    }

    /// How many buckets the new flows of a target have.
    #[must_use]
    pub fn buckets_of(&self, slot: Slot) -> u32 {
        self.counts[slot.number()]
    }

    /// A number that tables with the same targets of every bucket have in common, and no others but by chance. Whether buckets are
    /// suspended is not in it.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many buckets have another target for new flows than in `other`; all if their number differs.
    #[must_use]
    pub fn differences(&self, other: &Table) -> u32 {
        if self.space.buckets() != other.space.buckets() {
            return self.space.buckets();
        }
        let differs = |bucket: &u32| self.target(*bucket) != other.target(*bucket);
        (0..self.space.buckets()).filter(differs).count() as u32
    }

    /// The byte of the bucket of a hash: a slot's number, if it is below [`TARGETS_MAX`]; else [`Table::bucket`] says more.
    #[inline(always)]
    pub(crate) fn byte(&self, hash: u64) -> u8 {
        let bucket = self.space.bucket(hash) as usize;
        self.buckets.get(bucket).copied().unwrap_or(NOBODY)
    }

    /// What is to be done with packets of a bucket.
    pub(crate) fn bucket(&self, bucket: u32) -> Bucket {
        let place = bucket as usize;
        let byte = self.buckets.get(place).copied().unwrap_or(NOBODY);
        if byte == NOBODY {
            return Bucket::Nobody;
        }
        if byte & SUSPENDED != 0 {
            return Bucket::Suspended;
        }
        match self.leaving.get(place) {
            Some(&left) if left != NOBODY => Bucket::Draining {
                to: Slot::of_bits(byte),
                from: Slot::of_bits(left),
            },
            _ => Bucket::Target(Slot::of_bits(byte)),
        }
    }

    /// Suspends a bucket, or ends its suspension; false where no target has it.
    pub(crate) fn set_suspended(&mut self, bucket: u32, is_suspended: bool) -> bool {
        let Some(byte) = self.buckets.get_mut(bucket as usize) else {
            return false;
        };
        if *byte == NOBODY {
            return false;
        }
        *byte &= SLOT_BITS;
        if is_suspended {
            *byte |= SUSPENDED;
        } else {
            self.mark_drain(bucket);
        }
        true
    }

    /// Marks a bucket that two targets have.
    fn mark_drain(&mut self, bucket: u32) {
        let place = bucket as usize;
        if let (Some(byte), Some(&left)) = (self.buckets.get_mut(place), self.leaving.get(place))
            && *byte != NOBODY
            && left != NOBODY
        {
            *byte |= DRAINING;
        }
    }
}

#[cfg(test)]
mod tests;
