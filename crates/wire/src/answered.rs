//! Requests that name several sums of a store at once, and what was answered of sums.
//!
//! A request names fields, and buckets of time if the object has its sums by buckets: of each field the store answers the sum over these
//! buckets, or that in each of them ([`SumsAsked`]). Answers are as in `sums.rs`; a field that is in none of the buckets is not in the answer.

use core::ops::RangeInclusive;

use crate::key::Key;
use crate::sums::{PlaceField, each_sum};
use crate::wire::{BadBytes, Reader, Writer};

/// Buckets that a request names at most.
pub const BUCKETS_READ_MAX: u32 = 512;

/// Sums that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumsRead<'a> {
    /// The first bucket; 0: the object has no buckets.
    pub from: u32,
    /// How many buckets there are from that one on.
    pub buckets: u32,
    /// What is asked of the fields.
    pub asked: SumsAsked,
    fields: &'a [u8],
}

/// What a request asks of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumsAsked {
    /// The sum of each over all buckets.
    Whole,
    /// The same, and the number of the object's keys under an empty field.
    WithKeys,
    /// The sum of each in each bucket, under the name that [`write_bucket_field`] writes.
    ByBucket,
}

impl SumsAsked {
    /// By the byte that a request has.
    const ALL: [Self; 3] = [Self::Whole, Self::WithKeys, Self::ByBucket];
}

impl<'a> SumsRead<'a> {
    /// Writes a request for these fields of an object without buckets.
    pub fn write<F: AsRef<[u8]>>(out: &mut Writer<'_>, fields: impl IntoIterator<Item = F>) {
        Self::write_of(out, 0..=0, SumsAsked::Whole, fields);
    }

    /// Writes a request for these fields in these buckets.
    pub fn write_of<F: AsRef<[u8]>>(
        out: &mut Writer<'_>,
        buckets: RangeInclusive<u32>,
        asked: SumsAsked,
        fields: impl IntoIterator<Item = F>,
    ) {
        let (from, last) = buckets.into_inner();
        out.varint(from.into());
        out.varint((last.saturating_sub(from) + 1).into());
        out.raw(&[asked as u8]);
        for field in fields {
            let field = field.as_ref();
            out.varint(field.len() as u64);
            out.raw(field);
        }
    }

    /// Reads what was written.
    ///
    /// # Errors
    /// It is no such request, or one of more than [`BUCKETS_READ_MAX`] buckets.
    pub fn read(request: &'a [u8]) -> Result<Self, BadBytes> {
        let mut input = Reader::new(request, &[]);
        let from = u32::try_from(input.varint()?).map_err(|_| BadBytes)?;
        let buckets = u32::try_from(input.varint()?).map_err(|_| BadBytes)?;
        let asked = usize::from(input.u8()?);
        let asked = SumsAsked::ALL.get(asked).copied().ok_or(BadBytes)?;
        let fields = &request[request.len() - input.left()..];
        let read = Self {
            from,
            buckets,
            asked,
            fields,
        };
        let mut left = Reader::new(fields, &[]);
        while !left.is_empty() {
            next_field(&mut left)?;
        }
        let is_bounded = buckets <= BUCKETS_READ_MAX && from.checked_add(buckets).is_some();
        is_bounded.then_some(read).ok_or(BadBytes)
    }

    /// Whether the answer has the number of the object's keys.
    #[must_use]
    pub fn counts_keys(&self) -> bool {
        self.asked == SumsAsked::WithKeys
    }

    /// The fields.
    pub fn fields(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = Reader::new(self.fields, &[]);
        core::iter::from_fn(move || next_field(&mut left).ok())
    }

    /// The sums that are asked for by bucket: of each bucket, and in it of each field.
    pub fn each_sum(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let read = *self;
        let each = self.each_bucket();
        each.flat_map(move |bucket| read.fields().map(move |field| (bucket, field)))
    }

    /// The buckets; one that is 0 of an object without buckets.
    pub fn each_bucket(&self) -> impl Iterator<Item = u32> + use<> {
        self.from..self.from + self.buckets
    }
}

/// Appends the name that an answer has for the sum of a field in one bucket: the bucket in four bytes, the least significant first, and the field.
pub fn write_bucket_field(bucket: u32, field: &[u8], out: &mut Vec<u8>) {
    out.extend(bucket.to_le_bytes());
    out.extend(field);
}

/// Reads what [`write_bucket_field`] wrote; `None` if it is none.
#[must_use]
pub fn read_bucket_field(name: &[u8]) -> Option<(u32, &[u8])> {
    let (bucket, field) = name.split_first_chunk()?;
    Some((u32::from_le_bytes(*bucket), field))
}

fn next_field<'a>(input: &mut Reader<'a>) -> Result<&'a [u8], BadBytes> {
    let length = usize::try_from(input.varint()?).map_err(|_| BadBytes)?;
    input.raw(length)
}

/// Sums by place that were answered, in the order of places.
#[derive(Clone, Debug, Default)]
pub struct PlaceSums(Vec<(u32, i64)>);

impl PlaceSums {
    /// Adds the sums of an answer: of places below `length`, and of no more than so many.
    ///
    /// # Errors
    /// These bytes are no answer: some sums may have been added.
    pub fn add(&mut self, answer: &[u8], length: u32) -> Result<(), BadBytes> {
        let Self(sums) = self;
        let most = sums.len() + length as usize;
        let read = each_sum(answer, |field, sum| {
            if let Some(place) = PlaceField::read(field)
                && place < length
                && sums.len() < most
            {
                sums.push((place, sum));
            }
        });
        sums.sort_unstable();
        read
    }

    /// The sum in a place; 0 if none was answered.
    #[must_use]
    pub fn get(&self, place: u32) -> i64 {
        let Self(sums) = self;
        let found = sums.binary_search_by_key(&place, |(place, _)| *place);
        found.map_or(0, |found| sums[found].1)
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Sums by key that were answered.
#[derive(Clone, Debug)]
pub struct KeySums<K>(Vec<(K, u64)>);

impl<K> Default for KeySums<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Key> KeySums<K> {
    /// Adds the sums of an answer, until there are so many; the number of keys, if the answer has it. `addresses` are those that keys
    /// are written with.
    ///
    /// # Errors
    /// These bytes are no answer, or a field is no key: some sums may have been added.
    pub fn add(
        &mut self,
        answer: &[u8],
        most: u32,
        addresses: &[u32],
    ) -> Result<Option<u64>, BadBytes> {
        let Self(sums) = self;
        let mut read = Ok(None);
        each_sum(answer, |field, sum| {
            if field.is_empty() {
                read = read.map(|_| Some(sum as u64));
                return;
            }
            let mut input = Reader::new(field, addresses);
            match K::decode(&mut input) {
                Ok(key) if input.is_empty() => {
                    if sums.len() < most as usize {
                        sums.push((key, sum as u64));
                    }
                }
                _ => read = Err(BadBytes),
            }
        })?;
        read
    }

    /// The sum for a key; `None` if none was answered.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<u64> {
        let found = self.0.iter().find(|(known, _)| known == key);
        found.map(|(_, total)| *total)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &(K, u64)> {
        self.0.iter()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::write_sums;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        SumsRead::write(&mut Writer::new(&mut bytes, &[]), [&b"7"[..], b""]);
        let read = SumsRead::read(&bytes).unwrap();
        assert!(read.asked == SumsAsked::Whole && read.each_bucket().eq([0]));
        assert!(read.fields().eq([&b"7"[..], b""]));
        bytes.clear();
        for (byte, asked) in SumsAsked::ALL.into_iter().enumerate() {
            bytes.clear();
            let out = &mut Writer::new(&mut bytes, &[]);
            SumsRead::write_of(out, 9..=11, asked, [[1, 2, 3]]);
            let read = SumsRead::read(&bytes).unwrap();
            assert!(read.asked == asked && read.each_bucket().eq([9, 10, 11]));
            assert!(read.fields().eq([[1, 2, 3]]));
            assert_eq!((bytes[2], read.counts_keys()), (byte as u8, byte == 1));
        }
        for length in 0..bytes.len() {
            // Without its fields it is a request for none.
            assert_eq!(SumsRead::read(&bytes[..length]).is_ok(), length == 3);
        }
        for range in [1..=BUCKETS_READ_MAX + 1, u32::MAX..=u32::MAX] {
            bytes.clear();
            let out = &mut Writer::new(&mut bytes, &[]);
            SumsRead::write_of(out, range, SumsAsked::WithKeys, [b"0"]);
            assert_eq!(SumsRead::read(&bytes), Err(BadBytes));
        }
        assert_eq!(SumsRead::read(&[9, 3, 3]), Err(BadBytes));
    }

    #[test]
    fn fields_of_buckets_are_read_as_they_were_written() {
        let mut field = Vec::new();
        write_bucket_field(0x0102_0304, b"key", &mut field);
        assert_eq!(field, *b"\x04\x03\x02\x01key");
        assert_eq!(read_bucket_field(&field), Some((0x0102_0304, &b"key"[..])));
        assert_eq!(
            read_bucket_field(&field[..4]),
            Some((0x0102_0304, &b""[..]))
        );
        assert_eq!(read_bucket_field(&field[..3]), None);
    }

    #[test]
    fn sums_are_of_places_that_there_are_and_no_more_than_fit() {
        let mut answer = Vec::new();
        let said: [(&[u8], i64); 4] = [(b"9", 7), (b"2", -4), (b"x", 1), (b"1", 5)];
        write_sums(said, &mut answer);
        let mut sums = PlaceSums::default();
        sums.add(&answer, 3).unwrap();
        assert_eq!([0, 1, 2, 9].map(|place| sums.get(place)), [0, 5, -4, 0]);
        assert!(sums.add(&[0, 0, 1], 3).is_err());
        sums.clear();
        assert_eq!(sums.get(1), 0);
    }

    #[test]
    fn fields_that_are_no_keys_are_an_error() {
        let mut answer = Vec::new();
        write_sums([(&[1, 0, 0, 0][..], 3), (&[2, 0, 0, 0], 4)], &mut answer);
        let mut sums = KeySums::<u32>::default();
        assert_eq!(sums.add(&answer, 1, &[]), Ok(None));
        assert_eq!((sums.get(&1), sums.get(&2)), (Some(3), None), "no more fit");
        answer.clear();
        write_sums([(&[1, 0, 0, 0, 0][..], 3)], &mut answer);
        assert!(sums.add(&answer, 9, &[]).is_err(), "it is longer");
        assert!(sums.iter().eq(&[(1, 3)]));
        answer.clear();
        write_sums([(&b""[..], 7)], &mut answer);
        assert_eq!(sums.add(&answer, 9, &[]), Ok(Some(7)));
    }
}
