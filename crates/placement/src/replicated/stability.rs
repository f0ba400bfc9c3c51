//! Which groups are stable: every member that takes part has applied them, and what it wrote before it did is applied here (rule 14).

use super::pairs::Pairs;
use crate::membership::{MemberIndex, MemberSet};

/// What members applied of each other's streams, as far as it counts for stability.
#[derive(Debug)]
pub(super) struct Stability {
    /// Row the member, column the origin.
    counted: Pairs<u64>,
    /// An incarnation that an epoch ended is not closed: until it is, nothing more counts as stable, since others may bring what it
    /// wrote.
    frozen: bool,
}

impl Stability {
    pub(super) fn new(members: usize) -> Stability {
        Stability {
            counted: Pairs::new(members),
            frozen: false,
        }
    }

    /// How far a member applied an origin's stream.
    pub(super) fn applied(&self, member: MemberIndex, origin: MemberIndex) -> u64 {
        self.counted[(member, origin)]
    }

    /// A member has applied an origin's stream up to `sequence`. Whether the origin's stable sequence may be another now that was
    /// `stable`: only the member that was last can have held it back.
    pub(super) fn count(
        &mut self,
        member: MemberIndex,
        origin: MemberIndex,
        sequence: u64,
        stable: u64,
    ) -> bool {
        let counted = &mut self.counted[(member, origin)];
        let before = *counted;
        if sequence <= before {
            return false;
        }
        *counted = sequence;
        before <= stable && !self.frozen
    }

    /// Up to where all members that are `present` applied an origin's stream; 0 if none is.
    pub(super) fn of(&self, origin: MemberIndex, present: MemberSet) -> u64 {
        let applied = present.iter().map(|member| self.applied(member, origin));
        applied.min().unwrap_or(0)
    }

    /// Whether nothing more counts as stable.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// From now on nothing more counts as stable, or it does again.
    pub(super) fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// Another incarnation of a member: nothing of it and of its stream counts.
    pub(super) fn forget(&mut self, member: MemberIndex) {
        self.counted.forget(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Place;

    #[test]
    fn the_last_member_that_takes_part_says_what_is_stable() {
        let mut stability = Stability::new(3);
        let [first, origin, last] = [0, 1, 2].map(MemberIndex::at);
        let all = MemberSet::of(first).with(origin).with(last);
        let two = all.without(origin);
        assert!(stability.count(first, origin, 7, 0));
        assert!(!stability.count(first, origin, 5, 0), "it never goes back");
        assert!(stability.count(last, origin, 4, 0));
        assert_eq!(stability.of(origin, all), 0);
        assert_eq!(stability.of(origin, two), 4);
        assert!(!stability.count(first, origin, 9, 4), "it was not the last");
        stability.freeze(true);
        assert!(
            !stability.count(last, origin, 8, 4),
            "nothing counts meanwhile"
        );
        stability.freeze(false);
        assert_eq!(stability.of(origin, two), 8);
        stability.forget(last);
        assert_eq!(stability.of(origin, two), 0);
        assert_eq!(stability.of(origin, MemberSet::EMPTY), 0);
    }
}
