//! What a job of the main thread is, and what it may use while it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use asterism_config::Config;
use asterism_engine::transport::StateChannelThread;
use asterism_function::Tick;
use asterism_io::clock::MonotonicClock;
use asterism_placement::{MemberId, Time};

use crate::run::metering::Metering;
use asterism_event_log::{Event, EventLog};
use asterism_host_view::View;
use asterism_host_view::phase::Phase;
use asterism_host_view::requests::Request;

/// How long a host that ends waits at most until its last records are handed to their writers and sent. The writing threads then have their
/// own time for the last lines.
pub const TELL_LAST: Duration = Duration::from_secs(2);

/// Work of the main thread beside the packets, a bounded part of it each turn. A job holds its own state and knows no other job.
pub(super) trait Job {
    /// Whether the job has turns in this phase of the host. By default from the start until the instances stand still.
    fn has_turns(&self, phase: Phase) -> bool {
        matches!(phase, Phase::Listening | Phase::Running | Phase::Draining)
    }

    /// Does what is due by now. Waits for nothing.
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>);

    /// Before the host ends: everything that instances have noted by now is to be handed over.
    fn hurry(&mut self) {}

    /// Whether everything is handed over that was there when the job was hurried.
    fn is_reported(&self) -> bool {
        true
    }
}

/// A job that the configuration does not ask for does nothing.
impl<J: Job> Job for Option<J> {
    fn has_turns(&self, phase: Phase) -> bool {
        self.as_ref().is_some_and(|job| job.has_turns(phase))
    }

    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        if let Some(job) = self {
            job.turn(now, host, log);
        }
    }

    fn hurry(&mut self) {
        if let Some(job) = self {
            job.hurry();
        }
    }

    fn is_reported(&self) -> bool {
        self.as_ref().is_none_or(Job::is_reported)
    }
}

/// The running host as its jobs see it: its settings, its clock and the ends of its other threads' queues.
#[derive(Debug)]
pub(in crate::run) struct HostContext {
    /// The configuration in force.
    pub(in crate::run) config: Config,
    /// The configuration's file, which paths in it are relative to.
    pub(in crate::run) config_file: PathBuf,
    pub(in crate::run) member: MemberId,
    /// Objects that may be changed between local and replicated, a bit for each by its number.
    pub(in crate::run) movable: u64,
    pub(in crate::run) clock: MonotonicClock,
    /// The queue of each instance.
    pub(in crate::run) requests: Vec<SyncSender<Request>>,
    pub(in crate::run) channel: StateChannelThread,
    pub(in crate::run) view: Arc<View>,
    /// Counts by tenant, where there are tenants.
    pub(in crate::run) metering: Option<Arc<Metering>>,
    /// The queue of events that other threads log.
    pub(in crate::run) events: SyncSender<Event>,
    /// When others could hear this host first.
    pub(in crate::run) took_part: Time,
}

impl HostContext {
    /// The cluster's common seconds at a time of this host's clock.
    pub(in crate::run) fn tick(&self, at: Time) -> Tick {
        self.view.dates().tick(at)
    }

    /// Whether the object of this name may be changed between local and replicated.
    pub(in crate::run) fn is_movable(&self, object: &str) -> bool {
        let mut objects = self.view.names.objects.iter();
        let place = objects.position(|name| *name == object);
        place.is_some_and(|place| self.movable >> place & 1 != 0)
    }
}

/// The log of a host that has a view.
#[derive(Debug)]
pub(in crate::run) struct HostLog<'o> {
    lines: EventLog<'o>,
    clock: MonotonicClock,
    view: Arc<View>,
}

impl<'o> HostLog<'o> {
    /// Goes on with the log of a start.
    pub(in crate::run) fn new(
        lines: EventLog<'o>,
        clock: MonotonicClock,
        view: Arc<View>,
    ) -> HostLog<'o> {
        HostLog { lines, clock, view }
    }

    /// Writes an event, and shows how many were left out so far.
    pub(in crate::run) fn write(&mut self, event: &Event) {
        self.lines.write(self.clock.now(), self.clock.wall(), event);
        self.view.note_suppressed(self.lines.suppressed());
    }
}
