//! The trait that an orchestrator implements, and who calls it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::data::{
    ClusterSnapshot, EventPage, FlowFound, FlowQuery, Order, OrderAccepted, Plan, StateEntries,
    StateObjects, StateQuery,
};

/// An orchestrator, as the API sees it.
///
/// The server calls from threads of its own, [`Limits`](crate::server::Limits) says how many at once. A call may block, and should
/// answer within a second: after [`Limits::call`](crate::server::Limits::call) its caller gets an error, and the call occupies one of
/// these threads until it returns. The server decides what a caller may see and change; implementations need not ask who calls.
pub trait ClusterApi: Send + Sync + 'static {
    /// The cluster now. Called for almost every request, so it should be cheap: keep the last snapshot.
    fn snapshot(&self) -> Arc<ClusterSnapshot>;

    /// The events with numbers greater than `after`, the oldest of them first, `max` at most. A number that is newer than all events
    /// gives none.
    fn events(&self, after: u64, max: usize) -> EventPage;

    /// Takes an order, and returns once it is stored or refused. An error other than [`OrderError::Unavailable`] has changed nothing.
    ///
    /// # Errors
    /// See [`OrderError`].
    fn order(&self, caller: &Caller, order: Order) -> Result<OrderAccepted, OrderError>;

    /// Flows that match, `max` at most.
    ///
    /// # Errors
    /// See [`OrderError`]; nothing is changed.
    fn find_flow(&self, query: &FlowQuery, max: usize) -> Result<Vec<FlowFound>, OrderError>;

    /// The status of a host, as the host itself reports it.
    ///
    /// # Errors
    /// See [`OrderError`]; nothing is changed.
    fn host_status(&self, host: &str) -> Result<serde_json::Value, OrderError>;

    /// The state objects of all hosts.
    ///
    /// # Errors
    /// See [`OrderError`]; nothing is changed.
    fn state(&self) -> Result<StateObjects, OrderError>;

    /// Entries of an object that match, `max` at most, and which hosts have each.
    ///
    /// # Errors
    /// See [`OrderError`]; nothing is changed.
    fn entries(
        &self,
        object: &str,
        query: &StateQuery,
        max: usize,
    ) -> Result<StateEntries, OrderError>;

    /// What the elasticity policies would do now.
    ///
    /// # Errors
    /// See [`OrderError`]; nothing is changed.
    fn plan(&self) -> Result<Plan, OrderError>;

    /// All metrics, in Prometheus' text format. The server adds its own.
    fn metrics(&self) -> String;
}

/// Who calls. Implementations name it in the event that an order causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token; `loopback` if there are no tokens.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// Where it calls from.
    pub address: IpAddr,
}

/// What a caller may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// See and change everything.
    Operator,
    /// See everything.
    ReadOnly,
    /// See what is the tenant's, and drain and restore its hosts.
    Tenant(String),
}

/// Why an order or a question was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No such host. Nothing was changed.
    #[error("no host of this cluster is named {host}")]
    UnknownHost {
        /// The name.
        host: String,
    },
    /// The order does not fit the present state, such as a fence of an incarnation that was not named yet. Nothing was changed.
    #[error("{why}")]
    Conflict {
        /// The sentence that the caller reads.
        why: String,
    },
    /// Another orchestrator leads, or none does. Nothing was changed.
    #[error("this orchestrator does not lead; {}", leader.as_ref().map_or("no leader is known, try again".to_owned(), |leader| format!("order at {leader}")))]
    NotLeader {
        /// The address of the leader's API, if it is known.
        leader: Option<String>,
    },
    /// The order makes no sense or breaks a bound of the policies. Nothing was changed.
    #[error("{why}")]
    Refused {
        /// The sentence that the caller reads.
        why: String,
    },
    /// The store, the steering or a host does not answer. The order may still be carried out.
    #[error("{why}")]
    Unavailable {
        /// The sentence that the caller reads.
        why: String,
        /// After how long a further attempt is sensible.
        retry_after: Duration,
    },
}

impl OrderError {
    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            OrderError::UnknownHost { .. } => 404,
            OrderError::Conflict { .. } => 409,
            OrderError::NotLeader { leader: Some(_) } => 421,
            OrderError::NotLeader { leader: None } | OrderError::Unavailable { .. } => 503,
            OrderError::Refused { .. } => 422,
        }
    }
}
