//! Where a client's packet of a known flow goes: to the flow's backend, or to another one.

use asterism_forwarding::{Direction, Progress, Segment};
use asterism_function::{At, Endpoint, Late, Protocol, TcpFlags, Tick};

use crate::flow::{Flow, Flows, opens};
use crate::pool::{Pool, Pools};
use crate::service::Mode;
use crate::watch::{Health, HealthSource};

/// Where a client's packet of a known flow goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// To the backend that the flow has.
    Stays,
    /// To a backend that is chosen now, which the flow has from here on.
    Moves,
    /// The same, while the flow stays until it is known that its client has left it.
    Contests,
}

impl Pool {
    /// Whether a client's packet of a known flow goes where the flow went so far. It does not if it opens another connection between
    /// the same ends at a backend that takes none, nor if nothing is lost by another backend: a SYN that was not answered, or UDP. Late
    /// where `health` is.
    pub fn fate(
        &self,
        at: &At<Flow, Progress>,
        segment: &Segment,
        health: &Health,
        now: Tick,
    ) -> Result<Fate, Late> {
        let is_udp = at.row.client.protocol == Protocol::UDP;
        if !is_udp && !opens(segment.flags) {
            return Ok(Fate::Stays);
        }
        let is_lost = |health_source| self.has_lost(&at.row, health, now, health_source);
        if is_udp || is_lost(HealthSource::Checks)? {
            return Ok(match is_lost(HealthSource::All)? {
                true => Fate::Moves,
                false => Fate::Stays,
            });
        }
        let is_lost = is_lost(HealthSource::All)?;
        if !is_lost && self.takes_new(&at.row) {
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

    /// Whether a SYN goes on with the rival that came of it before, whose backend may still have it. Late where `health` is.
    pub fn goes_on_with(
        &self,
        rival: &At<Flow, Progress>,
        segment: &Segment,
        health: &Health,
        now: Tick,
    ) -> Result<bool, Late> {
        let is_same = rival.value.is_begun_by(segment, Direction::Outbound);
        Ok(is_same
            && self.takes_new(&rival.row)
            && !self.has_lost(&rival.row, health, now, HealthSource::All)?)
    }
}

impl Pools {
    /// Whether a client on the backends' link may ask for this. Where backends answer directly, they have the service's address
    /// themselves.
    #[must_use]
    pub fn masquerade(&self, asked: Endpoint) -> bool {
        let pool = self.of(asked);
        pool.is_some_and(|pool| pool.service().mode == Mode::Nat)
    }

    /// Whether a client's packets keep its flow. Not of UDP at a backend that takes no new flows: what the client sends for ever,
    /// and nobody answers, would never leave that.
    #[must_use]
    pub fn keep_by_client(&self, flow: &Flow) -> bool {
        let takes_new = |pool: &Pool| pool.takes_new(flow);
        flow.client.protocol != Protocol::UDP || self.of(flow.service).is_some_and(takes_new)
    }
}

impl Flow {
    /// The rival of a contested flow, if this segment is the one by which the client says that it goes on with that.
    pub fn winner(
        &self,
        flows: &Flows,
        known: &Progress,
        segment: &Segment,
    ) -> Result<Option<At<Self, Progress>>, Late> {
        const OTHERS: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::RST.0);
        let may_win = segment.flags.contains(TcpFlags::ACK) && !segment.flags.intersects(OTHERS);
        if !known.is_contested() || !may_win {
            return Ok(None);
        }
        let rival = self.rival(flows)?;
        Ok(rival.filter(|rival| rival.value.is_next(segment, Direction::Outbound)))
    }
}
