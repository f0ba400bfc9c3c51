//! Where members said that their streams begin for newcomers; `newcomers` has the protocol.

use super::pairs::Pairs;
use crate::membership::MemberIndex;

/// Where members said that their streams begin for a newcomer: row the member, column the newcomer.
#[derive(Debug)]
pub(super) struct Confirms {
    heads: Pairs<Option<u64>>,
}

impl Confirms {
    pub(super) fn new(members: usize) -> Confirms {
        Confirms {
            heads: Pairs::new(members),
        }
    }

    /// A member said that its stream begins after `head` for a newcomer.
    pub(super) fn note(&mut self, member: MemberIndex, newcomer: MemberIndex, head: u64) {
        self.heads[(member, newcomer)] = Some(head);
    }

    /// Where a member's stream begins for a newcomer; `None` until it said so.
    pub(super) fn of(&self, member: MemberIndex, newcomer: MemberIndex) -> Option<u64> {
        self.heads[(member, newcomer)]
    }

    /// A member's incarnation is another: what it confirmed, and what was confirmed to it, is void.
    pub(super) fn forget(&mut self, member: MemberIndex) {
        self.heads.forget(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Place;

    #[test]
    fn what_was_confirmed_to_an_incarnation_is_void_for_the_next() {
        let mut confirms = Confirms::new(2);
        let (first, second) = (MemberIndex::at(0), MemberIndex::at(1));
        confirms.note(first, second, 7);
        assert_eq!(confirms.of(first, second), Some(7));
        assert_eq!(confirms.of(second, first), None);
        confirms.forget(second);
        assert_eq!(confirms.of(first, second), None);
    }
}
