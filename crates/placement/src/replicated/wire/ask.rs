//! Groups that a member asks the relay of its site for, and those that the relay has not: runs of sequences of members' streams.

use crate::MemberId;
use crate::envelope::{Reader, SEQUENCE_MAX, write_varint};

/// The most runs of one frame.
pub(crate) const ASKED_MAX: usize = 16;
/// The most bytes of such a frame's body.
pub(crate) const ASKED_BYTES_MAX: usize = ASKED_MAX * (3 + 9 + 9);

/// Consecutive groups of a member's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Whose stream.
    pub origin: MemberId,
    /// The first sequence.
    pub first: u64,
    /// The last sequence; not below the first.
    pub last: u64,
}

impl Asked {
    /// Whether it and those of that stream from `first` to `last` have some in common.
    #[must_use]
    pub fn meets(&self, origin: MemberId, first: u64, last: u64) -> bool {
        self.origin == origin && self.first <= last && first <= self.last
    }

    pub(crate) fn write(&self, body: &mut Vec<u8>) {
        write_varint(body, u64::from(self.origin.0));
        write_varint(body, self.first);
        write_varint(body, self.last - self.first);
    }
}

/// The runs of a frame, checked: 1 to [`ASKED_MAX`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedRuns<'a> {
    reader: Reader<'a>,
}

impl<'a> AskedRuns<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Option<AskedRuns<'a>> {
        let runs = AskedRuns {
            reader: Reader::new(body),
        };
        let mut rest = runs;
        let mut count = 0;
        while !rest.reader.is_empty() {
            rest.read_one()?;
            count += 1;
        }
        (1..=ASKED_MAX).contains(&count).then_some(runs)
    }

    fn read_one(&mut self) -> Option<Asked> {
        let origin = self.reader.member()?;
        let first = self.reader.sequence().filter(|&first| first > 0)?;
        let last = first + self.reader.sequence()?;
        (last <= SEQUENCE_MAX).then_some(Asked {
            origin,
            first,
            last,
        })
    }
}

impl Iterator for AskedRuns<'_> {
    type Item = Asked;

    fn next(&mut self) -> Option<Asked> {
        self.read_one()
    }
}
