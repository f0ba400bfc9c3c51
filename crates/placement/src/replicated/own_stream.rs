//! How far the own stream is: committed, submitted to the log, sent, and what others may have of it.

use crate::Time;

/// The places of the own stream. The log knows how far it is submitted: its *head*.
#[derive(Debug, Default)]
pub(super) struct OwnStream {
    /// The last sequence that was sent, or that nobody needs to be sent any more.
    sent: u64,
    /// The last sequence that is known to be committed, submitted or not.
    committed: u64,
    /// The greatest sequence that others may have: sent, or named by a snapshot's vector.
    named: u64,
    /// When the oldest unsent group was submitted.
    unsent_since: Option<Time>,
    /// The timestamp with which groups were last sent for the first time.
    fresh_at: Time,
}

impl OwnStream {
    /// What holds after every change.
    fn assert_sound(&self, head: u64) {
        debug_assert!(self.sent <= self.named && self.named <= head);
        debug_assert_eq!(
            self.unsent_since.is_some(),
            self.sent < head,
            "unsent groups have an age"
        );
    }

    /// The last sequence that was sent, or that nobody needs to be sent any more.
    #[inline]
    pub(super) fn sent_through(&self) -> u64 {
        self.sent
    }

    /// The greatest sequence that others may have.
    pub(super) fn named_through(&self) -> u64 {
        self.named
    }

    /// When the oldest unsent group was submitted; `None` while all are sent.
    pub(super) fn unsent_since(&self) -> Option<Time> {
        self.unsent_since
    }

    /// The timestamp with which groups were last sent for the first time.
    pub(super) fn fresh_at(&self) -> Time {
        self.fresh_at
    }

    /// The head that messages name, where the log has reached `head`.
    pub(super) fn named_head(&self, head: u64) -> u64 {
        self.committed.max(head)
    }

    /// Groups are committed up to `sequence`.
    pub(super) fn commits(&mut self, sequence: u64) {
        self.committed = self.committed.max(sequence);
    }

    /// A group was submitted, and the log has reached it.
    #[inline]
    pub(super) fn submits(&mut self, now: Time, head: u64) {
        self.unsent_since.get_or_insert(now);
        self.assert_sound(head);
    }

    /// All of the log is named to others: in a snapshot's vector, or as where the stream begins for one of them.
    pub(super) fn names_all(&mut self, head: u64) {
        self.named = self.named.max(head);
        self.assert_sound(head);
    }

    /// Groups up to `last` went for the first time, in a message with this timestamp.
    pub(super) fn sends(&mut self, last: u64, head: u64, timestamp: Time) {
        debug_assert!(self.sent < last && last <= head);
        self.fresh_at = timestamp;
        self.reaches(last, head);
    }

    /// The log was pruned: what was pruned before it was ever sent is covered by the snapshots of all who lack it.
    pub(super) fn prunes(&mut self, pruned: u64, head: u64) {
        self.reaches(pruned, head);
    }

    fn reaches(&mut self, sequence: u64, head: u64) {
        self.sent = self.sent.max(sequence);
        self.named = self.named.max(self.sent);
        if self.sent == head {
            self.unsent_since = None;
        }
        self.assert_sound(head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_unsent_until_they_go_or_are_pruned() {
        let mut own = OwnStream::default();
        own.submits(Time(5), 1);
        own.submits(Time(6), 2);
        own.submits(Time(7), 3);
        assert_eq!((own.unsent_since(), own.sent_through()), (Some(Time(5)), 0));
        own.sends(2, 3, Time(8));
        assert_eq!((own.fresh_at(), own.sent_through()), (Time(8), 2));
        assert_eq!(
            own.unsent_since(),
            Some(Time(5)),
            "of the third no more is known"
        );
        own.prunes(1, 3);
        assert_eq!(own.sent_through(), 2, "it never goes back");
        own.prunes(3, 3);
        assert_eq!((own.unsent_since(), own.sent_through()), (None, 3));
    }

    #[test]
    fn others_may_have_what_was_named_and_what_is_committed_is_the_head() {
        let mut own = OwnStream::default();
        own.submits(Time(1), 1);
        assert_eq!(own.named_through(), 0);
        own.names_all(1);
        assert_eq!((own.named_through(), own.sent_through()), (1, 0));
        own.commits(9);
        own.commits(4);
        assert_eq!((own.named_head(1), own.named_head(12)), (9, 12));
    }
}
