//! Why an instance stops by itself: what others wrote does not decode, so it cannot have what they have (`docs/src/architecture/replication.md`).
//!
//! It is the fail-stop of what comes from others, as the panic after `act` is that of a packet. A word rather than a panic, so
//! that the host can name the member that wrote the group.

use core::fmt;

use asterism_function::NetworkFunction;
use asterism_placement::MemberId;
use asterism_state::{Context, OriginName};

use super::Instance;
use crate::mutant::{self, Mutant};

/// What an instance could not apply. From then on it does nothing: it reads no packet, writes nothing, and says of nothing more
/// that it is applied. Anyone who runs it must end the host, whose tables may hold the beginning of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A group of that incarnation of a member does not decode.
    GroupBad {
        /// Whose.
        origin: OriginName,
        /// Its number.
        sequence: u64,
    },
    /// A part of a snapshot that a member sent does not decode.
    SnapshotBad {
        /// Who sent it.
        from: MemberId,
    },
    /// Entries of more incarnations are in use than this host distinguishes.
    IncarnationsUsedUp {
        /// The one for which there is no place.
        origin: OriginName,
    },
}

impl StopReason {
    /// Why a group was not applied.
    #[cold]
    pub(super) fn of_group(context: &Context, origin: OriginName, sequence: u64) -> Self {
        match context.origin(origin) {
            Some(_) => Self::GroupBad { origin, sequence },
            None => Self::IncarnationsUsedUp { origin },
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn member(&self) -> MemberId {
        match self {
            Self::GroupBad { origin, .. } | Self::IncarnationsUsedUp { origin } => {
                MemberId(origin.member)
            }
            Self::SnapshotBad { from } => *from,
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupBad { sequence, .. } => {
                write!(formatter, "group {sequence} does not decode here")
            }
            Self::SnapshotBad { .. } => {
                formatter.write_str("a part of the state that it sent does not decode here")
            }
            Self::IncarnationsUsedUp { .. } => formatter.write_str(
                "entries of more of its incarnations are in use than a host distinguishes",
            ),
        }
    }
}

impl<F: NetworkFunction> Instance<F> {
    /// Why it stopped by itself, if it did: its turns do nothing any more.
    #[inline]
    pub fn stopped(&self) -> Option<StopReason> {
        self.stopped
    }

    /// Stops, and says so.
    #[cold]
    #[inline(never)]
    pub(super) fn cannot_apply(&mut self, why: StopReason) -> bool {
        self.tally.groups_bad += 1;
        if mutant::active(Mutant::BadGroupAcknowledged) {
            return false;
        }
        self.stopped = Some(why);
        true
    }

    /// Commits bytes as a group of this instance, which does not apply them itself: for tests of what others do with what a host
    /// of another build says. Its number, or `None` if the log has no room for it.
    #[doc(hidden)]
    pub fn commit_foreign(&mut self, group: &[u8]) -> Option<u64> {
        if !self.has_log_room() {
            return None;
        }
        let sequence = self.context.commit_foreign(group);
        self.push_groups();
        self.publish();
        Some(sequence)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asterism_function::{Ask, Builder, Late, Map, Single, Verdict, state};
    use asterism_placement::Time;
    use asterism_state::{ObjectSettings, Part, State};
    use proptest::prelude::*;

    use super::*;
    use crate::exchange::{Down, REMOTE, Up, write_incarnations};
    use crate::instance::{Exchange, InstanceParts};
    use asterism_io::frame::FramePool;
    use asterism_io::ring::ByteRing;

    struct Nothing;

    #[state]
    struct Entries {
        first: Map<u32, ()>,
        second: Map<u64, ()>,
    }

    impl NetworkFunction for Nothing {
        type State = Entries;
        fn state(&self, builder: &Builder) -> Entries {
            Entries {
                first: builder.table("first", 64, &[5]),
                second: builder.table("second", 64, &[5]),
            }
        }
        fn packet(&self, _: Ask<'_, Entries>) -> Result<Verdict, Late> {
            Ok(Verdict::Consumed)
        }
    }

    const WRITER: OriginName = OriginName {
        member: 9,
        incarnation: 77,
    };

    fn start(parts: InstanceParts) -> Instance<Nothing> {
        let pool = FramePool::new(16).expect("memory for frames");
        parts.start(
            Arc::new(Nothing),
            |_| ObjectSettings::REPLICATED,
            pool,
            Vec::new(),
        )
    }

    /// A group of six operations, and a snapshot of what they wrote.
    fn written() -> (Vec<u8>, Vec<u8>) {
        let instance = &mut start(InstanceParts::alone(1));
        instance.begin(Time::from_micros(1));
        for key in 0..3 {
            let first = instance
                .state
                .first
                .vacancy()
                .expect("local")
                .expect("room");
            let second = instance
                .state
                .second
                .vacancy()
                .expect("local")
                .expect("room");
            let mut act = instance.state.act();
            act.first.insert(first, Single(key), ());
            act.second.insert(second, Single(key.into()), ());
        }
        let mut group = Vec::new();
        instance.context.take_groups(|_, bytes| group.extend(bytes));
        let mut snapshot = Vec::new();
        let end = instance
            .state
            .snapshot_part((0, 0), &mut Part::new(&mut snapshot, 1_100, 1_000));
        assert_eq!(end, None);
        (group, snapshot)
    }

    /// What an instance says that is handed these records: the end of a stream or of a snapshot, if it says that it has it.
    fn hand(records: &[Down<'_>]) -> (Option<StopReason>, Vec<String>, Instance<Nothing>) {
        let (up, mut reader) = ByteRing::new(1 << 20).expect("memory for a ring");
        let room = (records.len() * 64).next_power_of_two().max(1 << 20);
        let (mut writer, down) = ByteRing::new(room).expect("memory for a ring");
        let mut parts = InstanceParts::alone(1);
        parts.exchange = Some(Exchange::of_rings(up, down));
        let mut instance = start(parts);
        for record in records {
            record.push(&mut writer).expect("room");
        }
        writer.publish();
        for turn in 1..5 + records.len() as u64 / 100 {
            instance.turn(Time::from_micros(turn * 1_000_000));
            instance.turn_without_reading(Time::from_micros(turn * 1_000_000 + 1));
            let traced = &mut Vec::new();
            instance.turn_traced(Time::from_micros(turn * 1_000_000 + 2), 1, || 0, traced);
        }
        let mut said = Vec::new();
        while let Some(record) = reader.next() {
            match Up::read(record) {
                Some(up @ (Up::Applied { .. } | Up::SnapshotApplied { .. })) => {
                    said.push(format!("{up:?}"));
                }
                Some(up @ Up::Group { .. }) => said.push(format!("{up:?}")),
                _ => {}
            }
        }
        (instance.stopped(), said, instance)
    }

    fn hand_group(bytes: &[u8]) -> (Option<StopReason>, Vec<String>, Instance<Nothing>) {
        hand(&[
            Down::Group {
                lane: REMOTE,
                origin: WRITER,
                sequence: 1,
                bytes,
            },
            Down::Progress {
                origin: WRITER,
                received: 1,
                stable: 0,
                covered_us: 0,
                confirmed: 0,
            },
        ])
    }

    fn hand_snapshot(bytes: &[u8]) -> (Option<StopReason>, Vec<String>, Instance<Nothing>) {
        let (from, scan) = (MemberId(9), 1);
        hand(&[
            Down::SnapshotPart { from, bytes },
            Down::SnapshotEnd { from, scan },
        ])
    }

    /// What decodes is said to be there, and what does not never is: nothing between.
    fn judge(
        (why, said, mut instance): (Option<StopReason>, Vec<String>, Instance<Nothing>),
    ) -> bool {
        assert_eq!(said.len(), usize::from(why.is_none()), "{why:?} {said:?}");
        assert_eq!(instance.tally().groups_bad, u64::from(why.is_some()));
        let now = Time::from_micros(9_000_000);
        let taken = instance.inject(now, asterism_function::PortNumber(0), &[0; 60]);
        assert_eq!(taken, why.is_none(), "a stopped instance takes no packets");
        assert!(why.is_none() || !instance.is_behind());
        why.is_some()
    }

    #[test]
    fn a_group_that_was_cut_is_never_said_to_be_applied() {
        let (group, snapshot) = written();
        // Cut between two operations it is a shorter group, which nobody can tell from another's whole one.
        let whole = [
            (group, hand_group as fn(&[u8]) -> _),
            (snapshot, hand_snapshot),
        ];
        for (bytes, hand) in whole {
            let bad = (1..=bytes.len()).filter(|&cut| judge(hand(&bytes[..cut])));
            let bad = bad.count();
            assert_eq!(bytes.len() - bad, 6, "{bad} of {}", bytes.len());
        }
        let (why, ..) = hand_group(&[0xF8]);
        let group = StopReason::GroupBad {
            origin: WRITER,
            sequence: 1,
        };
        assert_eq!(why, Some(group));
        assert_eq!(group.member(), MemberId(9));
        let (why, ..) = hand_snapshot(&[0xF8]);
        let from = MemberId(9);
        assert_eq!(why, Some(StopReason::SnapshotBad { from }));
    }

    #[test]
    fn an_incarnation_for_which_there_is_no_place_stops_the_host() {
        let (group, _) = written();
        let most = asterism_state::ORIGINS_MAX as u64;
        let incarnations = (0..most + 100).map(|incarnation| Down::Group {
            lane: REMOTE,
            origin: OriginName {
                member: 9,
                incarnation,
            },
            sequence: 1,
            bytes: &group,
        });
        let (why, ..) = hand(&incarnations.collect::<Vec<_>>());
        assert!(
            matches!(why, Some(StopReason::IncarnationsUsedUp { origin }) if origin.incarnation == most - 1),
            "{why:?}"
        );
    }

    /// More of a member's incarnations than there are places for, each of which writes, ends and is closed.
    #[test]
    fn incarnations_that_ended_make_place_for_others() {
        let (group, _) = written();
        let most = asterism_state::ORIGINS_MAX as u64 + 5_000;
        let own = InstanceParts::alone(1).identity.own;
        let of_incarnation = |incarnation| OriginName {
            member: 9,
            incarnation,
        };
        let with = |incarnation| write_incarnations([own, of_incarnation(incarnation)].into_iter());
        let named: Vec<_> = (0..most).map(with).collect();
        let without = write_incarnations([own].into_iter());
        let records = (0..).zip(&named).flat_map(|(incarnation, incarnations)| {
            let origin = of_incarnation(incarnation);
            [
                Down::Epoch { incarnations },
                Down::Group {
                    lane: REMOTE,
                    origin,
                    sequence: 1,
                    bytes: &group,
                },
                Down::Epoch {
                    incarnations: &without,
                },
                Down::Closed { origin },
            ]
        });
        let (why, _, instance) = hand(&records.collect::<Vec<_>>());
        assert_eq!(why, None);
        assert_eq!(instance.tally().groups_applied, most);
        let incarnations = instance.context.incarnations();
        assert!(
            incarnations < 2 * asterism_state::FORGETS_FROM,
            "{incarnations} are kept"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_applied_whole_or_stop_the_instance(
            bytes in proptest::collection::vec(any::<u8>(), 1..80),
            at: proptest::sample::Index,
            with: u8,
        ) {
            judge(hand_group(&bytes));
            judge(hand_snapshot(&bytes));
            let (mut group, mut snapshot) = written();
            let place = at.index(group.len());
            group[place] = with;
            judge(hand_group(&group));
            let place = at.index(snapshot.len());
            snapshot[place] = with;
            judge(hand_snapshot(&snapshot));
        }
    }
}
