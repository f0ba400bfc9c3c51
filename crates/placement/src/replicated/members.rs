//! The members of the configuration: their order, which of them is this one, and which take part in the epoch.

use crate::MemberId;

use super::config::Config;
use super::index::{ByMember, MemberIndex, MemberSet, PeerIndex, Place};

/// All members in the order of their names.
#[derive(Debug)]
pub(super) struct Members {
    names: ByMember<MemberId>,
    me: MemberIndex,
    /// Who takes part in the epoch.
    present: MemberSet,
}

impl Members {
    /// All of the configuration take part, or, if this member joins, nobody does yet.
    pub(super) fn new(config: &Config) -> Members {
        let mut names = config.members.clone();
        names.sort_unstable();
        let me = names.partition_point(|&name| name < config.member);
        let names: ByMember<MemberId> = names.into_iter().collect();
        let present = match config.joins {
            true => MemberSet::EMPTY,
            false => names.places().collect(),
        };
        let members = Members {
            me: MemberIndex::at(me),
            names,
            present,
        };
        members.assert_sound();
        members
    }

    /// What holds after every change.
    fn assert_sound(&self) {
        debug_assert!(self.names.as_slice().is_sorted_by(|one, next| one < next));
        debug_assert!(
            self.names
                .places()
                .collect::<MemberSet>()
                .has_all(self.present)
        );
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

    /// Whether a member takes part in the epoch.
    #[inline]
    pub(super) fn is_present(&self, index: MemberIndex) -> bool {
        self.present.has(index)
    }

    /// Whether another member takes part in the epoch.
    #[inline]
    pub(super) fn is_peer_present(&self, peer_index: PeerIndex) -> bool {
        self.present.has(self.index(peer_index))
    }

    /// Whether this member takes part in the epoch.
    #[inline]
    pub(super) fn am_present(&self) -> bool {
        self.present.has(self.me)
    }

    /// Who takes part in the epoch.
    pub(super) fn present(&self) -> MemberSet {
        self.present
    }

    /// A member takes part from now on, or does no more.
    pub(super) fn set_present(&mut self, index: MemberIndex, is_present: bool) {
        self.present = match is_present {
            true => self.present.with(index),
            false => self.present.without(index),
        };
        self.assert_sound();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterId, Epoch, Incarnation};

    fn members(own: u16) -> Members {
        let names = [30, 10, 20].map(MemberId).to_vec();
        Members::new(&Config::new(
            ClusterId(1),
            Epoch(1),
            MemberId(own),
            Incarnation(1),
            names,
        ))
    }

    #[test]
    fn each_order_follows_the_names_and_the_peers_leave_this_member_out() {
        for (own, peers) in [(10, [20, 30]), (20, [10, 30]), (30, [10, 20])] {
            let members = members(own);
            assert_eq!(members.names()[members.me()], MemberId(own));
            assert_eq!(members.peer_of(MemberId(own)), None);
            for (place, name) in peers.into_iter().enumerate() {
                let peer = PeerIndex::at(place);
                assert_eq!(members.names()[members.index(peer)], MemberId(name));
                assert_eq!(members.peer_of(MemberId(name)), Some(peer));
            }
            assert_eq!(members.index_of(MemberId(15)), None);
        }
    }

    #[test]
    fn a_member_that_is_left_out_is_not_present() {
        let mut members = members(20);
        let last = members.index_of(MemberId(30)).expect("it is listed");
        assert!(members.am_present() && members.is_present(last));
        members.set_present(last, false);
        assert_eq!(members.present().len(), 2);
        assert!(
            !members.is_peer_present(PeerIndex::at(1)) && members.is_peer_present(PeerIndex::at(0))
        );
        members.set_present(last, true);
        assert!(members.is_present(last));
    }
}
