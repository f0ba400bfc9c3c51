//! What the control side reads of the state: a directory of all caches, and the digest of one.

use asterism_function::{BadBytes, Reader, Wire, Writer};

use super::kept::{BLOCK_BYTES, Head};
use super::squid::Header;
use super::{CacheDigests, CacheDigestsState, Counted};

/// Question 0.
const DIRECTORY: u32 = 0;
/// Bits of a block.
const BLOCK_BITS: u32 = BLOCK_BYTES as u32 * 8;

/// What is known of a cache's digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Nothing: none was fetched, or too long ago.
    Nothing,
    /// It was fetched.
    Fetched(Head),
    /// It is made of reports.
    Reported(Header),
}

/// What is known of all caches, in their order: the digest, and what was counted, in the order of [`Counted::ALL`].
pub type Directory = Vec<(Known, [u64; Counted::ALL.len()])>;

impl CacheDigests {
    /// What is known of a cache's digest.
    fn known(&self, state: &CacheDigestsState, cache: u16) -> Known {
        match self.config.caches.get(usize::from(cache)) {
            None => Known::Nothing,
            Some(one) => match one.filter() {
                Some(mut filter) => {
                    let count = |counted: Counted| state.counts.total(&counted.of(cache));
                    let stored = count(Counted::Stored).saturating_sub(count(Counted::Released));
                    filter.count = u32::try_from(stored).unwrap_or(u32::MAX);
                    Known::Reported(filter)
                }
                None => match state.heads.get(&cache) {
                    Ok(Some(head)) => Known::Fetched(head.value),
                    _ => Known::Nothing,
                },
            },
        }
    }

    /// Answers a question: a part of it from `cursor` on, and where to go on.
    pub(super) fn tell(
        &self,
        state: &CacheDigestsState,
        question: u32,
        (cursor, count): (u32, u32),
        bytes: &mut Vec<u8>,
    ) -> Option<u32> {
        let mut out = Writer::new(bytes, &[]);
        if question == DIRECTORY {
            for cache in 0..self.config.caches.len() as u16 {
                self.known(state, cache).encode(&mut out);
                for (counted, _) in Counted::ALL {
                    out.u64(state.counts.total(&counted.of(cache)));
                }
            }
            return None;
        }
        let cache = u16::try_from(question - 1).ok()?;
        let known = self.known(state, cache);
        let header = match known {
            Known::Nothing => return None,
            Known::Fetched(head) => head.header,
            Known::Reported(header) => header,
        };
        if cursor == 0 {
            known.encode(&mut out);
        }
        let blocks = header.mask_bytes.div_ceil(BLOCK_BYTES as u32);
        let end = cursor.saturating_add(count).min(blocks);
        for block in cursor..end {
            let bits = match self.filters.get(usize::from(cache)) {
                Some(Some((begin, bits))) => counted_block(state, *begin, *bits, block),
                _ => match state.masks.get(&((cache, header.mask_bytes), block)) {
                    Ok(Some(found)) => found.value.0,
                    // What follows would be taken for this block: the reader sees that it is not whole.
                    _ => return None,
                },
            };
            out.raw(&bits);
        }
        (end < blocks).then_some(end)
    }
}

/// A block of the filter that counting cells make: a bit for each that holds an object.
fn counted_block(
    state: &CacheDigestsState,
    begin: u32,
    bits: u32,
    block: u32,
) -> [u8; BLOCK_BYTES] {
    let mut bytes = [0; BLOCK_BYTES];
    let first = block * BLOCK_BITS;
    for place in first..bits.min(first + BLOCK_BITS) {
        if state.stored.get(begin + place).is_ok_and(|sum| sum > 0) {
            bytes[((place - first) / 8) as usize] |= 1 << (place % 8);
        }
    }
    bytes
}

impl Wire for Known {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Nothing => out.u8(0),
            Self::Fetched(head) => {
                out.u8(1);
                head.encode(out);
            }
            Self::Reported(header) => {
                out.u8(2);
                let head = Head {
                    header: *header,
                    fetched: 0,
                };
                head.encode(out);
            }
        }
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(match input.u8()? {
            0 => Self::Nothing,
            1 => Self::Fetched(Head::decode(input)?),
            2 => Self::Reported(Head::decode(input)?.header),
            _ => return Err(BadBytes),
        })
    }
}

/// Reads the directory, the answer to question 0.
///
/// # Errors
/// It is none.
pub fn read_directory(bytes: &[u8]) -> Result<Directory, BadBytes> {
    let mut input = Reader::new(bytes, &[]);
    let mut directory = Vec::new();
    while !input.is_empty() {
        let known = Known::decode(&mut input)?;
        let mut counts = [0; Counted::ALL.len()];
        for count in &mut counts {
            *count = input.u64()?;
        }
        directory.push((known, counts));
    }
    Ok(directory)
}

/// Reads a digest, the answer to the question of a cache's number plus one: its header, and the bits. `None`: nothing is known of
/// it, or not all bits are there yet.
#[must_use]
pub fn read_mask(bytes: &[u8]) -> Option<(Header, Vec<u8>)> {
    let mut input = Reader::new(bytes, &[]);
    let header = match Known::decode(&mut input).ok()? {
        Known::Nothing => return None,
        Known::Fetched(head) => head.header,
        Known::Reported(header) => header,
    };
    let mask = input.raw(header.mask_bytes as usize).ok()?;
    Some((header, mask.to_vec()))
}
