//! The epoch in force: who takes part, in which incarnation, who joins and who leaves (rules 23 and 25).

use crate::branch::{Branch, taken};
use crate::envelope::{Header, Refused};
use crate::mutant::{self, Mutant};
use crate::{ClusterId, Epoch, Incarnation, MemberId, Time};

use super::index::{ByMember, ByPeer, MemberIndex, MemberSet, PeerIndex};
use super::leaving::Leaving;
use super::order::Order;
use super::roster::{InstallError, Roster};

/// The members of a cluster as this one knows them.
#[derive(Debug)]
pub(crate) struct Membership {
    cluster: ClusterId,
    epoch: Epoch,
    own: MemberId,
    /// Of this member.
    incarnation: Incarnation,
    order: Order,
    /// Who takes part in the epoch.
    present: MemberSet,
    others: ByPeer<Other>,
    /// No roster may be too old: this member joins, and none is installed yet.
    awaits_first_roster: bool,
    /// This member holds what the others hold.
    is_ready: bool,
    /// This member or another joins.
    is_join_under_way: bool,
    leaving: Leaving,
}

/// What is known of another member besides its name.
#[derive(Clone, Copy, Debug)]
struct Other {
    /// `None` until the epoch names it, or it is heard.
    incarnation: Option<Incarnation>,
    /// The epoch that first named its incarnation, as far as this member knows.
    named_at: Epoch,
    /// It has not joined a snapshot yet.
    joining: bool,
    /// The message being taken said so.
    announced: bool,
    /// It said that it commits nothing more.
    leaving: bool,
}

/// What a roster changes for another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It took no part, and takes none.
    Absent,
    /// It goes on.
    Stays,
    /// Its incarnation ends, another begins, or both.
    Replaced {
        /// The incarnation that ended, if one was known.
        ended: Option<Incarnation>,
        /// Whether it takes part from now on.
        begins: bool,
    },
}

impl Membership {
    /// The members of a configuration. All of them take part, or, if this member `joins`, nobody does yet.
    pub(crate) fn new(
        (cluster, epoch): (ClusterId, Epoch),
        (own, incarnation): (MemberId, Incarnation),
        members: &[MemberId],
        joins: bool,
    ) -> Membership {
        let order = Order::new(members, own);
        let other = Other {
            incarnation: None,
            named_at: epoch,
            joining: false,
            announced: false,
            leaving: false,
        };
        let membership = Membership {
            cluster,
            epoch,
            own,
            incarnation,
            present: match joins {
                true => MemberSet::EMPTY,
                false => order.places().collect(),
            },
            others: ByPeer::filled(other, order.len() - 1),
            order,
            awaits_first_roster: joins,
            is_ready: !joins,
            is_join_under_way: false,
            leaving: Leaving::default(),
        };
        membership.assert_sound();
        membership
    }

    /// What holds after every change.
    fn assert_sound(&self) {
        debug_assert!(
            self.order
                .places()
                .collect::<MemberSet>()
                .has_all(self.present)
        );
    }

    /// The cluster.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The epoch in force.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// This member's incarnation.
    pub(crate) fn own_incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// How many members there are, this one included.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The names of all, in order.
    pub(crate) fn names(&self) -> &ByMember<MemberId> {
        self.order.names()
    }

    /// All places.
    pub(crate) fn places(&self) -> impl Iterator<Item = MemberIndex> + use<> {
        self.order.places()
    }

    /// The own place.
    #[inline]
    pub(crate) fn me(&self) -> MemberIndex {
        self.order.me()
    }

    /// A member's place; `None` for a name that no configuration lists.
    #[inline]
    pub(crate) fn index_of(&self, name: MemberId) -> Option<MemberIndex> {
        self.order.index_of(name)
    }

    /// The place of another member among the others.
    #[inline]
    pub(crate) fn peer_of(&self, name: MemberId) -> Option<PeerIndex> {
        self.order.peer_of(name)
    }

    /// A member's place among the others; `None` for this member.
    #[inline]
    pub(crate) fn peer(&self, index: MemberIndex) -> Option<PeerIndex> {
        self.order.peer(index)
    }

    /// The place among all of another member.
    #[inline]
    pub(crate) fn index(&self, peer_index: PeerIndex) -> MemberIndex {
        self.order.index(peer_index)
    }

    /// Whether a member takes part in the epoch.
    #[inline]
    pub(crate) fn is_present(&self, index: MemberIndex) -> bool {
        self.present.has(index)
    }

    /// Whether another member takes part in the epoch.
    #[inline]
    pub(crate) fn is_peer_present(&self, peer_index: PeerIndex) -> bool {
        self.present.has(self.index(peer_index))
    }

    /// Whether this member takes part in the epoch.
    #[inline]
    pub(crate) fn am_present(&self) -> bool {
        self.present.has(self.me())
    }

    /// Who takes part in the epoch.
    #[inline]
    pub(crate) fn present(&self) -> MemberSet {
        self.present
    }

    /// Another member's incarnation; `None` until it is known.
    #[inline]
    pub(crate) fn incarnation(&self, peer_index: PeerIndex) -> Option<Incarnation> {
        self.others[peer_index].incarnation
    }

    /// The epoch that first named another member's incarnation, as far as this member knows.
    pub(crate) fn named_at(&self, peer_index: PeerIndex) -> Epoch {
        self.others[peer_index].named_at
    }

    /// Whether the sender of a message is another member of the epoch, in the incarnation that is known.
    pub(crate) fn check_sender(
        &self,
        from: MemberId,
        incarnation: Incarnation,
    ) -> Result<PeerIndex, Refused> {
        if from == self.own {
            return Err(Refused::OwnIdentity);
        }
        let peer_index = self.peer_of(from).ok_or(Refused::UnknownMember)?;
        if !self.is_peer_present(peer_index) {
            return Err(Refused::UnknownMember);
        }
        let known = self.others[peer_index].incarnation;
        if known.is_some_and(|known| known != incarnation)
            && !mutant::active(Mutant::AnyIncarnation)
        {
            return Err(Refused::WrongIncarnation);
        }
        Ok(peer_index)
    }

    /// Whether a message is of this cluster and of the epoch in force.
    pub(crate) fn check_header(&self, header: &Header<'_>) -> Result<(), Refused> {
        if header.cluster != self.cluster {
            return Err(Refused::WrongCluster);
        }
        if header.epoch != self.epoch && !mutant::active(Mutant::AnyEpoch) {
            return Err(Refused::WrongEpoch);
        }
        Ok(())
    }

    /// Another member was heard in an incarnation. True if that binds it: none was known.
    #[inline]
    pub(crate) fn hears(&mut self, peer_index: PeerIndex, incarnation: Incarnation) -> bool {
        let known = &mut self.others[peer_index].incarnation;
        known.is_none() && {
            *known = Some(incarnation);
            true
        }
    }

    /// Whether a roster may be put in force.
    pub(crate) fn check_roster(&self, roster: &Roster) -> Result<(), InstallError> {
        let is_old = match mutant::active(Mutant::SameEpochAgain) {
            true => roster.epoch < self.epoch,
            false => roster.epoch <= self.epoch,
        };
        if is_old && !self.awaits_first_roster {
            taken(Branch::RosterNotNewer);
            return Err(InstallError::NotNewer {
                installed: self.epoch,
            });
        }
        for (place, (member, _)) in roster.members.iter().enumerate() {
            let twice = roster.members[..place]
                .iter()
                .any(|(name, _)| name == member);
            if twice || self.index_of(*member).is_none() {
                return Err(InstallError::Unknown(*member));
            }
        }
        match roster.named(self.own) {
            None => {
                taken(Branch::RosterEvicts);
                Err(InstallError::Evicted)
            }
            Some(Some(named)) if named != self.incarnation => {
                taken(Branch::RosterOtherIncarnation);
                Err(InstallError::OtherIncarnation { named })
            }
            Some(_) => Ok(()),
        }
    }

    /// A roster that was checked is in force, of which this member is a part. Each other member changes with
    /// [`change`](Membership::change).
    pub(crate) fn begin_epoch(&mut self, roster: &Roster) {
        debug_assert!(roster.named(self.own).is_some(), "it was checked");
        self.epoch = roster.epoch;
        self.awaits_first_roster = false;
        self.set_present(self.me(), true);
    }

    /// What the roster in force changes for another member. From now on it takes part in the incarnation that the roster names, or
    /// does not take part.
    pub(crate) fn change(&mut self, peer_index: PeerIndex, roster: &Roster) -> Change {
        let index = self.index(peer_index);
        let was_present = self.is_present(index);
        let named = roster.named(self.names()[index]);
        let other = &mut self.others[peer_index];
        let stays = was_present
            && named.is_some_and(|named| {
                named.is_none()
                    || other.incarnation.is_none()
                    || named == other.incarnation
                    || mutant::active(Mutant::RestartTakenForOld)
            });
        if stays {
            taken(Branch::MemberStays);
            other.incarnation = other.incarnation.or(named.flatten());
            return Change::Stays;
        }
        if !was_present && named.is_none() {
            return Change::Absent;
        }
        let ended = other.incarnation;
        let begins = named.is_some();
        *other = Other {
            incarnation: named.flatten(),
            named_at: self.epoch,
            // Whatever was committed so far, a snapshot brings it.
            joining: begins && self.is_ready,
            announced: false,
            leaving: false,
        };
        taken(match (was_present, begins) {
            (true, true) => Branch::MemberReplaced,
            (false, true) => Branch::MemberBegins,
            (_, false) => Branch::MemberLeft,
        });
        self.set_present(index, begins);
        Change::Replaced { ended, begins }
    }

    fn set_present(&mut self, index: MemberIndex, is_present: bool) {
        self.present = match is_present {
            true => self.present.with(index),
            false => self.present.without(index),
        };
        self.assert_sound();
    }

    /// Whether this member holds what the others hold.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// This member has joined.
    pub(crate) fn become_ready(&mut self) {
        debug_assert!(!self.is_ready, "a member joins once");
        self.is_ready = true;
    }

    /// Whether another member joins: it holds no snapshot yet, as it says itself.
    #[inline]
    pub(crate) fn is_joining(&self, peer_index: PeerIndex) -> bool {
        self.others[peer_index].joining
    }

    /// The message that is being taken says that its sender joins.
    pub(crate) fn announces_join(&mut self, peer_index: PeerIndex) {
        self.others[peer_index].announced = true;
    }

    /// Whether the message that is being taken says that its sender joins.
    pub(crate) fn is_join_announced(&self, peer_index: PeerIndex) -> bool {
        self.others[peer_index].announced
    }

    /// A message was taken whole. What it says of its sender's joining, if it says anything: one that has acknowledgements does.
    pub(crate) fn end_message(
        &mut self,
        peer_index: PeerIndex,
        acknowledges: bool,
    ) -> Option<bool> {
        let other = &mut self.others[peer_index];
        let announced = core::mem::take(&mut other.announced);
        if !acknowledges && !announced {
            return None;
        }
        other.joining = announced;
        if announced {
            self.is_join_under_way = true;
        }
        Some(announced)
    }

    /// Whether this member or another joins.
    #[inline]
    pub(crate) fn is_join_under_way(&self) -> bool {
        self.is_join_under_way
    }

    /// Another member says that it joins.
    pub(crate) fn begin_join(&mut self) {
        self.is_join_under_way = true;
    }

    /// Judges again whether anybody joins.
    pub(crate) fn judge_joins(&mut self) {
        let others_join = self.others.iter().any(|other| other.joining);
        self.is_join_under_way = !self.is_ready || others_join;
    }

    /// Another member says that it commits nothing more and leaves. True if it says so for the first time.
    pub(crate) fn announces_leave(&mut self, peer_index: PeerIndex) -> bool {
        !core::mem::replace(&mut self.others[peer_index].leaving, true)
    }

    /// Whether another member leaves.
    pub(crate) fn is_peer_leaving(&self, peer_index: PeerIndex) -> bool {
        self.others[peer_index].leaving
    }

    /// Whether this member commits nothing more and leaves.
    #[inline]
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_leaving()
    }

    /// This member commits nothing more; its latest message had this timestamp.
    pub(crate) fn leave(&mut self, clock: Time) {
        self.leaving.begin(clock);
    }

    /// A message with this timestamp goes without the announcement of the own leave.
    #[inline]
    pub(crate) fn sends_leave_unannounced(&mut self, clock: Time) {
        self.leaving.sends_unannounced(clock);
    }

    /// Whether a member that echoed this timestamp has seen the announcement of the own leave.
    pub(crate) fn is_leave_seen_by(&self, echoed: Time) -> bool {
        self.leaving.is_seen_by(echoed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [MemberId; 3] = [MemberId(30), MemberId(10), MemberId(20)];

    fn member(joins: bool) -> Membership {
        let (cluster, own) = (ClusterId(1), MemberId(20));
        Membership::new((cluster, Epoch(1)), (own, Incarnation(7)), &NAMES, joins)
    }

    fn roster(epoch: u32, members: &[(u16, u64)]) -> Roster {
        let named = |&(name, incarnation)| (MemberId(name), Some(Incarnation(incarnation)));
        Roster {
            epoch: Epoch(epoch),
            members: members.iter().map(named).collect(),
            assignment: Vec::new(),
        }
    }

    fn install(membership: &mut Membership, roster: &Roster) -> [Change; 2] {
        membership.check_roster(roster).expect("a good roster");
        membership.begin_epoch(roster);
        [MemberId(10), MemberId(30)].map(|name| {
            let peer = membership.peer_of(name).expect("a member");
            membership.change(peer, roster)
        })
    }

    #[test]
    fn a_roster_changes_members_by_what_it_names() {
        let mut membership = member(false);
        let [first, last] =
            [10, 30].map(|name| membership.peer_of(MemberId(name)).expect("a member"));
        assert!(
            membership.hears(first, Incarnation(1)) && !membership.hears(first, Incarnation(2))
        );
        let changes = install(&mut membership, &roster(2, &[(10, 1), (20, 7)]));
        let ended = None;
        let begins = false;
        assert_eq!(changes, [Change::Stays, Change::Replaced { ended, begins }]);
        assert_eq!(membership.present().len(), 2);
        assert!(!membership.is_peer_present(last) && membership.is_peer_present(first));
        let changes = install(&mut membership, &roster(3, &[(10, 2), (20, 7)]));
        let (ended, begins) = (Some(Incarnation(1)), true);
        assert_eq!(
            changes,
            [Change::Replaced { ended, begins }, Change::Absent]
        );
        assert_eq!(membership.incarnation(first), Some(Incarnation(2)));
        assert_eq!(membership.named_at(first), Epoch(3));
        assert!(membership.is_joining(first) && !membership.is_joining(last));
    }

    #[test]
    fn rosters_that_are_old_or_name_others_are_refused_and_change_nothing() {
        let membership = member(false);
        let installed = Epoch(1);
        for (refused, why) in [
            (roster(1, &[(20, 7)]), InstallError::NotNewer { installed }),
            (
                roster(2, &[(20, 7), (15, 1)]),
                InstallError::Unknown(MemberId(15)),
            ),
            (
                roster(2, &[(20, 7), (20, 7)]),
                InstallError::Unknown(MemberId(20)),
            ),
            (roster(2, &[(10, 1)]), InstallError::Evicted),
            (
                roster(2, &[(20, 8)]),
                InstallError::OtherIncarnation {
                    named: Incarnation(8),
                },
            ),
        ] {
            assert_eq!(membership.check_roster(&refused), Err(why));
        }
        assert_eq!(membership.epoch(), installed);
        let joins = member(true);
        assert_eq!(joins.check_roster(&roster(1, &[(20, 7)])), Ok(()));
        assert!(!joins.am_present());
    }

    #[test]
    fn only_participants_in_their_incarnation_are_heard() {
        let mut membership = member(false);
        let first = membership.peer_of(MemberId(10)).expect("a member");
        let check = |membership: &Membership, name, incarnation| {
            let checked = membership.check_sender(MemberId(name), Incarnation(incarnation));
            checked.err()
        };
        assert_eq!(check(&membership, 10, 1), None);
        membership.hears(first, Incarnation(1));
        assert_eq!(check(&membership, 10, 2), Some(Refused::WrongIncarnation));
        assert_eq!(check(&membership, 20, 7), Some(Refused::OwnIdentity));
        assert_eq!(check(&membership, 15, 1), Some(Refused::UnknownMember));
        install(&mut membership, &roster(2, &[(20, 7)]));
        assert_eq!(check(&membership, 10, 1), Some(Refused::UnknownMember));
    }

    #[test]
    fn joining_is_under_way_until_nobody_joins() {
        let mut membership = member(true);
        let first = membership.peer_of(MemberId(10)).expect("a member");
        membership.judge_joins();
        assert!(membership.is_join_under_way() && !membership.is_ready());
        membership.become_ready();
        membership.judge_joins();
        assert!(membership.is_ready() && !membership.is_join_under_way());
        membership.announces_join(first);
        assert!(membership.is_join_announced(first));
        assert_eq!(membership.end_message(first, false), Some(true));
        membership.judge_joins();
        assert!(membership.is_join_under_way(), "another one still joins");
        assert_eq!(membership.end_message(first, false), None);
        assert_eq!(membership.end_message(first, true), Some(false));
        membership.judge_joins();
        assert!(!membership.is_join_under_way());
    }
}
