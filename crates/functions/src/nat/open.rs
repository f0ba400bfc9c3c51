//! Packets that need more than an edit: first ones of a session, hairpins, first fragments, packets to hosts whose
//! station is not configured. Imports `asterism_function` and what lies beside it.

use core::ops::ControlFlow;

use asterism_function::{
    Act, Ask, At, Cut, Endpoint, Flow4, Fragment, Grant, Late, Packet, PortNumber, Protocol,
    Reason, Space, TcpFlags, Vacancy, Verdict, build,
};

use super::config::{Filtering, Side, is_host};
use super::connection::{Connection, Direction};
use super::fragment::{FragmentKey, Fragmented};
use super::neighbour::NextHop;
use super::report::Report;
use super::route::{Link, TooLong};
use super::session::{BY_INSIDE, BY_OUTSIDE, Ends, Session};
use super::{Nat, NatState};
use crate::mutant::{self, Mutant};

/// Addresses that are tried for a free port, beginning with the one that the inside address is paired with.
const ADDRESSES_TRIED_MAX: u32 = 4;
/// Ports that are asked for so that one of the same parity is found (RFC 4787 REQ-4).
const PARITY_TRIES_MAX: u32 = 3;

/// Sessions of the same ends that are looked at for one that has not ended.
const NEXT_TRIED_MAX: usize = 3;

/// The session that a packet belongs to.
enum Belongs {
    /// It exists.
    To(At<Session, Connection>),
    /// It is to be opened, or opened again.
    ToNew(Vacancy, Outside),
}

/// The outside endpoint of a session to be opened.
enum Outside {
    /// The binding that there is.
    Bound(Endpoint),
    /// A port of its own.
    Granted(Grant<Endpoint>),
}

/// Who gets a packet to an outside endpoint.
enum Target {
    /// The inside host of this session.
    Session(At<Session, Connection>),
    /// The inside host of the binding, which lets this remote endpoint in.
    Binding(Endpoint),
    /// Nobody.
    Nobody(Reason),
}

impl Target {
    fn inside(&self) -> Result<Endpoint, Reason> {
        match self {
            Target::Session(at) => Ok(at.row.inside()),
            Target::Binding(inside) => Ok(*inside),
            Target::Nobody(reason) => Err(*reason),
        }
    }
}

/// How a packet that may leave does so.
pub(super) struct Departure<'n> {
    link: &'n Link,
    hop: NextHop,
    /// The packet is a first fragment, to be remembered.
    fragment: Option<(FragmentKey, Vacancy)>,
    /// The packet is too long for the link and may be cut.
    cut: Option<Cut>,
    now: u32,
}

impl Nat {
    /// A packet from inside, all cases. Of ICMP queries the destination port is zero.
    #[cold]
    #[inline(never)]
    pub(super) fn leaving(&self, ask: Ask<'_, NatState>, flow: Flow4) -> Result<Verdict, Late> {
        let (inside, remote) = (flow.source(), flow.destination());
        if !self.is_inside_host(inside) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let hairpins = self.is_outside_address(remote.address);
        let is_query = remote.protocol == Protocol::ICMP;
        if self.is_interface(remote) && !hairpins || hairpins && is_query {
            return self.own(ask);
        }
        if hairpins && !self.config.hairpinning {
            return Ok(Verdict::Drop(Reason::Filtered));
        }
        if !is_host(remote.address) {
            return Ok(Verdict::Drop(Reason::NoRoute));
        }
        if !hairpins {
            match self.side_of(remote.address) {
                Some(Side::Outside) => {}
                Some(Side::Inside) => return self.route(ask, &self.inside, remote),
                None => return self.report(ask, Report::NetworkUnreachable, Reason::NoRoute),
            }
        }
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let belongs = match self.belongs(&ask, inside, remote, flags)? {
            Ok(belongs) => belongs,
            Err(Reason::NoBinding) => return Ok(Verdict::Drop(Reason::NoBinding)),
            Err(reason) => return self.report(ask, Report::Prohibited, reason),
        };
        let outside = match &belongs {
            Belongs::To(at) => at.row.outside(),
            Belongs::ToNew(_, Outside::Bound(outside)) => *outside,
            Belongs::ToNew(_, Outside::Granted(grant)) => grant.item(),
        };
        let target = if hairpins {
            Some(self.target(&ask, outside, remote)?)
        } else {
            None
        };
        let destination = match target.as_ref().map(Target::inside) {
            None => None,
            Some(Ok(endpoint)) => Some(endpoint),
            Some(Err(reason)) => return Ok(Verdict::Drop(reason)),
        };
        let link = if hairpins {
            &self.inside
        } else {
            &self.outside
        };
        let towards = destination.unwrap_or(remote);
        let (ask, departure) = match self.departure(ask, link, towards)? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        match belongs {
            Belongs::To(at) => {
                let connection = at.value.after(flags, Direction::Outbound);
                act.sessions.update(&at, connection);
            }
            Belongs::ToNew(vacancy, port) => {
                if let Outside::Granted(grant) = port
                    && !mutant::active(Mutant::PortNotTaken)
                {
                    act.ports.take(grant);
                }
                let connection = Connection::new(remote).after(flags, Direction::Outbound);
                let session = Session::new(inside, remote, outside, hairpins);
                act.sessions.insert(vacancy, session, connection);
            }
        }
        if let Some(Target::Session(at)) = target {
            let connection = at.value.after(flags, Direction::Inbound);
            act.sessions.update(&at, connection);
        }
        Ok(departure.leave(act, Some(outside), destination))
    }

    /// A packet from outside, all cases. Of ICMP replies the source port is zero.
    #[cold]
    #[inline(never)]
    pub(super) fn entering(&self, ask: Ask<'_, NatState>, flow: Flow4) -> Result<Verdict, Late> {
        let (remote, outside) = (flow.source(), flow.destination());
        if !self.is_outside_address(outside.address) {
            return if self.is_interface(outside) {
                self.own(ask)
            } else {
                Ok(Verdict::Drop(Reason::NotForUs))
            };
        }
        if !self.is_outside_host(remote) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let target = self.target(&ask, remote, outside)?;
        let inside = match target.inside() {
            Ok(inside) => inside,
            Err(reason) => return Ok(Verdict::Drop(reason)),
        };
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let vacancy = match &target {
            Target::Session(at) if at.value.reopens(flags) => ask.sessions.vacancy()?,
            _ => None,
        };
        let (ask, departure) = match self.departure(ask, &self.inside, inside)? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        match (target, vacancy) {
            (Target::Session(at), Some(vacancy)) => {
                let connection = Connection::new(remote).after(flags, Direction::Inbound);
                act.sessions.insert(vacancy, at.row, connection);
            }
            (Target::Session(at), None) => {
                let connection = at.value.after(flags, Direction::Inbound);
                act.sessions.update(&at, connection);
            }
            // A binding is refreshed by its own sessions only: no outsider keeps it alive (RFC 4787 REQ-6).
            (Target::Binding(_) | Target::Nobody(_), _) => {}
        }
        Ok(departure.leave(act, None, Some(inside)))
    }

    /// A packet between two inside links: no translation.
    fn route(
        &self,
        ask: Ask<'_, NatState>,
        link: &Link,
        destination: Endpoint,
    ) -> Result<Verdict, Late> {
        Ok(match self.departure(ask, link, destination)? {
            ControlFlow::Continue((ask, departure)) => departure.leave(ask.act()?, None, None),
            ControlFlow::Break(verdict) => verdict,
        })
    }

    /// The session of a packet from inside, or what it takes to open one.
    fn belongs(
        &self,
        ask: &Ask<'_, NatState>,
        inside: Endpoint,
        remote: Endpoint,
        flags: TcpFlags,
    ) -> Result<Result<Belongs, Reason>, Late> {
        let known = ask.sessions.by_left(&Ends::between(inside, remote))?;
        if let Some(at) = known {
            if !at.value.ended() {
                return Ok(Ok(Belongs::To(at)));
            }
            if let Some(next) = self.next_of(ask, &at)? {
                return Ok(Ok(Belongs::To(next)));
            }
            if !at.value.reopens(flags) {
                return Ok(Ok(Belongs::To(at)));
            }
            return Ok(Ok(match ask.sessions.vacancy()? {
                Some(vacancy) => Belongs::ToNew(vacancy, Outside::Bound(at.row.outside())),
                None => Belongs::To(at),
            }));
        }
        if inside.protocol == Protocol::TCP && !flags.contains(TcpFlags::SYN) {
            // Its connection was opened before; another instance's word of it may be on the way. A session opened now
            // would have another outside port, and break it.
            ask.ports.settled_by_all()?;
        }
        if flags.contains(TcpFlags::RST) {
            return Ok(Err(Reason::NoBinding));
        }
        let Some(outside) = self.bind(ask, inside)? else {
            return Ok(Err(Reason::PortsExhausted));
        };
        Ok(match ask.sessions.vacancy()? {
            Some(vacancy) => Ok(Belongs::ToNew(vacancy, outside)),
            None => Err(Reason::TableFull),
        })
    }

    /// The next connection between the ends of one that ended, by another outside port: an instance that did not yet know
    /// of the first opened it. The table finds by these ends only the one that its order prefers.
    fn next_of(
        &self,
        ask: &Ask<'_, NatState>,
        ended: &At<Session, Connection>,
    ) -> Result<Option<At<Session, Connection>>, Late> {
        let (inside, remote) = (ended.row.inside(), ended.row.remote());
        let mut passed = [ended.row.outside(); NEXT_TRIED_MAX + 1];
        for tried in 1..=NEXT_TRIED_MAX {
            let other = ask.sessions.any_of_where(BY_INSIDE, &inside, |row| {
                row.remote() == remote && !passed.contains(&row.outside())
            })?;
            match other {
                Some(other) if other.value.ended() => passed[tried] = other.row.outside(),
                other => return Ok(other),
            }
        }
        Ok(None)
    }

    /// The outside endpoint for a new session of an inside endpoint: its binding, else a port of its own on the
    /// address that the inside address is paired with (RFC 4787 REQ-1 to REQ-4).
    fn bind(&self, ask: &Ask<'_, NatState>, inside: Endpoint) -> Result<Option<Outside>, Late> {
        if let Some(outside) = self.bound(ask, inside)? {
            return Ok(Some(Outside::Bound(outside)));
        }
        let space = ask.ports.space();
        let (addresses, items) = (space.addresses(), space.items().max(1));
        let paired = ask.choose(inside.address.to_bits().into(), addresses);
        for address in 0..addresses.min(ADDRESSES_TRIED_MAX) {
            let shelf = space.shelf((paired + address) % addresses, inside.protocol);
            let wish = space.wish(shelf, inside.port);
            let tries = if inside.protocol == Protocol::UDP {
                PARITY_TRIES_MAX
            } else {
                1
            };
            let mut granted = None;
            for try_number in 0..tries {
                // Where the port itself is taken, any of its parity will do: its neighbours are likely taken too.
                let step = match try_number {
                    0 => 0,
                    _ => ask.random(u64::from(try_number)) as u32 % items / 2 * 2,
                };
                let Some(grant) = ask.ports.grant(shelf, (wish + step) % items)? else {
                    break;
                };
                let keeps_parity = (grant.item().port ^ inside.port) & 1 == 0;
                granted = Some(grant);
                if keeps_parity {
                    break;
                }
            }
            if granted.is_some() {
                return Ok(granted.map(Outside::Granted));
            }
        }
        Ok(None)
    }

    /// The outside endpoint that an inside endpoint has: a forward's, or that of any of its sessions.
    pub(super) fn bound(
        &self,
        ask: &Ask<'_, NatState>,
        inside: Endpoint,
    ) -> Result<Option<Endpoint>, Late> {
        let forwards = &self.forwards_by_inside;
        if let Ok(place) = forwards.binary_search_by_key(&inside, |forward| forward.0) {
            return Ok(Some(forwards[place].1));
        }
        if mutant::active(Mutant::BindingNotReused) {
            return Ok(None);
        }
        let session = ask.sessions.any_of(BY_INSIDE, &inside)?;
        Ok(session.map(|session| session.row.outside()))
    }

    /// Who gets a packet from `remote` to `outside`. Late where another instance may have opened the session and its
    /// word is still on the way.
    fn target(
        &self,
        ask: &Ask<'_, NatState>,
        remote: Endpoint,
        outside: Endpoint,
    ) -> Result<Target, Late> {
        let key = Ends::between(without_port_of_query(remote), outside);
        if let Some(session) = ask.sessions.by_right(&key)? {
            return Ok(Target::Session(session));
        }
        let forwards = &self.forwards_by_outside;
        if let Ok(place) = forwards.binary_search_by_key(&outside, |forward| forward.0) {
            return Ok(Target::Binding(forwards[place].1));
        }
        ask.ports.settled(&outside)?;
        let sessions = &ask.sessions;
        let Some(session) = sessions.any_of(BY_OUTSIDE, &outside)? else {
            return Ok(Target::Nobody(Reason::NoBinding));
        };
        let lets_in = match self.config.filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => sessions
                .any_of_where(BY_OUTSIDE, &outside, |row| {
                    row.remote().address == remote.address
                })?
                .is_some(),
            Filtering::AddressAndPortDependent => false,
        };
        Ok(if lets_in {
            Target::Binding(session.row.inside())
        } else {
            Target::Nobody(Reason::Filtered)
        })
    }

    /// Whether and how a packet leaves by `link` for `towards`. If it does not, all that is due was done.
    pub(super) fn departure<'a, 'n>(
        &'n self,
        ask: Ask<'a, NatState>,
        link: &'n Link,
        towards: Endpoint,
    ) -> Result<ControlFlow<Verdict, (Ask<'a, NatState>, Departure<'n>)>, Late> {
        if ask.packet().ttl().is_none_or(|ttl| ttl <= 1) {
            let verdict = self.report(ask, Report::TimeExceeded, Reason::TtlExceeded)?;
            return Ok(ControlFlow::Break(verdict));
        }
        let cut = match link.cut(ask.packet()) {
            Ok(cut) => cut,
            Err(TooLong) => return Ok(ControlFlow::Break(self.too_long(ask, link)?)),
        };
        let hop = self.next_hop(&ask, link, towards.address)?;
        match hop {
            NextHop::Unresolved(address) => {
                return Ok(ControlFlow::Break(self.resolve(ask, link, address)?));
            }
            NextHop::Unreachable => {
                return Ok(ControlFlow::Break(Verdict::Drop(Reason::NoRoute)));
            }
            NextHop::Station(_) | NextHop::Ageing(_) => {}
        }
        let fragment = if ask.packet().layout().fragment() == Fragment::First {
            let key = FragmentKey::of(ask.packet());
            match (key, ask.fragments.vacancy()?) {
                (Some(key), Some(vacancy)) => Some((key, vacancy)),
                _ => return Ok(ControlFlow::Break(Verdict::Drop(Reason::TableFull))),
            }
        } else {
            None
        };
        let now = ask.now();
        let departure = Departure {
            link,
            hop,
            fragment,
            cut,
            now,
        };
        Ok(ControlFlow::Continue((ask, departure)))
    }

    /// A packet that is longer than the next link allows, and must not or cannot be cut.
    pub(super) fn too_long(&self, ask: Ask<'_, NatState>, link: &Link) -> Result<Verdict, Late> {
        if ask.packet().ipv4_dont_fragment() == Some(true) {
            let report = Report::TooBig(link.interface.mtu);
            return self.report(ask, report, Reason::PacketTooBig);
        }
        Ok(Verdict::Drop(Reason::PacketTooBig))
    }

    fn is_inside_host(&self, inside: Endpoint) -> bool {
        is_host(inside.address)
            && self.side_of(inside.address) == Some(Side::Inside)
            && !self.is_interface(inside)
    }

    /// Whether a packet from outside may have this source.
    pub(super) fn is_outside_host(&self, remote: Endpoint) -> bool {
        is_host(remote.address)
            && self.side_of(remote.address) != Some(Side::Inside)
            && !self.is_outside_address(remote.address)
            && !self.is_interface(remote)
    }

    fn is_interface(&self, endpoint: Endpoint) -> bool {
        endpoint.address == self.inside.interface.address
            || endpoint.address == self.outside.interface.address
    }
}

impl Departure<'_> {
    /// Edits the packet and sends it on.
    pub(super) fn leave(
        mut self,
        mut act: Act<'_, NatState>,
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Verdict {
        act.packet.decrement_ttl();
        if let Some(source) = source {
            act.packet.set_source(source);
        }
        if let Some(destination) = destination {
            act.packet.set_destination(destination);
        }
        if let Some((key, vacancy)) = self.fragment.take()
            && let (Some(source), Some(destination)) =
                (act.packet.ipv4_source(), act.packet.ipv4_destination())
        {
            let translated = Fragmented {
                source,
                destination,
            };
            act.fragments.insert(vacancy, key, translated);
        }
        self.hand_over(act)
    }

    /// Addresses the frame to the next hop.
    pub(super) fn hand_over(self, mut act: Act<'_, NatState>) -> Verdict {
        let interface = self.link.interface;
        let station = match self.hop {
            NextHop::Station(station) => station,
            NextHop::Ageing(known) => {
                let address = known.row.0;
                let mut asked = known.value;
                asked.asked = self.now;
                act.neighbours.update(&known, asked);
                act.emit(interface.port, |_, out| {
                    build::arp_request(interface.mac, interface.address, address, out)
                });
                known.value.mac
            }
            // `Nat::departure` ended these.
            NextHop::Unresolved(_) | NextHop::Unreachable => {
                return Verdict::Drop(Reason::NoRoute);
            }
        };
        act.packet.set_ethernet(interface.mac, station);
        match self.cut {
            Some(cut) => send_parts(&mut act, interface.port, &cut),
            None => Verdict::Forward(interface.port),
        }
    }
}

/// Sends the parts of a packet that is too long for the link, in order (RFC 4787 REQ-13a).
pub(super) fn send_parts(act: &mut Act<'_, NatState>, port: PortNumber, cut: &Cut) -> Verdict {
    for part in 0..cut.count() {
        // What finds no room is counted by the engine, as `emission-overflow`.
        act.emit(port, |packet, out| cut.write(packet.bytes(), part, out));
    }
    Verdict::Consumed
}

/// Sessions of ICMP queries have no remote port.
pub(super) fn without_port_of_query(remote: Endpoint) -> Endpoint {
    if remote.protocol == Protocol::ICMP {
        Endpoint::new(remote.address, 0, remote.protocol)
    } else {
        remote
    }
}

/// Bytes of the IP packet.
pub(crate) fn length_of(packet: &Packet<'_>) -> usize {
    packet.layout().end() - packet.layout().network_offset()
}
