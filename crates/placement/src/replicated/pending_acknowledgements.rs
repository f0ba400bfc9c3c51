//! What a member said that counts only once its own stream is applied here up to where it then was (rule 14).
//!
//! Every message names its sender's log head. What the message implies (an acknowledgement vector, that everything
//! committed before some moment is below that head) holds here when that head is applied here. Until then it waits as a
//! mark. When too many wait, the newest are merged under the later head: they count later, never earlier.

use std::collections::VecDeque;

use crate::Time;

use crate::membership::{ByMember, MemberIndex};

/// The most marks pending for a member. At least two, so that the oldest is never put off.
const MARKS_MAX: usize = 8;

/// What one member said, still pending.
#[derive(Debug)]
pub(super) struct PendingAcknowledgements {
    pending: VecDeque<Mark>,
    /// Vectors of marks not in use, for reuse.
    spare: Vec<ByMember<u64>>,
}

/// What holds once the stream is applied up to `head`.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) head: u64,
    /// When the oldest message behind this mark arrived.
    pub(super) heard: Time,
    /// What the member had committed at this local time is then covered.
    pub(super) covered: Time,
    /// What the member had then applied of each origin; 0 where it did not say.
    pub(super) vector: ByMember<u64>,
}

impl PendingAcknowledgements {
    pub(super) fn new(members: usize) -> PendingAcknowledgements {
        PendingAcknowledgements {
            pending: VecDeque::with_capacity(MARKS_MAX),
            spare: vec![ByMember::filled(0, members); MARKS_MAX],
        }
    }

    /// What holds after every change.
    fn assert_sound(&self) {
        debug_assert!(
            self.pending.len() + self.spare.len() <= MARKS_MAX,
            "none is made later"
        );
        let heads = self.pending.iter().map(|mark| mark.head);
        debug_assert!(heads.is_sorted_by(|one, next| one < next));
    }

    /// A mark under this head, with whatever it already has. `merged` tells when it stands for a later head.
    pub(super) fn at(&mut self, head: u64, now: Time, merged: &mut bool) -> &mut Mark {
        let index = self.pending.partition_point(|mark| mark.head < head);
        if self.pending.get(index).is_none_or(|mark| mark.head != head)
            && let Some(mut vector) = self.spare.pop()
        {
            vector.fill(0);
            self.pending.insert(
                index,
                Mark {
                    head,
                    heard: now,
                    covered: Time::ZERO,
                    vector,
                },
            );
            self.assert_sound();
            return &mut self.pending[index];
        }
        // No room: what is said waits under the next later head, or the last mark moves up.
        let index = index.min(self.pending.len() - 1);
        let mark = &mut self.pending[index];
        *merged = mark.head != head;
        mark.head = mark.head.max(head);
        self.assert_sound();
        &mut self.pending[index]
    }

    /// What is pending of one origin was said of another stream than the present one.
    pub(super) fn forget(&mut self, index: MemberIndex) {
        for mark in &mut self.pending {
            mark.vector[index] = 0;
        }
    }

    /// The oldest mark whose head is applied; give it back with [`PendingAcknowledgements::recycle`].
    pub(super) fn settle(&mut self, applied: u64) -> Option<Mark> {
        if self.pending.front()?.head <= applied {
            self.pending.pop_front()
        } else {
            None
        }
    }

    pub(super) fn recycle(&mut self, mark: Mark) {
        self.spare.push(mark.vector);
        self.assert_sound();
    }

    /// When the oldest head still pending was heard.
    pub(super) fn behind_since(&self) -> Option<Time> {
        self.pending.front().map(|mark| mark.heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Place;

    #[test]
    fn marks_settle_in_order_and_never_early() {
        let mut pending_acknowledgements = PendingAcknowledgements::new(2);
        for head in 1..=100 {
            let mark = pending_acknowledgements.at(head, Time(head), &mut false);
            mark.covered = mark.covered.max(Time(head));
            mark.vector[MemberIndex::at(1)] = head;
        }
        let mut settled = Vec::new();
        for applied in 0..=100 {
            while let Some(mark) = pending_acknowledgements.settle(applied) {
                assert!(mark.covered.0 <= applied && mark.vector[MemberIndex::at(1)] <= applied);
                settled.push(mark.covered.0);
                pending_acknowledgements.recycle(mark);
            }
        }
        assert_eq!(settled, [1, 2, 3, 4, 5, 6, 7, 100]);
        assert_eq!(pending_acknowledgements.behind_since(), None);
    }

    #[test]
    fn an_old_message_lands_under_the_next_later_head() {
        let mut pending_acknowledgements = PendingAcknowledgements::new(1);
        for head in (10..=80).step_by(10) {
            pending_acknowledgements.at(head, Time(1), &mut false);
        }
        let mut merged = false;
        assert_eq!(
            pending_acknowledgements.at(35, Time(2), &mut merged).head,
            40
        );
        assert!(merged);
        assert_eq!(
            pending_acknowledgements.at(40, Time(2), &mut false).head,
            40
        );
    }
}
