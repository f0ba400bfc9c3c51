//! Decides on a packet: it passes, is dropped, or would open a flow.

use asterism_function::{
    Ask, At, Fragment, Late, Packet, PortNumber, Reason, Single, State, Verdict, Vlan,
};

use crate::flow::{Direction, Flow, Kind, Link};
use crate::fragments::{FirstFragment, later_fragment};
use crate::half_open::Limits;
use crate::mutant::{self, Mutant};
use crate::opening::Opening;
use crate::state::Tracks;
use crate::track::{Begins, Judged, Track};

/// Tracks connections between two links: what comes in by either of two ports leaves by the other one, ports 0 and 1 being such a pair,
/// and 2 and 3.
///
/// A packet that fits no flow *yet* may have overtaken what makes it fit: before it is dropped it waits as long as other instances take to
/// tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracker {
    /// TCP connections whose beginning was not seen go on if they may begin: for starting a function in a network that has some. No limit
    /// counts those.
    pub picks_up: bool,
    /// Paths may show one direction of a TCP connection alone: what it sends passes without the other one's half of the handshake, and
    /// sequence numbers do not count. Connections whose beginning was not seen go on if they may begin, as with `picks_up`. Who
    /// knows addresses and ports can send into a connection, reset it, and hold a place in the table for hours.
    pub asymmetric: bool,
    /// The same addresses and ports on two VLANs are two flows. Not where a path has another VLAN for each direction.
    pub per_vlan: bool,
    /// Microseconds that a packet waits for what another instance may have seen, before it is dropped for fitting no flow. 0 where there
    /// are no other instances.
    pub settle_us: u32,
    /// How many connections may be half open, of a state that counts them.
    pub limits: Limits,
}

impl Default for Tracker {
    fn default() -> Self {
        Self {
            picks_up: false,
            asymmetric: false,
            per_vlan: true,
            settle_us: 20_000,
            limits: Limits::default(),
        }
    }
}

/// A flow that was found.
pub(crate) type Known = At<Single<Flow>, Track>;

/// The port that a packet leaves by.
#[inline(always)]
pub(crate) fn across<S: State>(ask: &Ask<'_, S>) -> PortNumber {
    PortNumber(ask.port().0 ^ 1)
}

impl Tracker {
    /// A packet that came in by a link. What belongs to a flow passes because it does, and so do ARP, neighbour discovery and ICMP errors
    /// about flows; what would open one is handed to `opens`; all else is dropped: [`Reason::NoConnection`], [`Reason::BadTcpFlags`],
    /// [`Reason::OutOfWindow`], [`Reason::IcmpUnmatched`], [`Reason::FragmentTiny`], [`Reason::FragmentUnmatched`],
    /// [`Reason::UnsupportedProtocol`], [`Reason::TableFull`].
    ///
    /// Late where one of the objects is, and where a packet waits. A packet of a known flow costs one probe of `flows`.
    #[inline(always)]
    pub fn follow<'a, S: Tracks>(
        &self,
        ask: Ask<'a, S>,
        link: Link,
        opens: impl FnOnce(Ask<'a, S>, &Opening) -> Result<Verdict, Late>,
    ) -> Result<Verdict, Late> {
        let kind = Kind::of(ask.packet(), self.vlan(ask.packet()));
        let (Kind::Opens(flow, direction) | Kind::Answers(flow, direction)) = kind else {
            return self.uncommon(ask, kind);
        };
        let Some(known) = ask.tracked().flows.get(&flow)? else {
            return match kind {
                Kind::Opens(..) => self.opening(ask, Opening::new(flow, direction, link), opens),
                _ => self.refuse_unknown(&ask, Reason::NoConnection),
            };
        };
        let judged = match self.asymmetric {
            false => known.value.judge(ask.packet(), direction, link),
            true => known.value.judge_one_sided(ask.packet(), direction, link),
        };
        let opening = || Opening::new(known.row.0, direction, link);
        match judged {
            Judged::Passes(track) => self.known(ask, &known, track, direction),
            Judged::Again(track) => self.again(ask, known.row.0, track),
            Judged::Opens => self.opening(ask, opening(), opens),
            Judged::Reopens(track) => opens(ask, &opening().within(known, track)),
            Judged::Refused(reason) => self.refuse_known(&ask, &known, direction, reason),
        }
    }

    /// The VLAN that names a packet's flow.
    #[inline(always)]
    pub(crate) fn vlan(&self, packet: &Packet<'_>) -> Vlan {
        match packet.vlan() {
            Vlan::NONE => Vlan::NONE,
            vlan if self.per_vlan => vlan,
            _ => Vlan::NONE,
        }
    }

    /// Which segments may begin a TCP connection.
    fn begins(&self) -> Begins {
        match (self.asymmetric, self.picks_up) {
            (true, _) => Begins::Anything,
            (false, true) => Begins::Acknowledging,
            (false, false) => Begins::Syn,
        }
    }

    /// A packet of a known flow, which passes.
    #[inline(always)]
    fn known<S: Tracks>(
        &self,
        ask: Ask<'_, S>,
        known: &Known,
        track: Track,
        direction: Direction,
    ) -> Result<Verdict, Late> {
        if known.value.is_half_open() || ask.packet().layout().fragment() != Fragment::Whole {
            return self.known_thorough(ask, known, track, direction);
        }
        let out = across(&ask);
        let mut act = ask.act()?;
        S::tracked_act(&mut act).flows.update(known, track);
        Ok(Verdict::Forward(out))
    }

    /// The same of a packet of a half-open connection, and of a first fragment.
    #[inline(never)]
    fn known_thorough<S: Tracks>(
        &self,
        ask: Ask<'_, S>,
        known: &Known,
        track: Track,
        direction: Direction,
    ) -> Result<Verdict, Late> {
        let tracked = ask.tracked();
        let packet = ask.packet();
        let first = FirstFragment::of(packet, self.vlan(packet), tracked.fragments)?;
        let was_half_open = known.value.is_half_open();
        let tallies = match tracked.half_open {
            Some(half_open) if known.value.is_settled_by(ask.packet(), direction, &track) => {
                Some(half_open.settles(&self.limits, &known.row.0, &known.value)?)
            }
            _ => None,
        };
        let is_answer = was_half_open && direction != known.value.opener();
        let is_forgotten = mutant::active(Mutant::AnswerNotWritten) && is_answer;
        // What says nothing new does not hold a half-open connection: SYNs sent again would, beyond the minute for which it counts.
        let says_nothing = was_half_open && track == known.value;
        let out = across(&ask);
        let mut act = ask.act()?;
        let act = S::tracked_act(&mut act);
        if track.is_refused() && !is_forgotten {
            // Nobody holds a connection, and a flood of what a server refuses must not fill the table.
            act.flows.remove(known);
        } else if !is_forgotten && !says_nothing {
            act.flows.update(known, track);
        }
        if let (Some(tallies), Some(half_open)) = (tallies, act.half_open) {
            tallies.write(half_open);
        }
        first.write(act.fragments);
        Ok(Verdict::Forward(out))
    }

    /// A connection that both ends have begun again in the place of one that is known.
    #[cold]
    #[inline(never)]
    fn again<S: Tracks>(&self, ask: Ask<'_, S>, flow: Flow, track: Track) -> Result<Verdict, Late> {
        let Some(admission) = self.admission(&ask, (flow, None), track, None)? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        Ok(admission.pass(&mut ask.act()?))
    }

    /// A packet that may open a flow.
    #[inline(never)]
    fn opening<'a, S: Tracks>(
        &self,
        ask: Ask<'a, S>,
        mut opening: Opening,
        opens: impl FnOnce(Ask<'a, S>, &Opening) -> Result<Verdict, Late>,
    ) -> Result<Verdict, Late> {
        let way = (opening.direction, opening.link);
        match Track::opened(ask.packet(), way, self.begins()) {
            Ok(track) => opening.track = track,
            Err(reason) => return self.refuse_unknown(&ask, reason),
        }
        opens(ask, &opening)
    }

    /// Packets that are of no flow by themselves.
    #[inline(never)]
    fn uncommon<S: Tracks>(&self, ask: Ask<'_, S>, kind: Kind) -> Result<Verdict, Late> {
        let out = across(&ask);
        let tracked = ask.tracked();
        match kind {
            Kind::Link => {}
            Kind::Error(None) => return Ok(Verdict::Drop(Reason::IcmpUnmatched)),
            Kind::Error(Some(flow)) => {
                // It neither refreshes nor ends the flow: anybody can forge it (RFC 5508 REQ-6, RFC 5927).
                if tracked.flows.get(&flow)?.is_none() {
                    return self.refuse_unknown(&ask, Reason::IcmpUnmatched);
                }
                let packet = ask.packet();
                let first = FirstFragment::of(packet, self.vlan(packet), tracked.fragments)?;
                let mut act = ask.act()?;
                first.write(S::tracked_act(&mut act).fragments);
            }
            Kind::LaterFragment => {
                match later_fragment(&ask, self.vlan(ask.packet()), tracked.fragments) {
                    Ok(known) => {
                        let mut act = ask.act()?;
                        S::tracked_act(&mut act).fragments.touch(&known);
                    }
                    Err(stop) => return stop.dropped(),
                }
            }
            Kind::TinyFragment => return Ok(Verdict::Drop(Reason::FragmentTiny)),
            Kind::UnknownIcmp | Kind::Foreign | Kind::Opens(..) | Kind::Answers(..) => {
                return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
            }
        }
        Ok(Verdict::Forward(out))
    }

    /// Drops a packet that fits no flow, once no other instance can have seen what would make it fit.
    #[inline(never)]
    fn refuse_unknown<S: Tracks>(&self, ask: &Ask<'_, S>, reason: Reason) -> Result<Verdict, Late> {
        if reason != Reason::BadTcpFlags {
            self.settle(ask)?;
        }
        Ok(Verdict::Drop(reason))
    }

    /// The same of a packet that does not fit a flow which is known. What fits none, whatever others tell, does not wait: a
    /// packet that waits holds up its flow, and one of these is forged with an address and two ports.
    #[cold]
    #[inline(never)]
    fn refuse_known<S: Tracks>(
        &self,
        ask: &Ask<'_, S>,
        known: &Known,
        direction: Direction,
        reason: Reason,
    ) -> Result<Verdict, Late> {
        if !known.value.may_yet_pass(ask.packet(), direction) {
            return Ok(Verdict::Drop(reason));
        }
        self.refuse_unknown(ask, reason)
    }

    pub(crate) fn settle<S: State>(&self, ask: &Ask<'_, S>) -> Result<(), Late> {
        match self.settle_us {
            0 => Ok(()),
            us => ask.expect(us.into()),
        }
    }
}
