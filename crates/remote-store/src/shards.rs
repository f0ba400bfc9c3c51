//! Shards of a store: servers each of which has whole conversations, such as one beside each host.
//!
//! All that two addresses say to each other is one *conversation*. Its packets read and write entries of one shard alone, so a packet's
//! transaction is one shard's, as it is of a store without shards. Which shard has a conversation follows from its hash, the names of the
//! shards and a seed, by the same rule as directors use for hosts: where shards are named as hosts are and directors spread by conversation,
//! a packet comes to the host that its shard is beside.

use std::sync::Arc;

use asterism_memory::hash;
use asterism_rendezvous::{Target, assign, flow_seed};

/// The most shards.
pub const SHARDS_MAX: usize = 64;

/// Which shard of a store has a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    names: Vec<String>,
    seed: u64,
    /// The shard of each bucket; a power of two of them.
    buckets: Box<[u8]>,
}

impl Shards {
    /// Shards of these names. `buckets`, a power of two, and `seed` are those of directors that are to spread likewise. `None` without names, with more than
    /// [`SHARDS_MAX`], and of another number of buckets.
    #[must_use]
    pub fn new(names: &[String], (buckets, seed): (u32, u64)) -> Option<Self> {
        if names.len() > SHARDS_MAX || !buckets.is_power_of_two() {
            return None;
        }
        let names_of = names.iter().map(String::as_str);
        let targets: Vec<_> = names_of.map(|name| Target { name, weight: 1 }).collect();
        let assigned = assign(buckets, seed, &targets).into_iter();
        let places = assigned.map(|place| Some(place? as u8));
        Some(Self {
            names: names.to_vec(),
            seed,
            buckets: places.collect::<Option<_>>()?,
        })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Their names, by their places.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A number that those who divide conversations alike have in common, and others but by chance.
    #[must_use]
    pub fn digest(&self, seed: u64) -> u64 {
        let names = self.names.iter().map(|name| name.as_bytes());
        let names = names.fold(
            hash::words(self.seed, self.buckets.len() as u64, seed),
            |sum, name| hash::bytes(name, sum),
        );
        hash::bytes(&self.buckets, names)
    }

    /// With which seed conversations are hashed.
    #[must_use]
    pub fn conversation_seed(&self) -> u64 {
        flow_seed(self.seed)
    }

    /// The place of the shard that has a conversation.
    #[must_use]
    pub fn of(&self, conversation: u64) -> usize {
        let bucket = conversation as usize & (self.buckets.len() - 1);
        self.buckets.get(bucket).copied().unwrap_or(0).into()
    }
}

/// One of several shards.
#[derive(Clone, Debug)]
pub struct Shard {
    /// All of them.
    pub all: Arc<Shards>,
    /// Its place.
    pub place: usize,
}

impl Shard {
    /// Whether it has a conversation.
    pub(crate) fn has(&self, conversation: u64) -> bool {
        self.all.of(conversation) == self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(count: usize) -> Vec<String> {
        (0..count).map(|place| format!("host-{place}")).collect()
    }

    #[test]
    fn conversations_are_spread_evenly_and_a_shard_less_moves_its_own_alone() {
        let (three, two) = (named(3), named(2));
        let three = Shards::new(&three, (16_384, 5)).expect("three shards");
        let two = Shards::new(&two, (16_384, 5)).expect("two shards");
        let mut counts = [0; 3];
        for conversation in 0..16_384 {
            let place = three.of(conversation);
            counts[place] += 1;
            if place < 2 {
                assert_eq!(two.of(conversation), place);
            }
        }
        let even = 16_384 / 3;
        assert!(
            counts
                .iter()
                .all(|count| (even - 300..even + 300).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn what_are_no_shards_is_refused() {
        assert_eq!(Shards::new(&[], (256, 1)), None);
        assert_eq!(Shards::new(&named(SHARDS_MAX + 1), (256, 1)), None);
        assert_eq!(Shards::new(&named(2), (255, 1)), None);
        assert!(Shards::new(&named(SHARDS_MAX), (256, 1)).is_some());
    }
}
