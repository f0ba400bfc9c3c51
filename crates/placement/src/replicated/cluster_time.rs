//! The cluster's time: seconds since 1970 that all members have in common, by which entries idle out. It begins as one member's date
//! at the start of the cluster. Later members take it over before they write, whatever their own date says, and no date changes it.
//!
//! A member is *settled* once it has written under its time. An unsettled member takes over the time of the first settled member that
//! it receives; while there is none, the time of the member that is first in order. A settled member goes forward to the latest of the
//! others' times and never back, as hybrid logical clocks do (Kulkarni et al. 2014, section 3.2): clocks drift apart by seconds a day.
//! Two members that settled apart from each other, further than [`CLUSTER_TIME_APART_MAX`], refuse each other's messages. Members that
//! agreed once are not refused later: one whose machine stood still goes forward, however far.

use core::time::Duration;

use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

use super::replicator::Replicator;
use super::wire::ClockFrame;
use super::{Deliver, Standing};
use crate::membership::PeerIndex;

/// How far apart the cluster times of two members may be that settled apart from each other. Beyond it, each refuses the other.
pub const CLUSTER_TIME_APART_MAX: Duration = Duration::from_secs(60);
/// How often a member advertises its clocks, once all others have received them.
pub const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// A settled member goes forward by so much at least: a smaller difference is that of the path.
const STEP_MIN_US: i64 = 10_000;

/// This member's part in the cluster's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClusterTime {
    /// Microseconds since 1970 of the cluster's time at zero of the clock here; `None`: this member has no part in it.
    at_zero_us: Option<i64>,
    /// When this member settled.
    settled: Option<Time>,
    /// The member whose time was taken over.
    source: Option<MemberId>,
    /// Microseconds since 1970 of the date at zero of the clock here.
    date_at_zero_us: Option<i64>,
    /// When the clocks were last advertised to all.
    advertised: Option<Time>,
}

/// What is known of another member's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberClock {
    /// Microseconds by which its cluster time is ahead of the one here.
    pub cluster_ahead_us: i64,
    /// Microseconds by which its date is ahead of the one here; `None` where one of the two is not known.
    pub date_ahead_us: Option<i64>,
    /// How exact that is: half of the shortest round trip.
    pub within: Duration,
    /// Both members are settled and accepted each other's time.
    pub agrees: bool,
    /// Its messages are refused, because its cluster time is too far from the one here.
    pub is_apart: bool,
}

impl ClusterTime {
    pub(super) fn new(at_zero_us: Option<u64>) -> ClusterTime {
        ClusterTime {
            at_zero_us: at_zero_us.map(|us| us as i64),
            ..ClusterTime::default()
        }
    }

    fn now_us(&self, now: Time) -> Option<i64> {
        Some(self.at_zero_us?.saturating_add(now.as_micros() as i64))
    }

    pub(super) fn settle(&mut self, now: Time) {
        self.settled.get_or_insert(now);
    }

    /// Whether a member with those clocks settled too far away.
    pub(super) fn is_apart(
        &self,
        now: Time,
        frame: &ClockFrame,
        known: Option<MemberClock>,
    ) -> bool {
        let far = |own: i64| {
            own.abs_diff(frame.cluster_us as i64) > CLUSTER_TIME_APART_MAX.as_micros() as u64
        };
        self.settled.is_some()
            && frame.is_settled
            && !known.is_some_and(|clock| clock.agrees)
            && self.now_us(now).is_some_and(far)
            && !mutant::active(Mutant::TimesApartAccepted)
    }

    /// What this member advertises now.
    fn frame(&self, now: Time) -> Option<ClockFrame> {
        let date = self.date_at_zero_us;
        let date_us = date.map_or(0, |zero| zero.saturating_add(now.as_micros() as i64).max(0));
        Some(ClockFrame {
            is_settled: self.settled.is_some(),
            cluster_us: self.now_us(now)?.max(0) as u64,
            date_us: date_us as u64,
        })
    }

    /// Takes note of another member's time: the time at zero of the clock here, if it is another one now.
    fn take(
        &mut self,
        now: Time,
        (own, from): (MemberId, MemberId),
        frame: &ClockFrame,
        delay: Duration,
    ) -> Option<i64> {
        let at_zero_us = self.at_zero_us?;
        let theirs = (frame.cluster_us as i64).saturating_sub(now.as_micros() as i64);
        if self.settled.is_some() {
            let goes_on = goes_forward(frame, theirs, at_zero_us);
            if goes_on {
                debug_assert!(theirs > at_zero_us, "a settled member never goes back");
                self.at_zero_us = Some(theirs);
            }
            return self.at_zero_us.filter(|_| goes_on);
        }
        if !self.takes_over(own, from, frame) {
            return None;
        }
        self.source = Some(from);
        if frame.is_settled {
            self.settle(now);
        }
        let taken = theirs.saturating_add(delay.as_micros() as i64);
        let differs = taken.abs_diff(at_zero_us) >= STEP_MIN_US as u64;
        if differs {
            self.at_zero_us = Some(taken);
        }
        self.at_zero_us.filter(|_| differs)
    }

    /// Whether this member, which is not settled, takes over the time of another: of a settled one, or of the first in order.
    fn takes_over(&self, own: MemberId, from: MemberId, frame: &ClockFrame) -> bool {
        let first = self.source.map_or(own, |source| source.min(own));
        (frame.is_settled || from <= first) && !mutant::active(Mutant::TimeNotTakenOver)
    }
}

/// Whether a settled member, whose time is `at_zero_us` at zero of its clock, goes forward to another's.
fn goes_forward(frame: &ClockFrame, theirs: i64, at_zero_us: i64) -> bool {
    frame.is_settled
        && theirs >= at_zero_us.saturating_add(STEP_MIN_US)
        && !mutant::active(Mutant::TimeNeverForward)
}

impl Replicator {
    /// Microseconds since 1970 of the cluster's time at zero of the clock here; `None` if this member has no part in it.
    #[must_use]
    pub fn cluster_time_at_zero_us(&self) -> Option<i64> {
        self.time.at_zero_us
    }

    /// Whether this member is settled, and the member whose time it took over.
    #[must_use]
    pub fn cluster_time_source(&self) -> (bool, Option<MemberId>) {
        (self.time.settled.is_some(), self.time.source)
    }

    /// This member begins to serve: its cluster time is settled. The first group that it submits settles it too.
    pub fn settle_cluster_time(&mut self) {
        self.time.settle(self.clock);
    }

    /// The date here, in microseconds since 1970 at zero of the clock: for others to compare with theirs, and for nothing else.
    pub fn set_date(&mut self, date_at_zero_us: i64) {
        self.time.date_at_zero_us = Some(date_at_zero_us);
    }

    /// Appends the clocks here to a message that was begun: to every message until all members of the epoch have received one as
    /// settled, and then to one message in [`CLOCK_INTERVAL`].
    pub(super) fn write_clock(&mut self, is_vector: bool, buffer: &mut Vec<u8>) {
        let Some(frame) = self.time.frame(self.clock) else {
            return;
        };
        let is_due = || {
            let advertised = self.time.advertised;
            advertised.is_none_or(|at| self.clock.since(at) >= CLOCK_INTERVAL)
        };
        if !(is_vector && is_due()) && self.clock_is_known() {
            return;
        }
        if is_vector {
            self.time.advertised = Some(self.clock);
        }
        frame.write_frame(buffer);
    }

    /// Whether every member of the epoch received this member's clocks since it settled: each echoed a later message.
    fn clock_is_known(&self) -> bool {
        self.time.settled.is_some_and(|settled| {
            self.peers
                .iter()
                .all(|peer| peer.standing == Standing::Out || peer.echoed > settled)
        })
    }

    /// Another member's clocks.
    pub(super) fn take_clock(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        frame: &ClockFrame,
        deliver: &mut impl Deliver,
    ) {
        let (own, from) = (self.config.member, self.peers[peer_index].member);
        let delay = self.peers[peer_index].round_trip.shortest() / 2;
        if let Some(at_zero_us) = self.time.take(now, (own, from), frame, delay) {
            deliver.cluster_time(at_zero_us);
        }
        self.note_clock(now, peer_index, frame, false);
    }

    /// What is known of a member's clocks from now on.
    pub(super) fn note_clock(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        frame: &ClockFrame,
        is_apart: bool,
    ) {
        let index = self.membership.index(peer_index);
        let delay = self.peers[peer_index].round_trip.shortest() / 2;
        let ahead = |theirs: u64, here: i64| theirs as i64 + delay.as_micros() as i64 - here;
        let here = now.as_micros() as i64;
        let date = self.time.date_at_zero_us.filter(|_| frame.date_us > 0);
        let agrees = !is_apart && frame.is_settled && self.time.settled.is_some();
        self.progress.members[index].clock = self.time.now_us(now).map(|cluster| MemberClock {
            cluster_ahead_us: ahead(frame.cluster_us, cluster),
            date_ahead_us: date.map(|zero| ahead(frame.date_us, zero.saturating_add(here))),
            within: delay,
            agrees,
            is_apart,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberId = MemberId(1);
    const B: MemberId = MemberId(2);
    const C: MemberId = MemberId(3);
    const S: u64 = 1_000_000;

    fn clocks(seconds: u64, is_settled: bool) -> ClockFrame {
        ClockFrame {
            is_settled,
            cluster_us: seconds * S,
            date_us: 0,
        }
    }

    fn take(time: &mut ClusterTime, now_s: u64, from: MemberId, frame: &ClockFrame) -> i64 {
        let now = Time::from_micros(now_s * S);
        time.take(now, (B, from), frame, Duration::ZERO);
        time.now_us(now).unwrap() / S as i64
    }

    #[test]
    fn a_newcomer_takes_over_the_time_of_a_settled_member_and_no_other_afterwards() {
        let mut time = ClusterTime::new(Some(21_600 * S));
        assert_eq!(
            take(&mut time, 5, C, &clocks(900, false)),
            21_605,
            "C is not before B"
        );
        assert_eq!(take(&mut time, 5, A, &clocks(700, false)), 700, "A is");
        assert_eq!(
            take(&mut time, 6, C, &clocks(901, true)),
            901,
            "settled goes before"
        );
        assert_eq!(take(&mut time, 7, A, &clocks(702, true)), 902, "never back");
        assert_eq!(
            take(&mut time, 8, A, &clocks(910, true)),
            910,
            "forward with the latest"
        );
        assert_eq!(take(&mut time, 8, A, &clocks(990, false)), 910);
    }

    #[test]
    fn members_that_settled_a_minute_apart_refuse_each_other() {
        let mut time = ClusterTime::new(Some(1_000 * S));
        let now = Time::from_micros(0);
        let is_apart = |time: &ClusterTime, frame| time.is_apart(now, &frame, None);
        assert!(!is_apart(&time, clocks(9_000, true)), "it takes that over");
        time.settle(now);
        assert!(!is_apart(&time, clocks(9_000, false)), "the other will");
        assert!(!is_apart(&time, clocks(1_060, true)) && !is_apart(&time, clocks(940, true)));
        assert!(is_apart(&time, clocks(1_061, true)) && is_apart(&time, clocks(939, true)));
        let mut none = ClusterTime::new(None);
        none.settle(now);
        assert!(!is_apart(&none, clocks(9_000, true)));
        assert_eq!(none.frame(now), None);
    }

    /// A machine that stood still for ten minutes: it goes forward, and no member refuses another one.
    #[test]
    fn members_that_agreed_are_not_refused_later() {
        let mut time = ClusterTime::new(Some(1_000 * S));
        let now = Time::from_micros(0);
        time.settle(now);
        let mut known = MemberClock {
            cluster_ahead_us: 0,
            date_ahead_us: None,
            within: Duration::ZERO,
            agrees: true,
            is_apart: false,
        };
        for seconds in [400, 1_600] {
            assert!(!time.is_apart(now, &clocks(seconds, true), Some(known)));
        }
        assert_eq!(take(&mut time, 0, A, &clocks(1_600, true)), 1_600);
        known.agrees = false;
        assert!(time.is_apart(now, &clocks(400, true), Some(known)));
    }
}
