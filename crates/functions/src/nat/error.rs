//! ICMP errors, translated together with the packets inside them (RFC 5508 §4). Imports `asterism_function` and what
//! lies beside it.
//!
//! An error neither opens nor refreshes nor ends a session (RFC 5508 REQ-4 to REQ-6): outsiders can forge them.

use core::ops::ControlFlow;

use asterism_function::{Ask, Endpoint, Flow4, Late, Packet, Reason, Verdict};

use super::fragment::portless;
use super::open::without_port_of_query;
use super::session::Ends;
use super::{Nat, NatState};

/// Source quench (deprecated, RFC 6633) and redirect, which routers do not forward (RFC 1812 §5.2.7.2).
const NOT_FORWARDED: [u8; 2] = [4, 5];

/// The flow of the packet inside an error: only where the error is intact (RFC 5508 REQ-3), so is the IPv4 header
/// inside (REQ-3a), and that packet came from where the error goes.
pub(crate) fn embedded(packet: &Packet<'_>) -> Result<Flow4, Reason> {
    if packet
        .icmp_type()
        .is_some_and(|icmp_type| NOT_FORWARDED.contains(&icmp_type))
    {
        return Err(Reason::UnsupportedProtocol);
    }
    if packet.verify_transport_checksum() == Some(false) {
        return Err(Reason::IcmpUnmatched);
    }
    packet
        .embedded()
        .filter(|embedded| embedded.header_checksum_valid())
        .and_then(|embedded| embedded.flow4())
        .filter(|flow| packet.ipv4_destination() == Some(flow.source))
        .ok_or(Reason::IcmpUnmatched)
}

impl Nat {
    /// An error about a packet that an inside host sent.
    #[cold]
    pub(super) fn error_from_outside(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        let flow = match embedded(ask.packet()) {
            Ok(flow) => flow,
            Err(reason) => return Ok(Verdict::Drop(reason)),
        };
        let reporter = ask.packet().ipv4_source().map(portless);
        if !reporter.is_some_and(|reporter| self.is_outside_host(reporter)) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let (outside, remote) = (flow.source(), without_port_of_query(flow.destination()));
        let Some(session) = ask.sessions.by_right(&Ends::between(remote, outside))? else {
            ask.ports.settled(&outside)?;
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        let inside = session.row.inside();
        let (ask, departure) = match self.departure(ask, &self.inside, inside)? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        act.packet.set_embedded_source(inside);
        Ok(departure.leave(act, None, Some(portless(inside.address))))
    }

    /// An error about a packet that was sent to an inside host: from the host itself, or from a router before it,
    /// which outside is known by the host's outside address.
    #[cold]
    pub(super) fn error_from_inside(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        let flow = match embedded(ask.packet()) {
            Ok(flow) => flow,
            Err(reason) => return Ok(Verdict::Drop(reason)),
        };
        let (remote, inside) = (without_port_of_query(flow.source()), flow.destination());
        let known = ask.sessions.by_left(&Ends::between(inside, remote))?;
        let outside = match known {
            Some(session) => Some(session.row.outside()),
            // What its binding let in has no session.
            None => self.bound(&ask, inside)?,
        };
        let Some(outside) = outside else {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        if self.is_outside_address(remote.address) {
            return self.error_hairpins(ask, outside, remote);
        }
        let (ask, departure) = match self.departure(ask, &self.outside, remote)? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        act.packet.set_embedded_destination(outside);
        Ok(departure.leave(act, Some(portless(outside.address)), None))
    }

    /// An error of the inside host behind `outside` about a packet of the one behind `remote` (RFC 5508 REQ-7).
    fn error_hairpins(
        &self,
        ask: Ask<'_, NatState>,
        outside: Endpoint,
        remote: Endpoint,
    ) -> Result<Verdict, Late> {
        let Some(session) = ask.sessions.by_right(&Ends::between(outside, remote))? else {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        let sender = session.row.inside();
        let (ask, departure) = match self.departure(ask, &self.inside, sender)? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        act.packet.set_embedded_destination(outside);
        act.packet.set_embedded_source(sender);
        let (source, destination) = (portless(outside.address), portless(sender.address));
        Ok(departure.leave(act, Some(source), Some(destination)))
    }
}
