//! One end of a TCP connection, without I/O: enough of RFC 9293 to open, move checked bytes both ways, repair loss and close.
//!
//! An end sends a stream whose bytes the caller computes, so nothing is buffered: a retransmission is computed again. It receives in
//! order and drops other segments (go-back-N), with a window of [`WINDOW_MAX`] segments, slow start after a time-out, fast
//! retransmission, and the timer of RFC 6298 in `timer.rs`. Options, urgent data and resets of its own are missing.
//!
//! Positions count from the initial sequence number: 0 is the SYN, then come the bytes, then the FIN.

mod timer;

use asterism_packet::TcpFlags;
use asterism_packet::build::Segment;
use asterism_placement::Time;

pub use timer::{RETRANSMIT_MAX, RETRANSMIT_MIN};

use timer::RetransmitTimer;

/// Bytes of a segment at most. A multiple of 8, and less than any path's MTU here.
pub const SEGMENT_BYTES: u32 = 1_200;
/// Segments on their way at most.
pub const WINDOW_MAX: u32 = 10;
/// Time-outs in a row after which a connection has failed.
pub const TIMEOUTS_MAX: u32 = 8;
/// Acknowledgements of one position after which its segment is sent again (RFC 5681 §3.2).
const DUPLICATES: u32 = 3;

/// A segment that arrived, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) flags: TcpFlags,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) bytes: u32,
}

/// A segment to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outgoing {
    pub(super) flags: TcpFlags,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    /// The part of the stream that it carries.
    pub(super) offset: u32,
    pub(super) bytes: u32,
    pub(super) is_retransmission: bool,
}

impl Outgoing {
    /// Its header fields.
    pub(super) fn fields(&self) -> Segment {
        Segment {
            flags: self.flags,
            sequence: self.sequence,
            acknowledgement: self.acknowledgement,
            window: 65_535,
        }
    }
}

/// What a segment brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// Its bytes are the next of the stream, from this offset on.
    Data {
        /// Where they are in the stream.
        offset: u32,
    },
    /// Nothing, or acknowledgements alone.
    Nothing,
    /// Bytes that were received before.
    Duplicate,
    /// Bytes beyond a gap, which are dropped.
    BeyondGap,
    /// The peer, or something between, has reset the connection.
    Reset,
}

/// One end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    initial: u32,
    peer_initial: Option<u32>,
    /// The oldest position that is not acknowledged, the next to send, and the one after the last that was sent.
    unacknowledged: u32,
    next: u32,
    sent: u32,
    /// Bytes of the stream that may be sent by now, and whether the FIN may follow them.
    length: u32,
    may_close: bool,
    /// The next position to receive, and whether the FIN was.
    received: u32,
    has_fin: bool,
    owes_acknowledgement: bool,
    window: u32,
    duplicates: u32,
    timer: RetransmitTimer,
    timer_due: Option<Time>,
    timeouts: u32,
    /// A position whose acknowledgement is a measurement, and when it was sent.
    measured: Option<(u32, Time)>,
    pace_us: u64,
    next_send: Time,
}

impl Connection {
    /// The end that opens, with so many microseconds between two segments with data.
    pub(super) fn open(initial: u32, pace_us: u64, now: Time) -> Connection {
        Connection {
            initial,
            peer_initial: None,
            unacknowledged: 0,
            next: 0,
            sent: 0,
            length: 0,
            may_close: false,
            received: 0,
            has_fin: false,
            owes_acknowledgement: false,
            window: WINDOW_MAX,
            duplicates: 0,
            timer: RetransmitTimer::new(),
            timer_due: None,
            timeouts: 0,
            measured: None,
            pace_us,
            next_send: now,
        }
    }

    /// The end that a SYN with this sequence number opens.
    pub(super) fn accept(initial: u32, peer_initial: u32, pace_us: u64, now: Time) -> Connection {
        Connection {
            peer_initial: Some(peer_initial),
            received: 1,
            ..Connection::open(initial, pace_us, now)
        }
    }

    /// Whether this is the connection that a SYN with this sequence number opened.
    pub(super) fn was_opened_by(&self, sequence: u32) -> bool {
        self.peer_initial == Some(sequence)
    }

    /// Lets the stream be sent up to this length.
    pub(super) fn offer(&mut self, length: u32) {
        self.length = self.length.max(length);
    }

    /// Lets the FIN follow the stream.
    pub(super) fn close(&mut self) {
        self.may_close = true;
    }

    /// Whether the peer has acknowledged the SYN.
    pub(super) fn is_established(&self) -> bool {
        self.unacknowledged > 0 && self.peer_initial.is_some()
    }

    /// Whether both streams are complete and closed.
    pub(super) fn is_over(&self) -> bool {
        self.has_fin && self.may_close && self.unacknowledged == self.length + 2
    }

    /// Whether the peer has closed its stream.
    pub(super) fn has_fin(&self) -> bool {
        self.has_fin
    }

    /// Whether the peer owes an acknowledgement.
    pub(super) fn awaits(&self) -> bool {
        self.unacknowledged < self.sent
    }

    /// Bytes of the peer's stream that were received.
    pub(super) fn received_bytes(&self) -> u32 {
        self.received.saturating_sub(1 + u32::from(self.has_fin))
    }

    /// Takes a segment. Bytes are the caller's to check, if they are [`Taken::Data`].
    pub(super) fn take(&mut self, segment: &Arrived, now: Time) -> Taken {
        if segment.flags.contains(TcpFlags::RST) {
            return Taken::Reset;
        }
        if segment.flags.contains(TcpFlags::SYN) {
            if self.peer_initial.is_none() {
                self.peer_initial = Some(segment.sequence);
                self.received = 1;
            } else if self.unacknowledged == 0 && self.timer_due.is_some() {
                // The peer's SYN came again: so must ours.
                self.next = 0;
            }
            self.owes_acknowledgement = true;
        }
        let Some(peer_initial) = self.peer_initial else {
            return Taken::Nothing;
        };
        if segment.flags.contains(TcpFlags::ACK) {
            self.take_acknowledgement(segment, now);
        }
        let position = segment.sequence.wrapping_sub(peer_initial);
        let mut taken = Taken::Nothing;
        if segment.bytes > 0 {
            self.owes_acknowledgement = true;
            taken = if position == self.received && !self.has_fin {
                self.received = self.received.wrapping_add(segment.bytes);
                Taken::Data {
                    offset: position - 1,
                }
            } else if position < self.received {
                Taken::Duplicate
            } else {
                Taken::BeyondGap
            };
        }
        if segment.flags.contains(TcpFlags::FIN) {
            self.owes_acknowledgement = true;
            if position.wrapping_add(segment.bytes) == self.received && !self.has_fin {
                self.received = self.received.wrapping_add(1);
                self.has_fin = true;
            }
        }
        taken
    }

    fn take_acknowledgement(&mut self, segment: &Arrived, now: Time) {
        let position = segment.acknowledgement.wrapping_sub(self.initial);
        if position > self.sent {
            return;
        }
        if position > self.unacknowledged {
            self.unacknowledged = position;
            self.next = self.next.max(position);
            self.window = (self.window + 1).min(WINDOW_MAX);
            (self.duplicates, self.timeouts) = (0, 0);
            if let Some((measured, sent)) = self.measured
                && position > measured
            {
                self.timer.measure(now.since(sent).as_micros() as u64);
                self.measured = None;
            }
            self.timer_due = (position < self.sent).then(|| self.timer_from(now));
        } else if position == self.unacknowledged
            && segment.bytes == 0
            && self.awaits()
            && !segment
                .flags
                .intersects(TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0))
        {
            self.duplicates += 1;
            if self.duplicates == DUPLICATES {
                self.window = (self.window / 2).max(2);
                self.go_back();
            }
        }
    }

    fn timer_from(&self, now: Time) -> Time {
        now.saturating_add(core::time::Duration::from_micros(self.timer.us()))
    }

    /// Sends everything again that was not acknowledged.
    fn go_back(&mut self) {
        self.next = self.unacknowledged;
        self.measured = None;
    }

    /// Does what is due; false when the connection has failed, since nothing was acknowledged for too long.
    #[must_use]
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        if self.timer_due.is_some_and(|due| now >= due) {
            self.timeouts += 1;
            if self.timeouts > TIMEOUTS_MAX {
                return false;
            }
            self.timer.back_off();
            self.window = 1;
            self.duplicates = 0;
            self.go_back();
            self.timer_due = Some(self.timer_from(now));
        }
        true
    }

    /// The next segment to send now.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let (position, end) = (self.next, self.length + 1);
        let mut outgoing = Outgoing {
            flags: TcpFlags::ACK,
            sequence: self.initial.wrapping_add(position),
            acknowledgement: 0,
            offset: 0,
            bytes: 0,
            is_retransmission: false,
        };
        let mut advance = 0;
        if position == 0 {
            outgoing.flags = if self.peer_initial.is_some() {
                TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0)
            } else {
                TcpFlags::SYN
            };
            advance = 1;
        } else if self.is_established() && position < end && self.may_send(now) {
            let bytes = SEGMENT_BYTES.min(end - position);
            (outgoing.offset, outgoing.bytes) = (position - 1, bytes);
            outgoing.flags = TcpFlags(TcpFlags::ACK.0 | TcpFlags::PSH.0);
            advance = bytes;
            let pace = core::time::Duration::from_micros(self.pace_us);
            self.next_send = self.next_send.max(now).saturating_add(pace);
        } else if self.is_established() && position == end && self.may_close {
            outgoing.flags = TcpFlags(TcpFlags::ACK.0 | TcpFlags::FIN.0);
            advance = 1;
        } else if !self.owes_acknowledgement {
            return None;
        }
        if let Some(peer_initial) = self.peer_initial {
            outgoing.acknowledgement = peer_initial.wrapping_add(self.received);
            self.owes_acknowledgement = false;
        }
        if advance > 0 {
            outgoing.is_retransmission = position < self.sent;
            if !outgoing.is_retransmission && self.measured.is_none() {
                self.measured = Some((position, now));
            }
            self.next += advance;
            self.sent = self.sent.max(self.next);
            if self.timer_due.is_none() {
                self.timer_due = Some(self.timer_from(now));
            }
        }
        Some(outgoing)
    }

    fn may_send(&self, now: Time) -> bool {
        self.has_window() && now >= self.next_send
    }

    fn has_window(&self) -> bool {
        self.next - self.unacknowledged < self.window * SEGMENT_BYTES
    }

    /// When [`Connection::handle_timeout`] or [`Connection::poll_transmit`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let has_data = self.is_established() && self.next > 0 && self.next <= self.length;
        let paced = (has_data && self.has_window()).then_some(self.next_send);
        [self.timer_due, paced].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
