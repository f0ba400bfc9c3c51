//! The format of a state message: a header, then length-delimited frames. Integers are LEB128 (7 bits per byte, least first,
//! at most ten bytes) unless a width is given; fixed widths are little endian.
//!
//! ```text
//! message     := header frame*
//! header      := version:u8 cluster epoch timestamp:u64 head count:u8 echo*count      of the trial version timestamp:u48
//! echo        := member timestamp:u64 held            times in microseconds; the member's own timestamp, returned
//! frame       := kind:u8 length body[length]
//! records     := first (length group[length])+        kind 1
//! acknowledge := count entry*count                    kind 2
//! entry       := origin applied ahead pairs (missing present)*pairs
//! keep-alive  := flags:u8                             kind 3; bit 0: an answer is wanted; bit 1: the relay carries it
//! padding     := zero*                                kind 0x80; without a meaning
//! keys        := (id:u8 check:u32)+                   kind 0x82; the cluster keys that the sender accepts
//! audit       := see `audit::Reading`                 kind 0x81
//! stream      := sequence digest:u64                  kind 0x83; see `audit::StreamPosition`
//! ask         := (origin first more)+                 kind 0x84; to the relay of the own site
//! lacks       := (origin first more)+                 kind 0x85; what a relay was asked for and has not
//! clock       := flags:u8 cluster:u64 date:u64        kind 0x86; bit 0: settled; microseconds since 1970
//! snapshots; joining, leaving and closing                see `snapshot` and `membership`
//! ```
//!
//! A decoder trusts the length before every body to find the next frame, so an unknown body cannot shift the frames behind
//! it. A build may skip an unknown kind with bit 7 set; any other unknown kind makes it refuse the whole message.

mod acknowledge;
mod ask;
mod clock;
mod frame;
#[cfg(test)]
mod golden;
mod header;
mod keys;
mod membership;
mod snapshot;

use crate::MemberId;

pub(crate) use acknowledge::{AcknowledgeEntry, Acknowledgements, write_entry};
pub use ask::Asked;
pub(crate) use ask::{ASKED_BYTES_MAX, ASKED_MAX, AskedRuns, KIND_ASK, KIND_LACKS};
pub(crate) use clock::{CLOCK_BYTES, ClockFrame};
pub(crate) use frame::{
    Frame, Frames, Groups, KIND_ACKNOWLEDGE, KIND_AUDIT, KIND_KEEP_ALIVE, KIND_RECORDS,
    KIND_SNAPSHOT, KIND_SNAPSHOT_ACKNOWLEDGE, KIND_SNAPSHOT_END, KIND_STREAM, write_frame,
    write_padding,
};
pub(crate) use header::{Echo, Header};
pub use keys::{AcceptedKey, AcceptedKeys};
pub(crate) use keys::{KEYS_BYTES_MAX, KIND_KEYS};
pub(crate) use membership::{Held, Membership};
pub(crate) use snapshot::{SnapshotAcknowledge, SnapshotEndFrame, StateSnapshot};

/// The newest wire version that this build understands, and speaks once all members of an epoch do.
pub const WIRE_VERSION: u8 = 1;
/// What the version after it may be like, so that an upgrade from one to the next is tested before there is one: tests and the
/// simulator let hosts understand it, no configuration file does. Its timestamps have six bytes.
pub const WIRE_VERSION_TRIAL: u8 = WIRE_VERSION + 1;
/// Sequences above this are malformed: sums of a few of them cannot overflow.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 56;
/// The most bytes of a header without echoes.
pub(crate) const HEADER_BYTES_MAX: usize = 1 + 5 + 5 + 8 + 9 + 1;
/// The most bytes before a frame's body.
pub(crate) const FRAME_BYTES_MAX: usize = 1 + 3;
/// The most bytes of one echo.
pub(crate) const ECHO_BYTES_MAX: usize = 3 + 8 + 10;
/// The most present runs in one entry of an acknowledgement.
pub(crate) const RUNS_MAX: usize = 64;

/// Bytes of a number as LEB128.
pub(crate) const fn varint_bytes(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a number as LEB128.
#[inline]
pub(crate) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads front to back; every read is `None` once the bytes do not suffice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(crate) fn fixed_u64(&mut self) -> Option<u64> {
        let (taken, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*taken))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        self.varint_rest(u64::from(first & 0x7f))
    }

    fn varint_rest(&mut self, mut value: u64) -> Option<u64> {
        let mut shift = 7;
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    pub(crate) fn sequence(&mut self) -> Option<u64> {
        self.varint().filter(|&sequence| sequence <= SEQUENCE_MAX)
    }

    pub(crate) fn member(&mut self) -> Option<MemberId> {
        self.varint()
            .and_then(|value| u16::try_from(value).ok())
            .map(MemberId)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.varint().and_then(|value| u32::try_from(value).ok())
    }

    pub(crate) fn length(&mut self) -> Option<usize> {
        self.varint().and_then(|value| usize::try_from(value).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_have_the_stated_length() {
        for shift in 0..64 {
            for value in [
                1u64 << shift,
                (1u64 << shift) - 1,
                (1u64 << shift) | 1,
                u64::MAX >> shift,
            ] {
                let mut out = Vec::new();
                write_varint(&mut out, value);
                assert_eq!(out.len(), varint_bytes(value), "{value}");
                let mut reader = Reader::new(&out);
                assert_eq!(reader.varint(), Some(value));
                assert!(reader.is_empty());
                assert_eq!(Reader::new(&out[..out.len() - 1]).varint(), None);
            }
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_none() {
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
        let mut bytes = [0x80; 10];
        bytes[9] = 2;
        assert_eq!(Reader::new(&bytes).varint(), None);
        bytes[9] = 1;
        assert_eq!(Reader::new(&bytes).varint(), Some(1 << 63));
    }
}
