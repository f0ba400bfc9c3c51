//! What a datagram is wrapped in on its way through a relay.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0 | zero | no wire version: no sealed datagram begins so |
//! | 1 | kind | 1: hand on in your site; 2: handed on |
//! | 2..4 | member | who wrapped it |
//! | 4..8 | cluster | |
//! | then | length:u16 datagram[length] | one or more, each sealed by its origin |
//!
//! Integers are little-endian. The frame itself is not authenticated, and nothing rests on it: what is in it counts only once it
//! opened, and a relay hands on what opened, nothing else.

use core::ops::Range;

use crate::{ClusterId, MemberId};
use asterism_secure_channel::{OVERHEAD_BYTES, segments};

/// Bytes before the first datagram's length.
const HEAD_BYTES: usize = 8;
/// What a frame around one datagram adds to it.
pub const FRAME_BYTES: usize = HEAD_BYTES + LENGTH_BYTES;
const LENGTH_BYTES: usize = 2;

/// What is to become of what a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From another site: the relay that gets it takes it, and hands it on in its own site.
    HandOn,
    /// From the relay of one's own site: to be taken, and to go no further.
    HandedOn,
}

/// The head of a frame. It proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What is to become of it.
    pub kind: FrameKind,
    /// Who says to have wrapped it.
    pub member: MemberId,
    /// The cluster.
    pub cluster: ClusterId,
}

impl Frame {
    /// Whether these bytes are a frame or nothing: no sealed datagram begins with a zero.
    #[must_use]
    pub fn is_frame(datagram: &[u8]) -> bool {
        datagram.first() == Some(&0)
    }

    /// Clears `out` and begins a frame in it.
    pub fn begin(&self, out: &mut Vec<u8>) {
        out.clear();
        let kind = match self.kind {
            FrameKind::HandOn => 1,
            FrameKind::HandedOn => 2,
        };
        out.extend_from_slice(&[0, kind]);
        out.extend_from_slice(&self.member.0.to_le_bytes());
        out.extend_from_slice(&self.cluster.0.to_le_bytes());
    }

    /// Appends a sealed datagram to a frame.
    pub fn push(out: &mut Vec<u8>, datagram: &[u8]) {
        // No datagram is longer than UDP allows.
        out.extend_from_slice(&(datagram.len() as u16).to_le_bytes());
        out.extend_from_slice(datagram);
    }

    /// Whether one more datagram of so many bytes fits a frame of `bytes_max`.
    #[must_use]
    pub fn fits(out: &[u8], bytes: usize, bytes_max: usize) -> bool {
        out.len() + LENGTH_BYTES + bytes <= bytes_max
    }

    /// Whether anything was pushed.
    #[must_use]
    pub fn is_empty(out: &[u8]) -> bool {
        out.len() <= HEAD_BYTES
    }

    /// Reads a frame: its head and what it holds, to be taken apart with [`Frame::next`]. `None` if it is none, or if any of its
    /// datagrams is cut short or too short to be sealed: then nothing of it is taken.
    #[must_use]
    pub fn read(datagram: &mut [u8]) -> Option<(Frame, &mut [u8])> {
        let (head, rest) = datagram.split_at_mut_checked(HEAD_BYTES)?;
        let kind = match head[..2] {
            [0, 1] => FrameKind::HandOn,
            [0, 2] => FrameKind::HandedOn,
            _ => return None,
        };
        let mut left = &rest[..];
        if left.is_empty() {
            return None;
        }
        while !left.is_empty() {
            let (length, more) = left.split_first_chunk::<LENGTH_BYTES>()?;
            let length = usize::from(u16::from_le_bytes(*length));
            if length < OVERHEAD_BYTES {
                return None;
            }
            left = more.get(length..)?;
        }
        let frame = Frame {
            kind,
            member: MemberId(u16::from_le_bytes([head[2], head[3]])),
            cluster: ClusterId(u32::from_le_bytes([head[4], head[5], head[6], head[7]])),
        };
        Some((frame, rest))
    }

    /// The sealed datagrams in what a capture has as one UDP payload: those that a frame holds, or frames that the kernel had
    /// joined, or, of what is no frame, what [`segments`] gives. Allocates; for captures.
    #[must_use]
    pub fn datagrams(joined: &[u8]) -> Vec<Range<usize>> {
        if !Frame::is_frame(joined) {
            return segments(joined).collect();
        }
        let length = Frame::joined_length(joined).unwrap_or(joined.len());
        let mut found = Vec::new();
        let mut copy = joined.to_vec();
        for start in (0..joined.len()).step_by(length.max(1)) {
            let end = joined.len().min(start + length);
            let Some((_, mut items)) = Frame::read(&mut copy[start..end]) else {
                // No frame: one datagram that nobody can open.
                return core::iter::once(0..joined.len()).collect();
            };
            let mut at = start + HEAD_BYTES;
            while let Some((item, rest)) = Frame::next(items) {
                found.push(at + LENGTH_BYTES..at + LENGTH_BYTES + item.len());
                at += LENGTH_BYTES + item.len();
                items = rest;
            }
        }
        found
    }

    /// The length of all frames but the last, if these are several of one sender.
    fn joined_length(joined: &[u8]) -> Option<usize> {
        let head = joined.get(..HEAD_BYTES)?;
        let mut places = joined.windows(HEAD_BYTES).enumerate().skip(HEAD_BYTES);
        let (length, _) = places.find(|(_, window)| *window == head)?;
        let is_frame =
            |chunk: &[u8]| chunk.starts_with(head) && Frame::read(&mut chunk.to_vec()).is_some();
        joined.chunks(length).all(is_frame).then_some(length)
    }

    /// The next datagram of what [`Frame::read`] gave, and the rest.
    pub fn next(items: &mut [u8]) -> Option<(&mut [u8], &mut [u8])> {
        let (length, rest) = items.split_at_mut_checked(LENGTH_BYTES)?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        rest.split_at_mut_checked(length)
    }
}

/// For the fuzzer: any bytes are a frame or nothing, and what a frame holds is the same bytes when written again.
#[doc(hidden)]
pub fn fuzz_frame(data: &[u8]) {
    let mut bytes = data.to_vec();
    let Some((frame, mut items)) = Frame::read(&mut bytes) else {
        return;
    };
    let mut again = Vec::new();
    frame.begin(&mut again);
    let mut count = 0;
    while let Some((item, rest)) = Frame::next(items) {
        assert!(item.len() >= OVERHEAD_BYTES);
        Frame::push(&mut again, item);
        items = rest;
        count += 1;
    }
    assert!(count > 0 && !Frame::is_empty(&again));
    assert_eq!(again, data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors;

    #[test]
    fn golden_frames() {
        let file = vectors::read("relays.txt");
        for vector in &file {
            let mut out = Vec::new();
            let frame = Frame {
                kind: match vector.text("kind") {
                    "hand-on" => FrameKind::HandOn,
                    _ => FrameKind::HandedOn,
                },
                member: MemberId(vector.text("member").parse().unwrap()),
                cluster: ClusterId(vector.text("cluster").parse().unwrap()),
            };
            frame.begin(&mut out);
            let items: Vec<Vec<u8>> = vector
                .all("datagram")
                .map(|text| {
                    // A length and the byte that fills it.
                    let (length, fill) = text.split_once(" x ").unwrap();
                    vec![fill.parse().unwrap(); length.parse().unwrap()]
                })
                .collect();
            items.iter().for_each(|item| Frame::push(&mut out, item));
            assert_eq!(out, vector.bytes, "{}", vector.name);
            let mut bytes = vector.bytes.clone();
            let (read, mut rest) = Frame::read(&mut bytes).expect("a frame");
            assert_eq!(read, frame);
            for item in &items {
                let (next, more) = Frame::next(rest).unwrap();
                assert_eq!(next, item);
                rest = more;
            }
            assert!(Frame::next(rest).is_none());
            for cut in 0..vector.bytes.len() {
                let whole = Frame::read(&mut vector.bytes[..cut].to_vec()).is_some();
                let ends_an_item = items.len() > 1 && cut == FRAME_BYTES + items[0].len();
                assert_eq!(whole, ends_an_item, "{} cut at {cut}", vector.name);
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_whole() {
        let sealed = vec![7; OVERHEAD_BYTES];
        let frame = Frame {
            kind: FrameKind::HandOn,
            member: MemberId(1),
            cluster: ClusterId(2),
        };
        let mut good = Vec::new();
        frame.begin(&mut good);
        assert!(Frame::read(&mut good.clone()).is_none(), "it holds nothing");
        Frame::push(&mut good, &sealed);
        assert!(Frame::read(&mut good.clone()).is_some());
        let mut other = good.clone();
        other[1] = 3;
        assert!(Frame::read(&mut other).is_none(), "an unknown kind");
        let mut sealed_first = good.clone();
        sealed_first[0] = 1;
        assert!(!Frame::is_frame(&sealed_first));
        // The second one is cut: nothing of the first is taken either.
        Frame::push(&mut good, &sealed);
        good.pop();
        assert!(Frame::read(&mut good).is_none());
        let mut short = Vec::new();
        frame.begin(&mut short);
        Frame::push(&mut short, &sealed[1..]);
        assert!(Frame::read(&mut short).is_none(), "too short to be sealed");
    }

    #[test]
    fn a_capture_s_frames_are_taken_apart_also_joined_ones() {
        let file = vectors::read("relays.txt");
        let bundle = &vectors::named(&file, "relay bundle").bytes;
        assert_eq!(Frame::datagrams(bundle), [10..58, 60..109]);
        let one = &vectors::named(&file, "relay hand-on").bytes;
        let joined = [&one[..], one, one].concat();
        let expected = [0, 1, 2].map(|place| place * one.len() + 10..(place + 1) * one.len());
        assert_eq!(Frame::datagrams(&joined), expected);
        assert_eq!(
            Frame::datagrams(&[7; 60]),
            segments(&[7; 60]).collect::<Vec<_>>()
        );
        let cut = &one[..one.len() - 1];
        assert_eq!(
            Frame::datagrams(cut),
            core::iter::once(0..57).collect::<Vec<_>>()
        );
    }

    #[test]
    fn any_bytes_are_a_frame_or_nothing() {
        let mut word = 1u64;
        let mut bytes = vec![0; 300];
        for _ in 0..20_000 {
            for byte in &mut bytes {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                *byte = word as u8;
            }
            (bytes[0], bytes[1]) = (0, bytes[1] & 3);
            (bytes[9], bytes[8]) = (0, bytes[8] | 0x30);
            let length = usize::from(bytes[8]);
            fuzz_frame(&bytes);
            fuzz_frame(&bytes[..(FRAME_BYTES + length).min(bytes.len())]);
        }
    }
}
