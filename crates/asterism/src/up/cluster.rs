//! A cluster over the local network: the orchestrator, director, clients and servers are threads of this process, and the hosts are
//! processes that the orchestrator launches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asterism_api::server::{Server, ServerConfig};
use asterism_config::value::show_duration;
use asterism_director::Control;
use asterism_director::table::BucketSpace;
use asterism_host::run::{control_path, keys_of};
use asterism_io::clock::MonotonicClock;
use asterism_local_network::traffic::{RoundTrips, TrafficConfig, TrafficSnapshot};
use asterism_local_network::{LocalNetwork, LocalNetworkConfig, SPACE_SEED};
use asterism_orchestrator::launch::{Launcher, ProcessLauncher, Role};
use asterism_orchestrator::run::{ClusterView, ElasticConfig, HostTemplate, Running};
use asterism_orchestrator::steering::director::DirectorSteering;
use asterism_placement::Time;

use super::arrivals::Arrivals;
use super::error::UpError;
use super::launched::{self, running, stop_all};
use super::local::Local;
use super::monitoring;
use super::plan::{Ground, Plan};
use super::report::{ProcessReport, TrafficReport, UpReport};
use super::{Arguments, Form};
use crate::orchestrate;
use crate::orchestrate::api::server_config;
use crate::orchestrate::events::EventRing;
use crate::orchestrate::launchers::all_places;

/// How often a host's death and the orchestrator's view are looked at.
const VIEW_INTERVAL: Duration = Duration::from_millis(100);
/// How long flows that are under way may take to end.
const LAST_FLOWS: Duration = Duration::from_secs(10);
/// Unless the command line says otherwise.
const FLOWS_PER_SECOND: u32 = 50;
const BUCKETS: u32 = 16_384;

/// A cluster on one machine, with its clients and servers.
pub(super) struct Cluster {
    ground: Ground,
    clock: MonotonicClock,
    network: LocalNetwork,
    running: Running,
    events: EventRing,
    server: Server,
    api: String,
    prometheus: PathBuf,
    launcher: Arc<ProcessLauncher>,
    drain: Duration,
    /// The control sockets of the hosts.
    sockets: Vec<(String, PathBuf)>,
    /// How often each host was started, and ended by itself.
    counts: BTreeMap<String, [u64; 2]>,
    arrivals: Arrivals,
    view: ClusterView,
    viewed: Time,
    wave: Option<u32>,
    is_introduced: bool,
    trips: RoundTrips,
}

impl Cluster {
    /// Starts everything; the orchestrator starts the hosts.
    pub(super) fn start(
        plan: &Plan,
        local: Local,
        arguments: &Arguments,
        ground: Ground,
        clock: MonotonicClock,
    ) -> Result<Cluster, UpError> {
        let config = &plan.config;
        let names = &config.cluster.members;
        let keys = keys_of(&plan.file, config)?;
        let flows = arguments.flows.unwrap_or(FLOWS_PER_SECOND);
        let buckets = arguments.buckets.unwrap_or(BUCKETS);
        let space = BucketSpace::new(buckets, SPACE_SEED).ok_or(UpError::Buckets(buckets))?;
        let spacing = arguments.link_rate.map(|rate| 1_000_000 / u64::from(rate));
        let (network, controls) = LocalNetwork::start(
            LocalNetworkConfig {
                space,
                slots: local.slots,
                outside_addresses: local.outside_addresses,
                link_spacing: Duration::from_micros(spacing.unwrap_or_default()),
                traffic: TrafficConfig {
                    udp_flows_per_second: flows,
                    tcp_connections_per_second: flows.div_ceil(5),
                    ..TrafficConfig::default()
                },
                ..LocalNetworkConfig::new(local.links, names.clone())
            },
            clock,
        )?;
        let arrivals = Arrivals::new(names, controls.iter().map(Control::shared_statistics));
        let mut steering = DirectorSteering::new(network.space(), controls);
        for name in names {
            if let Some(target) = network.target(name) {
                steering.set_host(name, target)?;
            }
        }
        let (name, folder) = (&config.cluster.name, &ground.folder);
        let launcher = launched::launcher(Role::Host, name, folder, super::program()?)?;
        let missing = || UpError::Failed("the check of the configuration");
        let orchestrator = config.orchestrator.as_ref().ok_or_else(missing)?;
        let address = *config.cluster.orchestrators.first().ok_or_else(missing)?;
        let rules = match &config.policy {
            Some(rules) => rules.clone(),
            None => all_places(name, names.len())?,
        };
        let elastic = ElasticConfig {
            // An order for another number of hosts holds where the rules leave no choice.
            is_policy: rules.min < rules.max,
            rules,
            launcher: Arc::<ProcessLauncher>::clone(&launcher),
            host: HostTemplate {
                configuration: plan.file.clone(),
                ..HostTemplate::default()
            },
            find_interval: VIEW_INTERVAL,
        };
        let (running, events) = orchestrate::start(
            &plan.file,
            config,
            orchestrator,
            (address, "orchestrator-1", &keys),
            vec![Box::new(steering)],
            Some(elastic),
        )?;
        let shown = show(plan, &running, (&events, clock), folder);
        let (server, prometheus) = match shown {
            Ok(shown) => shown,
            Err(error) => {
                running.end();
                // The first error says more than a second one.
                let _ = stop_all(Role::Host, &*launcher, plan.drain());
                return Err(error);
            }
        };
        let socket = |host: &asterism_config::Config| {
            (host.host.name.clone(), control_path(&plan.file, host))
        };
        Ok(Cluster {
            sockets: plan.hosts.iter().map(socket).collect(),
            drain: plan.drain(),
            ground,
            clock,
            network,
            running,
            events,
            api: plan.url(server.local()),
            server,
            prometheus,
            launcher,
            counts: BTreeMap::new(),
            arrivals,
            view: ClusterView::default(),
            viewed: Time::ZERO,
            wave: arguments.wave,
            is_introduced: false,
            trips: RoundTrips::default(),
        })
    }

    fn traffic(&self) -> TrafficSnapshot {
        self.network.snapshot().traffic
    }

    /// From the start until the first translated packet.
    fn first_translated(&self) -> Option<Duration> {
        let at_us = self.traffic().server.first_translated_us;
        (at_us > 0).then(|| Duration::from_micros(at_us))
    }

    /// Lets flows begin, or none, in waves.
    fn make_waves(&self) {
        if let Some(seconds) = self.wave {
            let wave = self.clock.now().since(Time::ZERO).as_secs() / u64::from(seconds);
            self.network.traffic().begin_flows(wave.is_multiple_of(2));
        }
    }

    /// Whether all threads run.
    fn check(&self) -> Result<(), UpError> {
        if !self.network.is_running() {
            return Err(UpError::Failed("the network's thread"));
        }
        if !self.running.is_whole() {
            return Err(UpError::Failed("a thread of the orchestrator"));
        }
        Ok(())
    }

    /// Begins no more flows, and waits until those under way have ended, for some time at most.
    fn end_flows(&mut self) {
        self.network.traffic().begin_flows(false);
        let until = self.clock.now() + LAST_FLOWS;
        while self.traffic().under_way() > 0 && self.clock.now() < until {
            // Hosts that die now are not started again.
            let _ = self.running.logged(super::LOOK);
        }
    }

    fn traffic_report(&self) -> TrafficReport {
        let first = self.first_translated();
        let ended: u64 = self.counts.values().map(|[_, ended]| ended).sum();
        TrafficReport::new(
            &self.network.snapshot(),
            first.map(|first| first.as_secs_f64()),
            (self.launcher.counts().started, ended),
            self.arrivals.slowest(),
        )
    }
}

/// Starts the HTTP API, and writes the configuration of a Prometheus that watches.
fn show(
    plan: &Plan,
    running: &Running,
    (events, clock): (&EventRing, MonotonicClock),
    folder: &Path,
) -> Result<(Server, PathBuf), UpError> {
    let config = &plan.config;
    let api = plan.api().map_or_else(
        || ServerConfig::loopback(0),
        |api| server_config(&plan.file, api),
    );
    let server = orchestrate::serve(api, config, running, (events, clock), |_| {})?;
    let with_metrics = plan.hosts.iter().filter_map(|host| {
        let address = host.host.metrics?;
        Some((host.host.name.clone(), address))
    });
    let watched: Vec<_> = with_metrics.collect();
    let written = monitoring::write(folder, &config.cluster.name, &watched, server.local());
    let prometheus = written.map_err(|error| UpError::Folder {
        path: folder.to_owned(),
        error,
    })?;
    Ok((server, prometheus))
}

impl Form for Cluster {
    /// Waits a moment for news, and returns what is worth a line.
    fn turn(&mut self, wait: Duration) -> Result<Vec<String>, UpError> {
        self.check()?;
        self.make_waves();
        let now = self.clock.now();
        if now.since(self.viewed) >= VIEW_INTERVAL {
            self.viewed = now;
            // Without an answer the last view stays.
            if let Ok(view) = self.running.asking().view() {
                self.view = view;
            }
        }
        let mut lines = Vec::new();
        let mut next = self.running.logged(wait);
        while let Some(logged) = next {
            self.events.note(self.clock.wall() * 1_000, &logged);
            if let Some(host) = &logged.host {
                let counted = self.counts.entry(host.clone()).or_default();
                counted[0] += u64::from(logged.kind == "host-started");
                counted[1] += u64::from(logged.kind == "host-ended");
            }
            self.arrivals.note(self.clock.now(), &logged);
            lines.push(logged.text);
            next = self.running.logged(Duration::ZERO);
        }
        self.arrivals.look(self.clock.now());
        Ok(lines)
    }

    /// What can be tried, once packets flow.
    fn introduction(&mut self) -> Option<String> {
        let first = self.first_translated().filter(|_| !self.is_introduced)?;
        self.is_introduced = true;
        let mut text = format!(
            "\nPackets are translated after {}. In another terminal:\n",
            show_duration(Duration::from_millis(first.as_millis() as u64))
        );
        let processes = running(&*self.launcher).unwrap_or_default().into_iter();
        let mut processes = processes.filter_map(|host| Some((host.name, host.process?.pid)));
        if let Some((name, pid)) = processes.next() {
            text += &format!(
                "  kill -9 {pid}      # host {name}: it is steered around, left out, started again\n"
            );
        }
        if let Some((name, socket)) = self.sockets.first() {
            let socket = socket.display();
            text += &format!("  asterism status --socket {socket}      # host {name}\n");
        }
        text += &format!(
            "  asterism hosts --api {}      # the cluster, as its orchestrator sees it\n",
            self.api
        );
        text += &format!(
            "  prometheus --config.file {}      # its metrics and alerts\n",
            self.prometheus.display()
        );
        Some(text + "Ctrl-C ends everything.\n\n")
    }

    /// The cluster in one line, with the round trips since the line before.
    fn state(&mut self) -> String {
        let traffic = self.traffic();
        let recent = traffic.round_trips.since(&self.trips);
        self.trips = traffic.round_trips.clone();
        let hosts = &self.view.hosts;
        let takers = hosts.iter().filter(|host| host.takes).count();
        let rate: u64 = hosts.iter().map(|host| host.packets_per_s).sum();
        format!(
            "{takers} of {} hosts take packets, {rate} packets/s; flows: {} under way, {} done, {} failed, {} broken; requests lost: {}; 99 % of round trips: {} us",
            hosts.len(),
            traffic.under_way(),
            traffic.ended(),
            traffic.failed(),
            traffic.broken(),
            traffic.client.lost,
            recent.permille(990).unwrap_or_default(),
        )
    }

    /// Ends flows, orchestrator, hosts and network.
    fn end(mut self: Box<Self>, in_order: bool) -> Result<UpReport, UpError> {
        if in_order {
            self.end_flows();
        }
        let checked = self.check();
        let traffic = self.traffic_report();
        let Cluster {
            ground,
            network,
            running,
            server,
            launcher,
            drain,
            counts,
            ..
        } = *self;
        server.stop();
        running.end();
        let ended = stop_all(Role::Host, &*launcher, drain);
        drop(network);
        ground.leave(ended.is_ok());
        checked?;
        let processes = ProcessReport::of(&counts, &ended?);
        Ok(UpReport::new(processes, Some(traffic)))
    }
}
