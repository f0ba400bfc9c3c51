//! A running orchestrator: the [`Controller`] with a socket, a store and a steering.
//!
//! ```text
//!  hosts ◄── sealed datagrams ──► decide.rs ──── channel ───► store.rs   truth store, leadership
//!                                 (one thread:   ◄─ inputs ──
//!                                  controller)   ──── channel ───► steer.rs   drivers
//!                                                ◄─ inputs ──
//!                                                ◄─ requests ── view.rs    who asks, and orders
//!                                                ◄─ views, orders ─ elastic/  how many hosts run; its own launcher
//! ```
//!
//! Each thread waits for one thing. A store or a driver that does not answer holds its own thread alone; the controller then
//! goes on with what is in force. Nothing here is on a packet's path or on the replication's.
//!
//! Read `view.rs` (what can be asked), then `decide.rs`.

mod asked;
mod decide;
mod elastic;
mod moves;
mod steer;
mod store;
mod usage;
mod view;

use std::collections::BTreeSet;
use std::io;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use asterism_placement::ClusterId;
use asterism_secure_channel::KeyRing;
use asterism_truth_store::{RefusedError, TruthStore};

use crate::controller::{Controller, Input, Times, TimesError};
use crate::steering::Steering;

pub use asked::{Awaited, NotAnswered};
pub use elastic::{ElasticConfig, HostTemplate, ScaleError, Scaling};
pub use moves::{MOVED_FLOW_IDLE, MoveError, Moving};
pub use store::StoreFactory;
pub use view::{Asking, AskingError, ClusterView, HostView, Logged, SteeringView, StoreView};

/// Inputs from other threads that wait at most; a thread that has more waits.
const INPUTS_MAX: usize = 256;
/// Requests that wait at most; more are refused.
const REQUESTS_MAX: usize = 64;

/// How an orchestrator is made.
pub struct OrchestratorConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The number of that name, which datagrams carry.
    pub cluster_id: ClusterId,
    /// The cluster's keys.
    pub keys: KeyRing,
    /// A number that stays the same through all keys of the cluster, and that no other cluster has: of its hash seed.
    pub identity: u32,
    /// The cluster's places, in their order.
    pub places: Vec<String>,
    /// Whether hosts register: the cluster lists no members.
    pub is_open: bool,
    /// Where hosts register, those to which `steering` can lead packets; `None`: to all.
    pub steered_only: Option<BTreeSet<String>>,
    /// This orchestrator's name, of its own among those of the cluster.
    pub name: String,
    /// The times of the controller.
    pub times: Times,
    /// How long a leadership lasts unless renewed: whole seconds.
    pub term: Duration,
    /// Random bytes of this start.
    pub random: [u8; 48],
    /// The socket that hosts send to, bound.
    pub socket: UdpSocket,
    /// Opens the truth store.
    pub store: StoreFactory,
    /// The drivers of the steering, each for one side of the cluster. All get every desired state.
    pub steering: Vec<Box<dyn Steering>>,
    /// How hosts are launched, and how many; `None`: somebody else starts and stops them.
    pub elastic: Option<ElasticConfig>,
}

impl std::fmt::Debug for OrchestratorConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrchestratorConfig")
            .field("cluster", &self.cluster)
            .field("name", &self.name)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// Why an orchestrator does not start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The times cannot be meant.
    #[error(transparent)]
    Times(#[from] TimesError),
    /// A name cannot be a key of the store.
    #[error("{0}: give the cluster or the orchestrator another name")]
    Name(#[from] RefusedError),
    /// The store does not open.
    #[error("the truth store does not open: {0}")]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// The store's thread failed; standard error has the reason.
    #[error("the thread of the truth store failed")]
    StoreThread,
    /// There is no thread or socket.
    #[error("the orchestrator has no thread or socket: {0}")]
    Thread(#[from] io::Error),
}

/// An orchestrator that runs; it ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    asking: Asking,
    moving: Moving,
    scaling: Option<Scaling>,
    /// What it decided and noticed, for the log.
    logged: Receiver<Logged>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts an orchestrator.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(config: OrchestratorConfig) -> Result<Running, StartError> {
        let controller = match config.is_open {
            true => Controller::open(config.places.clone(), config.times)?,
            false => Controller::new(config.places.clone(), config.times)?,
        };
        let controller = controller.steering_only(config.steered_only);
        config.socket.set_nonblocking(true)?;
        let (input_sender, inputs) = sync_channel::<Input>(INPUTS_MAX);
        let (request_sender, requests) = sync_channel(REQUESTS_MAX);
        let (log, logged) = sync_channel(view::LOGGED_MAX);
        let asking = Asking::new(request_sender);
        let (store_thread, store) = store::start(
            config.store,
            (&config.cluster, config.identity),
            &config.name,
            config.term,
            config.places.clone(),
            input_sender.clone(),
        )?;
        let (steering_thread, steering) = steer::start(config.steering, input_sender, log.clone())?;
        let moving = Moving::new(steering.commands.clone());
        let mut threads = Vec::new();
        let mut scaling = None;
        if let Some(elastic) = config.elastic {
            let around = elastic::Around {
                name: config.name.clone(),
                places: config.places.clone(),
                asking: asking.clone(),
                store: store.commands.clone(),
                moving: moving.clone(),
                log: log.clone(),
            };
            let (thread, handle) = elastic::start(elastic, around)?;
            threads.push(thread);
            scaling = Some(handle);
        }
        let decide = decide::Decide::new(
            decide::Parts {
                cluster: config.cluster,
                cluster_id: config.cluster_id,
                name: config.name,
                keys: config.keys,
                places: config.places,
                is_open: config.is_open,
                random: config.random,
                socket: config.socket,
            },
            controller,
            store,
            steering,
            log,
        );
        let decide_thread = Builder::new()
            .name("orchestrator".to_owned())
            .spawn(move || decide.run(&inputs, &requests))?;
        threads.extend([decide_thread, steering_thread, store_thread]);
        Ok(Running {
            asking,
            moving,
            scaling,
            logged,
            threads,
        })
    }

    /// The way to ask it, and to give it orders; clones may go to other threads.
    #[must_use]
    pub fn asking(&self) -> &Asking {
        &self.asking
    }

    /// The way to move buckets and flows, where the steering has some.
    #[must_use]
    pub fn moving(&self) -> &Moving {
        &self.moving
    }

    /// The way to order another number of hosts; `None` if this orchestrator launches none.
    #[must_use]
    pub fn scaling(&self) -> Option<&Scaling> {
        self.scaling.as_ref()
    }

    /// The next thing for the log, if one comes within this time.
    #[must_use]
    pub fn logged(&self, within: Duration) -> Option<Logged> {
        self.logged.recv_timeout(within).ok()
    }

    /// Whether all of its threads run.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Ends it, and gives up its leadership, if the store answers. Everything stays as it is: hosts, steering and record.
    pub fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        if let Some(scaling) = &self.scaling {
            scaling.stop();
        }
        self.asking.stop();
        // Clones of the way to it may live on, so the end of its queue does not end the thread.
        self.moving.stop();
        for thread in self.threads.drain(..) {
            // A panic was said on standard error when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A queue with one place, for the newest of something: an older one that was not taken yet is lost.
pub(crate) fn newest<T>(receiver: &Receiver<T>, first: T) -> T {
    receiver.try_iter().last().unwrap_or(first)
}

/// Sends, or loses what the other thread has no place for.
pub(crate) fn offer<T>(sender: &SyncSender<T>, what: T) -> bool {
    sender.try_send(what).is_ok()
}

/// What a [`StoreFactory`] returns.
pub type OpenedStore = Result<Box<dyn TruthStore>, Box<dyn std::error::Error + Send + Sync>>;
