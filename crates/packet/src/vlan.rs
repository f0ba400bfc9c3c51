//! The VLAN that a frame is of.

use core::fmt;

use crate::packet::Packet;

/// The VLAN that a frame is of: the identifiers in its tags, outer before inner.
///
/// A tag with the identifier 0 carries a priority alone (IEEE 802.1Q §9.6) and counts as none, so a frame of the untagged VLAN
/// has the same value with and without one. Two tags (QinQ, IEEE 802.1ad) name a VLAN inside a VLAN. The tags' types do not count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Vlan(u32);

/// Bits of one identifier.
const ID_BITS: u32 = 12;
const ID_MASK: u32 = (1 << ID_BITS) - 1;

impl Vlan {
    /// The VLAN of frames without a tag.
    pub const NONE: Vlan = Vlan(0);
    /// Bits that [`Vlan::to_bits`] has at most.
    pub const BITS: u32 = 2 * ID_BITS;

    /// The VLAN with these identifiers, 0 for a tag that is not there. Bits above the twelve are ignored.
    #[inline]
    #[must_use]
    pub const fn new(outer: u16, inner: u16) -> Vlan {
        let (outer, inner) = (outer as u32 & ID_MASK, inner as u32 & ID_MASK);
        match inner {
            0 => Vlan(outer),
            _ => Vlan(outer << ID_BITS | inner),
        }
    }

    /// The VLAN as a number of [`Vlan::BITS`] bits: 0 without a tag, the identifier with one, `outer × 4096 + inner` with two.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The VLAN of a number; bits above [`Vlan::BITS`] are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Vlan {
        match (bits >> ID_BITS) as u16 & ID_MASK as u16 {
            0 => Vlan::new(bits as u16, 0),
            outer => Vlan::new(outer, bits as u16),
        }
    }

    /// The identifiers, outer before inner; 0 for a tag that is not there.
    #[must_use]
    pub const fn ids(self) -> (u16, u16) {
        match self.0 >> ID_BITS {
            0 => (self.0 as u16, 0),
            outer => (outer as u16, (self.0 & ID_MASK) as u16),
        }
    }

    /// Whether the frame is of no VLAN.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// As `10`, or `10.20` of two tags.
impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ids() {
            (id, 0) => write!(f, "{id}"),
            (outer, inner) => write!(f, "{outer}.{inner}"),
        }
    }
}

impl Packet<'_> {
    /// The VLAN that the frame is of. Of a frame without tags that is a look at its layout.
    #[inline(always)]
    #[must_use]
    pub fn vlan(&self) -> Vlan {
        match self.layout().vlan_tags() {
            0 => Vlan::NONE,
            _ => self.vlan_of_tags(),
        }
    }

    #[cold]
    #[inline(never)]
    fn vlan_of_tags(&self) -> Vlan {
        Vlan::new(
            self.vlan_id().unwrap_or(0),
            self.inner_vlan_id().unwrap_or(0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn vlans_are_numbers_and_come_back_from_them() {
        for (outer, inner, text) in [
            (0, 0, "0"),
            (10, 0, "10"),
            (4_095, 0, "4095"),
            (10, 20, "10.20"),
            (1, 4_095, "1.4095"),
            (4_095, 4_095, "4095.4095"),
        ] {
            let vlan = Vlan::new(outer, inner);
            assert_eq!(Vlan::from_bits(vlan.to_bits()), vlan, "{text}");
            assert_eq!(
                (vlan.ids(), vlan.to_string()),
                ((outer, inner), text.into())
            );
            assert!(vlan.to_bits() >> Vlan::BITS == 0);
        }
        assert_eq!(Vlan::new(0, 20), Vlan::new(20, 0), "a priority tag is none");
        assert_eq!(Vlan::from_bits(10 << 12), Vlan::new(10, 0));
        assert_eq!(Vlan::new(0xf00a, 0), Vlan::new(10, 0), "priority bits");
    }

    #[test]
    fn a_frame_is_of_the_vlan_of_its_tags() {
        let frame = |tags: &[[u8; 4]]| {
            let mut frame: Vec<u8> = [0; 12].into();
            frame.extend(tags.iter().flatten());
            frame.extend([0x08, 0x06]);
            frame.extend([0; 46]);
            Packet::parse(&mut frame).map(|packet| packet.vlan())
        };
        assert_eq!(frame(&[]), Ok(Vlan::NONE));
        assert_eq!(frame(&[[0x81, 0, 0xe0, 0]]), Ok(Vlan::NONE));
        assert_eq!(frame(&[[0x81, 0, 0xe0, 10]]), Ok(Vlan::new(10, 0)));
        let stacked = [[0x88, 0xa8, 0x10, 10], [0x81, 0, 0, 20]];
        assert_eq!(frame(&stacked), Ok(Vlan::new(10, 20)));
        assert_eq!(
            frame(&[[0x81, 0, 0, 10], [0x81, 0, 0, 20]]),
            frame(&stacked)
        );
    }
}
