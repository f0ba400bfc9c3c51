//! Keyed hashing of small keys, two multiplications a 16-byte key. One would be five instructions less, and for some seeds
//! puts hosts and ports in a row into a third of the buckets.
//!
//! The seed is secret (drawn from the cluster key), so that nobody outside can choose keys that
//! collide. Tables' hashes never travel; choices by hash agree because the seed is the cluster's.

use core::net::IpAddr;

const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xD6E8_FEB8_6659_FD93;

#[inline(always)]
const fn fold(left: u64, right: u64) -> u64 {
    let product = (left as u128).wrapping_mul(right as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hashes one word.
#[inline(always)]
pub const fn word(word: u64, seed: u64) -> u64 {
    fold(fold(word ^ seed, FIRST) ^ seed, SECOND)
}

/// Hashes two words.
#[inline(always)]
pub const fn words(first: u64, second: u64, seed: u64) -> u64 {
    fold(fold(first ^ seed, FIRST) ^ second, SECOND ^ seed)
}

/// Hashes a *conversation*: all that two addresses say to each other, in both directions. With one seed it is the same for a director that
/// spreads packets by conversation and for a store whose shards have whole conversations.
#[inline]
pub fn conversation(one: IpAddr, other: IpAddr, seed: u64) -> u64 {
    let (one, other) = (address(one, seed), address(other, seed));
    words(one.min(other) << 16, one.max(other) << 16, seed)
}

/// An address in 32 bits: of IPv6 a hash. Addresses that meet there share a bucket, no more.
#[inline(always)]
pub fn address(address: IpAddr, seed: u64) -> u64 {
    match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            words((bits >> 64) as u64, bits as u64, seed) >> 32
        }
    }
}

/// What derived keys are hashed from: fields of known width, side by side in words, so that no two can cancel each other. One
/// that does not fit in what is left of a word begins the next.
///
/// Costs one multiplication for each word and one more if their number is odd; what is known of the widths is folded away.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// The seed, with all pairs of full words.
    state: u64,
    /// The first word of a pair.
    first: Option<u64>,
    word: u64,
    bits: u32,
}

impl Packed {
    /// Nothing yet.
    #[inline(always)]
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            state: seed,
            first: None,
            word: 0,
            bits: 0,
        }
    }

    /// With the low `bits` bits of `value`, 1 to 64. Its other bits must be zero: they would lie in the field before.
    #[inline(always)]
    #[must_use]
    pub const fn with(mut self, value: u64, bits: u32) -> Self {
        debug_assert!(bits >= 1 && bits <= 64 && (bits == 64 || value >> bits == 0));
        if self.bits + bits > 64 {
            match self.first {
                Some(first) => {
                    self.state = words(first, self.word, self.state);
                    self.first = None;
                }
                None => self.first = Some(self.word),
            }
            self.word = value;
            self.bits = bits;
        } else if self.bits == 0 {
            self.word = value;
            self.bits = bits;
        } else {
            self.word = self.word << bits | value;
            self.bits += bits;
        }
        self
    }

    /// The hash; the seed if there was no field.
    #[inline(always)]
    #[must_use]
    pub const fn finish(self) -> u64 {
        match (self.first, self.bits) {
            (_, 0) => self.state,
            (None, _) => word(self.word, self.state),
            (Some(first), _) => words(first, self.word, self.state),
        }
    }
}

/// Hashes any bytes; for digests and cold paths. Long ones go in two rows of 16 bytes side by side: one row would wait for
/// its own multiplications, which take four times as long.
pub fn bytes(bytes: &[u8], seed: u64) -> u64 {
    let mut state = seed ^ bytes.len() as u64;
    let (stripes, rest) = bytes.as_chunks::<32>();
    if !stripes.is_empty() {
        let (mut left, mut right) = (state, state ^ SECOND);
        for stripe in stripes {
            let word = |from: usize| {
                let mut word = [0; 8];
                word.copy_from_slice(&stripe[from..from + 8]);
                u64::from_le_bytes(word)
            };
            left = fold(word(0) ^ FIRST, word(8) ^ left);
            right = fold(word(16) ^ SECOND, word(24) ^ right);
        }
        state = words(left, right, FIRST);
    }
    let (chunks, tail) = rest.as_chunks::<8>();
    for chunk in chunks {
        state = words(u64::from_le_bytes(*chunk), state, FIRST);
    }
    if !tail.is_empty() {
        state = words(padded(tail), state, FIRST);
    }
    word(state, seed)
}

/// One to seven bytes as the low ones of a word, read from both ends, which may overlap: a copy of so many bytes as there are is a
/// call.
#[inline(always)]
fn padded(tail: &[u8]) -> u64 {
    let length = tail.len();
    let shift = |at: usize| 8 * at as u32;
    if let (Some(first), Some(last)) = (tail.first_chunk::<4>(), tail.last_chunk::<4>()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_le_bytes(*half)));
        return first | last << shift(length - 4);
    }
    let byte = |at: usize| u64::from(tail[at]) << shift(at);
    byte(0) | byte(length / 2) | byte(length - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_what_it_is_with_zeroes_behind_it() {
        let bytes = [0x81, 0x92, 0xA3, 0xB4, 0xC5, 0xD6, 0xE7];
        for length in 1..=bytes.len() {
            let mut word = [0; 8];
            word[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(
                padded(&bytes[..length]),
                u64::from_le_bytes(word),
                "{length}"
            );
        }
    }

    #[test]
    fn spreads_counters_over_low_bits_and_tags() {
        let mut low = [0u32; 256];
        let mut high = [0u32; 256];
        for key in 0..256 * 64 {
            let hash = words(key, 0, 12345);
            low[(hash & 255) as usize] += 1;
            high[(hash >> 56) as usize] += 1;
        }
        for count in low.iter().chain(&high) {
            assert!(
                (20..140).contains(count),
                "a bucket holds {count} of 64 expected"
            );
        }
    }

    #[test]
    fn spreads_what_networks_hold() {
        // Hosts in a row, ports in a row, one remote: little that differs, as in a scan or behind a carrier's NAT.
        for seed in [0x5EED, 12345, u64::MAX / 3, 0x0123_4567_89AB_CDEF] {
            let mut low = [0u32; 256];
            let mut high = [0u32; 128];
            for host in 0..128u64 {
                for port in 0..128u64 {
                    let first = (0x0A00_0000 + (host << 24)) | 0xC633_6407_0000_0000;
                    let hash = words(first, 6 << 32 | port << 8 | 0xBB01_0000, seed);
                    low[(hash & 255) as usize] += 1;
                    high[(hash >> 57) as usize] += 1;
                }
            }
            let worst = |counts: &[u32]| counts.iter().copied().max().unwrap_or(0);
            assert!(worst(&low) < 64 * 2, "a bucket holds {} of 64", worst(&low));
            assert!(worst(&high) < 128 * 2, "a tag {} of 128", worst(&high));
        }
    }

    #[test]
    fn length_and_seed_matter() {
        assert_ne!(bytes(&[0], 1), bytes(&[0, 0], 1));
        assert_ne!(bytes(b"key", 1), bytes(b"key", 2));
    }

    #[test]
    fn every_bit_of_long_bytes_matters_and_so_does_their_order() {
        let mut held: Vec<u8> = (0..200).map(|place| place as u8).collect();
        let plain = bytes(&held, 7);
        let mut found = std::collections::HashSet::from([plain]);
        for bit in 0..held.len() * 8 {
            held[bit / 8] ^= 1 << (bit % 8);
            let changed = bytes(&held, 7);
            assert!(found.insert(changed), "bit {bit}");
            let differing = (plain ^ changed).count_ones();
            assert!((8..57).contains(&differing), "bit {bit}: {differing} of 64");
            held[bit / 8] ^= 1 << (bit % 8);
        }
        for (first, second) in [(0, 32), (0, 16), (0, 8), (64, 160), (184, 192)] {
            for place in 0..8 {
                held.swap(first + place, second + place);
            }
            assert!(found.insert(bytes(&held, 7)), "{first} and {second}");
            for place in 0..8 {
                held.swap(first + place, second + place);
            }
        }
        for length in 0..200 {
            assert!(found.insert(bytes(&held[..length], 7)), "{length} bytes");
        }
    }
}
