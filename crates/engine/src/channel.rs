//! A host's state channel: the thread-less core that runs the host's stream and its datagrams, and never
//! touches a table.
//!
//! Sans I/O as the protocols it joins: datagrams and `now` come in, datagrams and deadlines go out. It is three things: the seal around
//! each datagram (the secure channel), the envelope of each message, and the protocols that the configuration uses
//! (`protocols.rs`), each a [`Protocol`]. Where members have sites, `sites.rs` passes sealed datagrams on, below the envelope. Between
//! the channel and the instances are rings: `outlet.rs` is the path down. `incarnations.rs` is what a new epoch changes, `keys.rs` what
//! other keys do, `audits.rs` what the auditor asks of instances, `events.rs` what protocols report, `homes.rs`
//! answers to one instance.

pub(crate) mod audits;
mod events;
mod homes;
mod incarnations;
mod keys;
mod outlet;
mod progress;
mod protocols;
mod scans;
mod sharing;
mod sites;

use asterism_placement::envelope::Message;
use asterism_placement::replicated::audit::Auditor;
use asterism_placement::replicated::{
    AcceptedKeys, Config as ReplicaConfig, Counters, Destination as ReplicaDestination, Progress,
    Replicator, Standing, SubmitError, Window,
};
use asterism_placement::{Epoch, MemberId, Protocol, Time};
use asterism_secure_channel::{Refusal, SecureChannel};
use asterism_state::{OriginName, Query};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::exchange::{Down, Round, Up, origin};
use crate::mutant::{self, Mutant};
use asterism_io::ring::{RingReader, RingWriter};
use events::EVENTS_MAX;
use outlet::Outlet;
use protocols::Protocols;
use scans::SnapshotScan;
pub use sharing::SharedObjects;
use sharing::Sharing;
use sites::Sites;

pub use events::ChannelEvent;

/// The recipient a sealed datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Every other member.
    All,
    /// Every other member of the own site. Only where members have sites; then what is for all is this and some for single members.
    Near,
    /// One member.
    Member(MemberId),
    /// Back to where a datagram came from: the number that came with it.
    Source(u64),
}

/// Bytes that wait for room in the ring to the instances, at most. Beyond them nothing more is taken from
/// other members until instances catch up: they will send it again. What the host's instances write waits in their rings, and
/// they read no ports once these are full.
pub const BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Records taken from one instance in a turn at most.
const UP_RECORDS_PER_TURN: usize = 1024;

/// What a state channel counted, besides what its protocols count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelTally {
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// Received datagrams that were refused before they were opened.
    pub refused_sealed: u64,
    /// Opened datagrams that the placement refused.
    pub refused_opened: u64,
    /// Datagrams refused because instances were too far behind.
    pub refused_backlog: u64,
    /// Records that waited in memory because the ring to the instances was full.
    pub backlogged: u64,
    /// Turns in which an instance's groups waited for room in the log, or for sibling instances that were too far
    /// behind.
    pub held_by_log: u64,
    /// Events lost because the queue was full.
    pub events_lost: u64,
    /// Answers of a home to an instance that found its ring full; the instance asks again.
    pub answers_lost: u64,
}

/// An instance as its state channel sees it.
#[derive(Debug)]
struct InstanceLink {
    up: RingReader,
    /// A group that came before its turn, or before there was room: its number and bytes.
    held: Option<u64>,
    held_bytes: Vec<u8>,
    /// Up to where the instance has applied each member's stream, by place.
    applied: Vec<u64>,
    snapshots_applied: Vec<(MemberId, u32)>,
    /// Incarnations that have ended of which it has applied all that was delivered.
    ended_applied: Vec<OriginName>,
}

/// The state channel of a host. See the module.
pub struct StateChannel {
    secure: SecureChannel,
    protocols: Protocols,
    own: OriginName,
    lanes: Vec<InstanceLink>,
    outlet: Outlet,
    /// The last number that an instance drew for a group.
    committed: Arc<AtomicU64>,
    /// The round in which instances may log what changed in their accumulators, for them to read.
    round: Arc<Round>,
    /// What instances were last reported each member, by place: received, stable, covered, confirmed.
    reported: Vec<(u64, u64, u64, u64)>,
    /// Other members that must have what packets depend on, where packets are held back.
    copies: Option<usize>,
    /// Of which incarnation of each member that was, by place.
    reported_of: Vec<Option<OriginName>>,
    /// The later epoch of a member that instances were last reported.
    later_epoch: Option<Epoch>,
    /// SnapshotScans for lagging_replicas under way here.
    scans: Vec<SnapshotScan>,
    /// SnapshotScans whose end every instance must report.
    snapshots: Vec<(MemberId, u32)>,
    /// Incarnations that have ended and that not every instance has applied as far as they were delivered.
    ended: Vec<OriginName>,
    plain: Vec<u8>,
    extra_frames: Vec<u8>,
    pads: bool,
    /// Where members have sites: what this one does as a relay, and copies for other sites.
    sites: Option<Box<Sites>>,
    accepted: AcceptedKeys,
    /// Objects that are changed between local and replicated; `None` if none can be.
    sharing: Option<Box<Sharing>>,
    backlog_bytes_max: usize,
    events: VecDeque<ChannelEvent>,
    tally: ChannelTally,
}

impl core::fmt::Debug for StateChannel {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("StateChannel")
            .field("own", &self.own)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

impl StateChannel {
    pub(crate) fn new(
        secure: SecureChannel,
        replicator: Replicator,
        (ups, down): (Vec<RingReader>, RingWriter),
        (committed, round): (Arc<AtomicU64>, Arc<Round>),
        auditor: Auditor,
    ) -> Self {
        let members = replicator.config().members.len();
        let own = origin(replicator.config().member, replicator.config().incarnation);
        let sites = Sites::new(&replicator).map(Box::new);
        let lanes = ups
            .into_iter()
            .map(|up| InstanceLink {
                up,
                held: None,
                held_bytes: Vec::new(),
                applied: vec![0; members],
                snapshots_applied: Vec::new(),
                ended_applied: Vec::new(),
            })
            .collect();
        Self {
            secure,
            protocols: Protocols {
                replicator,
                auditor,
                home: None,
            },
            own,
            lanes,
            outlet: Outlet::new(down),
            committed,
            round,
            reported: vec![(0, 0, 0, 0); members],
            copies: None,
            reported_of: vec![None; members],
            later_epoch: None,
            scans: Vec::new(),
            snapshots: Vec::new(),
            ended: Vec::new(),
            plain: Vec::with_capacity(2048),
            extra_frames: Vec::new(),
            pads: false,
            sites,
            accepted: AcceptedKeys::default(),
            sharing: None,
            backlog_bytes_max: BACKLOG_BYTES_MAX,
            events: VecDeque::with_capacity(EVENTS_MAX),
            tally: ChannelTally::default(),
        }
    }

    /// Instances hold packets back until so many other members have what the packets depend on.
    pub(crate) fn confirm_with(&mut self, copies: u32) {
        self.copies = Some(copies as usize);
    }

    /// The host's date, for others to compare with theirs: microseconds since 1970 at zero of the clock.
    pub fn set_date(&mut self, date_at_zero_us: i64) {
        self.protocols.replicator.set_date(date_at_zero_us);
    }

    /// The host begins to serve: from now on it takes over no other cluster time.
    pub fn settle_cluster_time(&mut self) {
        self.protocols.replicator.settle_cluster_time();
    }

    /// Takes a datagram that arrived, which is opened in place. `from` names where it came from, for
    /// [`Destination::Source`].
    ///
    /// # Errors
    /// Why it was refused while sealed. Everything is counted, nothing of a refused datagram has an effect.
    pub fn handle(&mut self, now: Time, from: u64, datagram: &mut [u8]) -> Result<(), Refusal> {
        self.tally.datagrams_received += 1;
        self.tally.bytes_received += datagram.len() as u64;
        if self.sites.is_some() {
            return self.handle_among_sites(now, from, datagram);
        }
        if self.has_no_room() {
            return Ok(());
        }
        self.open(now, from, datagram, true).map(|_| ())
    }

    /// Whether instances are too far behind to be given more; counted.
    fn has_no_room(&mut self) -> bool {
        let is_full = self.outlet.backlog_bytes() > self.backlog_bytes_max;
        self.tally.refused_backlog += u64::from(is_full);
        is_full
    }

    /// Opens a sealed datagram, and takes what is in it unless it is not to be `delivered`. Of a state message that opened, whose
    /// it is.
    fn open(
        &mut self,
        now: Time,
        from: u64,
        datagram: &mut [u8],
        delivered: bool,
    ) -> Result<Option<MemberId>, Refusal> {
        let opened = match self.secure.handle(now, from, datagram) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(None),
            Err(refusal) => {
                self.tally.refused_sealed += 1;
                return Err(refusal);
            }
        };
        let Some(message) = datagram.get(opened.payload.clone()).filter(|_| delivered) else {
            return Ok(Some(opened.member));
        };
        let mut message = Message::new(opened.member, opened.incarnation, message);
        let to = (&mut self.outlet, &mut self.snapshots);
        if self.protocols.handle(now, &mut message, to).is_err() {
            self.tally.refused_opened += 1;
        }
        Ok(Some(opened.member))
    }

    /// Exchanges records with the instances and runs timers. Call it before [`StateChannel::poll_transmit`].
    pub fn turn(&mut self, now: Time) {
        self.tally.backlogged += self.outlet.move_backlog();
        self.take_up(now);
        // What the log had no room for is committed all the same.
        if !mutant::active(Mutant::HeldGroupsNotNamed) {
            self.protocols
                .replicator
                .committed(self.committed.load(Ordering::Acquire));
        }
        self.serve_scans(now);
        self.report_applied(now);
        self.secure.handle_timeout(now);
        self.share_objects(now);
        for place in self.protocols.places() {
            if let Some(mut core) = self.protocols.at(place) {
                core.handle_timeout(now);
            }
            while let Some(event) = self
                .protocols
                .at(place)
                .and_then(|mut core| core.poll_event())
            {
                self.handle_event(event);
            }
        }
        self.tell_round();
        while let Some(event) = self.secure.poll_event() {
            self.note(ChannelEvent::Secure(event));
        }
        self.tell_later_epoch();
        self.tell_progress();
        self.outlet.publish();
        if let Some(home) = &mut self.protocols.home {
            home.publish();
        }
    }

    /// Writes the next datagram to `out`; `None` when there is none.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Destination> {
        let destination = self.next_datagram(now, out)?;
        self.tally.datagrams_sent += 1;
        self.tally.bytes_sent += out.len() as u64;
        Some(destination)
    }

    fn next_datagram(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Destination> {
        if let Some(destination) = self.secure.poll_transmit(out) {
            return Some(sites::addressed(destination));
        }
        if let Some(destination) = self.next_across(now, out) {
            return Some(destination);
        }
        loop {
            let destination = self.next_message(now)?;
            self.plain.extend_from_slice(&self.extra_frames);
            if self.pads && destination == ReplicaDestination::All {
                self.protocols.replicator.pad(&mut self.plain);
            }
            self.secure.seal(&self.plain, out).ok()?;
            let destination = match destination {
                ReplicaDestination::One(member) => Some(Destination::Member(member)),
                _ if self.sites.is_none() => Some(Destination::All),
                for_sites => self.spread(now, for_sites, out),
            };
            if destination.is_some() {
                return destination;
            }
        }
    }

    /// Writes the next message: of the first protocol that has one.
    fn next_message(&mut self, now: Time) -> Option<ReplicaDestination> {
        let version = self.secure.speaks();
        self.protocols.replicator.set_wire_version(version);
        let mut places = self.protocols.places();
        places.find_map(|place| {
            let mut core = self.protocols.at(place)?;
            core.poll_transmit(now, &mut self.plain)
        })
    }

    /// The longest datagram in bytes of UDP payload, by the configuration.
    pub fn datagram_bytes_max(&self) -> usize {
        self.protocols.replicator.config().payload_bytes_max + self.around_bytes()
    }

    /// Has new datagrams be at most so long, as far as the longest group and the configuration allow: for a
    /// path that turned out to be narrower. What is sent again keeps the length that it had.
    pub fn set_datagram_bytes(&mut self, bytes: usize) {
        self.protocols
            .replicator
            .set_payload_bytes(bytes.saturating_sub(self.around_bytes()));
        if let Some(sites) = &mut self.sites {
            sites.relay.set_datagram_bytes(bytes);
        }
    }

    /// Whether datagrams that are nearly full are filled, so that a run of them has one length: for a
    /// transport that hands the kernel many of one length for the price of one.
    pub fn set_padding(&mut self, on: bool) {
        self.pads = on;
    }

    /// When [`StateChannel::turn`] is due next, whatever arrives.
    pub fn poll_timeout(&self) -> Option<Time> {
        let timeouts = [
            self.secure.poll_timeout(),
            self.protocols.poll_timeout(),
            self.sites
                .as_ref()
                .and_then(|sites| sites.relay.poll_timeout()),
            self.sharing
                .as_ref()
                .and_then(|sharing| sharing.poll_timeout()),
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Frames to append to every state message, as a later build might that has more to say: for tests of
    /// what this build does with them. They make datagrams longer than the configuration's bound.
    pub fn set_extra_frames(&mut self, frames: Vec<u8>) {
        self.extra_frames = frames;
    }

    /// Has so many bytes wait for room in the ring to the instances at most, in place of [`BACKLOG_BYTES_MAX`]: for tests of what
    /// happens at the bound.
    pub fn set_backlog_bytes_max(&mut self, bytes: usize) {
        self.backlog_bytes_max = bytes;
    }

    /// What happened, for the log.
    pub fn poll_event(&mut self) -> Option<ChannelEvent> {
        self.events.pop_front()
    }

    /// How far every member is.
    pub fn progress(&self) -> &Progress {
        self.protocols.replicator.progress()
    }
    /// Whether this host holds what the others hold. Until it does, it must not write.
    pub fn is_ready(&self) -> bool {
        self.protocols.replicator.is_ready()
    }
    /// The last number of a write set of this host that is in its log.
    pub fn head(&self) -> u64 {
        self.protocols.replicator.head()
    }
    /// The window in which accumulators keep back what changes.
    pub fn window(&self) -> Window {
        self.protocols.replicator.window()
    }
    /// What replication counted.
    pub fn counters(&self) -> &Counters {
        self.protocols.replicator.counters()
    }
    /// The settings that replication was started with.
    pub fn config(&self) -> &ReplicaConfig {
        self.protocols.replicator.config()
    }
    /// Replication, for what it alone knows.
    pub fn replicator(&self) -> &Replicator {
        &self.protocols.replicator
    }
    /// The sealed channel, for its counts.
    pub fn secure(&self) -> &SecureChannel {
        &self.secure
    }
    /// What was counted here.
    pub fn tally(&self) -> ChannelTally {
        self.tally
    }
    /// Bytes that wait for room in the ring to the instances.
    pub fn backlog_bytes(&self) -> usize {
        self.outlet.backlog_bytes()
    }
    /// Whether everything that instances wrote was taken and applied by all members, and everything that
    /// came is applied here.
    pub fn is_quiet(&self) -> bool {
        let progress = self.protocols.replicator.progress();
        let own = self.protocols.replicator.config().member;
        self.outlet.is_clear()
            && self.protocols.replicator.is_ready()
            && self.protocols.replicator.has_left()
            && self.protocols.replicator.ended().all(|ended| ended.closed)
            && self
                .lanes
                .iter()
                .all(|lane| lane.held.is_none() && lane.up.is_empty())
            && progress.members().iter().all(|member| {
                member.member == own
                    || member.standing == Standing::Out
                    || member.acknowledged >= self.protocols.replicator.head()
                        && member.applied >= member.head
            })
    }

    /// Takes what instances wrote, in the order of the groups' numbers.
    fn take_up(&mut self, now: Time) {
        let mut lane = 0;
        let mut idle = 0;
        let mut left = UP_RECORDS_PER_TURN * self.lanes.len();
        while idle < self.lanes.len() && left > 0 {
            left -= 1;
            match self.take_one(now, lane) {
                true => idle = 0,
                false => {
                    idle += 1;
                    lane = (lane + 1) % self.lanes.len();
                }
            }
        }
        for lane in &mut self.lanes {
            lane.up.release();
        }
    }

    /// Takes one record of an instance; false if there is none that can be taken now.
    fn take_one(&mut self, now: Time, number: usize) -> bool {
        // What one writes its siblings are given too: while one of them stands still the others wait. It reads its ring before
        // anything else when it goes on, and needs nothing that they have left to say for that.
        let siblings = self.tells_siblings();
        let is_full = siblings && self.outlet.backlog_bytes() > self.backlog_bytes_max;
        if let Some(sequence) = self.lanes[number].held {
            return self.submit_held(now, (number, sequence), is_full);
        }
        let lane = &mut self.lanes[number];
        let Some(up) = lane.up.next().and_then(Up::read) else {
            return false;
        };
        match up {
            Up::Group { sequence, bytes } => {
                let is_taken = !is_full
                    && self
                        .protocols
                        .replicator
                        .submit(now, sequence, bytes)
                        .is_ok();
                if !is_taken {
                    lane.held_bytes.clear();
                    lane.held_bytes.extend_from_slice(bytes);
                    lane.held = Some(sequence);
                } else if siblings {
                    let down = group_of(self.own, (number, sequence), bytes);
                    self.outlet.push(&down);
                }
                return is_taken;
            }
            Up::Applied { origin, sequence } => {
                // Of an incarnation that has ended it says nothing about the one after it.
                let mut reported_of = self.reported_of.iter();
                let place = reported_of.position(|&reported| reported == Some(origin));
                if let Some(place) = place {
                    lane.applied[place] = lane.applied[place].max(sequence);
                }
            }
            Up::EndedApplied { origin } => lane.ended_applied.push(origin),
            Up::SnapshotPart {
                member,
                scan,
                bytes,
            } => scans::take_part(&mut self.scans, (member, scan), bytes),
            Up::SnapshotDone { member, scan } => scans::end(&mut self.scans, (member, scan)),
            Up::SnapshotApplied { from, scan } => lane.snapshots_applied.push((from, scan)),
            Up::Probe => self.protocols.replicator.probe(now),
            Up::Audit {
                ticket,
                written,
                leaves,
            } => {
                let leaves = audits::read_leaves(leaves);
                self.protocols
                    .auditor
                    .read(now, number, ticket, written, leaves.as_ref());
            }
            Up::Drained { round, whole } => self.protocols.replicator.drained(now, round, whole),
            Up::Ask {
                ticket,
                object,
                lane,
                hash,
                key,
            } => {
                let query = Query {
                    object,
                    lane,
                    hash,
                    key,
                    conversation: 0,
                };
                if let Some(home) = &mut self.protocols.home {
                    home.ask(now, number, ticket, query);
                }
            }
            Up::Commit {
                attempt,
                transaction,
            } => {
                if let Some(home) = &mut self.protocols.home {
                    home.commit(now, number, attempt, transaction);
                }
            }
            Up::Shared {
                number: asked,
                objects,
            } => self.note_shared(number, asked, objects),
            Up::Announced { number: asked } => self.note_announced(number, asked),
        }
        true
    }

    /// Whether an instance's groups are for other instances of this host, too.
    #[inline]
    fn tells_siblings(&self) -> bool {
        self.lanes.len() > 1 && !mutant::active(Mutant::SiblingSkipped)
    }

    /// Submits the group that an instance wrote before there was room for it, or before its turn; false if there is none yet.
    fn submit_held(&mut self, now: Time, (number, sequence): (usize, u64), is_full: bool) -> bool {
        if is_full {
            self.tally.held_by_log += 1;
            return false;
        }
        let siblings = self.tells_siblings();
        let lane = &mut self.lanes[number];
        match self
            .protocols
            .replicator
            .submit(now, sequence, &lane.held_bytes)
        {
            Ok(()) => {
                lane.held = None;
                if siblings {
                    let down = group_of(self.own, (number, sequence), &lane.held_bytes);
                    self.outlet.push(&down);
                }
                true
            }
            Err(SubmitError::LogFull) => {
                self.tally.held_by_log += 1;
                false
            }
            // Not yet its turn: a sibling has the number before.
            Err(_) => false,
        }
    }
}

/// A group of one of this host's instances, for the others.
fn group_of(origin: OriginName, (number, sequence): (usize, u64), bytes: &[u8]) -> Down<'_> {
    Down::Group {
        lane: number as u8,
        origin,
        sequence,
        bytes,
    }
}
