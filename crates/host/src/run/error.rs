//! Why a host does not run. Its threads end with the process, and what was saved before is as it was.

use std::io;
use std::path::PathBuf;

use asterism_config::functions::FunctionError;
use asterism_config::key_file::KeyFileError;
use asterism_engine::transport::TransportError;
use asterism_engine::{HostError, StopReason};
use asterism_output::End;
use asterism_placement::Epoch;
use asterism_placement::membership::InstallError;
use thiserror::Error;

use super::caches::serve::ServeError;
use super::collector::CollectorError;
use super::heartbeats::HeartbeatsError;
use super::ports::PortsError;
use super::saved::SavedError;
use super::stores::StoreError;
use crate::control::place::PlaceError;
use asterism_epochs::{ReadError, RecordError};
use asterism_host_metrics::server::MetricsError;
use asterism_host_view::requests::RestoreError;
use asterism_lines::LinesError;

/// The cure of every [`RunError::NotApplied`].
pub(super) const NOT_APPLIED_CURE: &str = "run the same build of the same program with the same configuration on all hosts, then start this one again; it takes over what the others have. If they are alike, report it: this is a defect";

/// Why a host did not start, or could not go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// The configured function cannot be made.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The key file does not have the cluster's keys.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The configuration does not list the host.
    #[error("the host is no member of the cluster")]
    NoMember,
    /// Hosts register, and nothing says which one this is.
    #[error(
        "this host has no name by which it registers: write name = \"host-a\" into [host], or start it with --member host-a"
    )]
    NoName,
    /// Hosts register, and nothing says where this one is.
    #[error(
        "this host has no address by which it registers: write address = \"192.0.2.1:7400\" into [host], or start it with --address 192.0.2.1:7400"
    )]
    NoAddress,
    /// Members would have to reach each other, and have no addresses.
    #[error("the members have no addresses: add [cluster.member.NAME]")]
    NoAddresses,
    /// A signal or a command stopped the host while it waited for an epoch.
    #[error("stopped before an epoch named this host")]
    Unnamed,
    /// The engine refuses the configuration, or has no memory.
    #[error(transparent)]
    Engine(#[from] HostError),
    /// Alerts have no thread that writes them.
    #[error(transparent)]
    Alerts(#[from] LinesError),
    /// Digests cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Backends cannot be checked, or digests not fetched.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// The start needs something that is not there.
    #[error("the host was not started: {0}")]
    NotStarted(StartError),
    /// The host has no part in this epoch.
    #[error(
        "epoch {} ends this host: {why}; it stops at once, and may be started again in its next incarnation", .epoch.0
    )]
    EpochEnds {
        /// The epoch.
        epoch: Epoch,
        /// Why.
        why: InstallError,
    },
    /// The state channel's thread ended; a panic is reported on standard error.
    #[error(
        "the state channel's thread failed: the host stops, and the others go on without it; please report what it said"
    )]
    ChannelFailed,
    /// A packet loop ended; a panic is reported on standard error.
    #[error(
        "a packet loop failed: the host stops rather than go on with half of what it wrote; please report what it said"
    )]
    LoopFailed,
    /// A packet loop ended at an update that it cannot apply.
    #[error(
        "what member \"{member}\" said cannot be applied: {why}; the host stops rather than differ from the others. {NOT_APPLIED_CURE}"
    )]
    NotApplied {
        /// The member that sent the update.
        member: String,
        /// Why.
        why: StopReason,
    },
}

impl RunError {
    /// How the program ends.
    pub(super) fn end(&self) -> End {
        match self {
            RunError::Function(_) => End::Configuration,
            _ => End::DoesNotHold,
        }
    }
}

impl<E: Into<StartError>> From<E> for RunError {
    fn from(error: E) -> RunError {
        RunError::NotStarted(error.into())
    }
}

/// Why a host was not started. [`RunError::NotStarted`] says first that it was not.
#[derive(Debug, Error)]
pub enum StartError {
    /// The host's place in the file system is not free.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// No keys, secrets or incarnation can be drawn.
    #[error("the operating system gives no randomness: {0}")]
    NoRandomness(#[from] getrandom::Error),
    /// Signals have no handlers.
    #[error("signals cannot be heard: {0}")]
    Signals(io::Error),
    /// The control socket has no thread or descriptor.
    #[error("{0}")]
    Control(io::Error),
    /// The epoch file is not there, or has no epoch of this cluster.
    #[error(transparent)]
    Epoch(#[from] ReadError),
    /// The record of the last incarnation cannot be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There are no heartbeats to the orchestrators.
    #[error(transparent)]
    Heartbeats(#[from] HeartbeatsError),
    /// An instance has no frames or no ports.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// The state channel refuses the epoch that named the host.
    #[error("{0}")]
    Epochless(InstallError),
    /// The state channel has no socket or thread.
    #[error(transparent)]
    Channel(#[from] TransportError),
    /// Objects cannot live in the store, or instances not log in there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An instance has no thread.
    #[error("no thread: {0}")]
    InstanceThread(io::Error),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Nothing can be sent to a collector.
    #[error(transparent)]
    Collector(#[from] CollectorError),
    /// The NAT's ports cannot be logged.
    #[error("the log of the NAT: {0}")]
    PortLog(LinesError),
    /// The file of alerts cannot be written.
    #[error(transparent)]
    AlertsFile(#[from] AlertsFileError),
    /// The state must be restored, and is not.
    #[error("--require-state was given, and {0}")]
    StateRequired(#[from] StateError),
    /// Other members know an earlier incarnation, and no epochs let another one in.
    #[error(
        "other members still run that know an earlier incarnation of it, and without [cluster] epochs they let no other incarnation in; stop them too, each saves its state if [host] state names a file, then start all hosts again, the one that stopped last first"
    )]
    EarlierIncarnation,
}

/// Why a saved state was not restored, or not all of it.
#[derive(Debug, Error)]
pub enum StateError {
    /// The configuration names no file.
    #[error("the configuration names no file with [host] state")]
    NoName,
    /// The file does not exist.
    #[error("there is no file {}", .0.display())]
    NoFile(PathBuf),
    /// Nothing of the state was taken.
    #[error("the instance takes no requests")]
    NoRequests,
    /// The file cannot be used. Parts that were read before were taken.
    #[error(transparent)]
    File(#[from] SavedError),
    /// The instance takes no more of the state.
    #[error(transparent)]
    Instance(#[from] RestoreError),
}

/// Why the configured file of alerts is not written. Nothing stays open.
#[derive(Debug, Error)]
#[error("[host.eve] file: {0}")]
pub struct AlertsFileError(pub LinesError);

/// Why a function's work beside the packets does not begin.
#[derive(Debug, Error)]
pub enum BackgroundError {
    /// No thread checks backends.
    #[error("backends cannot be checked: no thread: {0}")]
    Backends(io::Error),
    /// No thread fetches digests.
    #[error("digests cannot be fetched: no thread: {0}")]
    Digests(io::Error),
}
