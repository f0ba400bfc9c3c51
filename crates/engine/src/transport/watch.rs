//! Which members this host and its state channel have a fault with, and which fault: silence, one-way loss, lost long datagrams, or
//! instances that stand still. A pure decision over what the placement, the sealed channel and the sockets know; it reads no clock.

use std::time::Duration;

use asterism_placement::replicated::{Lacking, Standing};
use asterism_placement::{MemberId, Time};
use asterism_secure_channel::{OVERHEAD_BYTES, Refusal};

use super::udp::UdpTransport;
use crate::channel::StateChannel;

/// How long a member may be silent, receive nothing of this host or acknowledge nothing before that is reported. Where `keep_alive` is
/// longer than a tenth of it, ten times `keep_alive`.
pub const PEER_SILENT_AFTER: Duration = Duration::from_secs(5);
/// Keep-alives that may be missing, where they are rarer.
const KEEP_ALIVES_MISSING: u32 = 10;
/// The thread that looks stood still, or the machine slept: what was not heard meanwhile says nothing of others.
const STOOD_STILL: Duration = Duration::from_secs(2);
/// UDP payload that every IPv4 link carries whole or in fragments (RFC 791: 576 bytes with headers). The loss of a longer datagram
/// alone may come of an MTU; that of shorter ones does not.
const SHORT_DATAGRAM_BYTES: usize = 508;

/// How far the dates of two machines may differ before that is reported.
pub const DATES_APART: Duration = Duration::from_secs(4);

/// What is wrong with a member, as this host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// Nothing of it is received, and no other member reports that it receives something.
    Silent {
        /// It was received before.
        was_heard: bool,
        /// Datagrams to it come back.
        is_unreachable: bool,
    },
    /// Nothing of it is received here, while another member receives it: the path from it to this host is cut.
    SilentHere {
        /// Which.
        heard_by: MemberId,
    },
    /// Nothing is received of any member, of two or more.
    Isolated,
    /// It announced that it leaves, and is silent since.
    Left,
    /// Its datagrams arrive, and none is accepted.
    Refused,
    /// Its datagrams arrive and none is refused, but it completes no handshake: it does not receive this host.
    HandshakeLost,
    /// It is received, and reports that it receives nothing of this host: the path from here to it is cut.
    Deaf,
    /// It receives short datagrams of this host and not a long one: a link on the way has a smaller MTU and does not say so.
    LongLost {
        /// UDP payload bytes of the long datagram.
        datagram_bytes: usize,
    },
    /// It receives this host, but not a short message that was sent again and again.
    GroupsLost,
    /// It receives the groups of this host and applies none: its packet loops stand still.
    NotApplied,
    /// Its cluster time is further from the one here than members accept, and both were written under: they refuse each other.
    TimeApart {
        /// The cluster's time here, in seconds since 1970.
        here_s: u64,
        /// Seconds by which its time is ahead.
        ahead_s: i64,
    },
    /// Its machine's date differs from the one here. Nothing in the cluster goes by dates, but what people read does.
    DatesApart {
        /// Seconds by which its date is ahead.
        ahead_s: i64,
    },
}

impl PeerFault {
    /// All labels.
    pub const LABELS: [&'static str; 12] = [
        "silent",
        "silent-here",
        "isolated",
        "left",
        "refused",
        "handshake-lost",
        "not-receiving",
        "long-datagrams-lost",
        "groups-lost",
        "not-applied",
        "time-apart",
        "dates-apart",
    ];

    /// Its name in metrics, `status` and the log.
    #[must_use]
    pub fn label(&self) -> &'static str {
        let place = match self {
            Self::Silent { .. } => 0,
            Self::SilentHere { .. } => 1,
            Self::Isolated => 2,
            Self::Left => 3,
            Self::Refused => 4,
            Self::HandshakeLost => 5,
            Self::Deaf => 6,
            Self::LongLost { .. } => 7,
            Self::GroupsLost => 8,
            Self::NotApplied => 9,
            Self::TimeApart { .. } => 10,
            Self::DatesApart { .. } => 11,
        };
        Self::LABELS[place]
    }

    /// Whether nothing of the member is received or accepted.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        !matches!(
            self,
            Self::Deaf
                | Self::LongLost { .. }
                | Self::GroupsLost
                | Self::NotApplied
                | Self::DatesApart { .. }
        )
    }
}

/// What is known of a member at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Observation {
    heard: Option<Time>,
    receives_until: Option<Time>,
    heard_elsewhere: Option<(MemberId, Time)>,
    leaving: bool,
    /// Where its cluster time is refused: the one here in seconds since 1970, and the microseconds by which its time is ahead.
    apart: Option<(u64, i64)>,
    /// Microseconds by which its date is ahead.
    date_ahead_us: Option<i64>,
    is_unreachable: bool,
    acknowledged: u64,
    lacking: Option<Lacking>,
    /// Datagrams from its address so far.
    arrived: u64,
    /// Datagrams refused so far, whosever they are.
    refused: u64,
}

/// A member, watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    member: MemberId,
    /// Since when it takes part, or is watched.
    since: Time,
    /// Since when it is received without a break.
    hears_since: Option<Time>,
    /// What it acknowledged last, and since when.
    acknowledged: (u64, Time),
    /// Datagrams from its address, and when the last came.
    arrived: (u64, Option<Time>),
    /// Datagrams refused, and when the last was.
    refused: (u64, Option<Time>),
    fault: Option<(PeerFault, Time)>,
}

/// All members, watched.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    members: Vec<Watched>,
    looked: Option<Time>,
}

/// A fault that began or is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) member: MemberId,
    pub(super) fault: PeerFault,
    pub(super) is_over: bool,
}

impl Watch {
    /// The fault that there is with a member, and since when.
    pub(super) fn fault(&self, member: MemberId) -> Option<(PeerFault, Time)> {
        let watched = self.members.iter().find(|known| known.member == member)?;
        watched.fault
    }

    /// Looks at all members; what changed.
    pub(super) fn query(
        &mut self,
        now: Time,
        channel: &StateChannel,
        transport: &UdpTransport,
    ) -> Vec<Change> {
        let replicator = channel.replicator();
        let own = replicator.config().member;
        let patience = PEER_SILENT_AFTER.max(replicator.config().keep_alive * KEEP_ALIVES_MISSING);
        // What comes of a member before its handshake is complete is refused by right.
        let sealed = channel.secure().refusals();
        let early = sealed.get(Refusal::NotAdmitted);
        let tally = channel.tally();
        let refused = (tally.refused_sealed + tally.refused_opened).saturating_sub(early);
        let here_us = replicator.cluster_time_at_zero_us().unwrap_or(0);
        let here_us = here_us.saturating_add(now.as_micros() as i64).max(0);
        let here_s = here_us as u64 / 1_000_000;
        let members = replicator.progress().members().iter();
        let observed = members
            .filter(|member| member.member != own && member.standing != Standing::Out)
            .map(|member| {
                let mut peers = transport.peers().iter();
                let traffic = peers.find(|peer| peer.member == member.member);
                let observation = Observation {
                    heard: member.heard,
                    receives_until: member.receives_until,
                    heard_elsewhere: member.heard_elsewhere,
                    leaving: member.leaving,
                    apart: member
                        .clock
                        .filter(|clock| clock.is_apart)
                        .map(|clock| (here_s, clock.cluster_ahead_us)),
                    date_ahead_us: member.clock.and_then(|clock| clock.date_ahead_us),
                    is_unreachable: traffic.is_some_and(|peer| peer.is_unreachable),
                    acknowledged: member.acknowledged,
                    lacking: replicator.lacking(member.member),
                    arrived: traffic.map_or(0, |peer| peer.datagrams_received),
                    refused,
                };
                (member.member, observation)
            });
        self.judge(now, patience, &observed.collect::<Vec<_>>())
    }

    fn judge(
        &mut self,
        now: Time,
        patience: Duration,
        observed: &[(MemberId, Observation)],
    ) -> Vec<Change> {
        let before = self.looked.replace(now);
        let stood_still = before.is_some_and(|before| now.since(before) >= STOOD_STILL);
        let is_observed = |known: &Watched| observed.iter().any(|(of, _)| *of == known.member);
        self.members.retain(is_observed);
        let mut found = Vec::with_capacity(observed.len());
        for (member, observation) in observed {
            let place = self.members.iter().position(|one| one.member == *member);
            let place = place.unwrap_or_else(|| {
                self.members.push(Watched::new(*member, now, observation));
                self.members.len() - 1
            });
            let watched = &mut self.members[place];
            if stood_still {
                watched.since = now;
            }
            // What came since the last look came after it.
            watched.observe((before.unwrap_or(now), now), patience, observation);
            found.push((place, watched.judge(now, patience, observation)));
        }
        let is_silent = |fault: &Option<PeerFault>| {
            matches!(fault, Some(PeerFault::Silent { .. } | PeerFault::Isolated))
        };
        if found.len() > 1 && found.iter().all(|(_, fault)| is_silent(fault)) {
            for (_, fault) in &mut found {
                *fault = Some(PeerFault::Isolated);
            }
        }
        let mut changes = Vec::new();
        for (place, fault) in found {
            let watched = &mut self.members[place];
            let (member, known) = (watched.member, watched.fault);
            if known.map(|(known, _)| known.label()) == fault.map(|fault| fault.label()) {
                // Its details may be others.
                watched.fault = known.zip(fault).map(|((_, since), fault)| (fault, since));
                continue;
            }
            watched.fault = fault.map(|fault| (fault, now));
            let over = known
                .map(|(fault, _)| (fault, true))
                .filter(|_| fault.is_none());
            let begun = fault.map(|fault| (fault, false));
            changes.extend(over.or(begun).map(|(fault, is_over)| Change {
                member,
                fault,
                is_over,
            }));
        }
        changes
    }
}

impl Watched {
    fn new(member: MemberId, now: Time, observation: &Observation) -> Watched {
        Watched {
            member,
            since: now,
            hears_since: None,
            acknowledged: (observation.acknowledged, now),
            arrived: (observation.arrived, None),
            refused: (observation.refused, None),
            fault: None,
        }
    }

    fn observe(
        &mut self,
        (before, now): (Time, Time),
        patience: Duration,
        observation: &Observation,
    ) {
        let is_heard = observation
            .heard
            .is_some_and(|heard| now.since(heard) < patience);
        self.hears_since = match is_heard {
            true => Some(self.hears_since.unwrap_or(now).max(self.since)),
            false => None,
        };
        if observation.acknowledged != self.acknowledged.0 || observation.lacking.is_none() {
            self.acknowledged = (observation.acknowledged, now);
        }
        for (known, count) in [
            (&mut self.arrived, observation.arrived),
            (&mut self.refused, observation.refused),
        ] {
            if known.0 != count {
                // Not later than what was heard of it.
                *known = (count, Some(before));
            }
        }
    }

    fn judge(&self, now: Time, patience: Duration, seen: &Observation) -> Option<PeerFault> {
        let is_arriving = || self.arrived.1.is_some_and(|at| now.since(at) < patience);
        if let Some((here_s, ahead_us)) = seen.apart.filter(|_| is_arriving()) {
            let ahead_s = ahead_us / 1_000_000;
            return Some(PeerFault::TimeApart { here_s, ahead_s });
        }
        let fault = self.judge_traffic(now, patience, seen);
        fault.or_else(|| self.judge_dates(seen))
    }

    /// Whether dates differ: from [`DATES_APART`] on, and then until it is well less.
    fn judge_dates(&self, seen: &Observation) -> Option<PeerFault> {
        let ahead_us = seen.date_ahead_us?;
        let is_known = matches!(self.fault, Some((PeerFault::DatesApart { .. }, _)));
        let bound = if is_known {
            DATES_APART / 2
        } else {
            DATES_APART
        };
        let ahead_s = ahead_us / 1_000_000;
        let differs = u128::from(ahead_us.unsigned_abs()) >= bound.as_micros();
        differs.then_some(PeerFault::DatesApart { ahead_s })
    }

    fn judge_traffic(
        &self,
        now: Time,
        patience: Duration,
        seen: &Observation,
    ) -> Option<PeerFault> {
        let is_recent = |at: Option<Time>| at.is_some_and(|at| now.since(at) < patience);
        let is_long = |since: Time| now.since(since) >= patience;
        let Some(hears_since) = self.hears_since else {
            let silent_since = seen.heard.unwrap_or(self.since).max(self.since);
            return is_long(silent_since).then(|| self.judge_silence(is_recent, seen));
        };
        let received = seen.receives_until.unwrap_or(Time::ZERO);
        if is_long(received.max(hears_since)) {
            return Some(PeerFault::Deaf);
        }
        // What was not acknowledged while it was not received, or did not receive, has another cause.
        let lacking = seen.lacking?;
        if !is_long(self.acknowledged.1.max(hears_since)) {
            return None;
        }
        let datagram_bytes = lacking.message_bytes + OVERHEAD_BYTES;
        Some(if lacking.received > lacking.applied {
            PeerFault::NotApplied
        } else if lacking.message_bytes == 0 {
            // All that was sent is received, or nothing was sent yet: this host itself sends nothing.
            return None;
        } else if datagram_bytes > SHORT_DATAGRAM_BYTES {
            PeerFault::LongLost { datagram_bytes }
        } else {
            PeerFault::GroupsLost
        })
    }

    fn judge_silence(
        &self,
        is_recent: impl Fn(Option<Time>) -> bool,
        seen: &Observation,
    ) -> PeerFault {
        let elsewhere = seen.heard_elsewhere.filter(|(_, at)| is_recent(Some(*at)));
        if is_recent(self.arrived.1) {
            if is_recent(self.refused.1) {
                PeerFault::Refused
            } else {
                PeerFault::HandshakeLost
            }
        } else if let Some((heard_by, _)) = elsewhere {
            PeerFault::SilentHere { heard_by }
        } else if seen.leaving {
            PeerFault::Left
        } else {
            PeerFault::Silent {
                was_heard: seen.heard.is_some(),
                is_unreachable: seen.is_unreachable,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: MemberId = MemberId(2);
    const C: MemberId = MemberId(3);
    const LOOK: Duration = Duration::from_millis(100);

    /// Looks for so many seconds at members that are as `at` says at each time; the changes with their seconds.
    fn seen(
        seconds: u64,
        at: impl Fn(Time) -> Vec<(MemberId, Observation)>,
    ) -> Vec<(u64, MemberId, &'static str, bool)> {
        let (mut watch, mut now) = (Watch::default(), Time::ZERO);
        let mut changes = Vec::new();
        while now < Time::ZERO + Duration::from_secs(seconds) {
            now = now + LOOK;
            let found = watch.judge(now, PEER_SILENT_AFTER, &at(now));
            let second = now.as_micros() / 1_000_000;
            changes.extend(
                found
                    .into_iter()
                    .map(|one| (second, one.member, one.fault.label(), one.is_over)),
            );
        }
        changes
    }

    fn healthy(now: Time) -> Observation {
        Observation {
            heard: Some(now),
            receives_until: Some(now),
            arrived: now.as_micros(),
            ..Observation::default()
        }
    }

    /// Until then all is well; then it is not heard, for so long.
    fn before(end_s: u64, now: Time) -> Time {
        now.min(Time::ZERO + Duration::from_secs(end_s))
    }

    #[test]
    fn a_member_that_falls_silent_is_reported_once_and_again_when_it_returns() {
        let at = |now: Time| {
            let back = now >= Time::ZERO + Duration::from_secs(20);
            let at = if back { now } else { before(3, now) };
            vec![(B, healthy(at))]
        };
        assert_eq!(
            seen(30, at),
            [(8, B, "silent", false), (20, B, "silent", true)]
        );
    }

    #[test]
    fn what_others_report_tells_a_dead_member_from_a_cut_path() {
        let at = |now: Time| {
            let b = Observation {
                heard_elsewhere: Some((C, before(12, now))),
                ..healthy(before(3, now))
            };
            vec![(B, b), (C, healthy(now))]
        };
        assert_eq!(
            seen(30, at),
            [(8, B, "silent-here", false), (17, B, "silent", false)]
        );
        let alone = |now: Time| vec![(B, healthy(before(3, now))), (C, healthy(before(4, now)))];
        assert_eq!(
            seen(30, alone),
            [
                (8, B, "silent", false),
                (9, B, "isolated", false),
                (9, C, "isolated", false)
            ]
        );
    }

    #[test]
    fn a_member_that_receives_nothing_of_this_host_is_deaf() {
        let at = |now: Time| {
            let receives_until = Some(before(3, now));
            vec![(
                B,
                Observation {
                    receives_until,
                    ..healthy(now)
                },
            )]
        };
        assert_eq!(seen(30, at), [(8, B, "not-receiving", false)]);
        let never = |now: Time| {
            let receives_until = None;
            vec![(
                B,
                Observation {
                    receives_until,
                    ..healthy(now)
                },
            )]
        };
        assert_eq!(seen(30, never), [(5, B, "not-receiving", false)]);
    }

    /// A date that wavers about the bound is reported once; a silent member's date is not.
    #[test]
    fn dates_that_differ_are_reported_until_they_are_corrected() {
        let at = |now: Time| {
            let second = now.as_micros() / 1_000_000;
            let date_ahead_us = Some(match second {
                0..=2 => 3_000_000,
                3..=9 if now.as_micros().is_multiple_of(200_000) => -4_000_001,
                3..=9 => -3_900_000,
                10..=14 => 21_600_000_000,
                _ => -1_000_000,
            });
            let observation = Observation {
                date_ahead_us,
                ..healthy(before(25, now))
            };
            vec![(B, observation)]
        };
        let expected = [
            (3, B, "dates-apart", false),
            (15, B, "dates-apart", true),
            (30, B, "silent", false),
        ];
        assert_eq!(seen(40, at), expected);
    }

    /// What came last is counted at the next look, a moment after the member was last received: it is no datagram of a handshake.
    #[test]
    fn the_last_datagram_of_a_member_is_no_lost_handshake() {
        let mut watch = Watch::default();
        let looks = (0..15).map(|second| second * 1_000_000 + 50_000);
        for us in looks.chain([15_000_000]) {
            let now = Time::from_micros(us);
            let last = Time::from_micros(us.min(9_950_000));
            let observation = Observation {
                heard: Some(last),
                ..healthy(last)
            };
            let changes = watch.judge(now, PEER_SILENT_AFTER, &[(B, observation)]);
            let labels: Vec<_> = changes.iter().map(|one| one.fault.label()).collect();
            let expected: &[&str] = if us == 15_000_000 { &["silent"] } else { &[] };
            assert_eq!(labels, expected, "{now:?}");
        }
    }

    #[test]
    fn members_of_two_times_say_so_while_both_run() {
        let at = |now: Time| {
            let observation = Observation {
                apart: Some((1_700_000_000, 21_600_000_000)),
                heard: None,
                ..healthy(before(10, now))
            };
            vec![(B, observation)]
        };
        assert_eq!(
            seen(20, at),
            [(0, B, "time-apart", false), (14, B, "silent", false)]
        );
    }

    #[test]
    fn an_mtu_is_named_only_where_long_datagrams_alone_are_lost() {
        let with = |message_bytes: usize, received: u64, receives: bool| {
            move |now: Time| {
                let lacking = Some(Lacking {
                    applied: 7,
                    received,
                    message_bytes,
                    tries: 9,
                });
                let receives_until = Some(if receives { now } else { before(1, now) });
                vec![(
                    B,
                    Observation {
                        lacking,
                        acknowledged: 7,
                        receives_until,
                        ..healthy(now)
                    },
                )]
            }
        };
        assert_eq!(
            seen(30, with(1_300, 7, true)),
            [(5, B, "long-datagrams-lost", false)]
        );
        assert_eq!(seen(30, with(200, 7, true)), [(5, B, "groups-lost", false)]);
        assert_eq!(seen(30, with(0, 90, true)), [(5, B, "not-applied", false)]);
        assert_eq!(
            seen(30, with(1_300, 90, true)),
            [(5, B, "not-applied", false)],
            "a full window at the other end loses groups of any length"
        );
        assert_eq!(
            seen(30, with(1_300, 7, false)).last(),
            Some(&(6, B, "not-receiving", false)),
            "short ones do not arrive either"
        );
    }

    #[test]
    fn arrivals_that_come_to_nothing_say_why() {
        let silent = |refused: u64| {
            move |now: Time| {
                let observation = Observation {
                    heard: None,
                    receives_until: None,
                    refused: now.as_micros() * refused,
                    ..healthy(now)
                };
                vec![(B, observation)]
            }
        };
        assert_eq!(seen(9, silent(0)), [(5, B, "handshake-lost", false)]);
        assert_eq!(seen(9, silent(1)), [(5, B, "refused", false)]);
    }

    #[test]
    fn a_host_that_stood_still_reports_nobody() {
        let mut watch = Watch::default();
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        for now in [at(1), at(2), at(3_600)] {
            let observed = [(B, healthy(before(2, now)))];
            assert_eq!(watch.judge(now, PEER_SILENT_AFTER, &observed), []);
        }
        let leaves = Observation {
            leaving: true,
            ..healthy(at(2))
        };
        for s in 3_601..3_605 {
            assert_eq!(watch.judge(at(s), PEER_SILENT_AFTER, &[(B, leaves)]), []);
        }
        let found = watch.judge(at(3_605), PEER_SILENT_AFTER, &[(B, leaves)]);
        assert_eq!(found[0].fault, PeerFault::Left);
        assert_eq!(
            watch.judge(at(3_606), PEER_SILENT_AFTER, &[]),
            [],
            "it takes no part any more"
        );
    }
}
