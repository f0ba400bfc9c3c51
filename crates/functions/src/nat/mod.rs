//! NAT44 that routes: address and port translation between an inside and an outside link (RFC 4787, RFC 5382, RFC 5508, RFC
//! 6887, RFC 6888, RFC 7857; `clauses.rs` says how each clause is met).
//!
//! This file holds the state, the path of a packet of a known session (one probe, then edits), and the handling of all other
//! packets; `export.rs` has the log as IPFIX. Read first: `session.rs` of `asterism_translation`.
//!
//! Only inside hosts open sessions. A packet from outside that its binding lets in, but that belongs to no session, is
//! translated by the binding and leaves no trace: outsiders cannot fill the table.

pub mod clauses;
pub mod export;

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_forwarding::{
    Errors, Fragments, Link, Neighbours, PacketClass, Progress, Segment, forwards, tables,
};
use asterism_function::{
    Ask, Builder, End, Endpoint, Flow4, Late, Map, NetworkFunction, Observable, Pool, Reason,
    Table, TcpFlags, Verdict, state,
};
use asterism_translation::{Translator, translates};

pub use asterism_forwarding::{
    ConfigFault, Connection, Direction, Ends, ErrorsSent, FragmentKey, Fragmented, IdleTimes,
    Interface, Neighbour, Prefix, ROUTES_MAX, Route, Side,
};
pub use asterism_translation::{
    AddressPool, Asked, BLOCK_PORTS_MAX, BLOCK_REST_LEAST_S, BLOCKS_PER_SUBSCRIBER_MAX, BY_INSIDE,
    BY_OUTSIDE, EVENTS_MAX, EXEMPT_MAX, Filtering, Forward, NEWS_QUESTION, NatConfig, NatEvent,
    NatEventKind, NatExemption, NatReportPart, NatUse, ONE_TO_ONE_MAX, OUTSIDE_ADDRESSES_MAX,
    OneToOne, OutsidePorts, POOL_NETWORKS_MAX, POOLS_MAX, PortBlocks, PortControl, PortQuarantine,
    SUBSCRIBERS_MAX, Session, SubscriberLimits, pcp,
};

/// What all instances of a NAT share.
#[state]
#[derive(Debug)]
pub struct NatState {
    /// Which hosts talk to which others through which outside endpoint.
    pub sessions: Table<Session, Progress>,
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
translates!(NatState);

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
    translator: Translator,
    /// Those of packets whose next hop [is found at once](Link::leads_to_one_station), and of those whose next hop is searched.
    common: Ports,
    searching: Ports,
}

/// A plain packet from inside, and one from outside.
const OUTBOUND: bool = true;
const INBOUND: bool = false;

impl Nat {
    /// A NAT of a configuration, or everything that is wrong with it.
    pub fn new(config: NatConfig) -> Result<Self, Vec<ConfigFault>> {
        let translator = Translator::new(config)?;
        let router = &translator.router;
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
            translator,
        })
    }

    /// What it was made of.
    pub fn config(&self) -> &NatConfig {
        self.translator.config()
    }

    /// A plain packet whose session is known: an edit. Without `THOROUGH` it looks no further than it must for nearly all of them,
    /// writes nothing to the state, and nothing that it leaves out comes back to it: its values stay in registers (forty instructions
    /// a packet). It is compiled once for each way; only with `SEARCHING` has it a look-up of next hops in it.
    #[inline(always)]
    fn plain<const WAY: bool, const THOROUGH: bool, const SEARCHING: bool>(
        &self,
        ask: Ask<'_, NatState>,
    ) -> Result<Verdict, Late> {
        let router = &self.translator.router;
        let (from, to, direction, end) = match WAY {
            OUTBOUND => (
                &router.inside,
                &router.outside,
                Direction::Outbound,
                End::Source,
            ),
            INBOUND => (
                &router.outside,
                &router.inside,
                Direction::Inbound,
                End::Destination,
            ),
        };
        if !from.takes(ask.packet()) {
            return Ok(Verdict::Drop(Reason::NotForUs));
        }
        let Some(plain) = ask.packet().plain4() else {
            return self.further::<THOROUGH>(ask);
        };
        let ends = Ends::from(&plain);
        let found = match (THOROUGH, WAY) {
            (true, OUTBOUND) => ask.sessions.by_left(&ends)?.map(|session| (session, None)),
            (true, INBOUND) => ask.sessions.by_right(&ends)?.map(|session| (session, None)),
            (false, OUTBOUND) => {
                let found = ask.sessions.nearby_by_left(&ends)?;
                found.map(|(session, nearby)| (session, Some(nearby)))
            }
            (false, INBOUND) => {
                let found = ask.sessions.nearby_by_right(&ends)?;
                found.map(|(session, nearby)| (session, Some(nearby)))
            }
        };
        let Some((session, nearby)) = found else {
            return match (THOROUGH, WAY) {
                (true, OUTBOUND) => self.first_outbound(ask),
                _ => self.further::<THOROUGH>(ask),
            };
        };
        let towards = match WAY {
            OUTBOUND => plain.destination(),
            INBOUND => session.row.inside_address(),
        };
        let (now, mut learnt) = (ask.now(), [0; 12]);
        let neighbours = &ask.neighbours;
        let ethernet = to.ethernet_to::<SEARCHING>(towards, neighbours, now, &mut learnt)?;
        let Some(ethernet) = ethernet else {
            return self.further::<THOROUGH>(ask);
        };
        let flags = plain.tcp_flags();
        // Of a session that may have ended: a packet from inside may open the next one, or be of one that this hides.
        let ends_or_begins = match WAY {
            OUTBOUND => {
                session.row.is_unseen()
                    || session.value.may_have_ended()
                    || flags.contains(TcpFlags::SYN)
            }
            INBOUND => session.value.may_have_ended() && session.value.reopens(flags),
        };
        if ends_or_begins
            || plain.ttl() <= 1
            || !THOROUGH
                && (!session.value.stays(flags, plain.tcp_sequence(), direction)
                    || ask.sessions.would_touch(&session))
            || to.may_be_too_long::<THOROUGH>(&plain, ask.packet())
        {
            return self.further::<THOROUGH>(ask);
        }
        let known = match THOROUGH {
            true => Some(session.value.after(&Segment::from(&plain), direction)),
            false => None,
        };
        let mut act = match nearby {
            Some(nearby) => ask.act_nearby(nearby),
            None => ask.act()?,
        };
        let forwards = match WAY {
            OUTBOUND => session.row.forwards_out(ethernet),
            INBOUND => session.row.forwards_in(ethernet),
        };
        act.packet.forward_plain4(end, &forwards);
        if let Some(known) = known {
            act.sessions.update(&session, known);
        }
        Ok(Verdict::Forward(to.interface.port))
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
        let ask = match self.translator.exempt(ask)? {
            ControlFlow::Break(verdict) => return Ok(verdict),
            ControlFlow::Continue(ask) => ask,
        };
        let is_plain = ask.packet().plain4().is_some();
        match self.translator.router.side(ask.port()) {
            Some(Side::Inside) if is_plain => self.plain::<OUTBOUND, true, true>(ask),
            Some(Side::Outside) if is_plain => self.plain::<INBOUND, true, true>(ask),
            _ => self.uncommon(ask),
        }
    }

    /// All packets, also the plain ones that need more than an edit.
    #[inline(never)]
    fn uncommon(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        let translator = &self.translator;
        let (ask, side, came) = match translator.router.admit(ask)? {
            ControlFlow::Continue(admitted) => admitted,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        match (side, came) {
            (Side::Inside, PacketClass::Reply(_) | PacketClass::Error(_))
                if translator.stays_inside(&ask) =>
            {
                translator.between_insides(ask)
            }
            (Side::Inside, PacketClass::Error(flow)) => translator.error_from_inside(ask, flow),
            (Side::Outside, PacketClass::Error(flow)) => translator.error_from_outside(ask, flow),
            // Queries go out and replies come in; what goes the other way is the NAT's own business.
            (Side::Inside, PacketClass::Reply(_)) => Ok(Verdict::Drop(Reason::NoBinding)),
            (Side::Outside, PacketClass::Query(_)) => translator.own(ask),
            (Side::Inside, PacketClass::Flow(flow) | PacketClass::Query(flow)) => {
                self.leaving(ask, flow, false)
            }
            (Side::Outside, PacketClass::Flow(flow) | PacketClass::Reply(flow)) => {
                self.entering(ask, flow)
            }
        }
    }

    /// A packet from inside, all cases. Of ICMP queries the destination port is zero. `is_first`: its session was looked for and is
    /// not there.
    #[cold]
    #[inline(never)]
    fn leaving(
        &self,
        ask: Ask<'_, NatState>,
        flow: Flow4,
        is_first: bool,
    ) -> Result<Verdict, Late> {
        self.translator.outbound(ask, flow, is_first)
    }

    /// A packet from outside, all cases. Of ICMP replies the source port is zero.
    #[cold]
    #[inline(never)]
    fn entering(&self, ask: Ask<'_, NatState>, flow: Flow4) -> Result<Verdict, Late> {
        self.translator.inbound(ask, flow)
    }
}

impl NetworkFunction for Nat {
    type State = NatState;

    fn state(&self, builder: &Builder) -> NatState {
        let config = self.config();
        let (sessions, ports, mappings) = self.translator.tables(builder);
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
                return self.plain::<OUTBOUND, false, false>(ask);
            }
            if port == self.common.inbound {
                return self.plain::<INBOUND, false, false>(ask);
            }
            if port == self.searching.outbound {
                return self.plain::<OUTBOUND, false, true>(ask);
            }
            if port == self.searching.inbound {
                return self.plain::<INBOUND, false, true>(ask);
            }
        }
        self.further::<false>(ask)
    }

    fn prefetch(&self, ask: &Ask<'_, NatState>) {
        self.translator.prefetch(ask);
    }

    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.translator.addresses()
    }

    fn observable(&self) -> Option<&dyn Observable<NatState>> {
        Some(self)
    }

    fn schema(&self) -> u64 {
        self.translator.schema()
    }
}

impl Observable<NatState> for Nat {
    /// To [`NEWS_QUESTION`] [`NatUse`], then the events since the last report, which are reported once. [`NatReportPart::read_all`] reads them.
    fn report(
        &self,
        state: &NatState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        Translator::report(state, question, range, out)
    }
}
