//! `asterism orchestrate`: an orchestrator as a service.
//!
//! `api.rs`, `questions.rs` and `events.rs` are its HTTP API, `health.rs` what is wrong with a cluster, `metrics.rs` what Prometheus reads;
//! `steering.rs` and `store.rs` make the drivers and the store that the configuration names.

pub mod api;
pub mod events;
pub mod health;
pub(crate) mod launchers;
pub mod metrics;
mod questions;
mod scaling;
mod steering;
mod store;
pub mod tenants;

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, sync_channel};
use std::time::Duration;

use asterism_api::server::{Notice, Server, ServerConfig};
use asterism_config::{Cluster, Config, Orchestrator, Purpose, files};
use asterism_engine::hash_seed;
use asterism_host::run::event_log::{Event, EventLog, Style};
use asterism_host::run::key_watch::KeyWatch;
use asterism_host::run::{keys_of, signals};
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::controller::Times;
use asterism_orchestrator::run::{ElasticConfig, Logged, OrchestratorConfig, Running};
use asterism_orchestrator::steering::Steering;
use asterism_output::{End, Output};
use asterism_placement::Time;
use asterism_secure_channel::KeyRing;
use clap::Args;

use api::{OrchestratorApi, server_config};
use events::EventRing;
use tenants::Tenants;

/// How often signals and the key file are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Notices of the API that wait for the log at most.
const NOTICES_MAX: usize = 64;
/// Numbers of event logs are below 2^53, so that JavaScript keeps them.
const LOG_MAX: u64 = (1 << 53) - 1;

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

/// Why an orchestrator does not run. Hosts, steering and the record are as they were.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrchestrateError {
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
    #[error(transparent)]
    Store(#[from] store::StoreConfigError),
    #[error(transparent)]
    Driver(#[from] steering::DriverError),
    #[error("[orchestrator.launch]: {0}")]
    Launcher(#[from] launchers::LauncherError),
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
                | OrchestrateError::Driver(_)
                | OrchestrateError::Launcher(_) => End::Configuration,
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
    let mut drivers = steering::Drivers::new(file, &config.cluster, orchestrator, &keys)?;
    let driver_keys = drivers.take_keys();
    let elastic = launchers::elastic(file, config, orchestrator)?;
    let own = (address, name.as_str(), &keys);
    let (running, events) = start(file, config, orchestrator, own, drivers.steering, elastic)?;
    let clock = MonotonicClock::new();
    let (sender, notices) = sync_channel(NOTICES_MAX);
    let noticing = move |notice| {
        // What the log has no room for is left out.
        let _ = sender.try_send(notice);
    };
    let server = match &orchestrator.api {
        None => None,
        Some(api) => {
            let (api, shown) = (server_config(file, api), (&events, clock));
            Some(serve(api, config, &running, shown, noticing)?)
        }
    };
    let mut log = EventLog::new(output.progress(), arguments.log, &name);
    let mut write = |event: &Event| log.write(clock.now(), clock.wall(), event);
    write(
        &Event::info("orchestrates")
            .with("cluster", &config.cluster.name)
            .with("address", address)
            .with(
                match config.cluster.is_open {
                    true => "places",
                    false => "members",
                },
                config.cluster.members.len(),
            )
            .with(
                "api",
                server
                    .as_ref()
                    .map_or_else(|| "none".to_owned(), |server| server.local().to_string()),
            )
            .with("routes", orchestrator.routes.len())
            .with("bridges", orchestrator.openvswitch.len())
            .with("directors", orchestrator.director.len()),
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
            && let Some(event) = other_keys(watch, clock.now(), &running, &driver_keys)
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

/// Starts an orchestrator of this address and name, which steers by these drivers; also where its events are noted.
pub(crate) fn start(
    file: &Path,
    config: &Config,
    orchestrator: &Orchestrator,
    (address, name, keys): (SocketAddr, &str, &KeyRing),
    steering: Vec<Box<dyn Steering>>,
    elastic: Option<ElasticConfig>,
) -> Result<(Running, EventRing), OrchestrateError> {
    let mut random = [0; 56];
    getrandom::fill(&mut random)?;
    let (identity, random) = random.split_at(8);
    let identity = u64::from_le_bytes(identity.try_into().unwrap_or_default());
    let socket =
        UdpSocket::bind(address).map_err(|error| OrchestrateError::Socket(address, error))?;
    let running = Running::start(OrchestratorConfig {
        cluster: config.cluster.name.clone(),
        cluster_id: config.cluster.id(),
        keys: keys.clone(),
        identity: asterism_config::identity(hash_seed(keys.sending())),
        places: config.cluster.members.clone(),
        is_open: config.cluster.is_open,
        steered_only: orchestrator.steered().filter(|_| config.cluster.is_open),
        name: name.to_owned(),
        times: times(&config.cluster, orchestrator),
        term: orchestrator.term,
        random: random.try_into().unwrap_or([0; 48]),
        socket,
        store: store::store(file, orchestrator, name, identity)?,
        steering,
        elastic,
    })?;
    Ok((running, EventRing::new(identity & LOG_MAX)))
}

/// Starts the HTTP API of an orchestrator.
pub(crate) fn serve(
    api: ServerConfig,
    config: &Config,
    running: &Running,
    (events, clock): (&EventRing, MonotonicClock),
    noticing: impl Fn(Notice) + Send + Sync + 'static,
) -> Result<Server, asterism_api::server::StartError> {
    let served = OrchestratorApi::new(running, events.clone(), clock)
        .with_tenants(Tenants::new(&config.tenants));
    Server::start(api, Arc::new(served), noticing)
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
fn other_keys(
    watch: &mut KeyWatch,
    now: Time,
    running: &Running,
    drivers: &[Sender<KeyRing>],
) -> Option<Event> {
    match watch.query(now)? {
        Ok(keys) => {
            if running.asking().set_keys(keys.clone()).is_err() {
                // The orchestrator has much to do: the next look reads the file again.
                watch.read_again(now);
                return None;
            }
            for driver in drivers {
                // A driver that has ended needs none.
                let _ = driver.send(keys.clone());
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
