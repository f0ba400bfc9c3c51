//! Whether what a host was delivered of another's stream is what that one sent: digests of streams, compared at equal positions.
//!
//! Every host adds up a hash of each group that it commits, under its number, and of each that it is delivered. Ten times a
//! second, while there is news, it tells all how far its stream was sent and what that adds up to. Anyone who is at exactly that
//! position, without a gap and with nothing beyond, compares what it was delivered *since both were last equal*: a group that
//! came twice, was left out, or has other bytes is in the difference. Positions are remembered for a while, since what is reported
//! comes after the groups. What a snapshot covers was not delivered, so there the next position is where comparing begins again.

use core::time::Duration;

use super::super::Replicator;
use super::{Auditor, StreamPosition};
use crate::envelope::KIND_STREAM;
use crate::mutant::{self, Mutant};
use crate::{Incarnation, MemberId, Time};

/// So long after another a position is reported.
pub const STREAM_PERIOD: Duration = Duration::from_millis(100);
/// A position is repeated often while nothing follows it, then more rarely.
const REPORTED_TIMES: u8 = 4;
/// So rarely.
const STREAM_PERIOD_IDLE: Duration = Duration::from_secs(1);
/// Positions that are remembered of each stream.
const POSITIONS: usize = 64;

const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xD6E8_FEB8_6659_FD93;

#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// A group's part of its stream's digest. It finds faults, not attackers: no key is in it. A multiplication for sixteen bytes of
/// long groups, in two rows that do not wait for each other.
#[inline]
pub(in super::super) fn of_group(sequence: u64, group: &[u8]) -> u64 {
    let (stripes, rest) = group.as_chunks::<32>();
    let mut state = fold(sequence ^ FIRST, SECOND ^ group.len() as u64);
    if !stripes.is_empty() {
        let (mut left, mut right) = (state, state ^ SECOND);
        for stripe in stripes {
            let (words, _) = stripe.as_chunks::<8>();
            let word = |place: usize| u64::from_le_bytes(words[place]);
            left = fold(word(0) ^ FIRST, word(1) ^ left);
            right = fold(word(2) ^ SECOND, word(3) ^ right);
        }
        state = fold(left ^ FIRST, right ^ SECOND);
    }
    let (words, rest) = rest.as_chunks::<8>();
    let state = words.iter().fold(state, |state, word| {
        fold(state ^ u64::from_le_bytes(*word), FIRST)
    });
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(state ^ u64::from_le_bytes(last), SECOND)
}

/// How far a stream is delivered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) incarnation: Option<Incarnation>,
    pub(super) received: u64,
    /// The greatest sequence that was delivered.
    pub(super) reaches: u64,
    /// How often the stream went on further along than it was.
    pub(super) jumps: u32,
}

/// Groups that were not delivered as they were sent: one twice, one not at all, or one with other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFault {
    /// Whose.
    pub origin: MemberId,
    /// In which incarnation.
    pub incarnation: Incarnation,
    /// The first of the groups among which it is.
    pub first: u64,
    /// The last of them.
    pub last: u64,
}

/// What is known of another member's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamStanding {
    /// Whose.
    pub origin: MemberId,
    /// Up to where it was last compared; 0 before that.
    pub through: u64,
    /// When it was last found equal.
    pub equal_at: Option<Time>,
    /// Ranges of it that were delivered otherwise than sent, in all its incarnations.
    pub faults: u64,
    /// The last of them.
    pub last_fault: Option<StreamFault>,
}

/// A stream of another member.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    member: MemberId,
    incarnation: Option<Incarnation>,
    /// Of what was delivered.
    sum: u64,
    last: u64,
    jumps: u32,
    /// Where it was without a gap, oldest first from `next` on.
    positions: Box<[StreamPosition; POSITIONS]>,
    next: usize,
    /// What its sender reported, of where it is not yet.
    reported: Option<StreamPosition>,
    /// Up to where both are equal as far as is known: as reported, and here.
    agreed: Option<(StreamPosition, u64)>,
    standing: StreamStanding,
}

impl Stream {
    pub(super) fn new(member: MemberId) -> Stream {
        Stream {
            member,
            incarnation: None,
            sum: 0,
            last: 0,
            jumps: 0,
            positions: Box::new([StreamPosition::default(); POSITIONS]),
            next: 0,
            reported: None,
            agreed: None,
            standing: StreamStanding {
                origin: member,
                through: 0,
                equal_at: None,
                faults: 0,
                last_fault: None,
            },
        }
    }

    /// Another incarnation, of which nothing is here yet.
    fn begin(&mut self, incarnation: Option<Incarnation>) {
        let StreamStanding {
            faults, last_fault, ..
        } = self.standing;
        *self = Stream::new(self.member);
        (self.standing.faults, self.standing.last_fault) = (faults, last_fault);
        self.incarnation = incarnation;
        self.agreed = Some(Default::default());
    }

    fn delivered(&mut self, incarnation: Incarnation, sequence: u64, group: &[u8]) {
        if self.incarnation != Some(incarnation) {
            self.begin(Some(incarnation));
        }
        if mutant::active(Mutant::EarlyGroupNotSummed) && sequence != self.last + 1 {
            return;
        }
        self.last = sequence;
        self.sum = self.sum.wrapping_add(of_group(sequence, group));
    }

    /// Notes where the stream is, if there is no gap in it.
    fn note(&mut self, position: Position) {
        if self.incarnation != position.incarnation {
            self.begin(position.incarnation);
        }
        let latest = self.latest();
        if self.jumps != position.jumps || position.received < latest.sequence {
            // What came before cannot be compared, and what is remembered of it says nothing.
            self.jumps = position.jumps;
            self.agreed = None;
            self.positions.fill(StreamPosition::default());
        } else if position.received == latest.sequence && self.sum == latest.digest {
            return;
        }
        if position.received == position.reaches {
            self.positions[self.next] = StreamPosition {
                sequence: position.received,
                digest: self.sum,
            };
            self.next = (self.next + 1) % POSITIONS;
        }
    }

    fn latest(&self) -> StreamPosition {
        self.positions[(self.next + POSITIONS - 1) % POSITIONS]
    }

    /// Compares what was reported with what was delivered up to there, if that is known: whether they are equal. The latest counts
    /// of what is remembered of a position.
    fn compare(&mut self, now: Time) -> Option<Result<(), StreamFault>> {
        let reported = self.reported?;
        let mut newest_first =
            (1..=POSITIONS).map(|back| self.positions[(self.next + POSITIONS - back) % POSITIONS]);
        let here = newest_first.find(|at| at.sequence == reported.sequence && at.sequence > 0)?;
        self.reported = None;
        let agreed = self.agreed.replace((reported, here.digest));
        self.standing.through = reported.sequence;
        let (before, sum) = agreed?;
        if reported.sequence < before.sequence {
            // An old one, that overtook nothing.
            self.agreed = agreed;
            self.standing.through = before.sequence;
            return None;
        }
        let sent = reported.digest.wrapping_sub(before.digest);
        if sent == here.digest.wrapping_sub(sum) {
            self.standing.equal_at = Some(now);
            return Some(Ok(()));
        }
        let fault = StreamFault {
            origin: self.member,
            incarnation: self.incarnation?,
            first: (before.sequence + 1).min(reported.sequence),
            last: reported.sequence,
        };
        self.standing.faults += 1;
        self.standing.last_fault = Some(fault);
        Some(Err(fault))
    }
}

/// What this member tells of its own stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Telling {
    /// The last position that was reported, and how often.
    reported: (u64, u8),
    pub(super) at: Option<Time>,
    pub(super) is_due: bool,
}

impl Telling {
    /// Whether a position is reported soon.
    pub(super) fn turn(&mut self, now: Time, sent_through: u64) {
        if sent_through == 0 || self.is_due {
            return;
        }
        let (reported, times) = self.reported;
        let news = reported != sent_through || times < REPORTED_TIMES;
        let period = if news {
            STREAM_PERIOD
        } else {
            STREAM_PERIOD_IDLE
        };
        let at = self.at.unwrap_or(now + period).min(now + period);
        self.at = Some(at);
        if at <= now {
            (self.at, self.is_due) = (None, true);
        }
    }

    /// There is nobody to be reported: nothing is due until somebody is.
    pub(super) fn rest(&mut self) {
        (self.at, self.is_due) = (None, false);
    }

    fn tell(&mut self, sent_through: u64) {
        let (reported, times) = self.reported;
        let again = if reported == sent_through { times } else { 0 };
        self.reported = (sent_through, again.saturating_add(1));
        self.is_due = false;
    }
}

impl Auditor {
    fn stream(&mut self, member: MemberId) -> Option<&mut Stream> {
        // Groups of one member come in a row.
        if self.streams.get(self.heard)?.member != member {
            let place = self.members.binary_search(&member).ok()?;
            self.heard = place;
        }
        self.streams.get_mut(self.heard)
    }

    /// A group is delivered. Costs a multiplication for eight bytes.
    #[inline]
    pub fn delivered(
        &mut self,
        member: MemberId,
        incarnation: Incarnation,
        sequence: u64,
        group: &[u8],
    ) {
        if let Some(stream) = self.stream(member) {
            stream.delivered(incarnation, sequence, group);
        }
    }

    /// Another member reported how far its stream is, and what it adds up to. Call [`Auditor::note_position`] after the message.
    pub(super) fn reported(
        &mut self,
        from: MemberId,
        incarnation: Incarnation,
        position: StreamPosition,
    ) {
        let Some(stream) = self.stream(from) else {
            return;
        };
        if stream.incarnation != Some(incarnation) {
            stream.begin(Some(incarnation));
        }
        // What cannot be compared any more makes room; else the one that was reported first is compared first.
        let latest = stream.latest().sequence;
        if stream
            .reported
            .is_none_or(|reported| reported.sequence <= latest)
        {
            let passed = stream.reported.replace(position).is_some();
            self.tally.streams_passed += u64::from(passed);
        }
    }

    /// A message of that member was handled: notes how far its stream is delivered, and compares.
    pub(super) fn note_position(&mut self, now: Time, member: MemberId, replicator: &Replicator) {
        let Some(position) = replicator.stream_position(member) else {
            return;
        };
        let Some(stream) = self.stream(member) else {
            return;
        };
        stream.note(position);
        match stream.compare(now) {
            None => {}
            Some(Ok(())) => self.tally.streams_equal += 1,
            Some(Err(fault)) => {
                self.tally.streams_different += 1;
                if self.faults.len() < super::UNDER_WAY_MAX {
                    self.faults.push_back(fault);
                }
            }
        }
    }

    /// A range of a stream that was not delivered as it was sent.
    pub(super) fn poll_fault(&mut self) -> Option<StreamFault> {
        self.faults.pop_front()
    }

    /// What is known of the other members' streams, by their names.
    pub fn streams(&self) -> impl Iterator<Item = StreamStanding> + '_ {
        let own = self.members.get(self.me).copied();
        let others = self.streams.iter().map(|stream| stream.standing);
        others.filter(move |standing| Some(standing.origin) != own)
    }

    /// Writes a message to all that tells how far this member's stream was sent, if that is due.
    pub(super) fn poll_stream(
        &mut self,
        replicator: &mut Replicator,
        buffer: &mut Vec<u8>,
    ) -> bool {
        let due = core::mem::take(&mut self.telling.is_due);
        if due {
            let position = replicator.write_stream(buffer);
            self.telling.tell(position.sequence);
        }
        due
    }
}

impl Replicator {
    /// How far a member's stream is delivered here; `None` of who takes no part.
    pub(super) fn stream_position(&self, member: MemberId) -> Option<Position> {
        let peer_index = self.membership.peer_of(member)?;
        let peer = &self.peers[peer_index];
        self.membership
            .is_peer_present(peer_index)
            .then(|| Position {
                incarnation: self.membership.incarnation(peer_index),
                received: peer.inbound.received(),
                reaches: peer.inbound.reaches(),
                jumps: peer.inbound.jumps(),
            })
    }

    fn write_stream(&mut self, buffer: &mut Vec<u8>) -> StreamPosition {
        let sequence = self.own.sent_through();
        let digest = self.log.digest_through(sequence);
        let position = StreamPosition { sequence, digest };
        self.begin(buffer);
        position.write(self.writer.begin());
        self.writer.end(KIND_STREAM, buffer);
        self.counters.messages_without_records_sent += 1;
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Incarnation = Incarnation(7);

    fn position(received: u64, reaches: u64, jumps: u32) -> Position {
        Position {
            incarnation: Some(LIFE),
            received,
            reaches,
            jumps,
        }
    }

    fn group(sequence: u64) -> Vec<u8> {
        vec![sequence as u8; 1 + sequence as usize % 40]
    }

    fn sent(through: u64) -> StreamPosition {
        let sum = (1..=through).fold(0u64, |sum, sequence| {
            sum.wrapping_add(of_group(sequence, &group(sequence)))
        });
        StreamPosition {
            sequence: through,
            digest: sum,
        }
    }

    fn take(stream: &mut Stream, sequences: impl IntoIterator<Item = u64>) {
        for sequence in sequences {
            stream.delivered(LIFE, sequence, &group(sequence));
        }
    }

    fn compare(stream: &mut Stream, reported: StreamPosition) -> Option<Result<(), StreamFault>> {
        stream.reported = Some(reported);
        stream.compare(Time(1))
    }

    #[test]
    fn what_is_delivered_once_in_any_order_is_equal() {
        let mut stream = Stream::new(MemberId(3));
        take(&mut stream, [1, 2, 5, 4]);
        stream.note(position(2, 5, 0));
        assert_eq!(compare(&mut stream, sent(2)), None, "something is beyond");
        take(&mut stream, [3]);
        stream.note(position(5, 5, 0));
        assert_eq!(compare(&mut stream, sent(5)), Some(Ok(())));
        assert_eq!(compare(&mut stream, sent(6)), None, "not there yet");
        take(&mut stream, [6]);
        stream.note(position(6, 6, 0));
        assert_eq!(stream.compare(Time(2)), Some(Ok(())));
        let StreamStanding {
            through,
            faults,
            equal_at,
            ..
        } = stream.standing;
        assert_eq!((through, faults, equal_at), (6, 0, Some(Time(2))));
        assert_eq!(compare(&mut stream, sent(5)), None, "an old one");
        assert_eq!(compare(&mut stream, sent(6)), Some(Ok(())));
    }

    #[test]
    fn a_group_that_comes_twice_or_altered_or_not_at_all_is_in_the_range() {
        let twice: Vec<u64> = vec![1, 2, 3, 3, 4];
        let left_out: Vec<u64> = vec![1, 2, 4];
        for delivered in [twice, left_out] {
            let mut stream = Stream::new(MemberId(3));
            take(&mut stream, [delivered[0]]);
            stream.note(position(1, 1, 0));
            assert_eq!(compare(&mut stream, sent(1)), Some(Ok(())));
            take(&mut stream, delivered[1..].iter().copied());
            stream.note(position(4, 4, 0));
            let fault = StreamFault {
                origin: MemberId(3),
                incarnation: LIFE,
                first: 2,
                last: 4,
            };
            assert_eq!(compare(&mut stream, sent(4)), Some(Err(fault)));
            take(&mut stream, 5..=9);
            stream.note(position(9, 9, 0));
            assert_eq!(compare(&mut stream, sent(9)), Some(Ok(())), "reported once");
            assert_eq!(stream.standing.faults, 1);
            assert_eq!(stream.standing.last_fault, Some(fault));
        }
        let mut stream = Stream::new(MemberId(3));
        stream.delivered(LIFE, 1, &[1, 0]);
        stream.note(position(1, 1, 0));
        assert!(matches!(compare(&mut stream, sent(1)), Some(Err(_))));
    }

    #[test]
    fn what_a_snapshot_covers_is_not_compared() {
        let mut stream = Stream::new(MemberId(3));
        take(&mut stream, 1..=3);
        stream.note(position(3, 3, 0));
        stream.note(position(8, 8, 1));
        assert_eq!(compare(&mut stream, sent(8)), None, "from here on");
        take(&mut stream, 9..=10);
        stream.note(position(10, 10, 1));
        assert_eq!(compare(&mut stream, sent(10)), Some(Ok(())));
        take(&mut stream, [11, 11]);
        stream.note(position(11, 11, 1));
        assert!(matches!(compare(&mut stream, sent(11)), Some(Err(_))));
    }

    #[test]
    fn another_incarnation_begins_again_and_faults_are_remembered() {
        let mut stream = Stream::new(MemberId(3));
        take(&mut stream, [1, 1]);
        stream.note(position(1, 1, 0));
        assert!(matches!(compare(&mut stream, sent(1)), Some(Err(_))));
        stream.delivered(Incarnation(8), 1, &group(1));
        let next = Position {
            incarnation: Some(Incarnation(8)),
            ..position(1, 1, 0)
        };
        stream.note(next);
        assert_eq!(compare(&mut stream, sent(1)), Some(Ok(())));
        assert_eq!(stream.standing.faults, 1);
    }

    #[test]
    fn the_hash_is_the_specifications() {
        let fold = |x: u64, y: u64| {
            let product = u128::from(x) * u128::from(y);
            product as u64 ^ (product >> 64) as u64
        };
        let (a, b) = (0x9e37_79b9_7f4a_7c15u64, 0xd6e8_feb8_6659_fd93u64);
        let h = fold(5 ^ a, b ^ 11);
        let h = fold(h ^ u64::from_le_bytes(*b"eight by"), a);
        let last = u64::from_le_bytes(*b"tes\0\0\0\0\0");
        assert_eq!(of_group(5, b"eight bytes"), fold(h ^ last, b));
        let h = fold(fold(1 ^ a, b ^ 8) ^ u64::from_le_bytes(*b"eight by"), a);
        assert_eq!(of_group(1, b"eight by"), fold(h, b));

        // Two rows of 32 bytes, eight more, and three.
        let long: Vec<u8> = (1..=75).collect();
        let w = |place: usize| u64::from_le_bytes(long[8 * place..][..8].try_into().unwrap());
        let h = fold(9 ^ a, b ^ 75);
        let (mut left, mut right) = (h, h ^ b);
        for first in [0, 4] {
            left = fold(w(first) ^ a, w(first + 1) ^ left);
            right = fold(w(first + 2) ^ b, w(first + 3) ^ right);
        }
        let h = fold(left ^ a, right ^ b);
        let h = fold(h ^ w(8), a);
        let last = u64::from_le_bytes([73, 74, 75, 0, 0, 0, 0, 0]);
        assert_eq!(of_group(9, &long), fold(h ^ last, b));
    }

    #[test]
    fn a_position_is_reported_often_while_there_is_news_and_rarely_else() {
        let mut telling = Telling::default();
        let (mut reported, mut now) = (Vec::new(), Time::ZERO);
        for _ in 0..5_000 {
            now = now + Duration::from_millis(1);
            let through = if now < Time::from_micros(1_000_000) {
                now.as_micros()
            } else {
                1_000_000
            };
            telling.turn(now, through);
            if telling.is_due {
                telling.tell(through);
                reported.push(now);
            }
        }
        let before = reported
            .iter()
            .filter(|at| **at <= Time::from_micros(1_000_000));
        assert_eq!((before.count(), reported.len()), (9, 16), "{reported:?}");
    }
}
