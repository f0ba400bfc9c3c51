//! The incarnations that epochs ended, as many as are remembered.

use crate::{Incarnation, MemberId};

use super::stream_closing::{CLOSINGS_MAX, INDIRECT_MAX, StreamClosing};
use crate::membership::MemberIndex;

/// Ended incarnations, oldest first.
#[derive(Debug, Default)]
pub(super) struct Closings {
    all: Vec<StreamClosing>,
}

impl Closings {
    /// What holds once one is remembered.
    fn assert_sound(&self) {
        debug_assert!((1..=CLOSINGS_MAX).contains(&self.all.len()));
    }

    /// Remembers another one. Whether one had to be forgotten before it was closed.
    pub(super) fn remember(&mut self, closing: StreamClosing) -> bool {
        let mut is_one_lost = false;
        if self.all.len() >= CLOSINGS_MAX {
            let closed = self.all.iter().position(|closing| closing.closed);
            let indirect = || self.all.iter().position(|closing| closing.indirect);
            self.all.remove(closed.or_else(indirect).unwrap_or(0));
            is_one_lost = closed.is_none();
        }
        self.all.push(closing);
        self.assert_sound();
        is_one_lost
    }

    /// Whether another one may be remembered that only others speak of.
    pub(super) fn has_room_for_indirect(&self) -> bool {
        let open = self.all.iter().filter(|closing| !closing.closed);
        open.filter(|closing| closing.indirect).count() < INDIRECT_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn iter(&self) -> core::slice::Iter<'_, StreamClosing> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> core::slice::IterMut<'_, StreamClosing> {
        self.all.iter_mut()
    }

    /// All places in the list, from one on and around.
    pub(super) fn places_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.all.len();
        (0..count).map(move |step| (first + step) % count)
    }

    /// All places in the list.
    pub(super) fn places(&self) -> core::ops::Range<usize> {
        0..self.all.len()
    }

    pub(super) fn at(&self, place: usize) -> &StreamClosing {
        &self.all[place]
    }

    pub(super) fn at_mut(&mut self, place: usize) -> &mut StreamClosing {
        &mut self.all[place]
    }

    /// The place of an incarnation in the list.
    pub(super) fn find(&self, member: MemberId, incarnation: Incarnation) -> Option<usize> {
        let is_it = |closing: &StreamClosing| closing.is(member, incarnation);
        self.all.iter().position(is_it)
    }

    /// Whether one is not closed.
    pub(super) fn is_one_open(&self) -> bool {
        self.all.iter().any(|closing| !closing.closed)
    }

    /// Whether one of that member is not closed.
    pub(super) fn is_one_open_of(&self, member: MemberId) -> bool {
        let mut open = self.all.iter().filter(|closing| !closing.closed);
        open.any(|closing| closing.member == member)
    }

    /// Whether this member has all that anybody has of all of them.
    pub(super) fn are_whole(&self) -> bool {
        self.all.iter().all(|closing| closing.whole)
    }

    /// Whether this member scans or scanned for that one because of any of them.
    pub(super) fn are_scanned_for(&self, index: MemberIndex) -> bool {
        self.all.iter().any(|closing| closing.is_scanned(index))
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream_closing::Holding;
    use super::*;

    fn ended(incarnation: u64) -> StreamClosing {
        let (member, own) = (MemberId(9), Holding::default());
        StreamClosing::new(member, Incarnation(incarnation), own, 2)
    }

    fn incarnations(closings: &Closings) -> Vec<u64> {
        let all = closings.iter();
        all.map(|closing| closing.incarnation.0).collect()
    }

    #[test]
    fn a_full_list_forgets_what_is_closed_then_what_others_speak_of_then_the_oldest() {
        let mut closings = Closings::default();
        for number in 0..CLOSINGS_MAX as u64 {
            assert!(!closings.remember(ended(number)));
        }
        let closed = closings.at_mut(7);
        (closed.applied, closed.whole, closed.closed) = (true, true, true);
        closings.at_mut(5).indirect = true;
        let lost: Vec<bool> = (1_000..1_003)
            .map(|number| closings.remember(ended(number)))
            .collect();
        assert_eq!(lost, [false, true, true]);
        assert_eq!(closings.iter().count(), CLOSINGS_MAX);
        assert_eq!(incarnations(&closings)[..6], [1, 2, 3, 4, 6, 8]);
    }

    #[test]
    fn made_up_incarnations_have_half_of_the_room() {
        let mut closings = Closings::default();
        for number in 0..INDIRECT_MAX as u64 {
            assert!(closings.has_room_for_indirect());
            let mut closing = ended(number);
            closing.indirect = true;
            closings.remember(closing);
        }
        assert!(!closings.has_room_for_indirect());
        let closed = closings.at_mut(0);
        (closed.applied, closed.whole, closed.closed) = (true, true, true);
        assert!(closings.has_room_for_indirect());
    }

    #[test]
    fn places_go_around() {
        let mut closings = Closings::default();
        assert_eq!(closings.places_from(3).count(), 0);
        for number in 0..3 {
            closings.remember(ended(number));
        }
        assert_eq!(closings.places_from(2).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(closings.find(MemberId(9), Incarnation(1)), Some(1));
        assert_eq!(closings.find(MemberId(8), Incarnation(1)), None);
        assert!(closings.is_one_open() && closings.is_one_open_of(MemberId(9)));
        assert!(!closings.is_one_open_of(MemberId(8)) && !closings.are_whole());
    }
}
