//! A packet's place in a chain, encoded as a port number, which parked and emitted packets keep anyway.

use crate::function::PortNumber;

/// A place in a chain: a stage, and by which of its two sides the packet comes to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u16);

impl Place {
    /// Numbers from here on are no ports of an instance.
    const WITHIN: u16 = 0x8000;
    /// The packet is a copy that ends at the stage.
    const COPY: u16 = 0x4000;
    /// The packet is what the host's control side tells the stage, and ends there.
    const CONTROL: u16 = 0x2000;

    /// The place that a port number says, if it says one.
    #[inline(always)]
    #[must_use]
    pub fn of(port: PortNumber) -> Option<Self> {
        (port.0 & Self::WITHIN != 0).then_some(Self(port.0))
    }

    /// Where a packet enters a chain of which `last` is the last stage: packets by ports that a chain does not know come to the
    /// first stage, as those by port 0.
    #[inline(always)]
    pub(super) fn entered(port: PortNumber, last: usize) -> Self {
        match (Self::of(port), port.0) {
            (Some(place), _) => place,
            (None, 1) => Self::at(last, 1),
            (None, _) => Self::at(0, 0),
        }
    }

    #[inline(always)]
    fn at(stage: usize, side: u16) -> Self {
        Self(Self::WITHIN | (stage as u16) << 1 | side)
    }

    /// As a port number.
    #[inline(always)]
    #[must_use]
    pub fn port(self) -> PortNumber {
        PortNumber(self.0 | Self::WITHIN)
    }

    /// The stage.
    #[inline(always)]
    pub(super) fn stage(self) -> usize {
        usize::from((self.0 & !Self::WITHIN & !Self::COPY & !Self::CONTROL) >> 1)
    }

    /// The stage's port by which the packet comes.
    #[inline(always)]
    pub(super) fn side(self) -> PortNumber {
        PortNumber(self.0 & 1)
    }

    /// Whether the packet is a copy, which ends at the stage.
    #[inline(always)]
    #[must_use]
    pub fn is_copy(self) -> bool {
        self.0 & Self::COPY != 0
    }

    /// Whether the packet is what the control side tells the stage.
    #[inline(always)]
    pub(super) fn is_reported(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Where the control side speaks to a stage.
    pub(super) fn reported(stage: usize) -> Self {
        Self(Self::at(stage, 0).0 | Self::CONTROL)
    }

    pub(super) fn copy(self) -> Self {
        Self(self.0 | Self::COPY)
    }

    /// Where a packet goes that leaves the stage by its port `to`: to the next stage, or by a port of the instance.
    #[inline(always)]
    pub(super) fn leave(self, to: PortNumber, last: usize) -> PortNumber {
        let stage = self.stage();
        match to.0 {
            0 if stage > 0 => Self::at(stage - 1, 1).port(),
            1 if stage < last => Self::at(stage + 1, 0).port(),
            _ => to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outward_in_order_inward_in_reverse() {
        for (from, to, expected) in [(0, 1, vec![0, 1, 2]), (1, 0, vec![2, 1, 0])] {
            let mut at = Place::entered(PortNumber(from), 2);
            let mut seen = Vec::new();
            loop {
                seen.push(at.stage());
                assert_eq!(at.side(), PortNumber(from));
                let next = at.leave(PortNumber(to), 2);
                match Place::of(next) {
                    Some(place) => at = place,
                    None => break assert_eq!(next, PortNumber(to)),
                }
            }
            assert_eq!(seen, expected);
        }
        let second = Place::at(1, 0);
        assert_eq!(second.leave(PortNumber(5), 2), PortNumber(5));
        assert_eq!(Place::of(second.copy().port()), Some(second.copy()));
        assert_eq!(second.copy().stage(), 1);
        let reported = Place::reported(2);
        assert_eq!(Place::of(reported.port()), Some(reported));
        assert!(reported.is_reported() && !reported.is_copy() && !second.is_reported());
        assert_eq!((reported.stage(), reported.side()), (2, PortNumber(0)));
        let turned = Place::of(second.leave(PortNumber(0), 2)).unwrap();
        assert_eq!((turned.stage(), turned.side()), (0, PortNumber(1)));
    }
}
