//! What a controller hears: heartbeats, evidence, orders, and what became of its commands.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use asterism_heartbeat::PLACES_MAX;
use asterism_placement::Time;

use super::record::Record;

pub use asterism_epochs::Process;
pub use asterism_heartbeat::{LeaderHeard, Stage};

/// A host's heartbeat, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The host.
    pub host: String,
    /// Where its state channel is, if it registers.
    pub address: Option<SocketAddr>,
    /// Its process.
    pub process: Process,
    /// How far it is.
    pub stage: Stage,
    /// The epoch that it has in force, or, while it waits, the last one that it was handed; 0 for none.
    pub epoch: u32,
    /// The places of members of its epoch that its state channel has not received for longer than its `silent_after`.
    pub silent: BTreeSet<String>,
    /// Whether its auditor finds no difference to any member.
    pub digests_agree: bool,
    /// The leading orchestrator, as it hears it.
    pub leader: Option<LeaderHeard>,
}

impl Heartbeat {
    /// A heartbeat as it was received, of a cluster with these places.
    #[must_use]
    pub fn of(
        received: &asterism_heartbeat::Heartbeat,
        leader: Option<LeaderHeard>,
        places: &[String],
    ) -> Heartbeat {
        Heartbeat {
            host: received.host.clone(),
            address: received.address,
            process: received.process,
            stage: received.stage,
            epoch: received.epoch,
            silent: silent(received, places).collect(),
            digests_agree: received.digests_agree,
            leader,
        }
    }
}

/// The places of the members that a host does not receive.
pub(crate) fn silent(
    received: &asterism_heartbeat::Heartbeat,
    places: &[String],
) -> impl Iterator<Item = String> {
    let silent = received.silent;
    let is_silent = move |place: &usize| *place < PLACES_MAX && silent >> place & 1 != 0;
    (0..places.len())
        .filter(is_silent)
        .map(|place| places[place].clone())
}

/// An operator's order, for the controller that leads; others ignore it, but for [`Order::Fence`]. It is in force once it is in the
/// record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The host gets no new flows, and no packets where the steering cannot tell flows apart.
    Drain(String),
    /// The host gets no packets at all: it is about to be stopped. Ignored while no other host takes packets.
    Withdraw(String),
    /// The host gets packets again.
    Restore(String),
    /// The operator declares that no process runs in this place in this incarnation or an earlier one. Ignored of an
    /// incarnation that was not named yet.
    Fence(String, u64),
    /// The host's place is free for another one. Ignored while the host takes part, or may still run.
    Forget(String),
}

impl Order {
    /// The host that it is about.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Order::Drain(host)
            | Order::Withdraw(host)
            | Order::Restore(host)
            | Order::Fence(host, _)
            | Order::Forget(host) => host,
        }
    }
}

/// What a controller is handed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A host's heartbeat, of an authenticated session.
    Heartbeat(Heartbeat),
    /// Whether the steering sees the link to a host down.
    Link {
        /// The host.
        host: String,
        /// Whether it is down.
        is_down: bool,
    },
    /// A launcher knows that the process has ended. Any number of times.
    Ended {
        /// The host.
        host: String,
        /// Its process.
        process: Process,
    },
    /// The operator's.
    Order(Order),
    /// This orchestrator leads until then, by its own clock, counted from before it asked.
    Leads {
        /// The term, which the store counts up with each leader. A term is of one start of an orchestrator's process: one that begins
        /// again does not lead on in it.
        term: u64,
        /// When it ends, unless this is handed in again.
        until: Time,
    },
    /// It does not lead.
    Follows {
        /// The term in which another one does, if the store said so.
        led_in: Option<u64>,
    },
    /// The record as the store has it.
    Record {
        /// The record.
        record: Record,
        /// Its version; 0: none was ever written.
        version: u64,
    },
    /// [`Command::Store`](super::Command::Store) was carried out, and the record has this version.
    Stored {
        /// The version.
        version: u64,
    },
    /// [`Command::Store`](super::Command::Store) was refused, or nobody knows whether it was carried out.
    NotStored,
    /// [`Command::Steer`](super::Command::Steer) is in force.
    Steered {
        /// The number of the state.
        generation: u64,
    },
    /// [`Command::Steer`](super::Command::Steer) failed; what is in force may not be known.
    NotSteered {
        /// The number of the state.
        generation: u64,
    },
}
