//! The main thread of a host: it starts the others, decides when packets are read, hears signals and commands, writes the log,
//! and ends everything in order (`ending.rs`).

mod backends;
mod ending;
mod handing;
mod others;
mod reloading;
mod state;
mod stations;
mod stopped;

pub use ending::TELL_LAST;
pub use stations::STATIONS_AT_ONCE;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_config::{Config, Idle};
use asterism_engine::transport::{self, Notice, RunConfig, RunMode, StateChannelThread};
use asterism_engine::{HostConfig, host, shape_of};
use asterism_function::NetworkFunction;
use asterism_io::clock::MonotonicClock;
use asterism_output::Output;
use asterism_placement::replicated::Refused as RefusedMessage;
use asterism_placement::{Epoch, Incarnation, MemberId, Time};
use serde_json::Value;

use super::environment::{digest_of, pin, signals, udp_config};
use super::epochs::Watch;
use super::eve::Eve;
use super::event_log::{Event, EventLog};
use super::exports::Exporting;
use super::health::HealthReporter;
use super::notify::Manager;
use super::prepared::{Prepared, random};
use super::requests::Request;
use super::saved::Identity;
use super::tombstones::TombstoneWatch;
use super::worker::{Phase, REQUESTS_MAX, Shared, Worker};
use super::{keys, notices, ports};
use crate::control::place::Place;
use crate::control::request_handler::{
    COMMANDS_MAX, Command, CommandKind, Refused, RequestHandler,
};
use crate::control::server;
use crate::metrics;
use crate::view::{Own, View};

use handing::Handed;
use others::{EARLIER_INCARNATION, is_outvoted, knows_earlier_incarnation, others};

/// Events that wait to be written at most; more are left out.
const EVENTS_MAX: usize = 256;
/// How often the main thread looks at signals and clocks.
const LOOK: Duration = Duration::from_millis(10);
/// The same while it waits for others to bring what they have, or for an epoch to be in force.
const LOOK_JOINING: Duration = Duration::from_millis(1);
/// How long the socket's thread has to hand the last answer on.
const LAST_WORD: Duration = Duration::from_millis(50);
/// How many times `join_wait` a host takes at most to take over what others have.
const JOIN_FACTOR: u32 = 10;
/// How long a host that starts listens at least for a later epoch than its own, unless it receives all members: a handshake's round trip
/// and a repetition. Less if `join_wait` is less.
const LATER_EPOCH_WAIT: Duration = Duration::from_millis(250);
/// How often accumulators are flushed, in microseconds: as often as a sleeping instance wakes.
const FLUSH_US: u64 = 1_000;
/// The cluster's time begins so late at least, in seconds since 1970: entries that a state file brings were used before.
const TICK_MIN: u32 = 90 * 24 * 3_600;
/// And so early at most: it has 32 bits, and goes on for years from there.
const TICK_MAX: u32 = 4_000_000_000;
/// How long it takes at most until the state channel's thread shows that the cluster's time is settled.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// A running host.
pub struct Service<'a, 'o> {
    pub(super) prepared: &'a Prepared,
    pub(super) config: Config,
    /// The text that it was read from.
    text: String,
    pub(super) clock: MonotonicClock,
    pub(super) member: MemberId,
    identity: Identity,
    shared: Vec<Arc<Shared>>,
    pub(super) requests: Vec<SyncSender<Request>>,
    workers: Vec<JoinHandle<()>>,
    pub(super) channel: StateChannelThread,
    events: Receiver<Event>,
    commands: Receiver<Command>,
    event_log: EventLog<'o>,
    manager: Manager,
    epochs: Option<Watch>,
    /// The incarnation that an epoch named; `None` without epochs.
    begun: Option<Incarnation>,
    pub(super) keys: Option<keys::Watch>,
    pub(super) exports: Exporting,
    pub(super) eve: Option<Eve>,
    /// When others could hear this host first.
    pub(super) took_part: Time,
    stop: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
    stop_asked: bool,
    /// Messages refused so far because they are of another incarnation of a member.
    incarnations_refused: u64,
    /// Datagrams refused so far as those of another cluster, and when that was reported last.
    strange: (u64, Option<Time>),
    /// The same of datagrams refused because of settings that hosts must share.
    other_settings: (u64, Option<Time>),
    /// Whether what ended fills the tables.
    tombstones: TombstoneWatch,
    watched: Time,
    pub(super) view: Arc<View>,
    reporter: HealthReporter,
    /// What looks at backends or caches beside the packets.
    background: Option<backends::BackgroundTask>,
    /// The stations that a balancer is to know before packets go to them.
    requesting: stations::Requesting,
    /// Who asked for the host to stop, and waits until it has.
    stopping: Vec<Command>,
    /// Epochs that were handed in, whose handers wait.
    handed: Vec<Handed>,
    /// The member is this process's until it ends.
    _place: Place,
}

impl core::fmt::Debug for Service<'_, '_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Service({})", self.config.host.name)
    }
}

/// Why waiting ended before what was waited for.
enum Interrupted {
    /// Somebody wants the host to stop.
    Stop,
    /// A thread ended that must not.
    Failed(String),
}

impl Service<'_, '_> {
    /// Runs a host until it is asked to stop.
    ///
    /// # Errors
    /// Why it did not start, or could not go on, in words. Its threads have ended or end with the process.
    pub fn run<F: NetworkFunction + Send + Sync>(
        prepared: &Prepared,
        function: &Arc<F>,
        place: Place,
        output: &mut Output<'_>,
    ) -> Result<(), String> {
        let mut service = Service::start(prepared, function, place, output)?;
        let ended = service.live();
        service.end(ended)
    }

    fn start<'a, 'o, F: NetworkFunction + Send + Sync>(
        prepared: &'a Prepared,
        function: &Arc<F>,
        place: Place,
        output: &'o mut Output<'_>,
    ) -> Result<Service<'a, 'o>, String> {
        let config = prepared.config.clone();
        let cluster = &config.cluster;
        let member = cluster
            .member(&config.host.name)
            .ok_or("the host is no member of the cluster")?;
        let (stop, hang_up) = signals()?;
        let clock = MonotonicClock::new();
        let mut secrets = [0; 48];
        random(&mut secrets)?;
        let style = prepared.arguments.log;
        let mut event_log = EventLog::new(output.progress(), style, &config.host.name);
        let manager = Manager::from_environment(std::process::id());
        // Before anything else: who waits to be named may be handed the epoch that does.
        let (command_sender, commands) = sync_channel(COMMANDS_MAX);
        let request_handler = Arc::new(RequestHandler::new(cluster.clone(), command_sender));
        server::start(&place, request_handler.clone())
            .map_err(|error| format!("the host was not started: {error}"))?;
        let mut epochs = Watch::of(prepared, clock.wall());
        let mut begun = None;
        if let Some(epochs) = &mut epochs {
            let mut log = |event: &Event| event_log.write(clock.now(), clock.wall(), event);
            begun = Some(epochs.begin_incarnation(clock, &stop, &commands, &manager, &mut log)?);
        }
        // Until now others did without this host, if it waited.
        let took_part = clock.now();
        let (incarnation, joins) = match &begun {
            Some(begun) => (begun.incarnation, begun.joins),
            None => {
                let mut incarnation = [0; 8];
                random(&mut incarnation)?;
                (Incarnation(u64::from_le_bytes(incarnation) | 1), false)
            }
        };
        let settings = config.function.clone();
        let shape = shape_of(&**function, move |name| settings.object_settings(name));
        let shape = shape.and(config.function.kind_number());
        let host_config = HostConfig {
            instances: config.host.instances as u16,
            tick_at_zero: clock.wall_at_zero().clamp(TICK_MIN, TICK_MAX),
            flush_us: FLUSH_US,
            audited_objects: function.objects().len(),
            joins,
            // Before the first epoch there is none.
            epoch: Epoch(u32::from(begun.is_none())),
            ..cluster.host(
                member,
                incarnation,
                prepared.keys.clone(),
                secrets,
                shape.whole,
            )
        };
        let identity = Identity {
            // Sizes may be others when a state is taken up.
            cluster: cluster.number(shape.layout).0,
            schema: shape.layout,
            addresses: digest_of(&function.addresses()),
        };
        let mut opened = Vec::new();
        for _ in 0..config.host.instances {
            let (file, salt) = (&prepared.arguments.config, std::process::id());
            let ports = ports::open(&config.ports, file, config.host.instances, salt);
            opened.push(ports.map_err(|error| format!("the host was not started: {error}"))?);
        }
        let (mut channel, parts) =
            host(host_config, clock.now()).map_err(|error| error.to_string())?;
        if let Some(begun) = &begun {
            channel
                .install(clock.now(), &begun.roster)
                .map_err(|why| format!("the host was not started: {why}"))?;
            if let Some(epochs) = &mut epochs {
                epochs.note_given(begun.roster.epoch);
            }
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
        let channel = transport::open(channel, &udp_config(&config, member)?, run, clock)
            .map_err(|error| format!("the host was not started: {error}"))?;

        let (event_sender, events) = sync_channel(EVENTS_MAX);
        let spins = config.host.idle == Idle::Spin;
        let (mut shared, mut requests, mut workers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (parts, (pool, ports))) in parts.into_iter().zip(opened).enumerate() {
            let share = Arc::new(Shared::new(spins));
            let (sender, receiver) = sync_channel(REQUESTS_MAX);
            let (function, settings) = (function.clone(), config.function.clone());
            let (share_of, events_of, waker) =
                (share.clone(), event_sender.clone(), channel.waker());
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
            workers.push(
                thread.map_err(|error| format!("the host was not started: no thread: {error}"))?,
            );
            shared.push(share);
            requests.push(sender);
        }
        let first = requests[0].clone();
        let view = Arc::new(View::new(
            &config,
            (function.objects(), function.stages(), Own::of(&**function)),
            clock,
            (incarnation, shape.whole),
            shared.clone(),
            requests.clone(),
            channel.snapshots(),
        ));
        request_handler.open(view.clone(), event_sender.clone());
        if let Some(address) = config.host.metrics {
            metrics::server::start(address, view.clone())
                .map_err(|error| format!("the host was not started: {error}"))?;
        }
        let started = Event::info("started")
            .with("cluster", &cluster.name)
            .with("function", config.function.name)
            .with("instances", config.host.instances)
            .with("shape", format!("{:016x}", shape.whole))
            .with("incarnation", format!("{:016x}", incarnation.0))
            .with("address", channel.snapshot().state.local);
        event_log.write(clock.now(), clock.wall(), &started);
        Ok(Service {
            prepared,
            config,
            text: prepared.text.clone(),
            clock,
            member,
            identity,
            shared,
            requests,
            workers,
            channel,
            events,
            commands,
            event_log,
            manager,
            epochs,
            begun: begun.map(|begun| begun.incarnation),
            keys: keys::Watch::of(prepared),
            exports: Exporting::default(),
            eve: None,
            took_part,
            stop,
            hang_up,
            stop_asked: false,
            incarnations_refused: 0,
            strange: (0, None),
            other_settings: (0, None),
            tombstones: TombstoneWatch::default(),
            watched: Time::ZERO,
            view,
            reporter: HealthReporter {
                member: member.0,
                clock,
                requests: first,
                events: event_sender,
            },
            background: None,
            requesting: stations::Requesting::default(),
            stopping: Vec::new(),
            handed: Vec::new(),
            _place: place,
        })
    }

    // --- the incarnation of a host

    fn live(&mut self) -> Result<(), Interrupted> {
        self.open_all().map_err(Interrupted::Failed)?;
        self.manager.status("listening for other hosts");
        let cold = self.listen()?;
        let taken_up = self.take_up_state(cold)?;
        // Whatever may still keep this host from running comes before the file is moved away: the next start needs it.
        self.check_backends().map_err(Interrupted::Failed)?;
        self.settle_time()?;
        self.date_exports();
        if let Some(path) = taken_up {
            self.put_aside(&path);
        }
        self.set_phase(Phase::Running);
        let heard = others(&self.channel.snapshot(), self.member)
            .filter(|other| other.heard)
            .count();
        self.log(&Event::info("running").with("members_heard", heard));
        self.manager
            .ready(&format!("running; {heard} other hosts heard"));
        loop {
            self.query()?;
        }
    }

    /// From here on this host goes back to no earlier cluster time: what it writes is written under the one that it has.
    fn settle_time(&mut self) -> Result<(), Interrupted> {
        self.channel.settle_cluster_time();
        let until = self.clock.now() + SETTLE_MAX;
        while !self.channel.snapshot().cluster_time_source.0 && self.clock.now() < until {
            self.look_for(LOOK_JOINING)?;
        }
        Ok(())
    }

    /// Opens everything by which a start may fail, and then begins to speak to other hosts: from the first datagram on the incarnation is used.
    fn open_all(&mut self) -> Result<(), String> {
        self.begin_exports()?;
        self.begin_eve()?;
        self.begin_serving()?;
        if let (Some(epochs), Some(incarnation)) = (&self.epochs, self.begun) {
            epochs.note_used(incarnation)?;
        }
        self.channel
            .start()
            .map_err(|error| format!("the host was not started: {error}"))
    }

    /// Waits until everything is here that other hosts have. Tells whether nobody has anything.
    fn listen(&mut self) -> Result<bool, Interrupted> {
        if !self.channel.snapshot().is_ready {
            self.join()?;
            return Ok(false);
        }
        let mut start = self.clock.now();
        let wait = self.config.host.join_wait;
        let mut targets: Vec<(MemberId, u64)> = Vec::new();
        let listed = self.config.cluster.members.len();
        let mut stands_still = false;
        loop {
            self.query()?;
            let (now, snapshot) = (self.clock.now(), self.channel.snapshot());
            // Whatever an old epoch gives this host, a later one may have given to others: there is no time after which it goes on.
            if let Some((_, later)) = snapshot.later_epoch {
                if !core::mem::replace(&mut stands_still, true) {
                    let waits = format!("waits for epoch {}, which others have in force", later.0);
                    self.manager.status(&waits);
                }
                continue;
            }
            if is_outvoted(&snapshot) {
                if !core::mem::replace(&mut stands_still, true) {
                    self.manager
                        .status("refused: other members have other settings of the cluster");
                }
                continue;
            }
            if core::mem::replace(&mut stands_still, false) {
                self.manager.status("listening for other hosts");
                (start, targets) = (now, Vec::new());
            }
            let is_early = now < start + wait.min(LATER_EPOCH_WAIT);
            if self.begun.is_some() && targets.len() + 1 < listed && is_early {
                continue;
            }
            let members = others(&snapshot, self.member).count() + 1;
            for other in others(&snapshot, self.member).filter(|other| other.heard) {
                if !targets.iter().any(|(member, _)| *member == other.member) {
                    targets.push((other.member, other.head));
                }
            }
            let behind = others(&snapshot, self.member).any(|other| {
                let target = targets.iter().find(|(member, _)| *member == other.member);
                // Anyone who is there but not heard yet is waited for too.
                match target {
                    Some((_, head)) => other.applied < *head || !other.welcomes,
                    None => other.is_there,
                }
            });
            let over = now >= start + wait;
            if over && behind && knows_earlier_incarnation(&snapshot) {
                return Err(Interrupted::Failed(EARLIER_INCARNATION.to_owned()));
            }
            if !behind && (over || targets.len() + 1 >= members) {
                let cold = targets.iter().all(|(_, head)| *head == 0);
                if targets.len() + 1 < members {
                    self.log(&Event::warning("members-missing")
                        .with("heard", targets.len())
                        .with("members", members - 1)
                        .effect("the host goes on without them; they take over what it has once they are heard")
                        .cure("see that they run, and that the network carries UDP between the members' addresses"));
                }
                return Ok(cold);
            }
            if now >= start + wait * JOIN_FACTOR {
                self.log(&Event::warning("join-not-complete")
                    .effect("the host goes on before it has all that others have: packets of sessions that it does not know may be dropped")
                    .cure("see the state channel's lag in `asterism status`; a longer join_wait gives more time"));
                return Ok(false);
            }
        }
    }

    /// Waits until this host has what the others have: it writes nothing before.
    fn join(&mut self) -> Result<(), Interrupted> {
        self.manager.status("joining");
        self.log(
            &Event::info("joining")
                .effect("the host reads no packets before it has what the others have"),
        );
        let mut patient_until = self.clock.now() + self.config.host.join_wait * JOIN_FACTOR;
        while !self.channel.snapshot().is_ready {
            self.look_for(LOOK_JOINING)?;
            if self.clock.now() >= patient_until {
                patient_until = self.clock.now() + self.config.host.join_wait * JOIN_FACTOR;
                let snapshot = self.channel.snapshot();
                let silent = others(&snapshot, self.member).filter(|other| !other.is_alive);
                self.log(&Event::warning("join-takes-long")
                    .with("members_silent", silent.count())
                    .effect("the host reads no packets")
                    .cure("see that all members of the epoch run and were handed the same epoch (`asterism status`); one that is dead keeps others from joining until an epoch leaves it out"));
            }
        }
        Ok(())
    }

    /// A short rest, and everything that may have come meanwhile.
    fn query(&mut self) -> Result<(), Interrupted> {
        self.look_for(LOOK)
    }

    fn look_for(&mut self, rest: Duration) -> Result<(), Interrupted> {
        let rest = match self.handed.is_empty() {
            true => rest,
            false => rest.min(LOOK_JOINING),
        };
        if let Ok(event) = self.events.recv_timeout(rest) {
            self.log(&event);
        }
        while let Ok(event) = self.events.try_recv() {
            self.log(&event);
        }
        let notices: Vec<_> = self.channel.events().collect();
        for notice in notices {
            if let Some(event) = notices::event(&notice, &self.config.cluster) {
                self.log(&event);
            }
            if let Notice::NotInstalled { epoch, why } = &notice
                && why.is_end()
            {
                return Err(Interrupted::Failed(format!(
                    "epoch {} ends this host: {why}; it stops at once, and may be started again in its next incarnation",
                    epoch.0
                )));
            }
        }
        self.watch_epochs();
        self.answer_handed();
        self.watch_keys();
        if self.view.phase() != Phase::Listening {
            self.watch_exports();
            self.watch_eve();
        }
        self.request_stations();
        let refused = self
            .channel
            .snapshot()
            .replication
            .refused(RefusedMessage::WrongIncarnation);
        if refused > self.incarnations_refused {
            self.incarnations_refused = refused;
            self.log(&Event::error("member-incarnation-mismatch")
                .with("messages_refused", refused)
                .effect("a member was restarted; what it says is refused until this host is restarted too")
                .cure("name its new incarnation in an epoch (`asterism epoch`, [cluster] epochs); without epochs stop all hosts, each saves its state if [host] state names a file, then start them all"));
        }
        self.tell_who_differs();
        let snapshot = self.channel.snapshot();
        let tombstones = self
            .tombstones
            .query(self.clock.now(), &self.view, &snapshot);
        if let Some(event) = tombstones {
            self.log(&event);
        }
        self.stay_alive();
        if self.hang_up.swap(false, Ordering::AcqRel) {
            let _ = self.reload();
        }
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
        }
        if !self.channel.is_running() {
            return Err(Interrupted::Failed(
                "the state channel's thread failed: the host stops, and the others go on without it; please report what it said".to_owned(),
            ));
        }
        if self.workers.iter().any(JoinHandle::is_finished) {
            return Err(Interrupted::Failed(self.why_loop_ended()));
        }
        if self.stop.load(Ordering::Acquire) && !self.stop_asked {
            self.stop_asked = true;
            return Err(Interrupted::Stop);
        }
        Ok(())
    }

    /// Tells the service manager that this thread turns, if it wants to know by now.
    fn stay_alive(&mut self) {
        let now = self.clock.now();
        if let Some(interval) = self.manager.watchdog()
            && now >= self.watched + interval
        {
            self.watched = now;
            self.manager.alive();
        }
    }

    fn obey(&mut self, command: Command) {
        match command.kind() {
            CommandKind::Hand(file) => {
                let file = file.clone();
                self.hand(command, &file);
            }
            CommandKind::Reload => {
                let result = self.reload();
                command.answer(result.map(Value::String).map_err(Refused::from));
            }
            CommandKind::Drain if self.view.phase() == Phase::Listening => {
                command.answer(Err(
                    "the host does not read packets yet: drain it once it runs, or stop it".into(),
                ));
            }
            CommandKind::Drain => {
                self.set_phase(Phase::Draining);
                self.manager.status("drained: reads no packets");
                self.log(&Event::info("drained").effect(
                    "the host reads no packets; it still takes part in the cluster until it is stopped",
                ));
                command.answer(Ok("the host reads no packets any more".into()));
            }
            CommandKind::Stop => {
                self.stop.store(true, Ordering::Release);
                self.stopping.push(command);
            }
        }
    }

    fn set_phase(&self, phase: Phase) {
        self.view.set_phase(phase);
    }

    pub(super) fn log(&mut self, event: &Event) {
        self.event_log
            .write(self.clock.now(), self.clock.wall(), event);
        self.view.note_suppressed(self.event_log.suppressed());
    }
}
