//! How far this member's joining is, and what members confirmed to newcomers; `newcomers` has the protocol.

use super::index::MemberIndex;
use super::pairs::Pairs;

/// How far this member's joining is, and what members confirmed to newcomers.
#[derive(Debug)]
pub(super) struct Joining {
    /// This member holds what the others hold.
    is_ready: bool,
    /// This member or another joins.
    is_under_way: bool,
    /// Where members said that their streams begin for a newcomer: row the member, column the newcomer.
    confirms: Pairs<Option<u64>>,
}

impl Joining {
    /// A member that does not join is ready from the start.
    pub(super) fn new(is_ready: bool, members: usize) -> Joining {
        Joining {
            is_ready,
            is_under_way: false,
            confirms: Pairs::new(members),
        }
    }

    /// Whether this member holds what the others hold.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether this member or another joins.
    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// This member has joined.
    pub(super) fn become_ready(&mut self) {
        debug_assert!(!self.is_ready, "a member joins once");
        self.is_ready = true;
    }

    /// Another member says that it joins.
    pub(super) fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// Judges again whether anybody joins; of the others `others_join` says it.
    pub(super) fn judge(&mut self, others_join: bool) {
        self.is_under_way = !self.is_ready || others_join;
    }

    /// A member said that its stream begins after `head` for a newcomer.
    pub(super) fn confirm(&mut self, member: MemberIndex, newcomer: MemberIndex, head: u64) {
        self.confirms[(member, newcomer)] = Some(head);
    }

    /// Where a member's stream begins for a newcomer; `None` until it said so.
    pub(super) fn confirmed(&self, member: MemberIndex, newcomer: MemberIndex) -> Option<u64> {
        self.confirms[(member, newcomer)]
    }

    /// A member's incarnation is another: what it confirmed, and what was confirmed to it, is void.
    pub(super) fn forget(&mut self, member: MemberIndex) {
        self.confirms.forget(member);
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::Place;
    use super::*;

    #[test]
    fn joining_is_under_way_until_nobody_joins() {
        let mut joining = Joining::new(false, 2);
        joining.judge(false);
        assert!(joining.is_under_way() && !joining.is_ready());
        joining.become_ready();
        joining.judge(false);
        assert!(joining.is_ready() && !joining.is_under_way());
        joining.begin();
        assert!(joining.is_under_way());
        joining.judge(true);
        assert!(joining.is_under_way(), "another one still joins");
    }

    #[test]
    fn what_was_confirmed_to_an_incarnation_is_void_for_the_next() {
        let mut joining = Joining::new(true, 2);
        let (first, second) = (MemberIndex::at(0), MemberIndex::at(1));
        joining.confirm(first, second, 7);
        assert_eq!(joining.confirmed(first, second), Some(7));
        assert_eq!(joining.confirmed(second, first), None);
        joining.forget(second);
        assert_eq!(joining.confirmed(first, second), None);
    }
}
