//! Which backends count as dead, and which health votes a host's checks and its flows cause.

use asterism_forwarding::{Progress, Side, StationRequest};
use asterism_function::objects::TableAct;
use asterism_function::{
    Ask, At, Builder, Endpoint, Entry, Late, Map, Packet, Reason, Single, State, TcpFlags, Tick,
    Verdict,
};

use crate::check_result::CheckResult;
use crate::flow::{Flow, opens};
use crate::health_votes::{self, HealthVotes};
use crate::mutant::{self, Mutant};
use crate::pool::{Pool, Pools};

/// What is said of each backend, by its name.
pub type Health = Map<Endpoint, HealthVotes>;

/// The object `health`: what is said of so many backends.
#[must_use]
pub fn health(builder: &Builder, backends_max: usize) -> Health {
    builder.table("health", backends_max as u32, &health_votes::IDLE)
}

/// Which health signals are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HealthSource {
    /// HealthVotes of hosts, and flows that failed.
    All,
    /// HealthVotes of hosts alone.
    Checks,
}

/// What is to be written of a backend.
#[derive(Debug)]
pub struct HealthUpdate {
    room: Entry<Endpoint, HealthVotes>,
    votes: HealthVotes,
}

impl HealthUpdate {
    /// Writes it; where there is no room, nothing.
    #[inline]
    pub fn write(self, health: &mut TableAct<'_, Single<Endpoint>, HealthVotes>) {
        health.put(self.room, self.votes);
    }
}

/// What is to be done about a frame of the host's control side.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack, and the packet path does not allocate"
)]
pub enum ControlAction {
    /// A result of a check is to be written.
    Write(HealthUpdate),
    /// A station is to be asked for ahead ([`Router::resolve_ahead`](asterism_forwarding::Router::resolve_ahead)). A function without a
    /// router has none.
    Resolve(StationRequest),
    /// Nothing; this is the verdict.
    End(Verdict),
}

impl Pools {
    /// What is to be done about a frame of the host's control side: a [`CheckResult`] or a [`StationRequest`]; any other is dropped. A vote
    /// that stands is written again after ten seconds; one on a backend that is not checked (any more), never.
    pub fn reported<S: State>(
        &self,
        ask: &Ask<'_, S>,
        health: &Health,
    ) -> Result<ControlAction, Late> {
        let (frame, now) = (ask.packet().bytes(), ask.now());
        if let Some(request) = StationRequest::read(frame) {
            return Ok(ControlAction::Resolve(request));
        }
        let Some(finding) = CheckResult::read(frame) else {
            return Ok(ControlAction::End(Verdict::Drop(
                Reason::UnsupportedProtocol,
            )));
        };
        let (member, is_down) = (finding.member, finding.is_down);
        // Of a pool that has changed since.
        if !self.checks(finding.backend) {
            return Ok(ControlAction::End(Verdict::Consumed));
        }
        let room = health.entry(finding.backend)?;
        let votes = room.value().copied().unwrap_or_default();
        Ok(if votes.holds(member, now, is_down) {
            ControlAction::End(Verdict::Consumed)
        } else if room.is_full() {
            ControlAction::End(Verdict::Drop(Reason::TableFull))
        } else {
            let votes = votes.with(member, now, is_down);
            ControlAction::Write(HealthUpdate { room, votes })
        })
    }

    /// What a packet of a known flow, which came from a side, says of the flow's backend; mostly nothing. Looks at TCP's control
    /// bits, of what opens a connection or answers that also at `health`.
    pub fn said<S: State>(
        &self,
        ask: &Ask<'_, S>,
        health: &Health,
        from: Side,
        at: &At<Flow, Progress>,
    ) -> Result<Option<HealthUpdate>, Late> {
        let flags = ask.packet().tcp_flags().unwrap_or_default();
        match from {
            Side::Outside if opens(flags) => self.said_by_client(ask, health, at),
            Side::Outside => Ok(None),
            Side::Inside => self.said_by_backend(ask, health, at, flags),
        }
    }

    /// What a client's SYN says of its flow's backend: if an earlier one was not answered, that the flow failed. One that a backend
    /// may well let lie says nothing.
    fn said_by_client<S: State>(
        &self,
        ask: &Ask<'_, S>,
        health: &Health,
        at: &At<Flow, Progress>,
    ) -> Result<Option<HealthUpdate>, Late> {
        match self.watching(&at.row) {
            Some(pool) if !at.value.is_answered() && is_sound(ask.packet()) => {
                pool.failed(health, ask.now(), &at.row, false)
            }
            _ => Ok(None),
        }
    }

    /// What a backend's first answer says of it: a reset of a SYN that it refuses the flow, anything but a reset that it lives. So does a SYN that
    /// it sends again: when the first one came, the word of a failure that it clears may have been on its way.
    fn said_by_backend<S: State>(
        &self,
        ask: &Ask<'_, S>,
        health: &Health,
        at: &At<Flow, Progress>,
        flags: TcpFlags,
    ) -> Result<Option<HealthUpdate>, Late> {
        let is_first = !at.value.is_answered();
        let Some(pool) = self.watching(&at.row) else {
            return Ok(None);
        };
        if flags.contains(TcpFlags::RST) {
            // One that answers a SYN acknowledges it (RFC 9293 §3.10.7.1). One without is of the middle of a connection: another
            // backend's, whose flow was dealt twice or was lost with the host that knew it.
            return match is_first && flags.contains(TcpFlags::ACK) {
                true => pool.failed(health, ask.now(), &at.row, true),
                false => Ok(None),
            };
        }
        if !is_first && !flags.contains(TcpFlags::SYN) {
            return Ok(None);
        }
        let now = ask.now();
        Ok(match health.get(&pool.name_of(&at.row))? {
            // Where nothing failed, an answer is no news.
            Some(known)
                if known.value.has_failures(now) && !mutant::active(Mutant::RecoveryNotWritten) =>
            {
                let votes = known.value.with_answer(now);
                let room = Entry::Occupied(known);
                Some(HealthUpdate { room, votes })
            }
            _ => None,
        })
    }

    /// The pool of a flow, if what becomes of it says something of its backend.
    fn watching(&self, flow: &Flow) -> Option<&Pool> {
        if !self.watches_flows() {
            return None;
        }
        let pool = self.of(flow.service);
        pool.filter(|pool| pool.service().passive > 0)
    }
}

impl Pool {
    /// Whether a backend counts as dead by the health signals that are used. Reads `health` if anything is said of the service's backends.
    #[inline]
    pub fn is_down(
        &self,
        number: usize,
        health: &Health,
        now: Tick,
        health_source: HealthSource,
    ) -> Result<bool, Late> {
        let service = self.service();
        if !service.checked && service.passive == 0 {
            return Ok(false);
        }
        let known = health.get(&self.backend_name(number))?;
        let votes = known.map(|known| known.value).unwrap_or_default();
        let by_flows = health_source == HealthSource::All && votes.fails(now, service.passive);
        Ok(service.checked && votes.is_down(now) || by_flows)
    }

    /// Whether the backend of a flow counts as dead by the health signals that are used. One that the pool has no more does not: nothing is said of it.
    #[inline]
    pub fn has_lost(
        &self,
        flow: &Flow,
        health: &Health,
        now: Tick,
        health_source: HealthSource,
    ) -> Result<bool, Late> {
        self.number_of(flow).map_or(Ok(false), |number| {
            self.is_down(number, health, now, health_source)
        })
    }

    /// The backend of a flow; `None`: the pool has it no more.
    pub(crate) fn number_of(&self, flow: &Flow) -> Option<usize> {
        let mut backends = self.backends().iter();
        backends.position(|one| one.answers_at(flow.service) == flow.backend)
    }

    /// What a flow's backend goes by.
    fn name_of(&self, flow: &Flow) -> Endpoint {
        let mut backends = (0..).zip(self.backends());
        let found = backends.find(|(number, one)| {
            self.usage_place(*number) == flow.place && one.address == flow.backend.address
        });
        found.map_or(flow.backend, |(_, one)| self.service().checked_at(one))
    }

    /// A flow that failed is noted once a second; where there is no room, not at all.
    fn failed(
        &self,
        health: &Health,
        now: Tick,
        flow: &Flow,
        is_refused: bool,
    ) -> Result<Option<HealthUpdate>, Late> {
        let room = health.entry(self.name_of(flow))?;
        let before = room.value().copied().unwrap_or_default();
        let votes = before.with_failure(flow.client, now, is_refused);
        Ok((votes != before).then_some(HealthUpdate { room, votes }))
    }
}

/// Whether a SYN is one that a backend answers, as far as that can be seen: not damaged, which it comes to the backend as, nor
/// with FIN. Costs a look at the whole segment.
#[cold]
fn is_sound(packet: &Packet<'_>) -> bool {
    let flags = packet.tcp_flags().unwrap_or_default();
    !flags.contains(TcpFlags::FIN) && packet.verify_transport_checksum() != Some(false)
}
