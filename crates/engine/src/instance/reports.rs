//! Words to the state channel that nothing repeats: where the ring has no room for one, it is said later, and none is lost.
//!
//! A state channel that may log nothing more reads no further, and the words of an instance that keeps on applying what others
//! wrote fill what is left of the ring. They wait here, in order; saying later that something was applied is always safe.

use std::collections::VecDeque;

use asterism_placement::MemberId;
use asterism_state::OriginName;

use crate::exchange::Up;
use asterism_io::ring::RingWriter;

/// Words that wait without an allocation: more than a cluster of thirty has streams, snapshots and rounds under way.
const ROOM: usize = 64;

/// A word; what each says is said at [`Up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Applied { origin: OriginName, sequence: u64 },
    SnapshotApplied { from: MemberId, scan: u32 },
    EndedApplied { origin: OriginName },
    Drained { round: u64, whole: bool },
    Shared { number: u32, objects: u64 },
    Announced { number: u32 },
}

impl Report {
    fn record(&self) -> Up<'static> {
        match *self {
            Self::Applied { origin, sequence } => Up::Applied { origin, sequence },
            Self::SnapshotApplied { from, scan } => Up::SnapshotApplied { from, scan },
            Self::EndedApplied { origin } => Up::EndedApplied { origin },
            Self::Drained { round, whole } => Up::Drained { round, whole },
            Self::Shared { number, objects } => Up::Shared { number, objects },
            Self::Announced { number } => Up::Announced { number },
        }
    }

    /// Whether it says all that `before` did.
    fn replaces(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Applied { origin, .. }, Self::Applied { origin: of, .. }) => origin == of,
            (Self::Drained { .. }, Self::Drained { .. })
            | (Self::Shared { .. }, Self::Shared { .. })
            | (Self::Announced { .. }, Self::Announced { .. }) => true,
            _ => self == before,
        }
    }
}

/// The words that found no room, the first one first. At most one for each stream, each snapshot and the round: what is applied of
/// a stream later takes the place of what was before.
#[derive(Debug)]
pub(crate) struct Reports(VecDeque<Report>);

impl Reports {
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(ROOM))
    }

    /// Says a word, now or when there is room.
    #[inline]
    pub(super) fn say(&mut self, report: Report, up: &mut RingWriter) {
        if !self.0.is_empty() || report.record().push(up).is_err() {
            self.wait(report);
        }
    }

    /// To the end of the line: what it takes the place of was not said, and what was to be said after that does not speak of it.
    #[cold]
    fn wait(&mut self, report: Report) {
        self.0.retain(|before| !report.replaces(before));
        self.0.push_back(report);
    }

    /// Says those that waited, as far as there is room.
    #[inline]
    pub(super) fn say_waiting(&mut self, up: &mut RingWriter) {
        while let Some(report) = self.0.front() {
            if report.record().push(up).is_err() {
                return;
            }
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_io::ring::ByteRing;

    fn applied(member: u16, sequence: u64) -> Report {
        let origin = OriginName {
            member,
            incarnation: 7,
        };
        Report::Applied { origin, sequence }
    }

    #[test]
    fn words_that_find_no_room_are_said_later_and_the_newest_of_a_stream_alone() {
        let (mut up, mut reader) = ByteRing::new(64).expect("a ring");
        let mut reports = Reports::new();
        let round = |round| Report::Drained { round, whole: true };
        for sequence in 1..50 {
            reports.say(applied(1, sequence), &mut up);
            reports.say(applied(2, sequence), &mut up);
            reports.say(round(sequence), &mut up);
        }
        assert!(reports.0.len() <= 3, "{reports:?}");
        let mut heard = Vec::new();
        for _ in 0..20 {
            up.publish();
            while let Some(record) = reader.next().and_then(Up::read) {
                heard.push(format!("{record:?}"));
            }
            reader.release();
            reports.say_waiting(&mut up);
        }
        let last = [applied(1, 49), applied(2, 49), round(49)];
        let last: Vec<_> = last
            .iter()
            .map(|report| format!("{:?}", report.record()))
            .collect();
        assert_eq!(heard.len(), 6, "three found room at first: {heard:?}");
        assert_eq!(heard[3..], last);
        assert!(reports.0.is_empty());
        reports.say(applied(1, 50), &mut up);
        assert!(reports.0.is_empty(), "there is room again");
    }
}
