//! What was sent and is still in the log: the runs of groups that went out together, when they last went to each member,
//! and which of them are to go again.

use std::collections::VecDeque;

use crate::Time;

use crate::membership::{PeerIndex, PeerSet, Place};

/// The most runs between the oldest unacknowledged group and the newest sent one. Beyond it new groups wait, and then
/// travel in fuller messages.
pub(super) const RUNS_IN_LOG_MAX: usize = 16_384;

/// Groups that were sent together. Its bounds never change (rule 12).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) last: u64,
    /// When it went for the first time.
    since: Time,
    /// The members that it is to go to again.
    pub(super) wanted: PeerSet,
    queued: bool,
    /// What goes again now is the copy of a repair.
    pub(super) copied: bool,
    pub(super) tries: u8,
}

/// While at most so many runs are to go again, each goes twice (as probes do, RFC 9002 section 6.2.4): a repair that is lost
/// too costs its members another round trip and a half. More of them are a sign of a full path, which copies would only fill
/// further.
const COPIED_RUNS_MAX: usize = 8;

/// The runs, numbered from 0 in the order of their sequences.
#[derive(Debug)]
pub(super) struct Sent {
    runs: Box<[Run]>,
    /// For each slot and member the time when the run last went there.
    at: Box<[Time]>,
    members: usize,
    oldest: u64,
    next: u64,
    runs_max: usize,
    again: VecDeque<u64>,
    /// The first of `again` goes in parts: up to here it went.
    parts_through: u64,
}

impl Sent {
    pub(super) fn new(groups_max: usize, members: usize) -> Sent {
        let runs_max = groups_max.min(RUNS_IN_LOG_MAX);
        let slots = runs_max.next_power_of_two();
        Sent {
            runs: vec![Run::default(); slots].into(),
            at: vec![Time::ZERO; slots * members].into(),
            members,
            oldest: 0,
            next: 0,
            runs_max,
            again: VecDeque::with_capacity(runs_max),
            parts_through: 0,
        }
    }

    fn slot(&self, number: u64) -> usize {
        number as usize & (self.runs.len() - 1)
    }

    pub(super) fn is_full(&self) -> bool {
        (self.next - self.oldest) as usize >= self.runs_max
    }

    /// Whether three quarters of the runs are taken.
    pub(super) fn is_high(&self) -> bool {
        (self.next - self.oldest) as usize >= self.runs_max / 4 * 3
    }

    /// Whether the runs that reach beyond `above` are more than half.
    pub(super) fn is_half(&self, above: u64) -> bool {
        (self.next - self.find(above + 1)) as usize > self.runs_max / 2
    }

    /// The last number and one more.
    pub(super) fn end(&self) -> u64 {
        self.next
    }

    pub(super) fn run(&self, number: u64) -> &Run {
        debug_assert!((self.oldest..self.next).contains(&number), "it is kept");
        &self.runs[self.slot(number)]
    }

    pub(super) fn run_mut(&mut self, number: u64) -> &mut Run {
        debug_assert!((self.oldest..self.next).contains(&number), "it is kept");
        let slot = self.slot(number);
        &mut self.runs[slot]
    }

    /// A run went to all members for the first time.
    pub(super) fn push(&mut self, first: u64, last: u64, now: Time) {
        debug_assert!(!self.is_full());
        debug_assert!(first <= last, "a run has a group");
        debug_assert!(
            self.oldest == self.next || self.run(self.next - 1).last < first,
            "runs follow each other"
        );
        let slot = self.slot(self.next);
        self.runs[slot] = Run {
            first,
            last,
            since: now,
            ..Run::default()
        };
        self.at[slot * self.members..(slot + 1) * self.members].fill(now);
        self.next += 1;
    }

    /// When the run last went to that member.
    pub(super) fn sent_at(&self, number: u64, to: PeerIndex) -> Time {
        self.at[self.slot(number) * self.members + to.number()]
    }

    /// When the run went to all members for the first time.
    pub(super) fn first_sent_at(&self, number: u64) -> Time {
        self.run(number).since
    }

    /// The run goes again to these members.
    pub(super) fn resent(&mut self, number: u64, to: PeerSet, now: Time) {
        debug_assert!((self.oldest..self.next).contains(&number), "it is kept");
        let slot = self.slot(number);
        for member in (0..self.members).map(PeerIndex::at) {
            if to.has(member) {
                self.at[slot * self.members + member.number()] = now;
            }
        }
        let run = &mut self.runs[slot];
        run.wanted = run.wanted.without_all(to);
        run.tries = run.tries.saturating_add(1);
    }

    /// The number of the first run that reaches `sequence` or beyond.
    pub(super) fn find(&self, sequence: u64) -> u64 {
        let (mut low, mut high) = (self.oldest, self.next);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.run(middle).last < sequence {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Forgets the runs that do not reach beyond `through`.
    pub(super) fn prune(&mut self, through: u64) {
        while self.oldest < self.next && self.run(self.oldest).last <= through {
            self.oldest += 1;
        }
    }

    /// The run is to go to a member again.
    pub(super) fn want(&mut self, number: u64, to: PeerIndex) {
        let run = self.run_mut(number);
        run.wanted = run.wanted.with(to);
        if !run.queued {
            run.queued = true;
            self.again.push_back(number);
        }
    }

    /// The run just went again to these members: whether it goes once more, because few do.
    pub(super) fn want_copy(&mut self, number: u64, to: PeerSet) -> bool {
        let few = self.again.len() < COPIED_RUNS_MAX;
        let run = self.run_mut(number);
        run.copied = !run.copied && few;
        if run.copied {
            run.wanted = to;
            run.queued = true;
            self.again.push_back(number);
        }
        self.run(number).copied
    }

    /// The next run that is to go again. It stays until [`Sent::pop_again`].
    pub(super) fn peek_again(&mut self) -> Option<u64> {
        while let Some(&number) = self.again.front() {
            if number >= self.oldest {
                return Some(number);
            }
            self.again.pop_front();
        }
        None
    }

    pub(super) fn has_again(&self) -> bool {
        self.again
            .back()
            .is_some_and(|&number| number >= self.oldest)
            || self.again.iter().any(|&number| number >= self.oldest)
    }

    /// The next run goes in parts, and the part up to this sequence just went.
    pub(super) fn part_went(&mut self, through: u64) {
        self.parts_through = through;
    }

    /// Where what is left to go of the next run begins.
    pub(super) fn rest_of(&self, number: u64) -> u64 {
        let run = self.run(number);
        let rest = self.parts_through + 1;
        if (run.first..=run.last).contains(&rest) {
            rest
        } else {
            run.first
        }
    }

    pub(super) fn pop_again(&mut self) {
        self.parts_through = 0;
        if let Some(number) = self.again.pop_front()
            && number >= self.oldest
        {
            self.run_mut(number).queued = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_by_sequence_and_queued_once() {
        let mut sent = Sent::new(8, 3);
        let (first, second) = (PeerIndex::at(0), PeerIndex::at(1));
        let to = PeerSet::of(second);
        for run in 0..6u64 {
            sent.push(run * 10 + 1, run * 10 + 10, Time(run));
        }
        assert_eq!(
            (
                sent.find(0),
                sent.find(10),
                sent.find(11),
                sent.find(60),
                sent.find(61)
            ),
            (0, 0, 1, 5, 6)
        );
        assert!(sent.is_high() && !sent.is_full());
        sent.want(2, first);
        sent.want(2, second);
        sent.want(0, second);
        assert_eq!(sent.peek_again(), Some(2));
        assert_eq!(sent.run(2).wanted, to.with(first));
        sent.resent(2, to, Time(100));
        assert_eq!(
            (sent.sent_at(2, first), sent.sent_at(2, second)),
            (Time(2), Time(100))
        );
        sent.pop_again();
        assert!(sent.want_copy(2, to), "few go again: it goes twice");
        assert!(sent.run(2).copied && sent.run(2).wanted == to);
        assert_eq!(sent.peek_again(), Some(0));
        sent.resent(0, to, Time(101));
        sent.pop_again();
        assert_eq!(sent.peek_again(), Some(2));
        sent.resent(2, to, Time(102));
        sent.pop_again();
        assert!(!sent.want_copy(2, to), "but not three times");
        sent.want(0, second);
        assert_eq!(sent.rest_of(0), 1);
        sent.part_went(4);
        assert_eq!((sent.rest_of(0), sent.rest_of(2)), (5, 21));
        sent.prune(19);
        assert_eq!(sent.peek_again(), None, "run 0 was pruned");
        assert_eq!(sent.find(1), 1);
    }
}
