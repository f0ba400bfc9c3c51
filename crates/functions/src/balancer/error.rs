//! ICMP errors of others, which go where the packets that they are about came from (RFC 5508 section 4 for those that are
//! translated). They neither open nor refresh nor end a flow: outsiders can forge them. Imports `asterism_function` and
//! what lies beside it.

use core::ops::ControlFlow;

use asterism_function::{Ask, Late, Reason, Verdict};

use super::send::Path;
use super::{Balancer, BalancerState, Mode};
use crate::nat::error::embedded;
use crate::nat::fragment::portless;
use crate::nat::session::Ends;

impl Balancer {
    /// An error about a packet that a backend sent to a client: a router's "fragmentation needed", say. Where the backend
    /// answers directly, this is the only way that it hears of it, since it comes to the service's address.
    #[cold]
    pub(super) fn error_from_client(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        let flow = match embedded(ask.packet()) {
            Ok(flow) => flow,
            Err(reason) => return Ok(Verdict::Drop(reason)),
        };
        let (service, client) = (flow.source(), flow.destination());
        let Some(at) = ask.flows.by_left(&Ends::between(client, service))? else {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        let (mode, backend) = (at.row.mode, at.row.backend);
        let path = Path::ToBackend(mode, portless(backend.address));
        let (ask, departure) = match self.departure(ask, path)? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        if mode == Mode::Nat {
            act.packet.set_embedded_source(backend);
        }
        Ok(departure.leave(act))
    }

    /// An error of a backend, or of a router before it, about a packet of a client.
    #[cold]
    pub(super) fn error_from_backend(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        let flow = match embedded(ask.packet()) {
            Ok(flow) => flow,
            Err(reason) => return Ok(Verdict::Drop(reason)),
        };
        let (client, backend) = (flow.source(), flow.destination());
        let Some(at) = ask.flows.by_right(&Ends::between(backend, client))? else {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        let service = at.row.service;
        let path = Path::ToClient(portless(service.address));
        let (ask, departure) = match self.departure(ask, path)? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        act.packet.set_embedded_destination(service);
        Ok(departure.leave(act))
    }
}
