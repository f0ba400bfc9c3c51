//! A router between two links: admits packets and forwards them. Read `link.rs` next.

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_function::{
    Act, Ask, Cut, Flow4, Fragment, IcmpKind, Late, MacAddress, Network, PortNumber, Reason, Tick,
    Vacancy, Verdict, build,
};

use crate::error::embedded;
use crate::fragment::{FragmentContext, FragmentKey};
use crate::interface::{Interface, Route, Side};
use crate::link::{ForwardingMode, Link, TooLong};
use crate::neighbour::{NextHop, next_hop};
use crate::report::{Report, own_identification};
use crate::state::Forwards;
use crate::tunnel::Outer;

/// What a [`Router`] is made of. Its author checks it: addresses are [hosts'](crate::is_host), prefixes at most 32 bits
/// long, routes at most [`ROUTES_MAX`](crate::ROUTES_MAX).
#[derive(Clone, Debug)]
pub struct RouterConfig<'c> {
    /// The one link.
    pub inside: Interface,
    /// The other.
    pub outside: Interface,
    /// Routes beside the two links' own prefixes.
    pub routes: &'c [Route],
    /// Ethernet addresses that need not be asked for by ARP.
    pub neighbours: &'c [(Ipv4Addr, MacAddress)],
    /// Addresses beside the interfaces' own that are ours: answered for by ARP on the outside link alone.
    pub answers_for: Vec<Ipv4Addr>,
    /// Whether ICMP echo requests to own addresses are answered (RFC 1812 §4.3.3.6).
    pub answers_echo: bool,
    /// ICMP errors that are sent per second at most, each side and instance on its own (RFC 1812 §4.3.2.8).
    pub icmp_errors_per_second: u16,
}

/// A router between two links (RFC 1812).
#[derive(Debug)]
pub struct Router {
    /// The one link.
    pub inside: Link,
    /// The other.
    pub outside: Link,
    /// In order.
    answered: Vec<Ipv4Addr>,
    pub(crate) answers_echo: bool,
    pub(crate) icmp_errors_per_second: u16,
}

/// What came in that is for the function to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketClass {
    /// A packet of a flow that is not ICMP, with its transport header.
    Flow(Flow4),
    /// An ICMP query. Its source has the identifier, its destination port zero (RFC 5508 §3.1).
    Query(Flow4),
    /// An ICMP reply. Its destination has the identifier, its source port zero.
    Reply(Flow4),
    /// An ICMP error about a packet of this flow, which came from where the error goes.
    Error(Flow4),
}

/// What [`Router::admit`] makes of a packet: its verdict, or what the function is to judge.
pub type Admission<'a, S> = ControlFlow<Verdict, (Ask<'a, S>, Side, PacketClass)>;

/// Where a packet goes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Egress {
    /// The link that it leaves by.
    pub side: Side,
    /// The host that it is led to: its destination when it leaves, or the far end of a tunnel.
    pub towards: Ipv4Addr,
    /// How.
    pub mode: ForwardingMode,
}

impl Egress {
    /// By the link of a side towards a host.
    #[must_use]
    pub const fn new(side: Side, towards: Ipv4Addr, mode: ForwardingMode) -> Self {
        Self {
            side,
            towards,
            mode,
        }
    }

    /// As a router does it.
    #[must_use]
    pub const fn routed(side: Side, towards: Ipv4Addr) -> Self {
        Self::new(side, towards, ForwardingMode::Routed)
    }
}

/// How a packet that may leave does so.
#[derive(Debug)]
struct Departure<'n> {
    link: &'n Link,
    egress: Egress,
    hop: NextHop,
    /// The packet is too long for the link and may be cut.
    cut: Option<Cut>,
    /// The packet is a first fragment, to be remembered.
    fragment: Option<(FragmentKey, Vacancy)>,
    /// Of the outer header of a tunnel.
    identification: [u8; 2],
    now: Tick,
}

impl Router {
    /// A router of a configuration. Allocates; for set-up.
    #[must_use]
    pub fn new(config: RouterConfig<'_>) -> Self {
        let link = |interface, side| Link::new(interface, side, config.routes, config.neighbours);
        let mut answered = config.answers_for;
        answered.sort_unstable();
        Self {
            inside: link(config.inside, Side::Inside),
            outside: link(config.outside, Side::Outside),
            answered,
            answers_echo: config.answers_echo,
            icmp_errors_per_second: config.icmp_errors_per_second,
        }
    }

    /// The side that a port is of.
    #[must_use]
    pub fn side(&self, port: PortNumber) -> Option<Side> {
        if port == self.inside.interface.port {
            Some(Side::Inside)
        } else if port == self.outside.interface.port {
            Some(Side::Outside)
        } else {
            None
        }
    }

    /// The link of a side.
    #[must_use]
    pub fn link(&self, side: Side) -> &Link {
        match side {
            Side::Inside => &self.inside,
            Side::Outside => &self.outside,
        }
    }

    /// Which side an address belongs to, by the longest route to it; `None` without a route. Costs a walk through the
    /// routes of both links.
    #[must_use]
    pub fn side_of(&self, address: Ipv4Addr) -> Option<Side> {
        match (
            self.inside.specificity(address),
            self.outside.specificity(address),
        ) {
            (None, None) => None,
            (inside, outside) if inside > outside => Some(Side::Inside),
            _ => Some(Side::Outside),
        }
    }

    /// Whether an address is one that the function answers for beside its interfaces' own.
    #[must_use]
    pub fn answers_for(&self, address: Ipv4Addr) -> bool {
        self.answered.binary_search(&address).is_ok()
    }

    /// Whether an address is that of an interface.
    #[must_use]
    pub fn is_interface(&self, address: Ipv4Addr) -> bool {
        address == self.inside.interface.address || address == self.outside.interface.address
    }

    /// Takes a packet in. What is the router's own business is done here, with a verdict: frames for others, ARP, later
    /// fragments, damaged ICMP errors, and what is not IPv4. Late where `fragments` or `neighbours` is.
    pub fn admit<'a, S: Forwards>(&self, ask: Ask<'a, S>) -> Result<Admission<'a, S>, Late> {
        let dropped = |reason| Ok(ControlFlow::Break(Verdict::Drop(reason)));
        let Some(side) = self.side(ask.port()) else {
            return dropped(Reason::NotForUs);
        };
        let packet = ask.packet();
        match packet.layout().network() {
            Network::Ipv4 if !self.link(side).takes(packet) => return dropped(Reason::NotForUs),
            Network::Ipv4 => {}
            Network::Arp => return self.arp(ask, side).map(ControlFlow::Break),
            Network::Ipv6 | Network::Other => return dropped(Reason::UnsupportedProtocol),
        }
        if packet.layout().fragment() == Fragment::Later {
            return self.later_fragment(ask).map(ControlFlow::Break);
        }
        let kind = packet.icmp_kind();
        let came = if kind == Some(IcmpKind::Error) {
            embedded(packet).map(PacketClass::Error)
        } else {
            packet
                .flow4()
                .map(|flow| PacketClass::of(flow, kind))
                .ok_or(Reason::UnsupportedProtocol)
        };
        match came {
            Ok(came) => Ok(ControlFlow::Continue((ask, side, came))),
            Err(reason) => dropped(reason),
        }
    }

    /// Forwards a packet. `edit` is called once it is sure that it leaves: it edits the packet and writes the function's
    /// state. Then the time to live, the Ethernet addresses, fragments and a tunnel's header are seen to. If it cannot
    /// leave, its sender gets an ICMP error where that is due, an unknown next hop is asked for, and the verdict is a drop:
    /// [`Reason::TtlExceeded`], [`Reason::PacketTooBig`], [`Reason::NoRoute`], [`Reason::TableFull`],
    /// [`Reason::IcmpLimited`].
    ///
    /// Late where `neighbours`, `fragments` or `errors` is. Costs a walk through the link's routes, and a probe of
    /// `neighbours` unless the station is configured.
    pub fn forward<S: Forwards>(
        &self,
        ask: Ask<'_, S>,
        egress: Egress,
        edit: impl FnOnce(&mut Act<'_, S>),
    ) -> Result<Verdict, Late> {
        let (ask, departure) = match self.departure(ask, egress)? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        edit(&mut act);
        Ok(departure.leave(act))
    }

    /// Whether and how a packet leaves. If it does not, all that is due was done.
    fn departure<'a, S: Forwards>(
        &self,
        ask: Ask<'a, S>,
        egress: Egress,
    ) -> Result<ControlFlow<Verdict, (Ask<'a, S>, Departure<'_>)>, Late> {
        let link = self.link(egress.side);
        let hops = egress.mode != ForwardingMode::Switched;
        if hops && ask.packet().ttl().is_none_or(|ttl| ttl <= 1) {
            let ended = self.report(ask, Report::TimeExceeded, Reason::TtlExceeded);
            return ended.map(ControlFlow::Break);
        }
        let cut = match link.cut(ask.packet(), egress.mode) {
            Ok(cut) => cut,
            Err(TooLong { most }) if ask.packet().ipv4_dont_fragment() == Some(true) => {
                let ended = self.report(ask, Report::TooBig(most), Reason::PacketTooBig);
                return ended.map(ControlFlow::Break);
            }
            Err(TooLong { .. }) => {
                return Ok(ControlFlow::Break(Verdict::Drop(Reason::PacketTooBig)));
            }
        };
        let hop = next_hop(ask.tables().neighbours, ask.now(), link, egress.towards)?;
        match hop {
            NextHop::Unresolved(address) => {
                return self.resolve(ask, link, address).map(ControlFlow::Break);
            }
            NextHop::Unreachable => {
                return Ok(ControlFlow::Break(Verdict::Drop(Reason::NoRoute)));
            }
            NextHop::Station(_) | NextHop::Ageing(_) => {}
        }
        let fragment = if ask.packet().layout().fragment() == Fragment::First {
            let room = self.room_for_parts(&ask)?;
            if room.is_none() {
                return Ok(ControlFlow::Break(Verdict::Drop(Reason::TableFull)));
            }
            room
        } else {
            None
        };
        let departure = Departure {
            link,
            egress,
            hop,
            cut,
            fragment,
            identification: match egress.mode {
                ForwardingMode::Tunnelled => own_identification(&ask),
                ForwardingMode::Routed | ForwardingMode::Switched => [0; 2],
            },
            now: ask.now(),
        };
        Ok(ControlFlow::Continue((ask, departure)))
    }
}

impl PacketClass {
    fn of(mut flow: Flow4, kind: Option<IcmpKind>) -> Self {
        match kind {
            None => Self::Flow(flow),
            Some(IcmpKind::Query) => {
                flow.destination_port = 0;
                Self::Query(flow)
            }
            Some(_) => {
                flow.source_port = 0;
                Self::Reply(flow)
            }
        }
    }
}

impl Departure<'_> {
    /// Sends an edited packet on.
    fn leave<S: Forwards>(mut self, mut act: Act<'_, S>) -> Verdict {
        if self.egress.mode != ForwardingMode::Switched {
            act.packet.decrement_ttl();
        }
        if let Some((key, vacancy)) = self.fragment.take()
            && let Some(lead) = S::FragmentContext::of(&act.packet, &self.egress)
        {
            S::writes(&mut act).fragments.insert(vacancy, key, lead);
        }
        let interface = self.link.interface;
        let station = match self.hop {
            NextHop::Station(station) => station,
            NextHop::Ageing(known) => {
                let asked = known.value.asked_at(self.now);
                S::writes(&mut act).neighbours.update(&known, asked);
                act.emit(interface.port, |_, out| {
                    build::arp_request(interface.mac, interface.address, known.row.0, out)
                });
                known.value.mac
            }
            // `Router::departure` ended these.
            NextHop::Unresolved(_) | NextHop::Unreachable => {
                return Verdict::Drop(Reason::NoRoute);
            }
        };
        act.packet.set_ethernet(interface.mac, station);
        self.hand_over(act)
    }

    /// Hands an addressed packet to the port: whole, in parts (RFC 4787 REQ-13a), or in a tunnel.
    fn hand_over<S: Forwards>(self, mut act: Act<'_, S>) -> Verdict {
        let interface = self.link.interface;
        let parts = self.cut.as_ref().map_or(1, Cut::count);
        // What finds no room is counted by the engine, as `emission-overflow`.
        if self.egress.mode == ForwardingMode::Tunnelled {
            let outer = Outer {
                source: interface.address,
                destination: self.egress.towards,
                identification: self.identification,
            };
            for part in 0..parts {
                act.emit(interface.port, |packet, out| {
                    outer.around(packet, self.cut.as_ref(), part, out)
                });
            }
            return Verdict::Consumed;
        }
        let Some(cut) = self.cut else {
            return Verdict::Forward(interface.port);
        };
        for part in 0..parts {
            act.emit(interface.port, |packet, out| {
                cut.write(packet.bytes(), part, out)
            });
        }
        Verdict::Consumed
    }
}
