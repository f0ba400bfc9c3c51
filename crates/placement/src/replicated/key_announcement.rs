//! The announcement of the cluster keys that this member accepts.

use core::time::Duration;

use crate::Time;

use super::wire::AcceptedKeys;

/// How often a member says which cluster keys it accepts.
pub const KEYS_INTERVAL: Duration = Duration::from_secs(1);

/// What is announced, and when it last was.
#[derive(Debug, Default)]
pub(super) struct KeyAnnouncement {
    /// `None`: nothing is announced.
    keys: Option<AcceptedKeys>,
    sent: Option<Time>,
}

impl KeyAnnouncement {
    /// These are announced from now on, with the next acknowledgements.
    pub(super) fn set(&mut self, keys: AcceptedKeys) {
        (self.keys, self.sent) = (Some(keys), None);
    }

    /// What is to be announced now.
    pub(super) fn due(&self, now: Time) -> Option<AcceptedKeys> {
        let is_due = self.sent.is_none_or(|at| now.since(at) >= KEYS_INTERVAL);
        self.keys.filter(|_| is_due)
    }

    /// It was announced.
    pub(super) fn went(&mut self, now: Time) {
        debug_assert!(self.keys.is_some());
        self.sent = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_announced_once_an_interval_and_at_once_when_they_change() {
        let (keys, start) = (AcceptedKeys::default(), Time(1));
        let mut announcement = KeyAnnouncement::default();
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
