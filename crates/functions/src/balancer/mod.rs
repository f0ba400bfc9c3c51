//! A load balancer of the transport layer: flows to virtual services go to the backends of their pools (the published
//! algorithm of Maglev, NSDI 2016, for new flows; RFC 2003 for tunnels). IPv4 only: IPv6 is dropped and counted.
//!
//! A flow keeps its backend in a replicated table, so it survives deaths of instances and changes of its pool, and its
//! packets may take any instance. Only a new flow reads the pool.
//!
//! This file holds the state, and the path of a translated packet of a known flow. `open.rs` has all other packets of flows,
//! `look.rs` the operator's view of backends, `metrics.rs` the metrics. Read first: `config.rs`, and `flow.rs` of
//! `balancing`.

mod config;
mod metrics;
mod open;
mod query;

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_balancing::{Clients, ControlAction, Flows, Health, Pools, Sizes, tables};
use asterism_forwarding::{
    ConfigFault, Ends, Errors, Fragments, Neighbours, NextHop, PacketClass, Router, RouterConfig,
    Segment, Side, forwards, next_hop,
};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, NetworkFunction, Observable, OwnMetric, Protocol, Reason,
    TcpFlags, Vector, Verdict, state,
};

pub use asterism_balancing::{
    Affinity, Backend, CheckResult, Choice, FAILURES, Flow, HealthVotes, Led, Maglev, Mode,
    PASSIVE_MAX, PLACES, Role, SILENCE_SECONDS, Service, VOTE_SECONDS, VOTERS, WEIGHT_MAX,
};
pub use asterism_forwarding::StationRequest;
pub use asterism_function::CONTROL;
pub use config::{BACKENDS_MAX, BalancerConfig, SERVICE_BACKENDS_MAX, SERVICES_MAX};
pub use query::{BACKENDS_QUESTION, BackendRecord};

use metrics::Watched;

/// What all instances of a balancer share.
#[state]
#[derive(Debug)]
pub struct BalancerState {
    /// Which backend each flow has, and what was seen of it.
    pub flows: Flows,
    /// Which backend a client has, by service and client: of services that keep to it.
    pub affinity: Clients,
    /// How many flows each backend has: counted of `flows` by each instance for itself, so it is never reported and never drifts.
    pub usage: Vector,
    /// What hosts and flows say of backends.
    pub health: Health,
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
    pools: Pools,
    /// Each backend once, for metrics.
    watched: Vec<Watched>,
}

impl Balancer {
    /// A balancer of a configuration, or everything that is wrong with it.
    pub fn new(config: BalancerConfig) -> Result<Self, Vec<ConfigFault>> {
        config.validate()?;
        let pools = Pools::new(&config.services, BACKENDS_MAX).map_err(|count| {
            vec![ConfigFault {
                field: "services",
                sentence: format!("{count} backends exceed {BACKENDS_MAX}"),
            }]
        })?;
        let services = config.services.iter();
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
        self.pools.usage_place(backend)
    }

    fn is_ours(&self, address: Ipv4Addr) -> bool {
        self.router.is_interface(address) || self.router.answers_for(address)
    }

    /// A plain packet of a known flow that is translated, from the clients' link or the backends': an edit. Anything else goes
    /// further.
    #[inline(always)]
    fn plain(&self, ask: Ask<'_, BalancerState>, from: Side) -> Result<Verdict, Late> {
        let Some(plain) = ask.packet().plain4() else {
            return self.uncommon(ask);
        };
        let Some(flow) = Flow::of(&ask.flows, from, &Ends::from(&plain))? else {
            return self.uncommon(ask);
        };
        let segment = Segment::from(&plain);
        let (came, link) = match from {
            Side::Outside => (&self.router.outside, &self.router.inside),
            Side::Inside => (&self.router.inside, &self.router.outside),
        };
        const FIRST: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::RST.0);
        // What would refresh a UDP flow says whether its backend still takes new ones.
        let says_more = || match from {
            Side::Outside => {
                flow.row.mode != Mode::Nat
                    || !flow.row.role.is_ordinary()
                    || !flow.value.is_settled()
                    || segment.flags.contains(TcpFlags::SYN)
                    || plain.protocol() == Protocol::UDP
                        && (self.pools.watches_udp() || ask.flows.would_write(&flow, flow.value))
            }
            Side::Inside => segment.flags.intersects(FIRST),
        };
        if !came.takes(ask.packet())
            || says_more()
            || plain.ttl() <= 1
            || link.is_too_long(plain.length())
        {
            return self.uncommon(ask);
        }
        let hop = next_hop(&ask.neighbours, ask.now(), link, flow.row.towards(from))?;
        let NextHop::Station(station) = hop else {
            return self.uncommon(ask);
        };
        let mut act = ask.act()?;
        let ethernet = link.addressed(station);
        flow.row.forward_plain(&mut act.packet, from, &ethernet);
        let known = flow.row.after(flow.value, from, &segment);
        act.flows.update(&flow, known);
        Ok(Verdict::Forward(link.interface.port))
    }

    /// All packets, also those that need more than an edit.
    #[cold]
    #[inline(never)]
    fn uncommon(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        if ask.port() == CONTROL {
            return self.reported(ask);
        }
        let (ask, side, came) = match self.router.admit(ask)? {
            ControlFlow::Continue(admitted) => admitted,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        match came {
            PacketClass::Error(flow) => self.error(ask, side, flow),
            PacketClass::Flow(flow) => self.came(ask, side, flow),
            PacketClass::Query(_) | PacketClass::Reply(_) => {
                self.router.own(ask, |source| !self.is_ours(source))
            }
        }
    }

    /// Takes up what the host's control side found, and asks for stations ahead.
    #[cold]
    #[inline(never)]
    fn reported(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        match self.pools.reported(&ask, &ask.health)? {
            ControlAction::Write(said) => said.write(&mut ask.act()?.health),
            ControlAction::Resolve(request) => return self.router.resolve_ahead(ask, request),
            ControlAction::End(verdict) => return Ok(verdict),
        }
        Ok(Verdict::Consumed)
    }

    /// An ICMP error of others, about a packet of this flow: goes where that came from. It neither opens nor refreshes nor ends a flow:
    /// outsiders can forge it.
    #[cold]
    fn error(&self, ask: Ask<'_, BalancerState>, from: Side, flow: Flow4) -> Result<Verdict, Late> {
        let answer = (flow.destination(), flow.source());
        match Flow::between(&ask.flows, from, answer, self.config.backends.address)? {
            Some((at, from)) => at.row.path_of_error(from).send(&self.router, ask, |_| {}),
            None => Ok(Verdict::Drop(Reason::IcmpUnmatched)),
        }
    }
}

impl NetworkFunction for Balancer {
    type State = BalancerState;

    fn state(&self, builder: &Builder) -> BalancerState {
        let config = &self.config;
        let sizes = Sizes {
            flows_max: config.flows_max,
            idle: config.idle,
            half_closed_s: config.half_closed_s,
            affinity_max: config.affinity_max,
            persistence_s: config.persistence_s,
            backends_max: BACKENDS_MAX,
        };
        let (flows, affinity, usage, health) = tables(builder, &sizes);
        let (fragments, neighbours, errors) =
            asterism_forwarding::tables(builder, config.fragments_max, config.neighbours_max);
        BalancerState {
            flows,
            affinity,
            usage,
            health,
            fragments,
            neighbours,
            errors,
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        if ask.port() == self.router.outside.interface.port {
            self.plain(ask, Side::Outside)
        } else if ask.port() == self.router.inside.interface.port {
            self.plain(ask, Side::Inside)
        } else {
            self.uncommon(ask)
        }
    }

    fn observable(&self) -> Option<&dyn Observable<BalancerState>> {
        Some(self)
    }
}

impl Observable<BalancerState> for Balancer {
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
}
