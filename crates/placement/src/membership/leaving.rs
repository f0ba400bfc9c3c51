//! This member's leave: that it commits nothing more, and who has seen the announcement.

use crate::Time;

/// Whether this member leaves.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    /// This member commits nothing more.
    is_leaving: bool,
    /// Timestamp of the last own message without the announcement. A peer that echoes a later one has seen the announcement.
    unannounced_at: Time,
}

impl Leaving {
    /// Whether this member commits nothing more.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// This member commits nothing more; the latest message had this timestamp.
    pub(crate) fn begin(&mut self, clock: Time) {
        self.is_leaving = true;
        self.sends_unannounced(clock);
    }

    /// A message with this timestamp goes without the announcement.
    pub(crate) fn sends_unannounced(&mut self, clock: Time) {
        debug_assert!(self.unannounced_at <= clock, "timestamps never go back");
        self.unannounced_at = clock;
    }

    /// Whether a member that echoed this timestamp has seen the announcement.
    pub(crate) fn is_seen_by(&self, echoed: Time) -> bool {
        echoed > self.unannounced_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_echo_of_a_later_message_shows_that_the_announcement_was_seen() {
        let mut leaving = Leaving::default();
        assert!(!leaving.is_leaving());
        leaving.begin(Time(5));
        assert!(leaving.is_leaving() && !leaving.is_seen_by(Time(5)));
        assert!(leaving.is_seen_by(Time(6)));
        leaving.sends_unannounced(Time(8));
        assert!(!leaving.is_seen_by(Time(8)) && leaving.is_seen_by(Time(9)));
    }
}
