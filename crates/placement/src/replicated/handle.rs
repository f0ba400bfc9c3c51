//! Reading state messages: first everything is checked (`check`), then everything is done.

use crate::envelope::{Header, Message, Refused};
use crate::mutant::{self, Mutant};
use crate::{Incarnation, MemberId, Time};

use super::check::Checked;
use super::progress::Standing;
use super::replicator::Replicator;
use super::snapshot::SNAPSHOT_WINDOW_CHUNKS;
use super::wire::{
    AcceptedKeys, Acknowledgements, Frame, Groups, Placements, SnapshotAcknowledge,
    SnapshotEndFrame, StateSnapshot,
};
use super::{Deliver, Event, SnapshotEnd};
use crate::membership::{Held, MembershipFrame, PeerIndex};

/// Two clocks run apart by less than one part in so many; what a member says of a duration is cut by it.
const CLOCK_DRIFT_PARTS: u32 = 1_000;

/// What is known of a message while its frames are taken.
struct Taken {
    /// The sender's latest timestamp before this message, and when that arrived.
    before: Option<(Time, Time)>,
    has_records: bool,
    acknowledges: bool,
    /// What the sender holds of ended incarnations: it belongs to the end of a snapshot that follows.
    held: Vec<Held>,
}

impl Replicator {
    /// A state message from `from`, authentic and opened. What it brings is delivered before this returns.
    ///
    /// # Errors
    /// Why it was refused; nothing changed but the counter of the reason.
    pub fn handle(
        &mut self,
        now: Time,
        from: MemberId,
        from_incarnation: Incarnation,
        message: &[u8],
        deliver: &mut impl Deliver,
    ) -> Result<(), Refused> {
        let mut message = Message::new(from, from_incarnation, message);
        self.handle_message(now, &mut message, deliver)
    }

    /// As [`handle`](Replicator::handle); protocols beside this one find their frames in the message from then on.
    pub(super) fn handle_message(
        &mut self,
        now: Time,
        message: &mut Message<'_>,
        deliver: &mut impl Deliver,
    ) -> Result<(), Refused> {
        if let Some(routes) = &mut self.routes {
            routes.asking.begin_message();
        }
        let from = (message.from(), message.incarnation());
        match self.check(now, from, message.bytes()) {
            Ok(checked) => {
                self.counters.messages_received += 1;
                self.counters.bytes_received += message.bytes().len() as u64;
                self.take(now, &checked, deliver);
                message.checked(checked.has_beside);
                Ok(())
            }
            Err(reason) => {
                self.counters.count_refused(reason);
                Err(reason)
            }
        }
    }

    fn take(&mut self, now: Time, message: &Checked<'_>, deliver: &mut impl Deliver) {
        let Checked {
            peer_index, header, ..
        } = message;
        let peer_index = *peer_index;
        let mut taken = Taken {
            before: self.peers[peer_index].timestamp,
            has_records: false,
            acknowledges: false,
            held: Vec::new(),
        };
        self.take_sender(now, message.incarnation, peer_index, header);
        let echoed = self.take_echo(now, peer_index, header);
        self.take_echoes_of_others(now, peer_index, header);
        for frame in message.frames {
            let Ok(frame) = frame else { break };
            self.take_frame(now, message, frame, &mut taken, deliver);
        }
        self.take_announcement(peer_index, taken.acknowledges);
        self.complete_snapshot(peer_index, deliver);
        if self.peers[peer_index].reports_own == Some(false) {
            self.reports
                .imply(self.membership.index(peer_index), header.head);
        }
        self.mark(now, peer_index, header, echoed, taken.acknowledges);
        if taken.acknowledges {
            self.want_lost(now, peer_index);
        }
        if self.peers[peer_index].standing == Standing::Absent {
            self.returns(now, peer_index);
        }
        self.judge_members(now);
    }

    #[inline]
    fn take_frame(
        &mut self,
        now: Time,
        message: &Checked<'_>,
        frame: Frame<'_>,
        taken: &mut Taken,
        deliver: &mut impl Deliver,
    ) {
        let (peer_index, incarnation) = (message.peer_index, message.incarnation);
        let header = &message.header;
        match frame {
            Frame::Records(groups) => {
                taken.has_records = true;
                let sender = (peer_index, incarnation);
                self.take_records(now, sender, taken.before, groups, deliver);
            }
            Frame::Acknowledge(entries) => {
                taken.acknowledges = true;
                self.take_acknowledgements(now, peer_index, entries);
            }
            Frame::KeepAlive { answer, carry } => {
                self.take_keep_alive(now, answer, carry);
                // Nothing else was left to be sent: what the head names was.
                let reached = self.peers[peer_index].inbound.end();
                if !taken.has_records && header.head > reached {
                    let gap = (reached + 1, header.head);
                    self.notice_gap(now, peer_index, gap, taken.before);
                }
            }
            Frame::StateSnapshot(snapshot) => {
                self.take_snapshot(now, peer_index, snapshot, deliver);
            }
            Frame::SnapshotEnd(end) => {
                let held = core::mem::take(&mut taken.held);
                self.take_snapshot_end(now, peer_index, &end, held);
            }
            Frame::SnapshotAcknowledge(acknowledge) => {
                self.take_snapshot_acknowledge(now, peer_index, &acknowledge);
            }
            Frame::Membership(kind, body) => {
                let frame = MembershipFrame::read(kind, body);
                debug_assert!(frame.is_some(), "it was checked");
                if let Some(MembershipFrame::JoinVector { held }) = &frame {
                    taken.held.clone_from(held);
                }
                if let Some(frame) = frame {
                    self.take_membership(peer_index, header.head, &frame);
                }
            }
            Frame::Keys(keys) => self.take_keys(peer_index, header.timestamp, keys),
            Frame::Placements(placements) => {
                self.take_placements(peer_index, header.timestamp, placements);
            }
            Frame::Clock(frame) => self.take_clock(now, peer_index, &frame, deliver),
            Frame::Ask(runs) => self.take_ask(peer_index, runs),
            Frame::Lacks(runs) => self.take_lacks(now, peer_index, runs),
            Frame::Beside | Frame::Padding => {}
            Frame::Skipped => self.counters.frames_skipped += 1,
        }
    }

    fn take_keep_alive(&mut self, now: Time, answer: bool, carry: bool) {
        if answer {
            self.want_acknowledge(now, false);
        }
        if let Some(routes) = &mut self.routes {
            routes.carry |= carry;
        }
    }

    /// The cluster keys that a member accepts. Messages overtake each other: the sender's clock says which is later.
    fn take_keys(&mut self, peer_index: PeerIndex, timestamp: Time, keys: AcceptedKeys) {
        let known = &mut self.peers[peer_index].keys;
        if known.is_none_or(|(_, at)| at <= timestamp) {
            *known = Some((keys, timestamp));
        }
    }

    /// Where a member has its objects.
    fn take_placements(&mut self, peer_index: PeerIndex, timestamp: Time, placements: Placements) {
        let known = &mut self.peers[peer_index].placements;
        if known.is_none_or(|(_, at)| at <= timestamp) {
            let is_news = known.is_none_or(|(before, _)| before != placements);
            *known = Some((placements, timestamp));
            self.placements_version += u64::from(is_news);
        }
    }

    /// A member acknowledged: sets to go again what it must have lost.
    fn want_lost(&mut self, now: Time, peer_index: PeerIndex) {
        let held_back = self.coalescing.is_open();
        let peer = &mut self.peers[peer_index];
        peer.want_lost(
            (now, held_back),
            peer_index,
            &mut self.sent,
            &mut self.counters,
        );
        if let Some(outbound) = &mut peer.outbound {
            outbound.want_lost(peer.echoed, peer.round_trip.reordering());
        }
    }

    /// A member that was dropped from the log in its silence is heard again: the log still has what it lacks, or its scan
    /// begins.
    fn returns(&mut self, now: Time, peer_index: PeerIndex) {
        let index = self.membership.index(peer_index);
        let peer = &mut self.peers[peer_index];
        if peer.acknowledged < self.log.pruned() {
            return self.begin_scan(peer_index);
        }
        peer.return_to_log();
        peer.rearm(
            now,
            peer_index,
            &self.sent,
            self.own.sent_through(),
            &self.config,
        );
        let progress = &mut self.progress.members[index];
        (progress.standing, progress.lags_since) = (Standing::Current, None);
        if mutant::active(Mutant::OwedSnapshotForgotten) {
            self.peers[peer_index].outbound = None;
        }
        // What it is owed of an incarnation that ended comes by the snapshot that goes there, and by no other.
        self.end_scan(peer_index);
    }

    fn take_sender(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        peer_index: PeerIndex,
        header: &Header<'_>,
    ) {
        let index = self.membership.index(peer_index);
        let peer = &mut self.peers[peer_index];
        peer.heard = Some(now);
        if peer
            .timestamp
            .is_none_or(|(latest, _)| header.timestamp > latest)
        {
            peer.timestamp = Some((header.timestamp, now));
        }
        let progress = &mut self.progress.members[index];
        progress.heard = Some(now);
        progress.head = progress.head.max(header.head);
        if self.membership.hears(peer_index, incarnation) {
            let member = peer.member;
            progress.incarnation = Some(incarnation);
            self.events.push(Event::Heard {
                member,
                incarnation,
            });
        }
    }

    /// The own time at which the sender must have been done with what its head names: when its echo left here, and for
    /// how long the sender held it.
    fn take_echo(&mut self, now: Time, peer_index: PeerIndex, header: &Header<'_>) -> Time {
        let Some(echo) = header.echo_of(self.config.member) else {
            return Time::ZERO;
        };
        let index = self.membership.index(peer_index);
        let peer = &mut self.peers[peer_index];
        if self.snapshots.is_older_than(echo.timestamp) {
            peer.head_since_snapshot.get_or_insert(header.head);
        }
        if echo.timestamp > peer.echoed {
            peer.echoes(echo.timestamp, self.own.fresh_at());
            let sample = now.since(echo.timestamp).saturating_sub(echo.held);
            let most = self.config.retransmit_max;
            let counts = peer.round_trip.take(now, echo.timestamp, sample, most);
            // None at all is no round trip: a clock was put forward while the echo was held.
            if counts && !sample.is_zero() {
                peer.round_trip.judge(now, self.config.congested_above);
            }
            let progress = &mut self.progress.members[index];
            progress.round_trip = peer.round_trip;
            progress.receives_until = Some(echo.timestamp);
        }
        echo.timestamp + (echo.held - echo.held / CLOCK_DRIFT_PARTS)
    }

    fn take_records(
        &mut self,
        now: Time,
        (peer_index, incarnation): (PeerIndex, Incarnation),
        echo: Option<(Time, Time)>,
        groups: Groups<'_>,
        deliver: &mut impl Deliver,
    ) {
        let index = self.membership.index(peer_index);
        if !self.membership.is_ready() && self.peers[peer_index].base.is_none() {
            self.counters.groups_before_base += groups.end - groups.first;
            return;
        }
        let inbound = &mut self.peers[peer_index].inbound;
        let (first, last, reached) = (groups.first, groups.end - 1, inbound.end());
        let arrival = inbound.take(incarnation, groups, &mut self.counters, deliver);
        self.progress.members[index].received = inbound.received();
        if let Some(routes) = &mut self.routes {
            routes.asking.brings(first, last);
            self.settle_gaps(peer_index);
            if arrival.new && first > reached + 1 {
                self.notice_gap(now, peer_index, (reached + 1, first - 1), echo);
            }
        }
        // Of a gap that the relay is asked for the origin is not to hear yet.
        let routes = self.routes.as_ref();
        let held = routes.is_some_and(|routes| routes.asking.held_back(peer_index).is_some());
        // What was no news is acknowledged again: the acknowledgement was lost, or came too late.
        self.want_acknowledge(now, arrival.gap && !held);
    }

    fn take_acknowledgements(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        entries: Acknowledgements<'_>,
    ) {
        let index = self.membership.index(peer_index);
        let mut reports_own = false;
        for entry in entries {
            let Some(origin) = self.membership.index_of(entry.origin) else {
                continue;
            };
            self.reports.report(index, origin, entry.applied);
            reports_own |= origin == index;
            if origin == self.membership.me() {
                let peer = &mut self.peers[peer_index];
                if peer.acknowledges(&entry) || peer.retransmit_at.is_none() {
                    peer.rearm(
                        now,
                        peer_index,
                        &self.sent,
                        self.own.sent_through(),
                        &self.config,
                    );
                }
                if mutant::active(Mutant::RelayVouches) {
                    let behind = self.vouched_for(peer_index);
                    for peer_index in behind.iter() {
                        self.peers[peer_index].acknowledges(&entry);
                    }
                }
                let peer = &self.peers[peer_index];
                self.progress.members[index].acknowledged = peer.acknowledged;
                self.end_scan(peer_index);
                self.prune();
            }
        }
        self.peers[peer_index].reports_own = Some(reports_own);
    }

    fn take_snapshot(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        snapshot: StateSnapshot<'_>,
        deliver: &mut impl Deliver,
    ) {
        let mut brought = false;
        let delay = self.config.acknowledge_delay;
        let peer = &mut self.peers[peer_index];
        if peer.inbound_snapshot.chunk(snapshot.scan, snapshot.index) {
            brought = true;
            self.counters.snapshot_chunks_delivered += 1;
            deliver.snapshot(peer.member, snapshot.scan, snapshot.chunk);
        } else {
            self.counters.snapshot_chunks_dropped += 1;
        }
        // Half a window is worth an acknowledgement of its own: the sender waits for nothing else.
        let half = SNAPSHOT_WINDOW_CHUNKS as u32 / 2;
        if snapshot.index % half == half - 1 {
            peer.inbound_snapshot.acknowledge_at = Some(now);
        } else {
            peer.inbound_snapshot
                .acknowledge_at
                .get_or_insert(now + delay);
        }
        if brought {
            self.snapshots.takes_part(self.clock);
            for peer in &mut self.peers {
                peer.head_since_snapshot = None;
            }
        }
    }

    fn take_snapshot_acknowledge(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        acknowledge: &SnapshotAcknowledge,
    ) {
        let Some(outbound) = &mut self.peers[peer_index].outbound else {
            return;
        };
        if outbound.acknowledged(now, acknowledge) {
            let unnamed = outbound
                .held
                .split_off(outbound.named.min(outbound.held.len()));
            self.forget_scan_of(peer_index, &unnamed);
        }
    }

    fn take_snapshot_end(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        end: &SnapshotEndFrame<'_>,
        held: Vec<Held>,
    ) {
        let delay = self.config.acknowledge_delay;
        let known = |member: &MemberId| self.membership.index_of(*member).is_some();
        let vector = end.vector().filter(|(member, _)| known(member));
        let snapshot = &mut self.peers[peer_index].inbound_snapshot;
        snapshot.ended(
            end.scan,
            end.chunks,
            end.kind,
            vector.take(self.membership.len()),
            held,
        );
        snapshot.acknowledge_at.get_or_insert(now + delay);
    }

    fn complete_snapshot(&mut self, peer_index: PeerIndex, deliver: &mut impl Deliver) {
        let peer = &mut self.peers[peer_index];
        let without_chunks = mutant::active(Mutant::FalseFullyUpdated);
        if let Some(kind) = peer.inbound_snapshot.completes(without_chunks) {
            let snapshot = &peer.inbound_snapshot;
            deliver.snapshot_end(SnapshotEnd {
                from: peer.member,
                scan: snapshot.scan,
                kind,
                vector: &snapshot.vector,
            });
        }
    }

    /// What the message implies counts once the sender's stream is applied up to the head that the message names.
    fn mark(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        header: &Header<'_>,
        echoed: Time,
        acknowledges: bool,
    ) {
        let index = self.membership.index(peer_index);
        let heard = acknowledges || self.reports.message()[index] > 0;
        let applied = self.peers[peer_index].inbound.applied();
        if is_covered(header.head, applied) {
            let progress = &mut self.progress.members[index];
            progress.covered_until = progress.covered_until.max(echoed);
        }
        if header.head > applied {
            let peer = &mut self.peers[peer_index];
            let mut merged = false;
            let mark = peer
                .pending_acknowledgements
                .at(header.head, now, &mut merged);
            mark.covered = mark.covered.max(echoed);
            if heard {
                for (pending, said) in mark.vector.iter_mut().zip(self.reports.message()) {
                    *pending = (*pending).max(*said);
                }
            }
            self.counters.vectors_merged += u64::from(merged && acknowledges);
            self.progress.members[index].behind_since =
                peer.pending_acknowledgements.behind_since();
        }
        if !heard {
            return;
        }
        if counts_now(header.head, applied) {
            for origin in self.membership.places() {
                self.count(index, origin, self.reports.message()[origin]);
            }
        }
        self.reports.end_message();
    }
}

/// Whether what a message says of time holds now: its sender's stream is applied up to the head that it names.
fn is_covered(head: u64, applied: u64) -> bool {
    head <= applied || mutant::active(Mutant::CoveredWhenHeard)
}

/// Whether what a message reports as applied counts for stability now (rule 14).
fn counts_now(head: u64, applied: u64) -> bool {
    head <= applied || mutant::active(Mutant::StampIgnored)
}
