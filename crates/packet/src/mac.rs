//! The 48-bit address of an Ethernet interface.

use core::fmt;

/// An Ethernet address, displayed as `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The address that every station receives.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Whether the group bit is set: multicast, of which broadcast is one.
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn displays_as_six_pairs() {
        assert_eq!(
            MacAddress([2, 0, 0xab, 0, 0xff, 1]).to_string(),
            "02:00:ab:00:ff:01"
        );
        assert!(
            MacAddress::BROADCAST.is_multicast() && !MacAddress([2, 0, 0, 0, 0, 1]).is_multicast()
        );
    }
}
