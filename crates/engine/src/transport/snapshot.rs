//! What a state channel's thread shows of itself. It fills a spare copy and swaps it for the published one, so
//! that readers never hold it up and it allocates only while somebody keeps an old copy.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use asterism_placement::replicated::audit::{AuditTally, Auditor, Place, StreamStanding};
use asterism_placement::replicated::{
    AcceptedKeys, Counters, Ended, Lag, LogCapacity, MemberProgress, RelayTally, SiteId, SiteState,
    Standing, Window,
};
use asterism_placement::{Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::{RefusalCounts, Terms, Versions, WithoutKey};

use super::statistics::{PeerTraffic, TransportState, TransportStatistics};
use super::udp::UdpTransport;
use super::watch::{PeerFault, Watch};
use crate::channel::{ChannelTally, SharedObjects, StateChannel};

/// What a snapshot is made of.
type Seen<'a> = (&'a StateChannel, &'a UdpTransport, &'a Watch);

/// What a state channel's thread counted of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTally {
    /// Turns of its loop.
    pub turns: u64,
    /// Times that it slept.
    pub sleeps: u64,
    /// Times that an instance's waker woke it.
    pub wakers: u64,
    /// Time that it spent on a processor, the kernel's work for it included.
    pub processor_time: Duration,
    /// Events that found nobody reading.
    pub events_lost: u64,
}

/// A member as a state channel's thread knows it.
#[derive(Clone, Debug)]
pub struct MemberSnapshot {
    /// How far it is, when it was heard, round trips to it, and whether it is served from the log (one that lags is
    /// not).
    pub progress: MemberProgress,
    /// How far this host is behind it.
    pub lag: Lag,
    /// The incarnation of it that is admitted; `None` while none is, and for this host itself.
    pub admitted: Option<Incarnation>,
    /// Whether it has admitted this host.
    pub has_welcomed: bool,
    /// The number of the cluster key under which its admitted session was last heard.
    pub heard_under: Option<u8>,
    /// The cluster keys that it says it accepts; `None` if it does not say.
    pub accepts: Option<AcceptedKeys>,
    /// The wire versions that its admitted session says it understands.
    pub understands: Option<Versions>,
    /// Its settings that hosts must share, if it is refused because they are others than this host's.
    pub other_terms: Option<Terms>,
    /// What came in its name under keys that this host does not have. Not authentic.
    pub without_key: WithoutKey,
    /// Its datagrams. `None` for this host itself and for members without an address.
    pub traffic: Option<PeerTraffic>,
    /// The fault that there is with it, and since when.
    pub fault: Option<(PeerFault, Time)>,
}

impl MemberSnapshot {
    /// Whether it fell off the log and is served by scanning the tables.
    pub fn is_lagging(&self) -> bool {
        !matches!(self.progress.standing, Standing::Current | Standing::Out)
    }
}

/// A state channel and its transport at one moment.
#[derive(Clone, Debug)]
pub struct ChannelSnapshot {
    /// When it was taken, by the host's clock.
    pub at: Time,
    /// This host.
    pub member: MemberId,
    /// What the transport counted.
    pub transport: TransportStatistics,
    /// What the transport uses.
    pub state: TransportState,
    /// What the state channel counted.
    pub channel: ChannelTally,
    /// What the placement counted.
    pub replication: Counters,
    /// Datagrams refused while sealed, by reason.
    pub refused: RefusalCounts,
    /// Handshakes and events of the sealed channel dropped at their bounds.
    pub seal_dropped: (u64, u64),
    /// The number of the cluster key that is sealed under.
    pub sends_under: u8,
    /// The cluster keys that are accepted.
    pub accepts: AcceptedKeys,
    /// The wire version that this host speaks.
    pub speaks: u8,
    /// The wire versions that it understands.
    pub understands: Versions,
    /// All members, this one included, in the order of their names.
    pub members: Vec<MemberSnapshot>,
    /// The cluster's time at zero of this host's clock, in microseconds since 1970.
    pub cluster_time_at_zero_us: i64,
    /// Whether this host takes over no other cluster time any more, and whose it has.
    pub cluster_time_source: (bool, Option<MemberId>),
    /// The epoch in force.
    pub epoch: Epoch,
    /// Whether this host holds what the others hold.
    pub is_ready: bool,
    /// The settings of this host that others must share.
    pub terms: Option<Terms>,
    /// A member that has a later epoch in force than this host, and that epoch.
    pub later_epoch: Option<(MemberId, Epoch)>,
    /// Incarnations of members that epochs ended, as many as are remembered.
    pub ended: Vec<Ended>,
    /// What the auditor knows.
    pub audit: AuditSnapshot,
    /// Objects that may be changed between local and replicated; `None` if there are none.
    pub shared_objects: Option<SharedObjects>,
    /// Every site that has a member, as this host sees it; none where members have no sites.
    pub sites: Vec<SiteState>,
    /// The one that this host is in.
    pub own_site: Option<SiteId>,
    /// What was counted of relays.
    pub relay: RelayTally,
    /// How many datagrams this host keeps, as the relay of its site, for members of it that lack them, and their bytes.
    pub relay_keeps: (usize, usize),
    /// The last group of this host's own stream.
    pub head: u64,
    /// Room left in the log.
    pub log_room: LogCapacity,
    /// The window in which accumulators keep changes back, while the path is congested.
    pub window: Window,
    /// Bytes that wait for slow instances.
    pub backlog_bytes: usize,
    /// Whether all that was written here is applied everywhere, and the other way round.
    pub is_quiet: bool,
    /// The thread itself.
    pub thread: ThreadTally,
}

/// What an auditor knows.
#[derive(Clone, Debug, Default)]
pub struct AuditSnapshot {
    /// The member with which this host compares itself; its own name if others compare themselves with it.
    pub reference: Option<MemberId>,
    /// What was counted.
    pub tally: AuditTally,
    /// Of each object that has digests, its number and since when all of it was found equal; `None`: nothing here is
    /// compared.
    pub objects: Vec<(u8, Option<Time>)>,
    /// Parts that differ now: where, which instance, which leaves.
    pub differing: Vec<(Place, usize, u64)>,
    /// What is known of the other members' streams.
    pub streams: Vec<StreamStanding>,
}

impl AuditSnapshot {
    fn fill(&mut self, auditor: &Auditor) {
        self.reference = auditor.reference();
        self.tally = auditor.tally();
        self.objects.clear();
        let objects = (0..auditor.objects()).filter(|&object| auditor.is_audited(object));
        let known = objects.map(|object| (object, auditor.equal_since(object)));
        self.objects.extend(known);
        self.differing.clear();
        self.differing.extend(auditor.differing());
        self.streams.clear();
        self.streams.extend(auditor.streams());
    }
}

impl ChannelSnapshot {
    pub(super) fn take(at: Time, seen: Seen<'_>, thread: ThreadTally) -> Self {
        let (channel, transport, _) = seen;
        let mut snapshot = Self {
            at,
            member: channel.secure().member(),
            transport: transport.statistics(),
            state: transport.state(),
            channel: channel.tally(),
            replication: channel.counters().clone(),
            refused: channel.secure().refusals().clone(),
            seal_dropped: (0, 0),
            sends_under: 0,
            accepts: AcceptedKeys::default(),
            speaks: 0,
            understands: channel.secure().understands(),
            members: Vec::new(),
            cluster_time_at_zero_us: 0,
            cluster_time_source: (false, None),
            epoch: Epoch::default(),
            is_ready: false,
            terms: None,
            later_epoch: None,
            ended: Vec::new(),
            audit: AuditSnapshot::default(),
            shared_objects: None,
            sites: Vec::new(),
            own_site: None,
            relay: RelayTally::default(),
            relay_keeps: (0, 0),
            head: 0,
            log_room: channel.replicator().log_room(),
            window: channel.window(),
            backlog_bytes: 0,
            is_quiet: false,
            thread,
        };
        snapshot.fill(at, seen, thread);
        snapshot
    }

    fn fill(&mut self, at: Time, (channel, transport, watch): Seen<'_>, thread: ThreadTally) {
        let (secure, replicator) = (channel.secure(), channel.replicator());
        self.at = at;
        self.transport = transport.statistics();
        self.state = transport.state();
        self.channel = channel.tally();
        self.replication.clone_from(replicator.counters());
        self.refused.clone_from(secure.refusals());
        self.seal_dropped = secure.dropped();
        self.sends_under = secure.sends_under();
        self.accepts = channel.accepted_keys();
        self.speaks = secure.speaks();
        self.understands = secure.understands();
        self.cluster_time_at_zero_us = replicator.cluster_time_at_zero_us().unwrap_or(0);
        self.cluster_time_source = replicator.cluster_time_source();
        self.epoch = replicator.epoch();
        self.is_ready = replicator.is_ready();
        if self.terms.is_none() {
            self.terms = secure.terms().cloned();
        }
        self.later_epoch = channel.secure().later_epoch();
        self.ended.clear();
        self.ended.extend(replicator.ended());
        self.audit.fill(channel.auditor());
        self.shared_objects = channel.shared_objects();
        self.sites.clear();
        self.sites.extend(channel.sites());
        let sites = replicator.config().sites.as_ref();
        self.own_site = sites.and_then(|sites| sites.site(secure.member()));
        self.relay = channel.relay_tally();
        self.relay_keeps = channel.relay_keeps();
        self.head = replicator.head();
        self.log_room = replicator.log_room();
        self.window = replicator.window();
        self.backlog_bytes = channel.backlog_bytes();
        self.is_quiet = channel.is_quiet();
        self.thread = thread;
        self.members.clear();
        let progress = replicator.progress();
        let members = progress.members().iter().map(|member| MemberSnapshot {
            progress: member.clone(),
            lag: progress.lag(member.member, at),
            admitted: secure.admitted(member.member),
            has_welcomed: secure.welcomed_by(member.member),
            heard_under: secure.heard_under(member.member),
            accepts: replicator.keys_of(member.member),
            understands: secure.understood_by(member.member),
            other_terms: secure.other_terms(at, member.member).cloned(),
            without_key: secure.without_key(member.member),
            traffic: transport
                .peers()
                .iter()
                .find(|peer| peer.member == member.member)
                .copied(),
            fault: watch.fault(member.member),
        });
        self.members.extend(members);
    }

    /// One member; `None` when it is not in the list.
    pub fn member(&self, member: MemberId) -> Option<&MemberSnapshot> {
        self.members
            .iter()
            .find(|known| known.progress.member == member)
    }
}

/// Where the latest snapshot is found; to be copied to anyone who shows it.
#[derive(Clone, Debug)]
pub struct Snapshots(Arc<ArcSwap<ChannelSnapshot>>);

impl Snapshots {
    /// The latest snapshot. Waits for nobody and holds nobody up.
    pub fn latest(&self) -> Arc<ChannelSnapshot> {
        self.0.load_full()
    }
}

/// The thread's end.
#[derive(Debug)]
pub(super) struct Publisher {
    published: Snapshots,
    spare: Arc<ChannelSnapshot>,
}

impl Publisher {
    pub(super) fn new(first: ChannelSnapshot) -> Self {
        Self {
            spare: Arc::new(first.clone()),
            published: Snapshots(Arc::new(ArcSwap::from_pointee(first))),
        }
    }

    pub(super) fn snapshots(&self) -> Snapshots {
        self.published.clone()
    }

    pub(super) fn publish(&mut self, at: Time, seen: Seen<'_>, thread: ThreadTally) {
        match Arc::get_mut(&mut self.spare) {
            Some(spare) => spare.fill(at, seen, thread),
            // Somebody still reads it.
            None => {
                self.spare = Arc::new(ChannelSnapshot::take(at, seen, thread));
            }
        }
        // The reference is kept until the swap, which gives back the one that was published.
        self.spare = self.published.0.swap(self.spare.clone());
    }
}
