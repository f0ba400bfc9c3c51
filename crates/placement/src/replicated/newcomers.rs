//! How members join, this one or others (rule 25).
//!
//! A newcomer announces itself in every message that acknowledges (`join`). Each member keeps its log from where it stood
//! when it learnt of the newcomer, and says where that is (`join-confirm`); the newcomer takes the stream from there. The
//! first member by name that has joined itself is its *sponsor*: once it has applied all streams up to where they begin for
//! the newcomer, and has all of the incarnations that ended, it scans its tables. So the snapshot and the streams leave no gap
//! between them, and the newcomer applies what follows at once: a snapshot is joined by stamp. Until it has the snapshot it
//! acknowledges nothing as applied, and nothing counts as stable to it. The snapshot is no moment's: entries are written while it
//! is. So the newcomer has joined only once it has every stream up to what could be in it, and every group whole. A member that an epoch
//! names alone waits for nobody. One whose earlier incarnation is not closed yet waits, for a while, for those that an earlier epoch named
//! and that join too: what they alone heard of that incarnation they can say only once they have joined.

use core::time::Duration;

use crate::branch::{Branch, taken};
use crate::mutant::{self, Mutant};
use crate::{Incarnation, MemberId, Time};

use super::Event;
use super::replicator::Replicator;
use crate::membership::{MembershipFrame, PeerIndex};

/// How long a newcomer waits for those that began to join before it.
const HELD_UP_MAX: Duration = Duration::from_secs(60);

impl Replicator {
    /// Whether this member holds what the others hold. Until it does, it must not write.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.membership.is_ready()
    }

    /// A member said where its stream begins for a newcomer.
    pub(super) fn take_confirm(
        &mut self,
        peer_index: PeerIndex,
        member: MemberId,
        incarnation: Incarnation,
        head: u64,
    ) {
        let Some(newcomer) = self.membership.index_of(member) else {
            self.counters.frames_inert += 1;
            return;
        };
        if self.progress.members[newcomer].incarnation != Some(incarnation) {
            taken(Branch::ConfirmOfStranger);
            self.counters.frames_inert += 1;
            return;
        }
        let index = self.membership.index(peer_index);
        self.confirms.note(index, newcomer, head);
        if newcomer == self.membership.me()
            && !self.membership.is_ready()
            && self.peers[peer_index].base.is_none()
        {
            taken(Branch::StreamBegins);
            let index = self.membership.index(peer_index);
            let peer = &mut self.peers[peer_index];
            peer.base = Some(head);
            peer.inbound.begin_at(head);
            self.progress.members[index].received = head;
        }
    }

    /// What the last message of this member said of its joining, after all its frames were taken.
    pub(super) fn take_announcement(&mut self, peer_index: PeerIndex, acknowledges: bool) {
        if let Some(joins) = self.membership.end_message(peer_index, acknowledges) {
            let index = self.membership.index(peer_index);
            self.progress.members[index].joining = joins;
        }
    }

    /// Lets newcomers in whose sponsor this member is.
    pub(super) fn sponsor(&mut self, now: Time) {
        let joined = |peer_index: PeerIndex| {
            self.membership.is_peer_present(peer_index) && !self.membership.is_joining(peer_index)
        };
        let is_first = self
            .peers
            .places()
            .filter(|&peer_index| joined(peer_index))
            .all(|peer_index| self.membership.index(peer_index) > self.membership.me());
        let has_all = self.closings.are_whole() || mutant::active(Mutant::CutBeforeConfirmed);
        if !is_first || !has_all {
            taken(match is_first {
                true => Branch::SponsorWaits,
                false => Branch::NotSponsor,
            });
            return;
        }
        for peer_index in self.peers.places() {
            let waits = self.membership.is_peer_present(peer_index)
                && self.membership.is_joining(peer_index);
            let over = self.peers[peer_index]
                .outbound
                .as_ref()
                .is_none_or(|outbound| {
                    // It has all of a snapshot and still joins: what it needs has changed since.
                    let since = outbound.joined_at;
                    since.is_some_and(|since| now.since(since) > self.config.silent_after)
                });
            if !waits || !over {
                continue;
            }
            if !self.is_confirmed(peer_index) {
                taken(Branch::NewcomerUnconfirmed);
            } else if self.is_held_up(peer_index, now) {
                taken(Branch::NewcomerHeldUp);
            } else {
                taken(Branch::NewcomerServed);
                self.begin_snapshot(peer_index);
            }
        }
    }

    /// Whether a newcomer waits for one that began to join earlier: for a while, since one that cannot take its snapshot has no end.
    fn is_held_up(&mut self, peer_index: PeerIndex, now: Time) -> bool {
        if !self.may_lack_predecessor(peer_index) {
            return false;
        }
        let since = *self.peers[peer_index].held_up.get_or_insert(now);
        now.since(since) < HELD_UP_MAX
    }

    /// Whether somebody who began to join earlier may have something of this newcomer's earlier incarnation that nobody else has, and cannot
    /// say so before it has joined. Who is restarted goes on with what the incarnation before had reported, so it needs all of that.
    fn may_lack_predecessor(&self, peer_index: PeerIndex) -> bool {
        let member = self.peers[peer_index].member;
        let named_at = self.membership.named_at(peer_index);
        self.closings.is_one_open_of(member)
            && self.peers.places().any(|other| {
                self.membership.is_joining(other)
                    && self.membership.named_at(other) < named_at
                    && self.membership.is_peer_present(other)
            })
            && !mutant::active(Mutant::JoinsOutOfOrder)
    }

    /// Whether all members keep what follows for a newcomer, and all that came before is applied here.
    fn is_confirmed(&self, peer_index: PeerIndex) -> bool {
        let newcomer = self.membership.index(peer_index);
        mutant::active(Mutant::CutBeforeConfirmed)
            || self
                .peers
                .places()
                .filter(|&other| other != peer_index && self.membership.is_peer_present(other))
                .all(|other| {
                    let confirm = self.confirms.of(self.membership.index(other), newcomer);
                    confirm.is_some_and(|head| self.peers[other].inbound.applied() >= head)
                })
    }

    /// Judges whether this newcomer has a snapshot that reaches up to where each stream begins for it.
    pub(super) fn become_ready(&mut self, now: Time) {
        if self.membership.is_ready() || !self.membership.am_present() {
            return;
        }
        // Anyone who is alone in its epoch has what all members have: there is nobody whose snapshot it could wait for.
        let alone = !self
            .peers
            .places()
            .any(|peer_index| self.membership.is_peer_present(peer_index));
        let has_snapshot = self.snapshots.is_one_joined() || alone;
        if !has_snapshot
            || !self
                .peers
                .places()
                .all(|peer_index| self.is_covered(peer_index) && self.is_whole(peer_index))
        {
            taken(Branch::NewcomerIncomplete);
            return;
        }
        taken(Branch::NewcomerReady);
        self.membership.become_ready();
        self.events.push(Event::Ready);
        for peer_index in self.peers.places() {
            self.applied_more(peer_index);
        }
        self.want_acknowledge(now, true);
    }

    /// Whether snapshots reach up to where that member's stream begins for this newcomer.
    fn is_covered(&self, peer_index: PeerIndex) -> bool {
        let peer = &self.peers[peer_index];
        !self.membership.is_peer_present(peer_index)
            || peer.base.is_some_and(|base| peer.covered >= base)
            || mutant::active(Mutant::CutBeforeConfirmed)
    }

    /// Whether every group of that member is whole here. Entries were written while the sponsor scanned: of some groups the snapshot has
    /// a part, and the rest is on its way. Their writers had committed them before it came here, so name them once they heard what was
    /// sent here afterwards.
    fn is_whole(&self, peer_index: PeerIndex) -> bool {
        let peer = &self.peers[peer_index];
        let reached = |head: u64| peer.inbound.applied() >= head;
        !self.snapshots.has_part()
            || !self.membership.is_peer_present(peer_index)
            || peer.head_since_snapshot.is_some_and(reached)
            || mutant::active(Mutant::ReadyInMidGroup)
    }

    /// A snapshot of that member was joined.
    pub(super) fn joined_snapshot(&mut self, peer_index: PeerIndex, vector: &[(MemberId, u64)]) {
        self.snapshots.joins();
        for &(origin, sequence) in vector {
            if let Some(peer_index) = self.membership.peer_of(origin) {
                let covered = &mut self.peers[peer_index].covered;
                *covered = (*covered).max(sequence);
            }
        }
        let held = core::mem::take(&mut self.peers[peer_index].inbound_snapshot.held);
        self.join_held(&held);
    }

    /// Appends where the stream begins for each newcomer, as far as it fits; the rest goes first in the next message.
    pub(super) fn write_confirms(&mut self, bytes_max: usize, buffer: &mut Vec<u8>) {
        for peer_index in self.peers.places_from(self.turns.confirms) {
            let peer = &self.peers[peer_index];
            let joins = self.membership.is_joining(peer_index);
            let Some(incarnation) = self.membership.incarnation(peer_index).filter(|_| joins)
            else {
                continue;
            };
            let confirm = MembershipFrame::JoinConfirm {
                member: peer.member,
                incarnation,
                head: peer.begins_after,
            };
            if !self.write_member_frame(&confirm, bytes_max, buffer) {
                self.turns.confirms = peer_index;
                break;
            }
        }
    }
}
