//! Since when a member owes an echo.

use core::time::Duration;

use crate::Time;

/// Times that are remembered.
const MARKS: usize = 16;
/// Between two of them at least.
const SPACING: Duration = Duration::from_micros(500);

/// When groups went out for the first time, of which no echo came yet: a few of these times, the oldest first. What was sent
/// between two of them counts as sent at the later one, so that nothing seems overdue that is not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OldestUnacknowledged {
    pending_acknowledgements: [Time; MARKS],
    count: usize,
}

impl OldestUnacknowledged {
    /// Groups go out.
    pub(super) fn sent(&mut self, now: Time) {
        let is_due = match self.pending_acknowledgements[..self.count].last() {
            None => true,
            Some(last) => now.since(*last) >= SPACING,
        };
        if is_due && let Some(free) = self.pending_acknowledgements.get_mut(self.count) {
            *free = now;
            self.count += 1;
        }
    }

    /// What went out at `timestamp` was echoed; the last groups went at `sent_at`.
    pub(super) fn echoed(&mut self, timestamp: Time, sent_at: Time) {
        let pending_acknowledgements = &self.pending_acknowledgements[..self.count];
        let known = pending_acknowledgements.partition_point(|&mark| mark <= timestamp);
        self.pending_acknowledgements
            .copy_within(known..self.count, 0);
        self.count -= known;
        // Of what followed only the last is known.
        if self.count == 0 && sent_at > timestamp {
            self.sent(sent_at);
        }
    }

    /// The oldest of these times.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.pending_acknowledgements[..self.count].first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_micros(us)
    }

    #[test]
    fn what_is_owed_the_longest_is_known_while_echoes_come() {
        let mut oldest_unacknowledged = OldestUnacknowledged::default();
        assert_eq!(oldest_unacknowledged.oldest(), None);
        for us in (1_000..4_000).step_by(100) {
            oldest_unacknowledged.sent(at(us));
        }
        assert_eq!(oldest_unacknowledged.oldest(), Some(at(1_000)));
        oldest_unacknowledged.echoed(at(1_200), at(3_900));
        assert_eq!(
            oldest_unacknowledged.oldest(),
            Some(at(1_500)),
            "at most 500 us late"
        );
        oldest_unacknowledged.echoed(at(3_000), at(3_900));
        assert_eq!(oldest_unacknowledged.oldest(), Some(at(3_500)));
        oldest_unacknowledged.echoed(at(3_700), at(3_900));
        assert_eq!(
            oldest_unacknowledged.oldest(),
            Some(at(3_900)),
            "the last that is known"
        );
        oldest_unacknowledged.echoed(at(3_900), at(3_900));
        assert_eq!(oldest_unacknowledged.oldest(), None);
    }

    #[test]
    fn what_does_not_fit_is_not_overdue_early() {
        let mut oldest_unacknowledged = OldestUnacknowledged::default();
        for us in (1_000..1_000_000).step_by(500) {
            oldest_unacknowledged.sent(at(us));
        }
        assert_eq!(oldest_unacknowledged.oldest(), Some(at(1_000)));
        oldest_unacknowledged.echoed(at(8_500), at(999_500));
        assert_eq!(oldest_unacknowledged.oldest(), Some(at(999_500)));
    }
}
