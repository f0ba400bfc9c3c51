//! What a balancer knows of its backends, for anyone who looks: a part of its `report`. For the control plane.

use asterism_function::notice;
use asterism_function::{BadBytes, Endpoint, Reader, Tick, Wire, Writer};

use super::{Balancer, BalancerState, HealthVotes, Mode};
use asterism_balancing::Pool;
use asterism_function::records::Record;

/// The question of a `report` that [`BackendRecord`]s answer: one for each backend of each service.
pub const BACKENDS_QUESTION: u32 = notice::QUESTION - 1;

/// A backend of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendRecord {
    /// The service, by its first port.
    pub service: Endpoint,
    /// Its last port.
    pub last_port: u16,
    /// How packets reach the backend.
    pub mode: Mode,
    /// Whether hosts check the service's backends.
    pub checked: bool,
    /// Flows that must fail for one of them to count as dead; 0: flows say nothing.
    pub passive: u8,
    /// The backend; its port is zero where the client's is kept.
    pub backend: Endpoint,
    /// Its share of new flows.
    pub weight: u32,
    /// Whether it gets none, and keeps those that it has.
    pub drains: bool,
    /// Flows that it has over all hosts, by any service.
    pub flows: u64,
    /// What hosts and flows say of it.
    pub votes: HealthVotes,
}

impl BackendRecord {
    /// Whether it counts as dead.
    #[must_use]
    pub fn is_down(&self, now: Tick) -> bool {
        self.checked && self.votes.is_down(now) || self.votes.fails(now, self.passive)
    }
}

impl Record for BackendRecord {}

impl Wire for BackendRecord {
    fn encode(&self, out: &mut Writer<'_>) {
        self.service.encode(out);
        out.u16(self.last_port);
        out.u8(self.mode.code());
        self.checked.encode(out);
        out.u8(self.passive);
        self.backend.encode(out);
        out.u32(self.weight);
        self.drains.encode(out);
        out.u64(self.flows);
        self.votes.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            service: Endpoint::decode(input)?,
            last_port: input.u16()?,
            mode: Mode::from_code(input.u8()?).ok_or(BadBytes)?,
            checked: bool::decode(input)?,
            passive: input.u8()?,
            backend: Endpoint::decode(input)?,
            weight: input.u32()?,
            drains: bool::decode(input)?,
            flows: input.u64()?,
            votes: HealthVotes::decode(input)?,
        })
    }
}

impl Balancer {
    /// A part of the answer to [`BACKENDS_QUESTION`]. Where to go on.
    pub(super) fn report_backends(
        &self,
        state: &BalancerState,
        (cursor, count): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let backends = self.pools.iter().flat_map(|pool| {
            let numbers = 0..pool.backends().len();
            numbers.map(move |number| (pool, number))
        });
        let mut left = backends.skip(cursor as usize);
        let mut out = Writer::new(out, &[]);
        for (pool, number) in left.by_ref().take(count as usize) {
            record(pool, number, state).encode(&mut out);
        }
        left.next().map(|_| cursor.saturating_add(count))
    }
}

fn record(pool: &Pool, number: usize, state: &BalancerState) -> BackendRecord {
    let (service, backend) = (pool.service(), pool.backends()[number]);
    let flows = state.usage.known(pool.usage_place(number).into());
    let said = state.health.get(&pool.backend_name(number));
    BackendRecord {
        service: pool.name(),
        last_port: service.ports.1,
        mode: service.mode,
        checked: service.checked,
        passive: service.passive,
        backend: Endpoint::new(backend.address, backend.port, service.protocol),
        weight: backend.weight,
        drains: backend.drains,
        flows: u64::try_from(flows).unwrap_or(0),
        votes: said.ok().flatten().map(|at| at.value).unwrap_or_default(),
    }
}
