//! A UDP flow as its client sees it: requests by a clock, each with its answer, or lost after a second.

use core::time::Duration;

use asterism_placement::Time;

use crate::traffic::ANSWER_TIME_MAX;

/// Requests that a flow remembers: all that are sent within [`ANSWER_TIME_MAX`], at the shortest interval.
const REMEMBERED: u32 = 64;
/// Unanswered requests at the end of a flow with which it has failed.
const UNANSWERED_MAX: u32 = 8;

/// How a flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// Its last requests were answered, or at least one of them.
    Well,
    /// None of its last eight was, or none of all if there are fewer.
    Failed,
}

/// What an answer was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The first to its request, with the round trip.
    Taken(Duration),
    /// The first to its request, which counts as lost already.
    Late,
    /// Another to its request.
    Duplicate,
    /// To a request that was not sent.
    Unknown,
}

/// The flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpFlow {
    pub(super) flow: u64,
    total: u32,
    /// The next request, and the first that is neither answered nor lost.
    next: u32,
    open: u32,
    /// By the remainder of the request's number.
    answered: u64,
    sent: [Time; REMEMBERED as usize],
    pub(super) answers: u32,
    unanswered: u32,
    next_send: Time,
    /// Since when it has waited for a packet.
    waits_since: Option<Time>,
}

impl UdpFlow {
    pub(super) fn new(flow: u64, total: u32, now: Time) -> UdpFlow {
        UdpFlow {
            flow,
            total,
            next: 0,
            open: 0,
            answered: 0,
            sent: [Time::ZERO; REMEMBERED as usize],
            answers: 0,
            unanswered: 0,
            next_send: now,
            waits_since: None,
        }
    }

    /// The number of the request to send now, if one is due; the caller sends it.
    pub(super) fn poll_transmit(&mut self, interval: Duration, now: Time) -> Option<u32> {
        let is_due = self.next < self.total && now >= self.next_send;
        if !is_due || self.next - self.open >= REMEMBERED {
            return None;
        }
        let sequence = self.next;
        self.next += 1;
        self.next_send = self.next_send.max(now).saturating_add(interval);
        self.sent[(sequence % REMEMBERED) as usize] = now;
        self.answered &= !(1 << (sequence % REMEMBERED));
        self.waits_since.get_or_insert(now);
        Some(sequence)
    }

    /// Takes an answer; also how long the flow had waited for a packet.
    pub(super) fn take(&mut self, sequence: u32, now: Time) -> (Answer, Duration) {
        if sequence >= self.next {
            return (Answer::Unknown, Duration::ZERO);
        }
        let place = sequence % REMEMBERED;
        let is_remembered = self.next - sequence <= REMEMBERED;
        if is_remembered && self.answered >> place & 1 == 1 {
            return (Answer::Duplicate, Duration::ZERO);
        }
        let silence = self.end_silence(now);
        if sequence < self.open {
            if is_remembered {
                self.answered |= 1 << place;
            }
            return (Answer::Late, silence);
        }
        self.answered |= 1 << place;
        self.answers += 1;
        self.pass_answered();
        if sequence + 1 == self.next {
            // Requests before it that are still open are lost, and not waited for.
            self.waits_since = None;
        }
        let trip = now.since(self.sent[place as usize]);
        (Answer::Taken(trip), silence)
    }

    fn end_silence(&mut self, now: Time) -> Duration {
        let since = self.waits_since.replace(now);
        since.map_or(Duration::ZERO, |since| now.since(since))
    }

    fn pass_answered(&mut self) {
        while self.open < self.next && self.answered >> (self.open % REMEMBERED) & 1 == 1 {
            self.open += 1;
            self.unanswered = 0;
        }
    }

    /// When the oldest open request was sent, if it is lost by now; the flow goes on to the next.
    pub(super) fn poll_lost(&mut self, now: Time) -> Option<Time> {
        self.pass_answered();
        let sent = self.sent[(self.open % REMEMBERED) as usize];
        let is_lost = self.open < self.next && now.since(sent) >= ANSWER_TIME_MAX;
        if !is_lost {
            return None;
        }
        self.open += 1;
        self.unanswered += 1;
        self.pass_answered();
        Some(sent)
    }

    /// How long the flow has waited for a packet.
    pub(super) fn silence(&self, now: Time) -> Duration {
        self.waits_since
            .map_or(Duration::ZERO, |since| now.since(since))
    }

    /// How it ended, once it has.
    pub(super) fn ended(&self) -> Option<Ended> {
        if self.open < self.total {
            return None;
        }
        Some(if self.unanswered >= self.total.min(UNANSWERED_MAX) {
            Ended::Failed
        } else {
            Ended::Well
        })
    }

    /// When a request is to be sent, or may be lost.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let has_place = self.next < self.total && self.next - self.open < REMEMBERED;
        let send = has_place.then_some(self.next_send);
        let oldest = self.sent[(self.open % REMEMBERED) as usize];
        let lost = (self.open < self.next).then(|| oldest.saturating_add(ANSWER_TIME_MAX));
        [send, lost].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(20);

    fn at(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    #[test]
    fn requests_go_by_the_clock_and_each_answer_counts_once() {
        let mut flow = UdpFlow::new(1, 3, at(0));
        assert_eq!(flow.poll_transmit(INTERVAL, at(0)), Some(0));
        assert_eq!(flow.poll_transmit(INTERVAL, at(19)), None);
        let trip = Duration::from_millis(5);
        assert_eq!(flow.take(0, at(5)), (Answer::Taken(trip), trip));
        assert_eq!(flow.take(0, at(6)), (Answer::Duplicate, Duration::ZERO));
        assert_eq!(flow.take(1, at(6)).0, Answer::Unknown);
        assert_eq!(flow.poll_timeout(), Some(at(20)));
        assert_eq!(flow.poll_transmit(INTERVAL, at(20)), Some(1));
        assert_eq!(flow.poll_transmit(INTERVAL, at(40)), Some(2));
        assert_eq!(
            flow.take(2, at(41)).0,
            Answer::Taken(Duration::from_millis(1))
        );
        assert_eq!(flow.ended(), None);
        assert_eq!(flow.silence(at(900)), Duration::ZERO);
        assert_eq!(flow.poll_timeout(), Some(at(1_020)));
        assert_eq!(flow.poll_lost(at(1_019)), None);
        assert_eq!(flow.poll_lost(at(1_020)), Some(at(20)));
        assert_eq!(flow.poll_lost(at(1_020)), None);
        assert_eq!(flow.ended(), Some(Ended::Well));
        assert_eq!(flow.take(1, at(1_030)).0, Answer::Late);
        assert_eq!(flow.take(1, at(1_031)).0, Answer::Duplicate);
    }

    #[test]
    fn a_flow_without_answers_at_its_end_has_failed() {
        let mut flow = UdpFlow::new(1, 200, at(0));
        let (mut sent, mut lost) = (0, 0);
        let mut now = 0;
        while flow.ended().is_none() {
            if let Some(sequence) = flow.poll_transmit(INTERVAL, at(now)) {
                sent += 1;
                if sequence < 190 {
                    assert!(matches!(flow.take(sequence, at(now)).0, Answer::Taken(_)));
                }
            }
            lost += u32::from(flow.poll_lost(at(now)).is_some());
            now += 1;
        }
        assert_eq!((sent, lost, flow.ended()), (200, 10, Some(Ended::Failed)));
        assert!(flow.silence(at(now)) > Duration::from_millis(1_100));
    }

    #[test]
    fn a_flow_in_an_outage_remembers_every_request() {
        let mut flow = UdpFlow::new(1, 1_000, at(0));
        let mut lost = 0;
        for now in 0..5_000 {
            let _ = flow.poll_transmit(INTERVAL, at(now));
            while flow.poll_lost(at(now)).is_some() {
                lost += 1;
            }
        }
        assert_eq!(lost, 200, "those of the first four seconds");
    }
}
