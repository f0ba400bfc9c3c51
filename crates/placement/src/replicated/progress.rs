//! How far every member is, as this member knows it: what is applied, acknowledged, stable and covered.

use core::time::Duration;

use crate::{Incarnation, MemberId, Time};

use super::cluster_time::MemberClock;
use crate::membership::ByMember;

/// Where a member stands with respect to this member's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is served from the log.
    Current,
    /// It was dropped from the log and is silent: nothing is kept for it. Its snapshot begins when it is heard again.
    Absent,
    /// It was dropped from the log; it is served by scanning the tables, and the log keeps what came after the scan began,
    /// or, when that grows too much as well, another scan follows.
    Imaging,
    /// It is no member of the epoch.
    Out,
}

/// Round trips to a member, measured from echoed timestamps; the time that the other side held an echo is not in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrip {
    /// The latest.
    pub last: Duration,
    /// The shortest.
    pub minimum: Duration,
    /// Weighted average, the newest with 1/8 (`SRTT` of RFC 6298 section 2).
    pub average: Duration,
    /// Weighted mean deviation (`RTTVAR` of RFC 6298 section 2).
    pub deviation: Duration,
    /// How many were measured; the rest is meaningless while this is zero.
    pub samples: u64,
    /// The path is congested: the average is well beyond the shortest of late (Constellation section 4.2).
    pub congested: bool,
    /// The shortest of the period before and of this one, and when this one began.
    pub(crate) shortest: [Duration; 2],
    pub(crate) shortest_since: Time,
    /// When the first came of those in a row that are longer than the longest timeout.
    pub(crate) overlong_since: Option<Time>,
}

/// How far this member is behind an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Groups that the origin says it has and that are not applied here.
    pub groups: u64,
    /// How long ago the origin first named a group that is not applied here. Zero when there is none.
    pub age: Duration,
}

/// One member as seen from here. For this member itself: its own log head, applied and acknowledged.
#[derive(Clone, Debug)]
pub struct MemberProgress {
    /// Its name.
    pub member: MemberId,
    /// Its incarnation, once heard.
    pub incarnation: Option<Incarnation>,
    /// Its stream is applied here up to this sequence, without a gap.
    pub applied: u64,
    /// Its stream was delivered here up to this sequence, without a gap.
    pub received: u64,
    /// The last sequence that it said it had committed.
    pub head: u64,
    /// It has applied this member's stream up to this sequence, without a gap.
    pub acknowledged: u64,
    /// See [`Progress::stable`].
    pub stable: u64,
    /// See [`Progress::covered_until`].
    pub covered_until: Time,
    /// When the oldest head that is not yet applied here was heard.
    pub behind_since: Option<Time>,
    /// When it was last heard.
    pub heard: Option<Time>,
    /// When this member sent the latest message that it says it received, by the clock here.
    pub receives_until: Option<Time>,
    /// Which other member received something of it last, as that member says, and when, by the clock here.
    pub heard_elsewhere: Option<(MemberId, Time)>,
    /// It said that it commits nothing more and leaves.
    pub leaving: bool,
    /// What is known of its clocks, once it said so.
    pub clock: Option<MemberClock>,
    /// Round trips to it.
    pub round_trip: RoundTrip,
    /// Whether the log or a snapshot serves it.
    pub standing: Standing,
    /// When it fell off the log, if it has not come to be served from the log again since. A member whose links, or whose
    /// core, take less than all write together never does: snapshot follows snapshot.
    pub lags_since: Option<Time>,
    /// It has not joined a snapshot yet, as it says itself.
    pub joining: bool,
}

/// How far every member is, this one included, in the order of their names.
#[derive(Clone, Debug)]
pub struct Progress {
    pub(super) members: ByMember<MemberProgress>,
}

impl Progress {
    /// All members, this one included, in the order of their names.
    #[must_use]
    pub fn members(&self) -> &[MemberProgress] {
        self.members.as_slice()
    }

    /// One member. `None` when it is not in the list.
    #[must_use]
    pub fn member(&self, member: MemberId) -> Option<&MemberProgress> {
        // Names are mostly places.
        let members = self.members.as_slice();
        let place = members.get(usize::from(member.0));
        if place.is_some_and(|progress| progress.member == member) {
            return place;
        }
        let index = members
            .binary_search_by_key(&member, |progress| progress.member)
            .ok()?;
        members.get(index)
    }

    /// `origin`'s stream is applied here up to this sequence, without a gap. Zero for an unknown member.
    #[must_use]
    pub fn applied(&self, origin: MemberId) -> u64 {
        self.member(origin).map_or(0, |progress| progress.applied)
    }

    /// `member` has applied this member's stream up to this sequence. Zero for an unknown member.
    #[must_use]
    pub fn acknowledged(&self, member: MemberId) -> u64 {
        self.member(member)
            .map_or(0, |progress| progress.acknowledged)
    }

    /// `origin`'s groups up to this sequence are *stable* here: every member applied them, and every group that any
    /// member committed before it had applied them is applied here too. So nothing concurrent with them can still
    /// arrive, and a tombstone that they made may go.
    #[must_use]
    pub fn stable(&self, origin: MemberId) -> u64 {
        self.member(origin).map_or(0, |progress| progress.stable)
    }

    /// The latest local time T such that all that `member` had committed at T (in real time, no clocks compared) is
    /// applied here. `Time::ZERO` until known; `Time::MAX` for this member itself.
    #[must_use]
    pub fn covered_until(&self, member: MemberId) -> Time {
        self.member(member)
            .map_or(Time::ZERO, |progress| progress.covered_until)
    }

    /// How far this member is behind `origin` at `now`.
    #[must_use]
    pub fn lag(&self, origin: MemberId, now: Time) -> Lag {
        self.member(origin).map_or(Lag::default(), |progress| Lag {
            groups: progress.head.saturating_sub(progress.applied),
            age: progress
                .behind_since
                .map_or(Duration::ZERO, |since| now.since(since)),
        })
    }
}
