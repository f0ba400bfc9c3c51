//! Which groups each instance applied: each of another instance once, none of another incarnation's twice, and at rest all.
//!
//! Sums alone let a doubled group hide behind a missing one.

use std::collections::BTreeMap;

use asterism_engine::Cluster;
use asterism_placement::MemberId;
use asterism_state::OriginName;

use crate::checks::{Checked, instances, name};
use crate::exercise::Exercise;
use crate::oracle::Oracle;
use crate::report::Failure;

/// Greater numbers are those of groups that a scenario made up.
const SEQUENCE_MAX: u64 = 1 << 32;

/// The groups of one stream that an instance applied, a bit each.
#[derive(Clone, Debug, Default)]
struct Stream {
    words: Vec<u64>,
    count: u64,
}

impl Stream {
    /// Takes a group up; false if it was there.
    fn take(&mut self, sequence: u64) -> bool {
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    fn has(&self, sequence: u64) -> bool {
        let word = self.words.get((sequence / 64) as usize);
        word.is_some_and(|word| word >> (sequence % 64) & 1 != 0)
    }
}

/// What all instances applied.
#[derive(Debug, Default)]
pub struct Groups {
    /// By member and instance.
    applied: BTreeMap<(usize, usize), BTreeMap<OriginName, Stream>>,
}

impl Groups {
    /// The instances of a member are those of another incarnation.
    pub(crate) fn begins(&mut self, member: usize) {
        self.applied.retain(|at, _| at.0 != member);
    }

    /// Takes up what instances applied since the last time.
    ///
    /// # Errors
    /// A group was applied a second time.
    pub(crate) fn take(&mut self, cluster: &Cluster<Exercise>) -> Checked {
        for (at, instance) in instances(cluster) {
            let mut twice = None;
            let streams = self.applied.entry(at).or_default();
            instance.state().take_applied(|origin, sequence| {
                let is_made_up = sequence > SEQUENCE_MAX;
                if !is_made_up && !streams.entry(origin).or_default().take(sequence) {
                    twice = Some((origin, sequence));
                }
            });
            if let Some((origin, sequence)) = twice {
                return Err(Failure::new(
                    "each group once",
                    format!(
                        "{} applied group {sequence} of m{} (incarnation {}) again",
                        name(at),
                        origin.member,
                        origin.incarnation
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Once all is at rest each instance applied each group of the others: where no snapshot was joined, which brings what streams do not.
    pub(crate) fn are_complete(&self, cluster: &Cluster<Exercise>, oracle: &Oracle) -> Checked {
        for (at, instance) in instances(cluster) {
            let replicator = cluster.members()[at.0].channel.replicator();
            if replicator.counters().snapshot_chunks_delivered > 0 {
                continue;
            }
            for (place, member) in cluster.members().iter().enumerate() {
                let of = OriginName {
                    member: member.name.0,
                    incarnation: member.channel.config().incarnation.0,
                };
                let head = oracle.heads[place];
                let streams = self.applied.get(&at);
                let stream = streams.and_then(|streams| streams.get(&of));
                let applied = stream.map_or(0, |stream| stream.count);
                let own = match place == at.0 {
                    true => instance.tally().groups_written,
                    false => 0,
                };
                if applied + own != head {
                    let lacks = |sequence: &u64| !stream.is_some_and(|had| had.has(*sequence));
                    let first = (1..=head).find(lacks).filter(|_| own == 0);
                    return Err(Failure::new(
                        "each group once, and none left out",
                        format!(
                            "{} applied {applied} of the {head} groups of {:?}; the first that it lacks is {first:?}",
                            name(at),
                            MemberId(of.member),
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubled_group_does_not_hide_behind_a_missing_one() {
        let mut stream = Stream::default();
        assert!(stream.take(1) && stream.take(200));
        assert!(!stream.take(200), "a second time");
        assert_eq!(stream.count, 2);
        assert!(stream.has(1) && !stream.has(2) && stream.has(200) && !stream.has(9_999));
    }
}
