//! The parts of a cluster on one machine, joined.

use std::io;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asterism_api::server::{Server, ServerConfig};
use asterism_config::functions::Functions;
use asterism_config::key_file::{self, KeyFileError};
use asterism_config::{Config, Purpose, files, identity};
use asterism_director::Control;
use asterism_director::table::BucketSpace;
use asterism_elasticity::PoliciesError;
use asterism_engine::hash_seed;
use asterism_io::clock::MonotonicClock;
use asterism_local_network::traffic::{TrafficConfig, TrafficSnapshot};
use asterism_local_network::{
    ClusterFile, LocalNetwork, LocalNetworkConfig, LocalNetworkError, SPACE_SEED,
    loopback_addresses,
};
use asterism_orchestrator::controller::Times;
use asterism_orchestrator::launch::LaunchError;
use asterism_orchestrator::run::{ClusterView, OrchestratorConfig, Running, StartError};
use asterism_orchestrator::steering::director::{DirectorError, DirectorSteering};
use asterism_placement::Time;
use asterism_truth_store::clock::monotonic;
use asterism_truth_store::embedded::EmbeddedStore;

use super::Arguments;
use super::arrivals::Arrivals;
use super::down::RunningMark;
use super::hosts::Hosts;
use super::monitoring;
use super::report::UpReport;
use crate::orchestrate::api::OrchestratorApi;
use crate::orchestrate::events::EventRing;
use crate::orchestrate::tenants::Tenants;

/// The cluster's name.
pub(super) const CLUSTER: &str = "up";
/// What the names of temporary folders begin with.
pub(super) const TEMPORARY: &str = "asterism-up-";
/// Whose the clients are: half of them one tenant's, the others another's.
const TENANTS: &str = "\n[tenants.blue]\nnetworks = [\"10.78.0.0/25\"]\n\n[tenants.green]\nnetworks = [\"10.78.0.128/25\"]\n";
/// How often a host's death and the orchestrator's view are looked at.
const VIEW_INTERVAL: Duration = Duration::from_millis(100);
/// How long a leadership lasts; nobody else asks for it.
const TERM: Duration = Duration::from_secs(3);
/// The first epoch waits so long for hosts that have not started; it does not wait once all are there.
const FOUND_AFTER: Duration = Duration::from_secs(3);
/// The same where fewer than all may be started.
const FOUND_AFTER_OF_FEWER: Duration = Duration::from_millis(500);

/// Why a cluster does not run. Hosts that were started are ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpError {
    #[error("signals cannot be heard: {0}")]
    Signals(io::Error),
    #[error("{}: {error}", .path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error("the operating system gives no randomness: {0}")]
    NoRandomness(#[from] getrandom::Error),
    #[error(transparent)]
    Network(#[from] LocalNetworkError),
    #[error("the configuration that was written is refused; please report it:\n{0}")]
    Configuration(String),
    #[error(transparent)]
    File(#[from] asterism_config::files::FileError),
    #[error("the director: {0}")]
    Director(#[from] DirectorError),
    #[error("no socket for heartbeats: {0}")]
    Socket(io::Error),
    #[error(transparent)]
    Orchestrator(#[from] StartError),
    #[error(transparent)]
    Api(#[from] asterism_api::server::StartError),
    #[error("{0}")]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Policy(#[from] PoliciesError),
    #[error("{} has a cluster of up to {had} hosts, which cannot be begun with up to {wanted}: begin it with --hosts {had} or MIN..{had}, or choose another folder", .folder.display())]
    OtherHosts {
        folder: PathBuf,
        had: usize,
        wanted: usize,
    },
    #[error("{} is of another version, or was changed: choose another folder, or remove this one and all that its cluster knows", .0.display())]
    Foreign(PathBuf),
    #[error("`asterism up` runs in {} already: end it with `asterism down --folder {}`", .0.display(), .0.display())]
    Runs(PathBuf),
    #[error("{0} buckets are no power of two: write 256, 512 or another one")]
    Buckets(u32),
    #[error("{0} failed; please report what it said")]
    Failed(&'static str),
}

/// A cluster on one machine, with its clients and servers.
pub(super) struct Cluster {
    folder: PathBuf,
    is_temporary: bool,
    clock: MonotonicClock,
    file: ClusterFile,
    network: LocalNetwork,
    running: Running,
    events: EventRing,
    server: Server,
    prometheus: PathBuf,
    hosts: Hosts,
    /// Hosts that ended by themselves.
    ended: u64,
    arrivals: Arrivals,
    view: ClusterView,
    viewed: Time,
    /// Shows `asterism down` that this command runs.
    _running: RunningMark,
}

impl Cluster {
    /// Starts everything; the orchestrator starts the hosts.
    pub(super) fn start(arguments: &Arguments) -> Result<Cluster, UpError> {
        let clock = MonotonicClock::new();
        let (folder, is_temporary) = folder(arguments)?;
        let mark = RunningMark::new(&folder)?;
        check_hosts(&folder, arguments.hosts.max.into())?;
        let names: Vec<String> = (b'a'..)
            .take(arguments.hosts.max.into())
            .map(|letter| char::from(letter).to_string())
            .collect();
        let key = folder.join("cluster.key");
        if !key.exists() {
            key_file::write_new(&key, 1)?;
        }
        let keys = key_file::read(&key)?;
        let mut addresses = loopback_addresses(2 * names.len() + 1, std::process::id())?;
        let metrics = addresses.split_off(names.len() + 1);
        let orchestrator = addresses.pop().ok_or(UpError::Failed("the loopback"))?;
        let file = ClusterFile {
            orchestrators: vec![orchestrator],
            metrics: metrics.clone(),
            more: TENANTS.to_owned(),
            ..ClusterFile::new(&folder, CLUSTER, names.clone(), addresses)
        };
        let configuration = file.write()?;
        let (cluster, tenants) = read(&configuration)?;
        let traffic = TrafficConfig {
            udp_flows_per_second: arguments.flows,
            tcp_connections_per_second: arguments.flows.div_ceil(5),
            ..TrafficConfig::default()
        };
        let buckets = arguments.buckets;
        let space = BucketSpace::new(buckets, SPACE_SEED).ok_or(UpError::Buckets(buckets))?;
        let spacing = arguments.link_rate.map(|rate| 1_000_000 / u64::from(rate));
        let config = LocalNetworkConfig {
            space,
            link_spacing: Duration::from_micros(spacing.unwrap_or_default()),
            traffic,
            ..LocalNetworkConfig::new(&folder, names.clone())
        };
        let (network, controls) = LocalNetwork::start(config, clock)?;
        let arrivals = Arrivals::new(&names, controls.iter().map(Control::shared_statistics));
        let mut steering = DirectorSteering::new(network.space(), controls);
        for name in &names {
            if let Some(target) = network.target(name) {
                steering.set_host(name, target)?;
            }
        }
        let mut random = [0; 48];
        getrandom::fill(&mut random)?;
        let truth = folder.join("truth");
        make(&truth)?;
        let program = std::env::current_exe().map_err(|error| UpError::Folder {
            path: PathBuf::from("/proc/self/exe"),
            error,
        })?;
        let hosts = Hosts::new(CLUSTER, &folder, program)?;
        let elastic = hosts.elastic(CLUSTER, configuration, arguments)?;
        let running = Running::start(OrchestratorConfig {
            cluster: CLUSTER.to_owned(),
            cluster_id: cluster,
            identity: identity(hash_seed(keys.sending())),
            keys,
            places: names.clone(),
            is_open: false,
            steered_only: None,
            name: "up".to_owned(),
            times: Times {
                found_after: match arguments.hosts.min == arguments.hosts.max {
                    true => FOUND_AFTER,
                    false => FOUND_AFTER_OF_FEWER,
                },
                ..Times::default()
            },
            term: TERM,
            random,
            socket: UdpSocket::bind(orchestrator).map_err(UpError::Socket)?,
            store: Box::new(move || Ok(Box::new(EmbeddedStore::open(&truth, monotonic())?))),
            steering: vec![Box::new(steering)],
            elastic: Some(elastic),
        })?;
        let events = EventRing::new(u64::from(std::process::id()) << 20 | clock.wall() & 0xF_FFFF);
        let served = OrchestratorApi::new(&running, events.clone(), clock)
            .with_tenants(Tenants::new(&tenants));
        let server = Server::start(ServerConfig::loopback(0), Arc::new(served), |_| {})?;
        let watched: Vec<_> = names.iter().cloned().zip(metrics).collect();
        let prometheus =
            monitoring::write(&folder, CLUSTER, &watched, server.local()).map_err(|error| {
                UpError::Folder {
                    path: folder.clone(),
                    error,
                }
            })?;
        Ok(Cluster {
            folder,
            is_temporary,
            clock,
            file,
            network,
            running,
            events,
            server,
            prometheus,
            hosts,
            ended: 0,
            arrivals,
            view: ClusterView::default(),
            viewed: Time::ZERO,
            _running: mark,
        })
    }

    /// The time since the start.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits a moment for news, and returns what is worth a line.
    pub(super) fn turn(&mut self, wait: Duration) -> Vec<String> {
        let now = self.now();
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
            self.ended += u64::from(logged.kind == "host-ended");
            self.arrivals.note(self.clock.now(), &logged);
            lines.push(logged.text);
            next = self.running.logged(Duration::ZERO);
        }
        self.arrivals.look(self.clock.now());
        lines
    }

    /// Lets flows begin, or none, in waves of so many seconds.
    pub(super) fn wave(&self, now: Time, seconds: Option<u32>) {
        if let Some(seconds) = seconds {
            let wave = now.since(Time::ZERO).as_secs() / u64::from(seconds);
            self.network.traffic().begin_flows(wave.is_multiple_of(2));
        }
    }

    /// Whether all threads run.
    pub(super) fn check(&self) -> Result<(), UpError> {
        if !self.network.is_running() {
            return Err(UpError::Failed("the network's thread"));
        }
        if !self.running.is_whole() {
            return Err(UpError::Failed("a thread of the orchestrator"));
        }
        Ok(())
    }

    pub(super) fn view(&self) -> ClusterView {
        self.view.clone()
    }

    pub(super) fn traffic(&self) -> TrafficSnapshot {
        self.network.snapshot().traffic
    }

    /// From the start until the first translated packet.
    pub(super) fn first_translated(&self) -> Option<Duration> {
        let at_us = self.traffic().server.first_translated_us;
        (at_us > 0).then(|| Duration::from_micros(at_us))
    }

    /// The address of the HTTP API.
    pub(super) fn api(&self) -> String {
        format!("http://{}", self.server.local())
    }

    /// The configuration by which Prometheus watches the cluster.
    pub(super) fn prometheus(&self) -> &Path {
        &self.prometheus
    }

    pub(super) fn processes(&self) -> Vec<(String, u32)> {
        self.hosts.processes()
    }

    /// The control sockets of the hosts.
    pub(super) fn sockets(&self) -> Vec<(String, PathBuf)> {
        let names = self.file.hosts.iter();
        names
            .map(|name| (name.clone(), self.file.control_socket(name)))
            .collect()
    }

    /// Begins no more flows, and waits until those under way have ended, so long at most.
    pub(super) fn end_flows(&mut self, within: Duration) {
        self.network.traffic().begin_flows(false);
        let until = self.now() + within;
        while self.traffic().under_way() > 0 && self.now() < until {
            // Hosts that die now are not started again.
            let _ = self.running.logged(super::LOOK);
        }
    }

    pub(super) fn report(&self) -> UpReport {
        let first = self.first_translated();
        UpReport::new(
            &self.network.snapshot(),
            first.map(|first| first.as_secs_f64()),
            (self.hosts.started(), self.ended),
            self.arrivals.slowest(),
        )
    }

    /// Ends hosts, orchestrator and network, and removes a temporary folder.
    pub(super) fn end(self) -> Result<(), UpError> {
        // The orchestrator goes first: it would leave out one host after the other, and the next start would bring them back one by one.
        self.server.stop();
        self.running.end();
        let ended = self.hosts.end();
        drop(self.network);
        if self.is_temporary && ended.is_ok() {
            // What cannot be removed is in the system's folder of temporary files.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
        ended?;
        Ok(())
    }
}

/// The folder, made if it is not there, as an absolute path.
fn folder(arguments: &Arguments) -> Result<(PathBuf, bool), UpError> {
    let path = match &arguments.folder {
        Some(folder) => folder.clone(),
        None => std::env::temp_dir().join(format!("{TEMPORARY}{}", std::process::id())),
    };
    make(&path)?;
    let path = path
        .canonicalize()
        .map_err(|error| UpError::Folder { path, error })?;
    Ok((path, arguments.folder.is_none()))
}

fn make(path: &Path) -> Result<(), UpError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| {
        let path = path.to_owned();
        UpError::Folder { path, error }
    })
}

/// Whether the folder is new, or its cluster has as many hosts: the record in its store and the saved states are of these.
fn check_hosts(folder: &Path, wanted: usize) -> Result<(), UpError> {
    let configuration = ClusterFile::path_in(folder);
    if !configuration.exists() {
        return Ok(());
    }
    let Ok(config) = load(&configuration) else {
        return Err(UpError::Foreign(configuration));
    };
    let had = config.cluster.members.len();
    match had == wanted {
        true => Ok(()),
        false => Err(UpError::OtherHosts {
            folder: folder.to_owned(),
            had,
            wanted,
        }),
    }
}

/// The number of the cluster's name and the tenants, from the configuration as the hosts read it.
fn read(
    configuration: &Path,
) -> Result<(asterism_placement::ClusterId, Vec<asterism_config::Tenant>), UpError> {
    let config = load(configuration)?;
    Ok((config.cluster.id(), config.tenants))
}

fn load(configuration: &Path) -> Result<Config, UpError> {
    let (config, report) = files::load(configuration, Purpose::Host, None, Functions::default())?;
    config.ok_or_else(|| UpError::Configuration(format!("{:?}", report.diagnostics)))
}
