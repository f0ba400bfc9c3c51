//! The frames that serve a lagging.
//!
//! ```text
//! image             := walk index chunk                                  kind 4
//! image-end         := walk chunks kind:u8 count (member sequence)*count kind 5
//! image-acknowledge := walk prefix bits:u64 flags:u8                     kind 6; bit 0: the end arrived; bit 1: it is joined
//! ```

use crate::MemberId;

use super::super::ImageKind;
use super::{Reader, write_varint};

/// A chunk of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image<'a> {
    pub(crate) walk: u32,
    pub(crate) index: u32,
    pub(crate) chunk: &'a [u8],
}

impl<'a> Image<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Option<Image<'a>> {
        let mut reader = Reader::new(body);
        let image = Image {
            walk: reader.u32()?,
            index: reader.u32()?,
            chunk: reader.rest(),
        };
        (!image.chunk.is_empty()).then_some(image)
    }

    /// Appends the body.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_varint(out, u64::from(self.walk));
        write_varint(out, u64::from(self.index));
        out.extend_from_slice(self.chunk);
    }
}

/// The end of an image: how many chunks it has and what it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageEndFrame<'a> {
    pub(crate) walk: u32,
    pub(crate) chunks: u32,
    pub(crate) kind: ImageKind,
    vector: Reader<'a>,
}

impl<'a> ImageEndFrame<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Option<ImageEndFrame<'a>> {
        let mut reader = Reader::new(body);
        let (walk, chunks) = (reader.u32()?, reader.u32()?);
        let kind = match reader.byte()? {
            0 => ImageKind::Changes,
            1 => ImageKind::Full,
            _ => return None,
        };
        let count = reader.varint()?;
        let vector = reader;
        for _ in 0..count {
            reader.member()?;
            reader.sequence()?;
        }
        reader.is_empty().then_some(ImageEndFrame {
            walk,
            chunks,
            kind,
            vector,
        })
    }

    /// For each origin the sequence up to which the image covers it.
    pub(crate) fn vector(&self) -> impl Iterator<Item = (MemberId, u64)> + '_ {
        let mut reader = self.vector;
        core::iter::from_fn(move || Some((reader.member()?, reader.sequence()?)))
    }

    /// Appends a body.
    pub(crate) fn write(
        out: &mut Vec<u8>,
        walk: u32,
        chunks: u32,
        kind: ImageKind,
        vector: &[(MemberId, u64)],
    ) {
        write_varint(out, u64::from(walk));
        write_varint(out, u64::from(chunks));
        out.push(match kind {
            ImageKind::Changes => 0,
            ImageKind::Full => 1,
        });
        write_varint(out, vector.len() as u64);
        for &(member, sequence) in vector {
            write_varint(out, u64::from(member.0));
            write_varint(out, sequence);
        }
    }
}

/// What the lagging has of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageAcknowledge {
    pub(crate) walk: u32,
    /// Every chunk below this index arrived.
    pub(crate) prefix: u32,
    /// Bit n: the chunk `prefix + n` arrived.
    pub(crate) bits: u64,
    /// The end arrived.
    pub(crate) end: bool,
    /// All of it is applied, and what it covers counts as applied.
    pub(crate) joined: bool,
}

impl ImageAcknowledge {
    pub(crate) fn read(body: &[u8]) -> Option<ImageAcknowledge> {
        let mut reader = Reader::new(body);
        let read = ImageAcknowledge {
            walk: reader.u32()?,
            prefix: reader.u32()?,
            bits: reader.fixed_u64()?,
            end: false,
            joined: false,
        };
        let flags = reader.byte()?;
        let read = ImageAcknowledge {
            end: flags & 1 != 0,
            joined: flags & 2 != 0,
            ..read
        };
        reader.is_empty().then_some(read)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_varint(out, u64::from(self.walk));
        write_varint(out, u64::from(self.prefix));
        out.extend_from_slice(&self.bits.to_le_bytes());
        out.push(u8::from(self.end) | u8::from(self.joined) << 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_frames_round_trip() {
        let mut out = Vec::new();
        let image = Image {
            walk: 300,
            index: 2,
            chunk: b"chunk",
        };
        image.write(&mut out);
        assert_eq!(out, [0xac, 2, 2, b'c', b'h', b'u', b'n', b'k']);
        assert_eq!(Image::read(&out), Some(image));
        assert_eq!(Image::read(&out[..3]), None);

        let vector = [(MemberId(1), 5), (MemberId(2), 300)];
        out.clear();
        ImageEndFrame::write(&mut out, 1, 9, ImageKind::Full, &vector);
        assert_eq!(out, [1, 9, 1, 2, 1, 5, 2, 0xac, 2]);
        let end = ImageEndFrame::read(&out).unwrap();
        assert_eq!((end.walk, end.chunks, end.kind), (1, 9, ImageKind::Full));
        assert_eq!(end.vector().collect::<Vec<_>>(), vector);
        for cut in 0..out.len() {
            assert!(ImageEndFrame::read(&out[..cut]).is_none());
        }

        out.clear();
        let acknowledge = ImageAcknowledge {
            walk: 1,
            prefix: 4,
            bits: 0b101,
            end: true,
            joined: false,
        };
        acknowledge.write(&mut out);
        assert_eq!(out, [1, 4, 5, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(ImageAcknowledge::read(&out), Some(acknowledge));
    }
}
