//! What follows from a new roster: incarnations end, newcomers are let in, and this member may be one of them (rules 23 and 25).
//!
//! How members join is described in `newcomers`.

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

impl Replicator {
    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.config.epoch
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

    /// Whether a member joins, or an incarnation that ended is not closed.
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
