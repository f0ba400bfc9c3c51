//! What a controller decided, and why: for logs and metrics.

use std::fmt;
use std::time::Duration;

use asterism_epochs::HostEntry;
use asterism_heartbeat::RegistrationRefused;

/// What a controller decided or noticed. Each is reported once, when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packets leave a host that was silent.
    Suspected {
        /// The host.
        host: String,
        /// How long.
        silence: Duration,
    },
    /// Packets leave a host that most of the others do not receive.
    Isolated {
        /// The host.
        host: String,
    },
    /// Packets leave a host whose link is down.
    LinkDown {
        /// The host.
        host: String,
    },
    /// Packets go to a host: it has joined, or it is well again.
    Takes {
        /// The host.
        host: String,
    },
    /// Most hosts are silent at once: the fault may be the orchestrator's own, so nothing is decided by it.
    Frozen {
        /// How many of the members are silent.
        silent: usize,
        /// Of how many.
        members: usize,
    },
    /// No host is fit to take packets: those that got packets last still get them.
    NobodyTakes,
    /// An epoch leaves a host out.
    LeftOut {
        /// The host.
        host: String,
        /// The incarnation that ends.
        incarnation: u64,
        /// Whether its process is known to have ended.
        is_fenced: bool,
    },
    /// An epoch names a new incarnation of a host.
    Admitted {
        /// The host.
        host: String,
        /// The incarnation.
        incarnation: u64,
    },
    /// A host waits for evidence that the process before it has ended: a launcher's, its own from the same folder, or the operator's.
    AwaitsEvidence {
        /// The host.
        host: String,
        /// The incarnation that may still run.
        incarnation: u64,
    },
    /// Two processes run under one name. The later one is not admitted.
    TwoProcesses {
        /// The name.
        host: String,
    },
    /// A name that is no place of the cluster; said once.
    UnknownHost {
        /// The name.
        host: String,
    },
    /// A host has a place.
    Registered {
        /// The host.
        host: String,
        /// Its place and its address.
        entry: HostEntry,
    },
    /// A host gets no place; said again when the reason changes.
    NotRegistered {
        /// The host.
        host: String,
        /// Why.
        why: RegistrationRefused,
    },
    /// A host could take packets, and the steering cannot lead any to it.
    NotSteered {
        /// The host.
        host: String,
    },
    /// A host has no place any more: by the operator's order, or since it was never admitted and is gone.
    Forgotten {
        /// The host.
        host: String,
    },
    /// Hosts have a later epoch than the store: it lost what it had. No epoch is made.
    StoreWentBack {
        /// The epoch that the store has.
        stored: u32,
        /// The epoch of a host.
        seen: u32,
    },
    /// There is no next epoch.
    NoNextEpoch {
        /// Why.
        why: String,
    },
    /// This orchestrator leads.
    Leads {
        /// The term.
        term: u64,
    },
    /// It does not lead any more.
    LeadsNoMore,
    /// No host hears the orchestrator that leads in this term: the store is asked to end the term.
    Deposes {
        /// The term.
        term: u64,
    },
}

impl Event {
    /// The kind of the event, for logs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Suspected { .. } => "host-suspected",
            Event::Isolated { .. } => "host-isolated",
            Event::LinkDown { .. } => "host-link-down",
            Event::Takes { .. } => "host-takes",
            Event::Frozen { .. } => "most-hosts-silent",
            Event::NobodyTakes => "nobody-takes",
            Event::LeftOut { .. } => "host-left-out",
            Event::Admitted { .. } => "host-admitted",
            Event::AwaitsEvidence { .. } => "host-awaits-evidence",
            Event::TwoProcesses { .. } => "host-runs-twice",
            Event::UnknownHost { .. } => "host-unknown",
            Event::Registered { .. } => "host-registered",
            Event::NotRegistered { .. } => "host-not-registered",
            Event::Forgotten { .. } => "host-forgotten",
            Event::NotSteered { .. } => "host-not-steered",
            Event::StoreWentBack { .. } => "store-went-back",
            Event::NoNextEpoch { .. } => "no-next-epoch",
            Event::Leads { .. } => "leads",
            Event::LeadsNoMore => "leads-no-more",
            Event::Deposes { .. } => "deposes",
        }
    }

    /// Whether it says where packets go.
    pub(super) fn is_of_packets(&self) -> bool {
        matches!(
            self,
            Event::Suspected { .. }
                | Event::Isolated { .. }
                | Event::LinkDown { .. }
                | Event::Takes { .. }
                | Event::NobodyTakes
        )
    }

    /// The host that it is about, if it is about one.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Event::Suspected { host, .. }
            | Event::Isolated { host }
            | Event::LinkDown { host }
            | Event::Takes { host }
            | Event::LeftOut { host, .. }
            | Event::Admitted { host, .. }
            | Event::AwaitsEvidence { host, .. }
            | Event::TwoProcesses { host }
            | Event::Registered { host, .. }
            | Event::NotRegistered { host, .. }
            | Event::Forgotten { host }
            | Event::NotSteered { host }
            | Event::UnknownHost { host } => Some(host),
            Event::Frozen { .. }
            | Event::NobodyTakes
            | Event::StoreWentBack { .. }
            | Event::NoNextEpoch { .. }
            | Event::Leads { .. }
            | Event::LeadsNoMore
            | Event::Deposes { .. } => None,
        }
    }

    /// The same about the host that has this place, where what it is about is a place.
    pub(super) fn of_host(mut self, name: impl Fn(&str) -> String) -> Event {
        if let Event::Suspected { host, .. }
        | Event::Isolated { host }
        | Event::LinkDown { host }
        | Event::Takes { host }
        | Event::LeftOut { host, .. }
        | Event::Admitted { host, .. }
        | Event::AwaitsEvidence { host, .. } = &mut self
        {
            *host = name(host);
        }
        self
    }

    /// Whether somebody should look.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        !matches!(
            self,
            Event::Takes { .. }
                | Event::Admitted { .. }
                | Event::Registered { .. }
                | Event::Forgotten { .. }
                | Event::Leads { .. }
        )
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Suspected { host, silence } => {
                write!(
                    f,
                    "{host} was silent for {} ms: packets leave it",
                    silence.as_millis()
                )
            }
            Event::Isolated { host } => {
                write!(f, "most hosts do not receive {host}: packets leave it")
            }
            Event::LinkDown { host } => write!(f, "the link to {host} is down: packets leave it"),
            Event::Takes { host } => write!(f, "{host} takes packets"),
            Event::Frozen { silent, members } => write!(
                f,
                "{silent} of {members} members are silent at once: nothing is decided by that alone"
            ),
            Event::NobodyTakes => f.write_str("no host is fit to take packets: nothing is changed"),
            Event::LeftOut {
                host,
                incarnation,
                is_fenced: true,
            } => write!(
                f,
                "incarnation {incarnation} of {host} is left out; its process has ended"
            ),
            Event::LeftOut {
                host,
                incarnation,
                is_fenced: false,
            } => write!(
                f,
                "incarnation {incarnation} of {host} is left out; its process may still run, so its ports stay unused"
            ),
            Event::Admitted { host, incarnation } => {
                write!(f, "{host} begins incarnation {incarnation}")
            }
            Event::AwaitsEvidence { host, incarnation } => write!(
                f,
                "{host} waits: incarnation {incarnation} may still run elsewhere. Make sure that it does not, and order the fencing of {host}"
            ),
            Event::TwoProcesses { host } => {
                write!(
                    f,
                    "two processes run as {host}: give one of them another name"
                )
            }
            Event::UnknownHost { host } => {
                write!(
                    f,
                    "{host:?} is no host of this cluster: add it to [cluster] members, or, with `places` instead, give it its state channel's address and start it again"
                )
            }
            Event::Registered { host, entry } => {
                write!(f, "{host} has {}, at {}", entry.place, entry.address)
            }
            Event::NotRegistered { host, why } => {
                write!(f, "{host:?} gets no place: {why}")
            }
            Event::Forgotten { host } => write!(f, "{host} has no place any more"),
            Event::NotSteered { host } => write!(
                f,
                "no packets are sent to {host}: add its next hop to the routes in [orchestrator], and begin the orchestrator again"
            ),
            Event::StoreWentBack { stored, seen } => write!(
                f,
                "the store has epoch {stored}, and a host epoch {seen}: the store lost what it had, so no epoch is made"
            ),
            Event::NoNextEpoch { why } => write!(f, "there is no next epoch: {why}"),
            Event::Leads { term } => write!(f, "this orchestrator leads, in term {term}"),
            Event::LeadsNoMore => f.write_str("this orchestrator leads no more"),
            Event::Deposes { term } => write!(
                f,
                "no host hears the orchestrator that leads in term {term}: another one may lead at once"
            ),
        }
    }
}
