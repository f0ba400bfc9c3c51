//! A translator: its router, its settings, and its state objects.

use core::net::Ipv4Addr;
use std::rc::Rc;

use asterism_forwarding::{ConfigFault, Progress, Router, RouterConfig, Side};
use asterism_function::{Ask, Builder, Endpoint, Late, Map, Pool, Table, Verdict, objects};

use crate::accounting::{NEWS_QUESTION, PortAccounting};
use crate::config::NatConfig;
use crate::exempt;
use crate::limits;
use crate::pcp::{Asked, PortControl};
use crate::ports::OutsidePorts;
use crate::session::{BY_OUTSIDE, Session};
use crate::state::Translates;
use crate::subscribers::Pools;

/// Translates between an inside and an outside link, both of whose router it is.
#[derive(Debug)]
pub struct Translator {
    /// What is no translation: links, routes, neighbours, errors.
    pub router: Router,
    pub(crate) config: NatConfig,
    /// (outside, inside), by outside endpoint.
    pub(crate) forwards_by_outside: Vec<(Endpoint, Endpoint)>,
    /// (inside, outside), by inside endpoint.
    pub(crate) forwards_by_inside: Vec<(Endpoint, Endpoint)>,
    /// (outside, inside) addresses that stand for each other, by outside address, and the other way round.
    pub(crate) one_to_one_by_outside: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(crate) one_to_one_by_inside: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(crate) pools: Pools,
}

impl Translator {
    /// A translator of a configuration, or everything that is wrong with it.
    pub fn new(config: NatConfig) -> Result<Self, Vec<ConfigFault>> {
        config.validate()?;
        let forwards = || config.forwards.iter();
        let mut forwards_by_outside: Vec<_> = forwards()
            .map(|forward| (forward.outside, forward.inside))
            .collect();
        forwards_by_outside.sort_unstable();
        let mut forwards_by_inside: Vec<_> = forwards()
            .map(|forward| (forward.inside, forward.outside))
            .collect();
        forwards_by_inside.sort_unstable();
        let pairs = || config.one_to_one.iter();
        let mut one_to_one_by_outside: Vec<_> =
            pairs().map(|pair| (pair.outside, pair.inside)).collect();
        one_to_one_by_outside.sort_unstable();
        let mut one_to_one_by_inside: Vec<_> =
            pairs().map(|pair| (pair.inside, pair.outside)).collect();
        one_to_one_by_inside.sort_unstable();
        let router = Router::new(RouterConfig {
            inside: config.inside,
            outside: config.outside,
            routes: &config.routes,
            neighbours: &config.neighbours,
            answers_for: config.answered_addresses(),
            answers_echo: config.answers_echo,
            icmp_errors_per_second: config.icmp_errors_per_second,
        });
        Ok(Self {
            router,
            forwards_by_outside,
            forwards_by_inside,
            one_to_one_by_outside,
            one_to_one_by_inside,
            pools: Pools::new(&config),
            config,
        })
    }

    /// What it was made of.
    #[must_use]
    pub fn config(&self) -> &NatConfig {
        &self.config
    }

    /// Builds what a translator has in the state: the first objects of it, in this order: `sessions`, `ports`, `mappings`.
    #[must_use]
    pub fn tables(
        &self,
        builder: &Builder,
    ) -> (
        Table<Session, Progress>,
        Pool<OutsidePorts>,
        Map<Endpoint, Asked>,
    ) {
        let config = &self.config;
        let idle = config.session_idle();
        let mut sessions = builder.table("sessions", config.sessions_max, &idle);
        if !config.counts_ports() {
            sessions.goes_unfollowed_in_store();
        }
        let space = OutsidePorts::new(config);
        let ports = if sessions.lives_in_store() {
            builder.pool("ports", space)
        } else {
            counted_ports(builder, config, space, &mut sessions)
        };
        ports.held_for(&idle);
        // The store shows which ports are in use, by the sessions that have them.
        ports.confirmed_by(&sessions);
        let most = config
            .port_control
            .unwrap_or(PortControl::DEFAULT)
            .mappings_max;
        let mappings = builder.table("mappings", most, &[config.mapping_idle()]);
        (sessions, ports, mappings)
    }

    /// A packet to an address of its own that is no translation: a request for a mapping, else the router's business.
    #[cold]
    pub fn own<S: Translates>(&self, ask: Ask<'_, S>) -> Result<Verdict, Late> {
        if let Some(client) = self.asks(&ask) {
            return self.asked(ask, client);
        }
        let side = self.router.side(ask.port());
        self.router
            .own(ask, |source| self.router.side_of(source) == side)
    }

    /// Asks for what the first packet of a flow reads, if this is one that may open a session: for
    /// [`NetworkFunction::prefetch`](asterism_function::NetworkFunction::prefetch).
    pub fn prefetch<S: Translates>(&self, ask: &Ask<'_, S>) {
        if self.router.side(ask.port()) == Some(Side::Inside)
            && let Some(flow) = ask.packet().flow4()
        {
            self.prefetch_first(ask, flow.source());
        }
    }

    /// The addresses that inside hosts appear with: for
    /// [`NetworkFunction::addresses`](asterism_function::NetworkFunction::addresses).
    #[must_use]
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.config.answered_addresses()
    }

    /// To [`NEWS_QUESTION`] what the accounting counts ([`NatUse`](crate::NatUse)), then the events since the last report, which are reported
    /// once. [`NatReportPart::read_all`](crate::NatReportPart::read_all) reads them.
    pub fn report<S: Translates>(
        state: &S,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        // Events go to one asker alone: who asks for anything else must not get them.
        if question != NEWS_QUESTION {
            return None;
        }
        let ports = state.translations().ports;
        ports.space().accounting()?.report(ports, range, out)
    }

    /// What all members must have alike: for [`NetworkFunction::schema`](asterism_function::NetworkFunction::schema).
    #[must_use]
    pub fn schema(&self) -> u64 {
        let config = &self.config;
        let mut bytes = Vec::new();
        self.pools.write(&mut bytes);
        limits::write(config, &mut bytes);
        exempt::write(&config.exempt, &mut bytes);
        for address in &config.outside_addresses {
            bytes.extend(address.octets());
        }
        bytes.extend(config.outside_ports.0.to_be_bytes());
        bytes.extend(config.outside_ports.1.to_be_bytes());
        for (outside, inside) in &self.forwards_by_outside {
            bytes.extend(outside.to_bits().to_be_bytes());
            bytes.extend(inside.to_bits().to_be_bytes());
        }
        for (outside, inside) in &self.one_to_one_by_outside {
            bytes.extend(outside.octets());
            bytes.extend(inside.octets());
        }
        for seconds in config.session_idle() {
            bytes.extend(seconds.to_be_bytes());
        }
        for count in [
            config.port_control.map_or(0, |one| one.mappings_max),
            config.sessions_max,
            config.fragments_max,
            config.neighbours_max,
        ] {
            bytes.extend(count.to_be_bytes());
        }
        objects::hash::bytes(&bytes, 0x4E41_5434_3400_0001)
    }
}

/// The outside ports, which each instance counts by the sessions of all.
fn counted_ports(
    builder: &Builder,
    config: &NatConfig,
    space: OutsidePorts,
    sessions: &mut Table<Session, Progress>,
) -> Pool<OutsidePorts> {
    let accounting = PortAccounting::new(config, space.clone(), builder.context().clone());
    let accounting = Rc::new(accounting);
    let ports = builder.pool("ports", space.with_census(accounting.clone()));
    // A port returns with the last session that anybody had through it, perhaps after a rest.
    let outside_lane = <Session as objects::Row>::UNIQUE + BY_OUTSIDE;
    let (returns, forgets) = (ports.returns(), accounting.clone());
    sessions.on_forget(outside_lane, move |session: &Session, last| {
        if last {
            forgets.left(session, &returns);
        }
    });
    let (lines, counted) = (ports.returns(), accounting.clone());
    sessions.on_prefetch(move |session: &Session| {
        let outside = session.outside();
        lines.prefetch(&outside);
        counted.prefetch(&outside);
    });
    // A port that a session has already, of another host or of this one's earlier incarnation, is granted to nobody.
    let holds = ports.returns();
    sessions.on_adopt_used(move |session: &Session, used| {
        holds.hold(&session.outside());
        accounting.adopted(session, used);
    });
    ports
}
