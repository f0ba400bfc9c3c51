//! Launchers: start the processes of hosts, find them again, and end them.
//!
//! A launcher ([`Launcher`]) starts one host at a time, names every host of its cluster that its engine knows, and ends a host
//! so that the end is certain. The decision (how many hosts, where, in which incarnation) is above. What was launched survives
//! the orchestrator: a launcher that is made again over the same folder finds all, and never starts a host twice.
//!
//! Every host has at most one process at a time. The proof is the kernel's or the engine's, not a file: a lock that the
//! process itself holds until its end (`record.rs`), or the name of a container. [`FencingEvidence`] can be had only from such
//! a proof.
//!
//! Read `host.rs` (the input and the output), `evidence.rs`, `error.rs`, `laws.rs` (the laws of every launcher that
//! launches), then `process/mod.rs`. `namespace.rs` starts processes in network namespaces, `container/` starts containers by
//! podman, and `manual.rs` stands for hosts that an operator starts.

mod clock;
mod container;
mod error;
mod evidence;
mod host;
mod identity;
pub mod laws;
mod log;
mod manual;
mod namespace;
mod notices;
mod process;
mod program;
mod record;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use container::{CONTAINER_CALL_TIME_MAX, ContainerConfig, ContainerLauncher, ContainerSource};
pub use error::{Aftermath, LaunchError};
pub use evidence::{EndedBy, FencingEvidence};
pub use host::{
    ARGUMENTS_MAX, Exit, Found, FoundState, HostSpec, LaunchNameError, Launched, ProcessId,
    Readiness, Ready, Role, StopMode, check_name,
};
pub use log::{LAST_LINES_BYTES_MAX, LAST_LINES_MAX, LOG_BYTES_MAX};
pub use manual::{MANUAL_UNIT, ManualLauncher};
pub use namespace::NamespaceLauncher;
pub use process::{KILL_WAIT_MAX, ProcessConfig, ProcessLauncher, Step};
pub use record::{HOSTS_MAX, LOCK_WAIT_MAX, RECORD_BYTES_MAX};

/// A launcher. All of its calls wait for the world outside, for a time that it states; none is made on a packet's path.
///
/// Calls for different hosts may be made at the same time from several threads. Of two calls for one host the second waits for
/// the first, [`LOCK_WAIT_MAX`] at most; this holds for two orchestrators on one machine too, if their folder is the same.
pub trait Launcher: Send + Sync {
    /// What this launcher can do, which anyone who decides must know.
    fn abilities(&self) -> Abilities;

    /// Starts a host in an incarnation, and returns when the host is ready, or as [`HostSpec::readiness`] says. The same
    /// specification may be launched any number of times: a host that runs already is left as it is and reported.
    ///
    /// An incarnation whose process has ended is not started a second time, unless its launch failed; and never after
    /// [`Launcher::stop`] gave evidence of its end.
    ///
    /// # Errors
    /// [`LaunchError`], each with what is true afterwards ([`LaunchError::aftermath`]) and why.
    fn launch(&self, host: &HostSpec) -> Result<Launched, LaunchError>;

    /// Every host of the cluster that the launcher's engine knows, running or ended, by name. At most [`HOSTS_MAX`]. Changes no
    /// host; keeps the logs within their bounds, and notes exits of processes that have ended.
    ///
    /// # Errors
    /// The folder or the engine could not be asked. Nothing is known then; nothing was changed.
    fn find(&self) -> Result<Vec<Found>, LaunchError>;

    /// Ends a host's incarnation, and returns evidence of its end: from then on the launcher starts only later incarnations.
    /// An incarnation that has ended already gives its evidence at once.
    ///
    /// # Errors
    /// [`LaunchError`]: there is no evidence. The process may run.
    fn stop(
        &self,
        name: &str,
        incarnation: u64,
        mode: StopMode,
    ) -> Result<FencingEvidence, LaunchError>;

    /// The launcher in one line for people: what it starts, and where.
    fn describe(&self) -> String;

    /// What this launcher has done since it was made.
    fn counts(&self) -> LaunchCounts;
}

/// What a launcher can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Whether it starts and ends processes. If not, every call of [`Launcher::launch`] and [`Launcher::stop`] ends in
    /// [`LaunchError::Manual`], and [`Launcher::find`] finds nothing.
    pub launches: bool,
    /// Whether the exit of a process that ended while no orchestrator ran is known.
    pub keeps_exits: bool,
    /// How long a call may wait, beyond the time in the specification's readiness or in [`StopMode::Drain`].
    pub waits_max: Duration,
}

/// What a launcher has done since it was made. For metrics; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Processes that were started.
    pub started: u64,
    /// Launches of hosts that ran already.
    pub already: u64,
    /// Launches that were refused before anything was started.
    pub refused: u64,
    /// Launches that failed after something was tried.
    pub failed: u64,
    /// Pieces of fencing evidence that were given.
    pub fenced: u64,
}

/// The counts of a launcher whose calls come from several threads.
#[derive(Debug, Default)]
struct Counters {
    started: AtomicU64,
    already: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    fenced: AtomicU64,
}

impl Counters {
    fn launch(&self, result: &Result<Launched, LaunchError>) {
        let counter = match result {
            Ok(launched) if launched.already => &self.already,
            Ok(_) => return,
            Err(error) if error.aftermath() == Aftermath::NothingDone => &self.refused,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn stop(&self, result: &Result<FencingEvidence, LaunchError>) {
        if result.is_ok() {
            self.fenced.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn snapshot(&self) -> LaunchCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LaunchCounts {
            started: read(&self.started),
            already: read(&self.already),
            refused: read(&self.refused),
            failed: read(&self.failed),
            fenced: read(&self.fenced),
        }
    }
}
