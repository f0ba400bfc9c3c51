//! The frames of a state message.

use crate::mutant::{self, Mutant};

use super::super::audit::{Reading, StreamPosition};
use super::super::config::GROUP_BYTES_MAX;
use super::super::refused::Refused;
use super::ask::{AskedRuns, KIND_ASK, KIND_LACKS};
use super::clock::{ClockFrame, KIND_CLOCK};
use super::keys::{AcceptedKeys, KIND_KEYS};
use super::membership::{KIND_CLOSE, KIND_JOIN, Membership};
use super::snapshot::{SnapshotAcknowledge, SnapshotEndFrame, StateSnapshot};
use super::{Acknowledgements, Reader, SEQUENCE_MAX, write_varint};

pub(crate) const KIND_RECORDS: u8 = 1;
pub(crate) const KIND_ACKNOWLEDGE: u8 = 2;
pub(crate) const KIND_KEEP_ALIVE: u8 = 3;
pub(crate) const KIND_SNAPSHOT: u8 = 4;
pub(crate) const KIND_SNAPSHOT_END: u8 = 5;
pub(crate) const KIND_SNAPSHOT_ACKNOWLEDGE: u8 = 6;
/// Bytes without a meaning, that give a message a length.
pub(crate) const KIND_PADDING: u8 = 0x80;
/// A reading of an auditor: who does not know it may skip it.
pub(crate) const KIND_AUDIT: u8 = 0x81;
/// How far the sender's stream was sent, and what that adds up to: who does not know it may skip it.
pub(crate) const KIND_STREAM: u8 = 0x83;
/// A kind with this bit may be skipped by a build that does not know it.
const SKIPPABLE: u8 = 0x80;

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
    /// A reading of an auditor, well formed.
    Audit(&'a [u8]),
    /// How far the sender's stream was sent.
    Stream(StreamPosition),
    /// What the sender lacks and asks the relay of its site for.
    Ask(AskedRuns<'a>),
    /// What the sender was asked for, and has not.
    Lacks(AskedRuns<'a>),
    /// What the sender's clocks show.
    Clock(ClockFrame),
    /// Without a meaning.
    Padding,
    /// Unknown, and allowed to be.
    Skipped,
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
    reader: Reader<'a>,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(reader: Reader<'a>) -> Frames<'a> {
        Frames { reader }
    }

    fn read(&mut self) -> Result<Frame<'a>, Refused> {
        let (kind, body) = self.read_body().ok_or(Refused::Malformed)?;
        let frame = match kind {
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
            KIND_JOIN..=KIND_CLOSE => {
                Membership::read(kind, body).map(|_| Frame::Membership(kind, body))
            }
            KIND_PADDING => Some(Frame::Padding),
            KIND_KEYS => AcceptedKeys::read(body).map(Frame::Keys),
            KIND_AUDIT => Reading::parse(body).map(|_| Frame::Audit(body)),
            KIND_STREAM => StreamPosition::read(body).map(Frame::Stream),
            KIND_ASK => AskedRuns::read(body).map(Frame::Ask),
            KIND_LACKS => AskedRuns::read(body).map(Frame::Lacks),
            KIND_CLOCK => ClockFrame::read(body).map(Frame::Clock),
            kind if kind & SKIPPABLE != 0 => Some(Frame::Skipped),
            _ => return Err(Refused::FutureFrame),
        };
        frame.ok_or(Refused::Malformed)
    }

    fn read_body(&mut self) -> Option<(u8, &'a [u8])> {
        let kind = self.reader.byte()?;
        let length = self.reader.length()?;
        if kind & SKIPPABLE != 0 && length > 0 && mutant::active(Mutant::SkippedFrameDesynchronizes)
        {
            return Some((kind, self.reader.take(length - 1)?));
        }
        Some((kind, self.reader.take(length)?))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            None
        } else {
            Some(self.read())
        }
    }
}

/// Appends a frame around a body.
pub(crate) fn write_frame(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    write_varint(out, body.len() as u64);
    out.extend_from_slice(body);
}

/// Appends padding until there are `bytes_wanted` bytes. One byte short of that nothing fits: a frame has two.
pub(crate) fn write_padding(out: &mut Vec<u8>, bytes_wanted: usize) {
    let Some(gap) = bytes_wanted.checked_sub(out.len()).filter(|&gap| gap >= 2) else {
        return;
    };
    // The length takes one byte up to 127; a gap of 130 is two frames, since neither 127 nor 128 fills it.
    let first = if gap == 130 { 2 } else { gap };
    for gap in [first, gap - first] {
        if gap >= 2 {
            let body = if gap <= 129 { gap - 2 } else { gap - 3 };
            out.push(KIND_PADDING);
            write_varint(out, body as u64);
            out.resize(out.len() + body, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_fills_every_gap_but_one_byte_and_means_nothing() {
        for gap in 0..1_500 {
            let mut bytes = Vec::new();
            write_frame(&mut bytes, KIND_KEEP_ALIVE, &[1]);
            let wanted = bytes.len() + gap;
            write_padding(&mut bytes, wanted);
            assert_eq!(bytes.len(), if gap == 1 { wanted - 1 } else { wanted });
            let read = frames(&bytes).unwrap();
            assert!(matches!(read[0], Frame::KeepAlive { answer: true, .. }));
            assert!(
                read[1..]
                    .iter()
                    .all(|frame| matches!(frame, Frame::Padding))
            );
        }
        write_padding(&mut Vec::new(), 0);
    }

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

    #[test]
    fn unknown_kinds_are_skipped_only_where_allowed() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, 0xfe, &[9; 200]);
        write_frame(&mut bytes, KIND_KEEP_ALIVE, &[1]);
        let read = frames(&bytes).unwrap();
        assert!(matches!(
            read[..],
            [
                Frame::Skipped,
                Frame::KeepAlive {
                    answer: true,
                    carry: false
                }
            ]
        ));
        bytes[0] = 0x7e;
        assert_eq!(frames(&bytes).err(), Some(Refused::FutureFrame));
    }
}
