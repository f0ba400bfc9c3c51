//! Forwarding decisions for translated packets of the transport layer: the lookups that an author asks, and the edits once
//! the packet leaves.

use std::rc::Rc;

use asterism_forwarding::{Direction, Egress, Progress, Segment, Side, is_host};
use asterism_function::{Act, Ask, Endpoint, Late, Protocol, Reason, Stop, Vacancy, Verdict};

use crate::accounting::PortAccounting;
use crate::bindings::{Outside, SessionLookup, Target};
use crate::mutant::{self, Mutant};
use crate::state::Translates;
use crate::translator::Translator;

/// Which way a packet from inside goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForwardingPath {
    /// To the outside, by another source: [`Translator::outward`].
    Out,
    /// To an inside host by its outside endpoint, both translated (RFC 4787 §6): [`Translator::outward`], too.
    Hairpin,
    /// Between two inside hosts, as it is: [`Translator::between_insides`].
    Inside,
    /// To the translator itself: [`Translator::own`].
    Own,
    /// There is no route.
    Unrouted,
    /// Nowhere, for this reason.
    Refused(Reason),
}

/// Why a packet from inside has no session and gets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Its sender is reported: "communication administratively prohibited".
    Reported(Reason),
    /// It is dropped.
    Silently(Reason),
}

/// A packet from inside that leaves translated.
#[derive(Debug)]
#[must_use = "what it reserved returns when the packet ends"]
pub struct Outward {
    belongs: SessionLookup,
    remote: Endpoint,
    segment: Segment,
    /// The packet comes back inside, to this host.
    hairpin: Option<(Target, Endpoint)>,
    accounting: Option<Rc<PortAccounting>>,
    arrived_us: u64,
}

/// A packet from outside that goes in.
#[derive(Debug)]
#[must_use = "what it reserved returns when the packet ends"]
pub struct Inward {
    target: Target,
    inside: Endpoint,
    remote: Endpoint,
    segment: Segment,
    /// It opens another connection between the same ends.
    again: Option<Vacancy>,
}

impl Translator {
    /// Which way a packet from an inside endpoint to a remote one goes.
    #[must_use]
    pub fn way(&self, inside: Endpoint, remote: Endpoint) -> ForwardingPath {
        if !self.is_inside_host(inside.address) {
            return ForwardingPath::Refused(Reason::SpoofedSource);
        }
        let hairpins = self.router.answers_for(remote.address);
        let is_query = remote.protocol == Protocol::ICMP;
        if self.router.is_interface(remote.address) && !hairpins || hairpins && is_query {
            return ForwardingPath::Own;
        }
        if hairpins && !self.config.hairpinning {
            return ForwardingPath::Refused(Reason::Filtered);
        }
        if !is_host(remote.address) {
            return ForwardingPath::Refused(Reason::NoRoute);
        }
        if hairpins {
            return ForwardingPath::Hairpin;
        }
        match self.router.side_of(remote.address) {
            Some(Side::Outside) => ForwardingPath::Out,
            Some(Side::Inside) => ForwardingPath::Inside,
            None => ForwardingPath::Unrouted,
        }
    }

    /// What it takes to translate a packet from an inside endpoint whose [way](Translator::way) is out or a hairpin. `is_first`: its
    /// session was looked for and is not there. Of ICMP queries the remote port is zero.
    ///
    /// Late where `sessions` or `ports` is, and where another instance's word of its session may be on the way.
    #[inline]
    pub fn outward<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        (inside, remote): (Endpoint, Endpoint),
        hairpins: bool,
        is_first: bool,
    ) -> Result<Outward, Stop<Refused>> {
        let segment = Segment::of(ask.packet());
        let ends = (inside, remote, hairpins);
        let belongs = self.belongs(ask, ends, &segment, is_first);
        let belongs = belongs.map_err(|stop| {
            stop.map(|reason| match reason {
                Reason::NoBinding => Refused::Silently(reason),
                // That passes: who is not refused sends again.
                Reason::PortsExhausted if !ask.translations().ports.grants_now() => {
                    Refused::Silently(reason)
                }
                _ => Refused::Reported(reason),
            })
        })?;
        let hairpin = if hairpins {
            let target = self.target(ask, belongs.outside(), remote, true)?;
            match target.inside() {
                Ok(inside) => Some((target, inside)),
                Err(reason) => return Err(Stop::Refused(Refused::Silently(reason))),
            }
        } else {
            None
        };
        Ok(Outward {
            belongs,
            remote,
            segment,
            hairpin,
            accounting: ask.translations().ports.space().accounting().cloned(),
            arrived_us: ask.arrived_us(),
        })
    }

    /// Whether a packet from inside is to an inside host by its own address.
    #[cold]
    pub fn stays_inside<S: Translates>(&self, ask: &Ask<'_, S>) -> bool {
        let destination = ask.packet().ipv4_destination();
        destination.is_some_and(|to| self.is_inside_host(to) && !self.router.answers_for(to))
    }

    /// Forwards a packet between two inside hosts: no translation.
    #[cold]
    pub fn between_insides<S: Translates>(&self, ask: Ask<'_, S>) -> Result<Verdict, Late> {
        let packet = ask.packet();
        let (Some(source), Some(destination)) = (packet.ipv4_source(), packet.ipv4_destination())
        else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        if !self.is_inside_host(source) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let egress = Egress::routed(Side::Inside, destination);
        self.router.forward(ask, egress, |_| {})
    }

    /// What it takes to translate a packet from a remote endpoint to an outside one, which the translator answers for; or why it goes
    /// nowhere. Of ICMP replies the remote port is zero.
    ///
    /// Late where `sessions` or `ports` is, and where another instance's word of its session may be on the way.
    #[inline]
    pub fn inward<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        remote: Endpoint,
        outside: Endpoint,
    ) -> Result<Inward, Stop> {
        if !self.is_outside_host(remote.address) {
            return Err(Stop::Refused(Reason::SpoofedSource));
        }
        let target = self.target(ask, remote, outside, false)?;
        let inside = target.inside().map_err(Stop::Refused)?;
        let segment = Segment::of(ask.packet());
        let again = match &target {
            Target::Session(at) if at.value.reopens(segment.flags) => {
                ask.translations().sessions.vacancy()?
            }
            _ => None,
        };
        Ok(Inward {
            target,
            inside,
            remote,
            segment,
            again,
        })
    }
}

impl Outward {
    /// Where it goes.
    #[must_use]
    pub fn egress(&self) -> Egress {
        match self.hairpin {
            Some((_, inside)) => Egress::routed(Side::Inside, inside.address),
            None => Egress::routed(Side::Outside, self.remote.address),
        }
    }

    /// Edits the packet, and writes its session.
    #[inline]
    pub fn write<S: Translates>(self, act: &mut Act<'_, S>) {
        let outside = self.belongs.outside();
        let tables = S::writes_translations(act);
        match self.belongs {
            SessionLookup::To(at) => {
                let connection = at.value.after(&self.segment, Direction::Outbound);
                tables.sessions.update(&at, connection);
            }
            SessionLookup::ToNew(vacancy, port) => {
                if let Outside::Granted(grant) = port
                    && !mutant::active(Mutant::PortNotTaken)
                {
                    tables.ports.take(grant);
                }
                let connection = Progress::new(self.remote).opened_by(&self.segment);
                let connection = connection.after(&self.segment, Direction::Outbound);
                if let Some(accounting) = &self.accounting {
                    accounting.opened(vacancy.row(), self.arrived_us);
                }
                tables.sessions.fill(vacancy, connection);
            }
            SessionLookup::ToNone(_) => {}
        }
        if let Some((Target::Session(at), _)) = &self.hairpin {
            let connection = at.value.after(&self.segment, Direction::Inbound);
            tables.sessions.update(at, connection);
        }
        act.packet.set_source(outside);
        if let Some((_, inside)) = self.hairpin {
            act.packet.set_destination(inside);
        }
    }
}

impl Inward {
    /// Where it goes.
    #[must_use]
    pub fn egress(&self) -> Egress {
        Egress::routed(Side::Inside, self.inside.address)
    }

    /// Edits the packet, and writes its session.
    #[inline]
    pub fn write<S: Translates>(self, act: &mut Act<'_, S>) {
        let tables = S::writes_translations(act);
        match (self.target, self.again) {
            (Target::Session(at), Some(vacancy)) => {
                let connection = Progress::new(self.remote).opened_by(&self.segment);
                let connection = connection.after(&self.segment, Direction::Inbound);
                tables.sessions.insert(vacancy, at.row, connection);
            }
            (Target::Session(at), None) => {
                let connection = at.value.after(&self.segment, Direction::Inbound);
                tables.sessions.update(&at, connection);
            }
            // A binding is refreshed by its own sessions only: no outsider keeps it alive (RFC 4787 REQ-6).
            (Target::Binding(_) | Target::Nobody(_), _) => {}
        }
        act.packet.set_destination(self.inside);
    }
}
