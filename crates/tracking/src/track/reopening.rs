//! Connections that begin again in the place of an established one: which SYN-ACK replaces the track.

use super::{ACK, ON_OUTSIDE, OPENED, SYN, SYN_ACK, Track, extended, scale_of};
use crate::flow::{Direction, Link};
use crate::segment::Segment;

/// Bits of numbers in [`Track::other_syns`]; in the one above them that a SYN had another window scale.
const OTHER_SYNS: u32 = 7;
const OTHER_SCALE: u8 = 1 << OTHER_SYNS;

impl Track {
    /// With a SYN that passed to a connection which was answered: if the other end has lost the connection, it answers this one.
    ///
    /// What is kept of its number is a bit of seven. A number itself would have to join by a rule under which a forged SYN displaces the
    /// opener's for good; bits add up. They only tell whether an answer is one to a SYN that the opener's link sent: who
    /// forges answers on the other link hits a bit by chance, and then spoils a connection that began just now, no other.
    pub(super) fn with_other_syn(
        mut self,
        segment: &Segment,
        (direction, link): (Direction, Link),
    ) -> Self {
        if !self.is_picked_up() && self.is_end_on(direction, link) {
            let begin = segment.sequence.wrapping_add(1);
            // It may be answered without its data (RFC 7413 §3).
            self.other_syns |= bit_of(begin) | bit_of(begin.wrapping_add(segment.length));
            if scale_of(segment) != self.scales[direction as usize] {
                self.other_syns |= OTHER_SCALE;
            }
        }
        self
    }

    /// Whether a SYN-ACK with numbers far from the connection's answers a SYN with another number.
    pub(super) fn answers_other_syn(
        &self,
        segment: &Segment,
        (direction, link): (Direction, Link),
    ) -> bool {
        self.other_syns & bit_of(segment.acknowledgement) != 0
            && direction != self.opener()
            && self.is_end_on(direction, link)
            && !self.is_over()
            && !self.is_near(segment, direction)
    }

    /// The connection that the opener's SYN and this answer of the other end have begun in the place of this one.
    pub(super) fn again(&self, answer: &Segment, direction: Direction) -> Self {
        let opener = direction.reversed();
        let mut track = Self::default();
        // Complete at once, as the one in whose place it is was: its last ACK moves no counter of half-open ones.
        track.set(OPENED | SYN | ACK, opener);
        if self.has(ON_OUTSIDE, opener) {
            track.set(ON_OUTSIDE, opener);
        }
        track.sent[opener as usize] = extended(0, answer.acknowledgement);
        if self.other_syns & OTHER_SCALE == 0 {
            track.scales[opener as usize] = self.scales[opener as usize];
        }
        track.with_syn(answer, SYN_ACK, direction)
    }
}

/// The bit of a number in [`Track::other_syns`].
const fn bit_of(number: u32) -> u8 {
    1 << ((number.wrapping_mul(0x9e37_79b9) >> 16) % OTHER_SYNS)
}
