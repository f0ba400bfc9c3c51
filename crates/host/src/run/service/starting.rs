//! The start of a host: everything that is opened before it speaks to others, in order.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_config::{Config, Idle, Placement};
use asterism_engine::transport::{self, RunConfig, RunMode, StateChannelThread, Waker};
use asterism_engine::{HostConfig, InstanceParts, Placed, host, shape_of};
use asterism_function::{NetworkFunction, objects_of, stage_names};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::Port;
use asterism_output::Output;
use asterism_placement::{Epoch, Incarnation, MemberId, Time};
use asterism_state::hash;

use super::Service;
use crate::control::place::Place;
use crate::control::request_handler::{COMMANDS_MAX, Command, RequestHandler};
use crate::control::server;
use crate::run::environment::{digest_of, pin, signals, udp_config};
use crate::run::epochs::{Installed, Watch};
use crate::run::error::{RunError, StartError};
use crate::run::heartbeats::Heartbeats;
use crate::run::jobs::{HostContext, HostLog, Jobs};
use crate::run::metering::Metering;
use crate::run::ports::{self, PortsError};
use crate::run::prepared::Prepared;
use crate::run::saved::Identity;
use crate::run::stores::Stores;
use crate::run::worker::{REQUESTS_MAX, Worker};
use asterism_event_log::{Event, EventLog};
use asterism_host_metrics as metrics;
use asterism_host_view::requests::Request;
use asterism_host_view::shared::Shared;
use asterism_host_view::store::StoreView;
use asterism_host_view::{Own, View};
use asterism_service_manager::Manager;

/// Events that wait to be written at most; more are left out.
const EVENTS_MAX: usize = 256;
/// How often accumulators are flushed, in microseconds: as often as a sleeping instance wakes.
const FLUSH_US: u64 = 1_000;
/// The cluster's time begins so late at least, in seconds since 1970: entries that a state file brings were used before.
const TICK_MIN: u32 = 90 * 24 * 3_600;
/// And so early at most: it has 32 bits, and goes on for years from there.
const TICK_MAX: u32 = 4_000_000_000;

/// The incarnation of a host that starts.
struct Start {
    incarnation: Incarnation,
    /// Whether others may run already.
    joins: bool,
    /// The epoch that named the incarnation, with the file that said so; `None` without epochs.
    epoch: Option<(Watch, Installed)>,
    /// The place that an epoch gives a host that registers.
    member: Option<MemberId>,
    /// When others could hear this host first.
    took_part: Time,
}

/// The numbers by which hosts see that they run the same.
#[derive(Clone, Copy)]
struct Shape {
    whole: u64,
    layout: u64,
    movable: u64,
}

/// The frames of an instance, and its ports.
type OpenPorts = (FramePool, Vec<Box<dyn Port>>);

/// The threads of the instances, and what the main thread has of each.
#[derive(Default)]
struct Instances {
    shared: Vec<Arc<Shared>>,
    requests: Vec<SyncSender<Request>>,
    workers: Vec<JoinHandle<()>>,
}

impl Service<'_, '_> {
    /// Starts the threads of a host. None of them speaks to other hosts before [`Service::open_all`].
    pub(super) fn start<'a, 'o, F: NetworkFunction + Send + Sync>(
        prepared: &'a Prepared,
        function: &Arc<F>,
        place: Place,
        output: &'o mut Output<'_>,
    ) -> Result<Service<'a, 'o>, RunError> {
        let config = &prepared.config;
        let cluster = &config.cluster;
        if cluster.is_open {
            check_registered(config)?;
        }
        let (stop, hang_up) = signals().map_err(StartError::Signals)?;
        let clock = MonotonicClock::new();
        let mut secrets = [0; 48];
        getrandom::fill(&mut secrets)?;
        let style = prepared.arguments.log;
        let mut lines = EventLog::new(output.progress(), style, &config.host.name);
        let manager = Manager::from_environment(std::process::id());
        // Before anything else: who waits to be named may be handed the epoch that does.
        let (request_handler, commands) = open_control(config, &place)?;
        let mut watch = Watch::of(prepared, clock.wall());
        let path = watch.as_ref().map(Watch::path);
        let mut heartbeats =
            Heartbeats::start(config, path, &prepared.keys, &request_handler, clock)?;
        let mut start = match watch.take() {
            Some(watch) => {
                let mut log = |event: &Event| lines.write(clock.now(), clock.wall(), event);
                await_epoch(
                    watch,
                    clock,
                    &stop,
                    &commands,
                    &manager,
                    heartbeats.as_mut(),
                    &mut log,
                )?
            }
            None => begin_unnamed(clock)?,
        };
        let member = start.member.or_else(|| cluster.member(&config.host.name));
        let member = member.ok_or(RunError::NoMember)?;
        let shape = shape(config, &**function);
        let identity = Identity {
            // Sizes may be others when a state is taken up.
            cluster: cluster.number(shape.layout).0,
            schema: shape.layout,
            addresses: digest_of(&function.addresses()),
        };
        let file = &*prepared.arguments.config;
        let (incarnation, layout) = (start.incarnation, shape.layout);
        let keys = &prepared.keys;
        let mut stores = Stores::of((config, file), keys, &**function, incarnation, layout)?;
        let metering = metering(config)?;
        let opened = open_ports(prepared, metering.as_deref())?;
        let host_config = HostConfig {
            instances: config.host.instances as u16,
            tick_at_zero: clock.wall_at_zero().clamp(TICK_MIN, TICK_MAX),
            flush_us: FLUSH_US,
            audited_objects: objects_of(&**function).len(),
            placements: Placed {
                movable: shape.movable,
                replicated: config.function.replicated(objects_of(&**function)),
            },
            joins: start.joins,
            // Before the first epoch there is none.
            epoch: Epoch(u32::from(start.epoch.is_none())),
            ..cluster.host(
                member,
                start.incarnation,
                prepared.keys.clone(),
                secrets,
                shape.whole,
            )
        };
        let installed = start.epoch.as_ref().map(|(_, installed)| installed);
        let (channel, parts) = open_channel(config, member, host_config, installed, clock)?;
        if let Some((epochs, installed)) = &mut start.epoch {
            epochs.note_given(installed.roster.epoch);
        }
        let (event_sender, events) = sync_channel(EVENTS_MAX);
        let parts = (0..).zip(parts).map(|(instance, parts)| match &stores {
            Some(stores) => stores.give(parts, function, instance),
            None => parts,
        });
        let parts = parts.zip(opened);
        let waker = || channel.waker();
        let instances = start_instances(config, function, parts, &event_sender, waker, clock)?;
        let mut view = View::new(
            config,
            (
                objects_of(&**function),
                stage_names(&**function),
                Own::of(&**function),
            ),
            clock,
            (start.incarnation, shape.whole),
            instances.shared.clone(),
            instances.requests.clone(),
            channel.snapshots(),
        );
        if let Some(stores) = &stores {
            let listing = stores.listing(function);
            let (objects, statistics) = (view.names.objects, stores.statistics.clone());
            let store = StoreView::new(&stores.store, objects, statistics);
            let own = stores.own.as_ref();
            let own = own.map(|(own, _)| own.statistics());
            view.store = store.with_listing(listing).with_own(own);
        }
        let view = Arc::new(view);
        let installed = start.epoch.as_ref().map(|(_, installed)| installed);
        if let Some(hosts) = installed.and_then(|installed| installed.hosts.as_ref()) {
            view.names.members.set(hosts.names.clone());
        }
        request_handler.open(view.clone(), event_sender.clone());
        if let Some(address) = config.host.metrics {
            metrics::server::start(address, view.clone())?;
        }
        let mut log = HostLog::new(lines, clock, view.clone());
        let started = Event::info("started")
            .with("cluster", &cluster.name)
            .with("function", config.function.name)
            .with("instances", config.host.instances)
            .with("shape", format!("{:016x}", shape.whole))
            .with("incarnation", format!("{:016x}", start.incarnation.0))
            .with("address", channel.snapshot().state.local);
        let started = match &config.store {
            Some(store) => started.with("store", store.place()),
            None => started,
        };
        log.write(&started);
        let own = stores.as_mut().and_then(|stores| stores.own.take());
        let store_passwords = stores.map(|stores| stores.passwords);
        let (own, begun) = own.unzip();
        let begun = begun.into_iter().flatten();
        begun.for_each(|event| log.write(&event));
        let has_epochs = start.epoch.is_some();
        let epochs = start.epoch.map(|(watch, _)| (watch, start.incarnation));
        Ok(Service {
            prepared,
            text: prepared.text.clone(),
            host: HostContext {
                config: config.clone(),
                config_file: prepared.arguments.config.clone(),
                member,
                movable: shape.movable,
                clock,
                requests: instances.requests,
                channel,
                view,
                metering,
                events: event_sender,
                took_part: start.took_part,
            },
            jobs: Jobs::new(prepared, epochs, own),
            log,
            manager,
            identity,
            has_epochs,
            heartbeats,
            store_passwords,
            shared: instances.shared,
            workers: instances.workers,
            events,
            commands,
            stop,
            hang_up,
            stop_asked: false,
            watched: Time::ZERO,
            stopping: Vec::new(),
            _place: place,
        })
    }
}

/// Opens the control socket, by which a host that waits for an epoch is handed one.
fn open_control(
    config: &Config,
    place: &Place,
) -> Result<(Arc<RequestHandler>, Receiver<Command>), StartError> {
    let (sender, commands) = sync_channel(COMMANDS_MAX);
    let request_handler = Arc::new(RequestHandler::new(config.cluster.clone(), sender));
    server::start(place, request_handler.clone()).map_err(StartError::Control)?;
    Ok((request_handler, commands))
}

/// Waits for an epoch that names an incarnation of this host.
fn await_epoch(
    mut epochs: Watch,
    clock: MonotonicClock,
    stop: &AtomicBool,
    commands: &Receiver<Command>,
    manager: &Manager,
    heartbeats: Option<&mut Heartbeats>,
    log: &mut impl FnMut(&Event),
) -> Result<Start, RunError> {
    let begun = epochs.begin_incarnation(clock, stop, commands, manager, heartbeats, log)?;
    Ok(Start {
        incarnation: begun.incarnation,
        joins: begun.joins,
        epoch: Some((epochs, begun.installed)),
        member: Some(begun.member),
        // Until now others did without this host.
        took_part: clock.now(),
    })
}

/// Draws the incarnation of a host without epochs.
fn begin_unnamed(clock: MonotonicClock) -> Result<Start, RunError> {
    let took_part = clock.now();
    let mut incarnation = [0; 8];
    getrandom::fill(&mut incarnation)?;
    Ok(Start {
        incarnation: Incarnation(u64::from_le_bytes(incarnation) | 1),
        joins: false,
        epoch: None,
        member: None,
        took_part,
    })
}

fn shape<F: NetworkFunction>(config: &Config, function: &F) -> Shape {
    let settings = config.function.clone();
    let shape = shape_of(function, move |name| settings.object_settings(name));
    let shape = shape.and(config.function.kind_number());
    // Hosts of two stores would not share what they are to share.
    let whole = config.store.as_ref().map_or(shape.whole, |store| {
        let place = hash::bytes(store.identity().as_bytes(), shape.whole);
        let objects = config.function.objects.iter();
        let remote = objects.filter(|object| object.placement == Placement::Remote);
        remote.fold(place, |sum, object| {
            hash::word(
                object.capacity.into(),
                hash::bytes(object.name.as_bytes(), sum),
            )
        })
    });
    Shape {
        whole,
        layout: shape.layout,
        movable: shape.movable,
    }
}

/// The counts of tenants, if there are tenants.
fn metering(config: &Config) -> Result<Option<Arc<Metering>>, getrandom::Error> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed)?;
    Ok(Metering::of(config, u64::from_le_bytes(seed)))
}

/// Opens each instance's frames and ports.
fn open_ports(
    prepared: &Prepared,
    metering: Option<&Metering>,
) -> Result<Vec<OpenPorts>, PortsError> {
    let (config, file) = (&prepared.config, &prepared.arguments.config);
    let (instances, salt) = (config.host.instances, std::process::id());
    let open = |instance| {
        let (pool, ports) = ports::open(&config.ports, file, instances, salt)?;
        Ok(match metering {
            Some(metering) => (pool, metering.wrap(instance, ports)),
            None => (pool, ports),
        })
    };
    (0..instances).map(open).collect()
}

/// A host that registers says who and where it is.
fn check_registered(config: &Config) -> Result<(), RunError> {
    match (&*config.host.name, config.host.address) {
        ("", _) => Err(RunError::NoName),
        (_, None) => Err(RunError::NoAddress),
        _ => Ok(()),
    }
}

/// Makes the state channel and opens its sockets; it sends nothing yet. `installed` is the epoch that named this host, if one did.
fn open_channel(
    config: &Config,
    member: MemberId,
    host_config: HostConfig,
    installed: Option<&Installed>,
    clock: MonotonicClock,
) -> Result<(StateChannelThread, Vec<InstanceParts>), RunError> {
    let (mut channel, parts) = host(host_config, clock.now())?;
    if let Some(installed) = installed {
        channel
            .install(clock.now(), &installed.roster)
            .map_err(StartError::Epochless)?;
    }
    let run = RunConfig {
        mode: match config.host.channel_idle {
            Idle::Spin => RunMode::Spin,
            Idle::Sleep => RunMode::Poll,
        },
        flush_max: Duration::from_millis(200),
        ..RunConfig::default()
    };
    // Nothing is sent before all is open that a start may fail by.
    let registered = installed.and_then(|installed| installed.hosts.as_ref());
    let registered = registered.map(|hosts| hosts.addresses.as_slice());
    let udp = udp_config(config, member, registered).ok_or(RunError::NoAddresses)?;
    let channel = transport::open(channel, &udp, run, clock)?;
    Ok((channel, parts))
}

/// Starts a thread for each instance.
fn start_instances<F: NetworkFunction + Send + Sync>(
    config: &Config,
    function: &Arc<F>,
    parts: impl Iterator<Item = (InstanceParts, OpenPorts)>,
    events: &SyncSender<Event>,
    waker: impl Fn() -> Waker,
    clock: MonotonicClock,
) -> Result<Instances, StartError> {
    let spins = config.host.idle == Idle::Spin;
    let mut instances = Instances::default();
    for (number, (parts, (pool, ports))) in parts.enumerate() {
        let share = Arc::new(Shared::new(spins));
        let (sender, receiver) = sync_channel(REQUESTS_MAX);
        let (function, settings) = (function.clone(), config.function.clone());
        let (share_of, events_of, waker) = (share.clone(), events.clone(), waker());
        let core = config.host.cores.get(number).copied();
        let body = move || {
            if let Some(core) = core {
                pin(core, &events_of);
            }
            // Timers of this thread end when they are due, not up to 50 us later.
            let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1));
            let settings = move |name: &str| settings.object_settings(name);
            let instance = parts.start(function, settings, pool, ports);
            Worker::new(instance, share_of, receiver, events_of, waker, clock).run();
        };
        let name = format!("instance-{number}");
        let thread = std::thread::Builder::new().name(name).spawn(body);
        let thread = thread.map_err(StartError::InstanceThread)?;
        instances.workers.push(thread);
        instances.shared.push(share);
        instances.requests.push(sender);
    }
    Ok(instances)
}
