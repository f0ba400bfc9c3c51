//! What a balancer's hosts know of its backends: the answer to `asterism backends`.

use asterism_functions::balancer::{BACKENDS_QUESTION, BackendRecord};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use asterism_host_view::{AskError, View};

/// A balancer's services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendsDocument {
    /// Each of them.
    pub services: Vec<ServiceDocument>,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDocument {
    /// Its address, port and protocol; of several ports the first.
    pub service: String,
    /// Its last port.
    pub last_port: u16,
    /// How packets reach its backends: `nat`, `direct` or `tunnel`.
    pub mode: String,
    /// Its backends, in the order of the configuration.
    pub backends: Vec<BackendDocument>,
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendDocument {
    /// Its address, port and protocol; the port is 0 where the client's is kept.
    pub backend: String,
    /// `alive` or `dead`, as this host takes it.
    pub state: String,
    /// Its share of new flows.
    pub weight: u32,
    /// Whether it gets none, and keeps those that it has.
    pub drains: bool,
    /// Flows that it has over all hosts, by any service.
    pub flows: u64,
    /// Hosts that lately reported their checks; absent where none are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub votes: Option<u32>,
    /// Of these, hosts that it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub votes_dead: Option<u32>,
    /// Flows that failed lately and count; absent where flows say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u64>,
}

/// Why there is no answer. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BackendsError {
    /// The function has no backends.
    #[error(
        "this host's function has no backends: it needs [function.balancer], alone or in a chain"
    )]
    NoBackends,
    /// The instance was not asked, or did not answer: nothing of an answer is shown.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// The services of a host's balancer, and what it knows of their backends.
///
/// # Errors
/// Its function has no backends, or the instance does not tell; in words.
pub fn query(view: &View) -> Result<BackendsDocument, BackendsError> {
    let balancer = view.balancer.ok_or(BackendsError::NoBackends)?;
    let now = view.tick();
    let mut services: Vec<ServiceDocument> = Vec::new();
    view.records(balancer, BACKENDS_QUESTION, |record: BackendRecord| {
        let (votes, votes_dead) = record.votes.counted(now);
        let backend = BackendDocument {
            backend: record.backend.to_string(),
            state: match record.is_down(now) {
                true => "dead",
                false => "alive",
            }
            .to_owned(),
            weight: record.weight,
            drains: record.drains,
            flows: record.flows,
            votes: record.checked.then_some(votes),
            votes_dead: record.checked.then_some(votes_dead),
            failures: (record.passive > 0).then(|| record.votes.failures(now) as u64),
        };
        let service = record.service.to_string();
        // Backends of one service come one after the other.
        match services.last_mut() {
            Some(last) if last.service == service => last.backends.push(backend),
            _ => services.push(ServiceDocument {
                service,
                last_port: record.last_port,
                mode: record.mode.to_string(),
                backends: vec![backend],
            }),
        }
    })?;
    Ok(BackendsDocument { services })
}
