//! ICMP errors of others, which go where the packets that they are about came from (RFC 5508 section 4 for those that are
//! translated). They neither open nor refresh nor end a flow: outsiders can forge them. Imports `asterism_forwarding`,
//! `asterism_function` and what lies beside it.

use asterism_forwarding::{Ends, portless};
use asterism_function::{Ask, Flow4, Late, Reason, Verdict};

use super::send::Path;
use super::{Balancer, BalancerState, Mode};

impl Balancer {
    /// An error about a packet, of this flow, that a backend sent to a client: a router's "fragmentation needed", say. Where the backend
    /// answers directly, this is the only way that it hears of it, since it comes to the service's address.
    #[cold]
    pub(super) fn error_from_client(
        &self,
        ask: Ask<'_, BalancerState>,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let (service, client) = (flow.source(), flow.destination());
        let Some(at) = ask.flows.by_left(&Ends::between(client, service))? else {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        let (mode, backend) = (at.row.mode, at.row.backend);
        let path = Path::ToBackend(mode, portless(backend.address));
        self.send(ask, path, |act| {
            if mode == Mode::Nat {
                act.packet.set_embedded_source(backend);
            }
        })
    }

    /// An error of a backend, or of a router before it, about a packet of a client.
    #[cold]
    pub(super) fn error_from_backend(
        &self,
        ask: Ask<'_, BalancerState>,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let (client, backend) = (flow.source(), flow.destination());
        let Some(at) = ask.flows.by_right(&Ends::between(backend, client))? else {
            return Ok(Verdict::Drop(Reason::IcmpUnmatched));
        };
        let service = at.row.service;
        let path = Path::ToClient(portless(service.address));
        self.send(ask, path, |act| {
            act.packet.set_embedded_destination(service);
        })
    }
}
