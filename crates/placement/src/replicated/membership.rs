//! What follows from a new roster: incarnations end, newcomers are let in, and this member may be one of them (rules 23 and 25).
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
use crate::{Epoch, Incarnation, MemberId, Time};

use super::index::PeerIndex;
use super::peer::Peer;
use super::progress::Standing;
use super::replicator::{Replicator, begin};
use super::roster::{InstallError, Roster};
use super::wire::Membership;
use super::{Deliver, Event};

/// How long a newcomer waits for those that began to join before it.
const HELD_UP_MAX: Duration = Duration::from_secs(60);

impl Replicator {
    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.config.epoch
    }

    /// Whether this member holds what the others hold. Until it does, it must not write.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.joining.is_ready()
    }

    /// Puts a roster in force. Incarnations that it does not name end: nothing more of them is taken, and what arrived of them
    /// above a gap is delivered before this returns. Of members in new incarnations everything begins again; the driver must not
    /// report with [`applied`](Replicator::applied) afterwards what it applied of the incarnation before.
    ///
    /// # Errors
    /// See [`InstallError`]; nothing changed.
    pub fn install(
        &mut self,
        now: Time,
        roster: &Roster,
        deliver: &mut impl Deliver,
    ) -> Result<(), InstallError> {
        self.check_roster(roster)?;
        self.config.epoch = roster.epoch;
        self.members.set_present(self.members.me(), true);
        self.counters.rosters_installed += 1;
        for peer_index in self.peers.places() {
            let (index, member) = (
                self.members.index(peer_index),
                self.peers[peer_index].member,
            );
            let named = roster.named(member);
            let peer = &mut self.peers[peer_index];
            let stays = self.members.is_present(index)
                && named.is_some_and(|named| {
                    named.is_none()
                        || peer.incarnation.is_none()
                        || named == peer.incarnation
                        || mutant::active(Mutant::RestartTakenForOld)
                });
            if stays {
                taken(Branch::MemberStays);
                peer.incarnation = peer.incarnation.or(named.flatten());
                peer.begin_epoch();
                self.progress.members[index].incarnation = peer.incarnation;
            } else if self.members.is_present(index) || named.is_some() {
                self.replace(peer_index, named, deliver);
            }
        }
        let half_snapshots = self.snapshots.take_half_of_ended();
        for closing in self.closings.iter_mut() {
            closing.begin_epoch(self.members.me(), half_snapshots);
        }
        let others_join = self.peers.iter().any(|peer| peer.joining);
        self.joining.judge(others_join);
        self.elect_relays(now);
        self.recount();
        self.prune();
        self.want_acknowledge(now, true);
        self.judge_members(now);
        Ok(())
    }

    fn check_roster(&self, roster: &Roster) -> Result<(), InstallError> {
        let before_first = self.config.joins && self.counters.rosters_installed == 0;
        let is_old = match mutant::active(Mutant::SameEpochAgain) {
            true => roster.epoch < self.config.epoch,
            false => roster.epoch <= self.config.epoch,
        };
        if is_old && !before_first {
            taken(Branch::RosterNotNewer);
            return Err(InstallError::NotNewer {
                installed: self.config.epoch,
            });
        }
        for (place, (member, _)) in roster.members.iter().enumerate() {
            let twice = roster.members[..place]
                .iter()
                .any(|(name, _)| name == member);
            if twice || self.members.index_of(*member).is_none() {
                return Err(InstallError::Unknown(*member));
            }
        }
        match roster.named(self.config.member) {
            None => {
                taken(Branch::RosterEvicts);
                Err(InstallError::Evicted)
            }
            Some(Some(named)) if named != self.config.incarnation => {
                taken(Branch::RosterOtherIncarnation);
                Err(InstallError::OtherIncarnation { named })
            }
            Some(_) => Ok(()),
        }
    }

    /// A member ends, begins, or both.
    fn replace(
        &mut self,
        peer_index: PeerIndex,
        named: Option<Option<Incarnation>>,
        deliver: &mut impl Deliver,
    ) {
        let mut old = self.begin_again(peer_index, named);
        if let Some(incarnation) = old.incarnation {
            self.end_incarnation(&mut old, incarnation, deliver);
        }
    }

    /// A member begins in the incarnation that the epoch names, or is left out: what was known of it is void. The peer that it was.
    fn begin_again(&mut self, peer_index: PeerIndex, named: Option<Option<Incarnation>>) -> Peer {
        let (index, head) = (self.members.index(peer_index), self.log.head());
        let member = self.peers[peer_index].member;
        let mut peer = Peer::new(member, &self.config);
        peer.incarnation = named.flatten();
        if named.is_some() {
            // Whatever was committed so far, a snapshot brings it.
            peer.joining = self.joining.is_ready();
            peer.begin_after(head);
            self.own.names_all(head);
        } else {
            peer.standing = Standing::Out;
        }
        let old = core::mem::replace(&mut self.peers[peer_index], peer);
        taken(match (self.members.is_present(index), named.is_some()) {
            (true, true) => Branch::MemberReplaced,
            (false, true) => Branch::MemberBegins,
            (_, false) => Branch::MemberLeft,
        });
        self.members.set_present(index, named.is_some());
        self.reports.forget(index);
        self.stability.forget(index);
        self.joining.forget(index);
        let standing = self.peers[peer_index].standing;
        let progress = &mut self.progress.members[index];
        *progress = begin(member);
        progress.incarnation = self.peers[peer_index].incarnation;
        progress.standing = standing;
        progress.joining = self.peers[peer_index].joining;
        for other in &mut self.peers {
            other.forget_origin(index, member);
        }
        debug_assert_eq!(
            self.members.is_present(index),
            standing != Standing::Out,
            "who takes part has a standing"
        );
        old
    }

    /// An incarnation has ended: what arrived of it above gaps is delivered, and this much of it is remembered.
    fn end_incarnation(
        &mut self,
        old: &mut Peer,
        incarnation: Incarnation,
        deliver: &mut impl Deliver,
    ) {
        self.counters.incarnations_ended += 1;
        let (member, beyond) = (old.member, self.is_exceeded(old));
        let (prefix, highest, missing) =
            old.inbound.close(incarnation, &mut self.counters, deliver);
        self.counters.groups_skipped += missing;
        // Of a stream whose beginning is still to come by a snapshot, what is here has no prefix.
        let whole = self.joining.is_ready() || old.base.is_some_and(|base| old.covered >= base);
        let (prefix, loose) = if whole {
            (prefix, highest > prefix)
        } else {
            (0, highest > old.base.unwrap_or(0))
        };
        taken(match (whole, loose) {
            (false, _) => Branch::EndedWithoutBeginning,
            (true, true) => Branch::EndedAboveGap,
            (true, false) => Branch::EndedWhole,
        });
        let half = has_half_snapshot(old);
        self.snapshots.ends(half);
        if half {
            taken(Branch::EndedInSnapshot);
        }
        self.remember_ended(member, incarnation, (prefix, loose || half || beyond));
        self.events.push(Event::Ended {
            member,
            incarnation,
        });
    }

    /// Whether a snapshot may have brought more of an ended stream than came as groups.
    fn is_exceeded(&self, old: &Peer) -> bool {
        self.snapshots.has_part()
            && old.may_be_exceeded()
            && !mutant::active(Mutant::JoinedSnapshotForgotten)
    }

    /// A frame of joining, leaving or closing.
    pub(super) fn take_membership(&mut self, peer_index: PeerIndex, head: u64, frame: &Membership) {
        match frame {
            Membership::Join { .. } => self.peers[peer_index].announced = true,
            Membership::JoinConfirm {
                member,
                incarnation,
                head: begins_after,
            } if *begins_after <= head => {
                self.take_confirm(peer_index, *member, *incarnation, *begins_after);
            }
            // Who names more than it has committed would have the newcomer wait for what never comes.
            Membership::JoinConfirm { .. } => self.counters.frames_inert += 1,
            Membership::JoinVector { held } => {
                for held in held {
                    self.take_held(peer_index, head, held, false);
                }
            }
            Membership::Close { held } => self.take_held(peer_index, head, held, true),
            Membership::Leave { .. } => {
                let peer = &mut self.peers[peer_index];
                let member = peer.member;
                if !core::mem::replace(&mut peer.leaving, true) {
                    let index = self.members.index(peer_index);
                    self.progress.members[index].leaving = true;
                    self.events.push(Event::Leaving { member });
                }
            }
            Membership::LeaveConfirm { .. } => self.counters.frames_inert += 1,
        }
        if self.peers[peer_index].announced {
            self.joining.begin();
        }
    }

    fn take_confirm(
        &mut self,
        peer_index: PeerIndex,
        member: MemberId,
        incarnation: Incarnation,
        head: u64,
    ) {
        let Some(newcomer) = self.members.index_of(member) else {
            self.counters.frames_inert += 1;
            return;
        };
        if self.progress.members[newcomer].incarnation != Some(incarnation) {
            taken(Branch::ConfirmOfStranger);
            self.counters.frames_inert += 1;
            return;
        }
        let index = self.members.index(peer_index);
        self.joining.confirm(index, newcomer, head);
        if newcomer == self.members.me()
            && !self.joining.is_ready()
            && self.peers[peer_index].base.is_none()
        {
            taken(Branch::StreamBegins);
            let index = self.members.index(peer_index);
            let peer = &mut self.peers[peer_index];
            peer.base = Some(head);
            peer.inbound.begin_at(head);
            self.progress.members[index].received = head;
        }
    }

    /// What the last message of this member said of its joining, after all its frames were taken.
    pub(super) fn take_announcement(&mut self, peer_index: PeerIndex, acknowledges: bool) {
        let announced = core::mem::take(&mut self.peers[peer_index].announced);
        if acknowledges || announced {
            let index = self.members.index(peer_index);
            self.peers[peer_index].joining = announced;
            self.progress.members[index].joining = announced;
            if announced {
                self.joining.begin();
            }
        }
    }

    /// Whether anything of this room is under way.
    #[inline]
    pub(super) fn members_change(&self) -> bool {
        self.joining.is_under_way() || self.closings.is_one_open()
    }

    /// Does what is due of joining and closing.
    pub(super) fn judge_members(&mut self, now: Time) {
        if !self.members_change() {
            return;
        }
        self.judge_closings(now);
        self.become_ready(now);
        if self.joining.is_ready() {
            self.sponsor(now);
        }
        for peer_index in self.peers.places() {
            self.end_scan(peer_index);
            let peer = &self.peers[peer_index];
            let (own, floor) = (self.config.member, peer.floor());
            let covers = |&(origin, sequence): &(MemberId, u64)| origin == own && sequence >= floor;
            let mut snapshots = peer.outbound.iter();
            let served = snapshots.any(|snapshot| snapshot.vector.iter().any(covers));
            let fell_off = floor > peer.begins_after && peer.acknowledged < floor;
            if peer.standing == Standing::Imaging && fell_off && !served && !peer.joining {
                // It fell off the log while it joined.
                self.begin_snapshot(peer_index);
            }
        }
        let others_join = self.peers.iter().any(|peer| peer.joining);
        self.joining.judge(others_join);
    }

    /// Lets newcomers in whose sponsor this member is.
    fn sponsor(&mut self, now: Time) {
        let joined = |peer_index: PeerIndex| {
            self.members.is_peer_present(peer_index) && !self.peers[peer_index].joining
        };
        let is_first = self
            .peers
            .places()
            .filter(|&peer_index| joined(peer_index))
            .all(|peer_index| self.members.index(peer_index) > self.members.me());
        let has_all = self.closings.are_whole() || mutant::active(Mutant::CutBeforeConfirmed);
        if !is_first || !has_all {
            taken(match is_first {
                true => Branch::SponsorWaits,
                false => Branch::NotSponsor,
            });
            return;
        }
        for peer_index in self.peers.places() {
            let waits = self.members.is_peer_present(peer_index) && self.peers[peer_index].joining;
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
        let (member, named_at) = (
            self.peers[peer_index].member,
            self.peers[peer_index].named_at,
        );
        self.closings.is_one_open_of(member)
            && self.peers.places().any(|other| {
                let peer = &self.peers[other];
                peer.joining && peer.named_at < named_at && self.members.is_peer_present(other)
            })
            && !mutant::active(Mutant::JoinsOutOfOrder)
    }

    /// Whether all members keep what follows for a newcomer, and all that came before is applied here.
    fn is_confirmed(&self, peer_index: PeerIndex) -> bool {
        let newcomer = self.members.index(peer_index);
        mutant::active(Mutant::CutBeforeConfirmed)
            || self
                .peers
                .places()
                .filter(|&other| other != peer_index && self.members.is_peer_present(other))
                .all(|other| {
                    let confirm = self.joining.confirmed(self.members.index(other), newcomer);
                    confirm.is_some_and(|head| self.peers[other].inbound.applied() >= head)
                })
    }

    /// Judges whether this newcomer has a snapshot that reaches up to where each stream begins for it.
    fn become_ready(&mut self, now: Time) {
        if self.joining.is_ready() || !self.members.am_present() {
            return;
        }
        // Anyone who is alone in its epoch has what all members have: there is nobody whose snapshot it could wait for.
        let alone = !self
            .peers
            .places()
            .any(|peer_index| self.members.is_peer_present(peer_index));
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
        self.joining.become_ready();
        self.events.push(Event::Ready);
        for peer_index in self.peers.places() {
            self.applied_more(peer_index);
        }
        self.want_acknowledge(now, true);
    }

    /// Whether snapshots reach up to where that member's stream begins for this newcomer.
    fn is_covered(&self, peer_index: PeerIndex) -> bool {
        let peer = &self.peers[peer_index];
        !self.members.is_peer_present(peer_index)
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
            || !self.members.is_peer_present(peer_index)
            || peer.head_since_snapshot.is_some_and(reached)
            || mutant::active(Mutant::ReadyInMidGroup)
    }

    /// A snapshot of that member was joined.
    pub(super) fn joined_snapshot(&mut self, peer_index: PeerIndex, vector: &[(MemberId, u64)]) {
        self.snapshots.joins();
        for &(origin, sequence) in vector {
            if let Some(peer_index) = self.members.peer_of(origin) {
                let covered = &mut self.peers[peer_index].covered;
                *covered = (*covered).max(sequence);
            }
        }
        let held = core::mem::take(&mut self.peers[peer_index].inbound_snapshot.held);
        self.join_held(&held);
    }

    /// Appends the frames of joining and closing, as far as they fit into so many bytes of a message.
    pub(super) fn write_membership(&mut self, bytes_max: usize, buffer: &mut Vec<u8>) {
        if !self.joining.is_ready() {
            let incarnation = self.config.incarnation;
            self.write_member_frame(&Membership::Join { incarnation }, bytes_max, buffer);
        }
        if self.leaving.is_leaving() {
            let head = self.named_head();
            if !self.write_member_frame(&Membership::Leave { head }, bytes_max, buffer) {
                self.leaving.sends_unannounced(self.clock);
            }
        }
        let closings_first = self.turns.closings_first();
        if self.joining.is_ready() && closings_first {
            self.write_closings(bytes_max, buffer);
        }
        if self.joining.is_under_way() {
            self.write_confirms(bytes_max, buffer);
        }
        if self.joining.is_ready() && !closings_first {
            self.write_closings(bytes_max, buffer);
        }
    }

    /// Appends where the stream begins for each newcomer, as far as it fits; the rest goes first in the next message.
    fn write_confirms(&mut self, bytes_max: usize, buffer: &mut Vec<u8>) {
        for peer_index in self.peers.places_from(self.turns.confirms) {
            let peer = &self.peers[peer_index];
            let (Some(incarnation), true) = (peer.incarnation, peer.joining) else {
                continue;
            };
            let confirm = Membership::JoinConfirm {
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

    /// Appends a frame unless it does not fit.
    pub(super) fn write_member_frame(
        &mut self,
        frame: &Membership,
        bytes_max: usize,
        buffer: &mut Vec<u8>,
    ) -> bool {
        let body = self.writer.begin();
        frame.write(body);
        let fits = buffer.len() + body.len() + 3 <= bytes_max;
        if fits {
            self.writer.end(frame.kind(), buffer);
        }
        fits
    }

    /// Whether all that this member was to say of its leaving has come to all that take part in the epoch: each echoed a message
    /// that said it. Of who leaves too nobody waits for that. Always true of a member that does not leave.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let knows = |peer: &Peer| {
            peer.standing == Standing::Out || peer.leaving || self.leaving.is_seen_by(peer.echoed)
        };
        !self.leaving.is_leaving() || self.peers.iter().all(knows)
    }

    /// Says to all, with every acknowledgement, that this member commits nothing more and leaves. It has left when
    /// [`has_left`](Replicator::has_left) says so and all have acknowledged what it wrote: then nothing of it is lost without it.
    pub fn leave(&mut self, now: Time) {
        self.leaving.begin(self.clock);
        self.want_acknowledge(now, true);
    }
}

/// Whether part of a snapshot of a member came that is not joined.
fn has_half_snapshot(old: &Peer) -> bool {
    old.inbound_snapshot.unjoined && !mutant::active(Mutant::HalfSnapshotForgotten)
}
