//! The members of the configuration in the order of their names, and which of them is this one.

use crate::MemberId;

use super::index::{ByMember, MemberIndex, PeerIndex, Place};

/// All members in the order of their names.
#[derive(Debug)]
pub(super) struct Order {
    names: ByMember<MemberId>,
    me: MemberIndex,
}

impl Order {
    /// Of these names, each once, in any order; one of them is the own one.
    pub(super) fn new(names: &[MemberId], own: MemberId) -> Order {
        let mut names = names.to_vec();
        names.sort_unstable();
        let me = names.partition_point(|&name| name < own);
        let order = Order {
            names: names.into_iter().collect(),
            me: MemberIndex::at(me),
        };
        debug_assert!(order.names.as_slice().is_sorted_by(|one, next| one < next));
        order
    }

    /// How many there are, this one included.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The names of all, in order.
    pub(super) fn names(&self) -> &ByMember<MemberId> {
        &self.names
    }

    /// All places.
    pub(super) fn places(&self) -> impl Iterator<Item = MemberIndex> + use<> {
        self.names.places()
    }

    /// The own place.
    #[inline]
    pub(super) fn me(&self) -> MemberIndex {
        self.me
    }

    /// A member's place; `None` for a name that no configuration lists.
    #[inline]
    pub(super) fn index_of(&self, name: MemberId) -> Option<MemberIndex> {
        let place = self.names.as_slice().binary_search(&name).ok()?;
        Some(MemberIndex::at(place))
    }

    /// The place of another member among the others.
    #[inline]
    pub(super) fn peer_of(&self, name: MemberId) -> Option<PeerIndex> {
        self.peer(self.index_of(name)?)
    }

    /// A member's place among the others; `None` for this member.
    #[inline]
    pub(super) fn peer(&self, index: MemberIndex) -> Option<PeerIndex> {
        let (place, own) = (index.number(), self.me.number());
        (place != own).then(|| PeerIndex::at(place - usize::from(place > own)))
    }

    /// The place among all of another member.
    #[inline]
    pub(super) fn index(&self, peer_index: PeerIndex) -> MemberIndex {
        let place = peer_index.number();
        MemberIndex::at(place + usize::from(place >= self.me.number()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_follows_the_names_and_the_peers_leave_this_member_out() {
        for (own, peers) in [(10, [20, 30]), (20, [10, 30]), (30, [10, 20])] {
            let order = Order::new(&[30, 10, 20].map(MemberId), MemberId(own));
            assert_eq!(order.names()[order.me()], MemberId(own));
            assert_eq!(order.peer_of(MemberId(own)), None);
            for (place, name) in peers.into_iter().enumerate() {
                let peer = PeerIndex::at(place);
                assert_eq!(order.names()[order.index(peer)], MemberId(name));
                assert_eq!(order.peer_of(MemberId(name)), Some(peer));
            }
            assert_eq!(order.index_of(MemberId(15)), None);
        }
    }
}
