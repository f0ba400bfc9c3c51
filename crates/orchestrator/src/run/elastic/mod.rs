//! How many hosts run: the decisions of [`asterism_elasticity`] carried out, while this orchestrator leads.
//!
//! ```text
//!  controller ── view: heartbeats, who takes packets ──►┐
//!  launcher ──── find: which processes run ────────────►│ runner ──► store: places, launches, state of the decisions
//!  steering ──── packets of buckets ───────────────────►│   │
//!                                                       └───┼──► launcher: launch, stop
//!                                                           └──► controller: drain, withdraw, restore; this process has ended
//! ```
//!
//! # What it keeps
//!
//! 1. **Written first.** A launch, a leave or an order is in the store before anything is done by it. The next leader reads it, finds
//!    what runs, and goes on; a place gets no second process.
//! 2. **Found, not started.** A process that runs in a place is taken over, also if somebody else started it.
//! 3. **No packet is lost by a leave**: drained, then without packets or out of time, then withdrawn, and in force so; then stopped.
//! 4. **Without the store nothing new**: what runs goes on, what leaves stays as far as it is.
//! 5. A launch that fails says why and backs off.
//!
//! Read `record.rs` (what is stored), `world.rs` (what is touched), `runner.rs` (a turn), `decide.rs`, `supervise.rs`, then `leave.rs`.

mod decide;
mod leave;
mod record;
mod runner;
mod sample;
mod supervise;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use asterism_elasticity::{Explanation, Rules, Span, UnixMs};

use crate::clock;
use crate::launch::Launcher;
use runner::Runner;
use world::{Outside, World};

pub use runner::HostTemplate;

use super::moves::Moving;
use super::store::StoreCommand;
use super::view::{Asking, AskingError, Logged};

/// How often the runner looks at the cluster.
const TURN: Duration = Duration::from_millis(50);
/// Requests that wait at most; more are refused.
const REQUESTS_MAX: usize = 16;
/// How long an answer may take: the store's, and a launcher's call that is under way.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// How hosts are launched, and how many.
#[derive(Clone)]
pub struct ElasticConfig {
    /// The rules: those of the cluster's policy, or with as many hosts as places.
    pub rules: Rules,
    /// Whether they are a policy's. Without one an operator's order holds until the next.
    pub is_policy: bool,
    /// Starts and stops hosts. One that cannot launch gives a plan, and nothing is carried out.
    pub launcher: Arc<dyn Launcher>,
    /// What is started.
    pub host: HostTemplate,
    /// How often the launcher is asked which hosts run. Sane: 100 ms for processes, a second for containers.
    pub find_interval: Duration,
}

impl std::fmt::Debug for ElasticConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElasticConfig")
            .field("rules", &self.rules)
            .field("launcher", &self.launcher.describe())
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// Why a number of hosts was not taken, or there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// Nothing was changed.
    #[error("{to} hosts are out of bounds: {least} to {most} are allowed")]
    Bounds {
        /// What was ordered.
        to: u32,
        /// The fewest.
        least: u32,
        /// The most.
        most: u32,
    },
    /// Nothing was changed.
    #[error("operators start and stop the hosts of this cluster, by their service manager")]
    Manual,
    /// Nothing was changed.
    #[error("this orchestrator does not lead")]
    DoesNotLead,
    /// Nothing was changed.
    #[error("what was launched is not read from the truth store yet: ask again")]
    NotRead,
    /// It may be in force yet.
    #[error("the truth store did not take the order: ask again")]
    NotStored,
    /// Nothing was changed.
    #[error("too many requests wait: ask again")]
    Busy,
    /// It may be in force yet.
    #[error("no answer came in time: whether the order was taken is not known")]
    Late,
    /// Nothing was changed.
    #[error("the orchestrator has ended")]
    Ended,
}

/// What the runner is asked.
#[derive(Debug)]
enum Request {
    Scale {
        to: u32,
        why: Option<String>,
        answer: SyncSender<Result<bool, ScaleError>>,
    },
    Plan(SyncSender<Result<(Explanation, bool), ScaleError>>),
    Stop,
}

/// The way to ask for another number of hosts, or for a plan. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scaling {
    requests: SyncSender<Request>,
}

impl Scaling {
    /// Orders so many hosts, within the bounds of the policy, or up to the number of places. In force once this returns. Whether it
    /// changed anything.
    ///
    /// # Errors
    /// [`ScaleError`]
    pub fn scale(&self, to: u32, why: Option<String>) -> Result<bool, ScaleError> {
        self.ask(|answer| Request::Scale { to, why, answer })
    }

    /// What would be decided now, and whether it would be carried out.
    ///
    /// # Errors
    /// [`ScaleError`]
    pub fn plan(&self) -> Result<(Explanation, bool), ScaleError> {
        self.ask(Request::Plan)
    }

    pub(super) fn stop(&self) {
        // It has ended already.
        let _ = self.requests.send(Request::Stop);
    }

    fn ask<T>(
        &self,
        request: impl FnOnce(SyncSender<Result<T, ScaleError>>) -> Request,
    ) -> Result<T, ScaleError> {
        let (answer, answered) = sync_channel(1);
        self.requests
            .try_send(request(answer))
            .map_err(|error| match error {
                TrySendError::Full(_) => ScaleError::Busy,
                TrySendError::Disconnected(_) => ScaleError::Ended,
            })?;
        answered
            .recv_timeout(ANSWER_MAX)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => ScaleError::Late,
                RecvTimeoutError::Disconnected => ScaleError::Ended,
            })?
    }
}

/// What the runner's thread has of the others.
pub(super) struct Around {
    pub(super) name: String,
    pub(super) places: Vec<String>,
    pub(super) asking: Asking,
    pub(super) store: SyncSender<StoreCommand>,
    pub(super) moving: Moving,
    pub(super) log: SyncSender<Logged>,
}

/// Starts the thread.
pub(super) fn start(
    config: ElasticConfig,
    around: Around,
) -> std::io::Result<(JoinHandle<()>, Scaling)> {
    let (requests, received) = sync_channel(REQUESTS_MAX);
    let find_interval = config.find_interval.as_millis();
    let runner = Runner::new(
        around.name,
        around.places,
        config.rules,
        config.is_policy,
        config.host,
        Span(u64::try_from(find_interval).unwrap_or(u64::MAX)),
    );
    let world = Outside {
        asking: around.asking,
        store: around.store,
        moving: around.moving,
        launcher: config.launcher,
        log: around.log,
        counted: UnixMs(clock::wall_ms()),
    };
    let thread = Builder::new().name("launching".to_owned());
    let thread = thread.spawn(move || run(runner, world, &received))?;
    Ok((thread, Scaling { requests }))
}

fn run(mut runner: Runner, mut world: impl World, requests: &Receiver<Request>) {
    let mut turn_at = clock::now();
    loop {
        let wait = turn_at.saturating_duration_since(clock::now());
        match requests.recv_timeout(wait) {
            // Who asked may have gone.
            Ok(Request::Scale { to, why, answer }) => {
                let _ = answer.try_send(runner.scale(&mut world, to, why.as_deref()));
            }
            Ok(Request::Plan(answer)) => {
                let _ = answer.try_send(runner.plan(&mut world));
            }
            Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                turn_at = clock::now() + TURN;
                // Busy or late, it is asked again in the next turn.
                if runner.turn(&mut world) == Err(AskingError::Ended) {
                    return;
                }
            }
        }
    }
}
