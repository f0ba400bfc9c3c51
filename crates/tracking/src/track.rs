//! The track of a flow: what all instances together observed, and which packets that allows. Read `track/judge.rs` next
//! (which packets pass), then `track/reopening.rs` (how a connection begins again).
//!
//! A [`Track`] only grows within one incarnation of a flow: bits become set, numbers become greater. So the observations of
//! two instances add up, in whatever order they are exchanged: a SYN here and the SYN-ACK there are one handshake. A
//! connection that begins again between the same ends begins a new incarnation.
//!
//! Sequence numbers would change, and so travel, with every packet. So a track keeps a *bound* for each direction: data up to
//! it was let through. The bound moves in steps of half a window, so about twice in a round trip at full speed.

mod judge;
mod reopening;

use asterism_function::{
    BadBytes, Packet, Reader, Reason, TcpFlags, Transport, Value, Wire, Writer, layout,
};

pub(crate) use judge::Judged;

/// Which segments may begin a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begins {
    /// A SYN.
    Syn,
    /// And what acknowledges, without SYN, FIN or RST.
    Acknowledging,
    /// And a SYN-ACK or a FIN: all but a reset.
    Anything,
}

use crate::flow::{Direction, Link};
use crate::segment::{Class, SCALE_MAX, Segment};

/// What was seen of a flow: 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Value)]
#[value(idle_class = Self::class)]
pub struct Track {
    /// Bits of what was seen forth, and eight higher of what was seen back.
    #[join(or)]
    seen: u16,
    #[join(max)]
    kind: Kind,
    /// Of each direction's SYN: 0 none was seen, 1 it had no window scale, else the scale plus two (RFC 7323 §2.2).
    #[join(max, each)]
    scales: [u8; 2],
    /// The largest window that each direction's sender offered: the exponent of the power of two at or above it, plus one;
    /// 0 none yet.
    #[join(max, each)]
    windows: [u8; 2],
    /// Bits of the SYNs with other numbers that passed to this connection after it was answered ([`Track::with_other_syn`]).
    #[join(or)]
    other_syns: u8,
    /// Up to where each direction's sender may have sent, extended to 64 bits; 0 nothing was seen.
    #[join(max, each)]
    sent: [u64; 2],
}

/// What a flow is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Wire)]
enum Kind {
    #[default]
    Tcp = 0,
    Udp = 1,
    Icmp = 2,
    Other = 3,
}

const SYN: u16 = 1;
const SYN_ACK: u16 = 1 << 1;
/// A segment with ACK and without SYN; a packet at all, of what is not TCP.
const ACK: u16 = 1 << 2;
const FIN: u16 = 1 << 3;
const RST: u16 = 1 << 4;
/// The rules let this direction open the flow.
const OPENED: u16 = 1 << 5;
/// What this direction opened it with came in by the outside link.
const ON_OUTSIDE: u16 = 1 << 6;
/// This direction's end sent a segment other than a reset behind one that bore its name: it refused a forged one, and the
/// connection goes on (RFC 5961 §3).
const GOES_ON: u16 = RST << GOES_ON_SHIFT;
const GOES_ON_SHIFT: u32 = 3;
const BACK_SHIFT: u32 = 8;

/// The least step of a bound, in bytes.
const STEP_MIN: u64 = 4_096;
const WITHOUT_SCALE: u8 = 1;
const WITH_SCALE: u8 = 2;
/// The exponent of the largest window, plus one.
const WINDOW_MAX: u8 = 31;

impl Track {
    /// A flow that was opened by a packet of this direction, on this link; `Err` if such a packet opens none.
    pub(crate) fn opened(
        packet: &Packet<'_>,
        (direction, link): (Direction, Link),
        begins: Begins,
    ) -> Result<Self, Reason> {
        let mut track = Self {
            kind: match packet.layout().transport() {
                Transport::Tcp => Kind::Tcp,
                Transport::Udp => Kind::Udp,
                Transport::Icmp | Transport::Icmpv6 => Kind::Icmp,
                Transport::None => Kind::Other,
            },
            ..Self::default()
        };
        track.set(OPENED, direction);
        if link == Link::Outside {
            track.set(ON_OUTSIDE, direction);
        }
        let Some(segment) = Segment::of(packet) else {
            track.set(ACK, direction);
            return Ok(track);
        };
        match segment.class() {
            Class::Syn => Ok(track.with_syn(&segment, SYN, direction)),
            Class::Ack if begins != Begins::Syn => Ok(track.with(&segment, ACK, direction)),
            Class::Invalid => Err(Reason::BadTcpFlags),
            Class::SynAck if begins == Begins::Anything => {
                Ok(track.with_syn(&segment, SYN_ACK | ACK, direction))
            }
            Class::FinAck if begins == Begins::Anything => {
                Ok(track.with(&segment, FIN | ACK, direction))
            }
            _ => Err(Reason::NoConnection),
        }
    }

    /// With what a segment without SYN says.
    #[inline(always)]
    fn with(mut self, segment: &Segment, mut bits: u16, direction: Direction) -> Self {
        let at = direction as usize;
        let sent = self.sent[at];
        let end = extended(sent, segment.sequence) + u64::from(segment.size());
        if sent == 0 {
            self.sent[at] = end;
        } else if end > sent {
            if bits & RST != 0 {
                // Beyond what the end is known to have sent: perhaps a blind one (RFC 5961 §3).
                bits = 0;
            } else {
                self.sent[at] = end + step(self.window(direction.reversed()));
            }
        }
        self = self.with_bits(bits, direction);
        let scale = match (self.scales[at], self.scales[direction.reversed() as usize]) {
            (WITHOUT_SCALE, _) | (_, WITHOUT_SCALE) => 0,
            (0, _) => SCALE_MAX,
            (scale, _) => scale - WITH_SCALE,
        };
        self.offer(u32::from(segment.window) << scale, direction);
        self
    }

    /// With these bits of a segment without SYN.
    #[inline(always)]
    fn with_bits(mut self, mut bits: u16, direction: Direction) -> Self {
        if bits & RST == 0 {
            let own = self.seen >> (BACK_SHIFT * direction as u32);
            bits |= own << GOES_ON_SHIFT & GOES_ON;
        }
        self.set(bits, direction);
        self
    }

    /// With what a segment with SYN says.
    fn with_syn(mut self, segment: &Segment, bit: u16, direction: Direction) -> Self {
        let at = direction as usize;
        let end = extended(self.sent[at], segment.sequence) + u64::from(segment.size());
        self.sent[at] = self.sent[at].max(end);
        self.scales[at] = self.scales[at].max(scale_of(segment));
        self.set(bit, direction);
        // Never scaled itself (RFC 7323 §2.2).
        self.offer(u32::from(segment.window), direction);
        self
    }

    #[inline(always)]
    fn offer(&mut self, window: u32, direction: Direction) {
        let exponent = window.checked_next_power_of_two().map_or(31, u32::ilog2) as u8 + 1;
        let known = &mut self.windows[direction as usize];
        *known = (*known).max(exponent);
    }

    /// The largest window that a direction's sender offered, rounded up to a power of two; 0: none is known.
    #[inline(always)]
    const fn window(&self, direction: Direction) -> u64 {
        match self.windows[direction as usize] {
            0 => 0,
            exponent => 1 << ((exponent - 1) & 63),
        }
    }

    #[inline(always)]
    fn set(&mut self, bits: u16, direction: Direction) {
        self.seen |= bits << (BACK_SHIFT * direction as u32);
    }

    /// Whether all of `bits` were seen in a direction.
    #[inline(always)]
    fn has(&self, bits: u16, direction: Direction) -> bool {
        self.seen >> (BACK_SHIFT * direction as u32) & bits == bits
    }

    #[inline(always)]
    const fn either(&self, bit: u16) -> bool {
        self.seen & (bit | bit << BACK_SHIFT) != 0
    }

    #[inline]
    const fn both(&self, bit: u16) -> bool {
        let both = bit | bit << BACK_SHIFT;
        self.seen & both == both
    }

    /// Whether the end that did not open the flow has agreed to it, as its opener says if nobody saw the answer, or nobody saw how it
    /// began.
    #[inline(always)]
    fn is_answered(&self) -> bool {
        self.either(SYN_ACK) || self.is_picked_up() || self.is_one_sided()
    }

    /// Whether its opener acknowledged an answer that nobody saw, where a path may show one direction alone.
    #[inline]
    fn is_one_sided(&self) -> bool {
        const SAID: u16 = OPENED | SYN | ACK;
        !self.either(SYN_ACK)
            && (self.has(SAID, Direction::Forth) || self.has(SAID, Direction::Back))
    }

    #[inline(always)]
    const fn is_picked_up(&self) -> bool {
        !self.either(SYN)
    }

    /// Whether it was reset before both ends had spoken.
    #[inline(always)]
    #[must_use]
    pub fn is_refused(&self) -> bool {
        const SPOKEN: u16 = SYN | SYN_ACK | ACK | FIN;
        let spoke = |shift: u32| self.seen >> shift & SPOKEN != 0;
        self.either(RST) && !(spoke(0) && spoke(BACK_SHIFT))
    }

    /// Whether a TCP connection was reset, or finished both ways; finished at all, if one direction alone was seen.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.kind == Kind::Tcp
            && (self.is_reset() || self.both(FIN) || self.either(FIN) && self.is_of_one_direction())
    }

    /// Whether nothing was seen of one direction.
    #[inline]
    const fn is_of_one_direction(&self) -> bool {
        const SPOKEN: u16 = SYN | SYN_ACK | ACK | FIN | RST;
        self.seen & SPOKEN == 0 || self.seen >> BACK_SHIFT & SPOKEN == 0
    }

    /// Whether an end was reset and did not go on.
    #[inline(always)]
    const fn is_reset(&self) -> bool {
        self.seen & !(self.seen >> GOES_ON_SHIFT) & (RST | RST << BACK_SHIFT) != 0
    }

    /// Whether packets were seen both ways; of TCP, whether the handshake is complete.
    #[inline]
    #[must_use]
    pub fn is_established(&self) -> bool {
        match self.kind {
            Kind::Tcp => !self.is_over() && self.is_complete(),
            _ => self.both(ACK),
        }
    }

    /// Whether the handshake was completed, whatever came then.
    #[inline(always)]
    fn is_complete(&self) -> bool {
        let by = |direction: Direction| self.has(OPENED | ACK, direction) && self.is_answered();
        by(Direction::Forth) || by(Direction::Back) || self.both(ACK)
    }

    /// Whether a packet of a direction with which the connection is `after` settles a half-open one: it counts against no limit
    /// any more.
    ///
    /// The opener does that by acknowledging what the other end said, and not by a blind reset: anyone who forged its SYN forges
    /// that, too.
    pub(crate) fn is_settled_by(
        &self,
        packet: &Packet<'_>,
        direction: Direction,
        after: &Self,
    ) -> bool {
        let acknowledges = |flags: TcpFlags| flags.contains(TcpFlags::ACK) && self.is_answered();
        self.is_half_open()
            && !after.is_half_open()
            && (after.is_established()
                || direction != self.opener()
                || packet.tcp_flags().is_some_and(acknowledges))
    }

    /// Whether it is a TCP connection of which the handshake is not complete.
    #[inline]
    #[must_use]
    pub fn is_half_open(&self) -> bool {
        self.kind == Kind::Tcp && !self.is_established() && !self.is_over()
    }

    /// Who opened it; of two that did so at once, the first end.
    #[inline]
    #[must_use]
    pub fn opener(&self) -> Direction {
        if self.has(OPENED, Direction::Forth) {
            Direction::Forth
        } else {
            Direction::Back
        }
    }

    /// By which link its opener opened it.
    #[must_use]
    pub fn opened_on(&self) -> Link {
        match self.has(ON_OUTSIDE, self.opener()) {
            true => Link::Outside,
            false => Link::Inside,
        }
    }

    /// Whether the end that sends packets of a direction is on a link: the opener is where it opened the flow, the other end on
    /// the other one. Who forges packets of both ends sends them by one.
    fn is_end_on(&self, direction: Direction, link: Link) -> bool {
        (direction == self.opener()) == (link == self.opened_on())
    }
}

/// The scale of a segment with SYN, as tracks have it.
fn scale_of(segment: &Segment) -> u8 {
    segment
        .scale
        .map_or(WITHOUT_SCALE, |scale| scale + WITH_SCALE)
}

/// The step by which a bound moves, with a window on offer.
#[inline(always)]
const fn step(window: u64) -> u64 {
    if window / 2 > STEP_MIN {
        window / 2
    } else {
        STEP_MIN
    }
}

/// A sequence number near a bound, in 64 bits: so numbers that wrap still have a maximum, which joins.
#[inline(always)]
const fn extended(bound: u64, number: u32) -> u64 {
    if bound == 0 {
        return 1 << 32 | number as u64;
    }
    let distance = number.wrapping_sub(bound as u32) as i32;
    bound.saturating_add_signed(distance as i64)
}

impl core::fmt::Debug for Track {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self.kind {
            Kind::Tcp if self.is_over() => "tcp ended",
            Kind::Tcp if self.is_established() => "tcp established",
            Kind::Tcp => "tcp half-open",
            Kind::Udp if self.is_established() => "udp both ways",
            Kind::Udp => "udp one way",
            Kind::Icmp => "icmp query",
            Kind::Other => "other",
        })?;
        formatter.write_str(match self.opener() {
            Direction::Forth => ", opened by the first",
            Direction::Back => ", opened by the second",
        })
    }
}

impl Track {
    /// A place in [`IdleTimes::classes`](crate::IdleTimes::classes).
    #[inline]
    fn class(&self) -> u8 {
        match self.kind {
            // Reset or not.
            Kind::Tcp if !self.is_complete() => 0,
            Kind::Tcp if self.is_over() => 2,
            Kind::Tcp => 1,
            Kind::Udp if self.is_established() => 4,
            Kind::Udp => 3,
            Kind::Icmp => 5,
            Kind::Other => 6,
        }
    }
}

/// 3 bytes, of TCP 18.
impl Wire for Track {
    const LAYOUT: u64 = layout::manual("firewall track", 2);
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        self.kind.encode(out);
        out.u16(self.seen);
        if self.kind == Kind::Tcp {
            out.u8(self.other_syns);
            for at in 0..2 {
                out.u8(self.scales[at]);
                out.u8(self.windows[at]);
                out.varint(self.sent[at]);
            }
        }
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let kind = Kind::decode(input)?;
        let mut track = Self {
            kind,
            seen: input.u16()?,
            ..Self::default()
        };
        if kind == Kind::Tcp {
            track.other_syns = input.u8()?;
            for at in 0..2 {
                track.scales[at] = input.u8()?;
                track.windows[at] = input.u8()?;
                track.sent[at] = input.varint()?;
            }
        }
        let sane = track.scales.iter().all(|&scale| scale <= SCALE_MAX + WITH_SCALE)
            && track.windows.iter().all(|&window| window <= WINDOW_MAX)
            // Far from where sums of numbers and windows would end.
            && track.sent.iter().all(|&sent| sent < 1 << 62);
        sane.then_some(track).ok_or(BadBytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{laws, objects::hash};

    fn random_track(draw: u64) -> Track {
        let number = |place: u64, below: u64| hash::words(draw, place, 31) % below;
        let kind = match number(0, 6) {
            0 => Kind::Udp,
            1 => Kind::Icmp,
            _ => Kind::Tcp,
        };
        let tcp = u64::from(kind == Kind::Tcp);
        let pair =
            |place: u64, below: u64| [0, 1].map(|side| (tcp * number(place + side, below)) as u8);
        Track {
            seen: number(1, 1 << 16) as u16,
            kind,
            scales: pair(2, 17),
            windows: pair(4, 32),
            other_syns: (tcp * number(8, 1 << 8)) as u8,
            sent: [6, 7].map(|place| tcp * number(place, 1 << 34)),
        }
    }

    #[test]
    fn tracks_join_as_the_law_says() {
        for draw in 0..3_000 {
            let [a, b, c] = [draw, draw + 10_000, draw + 20_000].map(random_track);
            laws::value(a, b, c);
        }
    }

    #[test]
    fn tracks_come_back_from_the_wire() {
        for draw in 0..500 {
            let track = random_track(draw);
            let mut bytes = Vec::new();
            track.encode(&mut Writer::new(&mut bytes, &[]));
            let mut input = Reader::new(&bytes, &[]);
            assert_eq!(Track::decode(&mut input), Ok(track));
            assert!(input.is_empty());
            for length in 0..bytes.len() {
                let cut = Track::decode(&mut Reader::new(&bytes[..length], &[]));
                assert_eq!(cut, Err(BadBytes));
            }
        }
        let bad = [4, 0, 0];
        assert_eq!(Track::decode(&mut Reader::new(&bad, &[])), Err(BadBytes));
    }

    #[test]
    fn numbers_that_wrap_are_extended_near_the_bound() {
        let bound = extended(0, u32::MAX - 10);
        assert_eq!(bound, 0x1_ffff_fff5);
        assert_eq!(extended(bound, 20), 0x2_0000_0014);
        assert_eq!(extended(bound, u32::MAX - 20), bound - 10);
        assert_eq!(
            extended(5, u32::MAX),
            0,
            "nothing lies before the first number"
        );
    }
}
