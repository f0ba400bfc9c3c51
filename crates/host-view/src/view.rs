//! The view itself: the ends of the queues to the packet loops, what they and the state channel publish, and the counts of what a
//! host writes.

mod reports;
mod status;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use asterism_config::{Config, Settings};
use asterism_engine::transport::{ChannelSnapshot, Snapshots};
use asterism_epochs::MemberNames;
use asterism_io::clock::MonotonicClock;
use asterism_lines::Counts;
use asterism_placement::Incarnation;

use crate::asked::Asked;
use crate::caches::Caches;
use crate::error::AskError;
use crate::exports::Exported;
use crate::names::Names;
use crate::own::Own;
use crate::phase::Phase;
use crate::ports::PortCounts;
use crate::requests::Request;
use crate::shared::Shared;
use crate::statistics::InstanceSnapshot;
use crate::store::StoreView;

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
    /// The store of remote objects, if there is one.
    pub store: StoreView,
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
                members: match config.cluster.is_open {
                    true => MemberNames::of_places(config.cluster.members.clone()),
                    false => MemberNames::listed(config.cluster.members.clone()),
                },
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
            store: StoreView::default(),
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
    ) -> Result<T, AskError> {
        let (reply, answer) = sync_channel(1);
        let requests = self
            .requests
            .get(instance)
            .ok_or(AskError::NoSuchInstance)?;
        requests
            .try_send(request(reply))
            .map_err(|error| match error {
                TrySendError::Full(_) => AskError::TooManyRequests,
                TrySendError::Disconnected(_) => AskError::Ended,
            })?;
        answer
            .recv_timeout(within + ANSWER_MAX)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => AskError::Late,
                RecvTimeoutError::Disconnected => AskError::Ended,
            })
    }
}
