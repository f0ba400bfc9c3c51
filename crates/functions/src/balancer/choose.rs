//! Who gets a new flow. Imports `asterism_function`, `config`, `health`.

use asterism_function::objects::hash;
use asterism_function::{Ask, At, Endpoint, Late, Paired, Single};

use super::health::Heeded;
use super::{Balancer, BalancerState, Choice, Flow, Kept, Mode, PLACES, Pool};
use core::net::Ipv4Addr;

/// Places of the table that are tried for a flow before all backends are looked at one by one: with half of the backends dead,
/// one flow in 256 comes so far.
const TRIES_MAX: u64 = 8;

/// What a client has of a service that keeps to its backend.
type KeptAt = At<Single<(Endpoint, Ipv4Addr)>, Kept>;

/// The backend of a new flow.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The flow as it will be.
    pub(super) flow: Flow,
    /// What was kept for the client, by the service's name.
    pub(super) kept: Option<KeptAt>,
}

impl Balancer {
    /// A backend that lives and takes new flows, for a flow of a client to what it asks for; `None`: there is none.
    ///
    /// Where flows alone speak against all that there are, they are not heeded: strangers can send what no backend answers, and
    /// must not take all away. A client is no worse off with one that is dead than with none.
    pub(super) fn choose(
        &self,
        ask: &Ask<'_, BalancerState>,
        pool: &Pool,
        ends: (Endpoint, Endpoint),
    ) -> Result<Option<Chosen>, Late> {
        match self.choose_by(ask, pool, ends, Heeded::All)? {
            None if pool.service.passive > 0 => self.choose_by(ask, pool, ends, Heeded::Checks),
            chosen => Ok(chosen),
        }
    }

    fn choose_by(
        &self,
        ask: &Ask<'_, BalancerState>,
        pool: &Pool,
        (client, asked): (Endpoint, Endpoint),
        heeded: Heeded,
    ) -> Result<Option<Chosen>, Late> {
        let service = &pool.service;
        let candidate = |number: usize| Candidate::new(pool, number, (client, asked), heeded);
        let kept = if service.persistent {
            ask.kept.get(&(pool.first(), client.address))?
        } else {
            None
        };
        if let Some(at) = &kept {
            let same =
                |number: &usize| service.checked_at(&service.backends[*number]) == at.value.backend;
            if let Some(number) = (0..service.backends.len()).find(same)
                && self.may_take(ask, &candidate(number))?
            {
                return Ok(Some(Chosen {
                    flow: candidate(number).flow,
                    kept,
                }));
            }
        }
        let number = match service.choice {
            Choice::Hash => self.by_hash(ask, pool, &candidate, client, asked)?,
            Choice::LeastConnections => self.by_usage(ask, pool, &candidate, client)?,
        };
        Ok(number.map(|number| Chosen {
            flow: candidate(number).flow,
            kept,
        }))
    }

    /// By the Maglev table. Where the backend of the place cannot take it, other places are tried: so the death of a backend
    /// moves no flow of another, which a table made anew without it would.
    fn by_hash<'p>(
        &self,
        ask: &Ask<'_, BalancerState>,
        pool: &Pool,
        candidate: &impl Fn(usize) -> Candidate<'p>,
        client: Endpoint,
        asked: Endpoint,
    ) -> Result<Option<usize>, Late> {
        // A client that is kept by its service goes by its address alone: so it is even if what is kept is lost.
        let who = if pool.service.persistent {
            Endpoint { port: 0, ..client }
        } else {
            client
        };
        let key = hash::words(who.to_bits(), asked.to_bits(), 0);
        for attempt in 0..TRIES_MAX {
            let place = ask.choose(key.wrapping_add(attempt), PLACES);
            let Some(number) = pool.table.at(place) else {
                return Ok(None);
            };
            if self.may_take(ask, &candidate(number))? {
                return Ok(Some(number));
            }
        }
        let count = pool.service.backends.len();
        let start = ask.choose(key, count as u32) as usize;
        for number in (start..count).chain(0..start) {
            if self.may_take(ask, &candidate(number))? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// The one with the fewest flows for its weight; of several, by the client's hash, so that instances that know the same do
    /// not all begin with the first.
    fn by_usage<'p>(
        &self,
        ask: &Ask<'_, BalancerState>,
        pool: &Pool,
        candidate: &impl Fn(usize) -> Candidate<'p>,
        client: Endpoint,
    ) -> Result<Option<usize>, Late> {
        let backends = &pool.service.backends;
        let count = backends.len();
        if count == 0 {
            return Ok(None);
        }
        let start = ask.choose(client.to_bits(), count as u32) as usize;
        let mut best: Option<(i64, i64, usize)> = None;
        // All that are late are fetched in one round.
        let mut late = None;
        for number in (start..count).chain(0..start) {
            let flows = ask.usage.get(pool.places[number].into());
            let may_take = self.may_take(ask, &candidate(number));
            let (flows, weight) = match (flows, may_take) {
                (Ok(flows), Ok(true)) => (flows.max(0), i64::from(backends[number].weight)),
                (Ok(_), Ok(false)) => continue,
                (Err(one), _) | (_, Err(one)) => {
                    late = Some(one);
                    continue;
                }
            };
            // Flows over weight, without dividing.
            let is_better = |&(least, its_weight, _): &(i64, i64, usize)| {
                flows.saturating_mul(its_weight) < least.saturating_mul(weight)
            };
            if best.as_ref().is_none_or(is_better) {
                best = Some((flows, weight, number));
            }
        }
        match late {
            Some(late) => Err(late),
            None => Ok(best.map(|(_, _, number)| number)),
        }
    }

    /// Whether a backend takes new flows, lives as far as is known, and has no other flow of the client's endpoint, whose
    /// answers could not be told from this one's.
    fn may_take(
        &self,
        ask: &Ask<'_, BalancerState>,
        candidate: &Candidate<'_>,
    ) -> Result<bool, Late> {
        let Candidate {
            flow,
            pool,
            number,
            heeded,
        } = candidate;
        let backend = &pool.service.backends[*number];
        if backend.drains || backend.weight == 0 {
            return Ok(false);
        }
        if self.is_down(ask, &pool.service, backend, *heeded)? {
            return Ok(false);
        }
        if flow.mode != Mode::Nat {
            return Ok(true);
        }
        let other = ask.flows.by_right(&flow.right())?;
        Ok(other.is_none_or(|other| other.row.left() == flow.left()))
    }
}

/// A backend that may get a flow.
struct Candidate<'p> {
    pool: &'p Pool,
    number: usize,
    flow: Flow,
    heeded: Heeded,
}

impl<'p> Candidate<'p> {
    fn new(
        pool: &'p Pool,
        number: usize,
        (client, asked): (Endpoint, Endpoint),
        heeded: Heeded,
    ) -> Self {
        let backend = &pool.service.backends[number];
        let port = match backend.port {
            0 => asked.port,
            port => port,
        };
        Self {
            pool,
            number,
            heeded,
            flow: Flow {
                client,
                service: asked,
                backend: Endpoint::new(backend.address, port, asked.protocol),
                mode: pool.service.mode,
                place: pool.places[number],
            },
        }
    }
}
