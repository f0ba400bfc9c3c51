//! What can be seen of a running host from outside its loops: `status`, `top` and metrics are made of it.
//!
//! Nothing here waits for a packet loop but [`View::ask`], which waits for an answer between two bursts for a bounded time.
//! Imports `run/board.rs`, `run/worker.rs` and the engine's snapshots.

mod reports;
mod stages;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use asterism_engine::clock::MonotonicClock;
use asterism_engine::port::PortDrop;
use asterism_engine::transport::{ChannelSnapshot, Snapshots};
use asterism_function::Reason;
use asterism_placement::replicated::{Ended, Standing};
use asterism_placement::seal::Versions;
use asterism_placement::{Incarnation, MemberId};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::control::audit::AuditDocument;
use crate::control::sites::SitesDocument;
use crate::run::board::{COUNTS, InstanceSnapshot};
use crate::run::caches::{Caches, CachesDocument};
use crate::run::exports::{Exported, ExportsDocument};
use crate::run::requests::Request;
use crate::run::worker::{Phase, Shared};
pub use stages::StageDocument;

/// How long an instance has to answer: it does between two bursts.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A running host, as others may look at it.
#[derive(Debug)]
pub struct View {
    /// Names that do not change.
    pub names: Names,
    clock: MonotonicClock,
    shared: Vec<Arc<Shared>>,
    requests: Vec<SyncSender<Request>>,
    channel: Snapshots,
    phase: AtomicU8,
    suppressed: AtomicU64,
    /// What was exported, where the function exports.
    pub exports: Exported,
    /// What was fetched and served, where the function knows web caches.
    pub caches: Caches,
}

/// What a host is called, and what belongs to it.
#[derive(Clone, Debug)]
pub struct Names {
    /// The cluster.
    pub cluster: String,
    /// The host.
    pub host: String,
    /// All members, in order.
    pub members: Vec<String>,
    /// All sites, in order; empty where members have none.
    pub sites: Vec<String>,
    /// The network function.
    pub function: &'static str,
    /// Its state objects.
    pub objects: &'static [&'static str],
    /// The stages of a chain, in order.
    pub stages: Vec<&'static str>,
    /// The ports: name, kind and interface or file.
    pub ports: Vec<(&'static str, &'static str, String)>,
    /// This start of the host.
    pub incarnation: Incarnation,
    /// The groups that fit the log, and the bytes.
    pub log: (usize, usize),
}

impl View {
    /// A view of a host whose threads were just started.
    #[must_use]
    pub fn new(
        config: &Config,
        (objects, stages): (&'static [&'static str], &[&'static str]),
        clock: MonotonicClock,
        incarnation: Incarnation,
        shared: Vec<Arc<Shared>>,
        requests: Vec<SyncSender<Request>>,
        channel: Snapshots,
    ) -> View {
        let ports = config.ports.iter().map(|port| {
            let place = if port.interface.is_empty() {
                port.path.display().to_string()
            } else {
                port.interface.clone()
            };
            (port.name, port.kind.word(), place)
        });
        View {
            names: Names {
                cluster: config.cluster.name.clone(),
                host: config.host.name.clone(),
                members: config.cluster.members.clone(),
                sites: config
                    .cluster
                    .site_names()
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
                function: config.function.name,
                objects,
                stages: stages.to_vec(),
                ports: ports.collect(),
                incarnation,
                log: (
                    config.cluster.channel.log_groups_max,
                    config.cluster.channel.log_bytes_max,
                ),
            },
            clock,
            shared,
            requests,
            channel,
            phase: AtomicU8::new(Phase::Listening as u8),
            suppressed: AtomicU64::new(0),
            exports: Exported::default(),
            caches: Caches::new(&config.function.settings),
        }
    }

    /// What each instance showed last; `None` of one that has shown nothing yet.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Option<InstanceSnapshot>> {
        let read = |shared: &Arc<Shared>| {
            let stages = self.names.stages.len();
            InstanceSnapshot::read(&shared.board.read()?, self.names.objects, stages)
        };
        self.shared.iter().map(read).collect()
    }

    /// What the state channel showed last.
    #[must_use]
    pub fn channel(&self) -> Arc<ChannelSnapshot> {
        self.channel.latest()
    }

    /// Microseconds since the host was started.
    #[must_use]
    pub fn uptime_us(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// What the host does.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Listening,
            1 => Phase::Running,
            2 => Phase::Draining,
            _ => Phase::Ended,
        }
    }

    /// Has all instances do something else.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        for shared in &self.shared {
            shared.set_phase(phase);
        }
    }

    /// Lines that the log left out so far.
    pub fn note_suppressed(&self, lines: u64) {
        self.suppressed.store(lines, Ordering::Relaxed);
    }

    /// Lines that the log left out so far.
    #[must_use]
    pub fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// How many instances there are.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.requests.len()
    }

    /// Asks an instance, and waits for its answer: `within`, and a little more for it to be asked.
    ///
    /// # Errors
    /// It has too many requests, or did not answer in time.
    pub fn ask<T>(
        &self,
        instance: usize,
        within: Duration,
        request: impl FnOnce(SyncSender<T>) -> Request,
    ) -> Result<T, String> {
        let (reply, answer) = sync_channel(1);
        let requests = self
            .requests
            .get(instance)
            .ok_or("there is no such instance")?;
        requests
            .try_send(request(reply))
            .map_err(|error| match error {
                TrySendError::Full(_) => {
                    "the instance has too many requests already: try again".to_owned()
                }
                TrySendError::Disconnected(_) => "the instance has ended".to_owned(),
            })?;
        answer
            .recv_timeout(within + ANSWER_MAX)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => {
                    "the instance did not answer in time: try again".to_owned()
                }
                RecvTimeoutError::Disconnected => "the instance has ended".to_owned(),
            })
    }

    /// The host as a document. `digests` asks every instance, and makes them read all their entries.
    #[must_use]
    pub fn status(&self, digests: bool) -> StatusDocument {
        let channel = self.channel();
        let digests: Vec<Option<Vec<u64>>> = (0..self.instances())
            .map(|instance| {
                digests
                    .then(|| {
                        self.ask(instance, Duration::ZERO, |reply| Request::Digests { reply })
                            .ok()
                    })
                    .flatten()
            })
            .collect();
        let snapshots = self.snapshots();
        let instances = snapshots
            .iter()
            .enumerate()
            .filter_map(|(number, snapshot)| {
                let snapshot = snapshot.as_ref()?;
                Some(InstanceDocument {
                    instance: number,
                    counts: COUNTS
                        .iter()
                        .zip(&snapshot.counts)
                        .map(|(count, value)| (count.name.to_owned(), *value))
                        .collect(),
                    dropped: nonzero(
                        Reason::ALL
                            .iter()
                            .map(|reason| reason.label())
                            .zip(snapshot.dropped.iter().copied()),
                    ),
                    parked: snapshot.parked,
                    parked_most: snapshot.parked_most,
                    frames_in_use: snapshot.frames_in_use,
                    turns: snapshot.turns,
                    sleeps: snapshot.sleeps,
                    ports: self.ports(snapshot),
                    stages: stages::documents(snapshot, &self.names),
                    objects: snapshot
                        .objects
                        .iter()
                        .enumerate()
                        .map(|(place, object)| ObjectDocument {
                            name: object.name.to_owned(),
                            live: object.live as u64,
                            held: object.held as u64,
                            capacity: object.capacity,
                            quarantined: object.quarantined,
                            reclaimed: object.reclaimed,
                            digest: digests[number]
                                .as_ref()
                                .and_then(|digests| digests.get(place))
                                .map(|digest| format!("{digest:016x}")),
                        })
                        .collect(),
                })
            });
        let transport = &channel.transport;
        let mut counters = BTreeMap::new();
        transport.each(|name, value| {
            counters.insert(name.to_owned(), value);
        });
        StatusDocument {
            cluster: self.names.cluster.clone(),
            host: self.names.host.clone(),
            member: channel.member.0,
            incarnation: format!("{:016x}", self.names.incarnation.0),
            epoch: channel.epoch.0,
            joined: channel.is_ready,
            ended: channel
                .ended
                .iter()
                .filter(|life| !life.closed)
                .map(|life| self.ended(life))
                .collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            function: self.names.function.to_owned(),
            phase: phase_word(self.phase()).to_owned(),
            uptime_us: self.uptime_us(),
            instances: instances.collect(),
            channel: ChannelDocument {
                address: channel.state.local.to_string(),
                head: channel.head,
                is_quiet: channel.is_quiet,
                log_groups_free: channel.log_room.groups as u64,
                log_bytes_free: channel.log_room.bytes as u64,
                backlog_bytes: channel.backlog_bytes as u64,
                coalescing_window_us: channel.window.length.as_micros() as u64,
                cell_changes: sum_of(&snapshots, "cell_changes"),
                cells_told: sum_of(&snapshots, "cells_told"),
                path_mtu: channel.state.path_mtu as u64,
                segmentation: channel.state.segmentation,
                receive_offload: channel.state.receive_offload,
                sends_with: channel.sends_under,
                accepts: channel.accepts.ids().collect(),
                speaks: channel.speaks,
                understands: VersionsDocument::new(channel.understands),
                transport: counters,
                refused: nonzero(
                    channel
                        .refused
                        .iter()
                        .map(|(reason, count)| (reason.label(), count)),
                ),
            },
            peers: self.peers(&channel),
            sites: SitesDocument::new(&channel, &self.names),
            audit: AuditDocument::new(&channel, &self.names),
            log_lines_suppressed: self.suppressed(),
            exports: self.exports.document(),
            caches: self.caches.document(),
        }
    }

    fn ended(&self, life: &Ended) -> EndedDocument {
        let name = |member: MemberId| {
            let place = usize::from(member.0).wrapping_sub(1);
            self.names.members.get(place).cloned().unwrap_or_default()
        };
        EndedDocument {
            name: name(life.member),
            incarnation: format!("{:016x}", life.incarnation.0),
            whole: life.whole,
            waits_for: life.waits_for.map(name),
        }
    }

    fn ports(&self, snapshot: &InstanceSnapshot) -> Vec<PortDocument> {
        let ports = snapshot.ports.iter().zip(&self.names.ports);
        ports
            .map(|(port, (name, kind, place))| PortDocument {
                name: (*name).to_owned(),
                kind: (*kind).to_owned(),
                place: place.clone(),
                is_up: port.is_up,
                received_packets: port.statistics.received_packets,
                received_bytes: port.statistics.received_bytes,
                sent_packets: port.statistics.sent_packets,
                sent_bytes: port.statistics.sent_bytes,
                link_downs: port.statistics.link_downs,
                dropped: nonzero(
                    PortDrop::ALL
                        .iter()
                        .map(|drop| (drop.label(), port.statistics.dropped(*drop))),
                ),
            })
            .collect()
    }

    fn peers(&self, channel: &ChannelSnapshot) -> Vec<PeerDocument> {
        let others = channel
            .members
            .iter()
            .filter(|member| member.progress.member != channel.member);
        others
            .map(|member| {
                let progress = &member.progress;
                let place = usize::from(progress.member.0).wrapping_sub(1);
                let age = |time: asterism_placement::Time| {
                    channel.at.as_micros().saturating_sub(time.as_micros())
                };
                PeerDocument {
                    name: self.names.members.get(place).cloned().unwrap_or_default(),
                    member: progress.member.0,
                    address: member.traffic.map(|traffic| traffic.address),
                    admitted: member.admitted.is_some(),
                    welcomes: member.has_welcomed,
                    unreachable: member.traffic.is_some_and(|traffic| traffic.is_unreachable),
                    laggard: member.is_laggard(),
                    lags_us: progress.lags_since.map(age),
                    takes_part: progress.standing != Standing::Out,
                    heard_us_ago: progress.heard.map(age),
                    round_trip_us: (progress.round_trip.samples > 0)
                        .then_some(progress.round_trip.average.as_micros() as u64),
                    congested: progress.round_trip.congested,
                    behind_groups: member.lag.groups,
                    behind_us: member.lag.age.as_micros() as u64,
                    unacknowledged_groups: channel.head.saturating_sub(progress.acknowledged),
                    heard_with: member.heard_under,
                    accepts: member.accepts.map(|keys| keys.ids().collect()),
                    understands: member.understands.map(VersionsDocument::new),
                    differing_keys: member
                        .accepts
                        .map_or_else(Vec::new, |keys| keys.differing(&channel.accepts).collect()),
                    missing_key: member.without_key.last.map(|(id, at)| MissingKeyDocument {
                        id,
                        datagrams: member.without_key.datagrams,
                        us_ago: age(at),
                    }),
                }
            })
            .collect()
    }
}

/// What all instances counted under a name.
fn sum_of(snapshots: &[Option<InstanceSnapshot>], name: &str) -> u64 {
    let known = snapshots.iter().flatten();
    known.map(|instance| instance.count(name)).sum()
}

/// A phase as a word.
#[must_use]
pub fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Listening => "listening",
        Phase::Running => "running",
        Phase::Draining => "draining",
        Phase::Ended => "ended",
    }
}

fn nonzero(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}

/// A host as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusDocument {
    /// The cluster.
    pub cluster: String,
    /// The host.
    pub host: String,
    /// Its number.
    pub member: u16,
    /// This start of it.
    pub incarnation: String,
    /// The version of the member list.
    pub epoch: u32,
    /// The program's version.
    pub version: String,
    /// The network function.
    pub function: String,
    /// What it does: `listening`, `running`, `draining` or `ended`.
    pub phase: String,
    /// Microseconds since it was started.
    pub uptime_us: u64,
    /// Its packet loops.
    pub instances: Vec<InstanceDocument>,
    /// Its state channel.
    pub channel: ChannelDocument,
    /// The other members.
    pub peers: Vec<PeerDocument>,
    /// The sites, where members have some.
    pub sites: SitesDocument,
    /// Whether its state is that of the others.
    pub audit: AuditDocument,
    /// Whether it holds what the others hold.
    pub joined: bool,
    /// Lives of members that an epoch ended, and that not all members have alike yet.
    pub ended: Vec<EndedDocument>,
    /// Lines that its log left out because there were too many of their kind.
    pub log_lines_suppressed: u64,
    /// What it exported to a collector; absent where nothing is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exports: Option<ExportsDocument>,
    /// What it fetched from web caches and served; absent where the function knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<CachesDocument>,
}

/// A life of a member that an epoch ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedDocument {
    /// Whose.
    pub name: String,
    /// Which.
    pub incarnation: String,
    /// Whether this host has all that anybody has of it.
    pub whole: bool,
    /// A member that has not said what it has.
    pub waits_for: Option<String>,
}

/// A packet loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceDocument {
    /// Its number.
    pub instance: usize,
    /// What it counted.
    pub counts: BTreeMap<String, u64>,
    /// Packets dropped, by reason; those that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Packets parked now.
    pub parked: u64,
    /// The most packets parked at any time.
    pub parked_most: u64,
    /// Frames in use.
    pub frames_in_use: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// How often it slept.
    pub sleeps: u64,
    /// Its ports.
    pub ports: Vec<PortDocument>,
    /// The stages of a chain, in order; absent of other functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageDocument>,
    /// Its state objects.
    pub objects: Vec<ObjectDocument>,
}

/// A port of a packet loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "counts named as in the engine's statistics")]
pub struct PortDocument {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: String,
    /// Its interface or file.
    pub place: String,
    /// Whether packets can pass.
    pub is_up: bool,
    pub received_packets: u64,
    pub received_bytes: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub link_downs: u64,
    /// Packets dropped, by reason; those that occurred.
    pub dropped: BTreeMap<String, u64>,
}

/// A state object of a packet loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDocument {
    /// Its name.
    pub name: String,
    /// Entries that can be found.
    pub live: u64,
    /// Entries with those that ended and are not forgotten yet.
    pub held: u64,
    /// Entries at most; 0 if there is no such bound.
    pub capacity: u32,
    /// Of a pool, items of members that left which the epoch has dealt to this instance and which it may not grant yet.
    pub quarantined: u32,
    /// Of a pool, items of members that left which this instance may grant.
    pub reclaimed: u32,
    /// A digest of its content, if asked for: equal on hosts that hold the same.
    pub digest: Option<String>,
}

/// The state channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelDocument {
    /// Where it listens.
    pub address: String,
    /// The last group that this host wrote.
    pub head: u64,
    /// Whether all that was written is applied everywhere.
    pub is_quiet: bool,
    /// Groups that the log has room for.
    pub log_groups_free: u64,
    /// Bytes that the log has room for.
    pub log_bytes_free: u64,
    /// Bytes that wait for slow instances.
    pub backlog_bytes: u64,
    /// How long counters and sketches keep changes back at most now; 0 while no path is congested.
    pub coalescing_window_us: u64,
    /// Changes of their cells that were told since the start.
    pub cell_changes: u64,
    /// Totals with which they were told: the fewer, the more was coalesced.
    pub cells_told: u64,
    /// The narrowest path's MTU; 0 while none is known.
    pub path_mtu: u64,
    /// Whether the kernel cuts messages.
    pub segmentation: bool,
    /// Whether the kernel joins arrivals.
    pub receive_offload: bool,
    /// The number of the cluster key that it sends with.
    pub sends_with: u8,
    /// The numbers of the cluster keys that it accepts.
    pub accepts: Vec<u8>,
    /// The wire version that it speaks: the newest that all members of the epoch understand.
    pub speaks: u8,
    /// The wire versions that it understands.
    pub understands: VersionsDocument,
    /// What the transport counted.
    pub transport: BTreeMap<String, u64>,
    /// Datagrams refused while sealed, by reason; those that occurred.
    pub refused: BTreeMap<String, u64>,
}

/// Another member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerDocument {
    /// Its name.
    pub name: String,
    /// Its number.
    pub member: u16,
    /// Where it is.
    pub address: Option<SocketAddr>,
    /// Whether its session is admitted here.
    pub admitted: bool,
    /// Whether it admitted this host.
    pub welcomes: bool,
    /// Whether what is sent to it comes back.
    pub unreachable: bool,
    /// Whether it fell off the log.
    pub laggard: bool,
    /// For how long it has not been served from the log, since it fell off it.
    pub lags_us: Option<u64>,
    /// Whether it is a member of the epoch.
    pub takes_part: bool,
    /// When it was last heard.
    pub heard_us_ago: Option<u64>,
    /// The average round trip to it.
    pub round_trip_us: Option<u64>,
    /// Whether the path to it is congested, by its round trips.
    pub congested: bool,
    /// Groups of it that are not applied here.
    pub behind_groups: u64,
    /// For how long.
    pub behind_us: u64,
    /// Groups of this host that it has not acknowledged.
    pub unacknowledged_groups: u64,
    /// The number of the cluster key under which it was last heard.
    pub heard_with: Option<u8>,
    /// The numbers of the cluster keys that it says it accepts; absent if it does not say.
    pub accepts: Option<Vec<u8>>,
    /// The wire versions that it says it understands; absent if it has not said.
    pub understands: Option<VersionsDocument>,
    /// The numbers under which it accepts another key than this host.
    pub differing_keys: Vec<u8>,
    /// What came in its name under keys that this host does not have; strangers can cause it too.
    pub missing_key: Option<MissingKeyDocument>,
}

/// The wire versions that a host understands: all from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsDocument {
    /// The oldest.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl VersionsDocument {
    fn new(versions: Versions) -> Self {
        let Versions { oldest, newest } = versions;
        Self { oldest, newest }
    }
}

impl std::fmt::Display for VersionsDocument {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.oldest == self.newest {
            true => write!(out, "{}", self.newest),
            false => write!(out, "{} to {}", self.oldest, self.newest),
        }
    }
}

/// Datagrams under a cluster key that a host does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingKeyDocument {
    /// The number that the last of them named.
    pub id: u8,
    /// How many came.
    pub datagrams: u64,
    /// When the last came.
    pub us_ago: u64,
}
