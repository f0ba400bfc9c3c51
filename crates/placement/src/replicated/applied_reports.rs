//! What members reported that they applied of each stream.

use super::pairs::Pairs;
use crate::membership::{ByMember, MemberIndex};

/// What members reported, and what the message being taken reports.
#[derive(Debug)]
pub(super) struct AppliedReports {
    /// The greatest sequences that were ever reported: row the member, column the origin.
    greatest: Pairs<u64>,
    /// Those of the message being taken; 0 where it reports nothing.
    message: ByMember<u64>,
}

impl AppliedReports {
    pub(super) fn new(members: usize) -> AppliedReports {
        AppliedReports {
            greatest: Pairs::new(members),
            message: ByMember::filled(0, members),
        }
    }

    /// The message being taken says that its sender applied an origin's stream up to `sequence`.
    pub(super) fn report(&mut self, sender: MemberIndex, origin: MemberIndex, sequence: u64) {
        let greatest = &mut self.greatest[(sender, origin)];
        *greatest = (*greatest).max(sequence);
        let message = &mut self.message[origin];
        *message = (*message).max(sequence);
        debug_assert!(self.message[origin] <= self.greatest[(sender, origin)]);
    }

    /// The sender does not report its own stream: what it has committed it has applied.
    pub(super) fn imply(&mut self, sender: MemberIndex, head: u64) {
        self.message[sender] = head;
    }

    /// What the message being taken reports.
    pub(super) fn message(&self) -> &ByMember<u64> {
        &self.message
    }

    /// The message is taken.
    pub(super) fn end_message(&mut self) {
        self.message.fill(0);
    }

    /// The greatest sequences that a member reported, by origin.
    pub(super) fn greatest(&self, member: MemberIndex) -> &[u64] {
        self.greatest.row(member)
    }

    /// Another incarnation of a member: nothing that it reported, or that others reported of it, counts.
    pub(super) fn forget(&mut self, member: MemberIndex) {
        self.greatest.forget(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Place;

    #[test]
    fn a_message_ends_and_what_it_reported_stays() {
        let mut reports = AppliedReports::new(2);
        let (sender, origin) = (MemberIndex::at(0), MemberIndex::at(1));
        reports.report(sender, origin, 7);
        reports.imply(sender, 3);
        assert_eq!(reports.message().as_slice(), [3, 7]);
        reports.end_message();
        reports.report(sender, origin, 5);
        assert_eq!(reports.message().as_slice(), [0, 5], "an older message");
        assert_eq!(reports.greatest(sender), [0, 7]);
        reports.forget(origin);
        assert_eq!(reports.greatest(sender), [0, 0]);
    }
}
