//! One host's end of the replication: what it holds, and the verbs that neither read nor write messages.

use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

use super::acknowledgement_schedule::{AcknowledgementSchedule, Turns};
use super::announcement::Announcement;
use super::applied_reports::AppliedReports;
use super::closings::Closings;
use super::cluster_time::ClusterTime;
use super::coalescing::{Coalescing, Path, Window};
use super::config::{Config, ConfigError, GROUP_BYTES_MAX};
use super::confirms::Confirms;
use super::counters::Counters;
use super::events::Events;
use super::log::Log;
use super::message_writer::MessageWriter;
use super::own_stream::OwnStream;
use super::peer::Peer;
use super::progress::{MemberProgress, Progress, RoundTrip, Standing};
use super::repairs::Repairs;
use super::sent::Sent;
use super::sites::Routes;
use super::snapshot::ScanNumbers;
use super::snapshots_received::SnapshotsReceived;
use super::stability::Stability;
use super::wire::{AcceptedKeys, Placements};
use super::{Event, LogCapacity, SubmitError};
use crate::membership::{ByPeer, MemberIndex, Membership, PeerIndex};

/// A member that lacks what was sent this many longest windows ago does not keep pace.
const PATIENCE: u32 = 4;

/// One host's end of the replication. Sans I/O; every call is bounded by its arguments and the configuration, and
/// allocates nothing once its buffers have grown to what the traffic needs, except while a member that lags is served.
#[derive(Debug)]
pub struct Replicator {
    pub(super) config: Config,
    /// Who is a member, who takes part in the epoch, who joins and who leaves.
    pub(super) membership: Membership,
    /// The other members.
    pub(super) peers: ByPeer<Peer>,
    /// The groups of the own stream that others may lack.
    pub(super) log: Log,
    /// When each of them went to each member.
    pub(super) sent: Sent,
    /// How far the own stream is committed and sent.
    pub(super) own: OwnStream,
    /// When accumulators may log what changed.
    pub(super) coalescing: Coalescing,
    /// How much may go again at once.
    pub(super) repairs: Repairs,
    /// What members reported as applied.
    pub(super) reports: AppliedReports,
    /// What of it counts for stability (rule 14).
    pub(super) stability: Stability,
    /// Where streams begin for newcomers.
    pub(super) confirms: Confirms,
    /// Incarnations that epochs ended.
    pub(super) closings: Closings,
    /// What snapshots brought here.
    pub(super) snapshots: SnapshotsReceived,
    /// The numbers of scans that begin here.
    pub(super) scans: ScanNumbers,
    /// How far every member is, for the driver.
    pub(super) progress: Progress,
    pub(super) counters: Counters,
    /// What the driver is still to hear of.
    pub(super) events: Events,
    /// When acknowledgements go.
    pub(super) acknowledgements: AcknowledgementSchedule,
    /// What goes first where not all fits.
    pub(super) turns: Turns,
    /// The cluster's time.
    pub(super) time: ClusterTime,
    /// The cluster keys that this member announces.
    pub(super) keys: Announcement<AcceptedKeys>,
    /// Where this member announces to have its objects.
    pub(super) placements: Announcement<Placements>,
    /// Changes with what is known of the others'.
    pub(super) placements_version: u64,
    /// The latest timestamp sent.
    pub(super) clock: Time,
    /// How messages are written.
    pub(super) writer: MessageWriter,
    /// Where members are; `None` without sites.
    pub(super) routes: Option<Routes>,
}

impl Replicator {
    /// A replicator that has sent and heard nothing.
    ///
    /// # Errors
    /// The configuration is out of its bounds; nothing was started.
    pub fn new(config: Config, now: Time) -> Result<Replicator, ConfigError> {
        config.validate()?;
        let joins = config.joins;
        let membership = Membership::new(
            (config.cluster, config.epoch),
            (config.member, config.incarnation),
            &config.members,
            joins,
        );
        let (count, me, names) = (membership.len(), membership.me(), membership.names());
        let others = names.iter().filter(|&&member| member != config.member);
        let mut peers: ByPeer<Peer> = others.map(|&member| Peer::new(member, &config)).collect();
        let mut progress = Progress {
            members: names.iter().map(|&member| begin(member)).collect(),
        };
        if joins {
            for peer in &mut peers {
                peer.standing = Standing::Out;
            }
            for member in &mut progress.members {
                member.standing = Standing::Out;
            }
        }
        progress.members[me].standing = Standing::Current;
        progress.members[me].incarnation = Some(config.incarnation);
        progress.members[me].covered_until = Time::MAX;
        progress.members[me].heard = Some(now);
        let mut replicator = Replicator {
            routes: Routes::new(&config, names),
            log: Log::new(config.log_bytes_max, config.log_groups_max),
            sent: Sent::new(config.log_groups_max, peers.len()),
            own: OwnStream::default(),
            coalescing: Coalescing::default(),
            repairs: Repairs::default(),
            reports: AppliedReports::new(count),
            stability: Stability::new(count),
            confirms: Confirms::new(count),
            closings: Closings::default(),
            snapshots: SnapshotsReceived::default(),
            scans: ScanNumbers::new(config.incarnation),
            progress,
            counters: Counters::default(),
            events: Events::new(count),
            acknowledgements: AcknowledgementSchedule::default(),
            turns: Turns::default(),
            time: ClusterTime::new(config.cluster_time_at_zero_us),
            keys: Announcement::default(),
            placements: Announcement::default(),
            placements_version: 0,
            clock: Time::ZERO,
            writer: MessageWriter::new(config.payload_bytes_max),
            config,
            membership,
            peers,
        };
        replicator.elect_relays(now);
        Ok(replicator)
    }

    /// The configuration it was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The last own sequence submitted; 0 before the first.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.log.head()
    }

    /// The last own sequence that was sent, or that nobody needs to be sent any more.
    #[must_use]
    pub fn sent_through(&self) -> u64 {
        self.own.sent_through()
    }

    /// Own groups up to `sequence` are committed, though not all of them are submitted yet (the log may be full): what is
    /// said from now on names them as the head, so that nobody takes itself to have all that was committed here.
    pub fn committed(&mut self, sequence: u64) {
        self.own.commits(sequence);
    }

    /// The head that messages name.
    pub(super) fn named_head(&self) -> u64 {
        self.own.named_head(self.log.head())
    }

    /// An own group, committed under `sequence` (consecutive, from 1). Its bytes are copied into the log. When the log is
    /// three quarters full, members that pin more than half of it are dropped from it first (rule 15).
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing changed.
    #[inline]
    pub fn submit(&mut self, now: Time, sequence: u64, group: &[u8]) -> Result<(), SubmitError> {
        let expected = self.log.head() + 1;
        if sequence != expected {
            return Err(SubmitError::NotConsecutive { expected });
        }
        if group.is_empty() || group.len() > GROUP_BYTES_MAX {
            return Err(SubmitError::BadLength);
        }
        if self.log.is_high() {
            self.make_room(now);
        }
        if !self.log.append(group) {
            self.counters.groups_log_full += 1;
            return Err(SubmitError::LogFull);
        }
        self.counters.groups_submitted += 1;
        self.time.settle(now);
        self.own.submits(now, sequence);
        let own = &mut self.progress.members[self.membership.me()];
        own.applied = sequence;
        own.received = sequence;
        own.head = sequence;
        own.acknowledged = sequence;
        if !self.config.siblings {
            self.count(self.membership.me(), self.membership.me(), sequence);
        }
        if self.is_alone() {
            self.prune();
        }
        Ok(())
    }

    /// Room left in the log. A burst starts only when this covers its largest groups (rule 3).
    #[must_use]
    pub fn log_room(&self) -> LogCapacity {
        let (groups, bytes) = self.log.room();
        LogCapacity { groups, bytes }
    }

    /// When `handle_timeout` and `poll_transmit` are due next, whatever arrives. A time in the past means at once. `None`
    /// only in a cluster of one.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.peers.is_empty() || !self.membership.am_present() {
            return None;
        }
        let mut next = self.vector_due();
        if self.sent.has_again() {
            next = next.min(self.repairs.due());
        }
        if let Some(since) = self.own.unsent_since()
            && !self.sent.is_full()
        {
            next = next.min(if self.fills_a_message() {
                Time::ZERO
            } else {
                since + self.config.lookahead
            });
        }
        if let Some(at) = self.coalescing.closes_at(self.own.sent_through()) {
            next = next.min(at);
        }
        if let Some(at) = self.routes.as_ref().and_then(Routes::poll_timeout) {
            next = next.min(at);
        }
        let most = self.config.retransmit_max;
        for peer in &self.peers {
            let mut at = |time: Option<Time>| next = next.min(time.unwrap_or(Time::MAX));
            at(peer.retransmit_at);
            at(peer.reorder_at);
            at(peer.inbound_snapshot.acknowledge_at);
            if let Some(outbound) = &peer.outbound {
                at(outbound.has_piece().then_some(Time::ZERO));
                at(outbound.deadline(peer.timeout(&self.config), most));
            }
        }
        Some(next)
    }

    /// Lets every timer that is due by `now` run out.
    pub fn handle_timeout(&mut self, now: Time) {
        let most = self.config.retransmit_max;
        let held_back = self.coalescing.is_open();
        for (peer_index, peer) in self.peers.each_mut() {
            if peer.reorder_at.is_some_and(|at| at <= now) {
                peer.want_lost(
                    (now, held_back),
                    peer_index,
                    &mut self.sent,
                    &mut self.counters,
                );
            }
            if peer.retransmit_at.is_some_and(|at| at <= now) {
                peer.timed_out(
                    now,
                    peer_index,
                    &mut self.sent,
                    self.own.sent_through(),
                    &self.config,
                    &mut self.counters,
                );
            }
            if let Some(mut outbound) = peer.outbound.take() {
                outbound.timed_out(now, peer.timeout(&self.config), most);
                peer.outbound = Some(outbound);
            }
        }
        for peer_index in self.peers.places() {
            let peer = &self.peers[peer_index];
            // A scan whose log is lost holds back nothing, so that only the time ends it.
            let scans_on = peer.standing == Standing::Imaging && peer.pin().is_none();
            if scans_on && !peer.is_heard(now, &self.config) {
                self.give_up_on(peer_index);
            }
        }
        self.coalesce(now);
        self.judge_gaps(now);
        self.judge_ways(now);
    }

    /// The wire version of messages from now on: one that all members understand.
    pub fn set_wire_version(&mut self, version: u8) {
        self.writer.set_wire_version(version);
    }

    /// The window in which accumulators keep back what changes. While its round is zero they log as they please; else
    /// each instance may log once in each round what has changed, up to its share of the window's bytes, and is to say so
    /// with [`drained`](Replicator::drained).
    #[must_use]
    pub fn window(&self) -> Window {
        self.coalescing.window()
    }

    /// An instance logged what had changed, in this round, and that was submitted: the whole of it, or its share of the bytes.
    pub fn drained(&mut self, now: Time, round: u64, whole: bool) {
        let path = self.path(now);
        self.coalescing
            .drained(now, (round, whole), &path, self.config.coalescing_max);
    }

    /// Opens and closes the window. Costs a comparison or two for each member while the path is free.
    fn coalesce(&mut self, now: Time) {
        let config = &self.config;
        let presses = |peer: &Peer| peer.is_congested(now, config);
        if config.coalescing_max.is_zero()
            || !self.coalescing.is_open()
                && !self.waits_to_be_sent(now)
                && !self.peers.iter().any(presses)
        {
            return;
        }
        let path = self.path(now);
        let most = self.config.coalescing_max;
        self.coalescing.turn(now, &path, most, &mut self.counters);
    }

    /// Whether groups wait because less may be sent than is written.
    fn waits_to_be_sent(&self, now: Time) -> bool {
        let patience = self.config.lookahead + self.config.congested_above;
        self.own
            .unsent_since()
            .is_some_and(|since| now.since(since) > patience)
    }

    /// The way to the members that are served from the log and keep pace; to all of those if none does. One that is much
    /// slower than others does not make them wait: it falls behind, and off the log in the end.
    pub(super) fn path(&self, now: Time) -> Path {
        let head = self.log.head();
        let mut path = Path {
            is_empty: true,
            received: head,
            sent: self.own.sent_through(),
            head,
            ..Path::default()
        };
        let patience = self.config.coalescing_max * PATIENCE;
        let served = |peer_index: PeerIndex, peer: &Peer| {
            peer.standing == Standing::Current && self.membership.incarnation(peer_index).is_some()
        };
        let is_apart = |peer: &Peer| peer.is_apart(now, &self.sent, patience);
        let all = || {
            let peers = self.peers.each();
            let served = peers.filter(|(peer_index, peer)| served(*peer_index, peer));
            served.map(|(_, peer)| peer)
        };
        let nobody_keeps_pace = all().all(is_apart);
        for peer in all() {
            if !nobody_keeps_pace && is_apart(peer) {
                continue;
            }
            path.is_empty = false;
            path.pressed |= peer.is_congested(now, &self.config);
            path.received = path.received.min(peer.received_through());
            let within = peer.acknowledges_within(&self.config);
            path.round_trip = path.round_trip.max(within);
            let round_trip = &peer.round_trip;
            let least = round_trip.shortest() + self.config.acknowledge_delay;
            path.round_trip_min = path.round_trip_min.max(least);
            let excess = round_trip.excess_max(self.config.congested_above);
            path.excess_max = path.excess_max.max(excess);
        }
        path.pressed |= self.waits_to_be_sent(now);
        path.passed = self.log.bytes_through(path.received);
        path.outstanding = self.log.bytes_through(head) - path.passed;
        path
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Every local instance has applied `origin`'s groups up to `sequence`, without a gap. Only this is acknowledged.
    /// Beyond what was delivered it has no effect. Of the own stream it is reported only with
    /// [`Config::siblings`](super::Config::siblings).
    pub fn applied(&mut self, now: Time, origin: MemberId, sequence: u64) {
        if origin == self.config.member && self.config.siblings {
            let sequence = sequence.min(self.log.head());
            if sequence > self.own_applied() {
                self.count(self.membership.me(), self.membership.me(), sequence);
                self.want_acknowledge(now, false);
            }
            return;
        }
        let Some(peer_index) = self.membership.peer_of(origin) else {
            return;
        };
        if self.peers[peer_index].inbound.set_applied(sequence) {
            self.applied_more(peer_index);
            self.want_acknowledge(now, false);
            self.judge_members(now);
        }
    }

    /// Asks all members to answer soon, so that `covered_until` passes `now` one round trip from here. At most one
    /// question per `acknowledge_delay` is sent.
    pub fn probe(&mut self, now: Time) {
        self.acknowledgements.probe();
        self.want_acknowledge(now, true);
    }

    /// How far every member is.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// There is news to acknowledge; `prompt` when a sender waits for it.
    pub(super) fn want_acknowledge(&mut self, now: Time, prompt: bool) {
        let delay = self.config.acknowledge_delay;
        let prompt = prompt || self.config.acknowledges_promptly;
        self.acknowledgements.want(now, delay, prompt);
    }

    /// When acknowledgements go out even alone.
    pub(super) fn vector_due(&self) -> Time {
        let silence = if self.membership.is_join_under_way() && self.speaks_with_newcomers() {
            self.config.retransmit_min.min(self.config.keep_alive)
        } else {
            self.config.keep_alive
        };
        self.acknowledgements.due(silence)
    }

    /// Whether this member joins, or one that does is there: each step of a join waits for what others say next, so they
    /// say it as often as what is lost goes again.
    #[cold]
    fn speaks_with_newcomers(&self) -> bool {
        !self.membership.is_ready()
            || self.peers.each().any(|(peer_index, peer)| {
                self.membership.is_joining(peer_index) && peer.is_heard(self.clock, &self.config)
            })
    }

    /// A stream was applied further: what was waiting for that counts now.
    pub(super) fn applied_more(&mut self, peer_index: PeerIndex) {
        let index = self.membership.index(peer_index);
        let inbound = &self.peers[peer_index].inbound;
        let (applied, received) = (inbound.applied(), inbound.received());
        debug_assert!(applied <= received);
        let progress = &mut self.progress.members[index];
        progress.applied = applied;
        progress.received = received;
        progress.head = progress.head.max(applied);
        if self.membership.is_ready() {
            self.count(self.membership.me(), index, applied);
        }
        while let Some(mark) = self.peers[peer_index]
            .pending_acknowledgements
            .settle(applied)
        {
            let progress = &mut self.progress.members[index];
            progress.covered_until = progress.covered_until.max(mark.covered);
            for origin in self.membership.places() {
                self.count(index, origin, mark.vector[origin]);
            }
            self.peers[peer_index]
                .pending_acknowledgements
                .recycle(mark);
        }
        self.progress.members[index].behind_since = self.peers[peer_index]
            .pending_acknowledgements
            .behind_since();
    }

    /// Up to where all instances of this host applied its own stream.
    pub(super) fn own_applied(&self) -> u64 {
        self.stability
            .applied(self.membership.me(), self.membership.me())
    }

    /// `member` has applied `origin` up to `sequence`, and that counts for stability: of its own stream too a
    /// member has to apply what one of its instances wrote in all the others.
    pub(super) fn count(&mut self, member: MemberIndex, origin: MemberIndex, sequence: u64) {
        let stable = &mut self.progress.members[origin].stable;
        if self.stability.count(member, origin, sequence, *stable) {
            *stable = (*stable).max(self.stability.of(origin, self.membership.present()));
        }
    }

    /// Other members count than did before, or what was frozen may go on.
    pub(super) fn recount(&mut self) {
        let freezes = self.closings.is_one_open() && !mutant::active(Mutant::StableWithoutTheDead);
        self.stability.freeze(freezes);
        if self.stability.is_frozen() {
            return;
        }
        for (origin, progress) in self.progress.members.each_mut() {
            let stable = self.stability.of(origin, self.membership.present());
            progress.stable = progress.stable.max(stable);
        }
    }

    /// Whether no other member takes part.
    pub(super) fn is_alone(&self) -> bool {
        let others = self.peers.iter();
        others
            .into_iter()
            .all(|peer| peer.standing == Standing::Out)
    }

    /// Forgets what no member needs.
    pub(super) fn prune(&mut self) {
        let pins = self.peers.iter().filter_map(Peer::pin);
        let pin = if mutant::active(Mutant::PrunesAtGreatest) {
            pins.max()
        } else {
            pins.min()
        };
        self.prune_through(pin.unwrap_or(self.log.head()));
    }

    pub(super) fn prune_through(&mut self, through: u64) {
        self.counters.groups_pruned += self.log.prune(through);
        self.sent.prune(self.log.pruned());
        self.own.prunes(self.log.pruned(), self.log.head());
    }
}

pub(super) fn begin(member: MemberId) -> MemberProgress {
    MemberProgress {
        member,
        incarnation: None,
        applied: 0,
        received: 0,
        head: 0,
        acknowledged: 0,
        stable: 0,
        covered_until: Time::ZERO,
        behind_since: None,
        heard: None,
        receives_until: None,
        heard_elsewhere: None,
        leaving: false,
        clock: None,
        round_trip: RoundTrip::default(),
        standing: Standing::Current,
        lags_since: None,
        joining: false,
    }
}
