//! Numbers as messages have them: LEB128 (7 bits per byte, least first, at most ten bytes), or of a fixed width, little endian.

use crate::MemberId;

/// Sequences above this are malformed: sums of a few of them cannot overflow.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 56;

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
