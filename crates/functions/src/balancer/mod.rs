//! A load balancer of the transport layer: flows to virtual services go to the backends of their pools (the published
//! algorithm of Maglev, NSDI 2016, for new flows; RFC 2003 for tunnels).
//!
//! A flow keeps its backend in a replicated table, so it lives through deaths of instances and changes of its pool, and
//! its packets may take any instance. Only a new flow looks at the pool: `choose.rs` says who gets it.
//!
//! Imports `asterism_function`, and of `asterism_forwarding` all that makes it a router. This file holds the state, and
//! the path of a translated packet whose flow is known. Beside it: `open.rs` (all other packets), `send.rs` (how a packet
//! leaves, in each mode), `health.rs` (what hosts and flows say of backends), `look.rs` (what people see of them), `metrics.rs` (what programs see), `fragment.rs`, `error.rs` (ICMP errors of others), `maglev.rs`.
//! Read first: `flow.rs` and `config.rs`.
//!
//! IPv4 only: IPv6 is dropped and counted.

mod choose;
mod config;
mod error;
mod flow;
mod fragment;
mod health;
mod look;
mod maglev;
mod metrics;
mod open;
mod send;

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_forwarding::{
    Came, Connection, Direction, Ends, Errors, Fragments, Neighbours, NextHop, Router,
    RouterConfig, Side, forwards, next_hop, tables,
};
use asterism_function::objects::hash;
use asterism_function::{
    Ask, Builder, Changes4, End, Endpoint, Forwarding4, Late, Map, NetworkFunction, OwnMetric,
    Protocol, Table, TcpFlags, Vector, Verdict, state,
};

use asterism_forwarding::ConfigFault;

pub use asterism_function::CONTROL;
pub use config::{
    BACKENDS_MAX, Backend, BalancerConfig, Choice, Mode, PASSIVE_MAX, SERVICE_BACKENDS_MAX,
    SERVICES_MAX, Service, WEIGHT_MAX,
};
pub use flow::{Flow, Kept};
pub use fragment::Led;
pub use health::{FAILURES, Finding, SILENCE_SECONDS, VOTE_SECONDS, VOTERS, Votes};
pub use look::{BACKENDS_QUESTION, BackendRecord};
pub use maglev::{Maglev, PLACES};

use metrics::Watched;

/// Places of the vector of usage: four for each backend that there may be, so that places rarely move when pools change.
const USAGE_PLACES: u32 = 4 * BACKENDS_MAX as u32;

/// What all instances of a balancer share.
#[state]
#[derive(Debug)]
pub struct BalancerState {
    /// Which backend each flow has, and what was seen of it.
    pub flows: Table<Flow, Connection>,
    /// Which backend a client has, by service and client: of services that keep to it.
    pub kept: Map<(Endpoint, Ipv4Addr), Kept>,
    /// How many flows each backend has: counted of `flows` by each instance for itself, so it is never told and never drifts.
    pub usage: Vector,
    /// What hosts and flows say of backends.
    pub health: Map<Endpoint, Votes>,
    /// Fragmented datagrams whose first fragment was seen.
    pub fragments: Fragments<Led>,
    /// Ethernet addresses learnt by ARP.
    pub neighbours: Neighbours,
    /// ICMP errors sent in the current second, for each side. Best `local`: nobody else needs it.
    pub errors: Errors,
}

forwards!(BalancerState, Led);

/// The balancer.
#[derive(Debug)]
pub struct Balancer {
    config: BalancerConfig,
    /// Clients are outside, backends inside.
    router: Router,
    /// In the order of their endpoints.
    pools: Vec<Pool>,
    /// Addresses of backends, in order.
    answering: Vec<Ipv4Addr>,
    /// What is checked, in order.
    checked: Vec<Endpoint>,
    /// Some UDP service is checked: packets of known flows must look whether their backend lives.
    watches_udp: bool,
    /// What becomes of flows says something of some service's backends.
    watches_answers: bool,
    /// Each backend once, for metrics.
    watched: Vec<Watched>,
}

/// A service with what follows from it.
#[derive(Debug)]
struct Pool {
    service: Service,
    table: Maglev,
    /// Of each backend, its place in the vector of usage.
    places: Vec<u16>,
}

impl Balancer {
    /// A balancer of a configuration, or everything that is wrong with it.
    pub fn new(config: BalancerConfig) -> Result<Self, Vec<ConfigFault>> {
        config.validate()?;
        let all = || {
            let services = config.services.iter();
            services.flat_map(|service| service.backends.iter().map(move |one| (service, one)))
        };
        let mut named: Vec<Endpoint> = all()
            .map(|(service, one)| service.checked_at(one))
            .collect();
        named.sort_unstable();
        named.dedup();
        if named.len() > BACKENDS_MAX {
            return Err(vec![ConfigFault {
                field: "services",
                sentence: format!("{} backends exceed {BACKENDS_MAX}", named.len()),
            }]);
        }
        let places = usage_places(&named);
        let mut pools: Vec<Pool> = config
            .services
            .iter()
            .map(|service| Pool::new(service, &named, &places))
            .collect();
        pools.sort_unstable_by_key(Pool::first);
        let services = config.services.iter();
        let mut answering: Vec<_> = all().map(|(_, one)| one.address).collect();
        let mut checked: Vec<_> = all()
            .filter(|(service, _)| service.checked)
            .map(|(service, one)| service.checked_at(one))
            .collect();
        answering.sort_unstable();
        checked.sort_unstable();
        Ok(Self {
            router: Router::new(RouterConfig {
                inside: config.backends,
                outside: config.clients,
                routes: &config.routes,
                neighbours: &config.neighbours,
                answers_for: services.map(|one| one.address).collect(),
                answers_echo: config.answers_echo,
                icmp_errors_per_second: config.icmp_errors_per_second,
            }),
            pools,
            answering,
            watches_answers: config.services.iter().any(|service| service.passive > 0),
            watches_udp: checked.iter().any(|one| one.protocol == Protocol::UDP),
            checked,
            watched: Watched::all(&config.services),
            config,
        })
    }

    /// What it was made of.
    #[must_use]
    pub fn config(&self) -> &BalancerConfig {
        &self.config
    }

    /// The place of a backend in the vector of usage: of a service's, as [`Service::checked_at`] names it.
    #[must_use]
    pub fn usage_place(&self, backend: Endpoint) -> Option<u32> {
        self.pools.iter().find_map(|pool| {
            let is_it = |one| pool.service.checked_at(one) == backend;
            let number = pool.service.backends.iter().position(is_it)?;
            Some(pool.places[number].into())
        })
    }

    /// The pool that has an endpoint.
    fn pool_of(&self, asked: Endpoint) -> Option<&Pool> {
        let later = self.pools.partition_point(|pool| pool.first() <= asked);
        let pool = &self.pools[later.checked_sub(1)?];
        let service = &pool.service;
        let has = (service.address, service.protocol) == (asked.address, asked.protocol)
            && asked.port <= service.ports.1;
        has.then_some(pool)
    }

    fn is_ours(&self, address: Ipv4Addr) -> bool {
        self.router.is_interface(address) || self.router.answers_for(address)
    }

    fn checks(&self, backend: Endpoint) -> bool {
        self.checked.binary_search(&backend).is_ok()
    }

    /// A plain packet of a client whose flow is known and translated: an edit. Anything else goes further.
    #[inline(always)]
    fn request(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        let Some(plain) = ask.packet().plain4() else {
            return self.uncommon(ask);
        };
        let Some(flow) = ask.flows.by_left(&Ends::from(&plain))? else {
            return self.uncommon(ask);
        };
        let flags = plain.tcp_flags();
        if !self.router.outside.takes(ask.packet())
            || flow.row.mode != Mode::Nat
            || flow.value.may_have_ended()
            || flags.contains(TcpFlags::SYN)
            || self.watches_udp && plain.protocol() == Protocol::UDP
            || plain.ttl() <= 1
            || self.router.inside.is_too_long(plain.length())
        {
            return self.uncommon(ask);
        }
        let Flow {
            service, backend, ..
        } = flow.row;
        let (link, now) = (&self.router.inside, ask.now());
        let hop = next_hop(&ask.neighbours, now, link, backend.address)?;
        let NextHop::Station(station) = hop else {
            return self.uncommon(ask);
        };
        let mut act = ask.act()?;
        act.packet.forward_plain4(
            End::Destination,
            &Forwarding4 {
                changes: Changes4::between(service, backend),
                address: backend.address.octets(),
                port: backend.port.to_be_bytes(),
                ethernet: &link.addressed(station),
            },
        );
        let connection = flow.value.after(flags, Direction::Outbound);
        act.flows.update(&flow, connection);
        Ok(Verdict::Forward(link.interface.port))
    }

    /// A plain packet of a backend whose flow is known: as [`Balancer::request`].
    #[inline(always)]
    fn answer(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        let Some(plain) = ask.packet().plain4() else {
            return self.uncommon(ask);
        };
        let Some(flow) = ask.flows.by_right(&Ends::from(&plain))? else {
            return self.uncommon(ask);
        };
        let flags = plain.tcp_flags();
        const FIRST: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::RST.0);
        if !self.router.inside.takes(ask.packet())
            || self.watches_answers && flags.intersects(FIRST)
            || plain.ttl() <= 1
            || self.router.outside.is_too_long(plain.length())
        {
            return self.uncommon(ask);
        }
        let Flow {
            client,
            service,
            backend,
            ..
        } = flow.row;
        let (link, now) = (&self.router.outside, ask.now());
        let hop = next_hop(&ask.neighbours, now, link, client.address)?;
        let NextHop::Station(station) = hop else {
            return self.uncommon(ask);
        };
        let mut act = ask.act()?;
        act.packet.forward_plain4(
            End::Source,
            &Forwarding4 {
                changes: Changes4::between(backend, service),
                address: service.address.octets(),
                port: service.port.to_be_bytes(),
                ethernet: &link.addressed(station),
            },
        );
        let connection = flow.value.after(flags, Direction::Inbound);
        act.flows.update(&flow, connection);
        Ok(Verdict::Forward(link.interface.port))
    }

    /// All packets, also those that need more than an edit.
    #[cold]
    #[inline(never)]
    fn uncommon(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        if ask.port() == CONTROL {
            return self.told(ask);
        }
        let (ask, side, came) = match self.router.admit(ask)? {
            ControlFlow::Continue(admitted) => admitted,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        match (side, came) {
            (Side::Outside, Came::Error(flow)) => self.error_from_client(ask, flow),
            (Side::Inside, Came::Error(flow)) => self.error_from_backend(ask, flow),
            (Side::Outside, Came::Flow(flow)) => self.asked_by_client(ask, flow),
            (Side::Inside, Came::Flow(flow)) => self.answered_by_backend(ask, flow),
            (_, Came::Query(_) | Came::Reply(_)) => {
                self.router.own(ask, |source| !self.is_ours(source))
            }
        }
    }
}

impl Pool {
    fn new(service: &Service, named: &[Endpoint], places: &[u16]) -> Self {
        let weighted: Vec<(u64, u32)> = service
            .backends
            .iter()
            .map(|one| {
                let weight = if one.drains { 0 } else { one.weight };
                (service.checked_at(one).to_bits(), weight)
            })
            .collect();
        let place_of = |one| {
            let found = named.binary_search(&service.checked_at(one));
            found.map_or(0, |number| places[number])
        };
        Self {
            table: Maglev::new(&weighted),
            places: service.backends.iter().map(place_of).collect(),
            service: service.clone(),
        }
    }

    fn first(&self) -> Endpoint {
        let service = &self.service;
        Endpoint::new(service.address, service.ports.0, service.protocol)
    }
}

/// A place of the vector of usage for each backend, by a hash of its name and the next free one: the same on all hosts, and
/// hardly ever another one when pools change. The names are in order.
fn usage_places(named: &[Endpoint]) -> Vec<u16> {
    let mut taken = vec![false; USAGE_PLACES as usize];
    let place = |name: &Endpoint| {
        let mut place = (hash::word(name.to_bits(), 0) % u64::from(USAGE_PLACES)) as usize;
        while core::mem::replace(&mut taken[place], true) {
            place = (place + 1) % USAGE_PLACES as usize;
        }
        place as u16
    };
    named.iter().map(place).collect()
}

impl NetworkFunction for Balancer {
    type State = BalancerState;

    fn state(&self, builder: &Builder) -> BalancerState {
        let config = &self.config;
        let mut flows = builder.table("flows", config.flows_max, &config.idle.classes());
        let kept = builder.table("kept", config.kept_max, &[config.persistence_s]);
        let usage = builder.own_vector("usage", USAGE_PLACES);
        let later = usage.later();
        flows.on_turn(move |flow: &Flow, lives| {
            later.add(flow.place.into(), if lives { 1 } else { -1 });
        });
        let health = builder.table("health", BACKENDS_MAX as u32, &health::IDLE);
        let (fragments, neighbours, errors) =
            tables(builder, config.fragments_max, config.neighbours_max);
        BalancerState {
            flows,
            kept,
            usage,
            health,
            fragments,
            neighbours,
            errors,
        }
    }

    /// Of [`BACKENDS_QUESTION`], [`BackendRecord`]s.
    fn report(
        &self,
        state: &BalancerState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if question != BACKENDS_QUESTION {
            return None;
        }
        self.report_backends(state, range, out)
    }

    fn metrics(&self) -> &[OwnMetric] {
        &metrics::METRICS
    }

    fn measure(&self, state: &BalancerState, values: &mut Vec<u64>) {
        self.measure_all(state, values);
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        if ask.port() == self.router.outside.interface.port {
            self.request(ask)
        } else if ask.port() == self.router.inside.interface.port {
            self.answer(ask)
        } else {
            self.uncommon(ask)
        }
    }
}
