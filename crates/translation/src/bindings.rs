//! Bindings (RFC 4787): the outside endpoint of an inside endpoint, the reverse, and the reservations needed to open a
//! session.
//!
//! A binding is the outside endpoint of any session of its inside endpoint; so it needs no record of its own (`session.rs`).

use core::net::Ipv4Addr;

use asterism_forwarding::{Direction, Ends, Progress, Segment, Side, is_host};
use asterism_function::{
    Ask, At, Endpoint, Grant, Late, Protocol, Reason, Space, Stop, TcpFlags, VacancyFor,
};

use crate::config::Filtering;
use crate::mutant::{self, Mutant};
use crate::pcp;
use crate::session::{BY_INSIDE, BY_OUTSIDE, Session};
use crate::state::{Translates, Translations};
use crate::translator::Translator;

/// Addresses that are tried for a free port, beginning with the one that the inside address is paired with.
pub(crate) const ADDRESSES_TRIED_MAX: u32 = 4;
/// Ports that are asked for so that one of the same parity is found (RFC 4787 REQ-4).
const PARITY_TRIES_MAX: u32 = 3;
/// Ports that a store is asked for one packet, at most.
const CONFIRMED_MAX: u64 = 8;
/// The first of the packet's random numbers by which they are chosen.
const CONFIRMED_DRAW: u64 = 1 << 41;

/// Sessions of the same ends that are looked at for one that has not ended.
const NEXT_TRIED_MAX: usize = 3;

/// The session that a packet belongs to.
#[derive(Debug)]
pub(crate) enum SessionLookup {
    /// It exists.
    To(At<Session, Progress>),
    /// It is to be opened, or opened again.
    ToNew(VacancyFor<Session>, Outside),
    /// None, and it opens none: it leaves by this outside endpoint of its host, and without a trace.
    ToNone(Endpoint),
}

/// The outside endpoint of a session to be opened.
#[derive(Debug)]
pub(crate) enum Outside {
    /// The binding that there is.
    Bound(Endpoint),
    /// A port of its own.
    Granted(Grant<Endpoint>),
}

impl SessionLookup {
    /// The outside endpoint that the packet leaves by.
    pub(crate) fn outside(&self) -> Endpoint {
        match self {
            Self::To(at) => at.row.outside(),
            Self::ToNew(_, outside) => outside.endpoint(),
            Self::ToNone(outside) => *outside,
        }
    }
}

impl Outside {
    pub(crate) fn endpoint(&self) -> Endpoint {
        match self {
            Self::Bound(outside) => *outside,
            Self::Granted(grant) => grant.item(),
        }
    }
}

/// Who gets a packet to an outside endpoint.
#[derive(Debug)]
pub(crate) enum Target {
    /// The inside host of this session.
    Session(At<Session, Progress>),
    /// The inside host of the binding, which lets this remote endpoint in.
    Binding(Endpoint),
    /// Nobody.
    Nobody(Reason),
}

impl Target {
    pub(crate) fn inside(&self) -> Result<Endpoint, Reason> {
        match self {
            Target::Session(at) => Ok(at.row.inside()),
            Target::Binding(inside) => Ok(*inside),
            Target::Nobody(reason) => Err(*reason),
        }
    }
}

impl Translator {
    /// The session of a packet from inside, or what it takes to open one.
    pub(crate) fn belongs<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        (inside, remote, hairpins): (Endpoint, Endpoint, bool),
        segment: &Segment,
        is_first: bool,
    ) -> Result<SessionLookup, Stop> {
        let flags = segment.flags;
        let Translations {
            sessions, ports, ..
        } = ask.translations();
        let opens = |outside: Outside| -> Result<_, Late> {
            let session = Session::new(inside, remote, outside.endpoint(), hairpins);
            let vacancy = sessions.vacancy_for(session)?;
            Ok(vacancy.map(|vacancy| SessionLookup::ToNew(vacancy, outside)))
        };
        let known = if is_first {
            None
        } else {
            let found = sessions.by_left(&Ends::between(inside, remote));
            if found.is_err() && flags.contains(TcpFlags::SYN) {
                // The first segment of a connection mostly has no session yet.
                self.ask_ahead(ask, inside)?;
            }
            found?
        };
        if let Some(at) = known {
            if !at.value.ended() {
                // An inside host that opens another connection knows nothing of this one any more. Nobody outside can say so.
                let begins = flags.contains(TcpFlags::SYN)
                    && !at.value.is_begun_by(segment, Direction::Outbound);
                let opened = match begins {
                    true => opens(Outside::Bound(at.row.outside()))?,
                    false => None,
                };
                return Ok(opened.unwrap_or(SessionLookup::To(at)));
            }
            if let Some(next) = self.next_of(ask, &at)? {
                return Ok(SessionLookup::To(next));
            }
            if !at.value.reopens(flags) {
                return Ok(SessionLookup::To(at));
            }
            let opened = opens(Outside::Bound(at.row.outside()))?;
            return Ok(opened.unwrap_or(SessionLookup::To(at)));
        }
        self.ask_ahead(ask, inside)?;
        if inside.protocol == Protocol::TCP && !flags.contains(TcpFlags::SYN) {
            // Its connection was opened before; another instance's word of it may be on the way. A session opened now
            // would have another outside port, and break it.
            ports.settled_by_all()?;
        }
        if flags.contains(TcpFlags::RST) {
            // What its binding let in has no session, and may have been refused.
            let bound = self.bound(ask, inside)?;
            let bound = bound.ok_or(Stop::Refused(Reason::NoBinding))?;
            return Ok(SessionLookup::ToNone(bound));
        }
        let outside = self.bind(ask, inside, inside.port)?;
        opens(outside)?.ok_or(Stop::Refused(Reason::TableFull))
    }

    /// Where sessions live in a store, asks for what a new one needs, in one round trip: the binding of its inside endpoint, room, and
    /// whether another session has the wished port.
    fn ask_ahead<S: Translates>(&self, ask: &Ask<'_, S>, inside: Endpoint) -> Result<(), Late> {
        let Translations {
            sessions, ports, ..
        } = ask.translations();
        if !sessions.lives_in_store() {
            return Ok(());
        }
        let (pool, paired) = self.paired(ask, inside);
        let space = ports.space();
        let wished = pool
            .get(paired as usize % pool.len().max(1))
            .map(|address| {
                let range = space.range(*address, inside.protocol);
                space.item(range, space.wish(range, inside.port))
            });
        let of_port = wished.map_or(Ok(None), |port| sessions.any_of(BY_OUTSIDE, &port));
        let bound = self.bound(ask, inside);
        ask.all((bound, sessions.room_ahead(), of_port))?;
        Ok(())
    }

    /// The next connection between the ends of one that ended, by another outside port: an instance that did not yet know
    /// of the first opened it. The table finds by these ends only the one that its order prefers.
    fn next_of<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        ended: &At<Session, Progress>,
    ) -> Result<Option<At<Session, Progress>>, Late> {
        let (inside, remote) = (ended.row.inside(), ended.row.remote());
        let mut passed = [ended.row.outside(); NEXT_TRIED_MAX + 1];
        for tried in 1..=NEXT_TRIED_MAX {
            let other = ask
                .translations()
                .sessions
                .any_of_where(BY_INSIDE, &inside, |row| {
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
    pub(crate) fn bind<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        inside: Endpoint,
        wished: u16,
    ) -> Result<Outside, Stop> {
        let Translations { ports, .. } = ask.translations();
        let bound = self.bound(ask, inside)?;
        if let Some(reason) = self.refuses(ask, inside, bound.is_some()) {
            return Err(Stop::Refused(reason));
        }
        if let Some(outside) = bound {
            return Ok(Outside::Bound(outside));
        }
        if self.config.blocks.is_some() {
            let granted = self.grant_in_block(ask, inside)?;
            return Ok(Outside::Granted(granted));
        }
        let space = ports.space();
        let items = space.items().max(1);
        let (pool, paired) = self.paired(ask, inside);
        let addresses = pool.len() as u32;
        for address in 0..addresses.min(ADDRESSES_TRIED_MAX) {
            let range = space.range(
                pool[((paired + address) % addresses) as usize],
                inside.protocol,
            );
            let wish = space.wish(range, wished);
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
                let Some(grant) = free_port(ask, range, (wish + step) % items)? else {
                    break;
                };
                let keeps_parity = (grant.item().port ^ wished) & 1 == 0;
                granted = Some(grant);
                if keeps_parity {
                    break;
                }
            }
            if let Some(granted) = granted {
                return Ok(Outside::Granted(granted));
            }
        }
        Err(Stop::Refused(Reason::PortsExhausted))
    }

    /// The outside endpoint that an inside endpoint has: a forward's, or that of any of its sessions.
    pub(crate) fn bound<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        inside: Endpoint,
    ) -> Result<Option<Endpoint>, Late> {
        if let Some(outside) = self.forwarded(inside) {
            return Ok(Some(outside));
        }
        if mutant::active(Mutant::BindingNotReused) {
            return Ok(None);
        }
        let session = ask.translations().sessions.any_of(BY_INSIDE, &inside)?;
        Ok(session.map(|session| session.row.outside()))
    }

    /// The outside endpoint that the operator forwards to an inside endpoint.
    pub(crate) fn forwarded(&self, inside: Endpoint) -> Option<Endpoint> {
        let forwards = &self.forwards_by_inside;
        if let Ok(place) = forwards.binary_search_by_key(&inside, |forward| forward.0) {
            return Some(forwards[place].1);
        }
        other_end(&self.one_to_one_by_inside, inside)
    }

    /// Who gets a packet from `remote` to `outside`; `hairpins` says that it came from inside, and `remote` is what its sender is
    /// seen by. Late where another instance may have opened the session and its word is still on the way.
    pub(crate) fn target<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        remote: Endpoint,
        outside: Endpoint,
        hairpins: bool,
    ) -> Result<Target, Late> {
        let Translations {
            sessions, ports, ..
        } = ask.translations();
        let key = Ends::between(without_port_of_query(remote), outside);
        let key = if hairpins { key.unseen() } else { key };
        if let Some(session) = sessions.by_right(&key)? {
            return Ok(Target::Session(session));
        }
        let forwards = &self.forwards_by_outside;
        if let Ok(place) = forwards.binary_search_by_key(&outside, |forward| forward.0) {
            return Ok(Target::Binding(forwards[place].1));
        }
        if let Some(inside) = other_end(&self.one_to_one_by_outside, outside) {
            return Ok(Target::Binding(inside));
        }
        ports.settled(&outside)?;
        let Some(session) = sessions.any_of(BY_OUTSIDE, &outside)? else {
            return Ok(Target::Nobody(Reason::NoBinding));
        };
        let lets_in = match self.config.filtering {
            Filtering::EndpointIndependent => true,
            // Who asked for a mapping wants to hear of anybody (RFC 6887 §11.3).
            _ if self.config.port_control.is_some()
                && !mutant::active(Mutant::MappingFiltered)
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
    pub fn is_inside_host(&self, address: Ipv4Addr) -> bool {
        is_host(address)
            && self.router.side_of(address) == Some(Side::Inside)
            && !self.router.is_interface(address)
    }

    /// Whether a packet from outside may have this source.
    pub fn is_outside_host(&self, address: Ipv4Addr) -> bool {
        is_host(address)
            && self.router.side_of(address) != Some(Side::Inside)
            && !self.router.answers_for(address)
            && !self.router.is_interface(address)
    }
}

/// A port of a range that no session has, the wished one if it is one. Where sessions live in a store, that is asked.
fn free_port<S: Translates>(
    ask: &Ask<'_, S>,
    range: u32,
    wish: u32,
) -> Result<Option<Grant<Endpoint>>, Late> {
    let Translations {
        sessions, ports, ..
    } = ask.translations();
    let mut granted = ports.grant(range, wish)?;
    if !sessions.lives_in_store() || mutant::active(Mutant::GrantUnconfirmed) {
        return Ok(granted);
    }
    for number in 0..CONFIRMED_MAX {
        let Some(grant) = granted else {
            break;
        };
        if sessions.any_of(BY_OUTSIDE, &grant.item())?.is_none() {
            return Ok(Some(grant));
        }
        let elsewhere = ask.random(CONFIRMED_DRAW + number) as u32 % ports.space().items().max(1);
        granted = ports.pass_over(grant, elsewhere)?;
    }
    Ok(None)
}

/// An endpoint at the address that its own stands for.
fn other_end(addresses: &[(Ipv4Addr, Ipv4Addr)], end: Endpoint) -> Option<Endpoint> {
    let found = addresses.binary_search_by_key(&end.address, |pair| pair.0);
    let (_, address) = addresses[found.ok()?];
    Some(Endpoint::new(address, end.port, end.protocol))
}

/// Sessions of ICMP queries have no remote port.
pub(crate) fn without_port_of_query(remote: Endpoint) -> Endpoint {
    if remote.protocol == Protocol::ICMP {
        Endpoint::new(remote.address, 0, remote.protocol)
    } else {
        remote
    }
}
