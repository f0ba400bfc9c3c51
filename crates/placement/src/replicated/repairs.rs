//! How much may go again at once. While the path is congested, what was lost was lost because a queue overflowed: all of it
//! again at once would overflow that queue again. So repairs then go a round's bytes at a time, each after the echoes of those
//! before it. While the path is free nothing is bounded.

use crate::Time;
use crate::branch::{Branch, taken};
use crate::mutant::{self, Mutant};

/// Repairs on a congested path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repairs {
    /// Bytes that may go again before the next pause; `None` on a free path.
    left: Option<u64>,
    /// When the last ones went.
    last: Time,
    /// The pause ends then at the latest.
    paused_until: Option<Time>,
}

impl Repairs {
    /// What holds after every change.
    fn assert_sound(&self) {
        debug_assert!(
            self.paused_until.is_none() || self.left == Some(0),
            "a pause begins when the bytes are used up"
        );
    }

    /// When repairs may go at the latest, if some wait.
    pub(super) fn due(&self) -> Time {
        self.paused_until.unwrap_or(Time::ZERO)
    }

    /// Whether repairs may go now, where a round has so many bytes, or none on a free path. A pause ends once `are_echoed` says so of the
    /// time when the last repairs went, or by itself.
    pub(super) fn may_go(
        &mut self,
        now: Time,
        bytes: u64,
        are_echoed: impl FnOnce(Time) -> bool,
    ) -> bool {
        if bytes == 0 {
            *self = Repairs::default();
            return true;
        }
        if let Some(until) = self.paused_until {
            let is_stuck = mutant::active(Mutant::RepairsStayPaused);
            if is_stuck || (!are_echoed(self.last) && until > now) {
                taken(Branch::RepairsWait);
                return false;
            }
            taken(Branch::RepairsGoOn);
            *self = Repairs::default();
        }
        self.left.get_or_insert(bytes);
        self.assert_sound();
        true
    }

    /// So many bytes went again, in a message with this timestamp. When a pause begins by that, `until` says when it ends.
    pub(super) fn went(&mut self, bytes: u64, timestamp: Time, until: impl FnOnce() -> Time) {
        let Some(left) = &mut self.left else {
            return;
        };
        *left = left.saturating_sub(bytes);
        self.last = timestamp;
        if *left == 0 {
            taken(Branch::RepairsUsedUp);
            self.paused_until = Some(until());
        }
        self.assert_sound();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(repairs: &mut Repairs, now: u64, are_echoed: bool) -> bool {
        repairs.may_go(Time(now), 1_000, |_| are_echoed)
    }

    #[test]
    fn on_a_free_path_nothing_is_bounded() {
        let mut repairs = Repairs::default();
        for _ in 0..3 {
            assert!(repairs.may_go(Time(1), 0, |_| false));
            repairs.went(1 << 40, Time(1), || Time(9));
            assert_eq!(repairs.due(), Time::ZERO);
        }
    }

    #[test]
    fn a_pause_ends_with_the_echoes_or_by_itself() {
        let mut repairs = Repairs::default();
        for (now, are_echoed) in [(5, true), (20, false)] {
            assert!(go(&mut repairs, 1, false));
            repairs.went(600, Time(1), || Time(20));
            assert!(go(&mut repairs, 1, false), "some bytes are left");
            repairs.went(600, Time(2), || Time(20));
            assert_eq!(repairs.due(), Time(20));
            assert!(!go(&mut repairs, now - 1, false));
            assert!(go(&mut repairs, now, are_echoed));
            repairs = Repairs::default();
        }
    }
}
