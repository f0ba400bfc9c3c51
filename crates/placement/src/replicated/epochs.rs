//! What follows from a new roster for streams: incarnations end, newcomers are let in, and this member may be one of them (rules 23
//! and 25). `crate::membership` judges the roster.
//!
//! How members join is described in `newcomers`.

use crate::branch::{Branch, taken};
use crate::mutant::{self, Mutant};
use crate::{Epoch, Incarnation, MemberId, Time};

use super::peer::Peer;
use super::progress::Standing;
use super::replicator::{Replicator, begin};
use super::{Deliver, Event};
use crate::membership::{Change, InstallError, MembershipFrame, PeerIndex, Roster};

impl Replicator {
    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.membership.epoch()
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
        self.membership.check_roster(roster)?;
        self.membership.begin_epoch(roster);
        self.counters.rosters_installed += 1;
        self.placements_version += 1;
        for peer_index in self.peers.places() {
            match self.membership.change(peer_index, roster) {
                Change::Absent => {}
                Change::Stays => {
                    self.peers[peer_index].begin_epoch();
                    let index = self.membership.index(peer_index);
                    self.progress.members[index].incarnation =
                        self.membership.incarnation(peer_index);
                }
                Change::Replaced { ended, begins } => {
                    let mut old = self.begin_again(peer_index, begins);
                    if let Some(incarnation) = ended {
                        self.end_incarnation(&mut old, incarnation, deliver);
                    }
                }
            }
        }
        let half_snapshots = self.snapshots.take_half_of_ended();
        for closing in self.closings.iter_mut() {
            closing.begin_epoch(self.membership.me(), half_snapshots);
        }
        self.membership.judge_joins();
        self.elect_relays(now);
        self.recount();
        self.prune();
        self.want_acknowledge(now, true);
        self.judge_members(now);
        Ok(())
    }

    /// A member begins in the incarnation that the epoch names, or is left out: what was known of it is void. The peer that it was.
    fn begin_again(&mut self, peer_index: PeerIndex, begins: bool) -> Peer {
        let (index, head) = (self.membership.index(peer_index), self.log.head());
        let member = self.peers[peer_index].member;
        let mut peer = Peer::new(member, &self.config);
        if begins {
            peer.begin_after(head);
            self.own.names_all(head);
        } else {
            peer.standing = Standing::Out;
        }
        let standing = peer.standing;
        let old = core::mem::replace(&mut self.peers[peer_index], peer);
        self.reports.forget(index);
        self.stability.forget(index);
        self.confirms.forget(index);
        let progress = &mut self.progress.members[index];
        *progress = begin(member);
        progress.incarnation = self.membership.incarnation(peer_index);
        progress.standing = standing;
        progress.joining = self.membership.is_joining(peer_index);
        for other in &mut self.peers {
            other.forget_origin(index, member);
        }
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
        let whole = self.membership.is_ready() || old.base.is_some_and(|base| old.covered >= base);
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
    pub(super) fn take_membership(
        &mut self,
        peer_index: PeerIndex,
        head: u64,
        frame: &MembershipFrame,
    ) {
        match frame {
            MembershipFrame::Join { .. } => self.membership.announces_join(peer_index),
            MembershipFrame::JoinConfirm {
                member,
                incarnation,
                head: begins_after,
            } if *begins_after <= head => {
                self.take_confirm(peer_index, *member, *incarnation, *begins_after);
            }
            // Who names more than it has committed would have the newcomer wait for what never comes.
            MembershipFrame::JoinConfirm { .. } => self.counters.frames_inert += 1,
            MembershipFrame::JoinVector { held } => {
                for held in held {
                    self.take_held(peer_index, head, held, false);
                }
            }
            MembershipFrame::Close { held } => self.take_held(peer_index, head, held, true),
            MembershipFrame::Leave { .. } => {
                if self.membership.announces_leave(peer_index) {
                    let member = self.peers[peer_index].member;
                    let index = self.membership.index(peer_index);
                    self.progress.members[index].leaving = true;
                    self.events.push(Event::Leaving { member });
                }
            }
            MembershipFrame::LeaveConfirm { .. } => self.counters.frames_inert += 1,
        }
        if self.membership.is_join_announced(peer_index) {
            self.membership.begin_join();
        }
    }

    /// Whether a member joins, or an incarnation that ended is not closed.
    #[inline]
    pub(super) fn members_change(&self) -> bool {
        self.membership.is_join_under_way() || self.closings.is_one_open()
    }

    /// Does what is due of joining and closing.
    pub(super) fn judge_members(&mut self, now: Time) {
        if !self.members_change() {
            return;
        }
        self.judge_closings(now);
        self.become_ready(now);
        if self.membership.is_ready() {
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
            if peer.standing == Standing::Imaging
                && fell_off
                && !served
                && !self.membership.is_joining(peer_index)
            {
                // It fell off the log while it joined.
                self.begin_snapshot(peer_index);
            }
        }
        self.membership.judge_joins();
    }

    /// Appends the frames of joining and closing, as far as they fit into so many bytes of a message.
    pub(super) fn write_membership(&mut self, bytes_max: usize, buffer: &mut Vec<u8>) {
        if !self.membership.is_ready() {
            let incarnation = self.membership.own_incarnation();
            self.write_member_frame(&MembershipFrame::Join { incarnation }, bytes_max, buffer);
        }
        if self.membership.is_leaving() {
            let head = self.named_head();
            if !self.write_member_frame(&MembershipFrame::Leave { head }, bytes_max, buffer) {
                self.membership.sends_leave_unannounced(self.clock);
            }
        }
        let closings_first = self.turns.closings_first();
        if self.membership.is_ready() && closings_first {
            self.write_closings(bytes_max, buffer);
        }
        if self.membership.is_join_under_way() {
            self.write_confirms(bytes_max, buffer);
        }
        if self.membership.is_ready() && !closings_first {
            self.write_closings(bytes_max, buffer);
        }
    }

    /// Appends a frame unless it does not fit.
    pub(super) fn write_member_frame(
        &mut self,
        frame: &MembershipFrame,
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
        let knows = |(peer_index, peer): (PeerIndex, &Peer)| {
            peer.standing == Standing::Out
                || self.membership.is_peer_leaving(peer_index)
                || self.membership.is_leave_seen_by(peer.echoed)
        };
        !self.membership.is_leaving() || self.peers.each().all(knows)
    }

    /// Says to all, with every acknowledgement, that this member commits nothing more and leaves. It has left when
    /// [`has_left`](Replicator::has_left) says so and all have acknowledged what it wrote: then nothing of it is lost without it.
    pub fn leave(&mut self, now: Time) {
        self.membership.leave(self.clock);
        self.want_acknowledge(now, true);
    }
}

/// Whether part of a snapshot of a member came that is not joined.
fn has_half_snapshot(old: &Peer) -> bool {
    old.inbound_snapshot.unjoined && !mutant::active(Mutant::HalfSnapshotForgotten)
}
