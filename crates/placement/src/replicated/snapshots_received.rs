//! What snapshots brought here beyond the streams.

use crate::Time;

/// What snapshots brought here, whichever member sent them.
#[derive(Debug, Default)]
pub(super) struct SnapshotsReceived {
    /// The timestamp of the latest own message when a part of a snapshot was delivered last.
    part_at: Option<Time>,
    /// A snapshot was joined since this member started.
    is_one_joined: bool,
    /// Of a member that the roster being installed ends, part of a snapshot was delivered that is not joined.
    is_half_of_ended: bool,
}

impl SnapshotsReceived {
    /// A part of a snapshot was delivered, after the own message with this timestamp.
    pub(super) fn takes_part(&mut self, clock: Time) {
        debug_assert!(
            self.part_at.is_none_or(|at| at <= clock),
            "timestamps never go back"
        );
        self.part_at = Some(clock);
    }

    /// Whether a part of a snapshot was ever delivered.
    pub(super) fn has_part(&self) -> bool {
        self.part_at.is_some()
    }

    /// Whether an own message with this timestamp went after the last part of a snapshot had come.
    pub(super) fn is_older_than(&self, timestamp: Time) -> bool {
        self.part_at.is_some_and(|at| timestamp > at)
    }

    /// A snapshot was joined.
    pub(super) fn joins(&mut self) {
        self.is_one_joined = true;
    }

    /// Whether a snapshot was joined since this member started.
    pub(super) fn is_one_joined(&self) -> bool {
        self.is_one_joined
    }

    /// A member ends; `is_half` if part of its snapshot was delivered and is not joined.
    pub(super) fn ends(&mut self, is_half: bool) {
        debug_assert!(self.has_part() || !is_half);
        self.is_half_of_ended |= is_half;
    }

    /// Whether part of a snapshot was delivered of a member that the roster ends; asked once a roster.
    pub(super) fn take_half_of_ended(&mut self) -> bool {
        core::mem::take(&mut self.is_half_of_ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_after_the_last_part_is_later() {
        let mut snapshots = SnapshotsReceived::default();
        assert!(!snapshots.has_part() && !snapshots.is_older_than(Time(9)));
        snapshots.takes_part(Time(5));
        assert!(snapshots.has_part());
        assert!(!snapshots.is_older_than(Time(5)) && snapshots.is_older_than(Time(6)));
        snapshots.takes_part(Time(7));
        assert!(!snapshots.is_older_than(Time(6)));
        assert!(!snapshots.is_one_joined());
        snapshots.joins();
        assert!(snapshots.is_one_joined());
    }

    #[test]
    fn a_half_snapshot_counts_for_one_roster() {
        let mut snapshots = SnapshotsReceived::default();
        snapshots.takes_part(Time(1));
        snapshots.ends(true);
        snapshots.ends(false);
        assert!(snapshots.take_half_of_ended() && !snapshots.take_half_of_ended());
    }
}
