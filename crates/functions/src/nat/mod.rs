//! NAT44 that routes: address and port translation between an inside and an outside link (RFC 4787, RFC 5382,
//! RFC 5508, RFC 6887, RFC 6888, RFC 7857; `clauses.rs` says which clause is met how).
//!
//! Imports `asterism_function`, and of `asterism_forwarding` all that makes it a router. This file holds the state, and
//! the path of a packet whose session is known: one probe, then edits. Everything else is in the files beside it, all of
//! it off that path: `open.rs` (new sessions, hairpins, bindings), `error.rs` (ICMP errors and what is inside them), and for
//! carriers `limits.rs` (what they set), `subscribers.rs` (ports within quotas, blocks and pools), `census/` (who has
//! which ports), `pcp/` (mappings that hosts ask for) and `untranslated.rs` (destinations that are none of the NAT's business). Read
//! first: `session.rs`.
//!
//! Only inside hosts open sessions. A packet from outside that its binding lets in, but that belongs to no session,
//! is translated by the binding and leaves no trace: outsiders cannot fill the table.

mod census;
pub mod clauses;
mod config;
mod error;
pub mod export;
mod limits;
mod open;
pub mod pcp;
mod ports;
mod session;
mod subscribers;
mod untranslated;

use core::net::Ipv4Addr;
use core::ops::ControlFlow;
use std::rc::Rc;

use asterism_forwarding::{
    Came, Errors, Fragments, Link, Neighbours, Router, RouterConfig, forwards, tables,
};
use asterism_function::{
    Ask, Builder, End, Endpoint, Late, Map, NetworkFunction, Pool, Reason, Table, Verdict, objects,
    state,
};

pub use asterism_forwarding::{
    Connection, Direction, Ends, ErrorsSent, FragmentKey, Fragmented, IdleTimes, Interface,
    Neighbour, Prefix, ROUTES_MAX, Route, Side,
};
pub use census::{EVENTS_MAX, NEWS_QUESTION, NatEvent, NatEventKind, NatNews, NatUse};
pub use config::{ConfigFault, Filtering, Forward, NatConfig, OUTSIDE_ADDRESSES_MAX};
pub use limits::{
    AddressPool, BLOCK_PORTS_MAX, BLOCK_REST_LEAST_S, BLOCKS_PER_SUBSCRIBER_MAX, POOL_NETWORKS_MAX,
    POOLS_MAX, PortBlocks, PortRest, SUBSCRIBERS_MAX, SubscriberLimits,
};
pub use pcp::{Asked, PortControl};
pub use ports::OutsidePorts;
pub use session::{BY_INSIDE, BY_OUTSIDE, Session};
pub use untranslated::{UNTRANSLATED_MAX, Untranslated};

use census::Census;
use subscribers::Pools;

/// What all instances of a NAT share.
#[state]
#[derive(Debug)]
pub struct NatState {
    /// Who talks to whom through which outside endpoint.
    pub sessions: Table<Session, Connection>,
    /// The outside endpoints.
    pub ports: Pool<OutsidePorts>,
    /// What it takes to change a mapping that an inside host asked for, and since when hosts ask.
    pub mappings: Map<Endpoint, Asked>,
    /// Fragmented datagrams whose first fragment was seen.
    pub fragments: Fragments<Fragmented>,
    /// Ethernet addresses learnt by ARP.
    pub neighbours: Neighbours,
    /// ICMP errors sent in the current second, for each side. Best `local`: nobody else needs it.
    pub errors: Errors,
}

forwards!(NatState, Fragmented);

/// The ports by which packets come that take the same path.
#[derive(Clone, Copy, Debug)]
struct Ports {
    outbound: u32,
    inbound: u32,
}

/// The number of no port.
const NO_PORT: u32 = u32::MAX;

/// NAT44.
#[derive(Debug)]
pub struct Nat {
    config: NatConfig,
    router: Router,
    /// (outside, inside), by outside endpoint.
    forwards_by_outside: Vec<(Endpoint, Endpoint)>,
    /// (inside, outside), by inside endpoint.
    forwards_by_inside: Vec<(Endpoint, Endpoint)>,
    pools: Pools,
    /// Those of packets whose next hop [is found at once](Link::leads_to_one_station), and of those whose next hop is searched.
    common: Ports,
    searching: Ports,
}

impl Nat {
    /// A NAT of a configuration, or everything that is wrong with it.
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
        let router = Router::new(RouterConfig {
            inside: config.inside,
            outside: config.outside,
            routes: &config.routes,
            neighbours: &config.neighbours,
            answers_for: config.outside_addresses.clone(),
            answers_echo: config.answers_echo,
            icmp_errors_per_second: config.icmp_errors_per_second,
        });
        let port = |from: &Link, to: &Link, fast: bool| {
            if to.leads_to_one_station() == fast {
                u32::from(from.interface.port.0)
            } else {
                NO_PORT
            }
        };
        let ports = |fast: bool| Ports {
            outbound: port(&router.inside, &router.outside, fast),
            inbound: port(&router.outside, &router.inside, fast),
        };
        Ok(Self {
            common: ports(true),
            searching: ports(false),
            router,
            forwards_by_outside,
            forwards_by_inside,
            pools: Pools::new(&config),
            config,
        })
    }

    /// What it was made of.
    pub fn config(&self) -> &NatConfig {
        &self.config
    }

    /// A plain packet from inside whose session is known: an edit. Without `THOROUGH` it looks no further than it must
    /// for nearly all of them, writes nothing to the state, and nothing that it leaves out comes back to it: its values stay in
    /// registers (forty instructions a packet). It is compiled twice: only with `SEARCHING` has it a look-up of next hops in it.
    #[inline(always)]
    fn outbound<const THOROUGH: bool, const SEARCHING: bool>(
        &self,
        ask: Ask<'_, NatState>,
    ) -> Result<Verdict, Late> {
        if !self.router.inside.takes(ask.packet()) {
            return Ok(Verdict::Drop(Reason::NotForUs));
        }
        let Some(plain) = ask.packet().plain4() else {
            return self.further::<THOROUGH>(ask);
        };
        let ends = Ends::from(&plain);
        let found = if THOROUGH {
            ask.sessions.by_left(&ends)?.map(|session| (session, None))
        } else {
            ask.sessions
                .nearby_by_left(&ends)?
                .map(|(session, nearby)| (session, Some(nearby)))
        };
        let Some((session, nearby)) = found else {
            return if THOROUGH {
                self.first_outbound(ask)
            } else {
                self.further::<false>(ask)
            };
        };
        let mut learnt = [0; 12];
        let Some(ethernet) = self.router.outside.ethernet_to::<SEARCHING>(
            plain.destination(),
            &ask.neighbours,
            ask.now(),
            &mut learnt,
        )?
        else {
            return self.further::<THOROUGH>(ask);
        };
        let connection = session.value.after(plain.tcp_flags(), Direction::Outbound);
        // Of a session that may have ended: the packet may open the next one, or be of one that this hides.
        if session.row.is_unseen()
            || session.value.may_have_ended()
            || plain.ttl() <= 1
            || !THOROUGH && ask.sessions.would_write(&session, connection)
            || self
                .router
                .outside
                .may_be_too_long::<THOROUGH>(&plain, ask.packet())
        {
            return self.further::<THOROUGH>(ask);
        }
        let mut act = match nearby {
            Some(nearby) => ask.act_nearby(nearby),
            None => ask.act()?,
        };
        act.packet
            .forward_plain4(End::Source, &session.row.forwards_out(ethernet));
        if THOROUGH {
            act.sessions.update(&session, connection);
        }
        Ok(Verdict::Forward(self.router.outside.interface.port))
    }

    /// A plain packet from outside whose session is known: as [`Nat::outbound`].
    #[inline(always)]
    fn inbound<const THOROUGH: bool, const SEARCHING: bool>(
        &self,
        ask: Ask<'_, NatState>,
    ) -> Result<Verdict, Late> {
        if !self.router.outside.takes(ask.packet()) {
            return Ok(Verdict::Drop(Reason::NotForUs));
        }
        let Some(plain) = ask.packet().plain4() else {
            return self.further::<THOROUGH>(ask);
        };
        let ends = Ends::from(&plain);
        let found = if THOROUGH {
            ask.sessions.by_right(&ends)?.map(|session| (session, None))
        } else {
            ask.sessions
                .nearby_by_right(&ends)?
                .map(|(session, nearby)| (session, Some(nearby)))
        };
        let Some((session, nearby)) = found else {
            return self.further::<THOROUGH>(ask);
        };
        let inside = session.row.inside_address();
        let mut learnt = [0; 12];
        let Some(ethernet) = self.router.inside.ethernet_to::<SEARCHING>(
            inside,
            &ask.neighbours,
            ask.now(),
            &mut learnt,
        )?
        else {
            return self.further::<THOROUGH>(ask);
        };
        let connection = session.value.after(plain.tcp_flags(), Direction::Inbound);
        if session.value.may_have_ended() && session.value.reopens(plain.tcp_flags())
            || plain.ttl() <= 1
            || !THOROUGH && ask.sessions.would_write(&session, connection)
            || self
                .router
                .inside
                .may_be_too_long::<THOROUGH>(&plain, ask.packet())
        {
            return self.further::<THOROUGH>(ask);
        }
        let mut act = match nearby {
            Some(nearby) => ask.act_nearby(nearby),
            None => ask.act()?,
        };
        act.packet
            .forward_plain4(End::Destination, &session.row.forwards_in(ethernet));
        if THOROUGH {
            act.sessions.update(&session, connection);
        }
        Ok(Verdict::Forward(self.router.inside.interface.port))
    }

    /// What the common path does not handle, the thorough one may; what that does not, [`Nat::uncommon`] does.
    #[inline(always)]
    fn further<const THOROUGH: bool>(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        if THOROUGH {
            self.uncommon(ask)
        } else {
            self.thorough(&mut Some(ask))
        }
    }

    /// A plain packet from inside whose session was looked for and is not there.
    #[inline(never)]
    fn first_outbound(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        match ask.packet().flow4() {
            Some(flow) => self.leaving(ask, flow, true),
            None => self.uncommon(ask),
        }
    }

    /// By reference, so that `ask` is in memory only here.
    #[inline(never)]
    fn thorough(&self, ask: &mut Option<Ask<'_, NatState>>) -> Result<Verdict, Late> {
        let Some(ask) = ask.take() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let ask = if self.config.untranslated.is_empty() {
            ask
        } else {
            match self.untranslated(ask)? {
                Ok(verdict) => return Ok(verdict),
                Err(ask) => ask,
            }
        };
        let is_plain = ask.packet().plain4().is_some();
        match self.router.side(ask.port()) {
            Some(Side::Inside) if is_plain => self.outbound::<true, true>(ask),
            Some(Side::Outside) if is_plain => self.inbound::<true, true>(ask),
            _ => self.uncommon(ask),
        }
    }

    /// All packets, also the plain ones that need more than an edit.
    #[inline(never)]
    fn uncommon(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        let (ask, side, came) = match self.router.admit(ask)? {
            ControlFlow::Continue(admitted) => admitted,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        match (side, came) {
            (Side::Inside, Came::Reply(_) | Came::Error(_)) if self.stays_inside(&ask) => {
                self.between_insides(ask)
            }
            (Side::Inside, Came::Error(flow)) => self.error_from_inside(ask, flow),
            (Side::Outside, Came::Error(flow)) => self.error_from_outside(ask, flow),
            // Queries go out and replies come in; what goes the other way is the NAT's own business.
            (Side::Inside, Came::Reply(_)) => Ok(Verdict::Drop(Reason::NoBinding)),
            (Side::Outside, Came::Query(_)) => self.own(ask),
            (Side::Inside, Came::Flow(flow) | Came::Query(flow)) => self.leaving(ask, flow, false),
            (Side::Outside, Came::Flow(flow) | Came::Reply(flow)) => self.entering(ask, flow),
        }
    }

    /// A packet to an address of ours that is no translation.
    #[cold]
    fn own(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        if let Some(client) = self.asks(&ask) {
            return self.asked(ask, client);
        }
        let side = self.router.side(ask.port());
        self.router
            .own(ask, |source| self.router.side_of(source) == side)
    }
}

impl NetworkFunction for Nat {
    type State = NatState;

    fn state(&self, builder: &Builder) -> NatState {
        let config = &self.config;
        let idle = config.session_idle();
        let mut sessions = builder.table("sessions", config.sessions_max, &idle);
        let space = OutsidePorts::new(config);
        let census = Rc::new(Census::new(
            config,
            space.clone(),
            builder.context().clone(),
        ));
        let ports = builder.pool("ports", space.with_census(census.clone()));
        let returns = ports.returns();
        // A port returns with the last session that anybody had through it, perhaps after a rest.
        let outside_lane = <Session as objects::Row>::UNIQUE + BY_OUTSIDE;
        let forgets = census.clone();
        sessions.on_forget(outside_lane, move |session: &Session, last| {
            if last {
                forgets.left(session, &returns);
            }
        });
        let (lines, counted) = (ports.returns(), census.clone());
        sessions.on_approach(move |session: &Session| {
            let outside = session.outside();
            lines.approach(&outside);
            counted.approach(&outside);
        });
        // A port that a session has already, of another host or of this one's earlier life, is granted to nobody.
        let holds = ports.returns();
        sessions.on_adopt_used(move |session: &Session, used| {
            holds.hold(&session.outside());
            census.adopted(session, used);
        });
        let control = config.port_control.unwrap_or(PortControl::DEFAULT);
        let mappings = builder.table("mappings", control.mappings_max, &[control.idle()]);
        let (fragments, neighbours, errors) =
            tables(builder, config.fragments_max, config.neighbours_max);
        NatState {
            sessions,
            ports,
            mappings,
            fragments,
            neighbours,
            errors,
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        if ask.packet().plain4().is_some() {
            let port = u32::from(ask.port().0);
            if port == self.common.outbound {
                return self.outbound::<false, false>(ask);
            }
            if port == self.common.inbound {
                return self.inbound::<false, false>(ask);
            }
            if port == self.searching.outbound {
                return self.outbound::<false, true>(ask);
            }
            if port == self.searching.inbound {
                return self.inbound::<false, true>(ask);
            }
        }
        self.further::<false>(ask)
    }

    fn approach(&self, ask: &Ask<'_, NatState>) {
        if self.router.side(ask.port()) == Some(Side::Inside)
            && let Some(flow) = ask.packet().flow4()
        {
            self.approach_first(ask, flow.source());
        }
    }

    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.config.outside_addresses.clone()
    }

    /// To [`NEWS_QUESTION`] [`NatUse`], then the events since the last report, which are told once. [`NatNews::read_all`] reads them.
    fn report(
        &self,
        state: &NatState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        // Events go to one asker alone: who asks for anything else must not get them.
        if question != NEWS_QUESTION {
            return None;
        }
        let census = state.ports.space().census()?;
        census.report(&state.ports, range, out)
    }

    fn schema(&self) -> u64 {
        let config = &self.config;
        let mut bytes = Vec::new();
        self.pools.write(&mut bytes);
        limits::write(config, &mut bytes);
        config.write_untranslated(&mut bytes);
        for address in &config.outside_addresses {
            bytes.extend(address.octets());
        }
        bytes.extend(config.outside_ports.0.to_be_bytes());
        bytes.extend(config.outside_ports.1.to_be_bytes());
        for (outside, inside) in &self.forwards_by_outside {
            bytes.extend(outside.to_bits().to_be_bytes());
            bytes.extend(inside.to_bits().to_be_bytes());
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
