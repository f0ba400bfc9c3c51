//! When acknowledgements go out.

use core::time::Duration;

use crate::Time;

use crate::membership::PeerIndex;

/// When acknowledgements are due, and when the last went.
#[derive(Debug, Default)]
pub(super) struct AcknowledgementSchedule {
    /// `None` while there is no news.
    due: Option<Time>,
    sent: Option<Time>,
    /// An answer is wanted from all; the next acknowledgements say so.
    probes: bool,
}

impl AcknowledgementSchedule {
    /// There is news: it goes after `delay`, or, where a sender waits for it (`prompt`), as soon as the last ones went that long ago.
    pub(super) fn want(&mut self, now: Time, delay: Duration, prompt: bool) {
        let earliest = self.sent.map_or(now, |at| now.max(at + delay));
        let at = if prompt {
            earliest
        } else {
            earliest.max(now + delay)
        };
        self.due = Some(self.due.map_or(at, |before| before.min(at)));
    }

    /// When they go out even alone: after so long a silence at the latest.
    pub(super) fn due(&self, silence: Duration) -> Time {
        let keep_alive = self.sent.map_or(Time::ZERO, |at| at + silence);
        self.due.map_or(keep_alive, |at| at.min(keep_alive))
    }

    /// Whether a message to all that goes anyhow carries news, because the last went at least `delay` ago.
    pub(super) fn goes_along(&self, now: Time, delay: Duration) -> bool {
        self.due.is_some() && self.sent.is_none_or(|at| at + delay <= now)
    }

    /// They went.
    pub(super) fn went(&mut self, now: Time) {
        debug_assert!(self.sent.is_none_or(|sent| sent <= now), "time goes on");
        self.due = None;
        self.sent = Some(now);
    }

    /// An answer is wanted from all.
    pub(super) fn probe(&mut self) {
        self.probes = true;
    }

    /// Whether an answer is wanted.
    pub(super) fn probes(&self) -> bool {
        self.probes
    }

    /// Whether the acknowledgements being written ask for an answer; later ones do not.
    pub(super) fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.probes)
    }
}

/// What goes first in a message where not all fits; what did not fit begins the next one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The member whose stream is acknowledged first.
    pub(super) acknowledgements: PeerIndex,
    /// The place of the ended incarnation that is reported first.
    pub(super) closings: usize,
    /// The newcomer that is confirmed first.
    pub(super) confirms: PeerIndex,
    closings_first: bool,
}

impl Turns {
    /// Whether ended incarnations go before newcomers this time: they take turns, so that neither starves the other.
    pub(super) fn closings_first(&mut self) -> bool {
        self.closings_first = !self.closings_first;
        self.closings_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(1);
    const SILENCE: Duration = Duration::from_millis(20);

    fn ms(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    #[test]
    fn news_waits_for_more_unless_a_sender_waits() {
        let mut schedule = AcknowledgementSchedule::default();
        assert_eq!(schedule.due(SILENCE), Time::ZERO, "nothing went yet");
        schedule.went(ms(10));
        assert_eq!(schedule.due(SILENCE), ms(30));
        assert!(!schedule.goes_along(ms(30), DELAY), "there is no news");
        schedule.want(ms(15), DELAY, false);
        assert_eq!(schedule.due(SILENCE), ms(16));
        schedule.want(ms(15), DELAY, true);
        assert_eq!(schedule.due(SILENCE), ms(15));
        assert!(schedule.goes_along(ms(15), DELAY));
        schedule.went(ms(15));
        schedule.want(ms(15), DELAY, true);
        assert_eq!(schedule.due(SILENCE), ms(16), "one a delay at most");
        assert!(!schedule.goes_along(ms(15), DELAY));
    }

    #[test]
    fn a_question_is_asked_once() {
        let mut schedule = AcknowledgementSchedule::default();
        schedule.probe();
        assert!(schedule.probes() && schedule.take_probe() && !schedule.take_probe());
        let mut turns = Turns::default();
        assert!(turns.closings_first() && !turns.closings_first());
    }
}
