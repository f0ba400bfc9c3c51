//! Packets that need more than an edit: first ones of a session, hairpins, first fragments, packets to hosts whose
//! station is not configured. Imports `asterism_forwarding`, `asterism_function` and what lies beside it.

use core::net::Ipv4Addr;

use asterism_forwarding::{Connection, Direction, Ends, Onward, Report, Side, is_host};
use asterism_function::{
    Ask, At, Endpoint, Flow4, Grant, Late, Protocol, Reason, Space, TcpFlags, VacancyFor, Verdict,
};

use super::config::Filtering;
use super::session::{BY_INSIDE, BY_OUTSIDE, Session};
use super::{Nat, NatState, pcp};
use crate::mutant::{self, Mutant};
use asterism_translation::mutant::{self as binding_bugs, Mutant as Bug};

/// Addresses that are tried for a free port, beginning with the one that the inside address is paired with.
pub(super) const ADDRESSES_TRIED_MAX: u32 = 4;
/// Ports that are asked for so that one of the same parity is found (RFC 4787 REQ-4).
const PARITY_TRIES_MAX: u32 = 3;

/// Sessions of the same ends that are looked at for one that has not ended.
const NEXT_TRIED_MAX: usize = 3;

/// The session that a packet belongs to.
enum Belongs {
    /// It exists.
    To(At<Session, Connection>),
    /// It is to be opened, or opened again.
    ToNew(VacancyFor<Session>, Outside),
    /// None, and it opens none: it leaves by this outside endpoint of its host, and without a trace.
    ToNone(Endpoint),
}

/// The outside endpoint of a session to be opened.
pub(super) enum Outside {
    /// The binding that there is.
    Bound(Endpoint),
    /// A port of its own.
    Granted(Grant<Endpoint>),
}

impl Outside {
    pub(super) fn endpoint(&self) -> Endpoint {
        match self {
            Self::Bound(outside) => *outside,
            Self::Granted(grant) => grant.item(),
        }
    }
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

impl Nat {
    /// A packet from inside, all cases. Of ICMP queries the destination port is zero. `is_first`: its session was looked for and is
    /// not there.
    #[cold]
    #[inline(never)]
    pub(super) fn leaving(
        &self,
        ask: Ask<'_, NatState>,
        flow: Flow4,
        is_first: bool,
    ) -> Result<Verdict, Late> {
        let (inside, remote) = (flow.source(), flow.destination());
        // What is read below comes while the packet is judged, where it was not asked for ahead.
        self.approach_first(&ask, inside);
        if !self.is_inside_host(inside.address) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let hairpins = self.router.answers_for(remote.address);
        let is_query = remote.protocol == Protocol::ICMP;
        if self.router.is_interface(remote.address) && !hairpins || hairpins && is_query {
            return self.own(ask);
        }
        if hairpins && !self.config.hairpinning {
            return Ok(Verdict::Drop(Reason::Filtered));
        }
        if !is_host(remote.address) {
            return Ok(Verdict::Drop(Reason::NoRoute));
        }
        if !hairpins {
            match self.router.side_of(remote.address) {
                Some(Side::Outside) => {}
                Some(Side::Inside) => return self.between_insides(ask),
                None => {
                    let report = Report::NetworkUnreachable;
                    return self.router.report(ask, report, Reason::NoRoute);
                }
            }
        }
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let ends = (inside, remote, hairpins);
        let belongs = match self.belongs(&ask, ends, flags, is_first)? {
            Ok(belongs) => belongs,
            Err(Reason::NoBinding) => return Ok(Verdict::Drop(Reason::NoBinding)),
            Err(reason) => return self.router.report(ask, Report::Prohibited, reason),
        };
        let outside = match &belongs {
            Belongs::To(at) => at.row.outside(),
            Belongs::ToNew(_, outside) => outside.endpoint(),
            Belongs::ToNone(outside) => *outside,
        };
        let target = if hairpins {
            Some(self.target(&ask, outside, remote, true)?)
        } else {
            None
        };
        let destination = match target.as_ref().map(Target::inside) {
            None => None,
            Some(Ok(endpoint)) => Some(endpoint),
            Some(Err(reason)) => return Ok(Verdict::Drop(reason)),
        };
        let onward = match destination {
            Some(inside) => Onward::routed(Side::Inside, inside.address),
            None => Onward::routed(Side::Outside, remote.address),
        };
        let (census, arrived_us) = (ask.ports.space().census().cloned(), ask.arrived_us());
        self.router.forward(ask, onward, |act| {
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
                    if let Some(census) = &census {
                        census.opened(vacancy.row(), arrived_us);
                    }
                    act.sessions.fill(vacancy, connection);
                }
                Belongs::ToNone(_) => {}
            }
            if let Some(Target::Session(at)) = target {
                let connection = at.value.after(flags, Direction::Inbound);
                act.sessions.update(&at, connection);
            }
            act.packet.set_source(outside);
            if let Some(destination) = destination {
                act.packet.set_destination(destination);
            }
        })
    }

    /// Whether a packet from inside is to an inside host by its own address.
    #[cold]
    pub(super) fn stays_inside(&self, ask: &Ask<'_, NatState>) -> bool {
        let destination = ask.packet().ipv4_destination();
        destination.is_some_and(|to| self.is_inside_host(to) && !self.router.answers_for(to))
    }

    /// A packet between two inside links: no translation.
    #[cold]
    pub(super) fn between_insides(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        let packet = ask.packet();
        let (Some(source), Some(destination)) = (packet.ipv4_source(), packet.ipv4_destination())
        else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        if !self.is_inside_host(source) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let onward = Onward::routed(Side::Inside, destination);
        self.router.forward(ask, onward, |_| {})
    }

    /// A packet from outside, all cases. Of ICMP replies the source port is zero.
    #[cold]
    #[inline(never)]
    pub(super) fn entering(&self, ask: Ask<'_, NatState>, flow: Flow4) -> Result<Verdict, Late> {
        let (remote, outside) = (flow.source(), flow.destination());
        if !self.router.answers_for(outside.address) {
            return if self.router.is_interface(outside.address) {
                self.own(ask)
            } else {
                Ok(Verdict::Drop(Reason::NotForUs))
            };
        }
        if !self.is_outside_host(remote.address) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let target = self.target(&ask, remote, outside, false)?;
        let inside = match target.inside() {
            Ok(inside) => inside,
            Err(reason) => return Ok(Verdict::Drop(reason)),
        };
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let vacancy = match &target {
            Target::Session(at) if at.value.reopens(flags) => ask.sessions.vacancy()?,
            _ => None,
        };
        let onward = Onward::routed(Side::Inside, inside.address);
        self.router.forward(ask, onward, |act| {
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
            act.packet.set_destination(inside);
        })
    }

    /// The session of a packet from inside, or what it takes to open one.
    fn belongs(
        &self,
        ask: &Ask<'_, NatState>,
        (inside, remote, hairpins): (Endpoint, Endpoint, bool),
        flags: TcpFlags,
        is_first: bool,
    ) -> Result<Result<Belongs, Reason>, Late> {
        let opens = |outside: Outside| {
            let session = Session::new(inside, remote, outside.endpoint(), hairpins);
            let vacancy = ask.sessions.vacancy_for(session)?;
            Ok(vacancy.map(|vacancy| Belongs::ToNew(vacancy, outside)))
        };
        let known = if is_first {
            None
        } else {
            ask.sessions.by_left(&Ends::between(inside, remote))?
        };
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
            let opened = opens(Outside::Bound(at.row.outside()))?;
            return Ok(Ok(opened.unwrap_or(Belongs::To(at))));
        }
        if inside.protocol == Protocol::TCP && !flags.contains(TcpFlags::SYN) {
            // Its connection was opened before; another instance's word of it may be on the way. A session opened now
            // would have another outside port, and break it.
            ask.ports.settled_by_all()?;
        }
        if flags.contains(TcpFlags::RST) {
            // What its binding let in has no session, and may have been refused.
            let bound = self.bound(ask, inside)?;
            return Ok(bound.map(Belongs::ToNone).ok_or(Reason::NoBinding));
        }
        let outside = match self.bind(ask, inside, inside.port)? {
            Ok(outside) => outside,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(opens(outside)?.ok_or(Reason::TableFull))
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
    /// address that the inside address is paired with (RFC 4787 REQ-1 to REQ-4), the `wished` one where it is free. Or why there
    /// is none.
    pub(super) fn bind(
        &self,
        ask: &Ask<'_, NatState>,
        inside: Endpoint,
        wished: u16,
    ) -> Result<Result<Outside, Reason>, Late> {
        let bound = self.bound(ask, inside)?;
        if let Some(reason) = self.refuses(ask, inside, bound.is_some()) {
            return Ok(Err(reason));
        }
        if let Some(outside) = bound {
            return Ok(Ok(Outside::Bound(outside)));
        }
        if self.config.blocks.is_some() {
            let granted = self.grant_in_block(ask, inside)?;
            return Ok(granted.map(Outside::Granted));
        }
        let space = ask.ports.space();
        let items = space.items().max(1);
        let (pool, paired) = self.paired(ask, inside);
        let addresses = pool.len() as u32;
        for address in 0..addresses.min(ADDRESSES_TRIED_MAX) {
            let shelf = space.shelf(
                pool[((paired + address) % addresses) as usize],
                inside.protocol,
            );
            let wish = space.wish(shelf, wished);
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
                let keeps_parity = (grant.item().port ^ wished) & 1 == 0;
                granted = Some(grant);
                if keeps_parity {
                    break;
                }
            }
            if let Some(granted) = granted {
                return Ok(Ok(Outside::Granted(granted)));
            }
        }
        Ok(Err(Reason::PortsExhausted))
    }

    /// The outside endpoint that an inside endpoint has: a forward's, or that of any of its sessions.
    pub(super) fn bound(
        &self,
        ask: &Ask<'_, NatState>,
        inside: Endpoint,
    ) -> Result<Option<Endpoint>, Late> {
        if let Some(outside) = self.forwarded(inside) {
            return Ok(Some(outside));
        }
        if binding_bugs::active(Bug::BindingNotReused) {
            return Ok(None);
        }
        let session = ask.sessions.any_of(BY_INSIDE, &inside)?;
        Ok(session.map(|session| session.row.outside()))
    }

    /// The outside endpoint that the operator forwards to an inside endpoint.
    pub(super) fn forwarded(&self, inside: Endpoint) -> Option<Endpoint> {
        let forwards = &self.forwards_by_inside;
        let found = forwards.binary_search_by_key(&inside, |forward| forward.0);
        found.ok().map(|place| forwards[place].1)
    }

    /// Who gets a packet from `remote` to `outside`; `hairpins` says that it came from inside, and `remote` is what its sender is
    /// seen by. Late where another instance may have opened the session and its word is still on the way.
    fn target(
        &self,
        ask: &Ask<'_, NatState>,
        remote: Endpoint,
        outside: Endpoint,
        hairpins: bool,
    ) -> Result<Target, Late> {
        let key = Ends::between(without_port_of_query(remote), outside);
        let key = if hairpins { key.unseen() } else { key };
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
            // Who asked for a mapping wants to hear of anybody (RFC 6887 §11.3).
            _ if self.config.port_control.is_some()
                && !binding_bugs::active(Bug::MappingFiltered)
                && sessions.by_right(&pcp::mapped(outside))?.is_some() =>
            {
                true
            }
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

    /// Whether an address is that of an inside host: of its packets, or of those to it.
    pub(super) fn is_inside_host(&self, address: Ipv4Addr) -> bool {
        is_host(address)
            && self.router.side_of(address) == Some(Side::Inside)
            && !self.router.is_interface(address)
    }

    /// Whether a packet from outside may have this source.
    pub(super) fn is_outside_host(&self, address: Ipv4Addr) -> bool {
        is_host(address)
            && self.router.side_of(address) != Some(Side::Inside)
            && !self.router.answers_for(address)
            && !self.router.is_interface(address)
    }
}

/// Sessions of ICMP queries have no remote port.
pub(super) fn without_port_of_query(remote: Endpoint) -> Endpoint {
    if remote.protocol == Protocol::ICMP {
        Endpoint::new(remote.address, 0, remote.protocol)
    } else {
        remote
    }
}
