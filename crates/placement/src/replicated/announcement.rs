//! What this member announces of itself beside its stream: the cluster keys that it accepts, and where its objects are.

use core::time::Duration;

use crate::Time;

/// How often a member says which cluster keys it accepts, and where its objects are.
pub const KEYS_INTERVAL: Duration = Duration::from_secs(1);

/// What is announced, and when it last was.
#[derive(Debug)]
pub(super) struct Announcement<T> {
    /// `None`: nothing is announced.
    what: Option<T>,
    sent: Option<Time>,
}

impl<T> Default for Announcement<T> {
    fn default() -> Self {
        Self {
            what: None,
            sent: None,
        }
    }
}

impl<T: Copy> Announcement<T> {
    /// This is announced from now on, with the next acknowledgements.
    pub(super) fn set(&mut self, what: T) {
        (self.what, self.sent) = (Some(what), None);
    }

    /// What is to be announced now.
    pub(super) fn due(&self, now: Time) -> Option<T> {
        let is_due = self.sent.is_none_or(|at| now.since(at) >= KEYS_INTERVAL);
        self.what.filter(|_| is_due)
    }

    /// It was announced.
    pub(super) fn went(&mut self, now: Time) {
        debug_assert!(self.what.is_some());
        self.sent = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::AcceptedKeys;
    use super::*;

    #[test]
    fn keys_are_announced_once_an_interval_and_at_once_when_they_change() {
        let (keys, start) = (AcceptedKeys::default(), Time(1));
        let mut announcement = Announcement::default();
        assert_eq!(announcement.due(start), None);
        announcement.set(keys);
        assert_eq!(announcement.due(start), Some(keys));
        announcement.went(start);
        assert_eq!(announcement.due(start), None);
        assert_eq!(announcement.due(start + KEYS_INTERVAL), Some(keys));
        announcement.set(keys);
        assert_eq!(announcement.due(start), Some(keys));
    }
}
