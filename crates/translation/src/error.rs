//! ICMP errors, translated together with the packets inside them (RFC 5508 §4).
//!
//! An error neither opens nor refreshes nor ends a session (RFC 5508 REQ-4 to REQ-6): outsiders can forge errors.

use asterism_forwarding::{Egress, Ends, Side, portless};
use asterism_function::{Ask, Endpoint, Flow4, Late, Reason, Verdict};

use crate::bindings::without_port_of_query;
use crate::state::{Translates, Translations};
use crate::translator::Translator;

impl Translator {
    /// An error about a packet that an inside host sent, of this flow.
    #[cold]
    pub fn error_from_outside<S: Translates>(
        &self,
        ask: Ask<'_, S>,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let Translations {
            sessions, ports, ..
        } = ask.translations();
        let reporter = ask.packet().ipv4_source();
        if !reporter.is_some_and(|reporter| self.is_outside_host(reporter)) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let (outside, remote) = (flow.source(), without_port_of_query(flow.destination()));
        let Some(session) = sessions.by_right(&Ends::between(remote, outside))? else {
            ports.settled(&outside)?;
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        let inside = session.row.inside();
        let egress = Egress::routed(Side::Inside, inside.address);
        self.router.forward(ask, egress, |act| {
            act.packet.set_embedded_source(inside);
            act.packet.set_destination(portless(inside.address));
        })
    }

    /// An error about a packet, of this flow, that was sent to an inside host: from the host itself, or from a router before it,
    /// which outside is known by the host's outside address.
    #[cold]
    pub fn error_from_inside<S: Translates>(
        &self,
        ask: Ask<'_, S>,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let (remote, inside) = (without_port_of_query(flow.source()), flow.destination());
        let known = ask
            .translations()
            .sessions
            .by_left(&Ends::between(inside, remote))?;
        let outside = match known {
            Some(session) => Some(session.row.outside()),
            // What its binding let in has no session.
            None => self.bound(&ask, inside)?,
        };
        let Some(outside) = outside else {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        if self.router.answers_for(remote.address) {
            return self.error_hairpins(ask, outside, remote);
        }
        // About what the NAT sent itself: that is nobody's outside.
        if !self.is_outside_host(remote.address) {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        }
        let egress = Egress::routed(Side::Outside, remote.address);
        self.router.forward(ask, egress, |act| {
            act.packet.set_embedded_destination(outside);
            act.packet.set_source(portless(outside.address));
        })
    }

    /// An error of the inside host behind `outside` about a packet of the one behind `remote` (RFC 5508 REQ-7).
    fn error_hairpins<S: Translates>(
        &self,
        ask: Ask<'_, S>,
        outside: Endpoint,
        remote: Endpoint,
    ) -> Result<Verdict, Late> {
        let Some(session) = ask
            .translations()
            .sessions
            .by_right(&Ends::between(outside, remote).unseen())?
        else {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        let sender = session.row.inside();
        let egress = Egress::routed(Side::Inside, sender.address);
        self.router.forward(ask, egress, |act| {
            act.packet.set_embedded_destination(outside);
            act.packet.set_embedded_source(sender);
            act.packet.set_source(portless(outside.address));
            act.packet.set_destination(portless(sender.address));
        })
    }
}
