//! All packets of the transport layer that are not an edit: new flows, the first and last segments of known ones, modes
//! other than translation. Imports `asterism_balancing`, `asterism_forwarding`, `asterism_function` and what lies beside it.

use asterism_balancing::{Known, Pool, opens};
use asterism_forwarding::{Connection, Ends, Report, Side, is_host};
use asterism_function::{Ask, At, Endpoint, Flow4, Late, Protocol, Reason, TcpFlags, Verdict};

use super::{Balancer, BalancerState, Flow};
use crate::mutant::{self, Mutant};

impl Balancer {
    /// A packet to a service.
    pub(super) fn asked_by_client(
        &self,
        ask: Ask<'_, BalancerState>,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let (client, asked) = (flow.source(), flow.destination());
        let pool = self.pools.of(asked);
        let known = Flow::of(&ask.flows, Side::Outside, &Ends::between(client, asked))?;
        if let Some(at) = known
            && self.stays(&ask, pool, &at)?
        {
            return self.follow(ask, at, Side::Outside);
        }
        let Some(pool) = pool else {
            return Ok(Verdict::Drop(Reason::NotForUs));
        };
        // An answer to what has an address of the backends' link would not come back this way.
        let is_client = is_host(client.address)
            && client.port != 0
            && !self.is_ours(client.address)
            && self.router.side_of(client.address) != Some(Side::Inside);
        if !is_client {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        if asked.protocol == Protocol::TCP && known.is_none() && !opens(flags) {
            // Another instance's word of its flow may be on the way.
            ask.expect(self.config.known_wait_us)?;
            if flags.contains(TcpFlags::RST) || flags.contains(TcpFlags::SYN) {
                return Ok(Verdict::Drop(Reason::NoBinding));
            }
        }
        self.open(ask, pool, (client, asked), known)
    }

    /// Whether a packet of a known flow goes where the flow went so far. It does not if it opens another connection between the
    /// same ends, nor if nothing is lost by another backend: a SYN that was not answered, or UDP.
    fn stays(
        &self,
        ask: &Ask<'_, BalancerState>,
        pool: Option<&Pool>,
        at: &At<Flow, Connection>,
    ) -> Result<bool, Late> {
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        if at.value.reopens(flags) {
            return Ok(false);
        }
        if mutant::active(Mutant::DealtAgain) && opens(flags) {
            return Ok(false);
        }
        let may_move = at.row.client.protocol == Protocol::UDP || opens(flags);
        match pool {
            Some(pool) if may_move => Ok(!pool.has_lost(&at.row, &ask.health, ask.now())?),
            _ => Ok(true),
        }
    }

    /// A packet of a known flow, which came from a side: to the backend that the flow has, or to its client.
    fn follow(
        &self,
        ask: Ask<'_, BalancerState>,
        at: At<Flow, Connection>,
        from: Side,
    ) -> Result<Verdict, Late> {
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let said = self.pools.said(&ask, &ask.health, from, &at)?;
        at.row.path(from).send(&self.router, ask, |act| {
            act.flows.update(&at, at.row.after(at.value, from, flags));
            if let Some(said) = said {
                said.write(&mut act.health);
            }
        })
    }

    /// A packet that opens a flow: gives it a backend.
    fn open(
        &self,
        ask: Ask<'_, BalancerState>,
        pool: &Pool,
        ends: (Endpoint, Endpoint),
        old: Option<At<Flow, Connection>>,
    ) -> Result<Verdict, Late> {
        let known = Known {
            flows: &ask.flows,
            kept: &ask.kept,
            usage: &ask.usage,
            health: &ask.health,
        };
        let Some(chosen) = pool.choose(&ask, known, ends)? else {
            let report = Report::HostUnreachable;
            return self.router.report(ask, report, Reason::NoBackend);
        };
        let Some(vacancy) = ask.flows.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let keeping = chosen.keeping(&ask.kept, ask.now())?;
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let (flow, from) = (chosen.flow, Side::Outside);
        flow.path(from).send(&self.router, ask, |act| {
            if let Some(old) = old.filter(|old| old.row != flow) {
                act.flows.remove(&old);
            }
            let connection = flow.after(Connection::new(flow.service), from, flags);
            if !mutant::active(Mutant::FlowNotKept) {
                act.flows.insert(vacancy, flow, connection);
            }
            keeping.write(&mut act.kept);
        })
    }

    /// A packet of a backend.
    pub(super) fn answered_by_backend(
        &self,
        ask: Ask<'_, BalancerState>,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let (backend, client) = (flow.source(), flow.destination());
        let answer = Ends::between(backend, client);
        if let Some(at) = Flow::of(&ask.flows, Side::Inside, &answer)? {
            return self.follow(ask, at, Side::Inside);
        }
        if self.pools.is_backend(backend.address) && !self.router.is_interface(client.address) {
            // An answer may overtake the word of its flow.
            ask.expect(self.config.known_wait_us)?;
        }
        Ok(Verdict::Drop(Reason::NoBinding))
    }
}
