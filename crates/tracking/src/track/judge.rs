//! Which packets of a flow pass, by its track.
//!
//! Segments are judged with one window of tolerance on either side, which is the most that other instances can have let
//! through within a round trip (RFC 9293 §3.4: a sender has at most a window in flight).

use asterism_function::{Packet, Reason, TcpFlags};

use super::{ACK, FIN, Kind, OPENED, RST, SYN, SYN_ACK, Track, extended, step};
use crate::flow::{Direction, Link};
use crate::segment::{Class, Segment};

/// By how many windows a segment of a connection may be ahead of what is known here, and yet be waited with: others have let
/// through so much and their word is on its way. Of blind ones, both whose numbers must be so near by chance, it is one in some
/// ten million with windows of 64 KiB, and one in fifty thousand with 1 MiB.
const OVERTAKEN_WINDOWS: u64 = 16;
/// How far acknowledgements may lie back at least, in bytes, as Linux has it.
const OLD_ACKNOWLEDGEMENT_MIN: u64 = 66_000;
/// The most data that a SYN can have, in bytes: less than acknowledgements may lie back.
const SYN_DATA_MAX: u32 = 65_535;

/// What becomes of a packet, by what was seen of its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// It belongs to the flow, of which this is known with it.
    Passes(Track),
    /// It would begin the flow again: the rules decide.
    Opens,
    /// A SYN with other numbers, of which the other end decides whether it begins the flow again (this is known with it): if the rules let
    /// it pass.
    Reopens(Track),
    /// Both ends have begun the flow again, and this is all that is known of it.
    Again(Track),
    /// It belongs to no flow, or does not fit it.
    Refused(Reason),
}

impl Track {
    /// Whether a packet of a known flow passes, and what is known with it.
    #[inline(always)]
    pub(crate) fn judge(&self, packet: &Packet<'_>, direction: Direction, link: Link) -> Judged {
        if self.kind != Kind::Tcp {
            let mut track = *self;
            track.set(ACK, direction);
            return Judged::Passes(track);
        }
        let Some(segment) = Segment::of(packet) else {
            return Judged::Refused(Reason::BadTcpFlags);
        };
        match segment.class() {
            Class::Invalid => Judged::Refused(Reason::BadTcpFlags),
            // It was refused: nobody holds a connection.
            _ if self.is_refused() => Judged::Opens,
            Class::Ack if self.is_answered() => self.in_connection(&segment, ACK, direction),
            class => self.judge_control(&segment, class, (direction, link)),
        }
    }

    #[inline(never)]
    fn judge_control(
        &self,
        segment: &Segment,
        class: Class,
        (direction, link): (Direction, Link),
    ) -> Judged {
        let back = direction.reversed();
        let unchanged = Judged::Passes(*self);
        match class {
            Class::Invalid => Judged::Refused(Reason::BadTcpFlags),
            Class::Syn if self.is_over() => Judged::Opens,
            Class::Syn if self.has(OPENED, direction) => {
                let end = segment.sequence.wrapping_add(segment.size());
                let before = (self.sent[direction as usize] as u32).wrapping_sub(end);
                if before <= SYN_DATA_MAX {
                    // The same once more, perhaps without the data that it had (RFC 7413 §4.1.3).
                    unchanged
                } else if self.is_answered() {
                    // The other end answers for itself (RFC 9293 §3.10.7.4, RFC 5961 §4). What lets it begin a connection are the
                    // rules now, not those that let the one begin which is known.
                    Judged::Reopens(self.with_other_syn(segment, (direction, link)))
                } else {
                    Judged::Opens
                }
            }
            // A simultaneous open (RFC 9293 §3.5).
            Class::Syn if !self.is_answered() && self.is_end_on(direction, link) => {
                Judged::Passes(self.with_syn(segment, SYN, direction))
            }
            Class::SynAck if self.has(SYN, back) => {
                if self.answers_other_syn(segment, (direction, link)) {
                    Judged::Again(self.again(segment, direction))
                } else if self.is_over() {
                    // It may answer a SYN that another instance let through, which begins it again.
                    Judged::Refused(Reason::NoConnection)
                } else if self.has(SYN_ACK, direction) {
                    unchanged
                } else if !self.acknowledges(segment, direction) {
                    Judged::Refused(Reason::OutOfWindow)
                } else if self.is_end_on(direction, link) {
                    Judged::Passes(self.with_syn(segment, SYN_ACK, direction))
                } else {
                    unchanged
                }
            }
            // Of a connection that was picked up the handshake was not seen.
            Class::SynAck if self.is_picked_up() && self.has(OPENED, back) => unchanged,
            Class::Syn | Class::SynAck => Judged::Refused(Reason::NoConnection),
            Class::Rst if !self.is_end_on(direction, link) => {
                if self.is_near(segment, direction) {
                    unchanged
                } else {
                    Judged::Refused(Reason::OutOfWindow)
                }
            }
            Class::Rst if !self.is_answered() => {
                if !segment.flags.contains(TcpFlags::ACK) && !self.has(OPENED, direction) {
                    // No host heeds it (RFC 9293 §3.10.7.3).
                    Judged::Refused(Reason::OutOfWindow)
                } else if self.is_near(segment, direction) {
                    let mut track = *self;
                    track.set(RST, direction);
                    Judged::Passes(track)
                } else {
                    Judged::Refused(Reason::OutOfWindow)
                }
            }
            Class::Rst => self.in_connection(segment, RST, direction),
            // A half-open connection that its end has forgotten (RFC 9293 §3.5.1).
            Class::Ack if !self.has(OPENED, direction) => unchanged,
            Class::FinAck if self.is_answered() => {
                self.in_connection(segment, FIN | ACK, direction)
            }
            Class::Ack | Class::FinAck => Judged::Refused(Reason::NoConnection),
        }
    }

    /// The same where a path may show one direction alone: control bits count, numbers do not but for those of SYNs.
    #[inline(never)]
    pub(crate) fn judge_one_sided(
        &self,
        packet: &Packet<'_>,
        direction: Direction,
        link: Link,
    ) -> Judged {
        if self.kind != Kind::Tcp {
            return self.judge(packet, direction, link);
        }
        let Some(segment) = Segment::of(packet) else {
            return Judged::Refused(Reason::BadTcpFlags);
        };
        let bits = match segment.class() {
            Class::Invalid => return Judged::Refused(Reason::BadTcpFlags),
            _ if self.is_refused() => return Judged::Opens,
            Class::Syn | Class::SynAck if self.is_over() => return Judged::Opens,
            Class::Syn if self.is_answered() || self.has(OPENED, direction) => {
                let end = segment.sequence.wrapping_add(segment.size());
                let before = (self.sent[direction as usize] as u32).wrapping_sub(end);
                return if self.has(SYN, direction) && before <= SYN_DATA_MAX {
                    Judged::Passes(*self)
                } else if self.is_answered() {
                    Judged::Reopens(*self)
                } else {
                    Judged::Opens
                };
            }
            Class::Syn => return Judged::Passes(self.with_syn(&segment, SYN, direction)),
            Class::SynAck => {
                return Judged::Passes(self.with_syn(&segment, SYN_ACK | ACK, direction));
            }
            Class::Rst => RST,
            Class::FinAck => FIN | ACK,
            Class::Ack => ACK,
        };
        Judged::Passes(self.with_bits(bits, direction))
    }

    /// Whether a packet that was refused may pass once others have reported what they saw.
    ///
    /// Of a connection that is established everybody has the beginning, and nobody its end: what is to come is how far its ends
    /// have got. Whether that is a reset or a SYN makes no difference to the flow if it is dropped: its end sends another.
    pub(crate) fn may_yet_pass(&self, packet: &Packet<'_>, direction: Direction) -> bool {
        if !self.is_established() {
            return true;
        }
        let Some(segment) = Segment::of(packet) else {
            return false;
        };
        let back = direction.reversed();
        let (offered, own) = (self.window(back), self.window(direction));
        // What is too old is so whatever others tell: bounds only grow.
        let fits = |bound: u64, number: u32, window: u64, behind: u64| {
            let number = extended(bound, number);
            bound == 0 || number <= bound + OVERTAKEN_WINDOWS * window && number + behind >= bound
        };
        let size = u64::from(segment.size());
        let sent = self.sent[direction as usize];
        let other_sent = self.sent[back as usize];
        matches!(segment.class(), Class::Ack | Class::FinAck)
            && fits(sent, segment.sequence, offered, oldest(offered) + size)
            && fits(
                other_sent,
                segment.acknowledgement,
                own,
                oldest_acknowledgement(own),
            )
    }

    /// A segment of a connection whose handshake was answered.
    #[inline(always)]
    fn in_connection(&self, segment: &Segment, bits: u16, direction: Direction) -> Judged {
        if self.is_near(segment, direction) {
            Judged::Passes(self.with(segment, bits, direction))
        } else {
            Judged::Refused(Reason::OutOfWindow)
        }
    }

    /// Whether the numbers of a segment are within a window of what was seen.
    #[inline(always)]
    pub(super) fn is_near(&self, segment: &Segment, direction: Direction) -> bool {
        if self.is_picked_up() {
            // Which scale its windows have nobody saw (RFC 7323 §2.2).
            return true;
        }
        let sent = self.sent[direction as usize];
        let offered = self.window(direction.reversed());
        if sent != 0 && offered != 0 {
            let start = extended(sent, segment.sequence);
            let end = start + u64::from(segment.size());
            if start > sent + offered || end + oldest(offered) < sent {
                return false;
            }
        }
        !segment.flags.contains(TcpFlags::ACK) || self.acknowledges(segment, direction)
    }

    /// Whether a segment acknowledges what the other end may have sent.
    #[inline(always)]
    fn acknowledges(&self, segment: &Segment, direction: Direction) -> bool {
        let sent = self.sent[direction.reversed() as usize];
        if sent == 0 {
            return true;
        }
        let own = self.window(direction);
        let acknowledged = extended(sent, segment.acknowledgement);
        let handshake = !self.is_answered();
        let ahead = if handshake { 0 } else { own };
        acknowledged <= sent + ahead && acknowledged + oldest_acknowledgement(own) >= sent
    }
}

/// How far behind a bound a segment may end, with a window on offer.
#[inline(always)]
const fn oldest(offered: u64) -> u64 {
    step(offered) + offered + 1
}

/// How far behind a bound an acknowledgement may lie that offers a window.
#[inline(always)]
const fn oldest_acknowledgement(own: u64) -> u64 {
    let least = if own > OLD_ACKNOWLEDGEMENT_MIN {
        own
    } else {
        OLD_ACKNOWLEDGEMENT_MIN
    };
    least + step(own) + 1
}
