//! Mappings that inside hosts request by the Port Control Protocol (RFC 6887; RFC 6888 REQ-9). `message.rs` has the wire
//! format.
//!
//! A mapping is a session without a remote endpoint: it holds the outside port as every session does, is found as the binding
//! of its inside endpoint, ends if it is not renewed within its lifetime, and exists on every instance. So whichever instance
//! gets the next request, and whichever died, the mapping is there. A separate table holds the data that the client needs to
//! change a mapping, and the time of the first request of all. If that table is lost, so is every mapping; hosts learn this
//! from an epoch that begins again (§8.5).

mod asked;
mod message;
mod settings;

use core::net::Ipv4Addr;

use asterism_forwarding::{Connection, Ends, Progress, Side, is_host};
use asterism_function::{Act, Ask, Endpoint, Fragment, Late, Protocol, Reason, Verdict, build};

use crate::bindings::Outside;
use crate::mutant::{self, Mutant};
use crate::session::{Session, nobody};
use crate::state::{Translates, Translations};
use crate::translator::Translator;
pub use asked::Asked;
use message::{Answer, FOR_EVER};
pub use message::{MESSAGE_BYTES_MAX, MapRequest, Nonce, PORT, Refusal, Request, ResultCode};
pub use settings::PortControl;

/// The draw of a random number that an answer's identification is.
const IDENTIFICATION_DRAW: u64 = 17;

/// Under which the table of mappings has when the first request of all came: nobody's endpoint.
const FIRST: Endpoint = Endpoint::new(Ipv4Addr::UNSPECIFIED, 0, Protocol(0));

/// By what the mapping of an outside endpoint is found: no packet has it, not one that says to be from nobody either.
pub(crate) fn mapped(outside: Endpoint) -> Ends {
    Ends::between(nobody(outside.protocol), outside).unseen()
}

impl Translator {
    /// Who asks, if a packet to an interface is a request that is to be heard: from the inside, and whole.
    pub(crate) fn asks<S: Translates>(&self, ask: &Ask<'_, S>) -> Option<Endpoint> {
        self.config.port_control?;
        let flow = ask.packet().flow4()?;
        let (from, to) = (flow.source(), flow.destination());
        let is_request = (to.address, to.port) == (self.config.inside.address, PORT)
            && to.protocol == Protocol::UDP
            && self.router.side(ask.port()) == Some(Side::Inside)
            && ask.packet().layout().fragment() == Fragment::Whole;
        (is_request && is_host(from.address) && from.port != 0).then_some(from)
    }

    /// A request to the server at the inside interface.
    #[cold]
    pub(crate) fn asked<S: Translates>(
        &self,
        ask: Ask<'_, S>,
        client: Endpoint,
    ) -> Result<Verdict, Late> {
        if ask.packet().verify_transport_checksum() == Some(false) {
            return Ok(Verdict::Drop(Reason::NotForUs));
        }
        match Request::read(ask.packet().payload(), client.address) {
            Err(Refusal::Silent) => Ok(Verdict::Drop(Reason::NotForUs)),
            Err(Refusal::Reported(code)) => self.answer(ask, Answer::refusal(code), |_| {}),
            Ok(Request::Announce) => {
                let answer = Answer {
                    code: ResultCode::Success,
                    lifetime: 0,
                    external: None,
                };
                self.answer(ask, answer, |_| {})
            }
            Ok(Request::Map(request)) => {
                let inside = Endpoint::new(client.address, request.internal_port, request.protocol);
                self.map(ask, inside, &request)
            }
        }
    }

    /// Makes, prolongs or ends a mapping (§11.3, §15).
    fn map<S: Translates>(
        &self,
        ask: Ask<'_, S>,
        inside: Endpoint,
        request: &MapRequest,
    ) -> Result<Verdict, Late> {
        let Translations {
            sessions,
            ports,
            mappings,
        } = ask.translations();
        let refuse = |ask, code| self.answer(ask, Answer::refusal(code), |_| {});
        let lifetime = self.config.port_control.map_or(0, |one| one.lifetime);
        let success = |lifetime, outside: Endpoint| Answer {
            code: ResultCode::Success,
            lifetime,
            external: Some((outside.address, outside.port)),
        };
        let is_wished = |outside: Endpoint| {
            let wished = request.external_address;
            outside.port == request.external_port
                && (wished.is_unspecified() || wished == outside.address)
        };
        if let Some(outside) = self.forwarded(inside) {
            return match (request.lifetime, request.insists && !is_wished(outside)) {
                (0, _) => refuse(ask, ResultCode::NotAuthorized),
                (_, true) => refuse(ask, ResultCode::CannotProvideExternal),
                (_, false) => self.answer(ask, success(FOR_EVER, outside), |_| {}),
            };
        }
        let ends = Ends::between(inside, nobody(inside.protocol));
        let (known, asked) = ask.all((sessions.by_left(&ends), mappings.get(&inside)))?;
        let now = Asked::new(request.nonce, ask.now());
        if let (Some(_), Some(before)) = (&known, &asked)
            && !before.value.is_of(&now)
            && !mutant::active(Mutant::AnybodyEndsMappings)
        {
            return refuse(ask, ResultCode::NotAuthorized);
        }
        if request.lifetime == 0 {
            let wished = Endpoint::new(
                request.external_address,
                request.external_port,
                inside.protocol,
            );
            let outside = known.as_ref().map_or(wished, |at| at.row.outside());
            return self.answer(ask, success(0, outside), |act| {
                if let Some(at) = &known {
                    S::writes_translations(act).sessions.remove(at);
                }
                if let Some(at) = &asked {
                    S::writes_translations(act).mappings.remove(at);
                }
            });
        }
        let room = mappings.entry_at(asked, inside)?;
        if room.is_full() {
            return refuse(ask, ResultCode::NoResources);
        }
        let opened = match &known {
            Some(_) => None,
            None => {
                // Another instance may have made it, and its word be on the way.
                ports.settled_by_all()?;
                let wished = match request.external_port {
                    0 => inside.port,
                    port => port,
                };
                let outside = match self.bind(&ask, inside, wished) {
                    Ok(outside) => outside,
                    Err(stop) => {
                        let code = match stop.refused()? {
                            Reason::SubscriberQuota => ResultCode::Quota,
                            _ => ResultCode::NoResources,
                        };
                        return refuse(ask, code);
                    }
                };
                match sessions.vacancy()? {
                    Some(vacancy) => Some((outside, vacancy)),
                    None => return refuse(ask, ResultCode::NoResources),
                }
            }
        };
        let outside = match (&known, &opened) {
            (Some(at), _) => at.row.outside(),
            (None, Some((outside, _))) => outside.endpoint(),
            (None, None) => return refuse(ask, ResultCode::NoResources),
        };
        if request.insists && !is_wished(outside) {
            return refuse(ask, ResultCode::CannotProvideExternal);
        }
        let (accounting, arrived_us) = (ports.space().accounting().cloned(), ask.arrived_us());
        let mapping = Progress::from(Connection::MAPPING);
        self.answer(ask, success(lifetime, outside), |act| {
            let tables = S::writes_translations(act);
            if let Some(at) = &known {
                tables.sessions.update(at, mapping);
            }
            if let Some((port, vacancy)) = opened {
                if let Outside::Granted(grant) = port {
                    tables.ports.take(grant);
                }
                let session = Session::new(inside, nobody(inside.protocol), outside, false);
                tables.sessions.insert(vacancy, session, mapping);
                if let Some(accounting) = &accounting {
                    accounting.opened(&session, arrived_us);
                }
            }
            tables.mappings.put(room, now);
        })
    }

    /// Answers a request, to who sent it, and does what `change` says.
    fn answer<S: Translates>(
        &self,
        ask: Ask<'_, S>,
        answer: Answer,
        change: impl FnOnce(&mut Act<'_, S>),
    ) -> Result<Verdict, Late> {
        let Translations { mappings, .. } = ask.translations();
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let link = self.router.inside.interface;
        let header = build::Header4 {
            ethernet_source: link.mac,
            ethernet_destination: ask.packet().ethernet_source(),
            source: flow.destination,
            destination: flow.source,
            ttl: 64,
            identification: ask.random(IDENTIFICATION_DRAW) as u16,
            dont_fragment: false,
        };
        let (now, first) = (ask.now(), mappings.get(&FIRST)?);
        let vacancy = match &first {
            Some(_) => None,
            None => mappings.vacancy()?,
        };
        let since = first.as_ref().map_or(now, |at| at.value.since);
        let epoch = now.saturating_sub(since);
        let mut act = ask.act()?;
        change(&mut act);
        match (&first, vacancy) {
            // It lives as long as any mapping.
            (Some(at), _) => S::writes_translations(&mut act).mappings.touch(at),
            (None, Some(room)) => {
                let asked = Asked::new(Nonce([0; 12]), now);
                S::writes_translations(&mut act)
                    .mappings
                    .insert(room, FIRST, asked);
            }
            (None, None) => {}
        }
        act.emit(link.port, |packet, out| {
            let mut bytes = [0; MESSAGE_BYTES_MAX];
            let length = answer.write(packet.payload(), epoch, &mut bytes);
            build::udp4(&header, PORT, flow.source_port, &bytes[..length], out)
        });
        Ok(Verdict::Consumed)
    }
}
