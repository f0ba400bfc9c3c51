//! All packets of the transport layer that are not an edit: new flows, the first and last segments of known ones, modes other
//! than translation.

use asterism_balancing::{Fate, Known, Pool, opens};
use asterism_forwarding::{Progress, Report, Segment, Side, is_host};
use asterism_function::{Ask, At, Endpoint, Flow4, Late, Protocol, Reason, TcpFlags, Verdict};

use super::{Balancer, BalancerState, Flow};
use crate::mutant::{self, Mutant};

type KnownFlow = At<Flow, Progress>;

impl Balancer {
    /// A packet of the transport layer that came by the link of a side.
    pub(super) fn came(
        &self,
        ask: Ask<'_, BalancerState>,
        side: Side,
        flow: Flow4,
    ) -> Result<Verdict, Late> {
        let ends = (flow.source(), flow.destination());
        let own = self.config.backends.address;
        match Flow::between(&ask.flows, side, ends, own)? {
            Some((at, Side::Inside)) => self.follow(ask, at, Side::Inside),
            Some((at, Side::Outside)) => self.asked_by_client(ask, side, ends, Some(at)),
            None if side == Side::Outside || self.pools.masquerade(ends.1) => {
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
            let moves = at.value.reopens(segment.flags)
                || mutant::active(Mutant::DealtAgain) && opens(segment.flags);
            fate = match pool {
                _ if moves => Fate::Moves,
                Some(pool) => pool.fate(&at, &segment, &ask.health, ask.now())?,
                None => Fate::Stays,
            };
            if fate == Fate::Stays {
                return match at.row.winner(&ask.flows, &at.value, &segment)? {
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
        let keeps = from == Side::Inside || self.pools.keep_by_client(&at.row);
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
            && pool.goes_on_with(&rival, &segment, &ask.health, ask.now())?
        {
            return self.follow(ask, rival, Side::Outside);
        }
        let known = Known {
            flows: &ask.flows,
            affinity: &ask.affinity,
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
        let keeping = chosen.keeping(&ask.affinity, ask.now())?;
        let flow = contested.map_or(chosen.flow, |_| chosen.flow.as_rival());
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
            keeping.write(&mut act.affinity);
        })
    }
}
