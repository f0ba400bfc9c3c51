//! The frames of a state message, as a replicator reads them.

use crate::envelope::{
    KIND_ACKNOWLEDGE, KIND_ASK, KIND_CLOCK, KIND_KEEP_ALIVE, KIND_KEYS, KIND_PLACEMENTS,
    KIND_RECORDS, KIND_SNAPSHOT, KIND_SNAPSHOT_ACKNOWLEDGE, KIND_SNAPSHOT_END, RawFrame, RawFrames,
    Reader, Reads, Refused, SEQUENCE_MAX,
};

use crate::membership::MembershipFrame;

use super::super::audit::is_well_formed;
use super::super::config::GROUP_BYTES_MAX;
use super::Acknowledgements;
use super::ask::AskedRuns;
use super::clock::ClockFrame;
use super::keys::AcceptedKeys;
use super::placements::Placements;
use super::snapshot::{SnapshotAcknowledge, SnapshotEndFrame, StateSnapshot};

/// A frame, checked in full.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame<'a> {
    Records(Groups<'a>),
    Acknowledge(Acknowledgements<'a>),
    KeepAlive {
        answer: bool,
        /// The relay of the sender's site is to carry this message to the other sites.
        carry: bool,
    },
    StateSnapshot(StateSnapshot<'a>),
    SnapshotEnd(SnapshotEndFrame<'a>),
    SnapshotAcknowledge(SnapshotAcknowledge),
    /// Of joining, leaving or closing: its kind and its body, well formed.
    Membership(u8, &'a [u8]),
    /// The cluster keys that the sender accepts.
    Keys(AcceptedKeys),
    /// Where the sender has its objects.
    Placements(Placements),
    /// What the sender lacks and asks the relay of its site for.
    Ask(AskedRuns<'a>),
    /// What the sender was asked for, and has not.
    Lacks(AskedRuns<'a>),
    /// What the sender's clocks show.
    Clock(ClockFrame),
    /// A frame of a protocol beside this one, well formed.
    Beside,
    /// Without a meaning.
    Padding,
    /// Unknown, and allowed to be.
    Skipped,
}

impl<'a> Frame<'a> {
    /// Reads the body of a frame. `None` when it is malformed.
    #[inline]
    fn read(frame: &RawFrame<'a>) -> Option<Frame<'a>> {
        let (kind, body) = (frame.kind, frame.body);
        match frame.reads {
            Reads::Replication => Frame::read_own(kind, body),
            Reads::Membership => {
                MembershipFrame::read(kind, body).map(|_| Frame::Membership(kind, body))
            }
            Reads::Sites => {
                let runs = AskedRuns::read(body)?;
                Some(match kind {
                    KIND_ASK => Frame::Ask(runs),
                    _ => Frame::Lacks(runs),
                })
            }
            Reads::Audit => is_well_formed(kind, body).then_some(Frame::Beside),
            Reads::Nobody => Some(Frame::Padding),
            Reads::LaterBuild => Some(Frame::Skipped),
        }
    }

    #[inline]
    fn read_own(kind: u8, body: &'a [u8]) -> Option<Frame<'a>> {
        match kind {
            KIND_RECORDS => Groups::read(body).map(Frame::Records),
            KIND_ACKNOWLEDGE => Acknowledgements::read(body).map(Frame::Acknowledge),
            KIND_KEEP_ALIVE => match body {
                [flags] => Some(Frame::KeepAlive {
                    answer: flags & 1 != 0,
                    carry: flags & 2 != 0,
                }),
                _ => None,
            },
            KIND_SNAPSHOT => StateSnapshot::read(body).map(Frame::StateSnapshot),
            KIND_SNAPSHOT_END => SnapshotEndFrame::read(body).map(Frame::SnapshotEnd),
            KIND_SNAPSHOT_ACKNOWLEDGE => {
                SnapshotAcknowledge::read(body).map(Frame::SnapshotAcknowledge)
            }
            KIND_KEYS => AcceptedKeys::read(body).map(Frame::Keys),
            KIND_PLACEMENTS => Placements::read(body).map(Frame::Placements),
            KIND_CLOCK => ClockFrame::read(body).map(Frame::Clock),
            _ => None,
        }
    }
}

/// Consecutive groups, from `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups<'a> {
    pub(crate) first: u64,
    /// The sequence after the last.
    pub(crate) end: u64,
    groups: Reader<'a>,
}

impl<'a> Groups<'a> {
    fn read(body: &'a [u8]) -> Option<Groups<'a>> {
        let mut reader = Reader::new(body);
        let first = reader.sequence()?;
        let groups = reader;
        let mut end = first;
        while !reader.is_empty() {
            let length = reader.length()?;
            if length == 0 || length > GROUP_BYTES_MAX {
                return None;
            }
            reader.take(length)?;
            end += 1;
        }
        (first > 0 && end > first && end <= SEQUENCE_MAX).then_some(Groups { first, end, groups })
    }
}

impl<'a> Iterator for Groups<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let length = self.groups.length()?;
        self.groups.take(length)
    }
}

/// The frames of a message, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames<'a> {
    raw: RawFrames<'a>,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(reader: Reader<'a>) -> Frames<'a> {
        Frames {
            raw: RawFrames::new(reader),
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Refused>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let frame = self.raw.next()?;
        Some(frame.and_then(|frame| Frame::read(&frame).ok_or(Refused::Malformed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::write_frame;

    fn frames(bytes: &[u8]) -> Result<Vec<Frame<'_>>, Refused> {
        Frames::new(Reader::new(bytes)).collect()
    }

    #[test]
    fn golden_records() {
        let bytes = [KIND_RECORDS, 8, 0xac, 2, 2, b'a', b'b', 1, b'c', 0][..9].to_vec();
        let bytes = [&[KIND_RECORDS, 7][..], &bytes[2..9]].concat();
        let Frame::Records(groups) = frames(&bytes).unwrap()[0] else {
            panic!("not records")
        };
        assert_eq!((groups.first, groups.end), (300, 302));
        assert_eq!(groups.collect::<Vec<_>>(), [&b"ab"[..], b"c"]);
    }

    #[test]
    fn records_without_groups_or_with_empty_ones_are_malformed() {
        for body in [&[1][..], &[], &[1, 0], &[0, 1, 7], &[1, 3, 1, 1]] {
            let mut bytes = Vec::new();
            write_frame(&mut bytes, KIND_RECORDS, body);
            assert_eq!(frames(&bytes).err(), Some(Refused::Malformed), "{body:?}");
        }
    }
}
