//! A set whose members have scores, in their order: what sorted-set commands work on.

use std::collections::{BTreeMap, BTreeSet};

/// A score as it sorts: no score is not a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}
impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Score {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        // Zero is zero, whatever its sign.
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

/// Members with their scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sorted {
    scores: BTreeMap<Vec<u8>, Score>,
    order: BTreeSet<(Score, Vec<u8>)>,
    bytes: usize,
}

/// One end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    pub(crate) score: Score,
    pub(crate) is_exclusive: bool,
}

impl Sorted {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }
    /// Bytes of the members.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).map(|score| score.0)
    }

    /// Gives a member this score. What it had before.
    pub(crate) fn add(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let before = self.scores.insert(member.to_vec(), Score(score));
        match before {
            Some(before) => _ = self.order.remove(&(before, member.to_vec())),
            None => self.bytes += member.len(),
        }
        self.order.insert((Score(score), member.to_vec()));
        before.map(|score| score.0)
    }

    /// Takes a member away. Whether there was one.
    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else {
            return false;
        };
        self.bytes -= member.len();
        self.order.remove(&(score, member.to_vec()))
    }

    /// Members with scores from one to another, in order.
    pub(crate) fn between(&self, from: Bound, to: Bound) -> impl Iterator<Item = (&[u8], f64)> {
        let each = self.order.range((from.score, Vec::new())..);
        let is_in = move |score: Score| match to.is_exclusive {
            true => score < to.score,
            false => score <= to.score,
        };
        each.skip_while(move |(score, _)| from.is_exclusive && *score == from.score)
            .take_while(move |(score, _)| is_in(*score))
            .map(|(score, member)| (member.as_slice(), score.0))
    }

    /// How many those are. Looks at those before them, or at themselves, whichever has no end.
    pub(crate) fn count(&self, from: Bound, to: Bound) -> usize {
        if to.score.0 != f64::INFINITY || to.is_exclusive {
            return self.between(from, to).count();
        }
        let is_before = |(score, _): &&(Score, Vec<u8>)| match from.is_exclusive {
            true => *score <= from.score,
            false => *score < from.score,
        };
        self.len() - self.order.iter().take_while(is_before).count()
    }

    /// All members, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&[u8], f64)> {
        let each = self.order.iter();
        each.map(|(score, member)| (member.as_slice(), score.0))
    }
}
