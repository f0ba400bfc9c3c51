//! All packets of the transport layer that are not an edit: new flows, the first and last segments of known ones, modes
//! other than translation. Imports `asterism_forwarding`, `asterism_function` and what lies beside it.

use asterism_forwarding::{Connection, Direction, Ends, Report, Side, is_host};
use asterism_function::{Ask, At, Endpoint, Flow4, Late, Protocol, Reason, TcpFlags, Verdict};

use super::choose::Chosen;
use super::health::Heeded;
use super::send::Path;
use super::{Balancer, BalancerState, Flow, Kept, Mode, Pool};
use crate::mutant::{self, Mutant};

impl Balancer {
    /// A packet to a service.
    pub(super) fn asked_by_client(
        &self,
        ask: Ask<'_, BalancerState>,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let (client, asked) = (flow.source(), flow.destination());
        let pool = self.pool_of(asked);
        let known = ask.flows.by_left(&Ends::between(client, asked))?;
        if let Some(at) = known
            && self.stays(&ask, pool, &at)?
        {
            return self.follow(ask, at);
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
        let Some(pool) = pool.filter(|_| may_move) else {
            return Ok(true);
        };
        let service = &pool.service;
        let is_its = |port: u16| port == 0 || port == at.row.backend.port;
        let backend = service
            .backends
            .iter()
            .find(|one| one.address == at.row.backend.address && is_its(one.port));
        match backend {
            Some(backend) => Ok(!self.is_down(ask, service, backend, Heeded::All)?),
            None => Ok(true),
        }
    }

    /// A packet of a client, to the backend that its flow has.
    fn follow(
        &self,
        ask: Ask<'_, BalancerState>,
        at: At<Flow, Connection>,
    ) -> Result<Verdict, Late> {
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let said = match opens(flags) {
            true => self.said_by_client(&ask, &at)?,
            false => None,
        };
        let path = Path::ToBackend(at.row.mode, at.row.backend);
        self.send(ask, path, |act| {
            let connection = after_request(at.value, at.row.mode, flags);
            act.flows.update(&at, connection);
            if let Some(said) = said {
                said.write(act);
            }
        })
    }

    /// A packet that opens a flow: gives it a backend.
    fn open(
        &self,
        ask: Ask<'_, BalancerState>,
        pool: &Pool,
        ends: (Endpoint, Endpoint),
        known: Option<At<Flow, Connection>>,
    ) -> Result<Verdict, Late> {
        let Some(Chosen { flow, kept }) = self.choose(&ask, pool, ends)? else {
            return self
                .router
                .report(ask, Report::HostUnreachable, Reason::NoBackend);
        };
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let Some(vacancy) = ask.flows.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let keeps = pool.service.persistent;
        let room = match kept {
            None if keeps => ask.kept.vacancy()?,
            _ => None,
        };
        let keep = Kept {
            backend: self.name_of(pool, &flow),
            since: ask.now(),
        };
        let path = Path::ToBackend(flow.mode, flow.backend);
        self.send(ask, path, |act| {
            if let Some(old) = known.filter(|old| old.row != flow) {
                act.flows.remove(&old);
            }
            let connection = after_request(Connection::new(flow.service), flow.mode, flags);
            if !mutant::active(Mutant::FlowNotKept) {
                act.flows.insert(vacancy, flow, connection);
            }
            match (kept, room) {
                (Some(at), _) if at.value.backend == keep.backend => act.kept.touch(&at),
                (Some(at), _) => act.kept.update(&at, keep),
                // Without room the client goes by its hash.
                (None, Some(room)) => act.kept.insert(room, (pool.first(), ends.0.address), keep),
                (None, None) => {}
            }
        })
    }

    /// What a flow's backend is checked at.
    pub(super) fn name_of(&self, pool: &Pool, flow: &Flow) -> Endpoint {
        let service = &pool.service;
        let mut backends = service.backends.iter().zip(&pool.places);
        let found = backends
            .find(|(one, place)| **place == flow.place && one.address == flow.backend.address);
        found.map_or(flow.backend, |(one, _)| service.checked_at(one))
    }

    /// A packet of a backend.
    pub(super) fn answered_by_backend(
        &self,
        ask: Ask<'_, BalancerState>,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let (backend, client) = (flow.source(), flow.destination());
        let Some(at) = ask.flows.by_right(&Ends::between(backend, client))? else {
            if self.answering.binary_search(&backend.address).is_ok()
                && !self.router.is_interface(client.address)
            {
                // An answer may overtake the word of its flow.
                ask.expect(self.config.known_wait_us)?;
            }
            return Ok(Verdict::Drop(Reason::NoBinding));
        };
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        let said = self.said_by_backend(&ask, &at, flags)?;
        let path = Path::ToClient(at.row.service);
        self.send(ask, path, |act| {
            let connection = at.value.after(flags, Direction::Inbound);
            act.flows.update(&at, connection);
            if let Some(said) = said {
                said.write(act);
            }
        })
    }
}

/// Whether a segment opens a connection.
fn opens(flags: TcpFlags) -> bool {
    flags.contains(TcpFlags::SYN) && !flags.intersects(TcpFlags(TcpFlags::ACK.0 | TcpFlags::RST.0))
}

/// What is known of a flow after a packet of its client. Where the backend answers directly, nobody here sees that: what the
/// client acknowledges was sent, and a connection that it finishes is taken as finished.
fn after_request(connection: Connection, mode: Mode, flags: TcpFlags) -> Connection {
    let connection = connection.after(flags, Direction::Outbound);
    if mode == Mode::Nat {
        connection
    } else {
        connection.after(flags, Direction::Inbound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::Paired;

    #[test]
    fn only_a_bare_syn_opens() {
        let with = |flags: &[TcpFlags]| TcpFlags(flags.iter().fold(0, |all, one| all | one.0));
        assert!(opens(TcpFlags::SYN));
        for flags in [TcpFlags::ACK, TcpFlags::RST, TcpFlags::FIN] {
            assert!(!opens(flags));
        }
        assert!(!opens(with(&[TcpFlags::SYN, TcpFlags::ACK])));
        assert!(!opens(with(&[TcpFlags::SYN, TcpFlags::RST])));
    }

    #[test]
    fn a_connection_of_which_one_side_is_seen_is_established_and_ends() {
        let service = Endpoint::new([203, 0, 113, 1].into(), 80, Protocol::TCP);
        let open = after_request(Connection::new(service), Mode::Direct, TcpFlags::SYN);
        assert!(!open.is_established());
        let open = after_request(open, Mode::Direct, TcpFlags::ACK);
        assert!(open.is_established());
        let flags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);
        assert!(after_request(open, Mode::Tunnel, flags).ended());
        assert!(!after_request(open, Mode::Nat, flags).ended());
    }

    #[test]
    fn flows_of_one_client_without_answers_do_not_displace_one_another() {
        let end = |last, port| Endpoint::new([10, 0, 0, last].into(), port, Protocol::TCP);
        let flow = |service, mode| Flow {
            client: end(1, 5),
            service,
            backend: end(9, 80),
            mode,
            place: 0,
        };
        for mode in [Mode::Direct, Mode::Tunnel] {
            let (one, other) = (flow(end(2, 80), mode), flow(end(3, 80), mode));
            assert_ne!(one.right(), other.right());
            assert_ne!(one.right(), Ends::between(end(2, 80), end(1, 5)));
        }
    }
}
