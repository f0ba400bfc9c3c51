//! All packets of the transport layer that are not an edit: new flows, the first and last segments of known ones, modes
//! other than translation. Imports `asterism_balancing`, `asterism_forwarding`, `asterism_function` and what lies beside it.

use asterism_balancing::{Heeded, Known, Pool, opens};
use asterism_forwarding::{Direction, Progress, Report, Segment, Side, is_host};
use asterism_function::{Ask, At, Endpoint, Flow4, Late, Protocol, Reason, TcpFlags, Verdict};

use super::{Balancer, BalancerState, Flow, Mode};
use crate::mutant::{self, Mutant};

type KnownFlow = At<Flow, Progress>;

/// Where a client's packet of a known flow goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// To the backend that the flow has.
    Stays,
    /// To a backend that is chosen now, which the flow has from here on.
    Moves,
    /// The same, while the flow stays until it is known that its client has left it.
    Contests,
}

impl Balancer {
    /// A packet of the transport layer that came by the link of a side.
    pub(super) fn came(
        &self,
        ask: Ask<'_, BalancerState>,
        side: Side,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let (ends, own) = (
            (flow.source(), flow.destination()),
            self.config.backends.address,
        );
        match Flow::between(&ask.flows, side, ends, own)? {
            Some((at, Side::Inside)) => self.follow(ask, at, Side::Inside),
            Some((at, Side::Outside)) => self.asked_by_client(ask, side, ends, Some(at)),
            None if side == Side::Outside || self.masquerades_to(ends.1) => {
                self.asked_by_client(ask, side, ends, None)
            }
            None => {
                let is_answer = ends.1.address == own || !self.router.is_interface(ends.1.address);
                if self.pools.is_backend(ends.0.address) && is_answer {
                    // An answer may overtake the word of its flow.
                    ask.expect(self.config.known_wait_us)?;
                }
                Ok(Verdict::Drop(Reason::NoBinding))
            }
        }
    }

    /// Whether a client on the backends' link may ask for this. Where backends answer directly, they have the service's address
    /// themselves.
    fn masquerades_to(&self, asked: Endpoint) -> bool {
        let pool = self.pools.of(asked);
        pool.is_some_and(|pool| pool.service().mode == Mode::Nat)
    }

    /// A packet to a service, by the link of a side.
    fn asked_by_client(
        &self,
        ask: Ask<'_, BalancerState>,
        side: Side,
        (client, asked): (Endpoint, Endpoint),
        known: Option<KnownFlow>,
    ) -> Result<Verdict, Late> {
        let pool = self.pools.of(asked);
        let segment = Segment::of(ask.packet());
        let mut fate = Fate::Moves;
        if let Some(at) = known {
            fate = self.fate(&ask, pool, &at, &segment)?;
            if fate == Fate::Stays {
                return match self.winner(&ask, &at, &segment)? {
                    Some(rival) => self.promote(ask, at, rival),
                    None => self.follow(ask, at, Side::Outside),
                };
            }
        }
        let Some(pool) = pool else {
            return Ok(Verdict::Drop(Reason::NotForUs));
        };
        // An answer to what has an address of the backends' link would not come back this way.
        let is_client = is_host(client.address)
            && client.port != 0
            && !self.is_ours(client.address)
            && (side == Side::Inside)
                == (self.router.side_of(client.address) == Some(Side::Inside));
        if !is_client {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let flags = segment.flags;
        if asked.protocol == Protocol::TCP && known.is_none() && !opens(flags) {
            // Another instance's word of its flow may be on the way.
            ask.expect(self.config.known_wait_us)?;
            if flags.contains(TcpFlags::RST) || flags.contains(TcpFlags::SYN) {
                return Ok(Verdict::Drop(Reason::NoBinding));
            }
        }
        self.open(ask, (pool, side), (client, asked), known, fate)
    }

    /// Whether a packet of a known flow goes where the flow went so far. It does not if it opens another connection between the
    /// same ends at a backend that takes none, nor if nothing is lost by another backend: a SYN that was not answered, or UDP.
    fn fate(
        &self,
        ask: &Ask<'_, BalancerState>,
        pool: Option<&Pool>,
        at: &KnownFlow,
        segment: &Segment,
    ) -> Result<Fate, Late> {
        let (is_udp, opens) = (
            at.row.client.protocol == Protocol::UDP,
            opens(segment.flags),
        );
        if at.value.reopens(segment.flags) || mutant::active(Mutant::DealtAgain) && opens {
            return Ok(Fate::Moves);
        }
        let Some(pool) = pool.filter(|_| is_udp || opens) else {
            return Ok(Fate::Stays);
        };
        let is_lost = |heeded| pool.has_lost(&at.row, &ask.health, ask.now(), heeded);
        if is_udp || is_lost(Heeded::Checks)? {
            return Ok(if is_lost(Heeded::All)? {
                Fate::Moves
            } else {
                Fate::Stays
            });
        }
        let is_lost = is_lost(Heeded::All)?;
        if !is_lost && pool.takes_new(&at.row) {
            return Ok(Fate::Stays);
        }
        let is_same = at.value.is_begun_by(segment, Direction::Outbound);
        Ok(match (at.value.is_established(), is_same) {
            (true, true) => Fate::Stays,
            (true, false) => Fate::Contests,
            // Its answer may be on the way to the client.
            (false, true) if !is_lost && at.value.is_answered() => Fate::Stays,
            (false, _) => Fate::Moves,
        })
    }

    /// The rival of a contested flow, if this segment is the one by which the client says that it goes on with that.
    fn winner(
        &self,
        ask: &Ask<'_, BalancerState>,
        at: &KnownFlow,
        segment: &Segment,
    ) -> Result<Option<KnownFlow>, Late> {
        const OTHERS: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::RST.0);
        let may_win = segment.flags.contains(TcpFlags::ACK) && !segment.flags.intersects(OTHERS);
        if !at.value.is_contested() || !may_win {
            return Ok(None);
        }
        let rival = at.row.rival(&ask.flows)?;
        Ok(rival.filter(|rival| rival.value.is_next(segment, Direction::Outbound)))
    }

    /// A packet that decides for a rival: it takes the flow's place.
    fn promote(
        &self,
        ask: Ask<'_, BalancerState>,
        old: KnownFlow,
        rival: KnownFlow,
    ) -> Result<Verdict, Late> {
        let Some(vacancy) = ask.flows.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let (flow, from) = (rival.row.promoted(), Side::Outside);
        let known = flow.after(rival.value, from, &Segment::of(ask.packet()));
        flow.path(from).send(&self.router, ask, |act| {
            act.flows.remove(&old);
            act.flows.remove(&rival);
            act.flows.insert(vacancy, flow, known);
        })
    }

    /// A packet of a known flow, which came from a side: to the backend that the flow has, or to its client.
    fn follow(
        &self,
        ask: Ask<'_, BalancerState>,
        at: KnownFlow,
        from: Side,
    ) -> Result<Verdict, Late> {
        let segment = Segment::of(ask.packet());
        let said = self.pools.said(&ask, &ask.health, from, &at)?;
        let begun_again = match from {
            Side::Inside => at.row.begun_again(&at.value, &segment),
            Side::Outside => None,
        };
        let vacancy = match begun_again {
            Some(_) => ask.flows.vacancy()?,
            None => None,
        };
        let keeps = from == Side::Inside || self.is_kept_by_client(&at.row);
        at.row.path(from).send(&self.router, ask, |act| {
            match (vacancy, begun_again) {
                (Some(vacancy), Some(known)) => act.flows.insert(vacancy, at.row, known),
                _ if keeps => act
                    .flows
                    .update(&at, at.row.after(at.value, from, &segment)),
                _ => {}
            }
            if let Some(said) = said {
                said.write(&mut act.health);
            }
        })
    }

    /// Whether a client's packets keep its flow. Not of UDP at a backend that takes no new flows: what the client sends for ever,
    /// and nobody answers, would never leave that.
    fn is_kept_by_client(&self, flow: &Flow) -> bool {
        flow.client.protocol != Protocol::UDP
            || (self.pools.of(flow.service)).is_some_and(|pool| pool.takes_new(flow))
    }

    /// A packet that opens a flow: gives it a backend.
    fn open(
        &self,
        ask: Ask<'_, BalancerState>,
        (pool, side): (&Pool, Side),
        ends: (Endpoint, Endpoint),
        old: Option<KnownFlow>,
        fate: Fate,
    ) -> Result<Verdict, Late> {
        let contested = old.filter(|_| fate == Fate::Contests);
        let old = match contested {
            Some(at) => at.row.rival(&ask.flows)?,
            None => old,
        };
        let segment = Segment::of(ask.packet());
        if let (Some(_), Some(rival)) = (contested, old)
            && rival.value.is_begun_by(&segment, Direction::Outbound)
            && pool.takes_new(&rival.row)
            && !pool.has_lost(&rival.row, &ask.health, ask.now(), Heeded::All)?
        {
            return self.follow(ask, rival, Side::Outside);
        }
        let known = Known {
            flows: &ask.flows,
            kept: &ask.kept,
            usage: &ask.usage,
            health: &ask.health,
        };
        let Some(mut chosen) = pool.choose(&ask, known, ends)? else {
            let report = Report::HostUnreachable;
            return self.router.report(ask, report, Reason::NoBackend);
        };
        if side == Side::Inside && !chosen.masquerade(&ask.flows)? {
            return Ok(Verdict::Drop(Reason::PortsExhausted));
        }
        let Some(vacancy) = ask.flows.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let keeping = chosen.keeping(&ask.kept, ask.now())?;
        let flow = match contested {
            Some(_) => chosen.flow.as_rival(),
            None => chosen.flow,
        };
        let known = flow.opened_by(&segment);
        flow.path(Side::Outside).send(&self.router, ask, |act| {
            if let Some(old) = old.filter(|old| old.row != flow) {
                act.flows.remove(&old);
            }
            if let Some(at) = contested {
                act.flows.update(&at, at.value.contested());
            }
            if !mutant::active(Mutant::FlowNotKept) {
                act.flows.insert(vacancy, flow, known);
            }
            keeping.write(&mut act.kept);
        })
    }
}
