//! Chooses the backend of a new flow.

use asterism_function::objects::hash;
use asterism_function::{Ask, At, Endpoint, Entry, Late, Paired, Single, State, Tick, Vector};

use crate::affinity::{Affinity, AffinityUpdate, ClientKey, Clients};
use crate::flow::{Flow, Flows};
use crate::maglev::PLACES;
use crate::pool::Pool;
use crate::role::Role;
use crate::service::{Choice, Mode};
use crate::watch::{Health, HealthSource};

/// Places of the table that are tried for a flow before all backends are looked at one by one: with half of the backends dead,
/// one flow in 256 comes so far.
const TRIES_MAX: u64 = 8;

/// What a function knows that balances flows, to read: see [`tables`](crate::tables).
#[derive(Clone, Copy, Debug)]
pub struct Known<'s> {
    /// Which backend each flow has.
    pub flows: &'s Flows,
    /// Which backend a client has.
    pub affinity: &'s Clients,
    /// How many flows each backend has.
    pub usage: &'s Vector,
    /// What is said of backends.
    pub health: &'s Health,
}

/// The backend of a new flow.
#[derive(Debug)]
pub struct Chosen {
    /// The flow as it will be.
    pub flow: Flow,
    /// What the backend goes by.
    name: Endpoint,
    /// The client, where the service keeps to its backend.
    client: Option<ClientKey>,
    /// What was kept of it.
    affinity: Option<At<Single<ClientKey>, Affinity>>,
}

impl Chosen {
    /// What is to be written of the client: reserves room where there is nothing yet that is to be kept.
    pub fn keeping(&self, clients: &Clients, now: Tick) -> Result<AffinityUpdate, Late> {
        let room = match self.client {
            Some(client) => clients.entry_at(self.affinity, client)?,
            None => Entry::Full,
        };
        let affinity = Affinity {
            backend: self.name,
            since: now,
        };
        Ok(AffinityUpdate { room, affinity })
    }
}

impl Pool {
    /// A backend that lives and takes new flows, for a flow of a client to what it asks for; `None`: there is none. Goes by what is
    /// kept of the client, then by the service's [`Choice`].
    ///
    /// Where flows alone speak against all that there are, they are not used: strangers can send what no backend answers, and
    /// must not take all away. A client is no worse off with one that is dead than with none.
    pub fn choose<S: State>(
        &self,
        ask: &Ask<'_, S>,
        known: Known<'_>,
        ends: (Endpoint, Endpoint),
    ) -> Result<Option<Chosen>, Late> {
        match self.choose_by(ask, known, ends, HealthSource::All)? {
            None if self.service().passive > 0 => {
                self.choose_by(ask, known, ends, HealthSource::Checks)
            }
            chosen => Ok(chosen),
        }
    }

    fn choose_by<S: State>(
        &self,
        ask: &Ask<'_, S>,
        known: Known<'_>,
        (client, asked): (Endpoint, Endpoint),
        health_source: HealthSource,
    ) -> Result<Option<Chosen>, Late> {
        let service = self.service();
        let flow = |number: usize| self.flow(number, client, asked);
        let may_take = |number: usize| {
            Ok(
                self.may_take(number, known.health, ask.now(), health_source)?
                    && has_no_other(known.flows, &flow(number))?,
            )
        };
        let client_key = (self.name(), client.address);
        let affinity = match service.persistent {
            true => known.affinity.get(&client_key)?,
            false => None,
        };
        let chosen = |number: usize| Chosen {
            flow: flow(number),
            name: self.backend_name(number),
            client: service.persistent.then_some(client_key),
            affinity,
        };
        if let Some(at) = &affinity {
            let same = |number: &usize| self.backend_name(*number) == at.value.backend;
            if let Some(number) = (0..self.backends().len()).find(same)
                && may_take(number)?
            {
                return Ok(Some(chosen(number)));
            }
        }
        let number = match service.choice {
            Choice::Hash => self.by_hash(ask, self.key(client, asked), may_take)?,
            Choice::LeastConnections => {
                self.by_usage(ask, client.to_bits(), known.usage, may_take)?
            }
        };
        Ok(number.map(chosen))
    }

    /// What a client goes by in [`Pool::by_hash`]: one that is kept by its service by its address alone, so that it stays even if what is
    /// kept is lost.
    #[must_use]
    pub fn key(&self, client: Endpoint, asked: Endpoint) -> u64 {
        let who = match self.service().persistent {
            true => Endpoint { port: 0, ..client },
            false => client,
        };
        hash::words(who.to_bits(), asked.to_bits(), 0)
    }

    /// By the Maglev table, by a key: the first that may take it. Where the backend of the place cannot, other places are tried: so
    /// the death of a backend moves no flow of another, which a table made again without it would.
    pub fn by_hash<S: State>(
        &self,
        ask: &Ask<'_, S>,
        key: u64,
        may_take: impl Fn(usize) -> Result<bool, Late>,
    ) -> Result<Option<usize>, Late> {
        for attempt in 0..TRIES_MAX {
            let place = ask.choose(key.wrapping_add(attempt), PLACES);
            let Some(number) = self.table.at(place) else {
                return Ok(None);
            };
            if may_take(number)? {
                return Ok(Some(number));
            }
        }
        let count = self.backends().len();
        let start = ask.choose(key, count as u32) as usize;
        for number in (start..count).chain(0..start) {
            if may_take(number)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// The one with the fewest flows for its weight of those that may take it; of several, by a key, so that instances that know the
    /// same do not all begin with the first.
    pub fn by_usage<S: State>(
        &self,
        ask: &Ask<'_, S>,
        key: u64,
        usage: &Vector,
        may_take: impl Fn(usize) -> Result<bool, Late>,
    ) -> Result<Option<usize>, Late> {
        let backends = self.backends();
        let count = backends.len();
        if count == 0 {
            return Ok(None);
        }
        let start = ask.choose(key, count as u32) as usize;
        let mut best: Option<(i64, i64, usize)> = None;
        // All that are late are fetched in one round.
        let mut late = None;
        for number in (start..count).chain(0..start) {
            let flows = usage.get(self.usage_place(number).into());
            let (flows, weight) = match (flows, may_take(number)) {
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

    /// Whether a backend takes new flows, and lives as far as its health is known and used.
    #[inline]
    pub fn may_take(
        &self,
        number: usize,
        health: &Health,
        now: Tick,
        health_source: HealthSource,
    ) -> Result<bool, Late> {
        if !self.backends()[number].takes_new() {
            return Ok(false);
        }
        Ok(!self.is_down(number, health, now, health_source)?)
    }

    /// Whether a flow's backend is one of the pool, reached in the same way, that takes new flows, dead or not.
    #[must_use]
    pub fn takes_new(&self, flow: &Flow) -> bool {
        let number = self.number_of(flow);
        number.is_some_and(|number| self.backends()[number].takes_new())
            && self.service().mode == flow.mode
    }

    /// The flow that a client has to what it asks for once a backend gets it.
    #[inline]
    #[must_use]
    pub fn flow(&self, number: usize, client: Endpoint, asked: Endpoint) -> Flow {
        Flow {
            client,
            service: asked,
            backend: self.backends()[number].answers_at(asked),
            mode: self.service().mode,
            place: self.usage_place(number),
            role: Role::default(),
        }
    }
}

/// Whether a flow's backend has no other one of the client's endpoint, whose answers could not be distinguished from this one's.
fn has_no_other(flows: &Flows, flow: &Flow) -> Result<bool, Late> {
    if flow.mode != Mode::Nat {
        return Ok(true);
    }
    let other = flows.by_right(&flow.right())?;
    Ok(other.is_none_or(|other| flow.has_same_ends(&other.row)))
}
