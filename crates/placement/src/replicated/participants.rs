//! What this member does as a participant of incarnations that ended (rule 23); `stream_closing` judges, `closings` remembers,
//! and here this member reports and scans.

use crate::branch::{Branch, taken};
use crate::mutant::{self, Mutant};
use crate::{Incarnation, MemberId, Time};

use super::Event;
use super::replicator::Replicator;
use super::stream_closing::{Holding, Participant, StreamClosing};
use crate::membership::{Held, MemberIndex, MemberSet, MembershipFrame, PeerIndex};

/// Bytes of a holding in a frame without the members in it, at the most: member, incarnation, prefix, flags, count.
const HELD_BYTES_MAX: usize = 3 + 8 + 9 + 1 + 1;
/// Bytes of a member's name in a frame, at the most.
const NAME_BYTES_MAX: usize = 3;

/// An incarnation that an epoch ended, for people to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whose.
    pub member: MemberId,
    /// Which.
    pub incarnation: Incarnation,
    /// This member has all that anybody has of it.
    pub whole: bool,
    /// So have all members, and it is stable.
    pub closed: bool,
    /// Until it is closed, the first member by name that has not reported.
    pub waits_for: Option<MemberId>,
}

impl Replicator {
    /// The incarnations that epochs ended, oldest first, as many as are remembered.
    pub fn ended(&self) -> impl Iterator<Item = Ended> + '_ {
        self.closings.iter().map(|closing| Ended {
            member: closing.member,
            incarnation: closing.incarnation,
            whole: closing.whole,
            closed: closing.closed,
            waits_for: self.waits_for(closing),
        })
    }

    fn waits_for(&self, closing: &StreamClosing) -> Option<MemberId> {
        let mut others = self.participants().into_iter().filter(|_| !closing.closed);
        let silent = others.find(|other| closing.reported(other.index).is_none())?;
        Some(self.membership.names()[silent.index])
    }

    /// The other members of the epoch.
    fn participants(&self) -> Vec<Participant> {
        self.peers
            .places()
            .filter(|&peer_index| self.membership.is_peer_present(peer_index))
            .map(|peer_index| Participant {
                index: self.membership.index(peer_index),
                joining: self.membership.is_joining(peer_index),
                applied: self.peers[peer_index].inbound.applied(),
            })
            .collect()
    }

    /// Remembers an ended incarnation, of which this much is or will be applied here.
    pub(super) fn remember_ended(
        &mut self,
        member: MemberId,
        incarnation: Incarnation,
        (prefix, loose): (u64, bool),
    ) {
        let own = Holding {
            prefix,
            loose,
            of: MemberSet::of(self.membership.me()),
        };
        let closing = StreamClosing::new(member, incarnation, own, self.membership.len());
        let is_one_lost = self.closings.remember(closing);
        self.counters.incarnations_forgotten += u64::from(is_one_lost);
        let freezes = !mutant::active(Mutant::StableWithoutTheDead);
        self.stability.freeze(freezes);
    }

    /// All instances of this host have applied what was delivered of an ended incarnation.
    pub fn ended_applied(&mut self, now: Time, member: MemberId, incarnation: Incarnation) {
        if let Some(place) = self.closings.find(member, incarnation) {
            self.closings.at_mut(place).applied = true;
            self.want_acknowledge(now, true);
            self.judge_members(now);
        }
    }

    /// The place of an ended incarnation in the list; it is remembered now if it never was heard here. `None` if it lives.
    fn closing_of(&mut self, member: MemberId, incarnation: Incarnation) -> Option<usize> {
        let known = self.closings.find(member, incarnation);
        if known.is_some() {
            return known;
        }
        let index = self.membership.index_of(member)?;
        let alive = self.progress.members[index].incarnation;
        if self.membership.is_present(index) && alive.is_none_or(|alive| alive == incarnation) {
            return None;
        }
        if !self.closings.has_room_for_indirect() {
            return None;
        }
        self.remember_ended(member, incarnation, (0, false));
        taken(Branch::StreamReportedIndirectly);
        let place = self.closings.places().last()?;
        let closing = self.closings.at_mut(place);
        closing.indirect = true;
        // There is nothing of it to apply.
        closing.applied = true;
        Some(place)
    }

    /// What a member holds of an ended incarnation.
    pub(super) fn take_held(&mut self, peer_index: PeerIndex, head: u64, held: &Held, asks: bool) {
        let index = self.membership.index(peer_index);
        let of = self.named(&held.of);
        let Some(place) = self.closing_of(held.member, held.incarnation) else {
            self.counters.frames_inert += 1;
            return;
        };
        let closing = self.closings.at_mut(place);
        closing.asked |= asks;
        let holding = Holding {
            prefix: held.prefix,
            loose: held.loose,
            of: of.with(index),
        };
        closing.report(index, holding, head);
        if held.settled && self.membership.is_ready() {
            closing.settle();
        }
    }

    /// A snapshot contains these holdings, and of other incarnations nobody knows what.
    pub(super) fn join_held(&mut self, all: &[Held]) {
        for closing in self.closings.iter_mut() {
            let names = |held: &Held| closing.is(held.member, held.incarnation);
            if !all.iter().any(names) {
                closing.join_unnamed();
            }
        }
        for held in all {
            let of = self.named(&held.of);
            if let Some(place) = self.closing_of(held.member, held.incarnation) {
                let closing = self.closings.at_mut(place);
                closing.join(of);
                if held.settled {
                    closing.settle();
                }
            }
        }
    }

    /// The members of these names, as far as they are known.
    fn named(&self, names: &[MemberId]) -> MemberSet {
        let places = names
            .iter()
            .filter_map(|&name| self.membership.index_of(name));
        places.collect()
    }

    fn held(&self, closing: &StreamClosing) -> Held {
        let names = self.membership.names().each();
        let contained = names.filter(|(index, _)| closing.own.of.has(*index));
        Held {
            member: closing.member,
            incarnation: closing.incarnation,
            prefix: closing.own.prefix,
            loose: closing.own.loose,
            settled: closing.settled,
            of: contained.map(|(_, &name)| name).collect(),
        }
    }

    /// What this member holds of ended incarnations, all of which a snapshot that begins now has: what the member at `index` waits
    /// for first, of the others the latest, since of those that ended long ago nobody asks.
    pub(super) fn held_now(&self, index: MemberIndex) -> Vec<Held> {
        let waits = |closing: &StreamClosing| {
            let reported = closing.reported(index);
            !closing.closed && reported.is_none_or(|holding| !holding.of.has(self.membership.me()))
        };
        let (waiting, others): (Vec<&StreamClosing>, Vec<&StreamClosing>) = self
            .closings
            .iter()
            .rev()
            .filter(|closing| closing.applied)
            .partition(|closing| waits(closing));
        let all = waiting.into_iter().chain(others);
        all.map(|closing| self.held(closing)).collect()
    }

    /// Judges every ended incarnation, and begins the scans that others need of this member.
    pub(super) fn judge_closings(&mut self, now: Time) {
        if !self.membership.is_ready() {
            return;
        }
        let participants = self.participants();
        let mut served = MemberSet::EMPTY;
        for place in self.closings.places() {
            let closing = self.closings.at_mut(place);
            if closing.closed {
                continue;
            }
            let alone = mutant::active(Mutant::ClosesAlone) && closing.applied;
            if alone {
                (closing.whole, closing.closed) = (true, true);
            } else {
                served = served | closing.serve(self.membership.me(), &participants);
            }
            let mut changed = closing.becomes_whole(self.membership.me(), &participants);
            if alone || closing.closes(self.membership.me(), &participants) {
                changed = true;
                self.counters.incarnations_closed += 1;
                let (member, incarnation) = (closing.member, closing.incarnation);
                let event = Event::Closed {
                    member,
                    incarnation,
                };
                self.events.push(event);
                self.recount();
            }
            if changed {
                self.want_acknowledge(now, true);
            }
        }
        for peer_index in self.peers.places() {
            if served.has(self.membership.index(peer_index)) {
                self.begin_snapshot(peer_index);
            }
        }
    }

    /// Appends what this member holds of ended incarnations, as far as it fits into so many bytes of a message.
    pub(super) fn write_closings(&mut self, bytes_max: usize, buffer: &mut Vec<u8>) {
        for place in self.closings.places_from(self.turns.closings) {
            let asked = core::mem::take(&mut self.closings.at_mut(place).asked);
            let closing = self.closings.at(place);
            let asks = !closing.closed;
            if !closing.applied || !(asks || asked) {
                continue;
            }
            let held = self.held(closing);
            let frame = if asks {
                MembershipFrame::Close { held }
            } else {
                MembershipFrame::JoinVector { held: vec![held] }
            };
            if !self.write_member_frame(&frame, bytes_max, buffer) {
                self.closings.at_mut(place).asked = asked;
                self.turns.closings = place;
                break;
            }
        }
    }

    /// A scan for that member came to nothing.
    pub(super) fn forget_scan(&mut self, peer_index: PeerIndex) {
        let index = self.membership.index(peer_index);
        for closing in self.closings.iter_mut() {
            closing.forget_scan(index);
        }
    }

    /// A scan for that member was joined, but its end had no room for these incarnations: they need another.
    pub(super) fn forget_scan_of(&mut self, peer_index: PeerIndex, incarnations: &[Held]) {
        let index = self.membership.index(peer_index);
        for closing in self.closings.iter_mut() {
            if incarnations
                .iter()
                .any(|held| closing.is(held.member, held.incarnation))
            {
                closing.forget_scan(index);
            }
        }
    }

    /// Whether that member is being scanned for, and needs the scan whole.
    pub(super) fn scan_is_owed(&self, peer_index: PeerIndex) -> bool {
        let (index, peer) = (self.membership.index(peer_index), &self.peers[peer_index]);
        let under_way = peer
            .outbound
            .as_ref()
            .is_some_and(|snapshot| !snapshot.is_joined());
        self.membership.is_joining(peer_index) || under_way && self.closings.are_scanned_for(index)
    }
}

/// What a scan contains, as the end of its snapshot says it: as much as fits into so many bytes.
pub(super) fn snapshot_held(all: &[Held], bytes_max: usize) -> Vec<Held> {
    let bytes = all.iter().scan(0, |bytes, held| {
        *bytes += HELD_BYTES_MAX + NAME_BYTES_MAX * held.of.len();
        Some(*bytes)
    });
    let fitting = bytes.take_while(|&bytes| bytes <= bytes_max).count();
    all[..fitting].to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::stream_closing::INDIRECT_MAX;
    use super::super::{Config, Deliver};
    use super::*;
    use crate::membership::Roster;
    use crate::{ClusterId, Epoch};

    struct Nowhere;
    impl Deliver for Nowhere {
        fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
    }

    /// The first of three, of which the third has died.
    fn participant() -> Replicator {
        let names: Vec<MemberId> = (1..=3).map(MemberId).collect();
        let config = Config::new(ClusterId(1), Epoch(0), names[0], Incarnation(1), names);
        let mut participant = Replicator::new(config, Time::ZERO).expect("a good configuration");
        for (epoch, members) in [(1, 1..=3u16), (2, 1..=2)] {
            let roster = Roster {
                epoch: Epoch(epoch),
                members: members
                    .map(|name| (MemberId(name), Some(Incarnation(1))))
                    .collect(),
                assignment: Vec::new(),
            };
            participant
                .install(Time(u64::from(epoch)), &roster, &mut Nowhere)
                .expect("a good roster");
        }
        participant
    }

    #[test]
    fn incarnations_that_are_made_up_push_out_none_that_was() {
        let mut participant = participant();
        let peer_index = participant
            .membership
            .peer_of(MemberId(2))
            .expect("a member");
        for incarnation in 100..2_000 {
            let held = Held {
                member: MemberId(3),
                incarnation: Incarnation(incarnation),
                prefix: 5,
                loose: false,
                settled: false,
                of: Vec::new(),
            };
            participant.take_held(peer_index, 0, &held, true);
        }
        assert_eq!(participant.ended().count(), 1 + INDIRECT_MAX);
        assert!(
            participant
                .ended()
                .any(|ended| ended.incarnation == Incarnation(1))
        );
        assert_eq!(
            participant.counters().frames_inert,
            1_900 - INDIRECT_MAX as u64,
            "the rest is counted"
        );
        assert_eq!(participant.counters().incarnations_forgotten, 0);
    }

    #[test]
    fn a_stream_does_not_begin_beyond_its_head() {
        let mut participant = participant();
        let peer_index = participant
            .membership
            .peer_of(MemberId(2))
            .expect("a member");
        let confirm = MembershipFrame::JoinConfirm {
            member: MemberId(1),
            incarnation: Incarnation(1),
            head: 8,
        };
        participant.take_membership(peer_index, 7, &confirm);
        assert_eq!(participant.counters().frames_inert, 1);
        participant.take_membership(peer_index, 8, &confirm);
        assert_eq!(participant.counters().frames_inert, 1);
    }
}
