//! One direction of a connection on virtual time.

use std::collections::VecDeque;

/// One direction: what is under way, in order, and when it comes.
#[derive(Debug, Default)]
pub(super) struct Direction(VecDeque<(u64, Vec<u8>)>);

impl Direction {
    pub(super) fn send(&mut self, at_us: u64, bytes: Vec<u8>) {
        let last = self.0.back().map_or(0, |(at, _)| *at);
        self.0.push_back((last.max(at_us), bytes));
    }

    pub(super) fn take(&mut self, now_us: u64) -> Option<Vec<u8>> {
        let is_here = self.0.front().is_some_and(|(at, _)| *at <= now_us);
        is_here
            .then(|| self.0.pop_front())
            .flatten()
            .map(|(_, bytes)| bytes)
    }

    pub(super) fn next_due_us(&self) -> Option<u64> {
        self.0.front().map(|(at, _)| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing comes before.
    pub(super) fn not_before(&mut self, until_us: u64) {
        self.0
            .iter_mut()
            .for_each(|(at, _)| *at = (*at).max(until_us));
    }

    pub(super) fn later(&mut self, by_us: u64) {
        self.0.iter_mut().for_each(|(at, _)| *at += by_us);
    }

    /// Only so many bytes of it come.
    pub(super) fn cut(&mut self, mut bytes: usize) {
        let mut kept = VecDeque::new();
        for (at, mut piece) in self.0.drain(..) {
            piece.truncate(bytes);
            bytes -= piece.len();
            if !piece.is_empty() {
                kept.push_back((at, piece));
            }
        }
        self.0 = kept;
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, piece)| piece.len()).sum()
    }
}
