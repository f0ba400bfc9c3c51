//! What can be asked of a running orchestrator, and the orders that it takes.

use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use asterism_epochs::Process;
use asterism_heartbeat::{Load, Stage, Traffic};
use asterism_secure_channel::KeyRing;

use super::asked::{self, Awaited, Question};
use crate::controller::{ForgetError, Order};
use crate::steering::DirectorReport;
use crate::usage::UsageView;

/// Lines for the log that wait at most; more are left out.
pub(super) const LOGGED_MAX: usize = 256;
/// How long an answer may take: the controller's thread turns every ten milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The cluster as an orchestrator sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The cluster's name.
    pub cluster: String,
    /// This orchestrator's name.
    pub orchestrator: String,
    /// The term in which it leads, if it does.
    pub term: Option<u64>,
    /// The epoch of the record; 0 before the first.
    pub epoch: u32,
    /// The truth store.
    pub store: StoreView,
    /// The steering; `None` before the first command to it.
    pub steering: Option<SteeringView>,
    /// The directors on other machines.
    pub directors: Vec<DirectorReport>,
    /// The hosts: the places of the cluster in their order, or those that have registered.
    pub hosts: Vec<HostView>,
    /// Heartbeats and refused datagrams.
    pub traffic: Traffic,
    /// What tenants used.
    pub usage: UsageView,
}

/// The truth store, as the last call found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreView {
    /// Why the last call failed, and what was changed; `None` if it did not.
    pub error: Option<String>,
    /// The orchestrator that leads, if it is another one.
    pub led_by: Option<String>,
    /// How long that call took, in microseconds; 0 before the first.
    pub took_us: u64,
}

/// The last desired state of the steering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteeringView {
    /// Its number.
    pub generation: u64,
    /// The number of the last one that all drivers had in force; 0: none.
    pub in_force: u64,
    /// Whether all drivers have it in force.
    pub applied: bool,
    /// Routes or rules that were changed.
    pub changed: u32,
    /// Time of the slowest driver, in microseconds.
    pub took_us: u64,
    /// Why a driver does not have it in force.
    pub error: Option<String>,
}

/// One host of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// Its place, if hosts register and it has one.
    pub place: Option<String>,
    /// Where its state channel is, if it has registered.
    pub address: Option<SocketAddr>,
    /// The stage that its last heartbeat reported; `None` if none was received.
    pub stage: Option<Stage>,
    /// The process of that heartbeat.
    pub process: Process,
    /// Milliseconds since that heartbeat.
    pub silent_ms: u64,
    /// The incarnation in which the record has it as a member.
    pub incarnation: Option<u64>,
    /// The epoch that it has in force.
    pub epoch: u32,
    /// Whether packets are sent to it.
    pub takes: bool,
    /// Whether packets are kept from it since it is silent.
    pub suspected: bool,
    /// Whether it gets no new flows, by an order.
    pub drained: bool,
    /// Whether it is to get no packets, since it is about to be stopped.
    pub withdrawn: bool,
    /// Whether the steering may send packets to it: the last state in which it has a part is in force, or another one is not yet.
    pub is_steered_to: bool,
    /// Whether its auditor finds no difference.
    pub digests_agree: bool,
    /// The members that it does not receive.
    pub misses: Vec<String>,
    /// The number under which a launcher started its process; 0: none did.
    pub launch: u64,
    /// What it carries.
    pub load: Load,
    /// Packets and bytes a second, since the heartbeat before.
    pub packets_per_s: u64,
    /// Bytes a second.
    pub bytes_per_s: u64,
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// What kind of event.
    pub kind: &'static str,
    /// The host that it is about; `None`: the cluster.
    pub host: Option<String>,
    /// Whether somebody should look.
    pub is_warning: bool,
    /// The sentence.
    pub text: String,
}

/// What the controller's thread is asked.
#[derive(Debug)]
pub(super) enum Request {
    View(SyncSender<ClusterView>),
    Order(Order, SyncSender<Taken>),
    Ask(Question),
    Ended { host: String, process: Process },
    Keys(KeyRing),
    Stop,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    NoSuchHost,
    DoesNotLead(Option<String>),
    NotForgotten(ForgetError),
}

/// Why a question has no answer, or an order was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskingError {
    /// Nothing was done.
    #[error("too many requests wait: ask again")]
    Busy,
    /// It is not known whether an order was taken.
    #[error("the orchestrator did not answer in time: whether it took an order is not known")]
    Late,
    /// Nothing was done.
    #[error("the orchestrator has ended")]
    Ended,
    /// Nothing was done.
    #[error("{0} is no host of this cluster")]
    NoSuchHost(String),
    /// Nothing was done.
    #[error("this orchestrator does not lead{}", .0.as_ref().map_or_else(String::new, |name| format!("; {name} does")))]
    DoesNotLead(Option<String>),
    /// Nothing was done.
    #[error("{host} is not forgotten: {why}")]
    NotForgotten {
        /// The host.
        host: String,
        /// Why.
        why: ForgetError,
    },
}

/// The way to ask a running orchestrator. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Asking {
    requests: SyncSender<Request>,
}

impl Asking {
    pub(super) fn new(requests: SyncSender<Request>) -> Asking {
        Asking { requests }
    }

    /// The cluster as it is now.
    ///
    /// # Errors
    /// [`AskingError`]
    pub fn view(&self) -> Result<ClusterView, AskingError> {
        self.ask(Request::View)
    }

    /// Gives an order. It is in force once the store has it.
    ///
    /// # Errors
    /// [`AskingError`]
    pub fn order(&self, order: Order) -> Result<(), AskingError> {
        let host = order.host().to_owned();
        match self.ask(|reply| Request::Order(order, reply))? {
            Taken::Yes => Ok(()),
            Taken::NoSuchHost => Err(AskingError::NoSuchHost(host)),
            Taken::DoesNotLead(leader) => Err(AskingError::DoesNotLead(leader)),
            Taken::NotForgotten(why) => Err(AskingError::NotForgotten { host, why }),
        }
    }

    /// Asks a host a question, which must change nothing there: it may be worked on twice. Several hosts are asked one after the other
    /// before the first answer is awaited.
    ///
    /// # Errors
    /// [`AskingError`]; the host is not asked.
    pub fn ask_host(&self, host: &str, text: Vec<u8>) -> Result<Awaited, AskingError> {
        let (question, awaited) = asked::question(host, text);
        self.send(Request::Ask(question))?;
        Ok(awaited)
    }

    /// Reports that a process has ended: a launcher saw it.
    ///
    /// # Errors
    /// [`AskingError`]; it may be reported again.
    pub fn ended(&self, host: &str, process: Process) -> Result<(), AskingError> {
        let host = host.to_owned();
        self.send(Request::Ended { host, process })
    }

    /// Goes on under other keys.
    ///
    /// # Errors
    /// [`AskingError`]; the former keys stay.
    pub fn set_keys(&self, keys: KeyRing) -> Result<(), AskingError> {
        self.send(Request::Keys(keys))
    }

    pub(super) fn stop(&self) {
        // It has ended already.
        let _ = self.requests.send(Request::Stop);
    }

    fn send(&self, request: Request) -> Result<(), AskingError> {
        self.requests
            .try_send(request)
            .map_err(|error| match error {
                TrySendError::Full(_) => AskingError::Busy,
                TrySendError::Disconnected(_) => AskingError::Ended,
            })
    }

    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Result<T, AskingError> {
        let (reply, answer) = sync_channel(1);
        self.send(request(reply))?;
        answer
            .recv_timeout(ANSWER_MAX)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => AskingError::Late,
                RecvTimeoutError::Disconnected => AskingError::Ended,
            })
    }
}
