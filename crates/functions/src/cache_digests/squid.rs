//! Squid's cache digests: the key of an object, where a filter has its bits, and the format that caches fetch from each other.
//!
//! "Cache Digest specification - version 5" (Hamilton, Rousskov, Wessels 1998) and what Squid 5.7 sends: 128 bytes of header,
//! numbers with the highest byte first, then the filter's bits, the lowest bit of each byte first. An object's key is the MD5
//! of a byte for the method and the URL; its four words are four hash functions.

use asterism_function::Wire;
use md5::{Digest, Md5};

use super::refusal::Refusal;

/// Bytes before the bits.
pub const HEADER_BYTES: usize = 128;
/// Hash functions of a filter.
pub const HASHES: usize = 4;
/// The version that is written, and the oldest that can be read.
const VERSION: u16 = 5;
const VERSION_REQUIRED: u16 = 3;
/// Squid's number of the method GET: caches keep what GET brought.
const GET: u8 = 1;
/// Squid uses no digest in which more than this share of the bits is set.
const FULL_PERCENT: u64 = 65;
/// Where the header's fields are.
const CAPACITY_AT: usize = 4;
const COUNT_AT: usize = 8;
const DELETED_AT: usize = 12;
const MASK_BYTES_AT: usize = 16;
const BITS_PER_ENTRY_AT: usize = 20;
const HASHES_AT: usize = 21;

/// What an object is known by: the MD5 of its method and URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreKey(pub [u8; 16]);

impl StoreKey {
    /// Of what GET brings from a URL. Costs an MD5 of its length; allocates nothing.
    #[must_use]
    pub fn of_get(url: &[u8]) -> Self {
        let mut hash = Md5::new();
        hash.update([GET]);
        hash.update(url);
        Self(hash.finalize().into())
    }

    /// Its bits in a filter of so many; all 0 in one without any.
    #[must_use]
    pub fn places(self, bits: u32) -> [u32; HASHES] {
        let mut places = [0; HASHES];
        for (place, word) in places.iter_mut().zip(self.0.chunks_exact(4)) {
            let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            *place = word.checked_rem(bits).unwrap_or(0);
        }
        places
    }
}

/// Whether a bit is set.
#[must_use]
pub fn has_bit(mask: &[u8], place: u32) -> bool {
    mask.get((place / 8) as usize)
        .is_some_and(|byte| byte & 1 << (place % 8) != 0)
}

/// Whether a filter has all bits of a key: the object is in it, or happens to look so.
#[must_use]
pub fn contains(mask: &[u8], key: StoreKey) -> bool {
    let bits = u32::try_from(mask.len() * 8).unwrap_or(0);
    bits != 0 && key.places(bits).iter().all(|place| has_bit(mask, *place))
}

/// The digest of a cache that holds the objects with these keys, as it makes it itself.
#[must_use]
pub fn digest(
    capacity: u32,
    bits_per_entry: u8,
    keys: impl IntoIterator<Item = StoreKey>,
) -> (Header, Vec<u8>) {
    let mut header = Header::sized(capacity, bits_per_entry);
    let mut mask = vec![0; header.mask_bytes as usize];
    for key in keys {
        header.count += 1;
        for place in key.places(header.bits()) {
            mask[(place / 8) as usize] |= 1 << (place % 8);
        }
    }
    (header, mask)
}

/// What stands before the bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Wire)]
pub struct Header {
    /// Objects that it was made for.
    pub capacity: u32,
    /// Objects that were added. Squid counts one twice that it has in memory and on disk.
    pub count: u32,
    /// Objects that were to be taken away, which stay until it is made again.
    pub deleted: u32,
    /// Bytes of the bits.
    pub mask_bytes: u32,
    /// Bits for each object of the capacity.
    pub bits_per_entry: u8,
}

impl Header {
    /// Of a filter for so many objects.
    #[must_use]
    pub fn sized(capacity: u32, bits_per_entry: u8) -> Self {
        Self {
            capacity,
            bits_per_entry,
            mask_bytes: mask_bytes(capacity, bits_per_entry).unwrap_or(0),
            ..Self::default()
        }
    }

    /// How many bits the filter has.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.mask_bytes.saturating_mul(8)
    }

    /// The 128 bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        bytes[2..4].copy_from_slice(&VERSION_REQUIRED.to_be_bytes());
        for (at, value) in [
            (CAPACITY_AT, self.capacity),
            (COUNT_AT, self.count),
            (DELETED_AT, self.deleted),
            (MASK_BYTES_AT, self.mask_bytes),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        bytes[BITS_PER_ENTRY_AT] = self.bits_per_entry;
        bytes[HASHES_AT] = HASHES as u8;
        bytes
    }

    /// What 128 bytes say.
    ///
    /// # Errors
    /// They are fewer, or contradict themselves, or are of another version, or announce more than `mask_bytes_max` bytes of bits.
    pub fn read(bytes: &[u8], mask_bytes_max: u32) -> Result<Self, Refusal> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(Refusal::Truncated)?;
        let number = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (current, required) = (
            u16::from_be_bytes([bytes[0], bytes[1]]),
            u16::from_be_bytes([bytes[2], bytes[3]]),
        );
        if required > VERSION || current < VERSION_REQUIRED || required > current {
            return Err(Refusal::Version);
        }
        if usize::from(bytes[HASHES_AT]) != HASHES {
            return Err(Refusal::HashFunctions);
        }
        let header = Self {
            capacity: number(CAPACITY_AT),
            count: number(COUNT_AT),
            deleted: number(DELETED_AT),
            mask_bytes: number(MASK_BYTES_AT),
            bits_per_entry: bytes[BITS_PER_ENTRY_AT],
        };
        if header.mask_bytes == 0
            || mask_bytes(header.capacity, header.bits_per_entry) != Some(header.mask_bytes)
        {
            return Err(Refusal::Sizes);
        }
        if header.mask_bytes > mask_bytes_max {
            return Err(Refusal::TooLarge);
        }
        Ok(header)
    }
}

/// Bytes of a filter's bits, as Squid computes them; `None` past 2³¹ bits.
fn mask_bytes(capacity: u32, bits_per_entry: u8) -> Option<u32> {
    let bits = u64::from(capacity) * u64::from(bits_per_entry) + 7;
    (bits < i32::MAX as u64).then_some((bits / 8) as u32)
}

/// Reads a whole digest: its header and its bits.
///
/// # Errors
/// It is no digest, or lies in a way that shows: see [`Refusal`]. One that claims objects which its cache does not have cannot be
/// distinguished from an honest one.
pub fn read(bytes: &[u8], mask_bytes_max: u32) -> Result<(Header, &[u8]), Refusal> {
    let header = Header::read(bytes, mask_bytes_max)?;
    let mask = &bytes[HEADER_BYTES..];
    match mask.len().cmp(&(header.mask_bytes as usize)) {
        core::cmp::Ordering::Less => return Err(Refusal::Truncated),
        core::cmp::Ordering::Greater => return Err(Refusal::Trailing),
        core::cmp::Ordering::Equal => {}
    }
    let set = mask.iter().map(|byte| u64::from(byte.count_ones())).sum();
    check_bits(&header, set)?;
    Ok((header, mask))
}

/// Whether so many set bits go with what the header says.
fn check_bits(header: &Header, set: u64) -> Result<(), Refusal> {
    // Past it Squid uses the digest no more: it would claim too much.
    if set * 100 > u64::from(header.bits()) * FULL_PERCENT {
        return Err(Refusal::Overfull);
    }
    // An object sets a bit at least, and as many as there are hash functions at most.
    if set > u64::from(header.count) * HASHES as u64 || (set == 0 && header.count != 0) {
        return Err(Refusal::Count);
    }
    Ok(())
}

/// The union of digests, as one: what any of the caches has. `None` unless there are some and all are of one size: bits of
/// filters of different sizes mean different objects.
#[must_use]
pub fn union(digests: &[(Header, Vec<u8>)]) -> Option<(Header, Vec<u8>)> {
    let ((first, mask), others) = digests.split_first()?;
    let (mut header, mut mask) = (*first, mask.clone());
    for (other, bits) in others {
        if (other.mask_bytes, other.bits_per_entry, other.capacity)
            != (header.mask_bytes, header.bits_per_entry, header.capacity)
            || bits.len() != mask.len()
        {
            return None;
        }
        header.count = header.count.saturating_add(other.count);
        header.deleted = header.deleted.saturating_add(other.deleted);
        for (byte, more) in mask.iter_mut().zip(bits) {
            *byte |= more;
        }
    }
    Some((header, mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from Squid 5.7, which had stored `http://127.0.0.1:38080/o/1` to `/o/50` in memory and on disk.
    const RECORDED: &[u8] =
        include_bytes!("../../tests/suite/cache_digests/squid-5.7-of-50.digest");

    fn url(number: u32) -> Vec<u8> {
        format!("http://127.0.0.1:38080/o/{number}").into_bytes()
    }

    #[test]
    fn what_squid_wrote_is_read_and_written_alike() {
        let (header, mask) = read(RECORDED, 1 << 20).unwrap();
        let expected = Header {
            count: 101,
            ..Header::sized(102, 5)
        };
        assert_eq!((header, mask.len()), (expected, 64));
        assert_eq!(header.bytes(), RECORDED[..HEADER_BYTES]);
        for number in 1..=50 {
            assert!(contains(mask, StoreKey::of_get(&url(number))), "{number}");
        }
        // Squid's own icons are in it too: 280 of its 512 bits are set, so (280/512)^4 of strangers are found, 8.9 %.
        let strangers =
            (51..10_051).filter(|number| contains(mask, StoreKey::of_get(&url(*number))));
        assert!((700..1_100).contains(&strangers.count()));
    }

    /// RFC 1321's own values cannot be had with a method before them; this one is from Squid's log of its store.
    #[test]
    fn keys_are_squids() {
        let key = StoreKey::of_get(b"http://127.0.0.1:38080/o/1");
        let hex: String = key.0.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(hex, "52FAF89614672CA3DA5D82478E9D788F");
        assert_eq!(key.places(0), [0; 4]);
        assert_eq!(key.places(1), [0; 4]);
    }

    #[test]
    fn digests_that_lie_are_refused() {
        let changed = |at: usize, bytes: &[u8]| {
            let mut digest = RECORDED.to_vec();
            digest[at..at + bytes.len()].copy_from_slice(bytes);
            read(&digest, 1 << 20).map(|(header, _)| header)
        };
        let refused = [
            (changed(0, &[0, 2]), Refusal::Version),
            (changed(2, &[0, 6]), Refusal::Version),
            (changed(0, &[0, 3, 0, 4]), Refusal::Version),
            (changed(4, &[0; 4]), Refusal::Sizes),
            (changed(4, &[0, 0, 0, 104]), Refusal::Sizes),
            (changed(4, &[0xff; 4]), Refusal::Sizes),
            (changed(16, &[0; 4]), Refusal::Sizes),
            (changed(16, &[0, 0, 0, 65]), Refusal::Sizes),
            (changed(16, &[0xff; 4]), Refusal::Sizes),
            (changed(20, &[0]), Refusal::Sizes),
            (changed(20, &[6]), Refusal::Sizes),
            (changed(21, &[5]), Refusal::HashFunctions),
            (changed(8, &[0, 0, 0, 1]), Refusal::Count),
            (changed(HEADER_BYTES, &[0; 64]), Refusal::Count),
            (changed(HEADER_BYTES, &[0xff; 64]), Refusal::Overfull),
        ];
        for (result, refusal) in refused {
            assert_eq!(result, Err(refusal));
        }
        // The capacity may vary by what rounding hides, and counts are the cache's business.
        assert!(changed(4, &[0, 0, 0, 101]).is_ok());
        assert!(changed(8, &[0xff; 4]).is_ok());
        assert!(changed(12, &[0xff; 4]).is_ok());
        assert_eq!(read(RECORDED, 63).unwrap_err(), Refusal::TooLarge);
        for length in 0..RECORDED.len() {
            assert_eq!(read(&RECORDED[..length], 64), Err(Refusal::Truncated));
        }
        let longer = [RECORDED, &[0]].concat();
        assert_eq!(read(&longer, 64).unwrap_err(), Refusal::Trailing);
    }

    #[test]
    fn a_union_has_what_either_has() {
        let of = |urls: core::ops::Range<u32>| {
            digest(100, 8, urls.map(|number| StoreKey::of_get(&url(number))))
        };
        let (header, mask) = union(&[of(0..20), of(20..50)]).unwrap();
        assert_eq!(header.count, 50);
        assert!((0..50).all(|number| contains(&mask, StoreKey::of_get(&url(number)))));
        assert_eq!(union(&[]), None);
        let other = (Header::sized(101, 8), vec![0; 101]);
        assert_eq!(union(&[of(0..1), other]), None);
    }
}
