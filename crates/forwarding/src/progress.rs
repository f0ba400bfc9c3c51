//! A connection with the positions of its ends, which distinguish forged segments from its own (RFC 5961). Read
//! `connection.rs` first.
//!
//! An outsider may know the addresses and ports of a connection; only its ends and the path between them know its sequence
//! numbers. So a reset counts only if its number is near its sender's position; so does a FIN where the other end is not
//! seen, whose own FIN would have to come, too. All other segments pass unjudged, since their receiver judges them.
//!
//! A position is kept in units of 64 KiB, so that it changes once in 45 full segments instead of with each. A blind reset is
//! therefore accepted by chance once in some ten thousand times, as with the windows that most systems offer.

use core::ops::Deref;

use asterism_function::{
    BadBytes, Endpoint, Packet, Plain4, Reader, TcpFlags, Value, Wire, Writer, layout,
};

use crate::connection::{Connection, Direction};

/// Bits of a sequence number below a unit of positions.
const UNIT_BITS: u32 = 16;
/// Units by which a reset may lie behind the known position of its sender: it names what its receiver acknowledged.
const BEHIND: i16 = 4;
/// Units by which a reset may lie ahead of it: a segment may cross into the next unit, and another instance may have seen it.
const AHEAD: i16 = 2;
/// Units by which data may lie ahead and move the position by itself: 4 MiB, more than a window of most systems. What is further
/// ahead moves it if it acknowledges what the other end sent.
const MOVES: i16 = 64;
/// The last position that is kept: beyond a TiB of data nothing is near, and resets end no connection.
const LAST: u32 = (1 << 24) - 1;

/// The opener has finished, and the other end is never seen here.
const HALF_CLOSED: u8 = 1;
/// Another SYN came in the place of this connection, and has a flow of its own until it is known which one goes on.
const CONTESTED: u8 = 1 << 1;
/// Above the marks: six bits of a hash of the opener's first number.
const SYN_SHIFT: u32 = 2;

/// What of a TCP segment counts for its connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Segment {
    /// The control bits; none of what is not TCP.
    pub flags: TcpFlags,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledgement number.
    pub acknowledgement: u32,
}

impl Segment {
    /// That of a packet; of what is not TCP one without bits.
    #[inline]
    #[must_use]
    pub fn of(packet: &Packet<'_>) -> Self {
        Self {
            flags: packet.tcp_flags().unwrap_or_default(),
            sequence: packet.tcp_sequence().unwrap_or_default(),
            acknowledgement: packet.tcp_acknowledgement().unwrap_or_default(),
        }
    }
}

impl From<&Plain4<'_>> for Segment {
    #[inline(always)]
    fn from(packet: &Plain4<'_>) -> Self {
        Self {
            flags: packet.tcp_flags(),
            sequence: u32::from_be_bytes(packet.tcp_sequence()),
            acknowledgement: u32::from_be_bytes(packet.tcp_acknowledgement()),
        }
    }
}

/// What was seen of a connection, and where its ends are: 8 bytes. What two instances saw adds up, as of a [`Connection`]:
/// bits become set and positions become greater.
#[derive(Clone, Copy, PartialEq, Eq, Value)]
#[value(idle_class = Self::class)]
pub struct Progress {
    #[join]
    connection: Connection,
    #[join(or)]
    marks: u8,
    /// Of each direction's sender, in units, extended by wraps; high byte first. 0: not known.
    #[join(max, each)]
    reached: [[u8; 3]; 2],
}

impl Deref for Progress {
    type Target = Connection;
    #[inline(always)]
    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl From<Connection> for Progress {
    fn from(connection: Connection) -> Self {
        Self {
            connection,
            marks: 0,
            reached: [[0; 3]; 2],
        }
    }
}

impl core::fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.connection.ended() {
            true if self.is_half_closed() => formatter.write_str("tcp half-closed"),
            _ => self.connection.fmt(formatter),
        }
    }
}

impl Progress {
    /// The idle class of a connection [whose opener has finished](Self::after_alone), in tables that have one.
    pub const HALF_CLOSED_CLASS: u8 = 6;

    /// A session with `remote` of which nothing was seen yet.
    #[must_use]
    pub fn new(remote: Endpoint) -> Self {
        Connection::new(remote).into()
    }

    /// The same, begun by a segment of its opener.
    #[must_use]
    pub fn opened_by(mut self, segment: &Segment) -> Self {
        if segment.flags.contains(TcpFlags::SYN) {
            self.marks |= hash_of(segment.sequence) << SYN_SHIFT;
        }
        self
    }

    /// After one more packet that went in a direction.
    #[inline]
    #[must_use]
    pub fn after(&self, segment: &Segment, direction: Direction) -> Self {
        let is_reset = segment.flags.contains(TcpFlags::RST);
        if !self.connection.is_tcp() || is_reset && !self.fits(segment, direction) {
            return *self;
        }
        let mut next = *self;
        next.connection = self.connection.after(segment.flags, direction);
        if !is_reset {
            let (own, other) = (self.position(direction), self.position(reversed(direction)));
            let acknowledges = segment.flags.contains(TcpFlags::ACK);
            let fits_other = acknowledges && other != 0 && is_near(other, segment.acknowledgement);
            next.moves(direction, segment.sequence, own, fits_other);
        }
        next
    }

    /// After one more packet of the opener, where nobody sees the other end's: all that is known of that is what the opener
    /// acknowledges.
    #[must_use]
    pub fn after_alone(&self, segment: &Segment, opener: Direction) -> Self {
        const ENDS: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::RST.0);
        let is_forged = segment.flags.intersects(ENDS) && !self.fits(segment, opener);
        if !self.connection.is_tcp() || is_forged {
            return *self;
        }
        let mut next = self.after(segment, opener);
        if segment.flags.contains(TcpFlags::FIN) {
            next.marks |= HALF_CLOSED;
        }
        let back = reversed(opener);
        // What is acknowledged was sent, and the other end may have finished, too.
        next.connection = next
            .connection
            .after(TcpFlags(segment.flags.0 & !TcpFlags::RST.0), back);
        if segment.flags.contains(TcpFlags::ACK) && !segment.flags.contains(TcpFlags::RST) {
            let (own, other) = (self.position(opener), self.position(back));
            let fits_own = own != 0 && is_near(own, segment.sequence);
            next.moves(back, segment.acknowledgement, other, fits_own);
        }
        next
    }

    /// Whether the opener finished, of a connection whose other end is never seen: it counts as ended, and that end may yet have much
    /// to say, which the opener acknowledges.
    #[inline]
    #[must_use]
    pub fn is_half_closed(&self) -> bool {
        self.marks & HALF_CLOSED != 0 && !self.connection.is_reset()
    }

    /// Whether it may end with the next packet, or has a contestant: one test for every packet.
    #[inline(always)]
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.connection.may_have_ended() && self.marks & CONTESTED == 0
    }

    /// The same, [contested](Self::is_contested).
    #[must_use]
    pub fn contested(mut self) -> Self {
        self.marks |= CONTESTED;
        self
    }

    /// Whether a SYN with another number came in its place, which has a flow of its own until it is known which one goes on.
    #[must_use]
    pub fn is_contested(&self) -> bool {
        self.marks & CONTESTED != 0
    }

    /// Whether the opener's SYN, if this is one, is the one that began the connection.
    #[must_use]
    pub fn is_begun_by(&self, segment: &Segment, opener: Direction) -> bool {
        let own = self.position(opener);
        let same = self.marks >> SYN_SHIFT == hash_of(segment.sequence);
        own != 0 && same && (-BEHIND..=0).contains(&distance(own, segment.sequence))
    }

    /// Whether a segment's number is that with which the opener goes on after its SYN.
    #[must_use]
    pub fn is_next(&self, segment: &Segment, opener: Direction) -> bool {
        let begin = segment.sequence.wrapping_sub(1);
        let own = self.position(opener);
        let same = self.marks >> SYN_SHIFT == hash_of(begin);
        own != 0 && same && (0..=1).contains(&distance(own, begin))
    }

    /// Whether a segment's number is near to where its sender is, as far as that is known.
    #[must_use]
    pub fn fits(&self, segment: &Segment, direction: Direction) -> bool {
        let (own, other) = (self.position(direction), self.position(reversed(direction)));
        let acknowledges = segment.flags.contains(TcpFlags::ACK);
        match (own, other) {
            // A SYN that is refused has an answer that acknowledges it (RFC 9293 §3.10.7.1).
            (0, 1..) if acknowledges => is_near(other, segment.acknowledgement),
            (0, _) => true,
            _ => is_near(own, segment.sequence),
        }
    }

    /// Whether [`Progress::after`] changes nothing for a packet with these control bits and this number, as it stands in the packet: for
    /// a common path. False for some that change nothing, too: those of a TCP sender whose position is not known.
    #[inline(always)]
    #[must_use]
    pub fn stays(&self, flags: TcpFlags, number: [u8; 4], direction: Direction) -> bool {
        let has_seen = self.connection.after(flags, direction) == self.connection;
        has_seen && (self.is_at(number, direction) || !self.connection.is_tcp())
    }

    /// Whether a number is in the unit at which its sender is known to be.
    #[inline(always)]
    fn is_at(&self, [high, low, ..]: [u8; 4], direction: Direction) -> bool {
        let [wraps, known_high, known_low] = self.reached[direction as usize];
        // A position that is known has a wrap at least.
        wraps != 0 && u16::from_ne_bytes([high, low]) == u16::from_ne_bytes([known_high, known_low])
    }

    fn moves(&mut self, direction: Direction, number: u32, known: u32, is_acknowledged: bool) {
        let may_begin = is_acknowledged || self.position(reversed(direction)) == 0;
        let distance = distance(known, number);
        let position = match known {
            0 if !may_begin => return,
            0 => 1 << UNIT_BITS | number >> UNIT_BITS,
            _ if distance > 0 && (distance <= MOVES || is_acknowledged) => {
                (known + distance as u32).min(LAST)
            }
            _ => return,
        };
        let [_, high, middle, low] = position.to_be_bytes();
        self.reached[direction as usize] = [high, middle, low];
    }

    #[inline(always)]
    fn position(&self, direction: Direction) -> u32 {
        let [high, middle, low] = self.reached[direction as usize];
        u32::from_be_bytes([0, high, middle, low])
    }

    fn class(&self) -> u8 {
        match self.is_half_closed() {
            true => Self::HALF_CLOSED_CLASS,
            false => self.connection.idle_class(),
        }
    }
}

/// By how many units a number is ahead of a position.
#[inline(always)]
const fn distance(position: u32, number: u32) -> i16 {
    ((number >> UNIT_BITS) as u16).wrapping_sub(position as u16) as i16
}

fn is_near(position: u32, number: u32) -> bool {
    (-BEHIND..=AHEAD).contains(&distance(position, number))
}

const fn hash_of(number: u32) -> u8 {
    (number.wrapping_mul(0x9e37_79b9) >> 26) as u8
}

const fn reversed(direction: Direction) -> Direction {
    match direction {
        Direction::Outbound => Direction::Inbound,
        Direction::Inbound => Direction::Outbound,
    }
}

/// A byte; of TCP eight.
impl Wire for Progress {
    const LAYOUT: u64 = layout::manual("connection progress", 1);
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        self.connection.encode(out);
        if self.connection.is_tcp() {
            out.u8(self.marks);
            self.reached.iter().flatten().for_each(|byte| out.u8(*byte));
        }
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let mut progress = Self::from(Connection::decode(input)?);
        if progress.connection.is_tcp() {
            progress.marks = input.u8()?;
            for byte in progress.reached.iter_mut().flatten() {
                *byte = input.u8()?;
            }
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{Protocol, laws, objects::hash};

    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;
    const RST: TcpFlags = TcpFlags::RST;
    const FIN_ACK: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);
    const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
    use Direction::{Inbound, Outbound};

    fn segment(flags: TcpFlags, sequence: u32, acknowledgement: u32) -> Segment {
        Segment {
            flags,
            sequence,
            acknowledgement,
        }
    }

    fn server() -> Endpoint {
        Endpoint::new([10, 0, 0, 2].into(), 80, Protocol::TCP)
    }

    fn opened(first: u32) -> Progress {
        let syn = segment(SYN, first, 0);
        Progress::new(server())
            .opened_by(&syn)
            .after(&syn, Outbound)
    }

    /// Both began with these numbers.
    fn established(client: u32, server: u32) -> Progress {
        let (next, answer) = (client.wrapping_add(1), server.wrapping_add(1));
        let half = opened(client).after(&segment(SYN_ACK, server, next), Inbound);
        let whole = half.after(&segment(ACK, next, answer), Outbound);
        assert!(whole.is_established());
        whole
    }

    #[test]
    fn resets_count_whose_numbers_are_near() {
        for begin in [100, u32::MAX - 5, 1 << 31] {
            let known = established(begin, 7_000);
            let ends = |number: u32| known.after(&segment(RST, number, 0), Outbound).ended();
            assert!(ends(begin + 1) && ends(begin.wrapping_add(60_000)));
            for far in [1 << 18, 1 << 20, 1 << 27, 1 << 31, 3 << 30] {
                assert!(!ends(begin.wrapping_add(far)), "{begin} {far}");
            }
        }
    }

    #[test]
    fn positions_follow_the_data_and_no_forged_number() {
        let mut known = established(100, 7_000);
        let mut number: u32 = 101;
        for _ in 0..40_000 {
            number = number.wrapping_add(150_000);
            known = known.after(&segment(ACK, number, 7_001), Outbound);
        }
        let rst = |number: u32| segment(RST, number, 0);
        assert!(known.after(&rst(number), Outbound).ended());
        assert!(!known.after(&rst(number ^ 1 << 31), Outbound).ended());
        // Data far ahead, which acknowledges nothing that was sent.
        let far = number.wrapping_add(1 << 30);
        let forged = known.after(&segment(ACK, far, 1 << 30), Outbound);
        assert_eq!(forged, known);
        // The same, of who knows what the other end sent.
        let moved = known.after(&segment(ACK, far, 7_001), Outbound);
        assert!(moved.after(&rst(far), Outbound).ended());
    }

    #[test]
    fn a_refusal_counts_that_acknowledges_the_syn() {
        let half = opened(1 << 30);
        let refusal = segment(TcpFlags(RST.0 | ACK.0), 0, (1 << 30) + 1);
        assert!(half.after(&refusal, Inbound).ended());
        let other = segment(TcpFlags(RST.0 | ACK.0), 0, 5);
        assert!(!half.after(&other, Inbound).ended());
    }

    #[test]
    fn one_side_alone_is_half_closed_until_it_is_reset() {
        let mut known = opened(100);
        for number in [101, 101] {
            known = known.after_alone(&segment(ACK, number, 901), Outbound);
        }
        assert!(known.is_established() && known.is_settled());
        let blind = segment(FIN_ACK, 3_000_000_000, 901);
        assert_eq!(known.after_alone(&blind, Outbound), known);
        let closed = known.after_alone(&segment(FIN_ACK, 101, 901), Outbound);
        assert!(closed.is_half_closed() && closed.ended() && !closed.is_settled());
        assert_eq!(closed.idle_class(), Progress::HALF_CLOSED_CLASS);
        let reset = closed.after_alone(&segment(RST, 102, 0), Outbound);
        assert!(reset.ended() && !reset.is_half_closed());
        assert_ne!(reset.idle_class(), Progress::HALF_CLOSED_CLASS);
    }

    #[test]
    fn a_syn_is_known_by_its_number() {
        let known = established(100, 7_000);
        assert!(known.is_begun_by(&segment(SYN, 100, 0), Outbound));
        for other in [101, 5_000, 900_000, 1 << 31] {
            assert!(
                !known.is_begun_by(&segment(SYN, other, 0), Outbound),
                "{other}"
            );
        }
        assert!(known.is_next(&segment(ACK, 101, 7_001), Outbound));
        assert!(!known.is_next(&segment(ACK, 102, 7_001), Outbound));
    }

    #[test]
    fn the_common_path_asks_once_in_a_unit() {
        let known = established(100, 7_000);
        let is_at = |number: u32| known.is_at(number.to_be_bytes(), Outbound);
        assert!(is_at(101) && is_at((1 << 16) - 1));
        assert!(!is_at(1 << 16) && !is_at(u32::MAX));
        assert!(!opened(100).is_at([0; 4], Inbound), "not known");
    }

    /// What a common path leaves out: nothing that [`Progress::after`] would write.
    #[test]
    fn what_the_common_path_passes_changes_nothing() {
        let mut passed = 0;
        for draw in 0..200_000u64 {
            let bits = hash::words(draw, 7, 11).to_be_bytes();
            let [flags, kind, high, reply, far, ..] = bits;
            let base = match kind % 4 {
                0 => opened(u32::from(high % 3) << 16),
                1 => Progress::new(server()),
                _ => established(u32::from(high) << 24, u32::from(reply % 3) << 16),
            };
            let direction = [Outbound, Inbound][usize::from(kind >> 7)];
            let near = match direction {
                Outbound if kind % 4 == 0 => u32::from(high % 3) << 16,
                Outbound => u32::from(high) << 24,
                Inbound => u32::from(reply % 3) << 16,
            };
            let number = near.wrapping_add(u32::from(far % 3) << 15);
            let segment = segment(TcpFlags(flags & 0x17), number, u32::from(far) << 12);
            if base.stays(segment.flags, number.to_be_bytes(), direction) {
                passed += 1;
                assert_eq!(base.after(&segment, direction), base, "{draw}");
            }
        }
        assert!(passed > 10_000, "{passed}");
    }

    #[test]
    fn a_position_that_is_not_known_is_none_that_a_stranger_names() {
        let half = opened(1 << 30);
        let forged = half.after(&segment(ACK, 5 << 20, 9 << 20), Inbound);
        let answer = segment(SYN_ACK, 3 << 30, (1 << 30) + 1);
        let known = forged.after(&answer, Inbound);
        assert!(known.after(&segment(RST, 3 << 30, 0), Inbound).ended());
        assert!(!known.after(&segment(RST, 5 << 20, 0), Inbound).ended());
    }

    #[test]
    fn progress_joins_as_the_law_says_and_comes_back_from_the_wire() {
        let random = |draw: u64| {
            let bits = hash::words(draw, 3, 31);
            let [kind, marks, a, b, c, d, e, f] = bits.to_be_bytes();
            // Of one kind all.
            let mut bytes = vec![kind & 0x3f, marks, a, b, c, d, e, f];
            if draw.is_multiple_of(3) {
                bytes = vec![kind & 0x3f | 1 << 6];
            }
            let progress = Progress::decode(&mut Reader::new(&bytes, &[])).unwrap();
            let mut again = Vec::new();
            progress.encode(&mut Writer::new(&mut again, &[]));
            assert_eq!(again, bytes);
            for length in 0..bytes.len() {
                let cut = Progress::decode(&mut Reader::new(&bytes[..length], &[]));
                assert_eq!(cut, Err(BadBytes));
            }
            progress
        };
        for draw in 0..2_000 {
            let [a, b, c] = [draw, draw + 9_000, draw + 18_000].map(|draw| random(draw * 3 + 1));
            laws::value(a, b, c);
            random(draw);
        }
        assert_eq!(size_of::<Progress>(), 8);
    }
}
