//! The end of an incarnation (rule 23): what its participants have of its stream becomes one set, the same at all of them.
//!
//! Once an epoch leaves an incarnation out, nothing more of it is taken. What arrived above a gap is applied, the gaps are skipped,
//! and every participant reports what it *holds*: how far its prefix reaches, and whether it has anything *loose*, that is above
//! a gap, or by part of a snapshot whose server died. Groups are not kept once they are applied, so what another lacks travels
//! as a snapshot of the tables: entries are joined by stamp, and a snapshot brings all that its server has. Anyone who holds
//! something loose scans for everybody; of the others, the first by name with the longest prefix does, for who has less. A
//! participant also reports whose holdings its own contains by now. It is *whole* when that is everybody's; when all members
//! of the epoch are, and what they committed before is applied here, the stream is *closed*: everything of it is stable.
//!
//! A new epoch begins the reports again: who died may have had something, and who joins may have got something from it. Whose
//! holdings a snapshot contains was said of the epoch in which it began: in the next it counts for nothing, and what the snapshot brings
//! is loose once its server cannot be asked. So is at once what a snapshot brought of a stream beyond its groups, when its incarnation ends.
//! What was closed stays so, and settles it for anyone who has not heard the last reports: all members of the epoch were whole, and
//! anyone who joined since was served by one of them.

use crate::branch::{Branch, taken};
use crate::mutant::{self, Mutant};
use crate::{Incarnation, MemberId};

use crate::membership::{ByMember, MemberIndex, MemberSet};

/// How many ended incarnations are remembered; the oldest that is closed goes first.
pub(super) const CLOSINGS_MAX: usize = 256;
/// Of incarnations that no epoch ended here and that only others speak of, at most so many are remembered before they are closed:
/// who makes incarnations up pushes out none that was.
pub(super) const INDIRECT_MAX: usize = CLOSINGS_MAX / 2;

/// What a member holds of an ended stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// Everything up to here, when the epoch began.
    pub(super) prefix: u64,
    /// And something that nobody can name by a prefix.
    pub(super) loose: bool,
    /// The members whose holdings this one contains.
    pub(super) of: MemberSet,
}

/// An ended incarnation, as one of its participants sees it.
#[derive(Debug)]
pub(super) struct StreamClosing {
    pub(super) member: MemberId,
    pub(super) incarnation: Incarnation,
    pub(super) own: Holding,
    /// It is known only because others speak of it.
    pub(super) indirect: bool,
    /// All instances of this host have applied what was delivered.
    pub(super) applied: bool,
    /// What each member reported in this epoch, and the head of its own stream that it named then.
    said: ByMember<Option<(Holding, u64)>>,
    /// The members for which this member scanned in this epoch.
    scanned: MemberSet,
    /// This member has what everybody holds.
    pub(super) whole: bool,
    /// So have all, and it is stable.
    pub(super) closed: bool,
    /// It was closed in an earlier epoch, here or at another member.
    pub(super) settled: bool,
    /// A member that is not done asked how far this one is.
    pub(super) asked: bool,
    /// A snapshot was joined of which nobody said whose holdings it contains. Its server holds all of it in this epoch.
    unnamed: bool,
}

/// A member of the epoch, while the members that scan, and those that they scan for, are chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Participant {
    pub(super) index: MemberIndex,
    /// It has not joined yet: it holds nothing that counts, and is served by its sponsor.
    pub(super) joining: bool,
    /// Its stream is applied here up to this sequence.
    pub(super) applied: u64,
}

impl StreamClosing {
    pub(super) fn new(
        member: MemberId,
        incarnation: Incarnation,
        own: Holding,
        members: usize,
    ) -> StreamClosing {
        StreamClosing {
            member,
            incarnation,
            own,
            indirect: false,
            applied: false,
            said: ByMember::filled(None, members),
            scanned: MemberSet::EMPTY,
            whole: false,
            closed: false,
            settled: false,
            asked: false,
            unnamed: false,
        }
    }

    /// What holds after every change.
    fn assert_sound(&self) {
        debug_assert!(self.applied || !self.whole, "what is whole is applied");
        debug_assert!(self.whole || !self.closed, "what is closed is whole");
    }

    pub(super) fn is(&self, member: MemberId, incarnation: Incarnation) -> bool {
        (self.member, self.incarnation) == (member, incarnation)
    }

    /// A new epoch, to this member at `me`: what is closed is settled, the rest is reported again.
    pub(super) fn begin_epoch(&mut self, me: MemberIndex, half_snapshot: bool) {
        self.settled |= self.closed;
        self.said.fill(None);
        self.scanned = MemberSet::EMPTY;
        if !self.settled {
            taken(Branch::ReportsBeginAgain);
            // What came from others by now has no name but this member's.
            let has_others = !self.own.of.without(me).is_empty();
            self.own.loose |= half_snapshot || self.unnamed || has_others;
            self.own.of = MemberSet::of(me);
            self.whole = false;
        }
        self.assert_sound();
    }

    /// What a member reported, in a message that named this head of its own stream.
    pub(super) fn report(&mut self, index: MemberIndex, holding: Holding, head: u64) {
        match &mut self.said[index] {
            // Of one epoch's reports nothing but what they contain grows. Of equal ones the earliest head is enough.
            Some((known, _)) if known.of.has_all(holding.of) => taken(Branch::ReportRepeated),
            Some((known, at)) => {
                taken(Branch::ReportGrew);
                (known.of, *at) = (known.of | holding.of, head);
            }
            none => *none = Some((holding, head)),
        }
    }

    /// What a member reported.
    pub(super) fn reported(&self, index: MemberIndex) -> Option<Holding> {
        self.said[index].map(|(holding, _)| holding)
    }

    /// A snapshot was joined that contains the holdings of these members.
    pub(super) fn join(&mut self, of: MemberSet) {
        taken(Branch::SnapshotNamed);
        self.own.of = self.own.of | of;
    }

    /// A snapshot was joined, and it was not said whose holdings it contains.
    pub(super) fn join_unnamed(&mut self) {
        taken(Branch::SnapshotUnnamed);
        self.unnamed = !mutant::active(Mutant::JoinedSnapshotForgotten);
    }

    /// It was closed in an earlier epoch, another member says.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    /// A scan for a member came to nothing.
    pub(super) fn forget_scan(&mut self, index: MemberIndex) {
        taken(Branch::SurvivorSnapshotLost);
        self.scanned = self.scanned.without(index);
    }

    /// Whether this member scans or scanned for that one.
    pub(super) fn is_scanned(&self, index: MemberIndex) -> bool {
        !self.closed && self.scanned.has(index)
    }

    /// What those who have joined reported, this member included; `None` while one has not.
    fn holdings(
        &self,
        me: MemberIndex,
        participants: &[Participant],
    ) -> Option<Vec<(MemberIndex, Holding)>> {
        let others = participants
            .iter()
            .filter(|participant| !participant.joining);
        let mut holdings = others
            .map(|participant| Some((participant.index, self.reported(participant.index)?)))
            .collect::<Option<Vec<_>>>()?;
        holdings.push((me, self.own));
        holdings.sort_by_key(|(index, _)| *index);
        Some(holdings)
    }

    /// The longest prefix among the holdings that are contained.
    fn longest(of: MemberSet, holdings: &[(MemberIndex, Holding)]) -> u64 {
        let contained = holdings.iter().filter(|(index, _)| of.has(*index));
        let prefixes = contained.map(|(_, holding)| holding.prefix);
        prefixes.max().unwrap_or(0)
    }

    /// Whether the holdings of these members contain everybody's.
    fn contains_all(of: MemberSet, holdings: &[(MemberIndex, Holding)]) -> bool {
        let longest = Self::longest(of, holdings);
        holdings
            .iter()
            .all(|(index, holding)| of.has(*index) || !holding.loose && holding.prefix <= longest)
    }

    /// The members for which this member must scan now. They count as scanned for.
    pub(super) fn serve(&mut self, me: MemberIndex, participants: &[Participant]) -> MemberSet {
        if !self.applied || self.settled {
            return MemberSet::EMPTY;
        }
        let Some(holdings) = self.holdings(me, participants) else {
            taken(Branch::HoldingUnreported);
            return MemberSet::EMPTY;
        };
        let longest = Self::longest(MemberSet::ALL, &holdings);
        let first = holdings
            .iter()
            .filter(|(_, holding)| holding.prefix == longest)
            // Anyone who scans for everybody anyhow brings its prefix too.
            .min_by_key(|(index, holding)| (!holding.loose, *index));
        let is_first = first.is_some_and(|(index, _)| *index == me);
        let mut served = MemberSet::EMPTY;
        for &(index, holding) in &holdings {
            let lacks = self.own.loose && !mutant::active(Mutant::LooseNotServed)
                || is_first && Self::longest(holding.of, &holdings) < self.own.prefix;
            let has = holding.of.has(me) || self.scanned.has(index);
            if index != me && lacks && !has {
                taken(match self.own.loose {
                    true => Branch::LooseServes,
                    false => Branch::LongestServes,
                });
                served = served.with(index);
            }
        }
        self.scanned = self.scanned | served;
        served
    }

    /// Judges whether this member has what everybody holds. True when that is news.
    pub(super) fn becomes_whole(&mut self, me: MemberIndex, participants: &[Participant]) -> bool {
        let before = self.whole;
        self.whole = self.applied
            && (self.settled
                || self
                    .holdings(me, participants)
                    .is_some_and(|holdings| Self::contains_all(self.own.of, &holdings)));
        self.assert_sound();
        self.whole && !before
    }

    /// Judges whether all members are whole, and all that they committed before is applied here. True when that is news.
    pub(super) fn closes(&mut self, me: MemberIndex, participants: &[Participant]) -> bool {
        if !self.whole || self.closed {
            return false;
        }
        let Some(holdings) = self.holdings(me, participants) else {
            return false;
        };
        self.closed = participants.iter().all(|participant| {
            self.said[participant.index].is_some_and(|(holding, head)| {
                let whole = self.settled || Self::contains_all(holding.of, &holdings);
                !participant.joining && whole && head <= participant.applied
            })
        });
        taken(match (self.closed, self.settled) {
            (false, _) => Branch::StreamNotWhole,
            (true, false) => Branch::StreamClosed,
            (true, true) => Branch::StreamSettled,
        });
        self.assert_sound();
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Place;

    fn plain(prefix: u64) -> Holding {
        Holding {
            prefix,
            ..Holding::default()
        }
    }

    fn loose(prefix: u64) -> Holding {
        Holding {
            loose: true,
            ..plain(prefix)
        }
    }

    fn at(number: usize) -> MemberIndex {
        MemberIndex::at(number)
    }

    fn only(number: usize) -> MemberSet {
        MemberSet::of(at(number))
    }

    fn participants(count: usize, me: usize) -> Vec<Participant> {
        (0..count)
            .filter(|&index| index != me)
            .map(|index| Participant {
                index: at(index),
                joining: false,
                applied: 0,
            })
            .collect()
    }

    /// Some participants, played through until nothing changes: each pair of a scanning member and the member that it scans for.
    fn play(holdings: &[Holding]) -> (Vec<(usize, usize)>, Vec<StreamClosing>) {
        let count = holdings.len();
        let mut closings: Vec<StreamClosing> = holdings
            .iter()
            .enumerate()
            .map(|(me, &own)| {
                let own = Holding {
                    of: only(me),
                    ..own
                };
                let mut closing = StreamClosing::new(MemberId(9), Incarnation(1), own, count);
                closing.applied = true;
                closing
            })
            .collect();
        let mut scans = Vec::new();
        for _ in 0..10 {
            for from in 0..count {
                for to in (0..count).filter(|&to| to != from) {
                    let own = closings[from].own;
                    closings[to].report(at(from), own, 0);
                }
            }
            for from in 0..count {
                for to in closings[from]
                    .serve(at(from), &participants(count, from))
                    .iter()
                {
                    scans.push((from, to.number()));
                    let of = closings[from].own.of;
                    closings[to.number()].join(of);
                }
            }
            for (me, closing) in closings.iter_mut().enumerate() {
                closing.becomes_whole(at(me), &participants(count, me));
                closing.closes(at(me), &participants(count, me));
            }
        }
        (scans, closings)
    }

    #[test]
    fn equal_survivors_need_no_snapshot() {
        let (scans, closings) = play(&[plain(5), plain(5), plain(5)]);
        assert!(scans.is_empty());
        assert!(closings.iter().all(|closing| closing.closed));
    }

    #[test]
    fn the_first_with_the_longest_prefix_serves_who_has_less() {
        let (scans, closings) = play(&[plain(3), plain(7), plain(7), plain(0)]);
        assert_eq!(scans, [(1, 0), (1, 3)]);
        assert!(closings.iter().all(|closing| closing.closed));
    }

    #[test]
    fn anyone_who_has_something_loose_serves_everybody() {
        let (scans, closings) = play(&[loose(3), loose(3), plain(4), loose(4)]);
        let expected = [0, 1, 3].map(|from| {
            (0..4)
                .filter(move |&to| to != from)
                .map(move |to| (from, to))
        });
        let mut expected: Vec<_> = expected.into_iter().flatten().collect();
        let mut scans = scans;
        scans.sort_unstable();
        expected.sort_unstable();
        assert_eq!(
            scans, expected,
            "the plain one's prefix comes with the last"
        );
        assert!(closings.iter().all(|closing| closing.closed));
    }

    #[test]
    fn nobody_is_whole_before_all_have_reported_and_nothing_closed_before_newcomers_have_it() {
        let own = Holding {
            of: only(0),
            ..plain(3)
        };
        let mut closing = StreamClosing::new(MemberId(9), Incarnation(1), own, 3);
        closing.applied = true;
        let mut others = participants(3, 0);
        others.iter_mut().for_each(|other| other.applied = 10);
        let second = Holding {
            of: only(1),
            ..plain(3)
        };
        closing.report(at(1), second, 4);
        assert!(!closing.becomes_whole(at(0), &others));
        others[1].joining = true;
        assert!(closing.becomes_whole(at(0), &others));
        assert!(
            !closing.closes(at(0), &others),
            "the newcomer has to have it too"
        );
        others[1].joining = false;
        closing.report(
            at(2),
            Holding {
                of: only(0).with(at(2)),
                ..plain(0)
            },
            11,
        );
        assert!(
            !closing.closes(at(0), &others),
            "what it committed before is not here"
        );
        others[1].applied = 11;
        assert!(closing.closes(at(0), &others));
    }

    #[test]
    fn a_new_epoch_begins_the_reports_again() {
        let (_, mut closings) = play(&[plain(3), plain(7)]);
        closings[0].closed = false;
        closings[0].begin_epoch(at(0), false);
        assert!(closings[0].own.loose, "it has what the other brought");
        assert!(!closings[0].becomes_whole(at(0), &participants(2, 0)));
        closings[1].begin_epoch(at(1), true);
        assert!(closings[1].settled && !closings[1].own.loose);
        closings[0].settle();
        let own = closings[1].own;
        closings[0].report(at(1), own, 0);
        assert!(closings[0].becomes_whole(at(0), &participants(2, 0)));
        assert!(closings[0].closes(at(0), &participants(2, 0)));
    }
}
