//! What the main thread does beside the packets, as a table of jobs. Read `job.rs` first.
//!
//! - The cluster: `epochs.rs` (epochs that are handed in), `keys.rs`, `refused_members.rs`, `tombstones.rs`, `placements.rs`, `stores.rs` (the store of
//!   remote objects).
//! - What leaves a host: `port_log.rs`, `flow_export.rs`, `eve.rs` (alerts).
//! - Functions: `stations.rs`, `background.rs` (threads that check backends or fetch digests).
//!
//! A job imports no other job and not the service: the service calls `Jobs`, and each job uses the `HostContext` that it is
//! handed.

mod background;
mod epochs;
mod eve;
mod flow_export;
mod job;
pub mod keys;
mod placements;
mod port_log;
mod refused_members;
mod stations;
mod stores;
mod tombstones;

pub use job::TELL_LAST;
pub(super) use job::{HostContext, HostLog};
pub use stations::STATIONS_AT_ONCE;

use asterism_config::Config;
use asterism_embedded_store::RunningServer;
use asterism_placement::Incarnation;

use self::background::BackgroundTask;
use self::epochs::Epochs;
use self::eve::Eve;
use self::flow_export::FlowExport;
use self::job::Job;
use self::keys::Keys;
use self::placements::PlacementWatch;
use self::port_log::PortLog;
use self::refused_members::RefusedMembers;
use self::stations::Stations;
use self::stores::StoreWatch;
use self::tombstones::TombstoneWatch;
use super::epochs::Watch;
use super::error::{AlertsFileError, BackgroundError, RunError};
use super::prepared::Prepared;
use super::reload::ReloadError;
use crate::control::request_handler::Command;
use asterism_epochs::EpochFile;
use asterism_host_view::phase::Phase;
use asterism_lines::Sink;
use asterism_secure_channel::KeyRing;

/// The jobs of a host. Those that need an open file, socket or thread are there from [`Jobs::open`] on.
#[derive(Debug)]
pub(super) struct Jobs {
    epochs: Epochs,
    keys: Option<Keys>,
    port_log: Option<PortLog>,
    flow_export: Option<FlowExport>,
    eve: Option<Eve>,
    stations: Stations,
    refused_members: RefusedMembers,
    tombstones: TombstoneWatch,
    placements: PlacementWatch,
    store: StoreWatch,
    /// What runs in threads of its own until it is dropped.
    background: Option<BackgroundTask>,
}

/// What a new configuration needs, opened before anything of it is in force.
#[derive(Debug)]
pub(super) struct Opened {
    eve: Option<Sink>,
}

impl Jobs {
    /// The jobs of a host that starts; `epochs` are those that named its incarnation, and `store` is the one that it runs, if it has any.
    pub(super) fn new(
        prepared: &Prepared,
        epochs: Option<(Watch, Incarnation)>,
        store: Option<RunningServer>,
    ) -> Jobs {
        Jobs {
            epochs: Epochs::new(epochs),
            keys: Keys::of(prepared),
            port_log: None,
            flow_export: None,
            eve: None,
            stations: Stations::default(),
            refused_members: RefusedMembers::default(),
            tombstones: TombstoneWatch::default(),
            placements: PlacementWatch::default(),
            store: StoreWatch::of(store),
            background: None,
        }
    }

    /// All jobs that have turns, in the order of these.
    fn table(&mut self) -> [&mut dyn Job; 10] {
        [
            &mut self.epochs,
            &mut self.keys,
            &mut self.port_log,
            &mut self.flow_export,
            &mut self.eve,
            &mut self.stations,
            &mut self.refused_members,
            &mut self.tombstones,
            &mut self.placements,
            &mut self.store,
        ]
    }

    // --- the start

    /// Opens everything by which a start may fail. From then on the incarnation of the host is used.
    ///
    /// # Errors
    /// A file, a socket or a thread is missing: the host is not started.
    pub(super) fn open(&mut self, host: &HostContext) -> Result<(), RunError> {
        self.port_log = PortLog::open(host)?;
        self.flow_export = FlowExport::open(host)?;
        let sink = Eve::sink(&host.config, host)?;
        Eve::go_on(&mut self.eve, sink, host)?;
        background::serve(host)?;
        Ok(self.epochs.note_used()?)
    }

    /// Checks the backends that the configuration names and requests their stations, or fetches digests; no more those of before.
    ///
    /// # Errors
    /// There is no thread for it: nothing is checked or fetched.
    pub(super) fn start_background(&mut self, host: &HostContext) -> Result<(), BackgroundError> {
        self.background = None;
        self.stations = Stations::of(&host.config.function);
        self.background = BackgroundTask::start(host)?;
        Ok(())
    }

    /// The host reads packets from now on.
    pub(super) fn begin_running(&mut self, host: &HostContext) {
        if let Some(flows) = &mut self.flow_export {
            flows.begin_running(host);
        }
    }

    // --- turns

    /// Gives each job its turn in this phase.
    pub(super) fn turn(&mut self, host: &HostContext, log: &mut HostLog<'_>) {
        let phase = host.view.phase();
        for job in self.table() {
            if job.has_turns(phase) {
                job.turn(host.clock.now(), host, log);
            }
        }
    }

    /// The keys that came into force since they were last asked for.
    pub(super) fn other_keys(&mut self) -> Option<KeyRing> {
        self.keys.as_mut()?.take_installed()
    }

    /// Whether somebody waits for what the next turns bring.
    pub(super) fn is_awaited(&self) -> bool {
        self.epochs.is_awaited()
    }

    /// Takes an epoch that somebody hands in, and answers once it is in force.
    pub(super) fn hand(
        &mut self,
        command: Command,
        file: &EpochFile,
        host: &HostContext,
        log: &mut HostLog<'_>,
    ) {
        self.epochs.hand(command, file, host, log);
    }

    // --- another configuration

    /// Opens what a new configuration needs; what is in force stays.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub(super) fn prepare(wanted: &Config, host: &HostContext) -> Result<Opened, AlertsFileError> {
        let eve = Eve::sink(wanted, host)?;
        Ok(Opened { eve })
    }

    /// Goes on by the new configuration, which the host has by now.
    ///
    /// # Errors
    /// There is no thread for what is new.
    pub(super) fn reload(
        &mut self,
        opened: Opened,
        is_other_function: bool,
        host: &HostContext,
    ) -> Result<(), ReloadError> {
        Eve::go_on(&mut self.eve, opened.eve, host)?;
        if is_other_function && host.view.phase() == Phase::Running {
            self.start_background(host)?;
        }
        if let Some(keys) = &mut self.keys {
            keys.read_again();
        }
        Ok(())
    }

    // --- the end

    /// Asks for all alerts that were found by now.
    pub(super) fn hurry_alerts(&mut self) {
        self.eve.hurry();
    }

    /// Whether these are handed over.
    pub(super) fn are_alerts_reported(&self) -> bool {
        self.eve.is_reported()
    }

    /// Asks for everything that was noted by now.
    pub(super) fn hurry(&mut self) {
        for job in self.table() {
            job.hurry();
        }
    }

    /// Whether everything is handed over that was there when the jobs were hurried.
    pub(super) fn are_reported(&mut self) -> bool {
        self.table().iter().all(|job| job.is_reported())
    }

    /// Waits no longer for files: what they do not take is counted.
    pub(super) fn give_up_files(&mut self) {
        if let Some(log) = &mut self.port_log {
            log.give_up_file();
        }
    }

    /// Writes and sends what is left, and logs what was lost. Leaves the epochs, whose last answers follow.
    pub(super) fn end(self, host: &HostContext, log: &mut HostLog<'_>) -> Epochs {
        if let Some(port_log) = self.port_log {
            port_log.end(host, log);
        }
        if let Some(flows) = self.flow_export {
            flows.end(host, log);
        }
        if let Some(eve) = self.eve {
            eve.end(host, log);
        }
        self.store.end(log);
        self.epochs
    }
}
