//! The Internet checksum (RFC 1071): full sums, pseudo headers, and changes to a checksum that is already there (RFC 1624).
//!
//! Sums are kept in 64 bits and in the machine's byte order: 2^64-1 and 2^32-1 are multiples of 2^16-1, so wide words
//! may be added and folded at the end, and the one's complement sum of byte-swapped words is the byte-swapped sum.

use core::net::{Ipv4Addr, Ipv6Addr};

/// A partial one's complement sum of 16-bit words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// Adds bytes that start at an even offset of what is summed. An odd last byte is padded with zero, so only the
    /// last call may have one. Costs about a third of a cycle a byte; at most 2^34 bytes may be added in all.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let mut sum = self.0;
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        Sum(sum + u64::from(u32::from_ne_bytes(last)))
    }

    /// Adds one 16-bit word, given as a number (not in network order).
    #[inline]
    #[must_use]
    pub fn word(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word.to_be()))
    }

    /// The sum of an IPv4 pseudo header (RFC 9293 §3.1, RFC 768): `length` is that of the transport header and data.
    #[inline]
    #[must_use]
    pub fn pseudo_header4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        length: u16,
    ) -> Sum {
        Sum::ZERO
            .bytes(&source.octets())
            .bytes(&destination.octets())
            .word(u16::from(protocol))
            .word(length)
    }

    /// The sum of an IPv6 pseudo header (RFC 8200 §8.1).
    #[inline]
    #[must_use]
    pub fn pseudo_header6(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: u8,
        length: u32,
    ) -> Sum {
        Sum::ZERO
            .bytes(&source.octets())
            .bytes(&destination.octets())
            .bytes(&length.to_be_bytes())
            .word(u16::from(protocol))
    }

    /// The checksum to be written: the complement of the folded sum, as the two bytes of the header field.
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u8; 2] {
        (!fold(self.0)).to_ne_bytes()
    }

    /// [`Sum::finish`] for UDP, where zero means "no checksum" and is therefore sent as 0xffff (RFC 768).
    #[inline]
    #[must_use]
    pub fn finish_udp(self) -> [u8; 2] {
        never_zero(self.finish())
    }

    /// Whether what was added, its checksum field included, is intact: the folded sum is all ones.
    #[inline]
    #[must_use]
    pub fn is_valid(self) -> bool {
        fold(self.0) == 0xffff
    }
}

/// What replacing some 16-bit words by others does to every checksum that covers them: the sum of ~m + m' of RFC 1624
/// equation 3. Made once per edit, applied to each checksum (IPv4 header, transport, the ICMP error around them).
#[derive(Clone, Copy, Debug, Default)]
pub struct Change(u64);

impl Change {
    /// No word replaced.
    pub const NONE: Change = Change(0);

    /// Adds the replacement of one 16-bit word.
    #[inline]
    #[must_use]
    pub fn and16(self, old: [u8; 2], new: [u8; 2]) -> Change {
        Change(self.0 + u64::from(!u16::from_ne_bytes(old)) + u64::from(u16::from_ne_bytes(new)))
    }

    /// Adds the replacement of two neighbouring 16-bit words.
    #[inline]
    #[must_use]
    pub fn and32(self, old: [u8; 4], new: [u8; 4]) -> Change {
        Change(self.0 + u64::from(!u32::from_ne_bytes(old)) + u64::from(u32::from_ne_bytes(new)))
    }

    /// Adds the replacement of an IPv6 address.
    #[inline]
    #[must_use]
    pub fn and128(self, old: [u8; 16], new: [u8; 16]) -> Change {
        let (old, _) = old.as_chunks::<4>();
        let (new, _) = new.as_chunks::<4>();
        old.iter()
            .zip(new)
            .fold(self, |change, (old, new)| change.and32(*old, *new))
    }

    /// The change in sixteen bits, to be kept and applied by [`FoldedChange::apply`] to many packets.
    #[inline]
    #[must_use]
    pub fn folded(self) -> FoldedChange {
        FoldedChange(fold(self.0))
    }

    /// [`Change::folded`] for the checksum of TCP or UDP.
    #[inline]
    #[must_use]
    pub fn folded_for_transport(self) -> TransportChange {
        TransportChange {
            negated: !fold(self.0),
        }
    }

    /// The checksum field after the change, from the field before it. About ten instructions.
    #[inline]
    #[must_use]
    pub fn apply(self, checksum: [u8; 2]) -> [u8; 2] {
        (!fold(self.0 + u64::from(!u16::from_ne_bytes(checksum)))).to_ne_bytes()
    }

    /// [`Change::apply`] for UDP: "no checksum" (zero) stays so, and a checksum that becomes zero is written as 0xffff.
    #[inline]
    #[must_use]
    pub fn apply_udp(self, checksum: [u8; 2]) -> [u8; 2] {
        if checksum == [0, 0] {
            checksum
        } else {
            never_zero(self.apply(checksum))
        }
    }
}

/// A [`Change`] worked out: the same for all packets of a flow, so that it is made once and kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoldedChange(u16);

impl FoldedChange {
    /// The checksum field after the change, from the field before it. About seven instructions.
    #[inline(always)]
    #[must_use]
    pub fn apply(self, checksum: [u8; 2]) -> [u8; 2] {
        let sum = u32::from(self.0) + u32::from(!u16::from_ne_bytes(checksum));
        (!fold32(sum)).to_ne_bytes()
    }
}

/// A [`Change`] worked out for the checksum of TCP or UDP, whichever a packet has: [`Change::apply`] and
/// [`Change::apply_udp`] by the same instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportChange {
    /// The complement of the change: added to a checksum, it takes the change from it.
    negated: u16,
}

impl TransportChange {
    /// The checksum field after the change, from the field before it. About eight instructions.
    #[inline(always)]
    #[must_use]
    pub fn apply(self, checksum: [u8; 2], is_tcp: bool) -> [u8; 2] {
        let word = u16::from_ne_bytes(checksum);
        let changed = fold32(u32::from(word) + u32::from(self.negated));
        // The two differ in zeros alone, which are rare.
        if word == 0 || changed == 0xffff {
            self.apply_to_zero(checksum, is_tcp)
        } else {
            changed.to_ne_bytes()
        }
    }

    #[cold]
    #[inline(never)]
    fn apply_to_zero(self, checksum: [u8; 2], is_tcp: bool) -> [u8; 2] {
        let change = Change(u64::from(!self.negated));
        if is_tcp {
            change.apply(checksum)
        } else {
            change.apply_udp(checksum)
        }
    }
}

/// The checksum of `bytes`, whose own checksum field must be zero or left out, as a number.
#[inline]
#[must_use]
pub fn of(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(Sum::ZERO.bytes(bytes).finish())
}

/// Whether an IPv4 header without options carries the right checksum. About fifteen instructions.
#[inline]
#[must_use]
pub fn is_valid_ipv4_header(header: &[u8; 20]) -> bool {
    is_valid_begun_ipv4_header(header) && *header != [0; 20]
}

/// [`is_valid_ipv4_header`] of a header that begins with its version, and so is not all zeros: only those have a sum
/// of zero, which is not the sum of a right header although it is a multiple of 2^16-1.
#[inline(always)]
pub(crate) fn is_valid_begun_ipv4_header(header: &[u8; 20]) -> bool {
    let (words, rest) = header.as_chunks::<8>();
    let (sum, carry) = u64::from_ne_bytes(words[0]).overflowing_add(u64::from_ne_bytes(words[1]));
    let last = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]);
    let (sum, second_carry) = sum.overflowing_add(u64::from(last) + u64::from(carry));
    is_multiple_of_ffff(sum + u64::from(second_carry))
}

/// Whether the folded sum would be one of the two zeros, in four instructions: multiplied by the inverse of 2^16-1
/// modulo 2^64, multiples become their quotient, which is at most (2^64-1)/(2^16-1), and all others exceed that.
#[inline(always)]
const fn is_multiple_of_ffff(sum: u64) -> bool {
    const QUOTIENT_MAX: u64 = u64::MAX / 0xffff;
    sum.wrapping_mul(QUOTIENT_MAX.wrapping_neg()) <= QUOTIENT_MAX
}

/// The IPv4 header checksum after the time to live, the first byte of its word, has lost one: RFC 1624 with the
/// change known. In little-endian words the sum loses one, so its complement gains one; where that would leave a sum
/// of zero, the other zero is meant.
#[inline]
#[must_use]
pub fn after_ttl_decrement(checksum: [u8; 2]) -> [u8; 2] {
    let checksum = u16::from_le_bytes(checksum);
    checksum
        .wrapping_add(1 + u16::from(checksum >= 0xfffe))
        .to_le_bytes()
}

/// Folds 64 bits into 16 with end-around carry. A sum that is not zero stays so (0xffff and 0 are both zero in one's
/// complement, and only the sum of nothing but zeros is 0), which is what makes RFC 1624 agree with a recomputation.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    fold32((sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32)
}

#[inline(always)]
fn fold32(sum: u32) -> u16 {
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[inline(always)]
fn never_zero(checksum: [u8; 2]) -> [u8; 2] {
    if checksum == [0, 0] {
        [0xff, 0xff]
    } else {
        checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(&bytes), !0xddf2);
        assert!(Sum::ZERO.bytes(&bytes).word(!0xddf2).is_valid());
    }

    #[test]
    fn the_example_of_rfc_1624_gives_plus_zero() {
        // §4: a field changes from 0x5555 to 0x3285 under checksum 0xdd2f; equation 3 gives 0x0000 and not 0xffff.
        let change = Change::NONE.and16([0x55, 0x55], [0x32, 0x85]);
        assert_eq!(change.apply([0xdd, 0x2f]), [0, 0]);
        assert_eq!(change.apply_udp([0xdd, 0x2f]), [0xff, 0xff]);
        assert_eq!(change.apply_udp([0, 0]), [0, 0]);
    }

    #[test]
    fn a_folded_change_is_the_change_for_every_checksum() {
        let changes = [
            Change::NONE,
            Change::NONE.and16([1, 2], [1, 2]),
            Change::NONE.and16([0xff, 0xff], [0, 0]),
            Change::NONE.and16([0, 0], [0xff, 0xff]),
            Change::NONE.and32([10, 0, 0, 1], [203, 0, 113, 9]),
        ];
        for change in changes {
            for checksum in 0..=u16::MAX {
                let before = checksum.to_be_bytes();
                assert_eq!(change.folded().apply(before), change.apply(before));
                let transport = change.folded_for_transport();
                assert_eq!(transport.apply(before, true), change.apply(before));
                assert_eq!(transport.apply(before, false), change.apply_udp(before));
            }
        }
    }

    #[test]
    fn the_loss_of_one_is_the_general_change_for_every_checksum() {
        for checksum in 0..=u16::MAX {
            let before = checksum.to_be_bytes();
            let general = Change::NONE.and16([64, 6], [63, 6]).apply(before);
            assert_eq!(after_ttl_decrement(before), general, "{checksum:#06x}");
        }
    }

    #[test]
    fn a_header_is_valid_with_one_checksum_only() {
        let mut header = [
            0x45, 0, 0, 40, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1,
        ];
        let right = of(&header);
        let valid = (0..=u16::MAX).filter(|checksum| {
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            is_valid_ipv4_header(&header)
        });
        assert_eq!(valid.collect::<std::vec::Vec<_>>(), [right]);
        assert!(!is_valid_ipv4_header(&[0; 20]));
        // Sums that carry out of 64 bits, twice.
        assert!(is_valid_ipv4_header(&[0xff; 20]));
    }
}
