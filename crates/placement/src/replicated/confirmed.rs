//! How far streams are held by enough members: what a host waits for that holds packets back (output commit).

use crate::MemberId;
use crate::mutant::{self, Mutant};

use super::replicator::Replicator;
use crate::membership::{MEMBERS_MAX, MemberIndex, Place};

impl Replicator {
    /// Up to where `copies` members besides one that may die at any time have a member's stream: of the own one, this host; of
    /// another's, its writer, while it takes part. So any `copies` hosts may die. Where fewer members take part, all of them.
    ///
    /// Zero for an unknown member. Costs a look at each member.
    #[must_use]
    pub fn confirmed(&self, origin: MemberId, copies: usize) -> u64 {
        let Some(index) = self.membership.index_of(origin) else {
            return 0;
        };
        if index == self.membership.me() {
            return self.own_confirmed(copies);
        }
        // This host has what it applied, and so has the writer.
        let others = match self.membership.is_present(index) {
            true => copies.saturating_sub(1),
            false => copies,
        };
        let mut applied = Copies::default();
        for peer in self.membership.places() {
            if peer != index && peer != self.membership.me() && self.membership.is_present(peer) {
                applied.note(self.reports.greatest(peer)[index.number()]);
            }
        }
        let received = self.progress.members[index].received;
        applied.held_by(others).unwrap_or(received).min(received)
    }

    fn own_confirmed(&self, copies: usize) -> u64 {
        if mutant::active(Mutant::ConfirmedWhenSent) {
            return self.own.sent_through();
        }
        let mut applied = Copies::default();
        for peer in self.membership.places() {
            if peer != self.membership.me() && self.membership.is_present(peer) {
                applied.note(self.acknowledged_by(peer));
            }
        }
        let head = self.log.head();
        applied.held_by(copies).unwrap_or(head).min(head)
    }

    fn acknowledged_by(&self, peer: MemberIndex) -> u64 {
        self.progress.members[peer].acknowledged
    }
}

/// How far each of some members applied a stream.
struct Copies {
    sequences: [u64; MEMBERS_MAX],
    count: usize,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies {
            sequences: [0; MEMBERS_MAX],
            count: 0,
        }
    }
}

impl Copies {
    fn note(&mut self, sequence: u64) {
        if let Some(place) = self.sequences.get_mut(self.count) {
            *place = sequence;
            self.count += 1;
        }
    }

    /// Up to where this many of them have it, or all if they are fewer; `None` if nobody is asked.
    fn held_by(&mut self, copies: usize) -> Option<u64> {
        let copies = match mutant::active(Mutant::ConfirmedByOneOfMany) {
            true => copies.min(1),
            false => copies.min(self.count),
        };
        let last = copies.checked_sub(1)?;
        let sequences = self.sequences.get_mut(..self.count)?;
        if sequences.is_empty() {
            return None;
        }
        let (_, sequence, _) = sequences.select_nth_unstable_by(last, |one, other| other.cmp(one));
        Some(*sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(sequences: &[u64], copies: usize) -> Option<u64> {
        let mut applied = Copies::default();
        sequences
            .iter()
            .for_each(|&sequence| applied.note(sequence));
        applied.held_by(copies)
    }

    #[test]
    fn as_many_as_are_asked_for_have_it_and_all_if_there_are_fewer() {
        assert_eq!(held_by(&[5, 9, 7], 1), Some(9));
        assert_eq!(held_by(&[5, 9, 7], 2), Some(7));
        assert_eq!(held_by(&[5, 9, 7], 3), Some(5));
        assert_eq!(held_by(&[5, 9, 7], 4), Some(5));
        assert_eq!(held_by(&[5, 9], 0), None);
        assert_eq!(held_by(&[], 2), None);
    }
}
