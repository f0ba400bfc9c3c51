//! `asterism orchestrate`: an orchestrator as a service.
//!
//! `api.rs`, `questions.rs` and `events.rs` are its HTTP API, `health.rs` what is wrong with a cluster, `metrics.rs` what Prometheus reads.

pub mod api;
pub mod events;
pub mod health;
pub mod metrics;
mod questions;

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use asterism_api::server::{Notice, Server};
use asterism_config::{Cluster, Config, Orchestrator, Purpose, Routes, files, identity};
use asterism_engine::hash_seed;
use asterism_host::run::event_log::{Event, EventLog, Style};
use asterism_host::run::key_watch::KeyWatch;
use asterism_host::run::{keys_of, signals};
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::controller::Times;
use asterism_orchestrator::run::{Logged, OrchestratorConfig, Running, StoreFactory};
use asterism_orchestrator::steering::Steering;
use asterism_orchestrator::steering::ecmp::{EcmpConfig, EcmpHop, EcmpRoute, EcmpSteering, Spread};
use asterism_output::{End, Output};
use asterism_placement::Time;
use asterism_truth_store::Key;
use asterism_truth_store::clock::monotonic;
use asterism_truth_store::embedded::EmbeddedStore;
use asterism_truth_store::etcd::{EtcdConfig, EtcdStore};
use clap::Args;

use api::{OrchestratorApi, server_config};
use events::EventRing;

/// How often signals and the key file are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Notices of the API that wait for the log at most.
const NOTICES_MAX: usize = 64;
/// Numbers of event logs are below 2^53, so that JavaScript keeps them.
const LOG_MAX: u64 = (1 << 53) - 1;
/// How long one answer of etcd may take.
const ETCD_ANSWER_WAIT: Duration = Duration::from_secs(2);
/// What all keys in etcd begin with.
const ETCD_ROOT: &str = "asterism";

/// The arguments of `asterism orchestrate`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration file; the same for all hosts and orchestrators of the cluster
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Which of the configured orchestrators this one is, if there are several
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub address: Option<SocketAddr>,
    /// How the log on standard error is written
    #[arg(long, value_enum, default_value_t = Style::Text)]
    pub log: Style,
}

/// Why an orchestrator does not run. Hosts, routes and the record are as they were.
#[derive(Debug, thiserror::Error)]
enum OrchestrateError {
    #[error(
        "{0} has no orchestrators: add orchestrators = [\"192.0.2.9:7500\"] to [cluster], with this machine's address"
    )]
    None(String),
    #[error("there are several orchestrators: say which one this is, by --address {0}")]
    Which(String),
    #[error("{0} is none of [cluster] orchestrators, which lists {1}")]
    NotListed(SocketAddr, String),
    #[error(transparent)]
    Keys(#[from] asterism_host::run::error::RunError),
    #[error("the operating system gives no randomness: {0}")]
    NoRandomness(#[from] getrandom::Error),
    #[error("signals cannot be heard: {0}")]
    Signals(std::io::Error),
    #[error("hosts cannot be heard at {0}: {1}")]
    Socket(SocketAddr, std::io::Error),
    #[error("the folder {path} cannot be made: {error}", path = .0.display(), error = .1)]
    Folder(PathBuf, std::io::Error),
    #[error("[orchestrator.routes.{0}]: {1}")]
    Routes(
        String,
        asterism_orchestrator::steering::ecmp::EcmpConfigError,
    ),
    #[error(transparent)]
    Api(#[from] asterism_api::server::StartError),
    #[error(transparent)]
    Start(#[from] asterism_orchestrator::run::StartError),
    #[error("a thread of the orchestrator failed; please report what it said")]
    Failed,
}

/// `asterism orchestrate CONFIG`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let file = &arguments.config;
    let (config, report) = match files::load(file, Purpose::Host, None, output.functions()) {
        Ok(read) => read,
        Err(error) => return output.fail(End::File, &error),
    };
    output.report(&report);
    let Some(config) = config else {
        return End::Configuration;
    };
    match run(arguments, &config, output) {
        Ok(()) => End::Done,
        Err(error) => {
            let end = match error {
                OrchestrateError::None(_)
                | OrchestrateError::NotListed(..)
                | OrchestrateError::Which(_)
                | OrchestrateError::Routes(..) => End::Configuration,
                OrchestrateError::Failed => End::DoesNotHold,
                _ => End::File,
            };
            output.fail(end, &error)
        }
    }
}

fn run(
    arguments: &Arguments,
    config: &Config,
    output: &mut Output<'_>,
) -> Result<(), OrchestrateError> {
    let file = &arguments.config;
    let shown = file.display().to_string();
    let orchestrator = config
        .orchestrator
        .as_ref()
        .ok_or(OrchestrateError::None(shown))?;
    let (address, number) = own_address(&config.cluster, arguments.address)?;
    let name = format!("orchestrator-{number}");
    let keys = keys_of(file, config)?;
    let (stop, _hang_up) = signals().map_err(OrchestrateError::Signals)?;
    let mut random = [0; 56];
    getrandom::fill(&mut random)?;
    let (identity, random) = random.split_at(8);
    let socket =
        UdpSocket::bind(address).map_err(|error| OrchestrateError::Socket(address, error))?;
    let running = Running::start(OrchestratorConfig {
        cluster: config.cluster.name.clone(),
        cluster_id: config.cluster.id(),
        keys: keys.clone(),
        identity: identity(hash_seed(keys.sending())),
        places: config.cluster.members.clone(),
        name: name.clone(),
        times: times(&config.cluster, orchestrator),
        term: orchestrator.term,
        random: random.try_into().unwrap_or([0; 48]),
        socket,
        store: store(
            file,
            orchestrator,
            &name,
            u64::from_le_bytes(identity.try_into().unwrap_or_default()),
        )?,
        steering: steering(file, orchestrator)?,
    })?;
    let clock = MonotonicClock::new();
    let events =
        EventRing::new(u64::from_le_bytes(identity.try_into().unwrap_or_default()) & LOG_MAX);
    let (server, notices) = serve(file, orchestrator, &running, &events, clock)?;
    let mut log = EventLog::new(output.progress(), arguments.log, &name);
    let mut write = |event: &Event| log.write(clock.now(), clock.wall(), event);
    write(
        &Event::info("orchestrates")
            .with("cluster", &config.cluster.name)
            .with("address", address)
            .with("members", config.cluster.members.len())
            .with(
                "api",
                server
                    .as_ref()
                    .map_or_else(|| "none".to_owned(), |server| server.local().to_string()),
            )
            .with("routes", orchestrator.routes.len()),
    );
    let key_file = config.cluster.key.as_ref();
    let mut key_watch = key_file.map(|key| KeyWatch::new(files::key_path(file, key), keys));
    while !stop.load(Ordering::Acquire) {
        if let Some(line) = running.logged(LOOK) {
            events.note(clock.wall() * 1_000, &line);
            write(&event(line));
        }
        while let Ok(notice) = notices.try_recv() {
            write(&noticed(&notice));
        }
        if let Some(watch) = &mut key_watch
            && let Some(event) = other_keys(watch, clock.now(), &running)
        {
            write(&event);
        }
        if !running.is_whole() {
            return Err(OrchestrateError::Failed);
        }
    }
    if let Some(server) = server {
        server.stop();
    }
    running.end();
    write(&Event::info("stopped").effect("hosts and routes stay as they are"));
    Ok(())
}

/// The address of this orchestrator, and its number in the list.
fn own_address(
    cluster: &Cluster,
    wanted: Option<SocketAddr>,
) -> Result<(SocketAddr, usize), OrchestrateError> {
    let all: Vec<String> = cluster
        .orchestrators
        .iter()
        .map(SocketAddr::to_string)
        .collect();
    match (wanted, &cluster.orchestrators[..]) {
        (None, [only]) => Ok((*only, 1)),
        (None, _) => Err(OrchestrateError::Which(all.join(" or "))),
        (Some(wanted), listed) => {
            let place = listed.iter().position(|address| *address == wanted);
            let place = place.ok_or(OrchestrateError::NotListed(wanted, all.join(", ")))?;
            Ok((wanted, place + 1))
        }
    }
}

fn times(cluster: &Cluster, orchestrator: &Orchestrator) -> Times {
    let times = &orchestrator.times;
    Times {
        heartbeat: cluster.heartbeat,
        suspect_after: times.suspect_after,
        suspect_after_max: times.suspect_after_max,
        return_after: times.return_after,
        evict_after: times.evict_after,
        found_after: times.found_after,
        ..Times::default()
    }
}

/// Opens etcd, or the embedded store in the orchestrator's folder.
fn store(
    file: &Path,
    orchestrator: &Orchestrator,
    name: &str,
    incarnation: u64,
) -> Result<StoreFactory, OrchestrateError> {
    if orchestrator.etcd.is_empty() {
        let folder = files::key_path(file, &orchestrator.folder).join(name);
        std::fs::create_dir_all(&folder)
            .map_err(|error| OrchestrateError::Folder(folder.clone(), error))?;
        return Ok(Box::new(move || {
            Ok(Box::new(EmbeddedStore::open(&folder, monotonic())?))
        }));
    }
    let endpoints: Vec<String> = orchestrator
        .etcd
        .iter()
        .map(|address| format!("http://{address}"))
        .collect();
    let name = name.to_owned();
    Ok(Box::new(move || {
        let config = EtcdConfig {
            endpoints,
            root: Key::new(ETCD_ROOT)?,
            name: Key::new(name)?,
            incarnation,
            cluster_id: None,
            answer_wait: ETCD_ANSWER_WAIT,
            tls: None,
            user: None,
        };
        Ok(Box::new(EtcdStore::new(&config, monotonic())?))
    }))
}

fn steering(
    file: &Path,
    orchestrator: &Orchestrator,
) -> Result<Vec<Box<dyn Steering>>, OrchestrateError> {
    let driver = |routes: &Routes| -> Result<Box<dyn Steering>, OrchestrateError> {
        let to_route = |prefix: &asterism_config::network::Prefix| EcmpRoute {
            source: routes.source,
            table: routes.table,
            ..EcmpRoute::new(prefix.address, prefix.length)
        };
        let config = EcmpConfig {
            network: routes
                .namespace
                .as_ref()
                .map(|path| files::key_path(file, path)),
            routes: routes.destinations.iter().map(to_route).collect(),
            hops: routes
                .hops
                .iter()
                .map(|(target, gateway, interface)| EcmpHop {
                    target: target.clone(),
                    gateway: *gateway,
                    interface: interface.clone(),
                })
                .collect(),
            spread: Spread::Slots(routes.slots),
        };
        let steering = EcmpSteering::new(config)
            .map_err(|error| OrchestrateError::Routes(routes.name.clone(), error))?;
        Ok(Box::new(steering))
    };
    orchestrator.routes.iter().map(driver).collect()
}

/// Starts the HTTP API, if the configuration has one.
fn serve(
    file: &Path,
    orchestrator: &Orchestrator,
    running: &Running,
    events: &EventRing,
    clock: MonotonicClock,
) -> Result<(Option<Server>, Receiver<Notice>), OrchestrateError> {
    let (sender, notices) = sync_channel(NOTICES_MAX);
    let Some(api) = &orchestrator.api else {
        return Ok((None, notices));
    };
    let served = OrchestratorApi::new(running.asking().clone(), events.clone(), clock);
    let server = Server::start(server_config(file, api), Arc::new(served), move |notice| {
        // What the log has no room for is left out.
        let _ = sender.try_send(notice);
    })?;
    Ok((Some(server), notices))
}

fn noticed(notice: &Notice) -> Event {
    let event = match notice {
        Notice::TokensChanged { .. } | Notice::CertificateChanged => Event::info("api-changed"),
        _ => Event::warning("api-refused"),
    };
    event.with("what", notice)
}

fn event(line: Logged) -> Event {
    let event = match line.is_warning {
        true => Event::warning(line.kind),
        false => Event::info(line.kind),
    };
    event.with("what", line.text)
}

/// Goes over to other keys of the key file; what is to be said of it.
fn other_keys(watch: &mut KeyWatch, now: Time, running: &Running) -> Option<Event> {
    match watch.query(now)? {
        Ok(keys) => {
            if running.asking().set_keys(keys.clone()).is_err() {
                // The orchestrator has much to do: the next look reads the file again.
                watch.read_again(now);
                return None;
            }
            let event = Event::info("keys").with("sends_with", keys.sending().id());
            watch.note_installed(keys);
            Some(event)
        }
        Err(why) => Some(
            Event::warning("keys-refused")
                .with("why", why)
                .effect("the keys in force stay")
                .cure("change keys with `asterism key`, and copy its file to every host and orchestrator with mode 0600"),
        ),
    }
}
