//! Members that fell off the log, and being one (rule 15): who is dropped, when its scan begins and ends, and the snapshot's way
//! in and out.

use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

use super::progress::Standing;
use super::replicator::Replicator;
use super::snapshot::OutboundSnapshot;
use super::wire::CLOCK_BYTES;
use super::{Deliver, Event, SnapshotError, SnapshotKind};
use crate::envelope::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use crate::membership::{PeerIndex, Place};

impl Replicator {
    /// The longest snapshot chunk in bytes.
    #[must_use]
    pub fn snapshot_chunk_bytes_max(&self) -> usize {
        self.config.payload_bytes_max - HEADER_BYTES_MAX - CLOCK_BYTES - FRAME_BYTES_MAX - 5 - 5
    }

    /// How many chunks [`submit_snapshot`](Replicator::submit_snapshot) takes now for that member.
    #[must_use]
    pub fn snapshot_room(&self, member: MemberId) -> usize {
        let outbound = self
            .membership
            .peer_of(member)
            .and_then(|peer_index| self.peers[peer_index].outbound.as_ref());
        outbound
            .filter(|outbound| outbound.finished.is_none())
            .map_or(0, OutboundSnapshot::room)
    }

    /// A chunk of the snapshot for a member that lags, self-contained: chunks arrive once each, in no order.
    ///
    /// # Errors
    /// See [`SnapshotError`]; nothing changed.
    pub fn submit_snapshot(
        &mut self,
        now: Time,
        member: MemberId,
        scan: u32,
        chunk: &[u8],
    ) -> Result<(), SnapshotError> {
        let _ = now;
        let longest = self.snapshot_chunk_bytes_max();
        let outbound = self.scanning(member, scan)?;
        if chunk.is_empty() || chunk.len() > longest {
            return Err(SnapshotError::BadLength);
        }
        if !outbound.push(chunk) {
            return Err(SnapshotError::Busy);
        }
        self.counters.snapshot_chunks_submitted += 1;
        Ok(())
    }

    /// The scan for that member is complete.
    ///
    /// # Errors
    /// See [`SnapshotError`]; nothing changed.
    pub fn finish_snapshot(
        &mut self,
        now: Time,
        member: MemberId,
        scan: u32,
        kind: SnapshotKind,
    ) -> Result<(), SnapshotError> {
        let _ = now;
        let late = mutant::active(Mutant::SnapshotVectorAtEnd).then(|| self.vector());
        let outbound = self.scanning(member, scan)?;
        outbound.finished = Some(kind);
        if let Some(late) = late {
            outbound.vector = late;
            self.own.names_all(self.log.head());
        }
        Ok(())
    }

    /// Every chunk of the snapshot was applied here: its vector is joined into what this member has applied, and what had
    /// waited above it is delivered. With [`Delivery::Unordered`](super::Delivery::Unordered), report with `applied`
    /// afterwards how far each prefix now held over what had been applied above it.
    pub fn snapshot_applied(
        &mut self,
        now: Time,
        from: MemberId,
        scan: u32,
        deliver: &mut impl Deliver,
    ) {
        let Some(server) = self.membership.peer_of(from) else {
            return;
        };
        let snapshot = &mut self.peers[server].inbound_snapshot;
        if snapshot.scan != scan || !snapshot.complete {
            return;
        }
        (snapshot.complete, snapshot.unjoined, snapshot.joined) = (false, false, true);
        snapshot.acknowledge_at = Some(now);
        let vector = core::mem::take(&mut snapshot.vector);
        for &(origin, sequence) in &vector {
            let Some(peer_index) = self.membership.peer_of(origin) else {
                continue;
            };
            let incarnation = self.membership.incarnation(peer_index).unwrap_or_default();
            let peer = &mut self.peers[peer_index];
            peer.inbound
                .cover(incarnation, sequence, &mut self.counters, deliver);
            self.applied_more(peer_index);
        }
        self.joined_snapshot(server, &vector);
        self.counters.snapshots_joined += 1;
        self.want_acknowledge(now, true);
        self.judge_members(now);
    }

    fn scanning(
        &mut self,
        member: MemberId,
        scan: u32,
    ) -> Result<&mut OutboundSnapshot, SnapshotError> {
        let peer_index = self
            .membership
            .peer_of(member)
            .ok_or(SnapshotError::NotScanning)?;
        let outbound = self.peers[peer_index]
            .outbound
            .as_mut()
            .filter(|outbound| outbound.scan == scan);
        outbound
            .filter(|outbound| outbound.finished.is_none())
            .ok_or(SnapshotError::NotScanning)
    }

    /// The log is filling: who pins more than half of it is dropped from it (rule 15).
    pub(super) fn make_room(&mut self, now: Time) {
        if mutant::active(Mutant::FullLogDropsOldest) {
            self.prune_through(
                self.own
                    .sent_through()
                    .min(self.log.pruned() + self.log.groups() as u64 / 2),
            );
            return;
        }
        for peer_index in self.peers.places() {
            let peer = &mut self.peers[peer_index];
            let high =
                |pin| self.log.is_half(pin, self.own.sent_through()) || self.sent.is_half(pin);
            if !peer.pin().is_some_and(high) {
                continue;
            }
            self.counters.lagging_replicas += u64::from(peer.standing == Standing::Current);
            let heard = peer.is_heard(now, &self.config);
            match peer.standing {
                // Its scan goes on. What the log loses meanwhile a second scan brings, from where this one began: a
                // smaller one, where beginning again might never end.
                Standing::Imaging if heard => peer.lose_log(),
                _ if heard => self.begin_scan(peer_index),
                _ => self.give_up_on(peer_index),
            }
        }
        self.prune();
    }

    /// A silent member is served by nothing until it is heard again.
    pub(super) fn give_up_on(&mut self, peer_index: PeerIndex) {
        let (index, head) = (self.membership.index(peer_index), self.log.head());
        let peer = &mut self.peers[peer_index];
        peer.drop_from_log(Standing::Absent, head);
        peer.outbound = None;
        self.forget_scan(peer_index);
        let progress = &mut self.progress.members[index];
        progress.standing = Standing::Absent;
        progress.lags_since.get_or_insert(self.clock);
    }

    /// A member that fell off the log is served from the tables from now on.
    pub(super) fn begin_scan(&mut self, peer_index: PeerIndex) {
        let (index, head) = (self.membership.index(peer_index), self.log.head());
        self.peers[peer_index].drop_from_log(Standing::Imaging, head);
        let progress = &mut self.progress.members[index];
        progress.standing = Standing::Imaging;
        progress.lags_since.get_or_insert(self.clock);
        // Who joins must not take another snapshot for its sponsor's, which alone has all of the incarnations that ended.
        if !self.membership.is_joining(peer_index) {
            self.begin_snapshot(peer_index);
        }
    }

    /// A snapshot for a member begins, wherever the log serves it from.
    pub(super) fn begin_snapshot(&mut self, peer_index: PeerIndex) {
        let (index, head) = (self.membership.index(peer_index), self.log.head());
        let (vector, held) = (self.vector(), self.held_now(index));
        let peer = &mut self.peers[peer_index];
        peer.scan = self.scans.next();
        let (member, scan) = (peer.member, peer.scan);
        peer.outbound = Some(OutboundSnapshot::new(scan, vector, held));
        self.own.names_all(head);
        self.counters.scans_begun += 1;
        let reported = self.reports.greatest(index);
        let mut beyond: Vec<(MemberId, u64)> = self
            .membership
            .names()
            .iter()
            .copied()
            .zip(reported.iter().copied())
            .collect();
        // It has all of its own.
        beyond[index.number()].1 = self.progress.members[index].head;
        self.events.push(Event::LaggingReplica {
            member,
            scan,
            beyond,
        });
    }

    /// What a member that lags applied has passed where its scan began: it is served from the log again, or, where the log has lost
    /// what followed, by a scan from there.
    pub(super) fn end_scan(&mut self, peer_index: PeerIndex) {
        let index = self.membership.index(peer_index);
        let owed = self.scan_is_owed(peer_index);
        let peer = &mut self.peers[peer_index];
        if peer.standing == Standing::Current && peer.outbound.is_some() && !owed {
            peer.outbound = None;
            let (member, scan) = (peer.member, peer.scan);
            return self.events.push(Event::CaughtUp { member, scan });
        }
        if peer.standing != Standing::Imaging || peer.acknowledged < peer.floor() || owed {
            return;
        }
        let kept =
            peer.acknowledged >= self.log.pruned() || mutant::active(Mutant::LogNotKeptDuringScan);
        if !kept {
            self.begin_scan(peer_index);
        } else {
            peer.outbound = None;
            peer.return_to_log();
            let (member, scan) = (peer.member, peer.scan);
            let progress = &mut self.progress.members[index];
            (progress.standing, progress.lags_since) = (Standing::Current, None);
            self.events.push(Event::CaughtUp { member, scan });
        }
    }

    /// What is applied here of each origin.
    fn vector(&self) -> Vec<(MemberId, u64)> {
        self.progress
            .members
            .iter()
            .map(|progress| (progress.member, progress.applied))
            .collect()
    }
}
