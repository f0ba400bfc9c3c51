//! The frames that serve a member that lags.
//!
//! ```text
//! snapshot             := scan index chunk                                  kind 4
//! snapshot-end         := scan chunks kind:u8 count (member sequence)*count kind 5
//! snapshot-acknowledge := scan prefix bits:u64 flags:u8                     kind 6; bit 0: the end arrived; bit 1: it is joined
//! ```

use crate::MemberId;
use crate::envelope::{Reader, write_varint};

use super::super::SnapshotKind;

/// A chunk of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateSnapshot<'a> {
    pub(crate) scan: u32,
    pub(crate) index: u32,
    pub(crate) chunk: &'a [u8],
}

impl<'a> StateSnapshot<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Option<StateSnapshot<'a>> {
        let mut reader = Reader::new(body);
        let snapshot = StateSnapshot {
            scan: reader.u32()?,
            index: reader.u32()?,
            chunk: reader.rest(),
        };
        (!snapshot.chunk.is_empty()).then_some(snapshot)
    }

    /// Appends the body.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_varint(out, u64::from(self.scan));
        write_varint(out, u64::from(self.index));
        out.extend_from_slice(self.chunk);
    }
}

/// The end of a snapshot: how many chunks it has and what it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotEndFrame<'a> {
    pub(crate) scan: u32,
    pub(crate) chunks: u32,
    pub(crate) kind: SnapshotKind,
    vector: Reader<'a>,
}

impl<'a> SnapshotEndFrame<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Option<SnapshotEndFrame<'a>> {
        let mut reader = Reader::new(body);
        let (scan, chunks) = (reader.u32()?, reader.u32()?);
        let kind = match reader.byte()? {
            0 => SnapshotKind::Changes,
            1 => SnapshotKind::Full,
            _ => return None,
        };
        let count = reader.varint()?;
        let vector = reader;
        for _ in 0..count {
            reader.member()?;
            reader.sequence()?;
        }
        reader.is_empty().then_some(SnapshotEndFrame {
            scan,
            chunks,
            kind,
            vector,
        })
    }

    /// For each origin the sequence up to which the snapshot covers it.
    pub(crate) fn vector(&self) -> impl Iterator<Item = (MemberId, u64)> + '_ {
        let mut reader = self.vector;
        core::iter::from_fn(move || Some((reader.member()?, reader.sequence()?)))
    }

    /// Appends a body.
    pub(crate) fn write(
        out: &mut Vec<u8>,
        scan: u32,
        chunks: u32,
        kind: SnapshotKind,
        vector: &[(MemberId, u64)],
    ) {
        write_varint(out, u64::from(scan));
        write_varint(out, u64::from(chunks));
        out.push(match kind {
            SnapshotKind::Changes => 0,
            SnapshotKind::Full => 1,
        });
        write_varint(out, vector.len() as u64);
        for &(member, sequence) in vector {
            write_varint(out, u64::from(member.0));
            write_varint(out, sequence);
        }
    }
}

/// What the lagging member has of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotAcknowledge {
    pub(crate) scan: u32,
    /// Every chunk below this index arrived.
    pub(crate) prefix: u32,
    /// Bit n: the chunk `prefix + n` arrived.
    pub(crate) bits: u64,
    /// The end arrived.
    pub(crate) end: bool,
    /// All of it is applied, and what it covers counts as applied.
    pub(crate) joined: bool,
}

impl SnapshotAcknowledge {
    pub(crate) fn read(body: &[u8]) -> Option<SnapshotAcknowledge> {
        let mut reader = Reader::new(body);
        let read = SnapshotAcknowledge {
            scan: reader.u32()?,
            prefix: reader.u32()?,
            bits: reader.fixed_u64()?,
            end: false,
            joined: false,
        };
        let flags = reader.byte()?;
        let read = SnapshotAcknowledge {
            end: flags & 1 != 0,
            joined: flags & 2 != 0,
            ..read
        };
        reader.is_empty().then_some(read)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_varint(out, u64::from(self.scan));
        write_varint(out, u64::from(self.prefix));
        out.extend_from_slice(&self.bits.to_le_bytes());
        out.push(u8::from(self.end) | u8::from(self.joined) << 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_frames_round_trip() {
        let mut out = Vec::new();
        let snapshot = StateSnapshot {
            scan: 300,
            index: 2,
            chunk: b"chunk",
        };
        snapshot.write(&mut out);
        assert_eq!(out, [0xac, 2, 2, b'c', b'h', b'u', b'n', b'k']);
        assert_eq!(StateSnapshot::read(&out), Some(snapshot));
        assert_eq!(StateSnapshot::read(&out[..3]), None);

        let vector = [(MemberId(1), 5), (MemberId(2), 300)];
        out.clear();
        SnapshotEndFrame::write(&mut out, 1, 9, SnapshotKind::Full, &vector);
        assert_eq!(out, [1, 9, 1, 2, 1, 5, 2, 0xac, 2]);
        let end = SnapshotEndFrame::read(&out).unwrap();
        assert_eq!((end.scan, end.chunks, end.kind), (1, 9, SnapshotKind::Full));
        assert_eq!(end.vector().collect::<Vec<_>>(), vector);
        for cut in 0..out.len() {
            assert!(SnapshotEndFrame::read(&out[..cut]).is_none());
        }

        out.clear();
        let acknowledge = SnapshotAcknowledge {
            scan: 1,
            prefix: 4,
            bits: 0b101,
            end: true,
            joined: false,
        };
        acknowledge.write(&mut out);
        assert_eq!(out, [1, 4, 5, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(SnapshotAcknowledge::read(&out), Some(acknowledge));
    }
}
