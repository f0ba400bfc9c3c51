//! NAT44 that routes: address and port translation between an inside and an outside link (RFC 4787, RFC 5382,
//! RFC 5508, RFC 6888, RFC 7857; `clauses.rs` says which clause is met how).
//!
//! Imports `asterism_function` only. This file holds the state, and the path of a packet whose session is known:
//! one probe, then edits. Everything else is in the files beside it, all of it off that path: `open.rs` (new
//! sessions, hairpins, bindings), `error.rs` (ICMP errors and what is inside them), `fragment.rs`, `neighbour.rs`
//! (ARP), `report.rs` (ICMP errors of our own), and for carriers `limits.rs` (what they set), `subscribers.rs` (ports within
//! quotas, blocks and pools) and `census/` (who has which ports). Read first: `session.rs` and `connection.rs`.
//!
//! Only inside hosts open sessions. A packet from outside that its binding lets in, but that belongs to no session,
//! is translated by the binding and leaves no trace: outsiders cannot fill the table.

mod census;
pub mod clauses;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod error;
pub mod export;
pub(crate) mod fragment;
mod limits;
pub(crate) mod neighbour;
pub(crate) mod open;
mod ports;
pub(crate) mod report;
pub(crate) mod route;
pub(crate) mod session;
mod subscribers;

use core::net::Ipv4Addr;
use std::rc::Rc;

use asterism_function::{
    Ask, Builder, End, Endpoint, Fragment, IcmpKind, Late, Map, Network, NetworkFunction, Pool,
    PortNumber, Reason, Table, Verdict, objects, state,
};

pub use census::{EVENTS_MAX, NatEvent, NatEventKind, NatNews, NatUse};
pub use config::{
    ConfigFault, Filtering, Forward, Interface, NatConfig, OUTSIDE_ADDRESSES_MAX, Prefix,
    ROUTES_MAX, Route, Side,
};
pub use connection::{Connection, Direction, IdleTimes};
pub use fragment::{FragmentKey, Fragmented};
pub use limits::{
    AddressPool, BLOCK_PORTS_MAX, BLOCK_REST_LEAST_S, BLOCKS_PER_SUBSCRIBER_MAX, POOL_NETWORKS_MAX,
    POOLS_MAX, PortBlocks, PortRest, SUBSCRIBERS_MAX, SubscriberLimits,
};
pub use neighbour::Neighbour;
pub use ports::OutsidePorts;
pub use report::ErrorsSent;
pub use session::{BY_INSIDE, BY_OUTSIDE, Ends, Session};

use census::Census;
use route::Link;
use subscribers::Pools;

/// What all instances of a NAT share.
#[state]
#[derive(Debug)]
pub struct NatState {
    /// Who talks to whom through which outside endpoint.
    pub sessions: Table<Session, Connection>,
    /// The outside endpoints.
    pub ports: Pool<OutsidePorts>,
    /// Fragmented datagrams whose first fragment was seen.
    pub fragments: Map<FragmentKey, Fragmented>,
    /// Ethernet addresses learnt by ARP.
    pub neighbours: Map<Ipv4Addr, Neighbour>,
    /// ICMP errors sent in the current second, for each side. Best `local`: nobody else needs it.
    pub errors: Map<u8, ErrorsSent>,
}

/// NAT44.
#[derive(Debug)]
pub struct Nat {
    config: NatConfig,
    inside: Link,
    outside: Link,
    /// In order.
    outside_addresses: Vec<Ipv4Addr>,
    /// (outside, inside), by outside endpoint.
    forwards_by_outside: Vec<(Endpoint, Endpoint)>,
    /// (inside, outside), by inside endpoint.
    forwards_by_inside: Vec<(Endpoint, Endpoint)>,
    pools: Pools,
}

impl Nat {
    /// A NAT of a configuration, or everything that is wrong with it.
    pub fn new(config: NatConfig) -> Result<Self, Vec<ConfigFault>> {
        config.validate()?;
        let mut outside_addresses = config.outside_addresses.clone();
        outside_addresses.sort_unstable();
        let forwards = || config.forwards.iter();
        let mut forwards_by_outside: Vec<_> = forwards()
            .map(|forward| (forward.outside, forward.inside))
            .collect();
        forwards_by_outside.sort_unstable();
        let mut forwards_by_inside: Vec<_> = forwards()
            .map(|forward| (forward.inside, forward.outside))
            .collect();
        forwards_by_inside.sort_unstable();
        Ok(Self {
            inside: Link::new(&config, Side::Inside),
            outside: Link::new(&config, Side::Outside),
            outside_addresses,
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
    /// for nearly all of them, and nothing that it leaves out comes back to it: its values stay in registers (forty
    /// instructions a packet).
    #[inline(always)]
    fn outbound<const THOROUGH: bool>(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        if !self.inside.takes(ask.packet()) {
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
            return self.further::<THOROUGH>(ask);
        };
        let Some(ethernet) = self.outside.ethernet_to::<THOROUGH>(plain.destination()) else {
            return self.further::<THOROUGH>(ask);
        };
        let flags = plain.tcp_flags();
        // Of a session that may have ended: the packet may open the next one, or be of one that this hides.
        if session.row.hairpins()
            || session.value.may_have_ended()
            || plain.ttl() <= 1
            || self
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
        let connection = session.value.after(flags, Direction::Outbound);
        act.sessions.update(&session, connection);
        Ok(Verdict::Forward(self.outside.interface.port))
    }

    /// A plain packet from outside whose session is known: as [`Nat::outbound`].
    #[inline(always)]
    fn inbound<const THOROUGH: bool>(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        if !self.outside.takes(ask.packet()) {
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
        let Some(ethernet) = self.inside.ethernet_to::<THOROUGH>(inside) else {
            return self.further::<THOROUGH>(ask);
        };
        let flags = plain.tcp_flags();
        if session.value.reopens(flags)
            || plain.ttl() <= 1
            || self
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
        let connection = session.value.after(flags, Direction::Inbound);
        act.sessions.update(&session, connection);
        Ok(Verdict::Forward(self.inside.interface.port))
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

    /// By reference, so that `ask` is in memory only here.
    #[inline(never)]
    fn thorough(&self, ask: &mut Option<Ask<'_, NatState>>) -> Result<Verdict, Late> {
        let Some(ask) = ask.take() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        match self.side(ask.port()) {
            Some(Side::Inside) if ask.packet().plain4().is_some() => self.outbound::<true>(ask),
            Some(Side::Outside) if ask.packet().plain4().is_some() => self.inbound::<true>(ask),
            _ => self.uncommon(ask),
        }
    }

    /// All packets, also the plain ones that need more than an edit.
    #[inline(never)]
    fn uncommon(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        let Some(side) = self.side(ask.port()) else {
            return Ok(Verdict::Drop(Reason::NotForUs));
        };
        let packet = ask.packet();
        match packet.layout().network() {
            Network::Ipv4 if !self.link(side).takes(packet) => {
                return Ok(Verdict::Drop(Reason::NotForUs));
            }
            Network::Ipv4 => {}
            Network::Arp => return self.arp(ask, side),
            Network::Ipv6 | Network::Other => {
                return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
            }
        }
        if packet.layout().fragment() == Fragment::Later {
            return self.later_fragment(ask, side);
        }
        let kind = packet.icmp_kind();
        if kind == Some(IcmpKind::Error) {
            return match side {
                Side::Inside => self.error_from_inside(ask),
                Side::Outside => self.error_from_outside(ask),
            };
        }
        let Some(mut flow) = packet.flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        match (side, kind) {
            // Queries go out and replies come in; what goes the other way is the NAT's own business.
            (Side::Inside, Some(IcmpKind::Reply)) => Ok(Verdict::Drop(Reason::NoBinding)),
            (Side::Outside, Some(IcmpKind::Query)) => self.own(ask),
            (Side::Inside, Some(_)) => {
                flow.destination_port = 0;
                self.leaving(ask, flow)
            }
            (Side::Outside, Some(_)) => {
                flow.source_port = 0;
                self.entering(ask, flow)
            }
            (Side::Inside, None) => self.leaving(ask, flow),
            (Side::Outside, None) => self.entering(ask, flow),
        }
    }

    fn side(&self, port: PortNumber) -> Option<Side> {
        if port == self.inside.interface.port {
            Some(Side::Inside)
        } else if port == self.outside.interface.port {
            Some(Side::Outside)
        } else {
            None
        }
    }

    fn link(&self, side: Side) -> &Link {
        match side {
            Side::Inside => &self.inside,
            Side::Outside => &self.outside,
        }
    }

    fn is_outside_address(&self, address: Ipv4Addr) -> bool {
        self.outside_addresses.binary_search(&address).is_ok()
    }

    /// Which side an address belongs to, by the longest route to it; `None` without a route.
    fn side_of(&self, address: Ipv4Addr) -> Option<Side> {
        match (
            self.inside.specificity(address),
            self.outside.specificity(address),
        ) {
            (None, None) => None,
            (inside, outside) if inside > outside => Some(Side::Inside),
            _ => Some(Side::Outside),
        }
    }
}

impl NetworkFunction for Nat {
    type State = NatState;

    fn state(&self, builder: &Builder) -> NatState {
        let config = &self.config;
        let mut sessions = builder.table("sessions", config.sessions_max, &config.idle.classes());
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
        // A port that a session has already, of another host or of this one's earlier life, is granted to nobody.
        let holds = ports.returns();
        sessions.on_adopt(move |session: &Session| {
            holds.hold(&session.outside());
            census.adopted(session);
        });
        NatState {
            sessions,
            ports,
            fragments: builder.table("fragments", config.fragments_max, &fragment::IDLE),
            neighbours: builder.table("neighbours", config.neighbours_max, &neighbour::IDLE),
            errors: builder.table("errors", report::SIDES, &report::IDLE),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        if ask.packet().plain4().is_some() {
            if ask.port() == self.inside.interface.port {
                return self.outbound::<false>(ask);
            }
            if ask.port() == self.outside.interface.port {
                return self.inbound::<false>(ask);
            }
        }
        self.further::<false>(ask)
    }

    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.config.outside_addresses.clone()
    }

    /// Whatever the question: [`NatUse`], then the events since the last report, which are told once. [`NatNews::read_all`] reads
    /// them.
    fn report(
        &self,
        state: &NatState,
        _: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let census = state.ports.space().census()?;
        census.report(&state.ports, range, out)
    }

    fn schema(&self) -> u64 {
        let config = &self.config;
        let mut bytes = Vec::new();
        self.pools.write(&mut bytes);
        limits::write(config, &mut bytes);
        for address in &config.outside_addresses {
            bytes.extend(address.octets());
        }
        bytes.extend(config.outside_ports.0.to_be_bytes());
        bytes.extend(config.outside_ports.1.to_be_bytes());
        for (outside, inside) in &self.forwards_by_outside {
            bytes.extend(outside.to_bits().to_be_bytes());
            bytes.extend(inside.to_bits().to_be_bytes());
        }
        for seconds in config.idle.classes() {
            bytes.extend(seconds.to_be_bytes());
        }
        for count in [
            config.sessions_max,
            config.fragments_max,
            config.neighbours_max,
        ] {
            bytes.extend(count.to_be_bytes());
        }
        objects::hash::bytes(&bytes, 0x4E41_5434_3400_0001)
    }
}
