//! Sums that a store has, each under a field: how answers say them.
//!
//! An answer has no part that must be the same when a call is committed: the sums that a packet reads are as old as the answer. After two
//! bytes that say so it has, for each sum, the length of its field, the field and the sum. The field of a place is its number in decimal
//! digits, that of a key the key's bytes.

use crate::wire::{BadBytes, Reader, Writer};

/// Digits of a place's number at most.
const DIGITS_MAX: usize = 10;

/// Appends the answer to a read of sums, for a store that has them: each with its field.
pub fn write_sums<'a>(sums: impl IntoIterator<Item = (&'a [u8], i64)>, out: &mut Vec<u8>) {
    out.extend([0; 2]);
    for (field, sum) in sums {
        append_sum(field, sum, out);
    }
}

/// Appends a sum to an answer.
pub fn append_sum(field: &[u8], sum: i64, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out, &[]);
    writer.varint(field.len() as u64);
    writer.raw(field);
    writer.varint((sum << 1 ^ sum >> 63) as u64);
}

/// Reads what [`write_sums`] wrote.
///
/// # Errors
/// These bytes are no such answer: some sums may have been read.
pub fn each_sum<'a>(answer: &'a [u8], mut each: impl FnMut(&'a [u8], i64)) -> Result<(), BadBytes> {
    let mut input = Reader::new(answer.get(2..).ok_or(BadBytes)?, &[]);
    while !input.is_empty() {
        let length = usize::try_from(input.varint()?).map_err(|_| BadBytes)?;
        let field = input.raw(length)?;
        let sum = input.varint()?;
        each(field, (sum >> 1) as i64 ^ -((sum & 1) as i64));
    }
    Ok(())
}

/// The field of a place.
#[derive(Debug)]
pub struct PlaceField {
    digits: [u8; DIGITS_MAX],
    from: usize,
}

impl PlaceField {
    /// Of the place of this number.
    #[must_use]
    pub fn new(place: u32) -> Self {
        let mut field = Self {
            digits: [0; DIGITS_MAX],
            from: DIGITS_MAX,
        };
        let mut left = place;
        loop {
            field.from -= 1;
            field.digits[field.from] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                return field;
            }
        }
    }

    /// As a store has it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.digits[self.from..]
    }

    /// The place of a field.
    #[must_use]
    pub fn read(field: &[u8]) -> Option<u32> {
        core::str::from_utf8(field).ok()?.parse().ok()
    }
}

impl AsRef<[u8]> for PlaceField {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// What is added, as a store counts: it has no more than this in a sum.
#[must_use]
pub fn amount_in_store(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_digits() {
        for place in [0, 7, 10, 99, 65_536, u32::MAX] {
            let field = PlaceField::new(place);
            assert_eq!(field.bytes(), place.to_string().as_bytes());
            assert_eq!(PlaceField::read(field.bytes()), Some(place));
        }
        for none in [&b""[..], b"-1", b"4294967296", b"1x", b"\xff"] {
            assert_eq!(PlaceField::read(none), None);
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let sums: [(&[u8], i64); 4] = [
            (b"0", 7),
            (b"", i64::MIN),
            (b"12", -1),
            (&[9; 300], i64::MAX),
        ];
        let mut answer = Vec::new();
        write_sums(sums, &mut answer);
        let mut read = Vec::new();
        each_sum(&answer, |field, sum| read.push((field, sum))).unwrap();
        assert_eq!(read, sums);
        for length in (0..answer.len()).filter(|length| ![2, 5].contains(length)) {
            let mut count = 0;
            let read = each_sum(&answer[..length], |_, _| count += 1);
            assert!(read.is_err() || count < sums.len(), "{length}");
        }
    }
}
