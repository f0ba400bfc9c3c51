//! The state objects of a function that balances flows.

use asterism_forwarding::{IdleTimes, Progress};
use asterism_function::{Builder, Tick, Vector};

use crate::affinity::Clients;
use crate::flow::{Flow, Flows};
use crate::pool::usage_places;
use crate::watch::{self, Health};

/// How much the [`tables`] of a function hold, over the whole cluster, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Flows at most.
    pub flows_max: u32,
    /// When they end. Of ICMP there are none.
    pub idle: IdleTimes,
    /// When TCP ends whose client has finished and whose backend answers directly, so that nobody sees when that has.
    pub half_closed_s: Tick,
    /// Clients at most whose backend is kept.
    pub affinity_max: u32,
    /// Seconds for which a client keeps its backend after its last new flow.
    pub persistence_s: Tick,
    /// Different backends at most: as for [`Pools::new`](crate::Pools::new).
    pub backends_max: usize,
}

/// Builds the four objects of a function that balances flows, in this order: `flows`, `affinity`, `usage` and `health`.
///
/// Each instance counts of `flows` for itself how many flows each backend has. So `usage` is never reported, and never drifts. Where `flows`
/// are in a store, so is `usage`: each flow is counted there when it comes and when its end is committed.
#[must_use]
pub fn tables(builder: &Builder, sizes: &Sizes) -> (Flows, Clients, Vector, Health) {
    let mut idle = [sizes.half_closed_s; Progress::HALF_CLOSED_CLASS as usize + 1];
    let others = sizes.idle.classes();
    idle[..others.len()].copy_from_slice(&others);
    let mut flows: Flows = builder.table("flows", sizes.flows_max, &idle);
    let affinity = builder.table("affinity", sizes.affinity_max, &[sizes.persistence_s]);
    let mut usage = builder.own_vector("usage", usage_places(sizes.backends_max));
    flows.counted_in(&mut usage, |flow: &Flow| flow.place.into());
    let health = watch::health(builder, sizes.backends_max);
    (flows, affinity, usage, health)
}
