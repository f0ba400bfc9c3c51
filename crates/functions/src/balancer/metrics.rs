//! What a balancer measures, for programs that collect metrics.

use asterism_function::{Endpoint, OwnMetric, Single};

use super::{Balancer, BalancerState, Service};

pub(super) const METRICS: [OwnMetric; 6] = [
    OwnMetric::gauge(
        "flows",
        "Flows that have a backend, of all hosts, as this one knows; those that ended count until they idle out.",
    ),
    OwnMetric::gauge(
        "backends",
        "Backends of all services; one that several services have counts once.",
    ),
    OwnMetric::gauge(
        "alive_backends",
        "Those that no service takes for dead; they may be drained.",
    ),
    OwnMetric::gauge(
        "dead_by_checks_backends",
        "Those that do not answer, as most hosts found whose checks are fresh.",
    ),
    OwnMetric::gauge(
        "dead_by_flows_backends",
        "Those of which so many flows failed lately that some service takes them for dead.",
    ),
    OwnMetric::gauge(
        "drained_backends",
        "Those that get no new flows because all their services drain them.",
    ),
];

/// A backend, as all services together see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watched {
    /// What is said of it is found under this name.
    name: Endpoint,
    checked: bool,
    /// The fewest failures that make it dead to a service; 0: none.
    passive: u8,
    drained: bool,
}

impl Watched {
    /// Each backend of some services, in the order of their names.
    pub(super) fn all(services: &[Service]) -> Vec<Self> {
        let each = |service: &Service| {
            let (checked, passive) = (service.checked, service.passive);
            let backends = service.backends.iter();
            let watched = backends.map(|backend| Self {
                name: service.checked_at(backend),
                checked,
                passive,
                drained: backend.drains,
            });
            watched.collect::<Vec<_>>()
        };
        let mut all: Vec<Self> = services.iter().flat_map(each).collect();
        all.sort_by_key(|one| one.name);
        all.dedup_by(|other, one| {
            let same = other.name == one.name;
            if same {
                one.checked |= other.checked;
                one.drained &= other.drained;
                one.passive = match (one.passive, other.passive) {
                    (0, passive) | (passive, 0) => passive,
                    (one, other) => one.min(other),
                };
            }
            same
        });
        all
    }
}

impl Balancer {
    /// Appends a value for each of [`METRICS`]. Looks at what is said of each backend, of which there are
    /// [`BACKENDS_MAX`](super::BACKENDS_MAX) at most.
    pub(super) fn measure_all(&self, state: &BalancerState, values: &mut Vec<u64>) {
        let (mut by_checks, mut by_flows, mut dead) = (0, 0, 0);
        let now = state.health.now();
        let watched = self.watched.iter();
        for one in watched.filter(|one| one.checked || one.passive > 0) {
            // Mostly nothing is said of most of them.
            let Some(votes) = state.health.value_now(&Single(one.name)) else {
                continue;
            };
            let checks = one.checked && votes.is_down(now);
            let flows = votes.fails(now, one.passive);
            by_checks += u64::from(checks);
            by_flows += u64::from(flows);
            dead += u64::from(checks || flows);
        }
        let backends = self.watched.len() as u64;
        let drained = self.watched.iter().filter(|one| one.drained).count();
        values.extend([
            state.flows.len_now() as u64,
            backends,
            backends - dead,
            by_checks,
            by_flows,
            drained as u64,
        ]);
    }
}
