//! The frames of a message, one after the other: kind, length and body; bodies are their protocols' business.

use crate::mutant::{self, Mutant};

use super::kinds::{KIND_PADDING, Reads, is_skippable};
use super::refused::Refused;
use super::{Reader, write_varint};

/// The most bytes before a frame's body.
pub(crate) const FRAME_BYTES_MAX: usize = 1 + 3;

/// A frame whose body is not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFrame<'a> {
    pub(crate) kind: u8,
    pub(crate) body: &'a [u8],
    /// Which protocol reads it.
    pub(crate) reads: Reads,
}

/// The frames of a message, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFrames<'a> {
    reader: Reader<'a>,
}

impl<'a> RawFrames<'a> {
    pub(crate) fn new(reader: Reader<'a>) -> RawFrames<'a> {
        RawFrames { reader }
    }

    fn read(&mut self) -> Result<RawFrame<'a>, Refused> {
        let (kind, body) = self.read_body().ok_or(Refused::Malformed)?;
        let reads = Reads::of(kind).ok_or(Refused::FutureFrame)?;
        Ok(RawFrame { kind, body, reads })
    }

    fn read_body(&mut self) -> Option<(u8, &'a [u8])> {
        let kind = self.reader.byte()?;
        let length = self.reader.length()?;
        if is_skippable(kind) && length > 0 && mutant::active(Mutant::SkippedFrameDesynchronizes) {
            return Some((kind, self.reader.take(length - 1)?));
        }
        Some((kind, self.reader.take(length)?))
    }
}

impl<'a> Iterator for RawFrames<'a> {
    type Item = Result<RawFrame<'a>, Refused>;

    #[inline]
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
    use crate::envelope::KIND_KEEP_ALIVE;

    fn frames(bytes: &[u8]) -> Result<Vec<RawFrame<'_>>, Refused> {
        RawFrames::new(Reader::new(bytes)).collect()
    }

    #[test]
    fn padding_fills_every_gap_but_one_byte_and_means_nothing() {
        for gap in 0..1_500 {
            let mut bytes = Vec::new();
            write_frame(&mut bytes, KIND_KEEP_ALIVE, &[1]);
            let wanted = bytes.len() + gap;
            write_padding(&mut bytes, wanted);
            assert_eq!(bytes.len(), if gap == 1 { wanted - 1 } else { wanted });
            let read = frames(&bytes).unwrap();
            assert_eq!((read[0].kind, read[0].body), (KIND_KEEP_ALIVE, &[1][..]));
            assert!(read[1..].iter().all(|frame| frame.reads == Reads::Nobody));
        }
        write_padding(&mut Vec::new(), 0);
    }

    #[test]
    fn unknown_kinds_are_skipped_only_where_allowed() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, 0xfe, &[9; 200]);
        write_frame(&mut bytes, KIND_KEEP_ALIVE, &[1]);
        let read = frames(&bytes).unwrap();
        let reads: Vec<Reads> = read.iter().map(|frame| frame.reads).collect();
        assert_eq!(reads, [Reads::LaterBuild, Reads::Replication]);
        assert_eq!(read[1].body, [1]);
        bytes[0] = 0x7e;
        assert_eq!(frames(&bytes).err(), Some(Refused::FutureFrame));
    }
}
