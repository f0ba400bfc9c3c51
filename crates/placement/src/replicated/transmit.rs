//! Writing state messages: what is due, to which member, in which order.

use crate::envelope::{
    ECHO_BYTES_MAX, Echo, FRAME_BYTES_MAX, HEADER_BYTES_MAX, Header, KIND_ACKNOWLEDGE,
    KIND_KEEP_ALIVE, KIND_KEYS, KIND_PLACEMENTS, KIND_RECORDS, KIND_SNAPSHOT,
    KIND_SNAPSHOT_ACKNOWLEDGE, KIND_SNAPSHOT_END, varint_bytes, write_frame, write_varint,
};
use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

use super::inbound::Inbound;
use super::participants::snapshot_held;
use super::progress::Standing;
use super::replicator::Replicator;
use super::sites::Gap;
use super::snapshot::Piece;
use super::wire::{
    AcceptedKeys, CLOCK_BYTES, KEYS_BYTES_MAX, PLACEMENTS_BYTES_MAX, Placements, SnapshotEndFrame,
    StateSnapshot, write_entry,
};
use super::{Destination, SnapshotKind};
use crate::membership::{MembershipFrame, PeerIndex, PeerSet};

/// Bytes of an acknowledgement's entry without its runs, at the most.
const ENTRY_BYTES_MAX: usize = 3 + 9 + 9 + 1;
/// Bytes of one run in an entry, at the most, while its window is at most `GROUPS_LIMIT`.
const RUN_BYTES_MAX: usize = 4 + 4;
/// Bytes of a keep-alive frame.
const KEEP_ALIVE_BYTES: usize = 3;

impl Replicator {
    /// Writes the next state message into `buffer` (cleared first) and returns its recipient; `None` when there is nothing
    /// to send now. `now` must have been read before the last groups were submitted: the message claims that they are all
    /// that was committed by then.
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Destination> {
        buffer.clear();
        if let Some(routes) = &mut self.routes {
            routes.light = false;
        }
        if self.peers.is_empty() || !self.membership.am_present() {
            return None;
        }
        self.clock = self.clock.max(now);
        let vector = self.vector_goes(now);
        let due = self.vector_due() <= now;
        let destination = self
            .transmit_snapshot_acknowledge(now, due, buffer)
            .or_else(|| self.transmit_ask(now, buffer))
            .or_else(|| self.transmit_again(now, vector, buffer))
            .or_else(|| self.transmit_snapshot(now, buffer))
            .or_else(|| self.transmit_fresh(now, vector, buffer))
            .or_else(|| due.then(|| self.transmit_vector(now, buffer)))?;
        debug_assert!(buffer.len() <= self.config.payload_bytes_max);
        self.counters.messages_sent += 1;
        self.counters.bytes_sent += buffer.len() as u64;
        Some(destination)
    }

    /// Has new messages be at most so many bytes long, between [`PAYLOAD_BYTES_MIN`](super::PAYLOAD_BYTES_MIN) and
    /// the configuration's bound: for a path that turned out to be narrower. What was sent before under a greater
    /// bound goes again as it was, and so do parts of snapshots.
    pub fn set_payload_bytes(&mut self, bytes: usize) {
        self.writer.set_payload_bytes(bytes);
    }

    /// Has acknowledgements say, once in [`KEYS_INTERVAL`](super::KEYS_INTERVAL) and with the next one, which cluster keys this member accepts.
    pub fn announce_keys(&mut self, keys: AcceptedKeys) {
        self.keys.set(keys);
    }

    /// Which cluster keys a member said that it accepts, in the incarnation of it that is known; `None` if it did not say.
    #[must_use]
    pub fn keys_of(&self, member: MemberId) -> Option<AcceptedKeys> {
        let peer = self.peers.iter().find(|peer| peer.member == member)?;
        peer.keys.map(|(keys, _)| keys)
    }

    /// Has acknowledgements say, as often and with the next one, where this member has its objects.
    pub fn announce_placements(&mut self, now: Time, placements: Placements) {
        self.placements.set(placements);
        self.want_acknowledge(now, true);
    }

    /// Where a member said that it has its objects, in the incarnation of it that is known; `None` if it did not say.
    #[must_use]
    pub fn placements_of(&self, member: MemberId) -> Option<Placements> {
        let peer = self.peers.iter().find(|peer| peer.member == member)?;
        peer.placements.map(|(placements, _)| placements)
    }

    /// Changes with what [`placements_of`](Replicator::placements_of) answers, and with the epoch.
    #[must_use]
    pub fn placements_version(&self) -> u64 {
        self.placements_version
    }

    /// Fills a message that is nearly full, so that full messages have one length. Others it leaves alone.
    pub fn pad(&self, buffer: &mut Vec<u8>) {
        self.writer.pad(buffer);
    }

    /// Whether a message to all that goes anyhow should carry acknowledgements.
    fn vector_goes(&self, now: Time) -> bool {
        let delay = self.config.acknowledge_delay;
        self.acknowledgements.goes_along(now, delay) || self.vector_due() <= now
    }

    /// Whether the unsent groups fill a message, so that none should wait for more.
    pub(super) fn fills_a_message(&self) -> bool {
        let first = self.own.sent_through() + 1;
        let unsent = self.log.run_bytes(first, self.log.head());
        unsent + HEADER_BYTES_MAX + FRAME_BYTES_MAX >= self.writer.payload_bytes()
    }

    /// What a run costs beside its bytes.
    fn records_overhead(first: u64) -> usize {
        FRAME_BYTES_MAX + varint_bytes(first)
    }

    /// Begins a message without acknowledgements.
    pub(super) fn begin(&mut self, buffer: &mut Vec<u8>) {
        buffer.clear();
        self.membership.sends_leave_unannounced(self.clock);
        Header::write(
            buffer,
            self.writer.wire_version(),
            self.membership.cluster(),
            self.membership.epoch(),
            self.clock,
            self.named_head(),
        );
        self.write_clock(false, buffer);
    }

    /// Begins a message to all with acknowledgements and echoes.
    fn begin_with_vector(&mut self, now: Time, buffer: &mut Vec<u8>) {
        buffer.clear();
        let count = Header::write(
            buffer,
            self.writer.wire_version(),
            self.membership.cluster(),
            self.membership.epoch(),
            self.clock,
            self.named_head(),
        );
        let peers = self.peers.len();
        let announced = self.keys.due(now);
        let keys_bytes = announced.map_or(0, |_| KEYS_BYTES_MAX);
        let placements = self.placements.due(now);
        let placements_bytes = placements.map_or(0, |_| PLACEMENTS_BYTES_MAX);
        let announced_bytes = keys_bytes + placements_bytes + CLOCK_BYTES;
        let room = self.writer.payload_bytes() - 2 * KEEP_ALIVE_BYTES - announced_bytes;
        let mut echoes = 0;
        for peer_index in self.peers.places_from(self.turns.acknowledgements) {
            let peer = &self.peers[peer_index];
            let held_back = self.held_back(peer_index);
            let echo = held_back.map_or(peer.timestamp, |gap| gap.echo);
            let Some((timestamp, arrived)) = echo else {
                continue;
            };
            if buffer.len() + ECHO_BYTES_MAX > room / 2 {
                break;
            }
            Echo {
                member: peer.member,
                timestamp,
                held: now.since(arrived),
            }
            .write(buffer);
            echoes += 1;
        }
        count.set(buffer, echoes);
        self.write_clock(true, buffer);
        let members_change = self.membership.is_join_under_way() || !self.closings.is_empty();
        if self.membership.is_leaving() || members_change {
            self.write_membership(room / 4 * 3, buffer);
        }
        let written = self.write_acknowledgements(room - buffer.len() - FRAME_BYTES_MAX);
        self.writer.end(KIND_ACKNOWLEDGE, buffer);
        if usize::from(echoes) < peers || written < peers {
            let both = written.min(usize::from(echoes)).max(1);
            let next = self.peers.place_after(self.turns.acknowledgements, both);
            self.turns.acknowledgements = next;
        }
        if let Some(keys) = announced {
            keys.write(self.writer.begin());
            self.writer.end(KIND_KEYS, buffer);
            self.keys.went(now);
        }
        if let Some(placements) = placements {
            placements.write(self.writer.begin());
            self.writer.end(KIND_PLACEMENTS, buffer);
            self.placements.went(now);
        }
        if self.acknowledgements.take_probe() {
            write_frame(buffer, KIND_KEEP_ALIVE, &[1]);
        }
        self.acknowledgements.went(now);
        self.counters.acknowledgements_sent += 1;
    }

    /// The lowest gap of that stream that the relay is asked for.
    fn held_back(&self, peer_index: PeerIndex) -> Option<&Gap> {
        self.routes.as_ref()?.asking.held_back(peer_index)
    }

    /// Writes the entries that fit into the body; how many.
    fn write_acknowledgements(&mut self, room: usize) -> usize {
        let mut written = 0;
        let (own_applied, with_applied) = (self.own_applied(), self.acknowledges_applied());
        let (body, runs) = self.writer.begin_acknowledgement();
        // The number of entries takes one byte, for at most 64 of them.
        body.push(0);
        if self.config.siblings {
            write_entry(body, self.config.member, own_applied, own_applied, &[]);
        }
        for peer_index in self.peers.places_from(self.turns.acknowledgements) {
            let peer = &self.peers[peer_index];
            if peer.standing == Standing::Out {
                continue;
            }
            let Some(runs_room) = room.checked_sub(body.len() + ENTRY_BYTES_MAX) else {
                break;
            };
            let whole = peer.inbound.runs(self.config.gap_runs_max, runs);
            let mut received = peer.inbound.received();
            let routes = self.routes.as_ref();
            if let Some(gap) = routes.and_then(|routes| routes.asking.held_back(peer_index)) {
                hold_back(gap, &mut received, runs);
            }
            let fitting = runs.len().min(runs_room / RUN_BYTES_MAX);
            self.counters.gap_lists_cut += u64::from(!whole || fitting < runs.len());
            let applied = match with_applied {
                true => acknowledged(&peer.inbound, received),
                false => 0,
            };
            write_entry(body, peer.member, applied, received, &runs[..fitting]);
            written += 1;
        }
        debug_assert!(written <= self.peers.len());
        body[0] = written as u8 + u8::from(self.config.siblings);
        written
    }

    /// Whether acknowledgements report groups as applied: a newcomer's do not before it has the earlier state.
    fn acknowledges_applied(&self) -> bool {
        self.membership.is_ready() || mutant::active(Mutant::NewcomerAcknowledges)
    }

    /// What this member, which lags, has of the snapshot that serves it, to who serves it. Goes before acknowledgements, whose echo
    /// would make chunks look lost.
    fn transmit_snapshot_acknowledge(
        &mut self,
        now: Time,
        due: bool,
        buffer: &mut Vec<u8>,
    ) -> Option<Destination> {
        let owed = |at: Option<Time>| at.is_some_and(|at| due || at <= now);
        let peer_index = self
            .peers
            .position(|peer| owed(peer.inbound_snapshot.acknowledge_at))?;
        self.begin(buffer);
        let peer = &mut self.peers[peer_index];
        peer.inbound_snapshot.acknowledge_at = None;
        let acknowledge = peer.inbound_snapshot.acknowledge();
        acknowledge.write(self.writer.begin());
        self.writer.end(KIND_SNAPSHOT_ACKNOWLEDGE, buffer);
        self.counters.messages_without_records_sent += 1;
        Some(Destination::One(peer.member))
    }

    /// Runs that are to go again, to the members that lack them.
    fn transmit_again(
        &mut self,
        now: Time,
        vector: bool,
        buffer: &mut Vec<u8>,
    ) -> Option<Destination> {
        if !self.sent.has_again() || !self.repairs_may_go(now) {
            return None;
        }
        let (mut number, to) = self.next_again()?;
        let one = to.only().map(|peer_index| self.peers[peer_index].member);
        // Sites that have it all need not hear it again.
        let sites = one.map_or_else(|| self.sites_of(to), |_| None);
        let reported = match (one, sites) {
            (Some(_), _) => to,
            (None, Some(sites)) => self.peers_in(sites),
            (None, None) => PeerSet::ALL,
        };
        let with_vector = vector && reported == PeerSet::ALL;
        if with_vector {
            self.begin_with_vector(now, buffer);
        } else {
            self.begin(buffer);
        }
        let mut any = false;
        // A copy goes in another message than what it is a copy of.
        let copies = self.sent.run(number).copied;
        loop {
            let run = *self.sent.run(number);
            // Of a run that was partly pruned only the rest is kept, and needed.
            let first = self.sent.rest_of(number).max(self.log.pruned() + 1);
            let length = self.log.run_bytes(first, run.last);
            // The first may have been cut for a wider path; more join it only as the path is now.
            let most = if any {
                self.writer.payload_bytes()
            } else {
                self.config.payload_bytes_max
            };
            if buffer.len() + Self::records_overhead(first) + length > most {
                // Acknowledgements took its place, or it is for the next message. By itself it goes in parts.
                if !any && !with_vector && !mutant::active(Mutant::RepairsWholeRuns) {
                    self.transmit_part(number, first, most, buffer);
                }
                break;
            }
            self.write_records(first, run.last, true, buffer);
            any = true;
            self.counters.groups_retransmitted += run.last - first + 1;
            self.sent.resent(number, reported, now);
            self.sent.pop_again();
            self.counters.repair_copies += u64::from(self.sent.want_copy(number, to));
            match self.next_again() {
                Some((next, same)) if same == to && self.sent.run(next).copied == copies => {
                    number = next;
                }
                _ => break,
            }
        }
        self.repaired(now, buffer.len());
        let all = sites.map_or(Destination::All, Destination::Sites);
        Some(one.map_or(all, Destination::One))
    }

    /// Whether repairs may go now.
    fn repairs_may_go(&mut self, now: Time) -> bool {
        let bytes = self.coalescing.window().bytes;
        let membership = &self.membership;
        let mut served = self.peers.each().filter(|(peer_index, peer)| {
            peer.standing == Standing::Current && membership.incarnation(*peer_index).is_some()
        });
        self.repairs.may_go(now, bytes, |last| {
            served.all(|(_, peer)| peer.echoed >= last)
        })
    }

    /// So many bytes went again.
    fn repaired(&mut self, now: Time, bytes: usize) {
        let mut repairs = self.repairs;
        repairs.went(bytes as u64, self.clock, || now + self.path(now).round_trip);
        self.repairs = repairs;
    }

    /// As much as fits of a run that filled its message when headers were shorter: those of this epoch may have a longer number,
    /// or name a head that has run ahead. The rest goes in the next message.
    #[cold]
    fn transmit_part(&mut self, number: u64, first: u64, most: usize, buffer: &mut Vec<u8>) {
        let taken = buffer.len() + Self::records_overhead(first);
        let last = self
            .log
            .longest_run(first, most.saturating_sub(taken))
            .min(self.sent.run(number).last);
        if last < first {
            debug_assert!(false, "the longest group fits beside any header");
            return self.sent.pop_again();
        }
        self.write_records(first, last, true, buffer);
        self.counters.groups_retransmitted += last - first + 1;
        self.sent.part_went(last);
    }

    /// The next run to retransmit, and its recipients.
    fn next_again(&mut self) -> Option<(u64, PeerSet)> {
        while let Some(number) = self.sent.peek_again() {
            let run = *self.sent.run(number);
            let lacks = |peer_index: &PeerIndex| self.peers[*peer_index].lacks(run.first, run.last);
            let mut to: PeerSet = run.wanted.iter().filter(lacks).collect();
            // Who is known to lack it too is served by the same message.
            for (peer_index, peer) in self.peers.each() {
                if !to.is_empty()
                    && !to.has(peer_index)
                    && peer.has_gap(&run, self.sent.sent_at(number, peer_index))
                {
                    to = to.with(peer_index);
                }
            }
            self.sent.run_mut(number).wanted = to;
            if !to.is_empty() {
                return Some((number, to));
            }
            self.sent.pop_again();
        }
        None
    }

    /// A frame of records.
    fn write_records(&mut self, first: u64, last: u64, again: bool, buffer: &mut Vec<u8>) {
        buffer.push(KIND_RECORDS);
        let length = varint_bytes(first) + self.log.run_bytes(first, last);
        if again && first < last && mutant::active(Mutant::SentRecordChanges) {
            return self.write_changed_records(first, last, buffer);
        }
        write_varint(buffer, length as u64);
        write_varint(buffer, first);
        self.log.copy_run(first, last, buffer);
    }

    /// The planted bug: the first group has grown by the one after it.
    fn write_changed_records(&mut self, first: u64, last: u64, buffer: &mut Vec<u8>) {
        let group = |log: &super::log::Log, sequence: u64| {
            let mut bytes = Vec::new();
            log.copy_run(sequence, sequence, &mut bytes);
            let length = if bytes[0] & 0x80 != 0 { 2 } else { 1 };
            bytes.split_off(length)
        };
        let mut grown = group(&self.log, first);
        grown.extend(group(&self.log, first + 1));
        let body = self.writer.begin();
        write_varint(body, first);
        write_varint(body, grown.len() as u64);
        body.extend(grown);
        self.log.copy_run(first + 1, last, body);
        write_varint(buffer, body.len() as u64);
        buffer.extend_from_slice(body);
        buffer.truncate(self.config.payload_bytes_max);
    }

    /// A piece of a snapshot for a member that lags.
    fn transmit_snapshot(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Destination> {
        let has_piece = |outbound: &super::snapshot::OutboundSnapshot| outbound.has_piece();
        let peer_index = self
            .peers
            .position(|peer| peer.outbound.as_ref().is_some_and(has_piece))?;
        self.begin(buffer);
        let peer = &mut self.peers[peer_index];
        let outbound = peer.outbound.as_mut()?;
        let scan = outbound.scan;
        let body = self.writer.begin();
        match outbound.take_piece(now)? {
            Piece::Chunk {
                index,
                bytes,
                again,
            } => {
                StateSnapshot {
                    scan,
                    index,
                    chunk: bytes,
                }
                .write(body);
                self.writer.end(KIND_SNAPSHOT, buffer);
                self.counters.snapshot_chunks_retransmitted += u64::from(again);
            }
            Piece::End => {
                let kind = outbound.finished.unwrap_or(SnapshotKind::Changes);
                let vector: &[(MemberId, u64)] = &outbound.vector;
                SnapshotEndFrame::write(body, scan, outbound.next, kind, vector);
                if !outbound.held.is_empty() {
                    let taken = buffer.len() + body.len() + 2 * FRAME_BYTES_MAX + 1;
                    let room = self.config.payload_bytes_max.saturating_sub(taken);
                    let held = snapshot_held(&outbound.held, room);
                    outbound.named = outbound.named.min(held.len());
                    let held = MembershipFrame::JoinVector { held };
                    let mut body = Vec::new();
                    held.write(&mut body);
                    write_frame(buffer, held.kind(), &body);
                }
                self.writer.end(KIND_SNAPSHOT_END, buffer);
            }
        }
        self.counters.messages_without_records_sent += 1;
        Some(Destination::One(peer.member))
    }

    /// Groups that were not sent yet, as many as fit.
    fn transmit_fresh(
        &mut self,
        now: Time,
        vector: bool,
        buffer: &mut Vec<u8>,
    ) -> Option<Destination> {
        let since = self.own.unsent_since()?;
        if self.sent.is_full() {
            self.make_room(now);
        }
        if self.own.sent_through() >= self.log.head() || self.sent.is_full() {
            return None;
        }
        if since + self.config.lookahead > now && !self.fills_a_message() {
            return None;
        }
        if self.coalescing.is_open() && mutant::active(Mutant::WindowHoldsGroups) {
            return None;
        }
        if vector {
            self.begin_with_vector(now, buffer);
        } else {
            self.begin(buffer);
        }
        let first = self.own.sent_through() + 1;
        // Sent again, the run must fit beside a header whose head has grown by at most a log's length.
        let head = self.log.head();
        let named = self.named_head();
        let growth = varint_bytes(named + self.config.log_groups_max as u64) - varint_bytes(named);
        let taken = buffer.len() + growth + Self::records_overhead(first);
        let last = self
            .log
            .longest_run(first, self.writer.payload_bytes().saturating_sub(taken));
        if last < first {
            debug_assert!(vector, "the longest group fits a message");
            self.counters.messages_without_records_sent += 1;
            return Some(Destination::All);
        }
        self.write_records(first, last, false, buffer);
        self.counters.groups_sent += last - first + 1;
        self.sent.push(first, last, now);
        self.own.sends(last, head, self.clock);
        for (peer_index, peer) in self.peers.each_mut() {
            peer.sends(now);
            if peer.retransmit_at.is_none() {
                peer.rearm(now, peer_index, &self.sent, last, &self.config);
            }
        }
        if self.sent.is_high() {
            self.make_room(now);
        }
        Some(Destination::All)
    }

    /// Only acknowledgements: they are due, and nothing else is.
    fn transmit_vector(&mut self, now: Time, buffer: &mut Vec<u8>) -> Destination {
        let (probes, announces) = (self.acknowledgements.probes(), self.keys.due(now).is_some());
        if mutant::active(Mutant::KeepAliveWithoutVector) {
            self.begin(buffer);
            self.acknowledgements.went(now);
        } else {
            self.begin_with_vector(now, buffer);
        }
        // What a later one does not replace (an answer wanted, keys reported once a second) goes by itself.
        let replaceable = !probes && !announces;
        let carried = replaceable && self.is_carried();
        if let Some(routes) = &mut self.routes {
            routes.light = replaceable;
        }
        write_frame(buffer, KIND_KEEP_ALIVE, &[if carried { 2 } else { 0 }]);
        self.counters.messages_without_records_sent += 1;
        Destination::All
    }
}

/// The relay is asked for this gap first: of what lies above it the origin hears later.
fn hold_back(gap: &Gap, received: &mut u64, runs: &mut Vec<(u64, u64)>) {
    runs.retain(|run| run.1 < gap.first);
    if mutant::active(Mutant::AskedCountsAsReceived) {
        *received = gap.last.max(*received);
        runs.clear();
    }
}

/// How much of a stream is acknowledged as applied.
fn acknowledged(inbound: &Inbound, received: u64) -> u64 {
    match mutant::active(Mutant::AcknowledgesUnapplied) {
        true => received,
        false => inbound.applied(),
    }
}
