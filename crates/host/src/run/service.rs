//! The main thread of a host: it starts the others, decides when packets are read, hears signals and commands, writes the log,
//! and ends everything in order.
//!
//! `starting.rs` opens everything, `joining.rs` waits for what other hosts have, `state.rs` takes up and saves the state,
//! `reloading.rs` goes on with another configuration, `ending.rs` ends. What the main thread does each turn beside the packets is
//! in `run/jobs/`.

mod ending;
mod joining;
mod reloading;
mod starting;
mod state;
mod stopped;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_engine::transport::Notice;
use asterism_function::NetworkFunction;
use asterism_output::Output;
use asterism_placement::Time;
use serde_json::Value;

use super::error::RunError;
use super::heartbeats::Heartbeats;
use super::jobs::{HostContext, HostLog, Jobs};
use super::notices;
use super::others::others;
use super::prepared::Prepared;
use super::reload::ReloadError;
use super::saved::Identity;
use super::store_passwords::StorePasswords;
use crate::control::place::Place;
use crate::control::request_handler::{Command, CommandKind, Refused};
use asterism_event_log::Event;
use asterism_host_view::phase::Phase;
use asterism_host_view::shared::Shared;
use asterism_service_manager::Manager;

/// How often the main thread looks at signals and clocks.
const LOOK: Duration = Duration::from_millis(10);
/// The same while it waits for others to bring what they have, or for an epoch to be in force.
const LOOK_JOINING: Duration = Duration::from_millis(1);
/// How long it takes at most until the state channel's thread shows that the cluster's time is settled.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// A running host.
pub struct Service<'a, 'o> {
    prepared: &'a Prepared,
    /// The text that the configuration in force was read from.
    text: String,
    host: HostContext,
    jobs: Jobs,
    log: HostLog<'o>,
    manager: Manager,
    identity: Identity,
    /// Whether an epoch named the incarnation.
    has_epochs: bool,
    /// To the orchestrators, if the cluster has any.
    heartbeats: Option<Heartbeats>,
    store_passwords: Option<StorePasswords>,
    shared: Vec<Arc<Shared>>,
    workers: Vec<JoinHandle<()>>,
    events: Receiver<Event>,
    commands: Receiver<Command>,
    /// Raised by a signal.
    stop: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
    stop_asked: bool,
    /// When the service manager last heard that this thread turns.
    watched: Time,
    /// Who asked for the host to stop, and waits until it has.
    stopping: Vec<Command>,
    /// The member is this process's until it ends.
    _place: Place,
}

impl core::fmt::Debug for Service<'_, '_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Service({})", self.host.config.host.name)
    }
}

/// Why waiting ended before what was waited for.
enum Interrupted {
    /// Somebody wants the host to stop.
    Stop,
    /// A thread ended that must not.
    Failed(RunError),
}

impl From<RunError> for Interrupted {
    fn from(error: RunError) -> Interrupted {
        Interrupted::Failed(error)
    }
}

impl Service<'_, '_> {
    /// Runs a host until it is asked to stop.
    ///
    /// # Errors
    /// The host did not start, or could not go on. Its threads have ended or end with the process.
    pub fn run<F: NetworkFunction + Send + Sync>(
        prepared: &Prepared,
        function: &Arc<F>,
        place: Place,
        output: &mut Output<'_>,
    ) -> Result<(), RunError> {
        let mut service = Service::start(prepared, function, place, output)?;
        let ended = service.live();
        service.end(ended)
    }

    fn live(&mut self) -> Result<(), Interrupted> {
        self.open_all()?;
        self.manager.status("listening for other hosts");
        let cold = self.listen()?;
        let taken_up = self.take_up_state(cold)?;
        // Whatever may still keep this host from running comes before the file is moved away: the next start needs it.
        let begun = self.jobs.start_background(&self.host);
        begun.map_err(RunError::from)?;
        self.settle_time()?;
        self.jobs.begin_running(&self.host);
        if let Some(path) = taken_up {
            self.put_aside(&path);
        }
        self.set_phase(Phase::Running);
        let heard = others(&self.host.channel.snapshot(), self.host.member)
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
        self.host.channel.settle_cluster_time();
        let until = self.host.clock.now() + SETTLE_MAX;
        while !self.host.channel.snapshot().cluster_time_source.0 && self.host.clock.now() < until {
            self.look_for(LOOK_JOINING)?;
        }
        Ok(())
    }

    /// Opens everything by which a start may fail, and then begins to speak to other hosts: from the first datagram on the incarnation is used.
    fn open_all(&mut self) -> Result<(), RunError> {
        self.jobs.open(&self.host)?;
        Ok(self.host.channel.start()?)
    }

    // --- a turn of the main thread

    /// A short rest, and everything that may have come meanwhile.
    fn query(&mut self) -> Result<(), Interrupted> {
        self.look_for(LOOK)
    }

    fn look_for(&mut self, rest: Duration) -> Result<(), Interrupted> {
        self.log_events(rest);
        self.log_notices()?;
        self.give_turns();
        self.stay_alive();
        if self.hang_up.swap(false, Ordering::AcqRel) {
            let _ = self.reload();
        }
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
        }
        self.check_threads()?;
        if self.stop.load(Ordering::Acquire) && !self.stop_asked {
            self.stop_asked = true;
            return Err(Interrupted::Stop);
        }
        Ok(())
    }

    /// Gives each job its turn, and says in a heartbeat how the host is.
    fn give_turns(&mut self) {
        self.jobs.turn(&self.host, &mut self.log);
        if let Some(heartbeats) = &mut self.heartbeats {
            let now = self.host.clock.now();
            heartbeats.post_running(now, &self.host, &mut self.log);
        }
        if let Some(keys) = self.jobs.other_keys() {
            if let Some(passwords) = &self.store_passwords {
                passwords.set_keys(&keys);
            }
            if let Some(heartbeats) = &mut self.heartbeats {
                heartbeats.set_keys(keys);
            }
        }
    }

    /// Waits for an event of another thread, and logs all that are there.
    fn log_events(&mut self, rest: Duration) {
        let rest = match self.jobs.is_awaited() {
            true => rest.min(LOOK_JOINING),
            false => rest,
        };
        if let Ok(event) = self.events.recv_timeout(rest) {
            self.log(&event);
        }
        while let Ok(event) = self.events.try_recv() {
            self.log(&event);
        }
    }

    /// Logs what the state channel tells.
    fn log_notices(&mut self) -> Result<(), Interrupted> {
        for notice in self.host.channel.events() {
            let event = notices::event(&notice, &self.host.view.names.members);
            self.log.write(&event);
            if let Notice::NotInstalled { epoch, why } = &notice
                && why.is_end()
            {
                let (epoch, why) = (*epoch, *why);
                return Err(RunError::EpochEnds { epoch, why }.into());
            }
        }
        Ok(())
    }

    /// Whether the threads run that must.
    fn check_threads(&mut self) -> Result<(), Interrupted> {
        if !self.host.channel.is_running() {
            return Err(RunError::ChannelFailed.into());
        }
        if self.workers.iter().any(JoinHandle::is_finished) {
            return Err(Interrupted::Failed(self.why_loop_ended()));
        }
        Ok(())
    }

    /// Tells the service manager that this thread turns, if it wants to know by now.
    fn stay_alive(&mut self) {
        let now = self.host.clock.now();
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
                self.jobs.hand(command, &file, &self.host, &mut self.log);
            }
            CommandKind::Reload => {
                let result = self.reload();
                let refused = |error: ReloadError| Refused::from(error.to_string());
                command.answer(result.map(Value::String).map_err(refused));
            }
            CommandKind::Drain if self.host.view.phase() == Phase::Listening => {
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
        self.host.view.set_phase(phase);
    }

    fn log(&mut self, event: &Event) {
        self.log.write(event);
    }
}
