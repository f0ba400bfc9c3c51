//! The view of a running host from outside its packet loops; `status`, `top` and metrics are built from it.
//!
//! Only [`View::ask`] waits for a packet loop, which answers between two bursts, within a bounded time. Read next:
//! `run/statistics.rs`, then `view/documents.rs`.

pub mod audit;
pub mod caches;
mod differing;
mod documents;
pub mod exports;
pub mod health;
mod own;
pub mod ports;
mod reports;
pub mod sites;
mod stages;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use asterism_config::{Config, Settings};
use asterism_engine::transport::{ChannelSnapshot, Snapshots};
use asterism_io::clock::MonotonicClock;
use asterism_io::port::PortDrop;
use asterism_placement::replicated::{Ended, Standing};
use asterism_placement::{Incarnation, MemberId};
use asterism_state::ObjectCount;

use crate::lines::Counts;
use crate::run::requests::Request;
use crate::run::statistics::{COUNTS, InstanceSnapshot};
use crate::run::worker::{Phase, Shared};

use audit::AuditDocument;
use caches::Caches;
use exports::Exported;
use ports::PortCounts;
use sites::SitesDocument;

pub use differing::differing;
pub use documents::{
    ChannelDocument, ClockDocument, DifferingSetting, EndedDocument, InstanceDocument,
    MissingKeyDocument, ObjectDocument, PeerDocument, PortDocument, StatusDocument, TimeDocument,
    VersionsDocument,
};
pub use health::HealthDocument;
pub use own::Own;
pub use reports::Asked;
pub use stages::StageDocument;

/// Time limit for an instance's answer, which comes between two bursts.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The view of a running host.
#[derive(Debug)]
pub struct View {
    /// The fixed names.
    pub names: Names,
    clock: MonotonicClock,
    shared: Vec<Arc<Shared>>,
    requests: Vec<SyncSender<Request>>,
    channel: Snapshots,
    phase: AtomicU8,
    suppressed: AtomicU64,
    /// Counts of exports, where the function exports.
    pub exports: Exported,
    /// The accounting of outside ports, where the function is a NAT.
    pub nat_ports: PortCounts,
    /// Counts of written alert lines, where alerts are written.
    pub eve: Arc<Counts>,
    /// Counts of fetched and served digests, where the function knows web caches.
    pub caches: Caches,
    /// The monitor, if there is one.
    pub monitor: Option<Asked>,
    /// The balancer, if there is one.
    pub balancer: Option<Asked>,
    /// The function with rules, if there is one.
    pub firewall: Option<Asked>,
    /// Each function that blocks, by its name.
    pub blocking: Vec<(String, Asked)>,
    /// Each firewall, by its name.
    pub firewalls: Vec<(String, Asked)>,
}

/// The names of a host and its parts.
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
    /// The function's own reasons and metrics.
    pub own: Own,
    /// The ports: name, kind and interface or file.
    pub ports: Vec<(&'static str, &'static str, String)>,
    /// This start of the host.
    pub incarnation: Incarnation,
    /// The shape: a number that must be equal on all hosts.
    pub shape: String,
    /// The capacity of the log, in groups and bytes.
    pub log: (usize, usize),
}

impl View {
    /// A view of a host whose threads were just started.
    #[must_use]
    pub fn new(
        config: &Config,
        (objects, stages, own): (&'static [&'static str], &[&'static str], Own),
        clock: MonotonicClock,
        (incarnation, shape): (Incarnation, u64),
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
                own,
                ports: ports.collect(),
                incarnation,
                shape: format!("{shape:016x}"),
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
            nat_ports: PortCounts::default(),
            eve: Arc::default(),
            caches: Caches::new(&config.function.settings),
            monitor: Asked::first(&config.function.settings, |settings| {
                matches!(settings, Settings::Monitor(_))
            }),
            balancer: Asked::first(&config.function.settings, |settings| {
                matches!(settings, Settings::Balancer(_))
            }),
            firewall: Asked::first(&config.function.settings, |settings| {
                matches!(settings, Settings::Firewall(_))
            }),
            blocking: Asked::blocking(&config.function),
            firewalls: Asked::firewalls(&config.function),
        }
    }

    /// The last statistics of each instance; `None` before the first.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Option<InstanceSnapshot>> {
        let read = |shared: &Arc<Shared>| {
            let more = (self.names.stages.len(), self.names.own.metrics.len());
            InstanceSnapshot::read(&shared.statistics.read()?, self.names.objects, more)
        };
        self.shared.iter().map(read).collect()
    }

    /// The last snapshot of the state channel.
    #[must_use]
    pub fn channel(&self) -> Arc<ChannelSnapshot> {
        self.channel.latest()
    }

    /// Microseconds since the host was started.
    #[must_use]
    pub fn uptime_us(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// The host's phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::of(&self.phase)
    }

    /// Changes the phase of all instances.
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

    /// The number of instances.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.requests.len()
    }

    /// Sends a request to an instance and waits for the answer: `within`, and a little more for the delivery.
    ///
    /// # Errors
    /// The instance has too many requests, or did not answer in time.
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

    /// The host as a document. With `digests`, every instance reads all its entries.
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
                    dropped: nonzero(self.names.own.labelled(&snapshot.dropped)),
                    own: self.names.own.measured(&snapshot.own),
                    parked: snapshot.parked,
                    parked_most: snapshot.parked_most,
                    incarnations: snapshot.incarnations,
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
                            counts: nonzero(ObjectCount::ALL.iter().filter_map(|count| {
                                Some((count.label(), object.counts.get(*count)?))
                            })),
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
            shape: self.names.shape.clone(),
            epoch: channel.epoch.0,
            joined: channel.is_ready,
            later_epoch: channel.later_epoch.map(|(_, epoch)| epoch.0),
            ended: channel
                .ended
                .iter()
                .filter(|incarnation| !incarnation.closed)
                .map(|incarnation| self.ended(incarnation))
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
                counter_changes: sum_of(&snapshots, "counter_changes"),
                counters_reported: sum_of(&snapshots, "counters_reported"),
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
            time: Some(self.time(&channel)),
            peers: self.peers(&channel),
            health: health::items(&channel, &|member| self.name(member)),
            sites: SitesDocument::new(&channel, &self.names),
            audit: AuditDocument::new(&channel, &self.names),
            log_lines_suppressed: self.suppressed(),
            exports: self.exports.document(),
            nat_ports: self.nat_ports.document(),
            eve: self.eve.document(),
            caches: self.caches.document(),
        }
    }

    fn name(&self, member: MemberId) -> String {
        let place = usize::from(member.0).wrapping_sub(1);
        self.names.members.get(place).cloned().unwrap_or_default()
    }

    fn ended(&self, incarnation: &Ended) -> EndedDocument {
        let name = |member| self.name(member);
        EndedDocument {
            name: name(incarnation.member),
            incarnation: format!("{:016x}", incarnation.incarnation.0),
            whole: incarnation.whole,
            waits_for: incarnation.waits_for.map(name),
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

    fn time(&self, channel: &ChannelSnapshot) -> TimeDocument {
        let (dates, now) = (self.dates(), self.clock.now());
        let (settled, source) = channel.cluster_time_source;
        TimeDocument {
            cluster_us: dates.cluster_us(now),
            date_us: dates.date_us(now),
            settled,
            taken_from: source.map(|member| self.name(member)),
        }
    }

    fn peers(&self, channel: &ChannelSnapshot) -> Vec<PeerDocument> {
        let others = channel
            .members
            .iter()
            .filter(|member| member.progress.member != channel.member);
        others
            .map(|member| {
                let progress = &member.progress;
                let age = |time: asterism_placement::Time| {
                    channel.at.as_micros().saturating_sub(time.as_micros())
                };
                PeerDocument {
                    name: self.name(progress.member),
                    member: progress.member.0,
                    address: member.traffic.map(|traffic| traffic.address),
                    admitted: member.admitted.is_some(),
                    welcomes: member.has_welcomed,
                    unreachable: member.traffic.is_some_and(|traffic| traffic.is_unreachable),
                    lagging: member.is_lagging(),
                    lags_us: progress.lags_since.map(age),
                    takes_part: progress.standing != Standing::Out,
                    heard_us_ago: progress.heard.map(age),
                    receives_us_ago: progress.receives_until.map(age),
                    fault: member.fault.map(|(fault, _)| fault.label().to_owned()),
                    clock: progress.clock.map(|clock| ClockDocument {
                        date_ahead_us: clock.date_ahead_us,
                        cluster_ahead_us: clock.cluster_ahead_us,
                        within_us: clock.within.as_micros() as u64,
                        refused: clock.is_apart,
                    }),
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
                    differing_settings: member
                        .other_terms
                        .as_ref()
                        .zip(channel.terms.as_ref())
                        .map_or_else(Vec::new, |(theirs, ours)| differing(ours, theirs)),
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

/// The sum of a counter over all instances.
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
        Phase::Draining | Phase::Telling => "draining",
        Phase::Ended => "ended",
    }
}

fn nonzero(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}
